#!/usr/bin/env bash
# Every setting is documented as the library has it, name, default, scope and help; the documentation names no
# setting that is gone; and no variable is read that is none.
set -u
cd "$1"
passed=0 failed=0
page=docs/guide/environment.md
# ROW(kind, scope, member, "NAME", "default", "help"), as a line of the page.
rows=$(sed -nE 's/^ROW\([A-Z]+, ([A-Z]+), [a-z_]+, "([A-Z_]+)", "(.*)", "(.*)"\)$/| `\2` | `\3` | \1 | \4 |/p' \
	src/base/config_rows.h | sed -e 's/| `` |/|  |/' -e 's/| AGREED |/| yes |/' -e 's/| LOCAL |/|  |/' \
	-e 's|see docs/guide/environment.md|see below|')
[ "$(echo "$rows" | wc -l)" -eq "$(grep -c '^ROW(' src/base/config_rows.h)" ] || {
	echo "a ROW in config_rows.h is not on one line"
	failed=1
}
while read -r row; do
	if grep -qxF "$row" $page; then
		passed=$((passed + 1))
	else
		echo "not in $page: $row"
		failed=$((failed + 1))
	fi
done <<<"$rows"
for name in $(grep -o '^| `COLL_[A-Z_]*' $page | tr -d '| `'); do
	echo "$rows COLL_CONFIG_FILE COLL_TORCH_AS" | grep -qw "$name" || { echo "$name is no setting"; failed=$((failed + 1)); }
done
# COLL_NATIVE and COLL_NATIVE_BYTES are names of the past, refused with the new one (src/base/config.c).
# COLL_BENCH_ and COLL_FUZZ_ are those of drivers and tests; _INIT is of the headers.
for name in $(git ls-files src transports topology ddp gpt tools examples bench | grep '\.[ch]$' | grep -v _test |
	xargs grep -hoE '"COLL_[A-Z][A-Z_]*[="]' | tr -d '"=' | sort -u); do
	case $name in
	COLL_NATIVE | COLL_NATIVE_BYTES | COLL_BENCH_* | COLL_FUZZ_* | COLL_CONFIG_FILE | COLL_TORCH_AS | *_INIT) continue ;;
	esac
	if echo "$rows" | grep -qF "| \`$name\` |"; then
		passed=$((passed + 1))
	else
		echo "$name is read, but is no setting"
		failed=$((failed + 1))
	fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ] && [ $passed -gt 10 ]
