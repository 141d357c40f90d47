#!/usr/bin/env bash
# The Arm build: cross-compiles the library and a part of its tests, or everything, with warnings as errors and runs the
# reduction, plan, engine and loop tests under qemu-user.
#
# usage: cross.sh SOURCE-DIRECTORY BUILD-DIRECTORY [all]
set -u
src=$1 build=$2
unset CC_LD CXX_LD # those of this machine
for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
	command -v $tool >/dev/null || { echo "SKIPPED: no $tool"; echo "0 passed, 0 failed, 1 skipped"; exit 77; }
done
[ -e "$build/build.ninja" ] ||
	meson setup "$build" "$src" --cross-file "$src/cross/aarch64.ini" -Dwerror=true -Doptimization=2 -Dcriterion=disabled \
		-Dhwloc=disabled -Dgpt=disabled >/dev/null || exit 1
# The tests beside this one mostly wait: they get a core when they want it.
{ echo 10 >/proc/self/autogroup; } 2>/dev/null || renice -n 10 -p $$ >/dev/null
tests="crc32c_test types_test reduce_test reduce_levels_test plan_cache plan_build plan-golden range_test engine_test conform-loop collectives-loop"
targets="libcoll_core.a src/libcoll.a"
[ "${3:-}" != all ] || targets=all tests+=" plan-mutants"
ninja -C "$build" $targets >"$build/ninja.log" 2>&1 || { tail -30 "$build/ninja.log"; exit 1; }
# Builds the programs of these tests.
meson test -C "$build" --setup all --timeout-multiplier 6 --print-errorlogs $tests >"$build/test.log" 2>&1
status=$?
tail -40 "$build/test.log"
# README's first program without any shared library: this build has no hwloc, which has no static form.
awk '/^```c$/ { on = 1; text = ""; next } /^```$/ { if (on && text ~ /int main/) { printf "%s", text; exit } on = 0 } on { text = text $0 "\n" }' "$src/README.md" >"$build/first.c"
private=$(sed -n 's/^Libs.private: //p' "$build/meson-private/libcoll.pc")
aarch64-linux-gnu-gcc -static -o "$build/first" "$build/first.c" -I"$src/include" "$build/src/libcoll.a" $private 2>"$build/static.log" &&
	env -u COLL_RANK -u COLL_SIZE qemu-aarch64 "$build/first" | grep "rank 0 of 1" ||
	{ cat "$build/static.log"; echo "FAILED: a static program"; status=1; }
python3 "$src/tests/summary.py" "$build/meson-logs/testlog-all.json" || status=1
exit $status
