#!/usr/bin/env bash
# The price of diagnosis and of calls that never hang: builds the library with and without
# guards and compares the two (versus.c). For measurement only: the build without guards
# hangs where the other one ends.
#
#   bench/guards.sh [BUILD-DIRECTORY [BLOCKS [TIMES]]]      old: with guards, new: without
set -eu
cd "$(dirname "$0")/.."
build=${1:-build} blocks=${2:-30} times=${3:-3}
for guards in true false; do
	dir=$build/guards-$guards
	[ -e "$dir/build.ninja" ] || meson setup "$dir" -Dguards=$guards -Dbuildtype=release >/dev/null
	ninja -C "$dir" -j2 src/libcoll.so.0.1.0 bench/versus >/dev/null
done
echo "load: $(cut -d' ' -f1-3 /proc/loadavg), $(nproc) cores"
for _ in $(seq "$times"); do
	COLL_TRANSPORTS=shm "$build/guards-true/bench/versus" --cells all_reduce/8/plain --below 0 --blocks "$blocks" \
		"$build/guards-true/src/libcoll.so.0.1.0" "$build/guards-false/src/libcoll.so.0.1.0"
done
