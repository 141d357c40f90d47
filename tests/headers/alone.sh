#!/usr/bin/env bash
# Each public header compiles alone, as C11 and as C++.
set -u
cd "$1/include"
passed=0 failed=0
for h in coll/*.h; do
	for c in "${CC:-cc} -std=c11 -pedantic -x c" "${CXX:-c++} -std=c++11 -x c++"; do
		if printf '#include "%s"\nint main(void) { return 0; }\n' "$h" |
			$c -Wall -Wextra -Werror -fsyntax-only -I. -; then
			passed=$((passed + 1))
		else
			echo "$h: $c failed"
			failed=$((failed + 1))
		fi
	done
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ] && [ $passed -ge 4 ]
