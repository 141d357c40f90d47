#!/usr/bin/env bash
# The CUDA suite and the tables on a real GPU, in one command that ends in time: it builds, runs what tells most first, and writes one
# file of results. It needs a C compiler, Python 3, meson and ninja; clang or nvcc for the kernels. It uses no network.
#
# usage: cuda-real.sh [--minutes M] [--build DIRECTORY] [--out FILE] [--log FILE] [--max BYTES]
#                     [--nccl-tests DIRECTORY] [--only EXPRESSION] [--stand-in]
#        cuda-real.sh --targets
#
#   --minutes M        it ends within M minutes, the build included, and half a minute for what has to be stopped (default 8).
#                      Each part has a limit of its own as well. What did not fit is named
#   --build DIRECTORY  use this build as it is (default: build/cuda-real, where the targets are made or brought up to date)
#   --out FILE         default: docs/results/DATE-cuda-NAME-OF-THE-GPU.md
#   --log FILE         all that each part printed is added to it
#   --max BYTES        the largest message of the tables, with K, M or G (default 256M)
#   --nccl-tests DIRECTORY  the programs of nccl-tests there (all_reduce_perf and others) are run on libnccl.so.2 of this library; with
#                      one GPU two ranks need programs that were built with MPI=1, and mpirun
#   --only EXPRESSION  the parts whose names this matches, and the build
#   --stand-in         on the stand-in driver of the tests instead, with small sizes
#   --targets          name the targets that a build needs, and end:  ninja -C DIRECTORY $(tests/cuda-real.sh --targets)
#
# PyTorch is that of COLL_PYTHON, or of python3. The last line is `N passed, N failed, N skipped, N did not fit`. The exit status is 1
# if any failed, or none passed.
set -uo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
targets="tools/coll-info tools/collrun bench/cuda_floor src/compat/nccl/libnccl.so.2 tests/softcuda/libcuda.so.1 tests/cuda/staged
tests/cuda/capture tests/compat/nccl_collectives tests/compat/nccl_capture"
targets+=" $(printf ' tests/cuda/cuda_%s' row kernels graphs death records mapped tags pending)"
collectives="allreduce reduce broadcast all_gather reduce_scatter all_to_all gather scatter sendrecv barrier"
targets+=" $(printf ' bench/%s_perf' $collectives)"
build= out= all= max=256M stand_in= nccl_tests= only=. minutes=8

usage() { sed -n '2,/^set/p' "$0" | sed -n 's/^# \{0,1\}//p'; }
refuse() { echo "cuda-real.sh: $1 (--help: how it is used)" >&2; exit 2; }
while [ $# -gt 0 ]; do
	case $1 in
	--minutes | --build | --out | --log | --max | --nccl-tests | --only) [ $# -gt 1 ] || refuse "$1 needs a value" ;;
	esac
	case $1 in
	--minutes) minutes=$2; shift ;;
	--build) build=$(cd "$2" 2>/dev/null && pwd) || refuse "no directory $2"; shift ;;
	--out) out=$2; shift ;;
	--log) all=$2; shift ;;
	--max) max=$2; shift ;;
	--nccl-tests) nccl_tests=$2; shift ;;
	--only) only=$2; shift ;;
	--stand-in) stand_in=1 ;;
	--targets) echo $targets; exit ;;
	-h | --help) usage; exit ;;
	*) refuse "no flag $1" ;;
	esac
	shift
done
[[ $minutes =~ ^[1-9][0-9]{0,2}$ ]] || refuse "--minutes $minutes is no number of minutes from 1 to 999"
[ -z "$stand_in" ] || max=64K
bytes=$(numfmt --from=iec "$max" 2>/dev/null) || refuse "--max $max is no size"
deadline=$((SECONDS + 60 * minutes))
unset COLL_CUDA_LIBRARY COLL_DEVICE
passed=0 failed=0 skipped=0 unfit=0
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
log=$work/log

# ---- The file: written anew after each part, for a machine that may be taken away ----
write() {
	local state=$1
	{
		cat "$work/head"
		echo; echo "$state: $passed passed, $failed failed, $skipped skipped, $unfit did not fit in $minutes minutes."
		echo; echo "| part | outcome | seconds |"; echo "|---|---|---:|"
		cat "$work/rows" "$work/details" 2>/dev/null
	} >"$out.new" && mv "$out.new" "$out"
}

row() { # PART OUTCOME SECONDS
	echo "| $1 | $2 | $3 |" >>"$work/rows"
	echo "$1: $2 ($3 s)"
	write "So far"
}

detail() { { echo; echo "### $1"; echo; echo '```'; tail -n "$2" "$log" | cut -c1-300 | sed "s|[ \t]*$||"; echo '```'; } >>"$work/details"; }

# part NAME SECONDS COMMAND...: its last lines go to the file if it fails, and all of a table.
part() {
	local name=$1 limit=$2 status=0 begun=$SECONDS left=$((deadline - SECONDS))
	shift 2
	[[ $name == build || $name =~ $only ]] || return 0
	if [ $left -lt 3 ]; then
		unfit=$((unfit + 1)); row "$name" "did not fit" 0
		return
	fi
	[ $left -ge "$limit" ] || limit=$left
	timeout -k 5 "$limit" "$@" >"$log" 2>&1 </dev/null || status=$?
	[ -z "$all" ] || { echo "==== $name: status $status, $((SECONDS - begun)) s"; cat "$log"; } >>"$all"
	local took=$((SECONDS - begun)) why counts
	why=$(grep -i skip "$log" | tail -1 | cut -c1-120)
	counts=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -1)
	if [ $status = 0 ]; then
		passed=$((passed + 1)); row "$name" "passed${counts:+ ($counts)}" $took
		case $name in table:*) detail "$name" 200 ;; esac
	elif [ $status = 77 ]; then
		skipped=$((skipped + 1)); row "$name" "skipped: ${why//|/ }" $took
	elif [ $((deadline - SECONDS)) -lt 1 ]; then
		unfit=$((unfit + 1)); row "$name" "did not fit: ended after $took s" $took; detail "$name" 15
	else
		[ $status = 124 ] || [ $status = 137 ] && why="after its limit of $limit s" || why="status $status"
		failed=$((failed + 1)); row "$name" "FAILED, $why" $took; detail "$name" 25
		tail -10 "$log"
	fi
}

skip() { [[ $1 =~ $only ]] || return 0; skipped=$((skipped + 1)); row "$1" "skipped: $2" 0; }

finish() {
	write "${1:-In all}"
	echo "results: $out"
	echo "$passed passed, $failed failed, $skipped skipped, $unfit did not fit"
	[ $failed = 0 ] && [ $passed -gt 0 ]
	exit
}
trap 'finish "Interrupted"' INT TERM

# ---- What there is ----
gpus=$(nvidia-smi --query-gpu=name,driver_version,memory.total,pcie.link.gen.max,compute_mode --format=csv,noheader 2>/dev/null)
gpu=$(printf '%s' "${gpus%%,*}" | head -1)
[ -z "$stand_in" ] || gpu=stand-in gpus="the stand-in driver of the tests"
slug=$(echo "${gpu:-unknown}" | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9-')
[ -n "$out" ] || out=$here/docs/results/$(date +%F)-cuda-$slug.md
mkdir -p "$(dirname "$out")" && : >"$out" || refuse "cannot write $out"
{
	echo "# CUDA: ${gpu:-no GPU named by nvidia-smi}, $(date +%F)"
	echo; echo "Written by \`tests/cuda-real.sh\`, $(date -Iseconds), commit $(git -C "$here" describe --always --dirty 2>/dev/null || echo unknown)."
	echo; echo "- GPU (name, driver, memory, PCIe generation, mode): ${gpus:-nvidia-smi names none}"
	echo "- Kernel module: $(head -1 /proc/driver/nvidia/version 2>/dev/null || echo none)"
	echo "- Machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) processors, $(uname -srm), load $(cut -d' ' -f1 /proc/loadavg)"
	[ -z "$stand_in" ] || { echo; echo "**On the stand-in driver: no figure here says anything about a GPU.**"; }
} >"$work/head"

# ---- Build ----
make_build() {
	local tool missing=
	for tool in cc meson ninja; do command -v $tool >/dev/null || missing+=" $tool"; done
	if [ -n "$missing" ]; then
		echo "missing:$missing. meson and ninja: python3 -m pip install meson ninja; or --build DIRECTORY, built elsewhere"
		return 1
	fi
	[ -e "$build/build.ninja" ] || meson setup "$build" "$here" -Dcriterion=disabled -Drdma=disabled -Dgpt=disabled -Dpeers=disabled || return 1
	"$py" -c 'import torch' 2>/dev/null && targets+=" $(ninja -C "$build" -t targets all | sed -n 's|^\(python/coll/[^:]*\): .*|\1|p')"
	ninja -C "$build" $targets
}
py=${COLL_PYTHON:-python3}
if [ -z "$build" ]; then
	build=$here/build/cuda-real
	mkdir -p "$here/build"
	part build $((60 * minutes)) bash -c "$(declare -f make_build); build='$build' here='$here' py='$py' targets='${targets//$'\n'/ }'; make_build"
	[ $passed = 1 ] || finish "Nothing was built"
fi
driver=libcuda.so.1
[ -z "$stand_in" ] || driver=$build/tests/softcuda/libcuda.so.1
export COLL_CUDA_LIBRARY=$driver COLL_ARRIVAL_TIMEOUT_MS=20000 COLL_TIMEOUT_MS=20000
export PYTHONPATH="$build/python"
collrun="$build/tools/collrun --no-prefix" tests=$build/tests/cuda
# Threads that share the device need a hardware queue for each stream.
many="env CUDA_DEVICE_MAX_CONNECTIONS=32" staged="env COLL_DEVICE_DIRECT=0" direct="env STAGED_WANTED=direct"
seeds=5 calls=40 wait_s=20 samples=300 mib=256 ratio=0.9 launches=100 events=12 iterations=20
[ -z "$stand_in" ] || { seeds=1 calls=10 wait_s=2 samples=20 mib=4 ratio=0 launches=5 events=3 iterations=3; }

# all_reduce WAY WHERE RANKS: verified, and the way that the calls went
all_reduce() {
	local run="$collrun -n $3" flags= way=device-direct
	[ "$2" = processes ] || run= flags="-g $3"
	[ "$1" = direct ] || way=staged-
	part "all_reduce, $1, $3 $2" 30 $many COLL_DEVICE_DIRECT=$([ "$1" = direct ]; echo $((1 - $?))) bash -c '
		out=$("${@:2}" 2>&1); status=$?; echo "$out"
		[ $status = 0 ] && grep -q "$1" <<<"$out"' - $way $run "$build/bench/allreduce_perf" --device cuda -b 8 -e 4M -f 8 -n 2 -w 1 --details $flags
}

# ---- What tells most ----
part "identify: coll-info" 20 bash -c '"$1" | sed -n "/^cuda devices/,/^[^ ]/p" | tee /dev/stderr | grep -q "^  cuda:0"' - "$build/tools/coll-info"
[ $failed = 0 ] || [ -n "$stand_in" ] || [ -e /dev/nvidiactl ] || finish "No device"
[[ "identify: coll-info" =~ $only ]] && cp "$log" "$work/info" && { echo; echo '```'; sed '1!{/^[^ ]/d}' "$work/info"; echo '```'; } >>"$work/head"
part "identify, allocate, pin, copy, wait: the row of CUDA devices" 60 "$tests/cuda_row" "$driver"
part "kernels, bit for bit" 60 "$tests/cuda_kernels"
for n in 2 3; do
	for way in staged direct; do
		for where in processes threads; do all_reduce $way $where $n; done
	done
done
part "random calls, staged, 2 processes" 60 $staged $collrun -n 2 "$tests/staged" 1 $seeds $calls
part "random calls, direct, 3 processes" 60 $direct $collrun -n 3 "$tests/staged" 1 $seeds $calls
part "random calls, direct, 2 threads" 60 $many STAGED_WANTED=direct "$tests/staged" -t 2 80 $seeds $calls
part "captured calls, every kind, 2 processes" 60 $collrun -n 2 "$tests/cuda_graphs" kinds $launches
part "captured calls, every kind, 3 threads" 60 $many "$tests/cuda_graphs" -t 3 kinds $launches
part "a captured persistent all-reduce, 2 processes" 40 $collrun -n 2 "$tests/capture" persistent $launches
for where in processes threads one; do
	part "libnccl.so.2, the calls of nccl-tests, 2 ranks, $where" 60 $many "$build/tests/compat/nccl_collectives" $where 2
done
part "libnccl.so.2 in captures" 60 $many "$build/tests/compat/nccl_capture"
part "libnccl.so.2, the calls of vLLM, PyTorch and cupy" 60 $many python3 "$here/tests/compat/nccl_programs.py" "$build/src/compat/nccl/libnccl.so.2" 2
part "ranks that are killed, stopped or abort" 100 "$tests/cuda_death" "$driver" $events 1

# ---- How fast ----
part "table: what the device and its driver take" 60 "$build/bench/cuda_floor" -n $samples -m $mib
# A copy within the device reads and writes each byte: GB/s of its memory, by the longest copy.
rate=$(awk '/within the device/ { for (i = 1; i < NF; i++) if ($i ~ /^[0-9]+$/ && $i > bytes) { bytes = $i; us = $(i + 1) } }
	END { if (us > 0) printf "%.1f", 2 * bytes / us / 1000 }' "$log")
for n in 2 3; do
	part "table: all_reduce, $n ranks, beside NCCL and 2nS/B" 120 python3 "$here/bench/peers/devices.py" --build "$build" --ranks $n --max "$bytes" \
		--python "$py" --series direct,threads,staged,nccl,libnccl --rate "${rate:-0}" --limit 25 --iterations $iterations --driver "$driver"
done

# ---- Programs of others, unchanged ----
nccl="$build/src/compat/nccl/libnccl.so.2" torch="$py $here/tests/compat/torch_cuda.py"
if [ -z "$stand_in" ]; then
	for n in 2 3; do
		part "PyTorch's backend nccl on libnccl.so.2 of this library, $n ranks" 60 env LD_PRELOAD="$nccl" $torch --ranks $n
		part "PyTorch's backend coll, $n ranks" 60 $torch --backend coll --ranks $n
	done
	part "DDP by PyTorch's backend coll, 2 ranks" 60 $collrun -n 2 "$py" "$here/python/examples/ddp_cuda.py"
else
	skip "PyTorch" "it does not run on the stand-in"
fi
for name in all_reduce_perf all_gather_perf sendrecv_perf reduce_scatter_perf broadcast_perf alltoall_perf; do
	[ -n "$nccl_tests" ] || { skip "nccl-tests" "no --nccl-tests"; break; }
	program=$nccl_tests/$name two="-g 2" start=
	[ -x "$program" ] || { skip "nccl-tests, $name" "no program $program"; continue; }
	if [ "$(nvidia-smi -L 2>/dev/null | wc -l)" -lt 2 ]; then
		two="-g 1" start="mpirun --allow-run-as-root --oversubscribe -np 2"
		ldd "$program" | grep -q libmpi || { skip "nccl-tests, $name" "one GPU, and not built with MPI=1"; continue; }
	fi
	part "nccl-tests, $name" 60 env LD_PRELOAD="$nccl" NCCL_TESTS_DEVICE=0 $start "$program" -b 8 -e 64M -f 8 $two -n 5 -w 2
done

# ---- The rest ----
part "every kind of direct call, processes and threads" 60 $many "$tests/cuda_mapped"
part "calls that read the peers' memory, 2 processes" 60 $collrun -n 2 "$tests/cuda_records" 1 1 $calls
for transport in loop tcp; do
	part "tagged messages, threads over $transport" 60 $many "$tests/cuda_tags" $transport on
done
part "random calls, 2 processes, launches that block" 60 env CUDA_LAUNCH_BLOCKING=1 $collrun -n 2 "$tests/staged" 60 1 $calls
part "random calls, 2 processes, one hardware queue" 60 env CUDA_DEVICE_MAX_CONNECTIONS=1 $collrun -n 2 "$tests/staged" 40 $seeds $calls
part "random calls, 3 processes, tcp" 60 env COLL_TRANSPORTS=tcp $collrun -n 3 "$tests/staged" 20 $seeds $calls
part "random calls, 2 threads, staged" 60 $many COLL_DEVICE_DIRECT=0 "$tests/staged" -t 2 80 $seeds $calls
for how in several overlapping abandoned outliving last beside; do
	part "captures, $how, 2 processes" 40 $collrun -n 2 "$tests/capture" $how 10
done
for name in $collectives; do
	part "${name}_perf, 2 processes, results" 40 $collrun -n 2 "$build/bench/${name}_perf" --device cuda -b 0 -e 64K -f 7 -n 1 -w 0
done
for tool in memcheck racecheck; do
	if command -v compute-sanitizer >/dev/null && [ -z "$stand_in" ]; then
		part "compute-sanitizer $tool, kernels" 120 compute-sanitizer --tool $tool --error-exitcode 9 "$tests/cuda_kernels"
	else
		skip "compute-sanitizer $tool, kernels" "there is none, or no GPU"
	fi
done
part "a wait that pends for $wait_s s beside another process" $((2 * wait_s + 30)) "$tests/cuda_pending" $wait_s $ratio
part "allreduce_perf, all types and operations" 120 $collrun -n 2 "$build/bench/allreduce_perf" --device cuda -b 0 -e 64K -f 49 -d all -o all -n 1 -w 0
finish
