#!/usr/bin/env bash
# What `./run test` leaves out: the tests that take long, or test the tests, in
# build/release. All tests under AddressSanitizer and UndefinedBehaviourSanitizer,
# the programs where threads race under ThreadSanitizer, a clang build with its fast
# part, and two planted defects that must turn the first two red. Ends with
# `check: N passed, N failed`.
set -u
passed=0 failed=0 jobs=$(nproc)
verdict() { # NAME STATUS
	if [ "$2" -eq 0 ]; then
		passed=$((passed + 1))
		echo "check: $1: passed"
	else
		failed=$((failed + 1))
		echo "check: $1: FAILED"
	fi
}
configure() { # DIR ARGUMENTS...
	local dir=$1
	shift
	[ -e "build/$dir/build.ninja" ] || meson setup "build/$dir" "$@" >/dev/null || return 1
	ninja -j"$jobs" -C "build/$dir" >"build/$dir/ninja.log" 2>&1 || { tail -30 "build/$dir/ninja.log"; return 1; }
}
# A finding anywhere in a log is a failure, whatever the exit status was.
clean_log() {
	! grep -E -m5 "ERROR: (Address|Leak|Thread)Sanitizer|WARNING: ThreadSanitizer|runtime error:" "$1"
}
suite() { # DIR ARGUMENTS...
	local dir=$1 status=0
	shift
	meson test -C "build/$dir" --no-rebuild --setup all --timeout-multiplier 6 "$@" >"build/$dir/test.out" 2>&1 || status=1
	tail -12 "build/$dir/test.out"
	clean_log "build/$dir/meson-logs/testlog-all.txt" || status=1
	python3 tests/summary.py "build/$dir/meson-logs/testlog-all.json" || status=1
	return $status
}
# The planted program must fail under its sanitizer.
caught() { # PROGRAM PATTERN
	! "$1" >build/planted.log 2>&1 && grep -q "$2" build/planted.log
}

# The plain programs in which threads meet. Left out: what has one thread (planner, seeded scheduler, model of
# shm) and can show nothing here; and the launcher's tests, whose ranks are processes.
threaded() { # DIR
	meson test -C "build/$1" --no-rebuild --list --suite plain 2>/dev/null | sed -n -E 's#^.*plain(\+more)* / ##p' |
		grep -v -E '^(sched|sched-mutants|plan-.*|coll-plan|shm_model|fuzz-.*|collrun_test|launch_test)$'
}

suite release --suite more
verdict "the rest of the suite" $?

export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:abort_on_error=0:exitcode=99
export LSAN_OPTIONS=exitcode=99:print_suppressions=0:suppressions=$PWD/tests/lsan.supp
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
# Some programs fork a victim while threads run; the child makes threads of its own.
export TSAN_OPTIONS=exitcode=66:halt_on_error=0:die_after_fork=0
configure asan -Db_sanitize=address,undefined -Db_lundef=false -Doptimization=1 -Ddebug=true -Dtests=enabled
verdict "AddressSanitizer build" $?
# Some hwloc plugin (probably the PCI one) leaks, and is unloaded by then: no suppression can
# name it. Without plugins the report is gone, and they get no coverage here.
HWLOC_PLUGINS_PATH=/nonexistent suite asan --no-suite house
verdict "AddressSanitizer and UBSan suite" $?
caught build/asan/tests/planted-leak LeakSanitizer
verdict "a planted leak is caught" $?

configure tsan -Db_sanitize=thread -Db_lundef=false -Doptimization=1 -Ddebug=true -Dcriterion=disabled
verdict "ThreadSanitizer build" $?
suite tsan $(threaded tsan)
verdict "ThreadSanitizer, programs where threads race" $?
caught build/tsan/tests/planted-race "data race"
verdict "a planted race is caught" $?

CC=clang configure clang -Dwerror=true -Dtests=enabled
verdict "clang build, warnings are errors" $?
suite clang --suite unit
verdict "clang, unit tests" $?
timeout 510 bash tests/cuda-real.sh --stand-in --minutes 8 --build build/clang --out build/cuda-real.md >build/cuda-real.log
verdict "cuda-real.sh on the stand-in driver, in 8.5 minutes" $?
grep -v ": passed" build/cuda-real.log

python3 tests/fuzz/run.py 20
verdict "fuzz targets, 20 s each" $?

python3 tests/headers/abi.py .
verdict "the binary interface is that of the baseline" $(($? == 77 ? 0 : $?))

python3 tools/release/deb.py . build/dist
verdict "the packages of Debian: built, judged by lintian, installed and tested in bare roots" $(($? == 77 ? 0 : $?))

echo "check: $passed passed, $failed failed"
[ $failed -eq 0 ]
