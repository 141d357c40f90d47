#!/usr/bin/env bash
# Install into an empty DESTDIR and build the README's first program against it:
# with pkg-config, with CMake, and against the static library; then run each. What is
# installed starts without LD_LIBRARY_PATH: a DESTDIR is a prefix that was moved.
set -u
src=$1 build=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0 skipped=0
try() { # NAME COMMAND...
	local name=$1
	shift
	if "$@" >"$dir/log" 2>&1; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "FAILED: $name"
		cat "$dir/log"
	fi
}
run_hello() { # PROGRAM: alone, it is rank 0 of 1 and the sum is its own value
	env -u COLL_RANK -u COLL_SIZE LD_LIBRARY_PATH="$lib" "$1" | grep -q "rank 0 of 1"
}

try "meson install" env DESTDIR="$dir/root" meson install -C "$build" --no-rebuild --quiet
pc=$(find "$dir/root" -name libcoll.pc)
lib=$(dirname "$(dirname "$pc")")
prefix=$(sed -n 's/^prefix=//p' "$pc")
# The C block of the README that has a main() is the first program.
awk '/^```c$/ { on = 1; text = ""; next } /^```$/ { if (on && text ~ /int main/) { printf "%s", text; exit } on = 0 } on { text = text $0 "\n" }' "$src/README.md" >"$dir/first.c"
try "the README has a program" test -s "$dir/first.c"

export PKG_CONFIG_SYSROOT_DIR="$dir/root" PKG_CONFIG_PATH="$lib/pkgconfig"
try "pkg-config" sh -c "cc -std=c11 -Wall -Wextra -Werror -o $dir/first $dir/first.c \$(pkg-config --cflags --libs libcoll)"
try "runs" run_hello "$dir/first"
# The system's libraries stay shared: many have no static form.
try "static" sh -c "cc -std=c11 -o $dir/first-static $dir/first.c \$(pkg-config --static --cflags --libs libcoll | sed s/-lcoll/-l:libcoll.a/)"
try "static runs" run_hello "$dir/first-static"
try "static needs no libcoll.so" sh -c "! readelf -d $dir/first-static | grep -q 'NEEDED.*libcoll'"
try "pkg-config asks for no other package" sh -c "! grep -q '^Requires' $pc"
starts() { # PROGRAM: every program has --help; what the loader lacks ends with 127
	local status=0
	env -u LD_LIBRARY_PATH "$1" --help || status=$?
	[ $status != 127 ]
}
programs=0
for program in $(find "$dir/root" -type f \( -path '*/bin/*' -o -path '*/libexec/*' \)); do
	try "starts: $(basename "$program")" starts "$program"
	programs=$((programs + 1))
done
try "programs are installed" test $programs -ge 10
bin=$dir/root$prefix/bin
# nccl-tests has programs of these names.
for name in all_gather broadcast gather reduce reduce_scatter scatter sendrecv; do
	try "${name}_perf is not in bin" test ! -e "$bin/${name}_perf"
	try "coll-perf $name" sh -c "env -u LD_LIBRARY_PATH PATH=$bin:$PATH coll-perf $name --help | grep -q 'usage: ${name}_perf'"
done
try "coll-perf all_reduce" sh -c "$bin/coll-perf all_reduce --help | grep -q 'usage: allreduce_perf'"
try "coll-perf refuses other names" sh -c "! $bin/coll-perf all_geather 2>$dir/said && grep -q all_geather $dir/said"
module=$(find "$dir/root" -name '_coll.abi3.so')
[ -z "$module" ] || try "Python's module finds the library" env -u LD_LIBRARY_PATH PYTHONPATH="$(dirname "$(dirname "$module")")" \
	sh -c "cd $dir && python3 -c 'import coll; assert coll.get_library().startswith(\"$dir\"), coll.get_library()'"
# What pip builds is another form of this tree.
if [ -d "$build/python" ]; then
	try "the wheel's form" meson setup "$dir/wheel" "$src" -Dwheel=true -Dtests=disabled -Dgpt=disabled -Dpeers=disabled
else
	skipped=$((skipped + 1))
fi
# Every page of the guide that a message, a header or the README names is installed under that name.
for page in $(cat "$src"/README.md "$src"/include/coll/*.h "$src"/src/base/*.h | grep -o 'docs/guide/[a-z-]*\.md' | sort -u); do
	try "installed: $page" test -s "$dir/root$prefix/share/doc/libcoll/$page"
done
# Options that leave things out: the folders of what is built then.
folders_of() { # OPTIONS...
	meson setup "$dir/less" "$src" -Dpeers=enabled "$@" && meson introspect "$dir/less" --targets |
		python3 -c 'import json, os, sys; print(*sorted({os.path.relpath(os.path.dirname(t["defined_in"]), sys.argv[1]) for t in json.load(sys.stdin)}))' "$src" >"$dir/folders"
}
for option in tests tools; do
	try "-D$option=disabled" folders_of -D$option=disabled
	try "-D$option=disabled: neither tests nor what only they need" sh -c "! grep -E -w 'tests|sim|peers' $dir/folders"
	rm -rf "$dir/less"
done
try "-Dtools=disabled: the library alone" grep -E -x '\.( src(/[a-z]+)*)*' "$dir/folders"
try "soname" sh -c "readelf -d $lib/libcoll.so | grep -q 'SONAME.*libcoll.so.0'"
# A program that loads this library while it runs has little room for thread-local data of the fast kind.
try "little thread-local data" sh -c "readelf -lW $lib/libcoll.so | awk '\$1 == \"TLS\" && \$6 > \"0x000100\" {exit 1}'"
try "versioned symbols" sh -c "readelf --dyn-syms -W $lib/libcoll.so | grep -q 'coll_all_reduce@@COLL_0.1'"
# What leaves the library is what the headers declare, no less and no more.
cat "$src"/include/coll/*.h | tr '\n' ' ' | grep -o 'COLL_API [^(;]*(' | grep -o 'coll_[a-z_]*($' | tr -d '(' | sort -u >"$dir/declared"
nm -D --defined-only "$lib/libcoll.so" | awk '{print $3}' | sed 's/@.*//' | grep -v '^COLL_0.1$' | grep . | sort -u >"$dir/defined"
try "functions are declared" test -s "$dir/declared"
try "declared functions are defined, and nothing else" diff "$dir/declared" "$dir/defined"

if command -v cmake >/dev/null; then
	mkdir "$dir/cm"
	cat >"$dir/cm/CMakeLists.txt" <<-TEXT
		cmake_minimum_required(VERSION 3.18)
		project(first C)
		find_package(libcoll 0.1 REQUIRED)
		add_executable(first $dir/first.c)
		target_link_libraries(first libcoll::coll)
	TEXT
	try "cmake" sh -c "cmake -G Ninja -S $dir/cm -B $dir/cm/build -DCMAKE_PREFIX_PATH=$dir/root$prefix && cmake --build $dir/cm/build"
	try "cmake's runs" run_hello "$dir/cm/build/first"
else
	skipped=$((skipped + 1))
	echo "SKIPPED: no cmake"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
