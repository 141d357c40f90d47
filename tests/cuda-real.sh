#!/usr/bin/env bash
# The CUDA suite and the tables on a real GPU, in one command: builds, tests, measures, and writes one file of results.
# Needs gcc, clang or nvcc for the kernels, meson and ninja; hwloc is optional; no network.
#
# usage: cuda-real.sh [--build DIRECTORY] [--out FILE] [--max BYTES] [--stand-in] [--short] [--nccl-tests DIRECTORY]
#
#   --build DIRECTORY  use this build as it is (default: build/cuda-real, made or brought up to date)
#   --out FILE         default: docs/results/DATE-cuda-NAME-OF-THE-GPU.md
#   --max BYTES        the largest message of the tables, with K, M or G (default 1G)
#   --stand-in         on the stand-in driver of the tests instead, with small sizes
#   --short            only a little of each part
#   --nccl-tests DIRECTORY  the programs of nccl-tests there (all_reduce_perf and others) are run on libnccl.so.2 of this library; with
#                      one GPU two ranks need programs that were built with MPI=1, and mpirun
#
# PyTorch is that of COLL_PYTHON, or of python3.
#
# A part that fails or takes too long is said so, and the next one begins. The last line is `N passed, N failed, N skipped`.
set -uo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
build= out= max=1G stand_in= short= nccl_tests=
while [ $# -gt 0 ]; do
	case $1 in
	--build) build=$(cd "$2" && pwd) || exit 2; shift ;;
	--out) out=$2; shift ;;
	--max) max=$2; shift ;;
	--stand-in) stand_in=1 ;;
	--short) short=1 ;;
	--nccl-tests) nccl_tests=$2; shift ;;
	*) sed -n '2,/^set/p' "$0" | grep '^#' >&2; exit 2 ;;
	esac
	shift
done
unset COLL_CUDA_LIBRARY COLL_DEVICE
passed=0 failed=0 skipped=0
log=$(mktemp) && trap 'rm -f "$log"' EXIT

say() { printf '%s\n' "$@" >>"$out"; }

# part NAME SECONDS COMMAND...: its output goes to the results.
part() {
	local name=$1 limit=$2 status=0
	shift 2
	timeout -k 10 "$limit" "$@" >"$log" 2>&1 </dev/null || status=$?
	if [ $status = 0 ]; then
		passed=$((passed + 1)); echo "ok    $name"; say "" "### $name: passed"
	elif [ $status = 77 ]; then
		skipped=$((skipped + 1)); echo "skip  $name"; say "" "### $name: skipped"
	else
		failed=$((failed + 1)); echo "FAIL  $name ($status)"; tail -15 "$log"
		say "" "### $name: FAILED, status $status$([ $status = 124 ] && echo ", after $limit s")"
	fi
	{ echo; echo '```'; tail -c 40000 "$log"; echo '```'; } >>"$out"
}

skip() { skipped=$((skipped + 1)); echo "skip  $1: $2"; say "" "### $1: skipped: $2"; }

make_build() {
	build=$here/build/cuda-real
	[ -e "$build/build.ninja" ] || meson setup "$build" "$here" -Dbuildtype=release || return 1
	ninja -C "$build"
}

if [ -z "$build" ]; then
	mkdir -p "$here/build"
	make_build >"$here/build/cuda-real.log" 2>&1 || { tail -30 "$here/build/cuda-real.log"; echo "0 passed, 1 failed, 0 skipped"; exit 1; }
fi
[ -z "$stand_in" ] || export COLL_CUDA_LIBRARY="$build/tests/softcuda/libcuda.so.1"
[ -z "$stand_in$short" ] || max=64K

# ---- What there is ----
about=$("$build/tools/coll-info" 2>/dev/null </dev/null | sed -n '/^cuda devices/,/^[^ ]/p' | sed '1!{/^[^ ]/d}')
gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -1)
[ -z "$stand_in" ] || gpu="stand-in"
[ -n "$out" ] || out=$here/docs/results/$(date +%F)-cuda-$(echo "${gpu:-unknown}" | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9-').md
mkdir -p "$(dirname "$out")"
: >"$out" || exit 2
say "# CUDA: ${gpu:-no GPU named by nvidia-smi}, $(date +%F)" ""
say "Written by \`tests/cuda-real.sh\`. Machine: $(uname -srm), $(nproc) processors." "" '```' "$about"
[ -n "$stand_in" ] || nvidia-smi >>"$out" 2>&1
say '```'
[ -z "$stand_in" ] || say "" "**On the stand-in driver: no figure here says anything about a GPU.**"

collrun="$build/tools/collrun --no-prefix"
perf() { echo "$build/bench/$1_perf --device cuda"; }
export COLL_ARRIVAL_TIMEOUT_MS=60000 COLL_TIMEOUT_MS=30000
# Threads that share the device need a hardware queue for each stream.
many="env CUDA_DEVICE_MAX_CONNECTIONS=32"
seeds=5 calls=40 wait_s=60 samples=1000 mib=1024 ratio=0.9
[ -z "$stand_in$short" ] || { seeds=1 calls=15 wait_s=2 samples=20 mib=4 ratio=0; }

# ---- Correct ----
say "" "## Tests"
part "kernels, bit for bit" 300 "$build/tests/cuda/cuda_kernels"
for transport in loop tcp; do
	[ -n "$short" ] && [ $transport = tcp ] && continue
	part "tagged messages, threads over $transport" 300 $many "$build/tests/cuda/cuda_tags" $transport on
done
staged="env COLL_DEVICE_DIRECT=0" direct="env STAGED_WANTED=direct"
part "random calls, 2 processes, staged over shm" 600 $staged $collrun -n 2 "$build/tests/cuda/staged" 1 $seeds $calls
part "random calls, 3 processes, direct" 600 $direct $collrun -n 3 "$build/tests/cuda/staged" 1 $seeds $calls
[ -n "$short" ] || part "random calls, 2 threads, direct" 600 $many STAGED_WANTED=direct "$build/tests/cuda/staged" -t 2 80 $seeds $calls
part "random calls, 2 processes, launches that block" 600 env CUDA_LAUNCH_BLOCKING=1 $collrun -n 2 "$build/tests/cuda/staged" 60 1 $calls
part "random calls, 2 processes, one hardware queue" 600 env CUDA_DEVICE_MAX_CONNECTIONS=1 $collrun -n 2 "$build/tests/cuda/staged" 40 $seeds $calls
if [ -z "$short" ]; then
	part "random calls, 3 processes, tcp" 600 env COLL_TRANSPORTS=tcp $collrun -n 3 "$build/tests/cuda/staged" 20 $seeds $calls
	part "random calls, 2 threads, staged" 600 $many COLL_DEVICE_DIRECT=0 "$build/tests/cuda/staged" -t 2 80 $seeds $calls
	for name in allreduce reduce broadcast all_gather reduce_scatter all_to_all gather scatter sendrecv barrier; do
		part "${name}_perf, 2 processes, results" 300 $collrun -n 2 $(perf $name) -b 0 -e 64K -f 7 -n 1 -w 0
	done
	part "allreduce_perf, all types and operations" 600 $collrun -n 2 $(perf allreduce) -b 0 -e 64K -f 49 -d all -o all -n 1 -w 0
fi
driver=${COLL_CUDA_LIBRARY:-libcuda.so.1} launches=100 events=12
[ -z "$stand_in$short" ] || launches=10 events=2
part "captured calls, every kind, 2 processes" 600 $collrun -n 2 "$build/tests/cuda/cuda_graphs" kinds $launches
part "a captured persistent all-reduce, 2 processes" 600 $collrun -n 2 "$build/tests/cuda/capture" persistent $launches
part "calls that read the peers' memory, 2 processes" 600 env COLL_CUDA_LIBRARY="$driver" $collrun -n 2 "$build/tests/cuda/cuda_records" 1 1 $calls
part "ranks that are killed, stopped or abort" 900 "$build/tests/cuda/cuda_death" "$driver" $events 1
if [ -z "$short" ]; then
	part "every kind of direct call, processes and threads" 600 $many COLL_CUDA_LIBRARY="$driver" "$build/tests/cuda/cuda_mapped"
	for how in several overlapping abandoned outliving last beside; do
		part "captures, $how, 2 processes" 300 $collrun -n 2 "$build/tests/cuda/capture" $how 10
	done
fi
for tool in memcheck racecheck; do
	if command -v compute-sanitizer >/dev/null && [ -z "$stand_in" ]; then
		part "compute-sanitizer $tool, kernels" 600 compute-sanitizer --tool $tool --error-exitcode 9 "$build/tests/cuda/cuda_kernels"
	else
		skip "compute-sanitizer $tool, kernels" "there is none, or no GPU"
	fi
done
part "a wait that pends for $wait_s s beside another process" $((wait_s * 2 + 60)) "$build/tests/cuda/cuda_pending" $wait_s $ratio

# ---- Programs of NCCL, unchanged ----
nccl="$build/src/compat/nccl/libnccl.so.2"
py=${COLL_PYTHON:-python3}
torch="$py $here/tests/compat/torch_cuda.py"
if [ -z "$short" ] && [ -z "$stand_in" ]; then
	for n in 2 4; do
		part "PyTorch's backend nccl on libnccl.so.2 of this library, $n ranks" 300 env LD_PRELOAD="$nccl" $torch --ranks $n
	done
	for n in 2 4; do
		part "PyTorch's backend coll, $n ranks" 300 env PYTHONPATH="$build/python" $torch --backend coll --ranks $n
	done
	part "DDP by PyTorch's backend coll, 2 ranks" 300 env PYTHONPATH="$build/python" $collrun -n 2 "$py" "$here/python/examples/ddp_cuda.py"
fi
if [ -n "$nccl_tests" ]; then
	for name in all_reduce_perf all_gather_perf sendrecv_perf reduce_scatter_perf broadcast_perf alltoall_perf; do
		program=$nccl_tests/$name two="-g 2" start=
		[ -x "$program" ] || { skip "nccl-tests, $name" "no program $program"; continue; }
		if [ "$(nvidia-smi -L 2>/dev/null | wc -l)" -lt 2 ]; then
			two="-g 1" start="mpirun --allow-run-as-root --oversubscribe -np 2"
			ldd "$program" | grep -q libmpi || { skip "nccl-tests, $name" "one GPU, and not built with MPI=1"; continue; }
		fi
		part "nccl-tests, $name" 600 env LD_PRELOAD="$nccl" NCCL_TESTS_DEVICE=0 $start "$program" -b 8 -e 64M -f 8 $two -n 5 -w 2
	done
fi

# ---- Fast ----
say "" "## Tables"
part "cuda_floor" 600 "$build/bench/cuda_floor" -n $samples -m $mib
bytes=$(numfmt --from=iec "$max")
part "all-reduce, staged, 2 threads of one process" 600 $many COLL_DEVICE_DIRECT=0 "$build/bench/staged_threads" -t 2 -e "$bytes" -n $samples
for n in 2 4; do
	[ -n "$short" ] && [ $n = 4 ] && continue
	part "all-reduce, $n ranks: direct, staged, host, NCCL, Gloo" 3600 python3 "$here/bench/peers/devices.py" --build "$build" --ranks $n \
		--max "$max" --python "$py"
done
[ -n "$short" ] || part "all-reduce, staged, 2 processes, tcp" 900 env COLL_TRANSPORTS=tcp $collrun -n 2 $(perf allreduce) -b 8 -e "$max" -f 8 -n 20 --details

say "" "$passed passed, $failed failed, $skipped skipped"
echo "results: $out"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
