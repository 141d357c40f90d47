#!/usr/bin/env bash
# What bash offers behind the names of our programs: their options, the values of some, and behind collrun another program.
# usage: completion.sh SOURCE-ROOT BUILD-ROOT
set -u
PATH=$2/tools:$2/bench:$PATH
. "$1/tools/completion/libcoll"
passed=0 failed=0

# offers WORD COMMAND...: the last word of the command is completed to WORD, among others
offers() {
	local wanted=$1
	shift
	COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
	_libcoll "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
	if printf '%s\n' "${COMPREPLY[@]}" | grep -qxF -- "$wanted"; then
		passed=$((passed + 1))
	else
		echo "FAIL $*: no $wanted in: ${COMPREPLY[*]}"
		failed=$((failed + 1))
	fi
}

offers --timeout collrun --time
offers --dry-run collrun -n 2 --d
offers numa collrun --bind n
offers none collrun -n 2 --stdin ""
offers HOME collrun -x HOM
offers printf collrun -n 2 print
offers "$1/README.md" collrun -n 2 cat "$1/READ"
offers --settings coll-info --set
offers --json coll-topo --js
offers --minbytes allreduce_perf --minb
offers --output coll-trace --ou
COMP_WORDS=(collrun --time) COMP_CWORD=1
_libcoll collrun --time collrun
[ "${#COMPREPLY[@]}" -eq 1 ] && passed=$((passed + 1)) || failed=$((failed + 1))
complete -p collrun coll-info ddp_gpt >/dev/null && passed=$((passed + 1)) || failed=$((failed + 1))
echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ] && [ $passed -gt 10 ]
