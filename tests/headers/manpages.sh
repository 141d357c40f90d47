#!/usr/bin/env bash
# Every function of coll.h and ddp.h and every installed program has a man page, with its
# prototype as declared; no page is of something gone; formatting gives no warning.
set -u
cd "$1"
passed=0 failed=0 skipped=0
verdict() { # STATUS WHAT
	if [ "$1" -eq 0 ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "$2"
	fi
}
# The page itself, or what its .so line names.
page_of() {
	local first
	first=$(head -1 "docs/man/$1" 2>/dev/null) || return 1
	case $first in
	".so man"*) echo "docs/man/${first##*/}" ;;
	*) echo "docs/man/$1" ;;
	esac
}
# Text without markup and white space, to compare prototypes.
bare() { sed -e 's/^\.[A-Z]* //' -e 's/[" \t]//g' | tr -d '\n'; }

declared=$(sed -n '/^COLL_API/,/;/p' include/coll/coll.h include/coll/ddp.h | tr '\n' ' ' | grep -o 'COLL_API [^;]*;' |
	tr -s ' \t' ' ' | sed 's/^COLL_API //')
functions=$(echo "$declared" | grep -o 'coll_[a-z_]*(' | tr -d '(')
while read -r prototype; do
	name=$(echo "$prototype" | grep -o 'coll_[a-z_]*(' | head -1 | tr -d '(')
	page=$(page_of "$name.3")
	[ -n "$page" ] && [ -s "$page" ]
	verdict $? "$name has no man page"
	[ -n "$page" ] && sed -n '/^\.SH SYNOPSIS/,/^\.SH DESCRIPTION/p' "$page" | bare | grep -qF "$(echo "$prototype" | bare)"
	verdict $? "docs/man/$name.3: the synopsis lacks: $prototype"
done <<<"$declared"
for program in collrun coll-info coll-links coll-plan coll-topo coll-trace coll-tune ddp_gpt $(cd bench && ls ./*_perf.c | sed 's/^..//; s/\.c$//'); do
	[ -s "$(page_of "$program.1")" ]
	verdict $? "$program has no man page"
done
for file in docs/man/*.[137]; do
	name=$(basename "${file%.*}")
	case $file in
	*.3) echo "$functions" | grep -qx "$name" ;;
	*) true ;;
	esac
	verdict $? "$file: there is no such function"
	grep -q "'$(basename "$file")'" docs/man/meson.build
	verdict $? "$file is not installed: docs/man/meson.build does not name it"
	# References to pages of our own must lead somewhere.
	for ref in $(sed -n 's/^\.BR \(coll[a-z_\\-]*\|libcoll\|ddp_gpt\) (\([137]\)).*/\1.\2/p' "$file" | tr -d '\\'); do
		[ -e "docs/man/$ref" ]
		verdict $? "$file refers to $ref, which does not exist"
	done
done
# Every option in a program's table is on its page.
options_of() {
	grep -oE '(\{|\(flag, |\(argv\[i\], )"-{0,2}[A-Za-z_-]+"(, (no_argument|required_argument|[01], NULL|OPT_)|\) == 0)' "$1" |
		sed -E 's/^[^"]*"([^"]*)".*/\1/; s/^([^-].*)/--\1/'
}
while read -r page source; do
	options=$(options_of "$source")
	[ "$(echo "$options" | wc -l)" -ge 4 ]
	verdict $? "no table of options found in $source"
	for option in $options; do
		sed 's/\\-/-/g' "docs/man/$page.1" | grep -qE -- "(^|[^A-Za-z0-9-])$option([^A-Za-z0-9_-]|\$)"
		verdict $? "docs/man/$page.1 does not know $option of $source"
	done
done <<-END
	collrun tools/collrun_options.c
	coll-info tools/coll-info.c
	coll-plan tools/coll-plan.c
	coll-topo tools/coll-topo.c
	coll-trace tools/coll-trace.c
	coll-perf bench/perf/args.c
END
formatter=
for try in "mandoc -T lint -W warning" "groff -man -Tutf8 -ww -z" "groff -man -Tascii -ww -z"; do
	printf '.TH a 1 2026-01-01 "b" "c"\n.SH NAME\na \\- b\n' >/tmp/manpages.$$
	if command -v "${try%% *}" >/dev/null && [ -z "$($try /tmp/manpages.$$ 2>&1)" ]; then
		formatter=$try
		break
	fi
done
rm -f /tmp/manpages.$$
if [ -n "$formatter" ]; then
	for file in docs/man/*.[137]; do
		grep -q '^\.so ' "$file" && continue
		warnings=$($formatter "$file" 2>&1)
		[ -z "$warnings" ]
		verdict $? "$warnings"
	done
else
	skipped=1
	echo "SKIPPED: neither mandoc nor groff with its man macros"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ] && [ $passed -gt 100 ]
