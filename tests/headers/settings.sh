#!/usr/bin/env bash
# Every setting is documented, and the documentation names no setting that is gone.
set -u
cd "$1"
passed=0 failed=0
settings=$(grep -o '"COLL_[A-Z_]*"' src/base/config_rows.h | tr -d '"')
for name in $settings; do
	if grep -q "^| \`$name\`" docs/guide/environment.md; then
		passed=$((passed + 1))
	else
		echo "$name is not in docs/guide/environment.md"
		failed=$((failed + 1))
	fi
done
for name in $(grep -o '^| `COLL_[A-Z_]*' docs/guide/environment.md | tr -d '| `'); do
	echo "$settings COLL_CONFIG_FILE" | grep -qw "$name" || { echo "$name is no setting"; failed=$((failed + 1)); }
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ] && [ $passed -gt 10 ]
