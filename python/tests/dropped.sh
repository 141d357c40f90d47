#!/bin/sh
# 10 000 asynchronous all_reduces whose Works are dropped, with the library and its module under AddressSanitizer, in an
# interpreter that is not. What Python itself leaves behind is in asan_suppressions.txt. usage: dropped.sh [CALLS [RANKS]]
set -e
cd "$(dirname "$0")/../.."
build=build/asan-python
[ -e $build/build.ninja ] ||
	meson setup $build -Db_sanitize=address -Db_lundef=false -Dtests=disabled -Dgpt=disabled -Dpeers=disabled >/dev/null
ninja -C $build >/dev/null
# The interpreter itself, not a script that starts it.
python=$("${COLL_PYTHON:-python3}" -c 'import sys; print(sys.executable)')
unset COLL_PYTHON
exec $build/tools/collrun --no-prefix -n "${2:-2}" env LD_PRELOAD="$(cc -print-file-name=libasan.so)" PYTHONMALLOC=malloc \
	PYTHONPATH="$PWD/$build/python" ASAN_OPTIONS=detect_leaks=1:exitcode=23 \
	LSAN_OPTIONS="suppressions=$PWD/python/tests/asan_suppressions.txt:print_suppressions=0" \
	"$python" "$PWD/python/tests/dropped.py" "${1:-10000}"
