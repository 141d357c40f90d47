#!/bin/bash
# docs/design/softcuda.md has a row for each rule of rules.h, with its text, and each setting that the stand-in reads.
# usage: rules_documented.sh SOURCE_ROOT
set -u
page=$1/docs/design/softcuda.md
bad=0
seen=0
while IFS=$'\t' read -r name text; do
	seen=$((seen + 1))
	if ! grep -qF "| \`$name\` | $text | " "$page"; then
		echo "$page: no row for the rule $name, or another text: $text"
		bad=1
	fi
done < <(sed -n 's/^\tR(\([a-z_]*\), "\(.*\)").*/\1\t\2/p' "$1/tests/softcuda/rules.h")
for setting in $(grep -hoE '"(SOFTCUDA|CUDA)_[A-Z_]+"' "$1"/tests/softcuda/{driver,kernel,memory,queue,ipc,context,vmm}.c | tr -d '"' | grep -vE '^CUDA_(ERROR|SUCCESS)' | sort -u); do
	if ! grep -qF "\`$setting\`" "$page"; then
		echo "$page: the setting $setting is missing"
		bad=1
	fi
done
echo "$seen rules"
[ "$seen" -gt 0 ] && exit $bad
exit 1
