#!/usr/bin/env bash
# Every performance program as a correctness test, over ranks, sizes, types,
# operations, transports, mixed hosts and launchers. Takes about 20 minutes on 2
# cores; `--quick` takes 2. The last line is `N passed, N failed, N skipped`.
#
# usage: matrix.sh [--quick] [BUILD-DIRECTORY]
set -u
cd "$(dirname "$0")/.."
quick=0
[ "${1:-}" = --quick ] && { quick=1; shift; }
build=$(realpath "${1:-build/release}")
programs="allreduce_perf all_gather_perf reduce_scatter_perf broadcast_perf reduce_perf all_to_all_perf all_to_allv_perf scan_perf exclusive_scan_perf gather_perf scatter_perf sendrecv_perf barrier_perf"
sum_a="-b 4 -e 16M -f 8 -n 2 -w 1"
all_b="-b 0 -e 64K -f 7 -d all -o all -n 1 -w 0"
ranks_a="1 2 3 4 5 6 7 8 9 16" ranks_b="1 2 3 5 8 16"
if [ $quick = 1 ]; then
	sum_a="-b 4 -e 256K -f 32 -n 2 -w 1"
	all_b="-b 0 -e 2K -f 41 -d all -o all -n 1 -w 0"
	ranks_a="1 2 3 5" ranks_b="2 3"
fi
passed=0 failed=0 skipped=0
log=$build/matrix.log
: >"$log"

# check NAME COMMAND...: passes when the command exits 0 and says 0 wrong.
check() {
	local name=$1 status
	shift
	echo "== $name: $*" >>"$log"
	timeout 300 "$@" >"$build/matrix.one" 2>&1
	status=$?
	cat "$build/matrix.one" >>"$log"
	if [ $status -eq 0 ] && ! grep -qiE "out of bounds values *: *[1-9]|error:" "$build/matrix.one"; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "FAILED ($status): $name: $*"
		tail -5 "$build/matrix.one"
	fi
}
skip() {
	skipped=$((skipped + 1))
	echo "SKIPPED: $*"
}
collrun() { # RANKS PROGRAM ARGUMENTS...
	local n=$1 p=$2
	shift 2
	check "$p, $n ranks, ${COLL_TRANSPORTS:-default}" "$build/tools/collrun" -n "$n" --no-prefix "$build/bench/$p" "$@"
}

for transport in shm tcp; do
	export COLL_TRANSPORTS=$transport
	for p in $programs; do
		for n in $ranks_a; do collrun "$n" "$p" $sum_a; done
		for n in $ranks_b; do collrun "$n" "$p" $all_b; done
	done
done
unset COLL_TRANSPORTS

# Hosts made of network namespaces: shm inside, tcp between.
hosts=collm$$
cleanup() {
	ip netns del ${hosts}a 2>/dev/null
	ip netns del ${hosts}b 2>/dev/null
	rm -f "$build/matrix.ssh"
}
trap cleanup EXIT
if ip netns add ${hosts}a 2>/dev/null && ip netns add ${hosts}b &&
	ip link add ca netns ${hosts}a type veth peer name cb netns ${hosts}b; then
	ip -n ${hosts}a addr add 10.99.0.1/24 dev ca
	ip -n ${hosts}b addr add 10.99.0.2/24 dev cb
	for h in a b; do
		ip -n ${hosts}$h link set lo up
		ip -n ${hosts}$h link set c$h up
	done
	# Instead of ssh: the first argument is the host's address.
	cat >"$build/matrix.ssh" <<-TEXT
		#!/bin/sh
		case \$1 in 10.99.0.1) ns=${hosts}a ;; 10.99.0.2) ns=${hosts}b ;; *) exit 255 ;; esac
		shift
		exec ip netns exec \$ns sh -c "\$*"
	TEXT
	chmod +x "$build/matrix.ssh"
	mixes="1:2 2:2 3:4 4:4"
	[ $quick = 1 ] && mixes="1:2 2:2"
	for mix in $mixes; do
		for p in $programs; do
			for args in "$sum_a" "$all_b"; do
				[ "$args" = "$all_b" ] && [ "$mix" != 1:2 ] && [ $p != allreduce_perf ] && continue
				check "$p, mixed hosts $mix" ip netns exec ${hosts}a "$build/tools/collrun" --no-prefix \
					--ssh "$build/matrix.ssh" --root 10.99.0.1 \
					-H "10.99.0.1:${mix%:*},10.99.0.2:${mix#*:}" "$build/bench/$p" $args
			done
		done
	done
else
	skip "mixed hosts: network namespaces cannot be made here"
fi

# Launchers. By hand, one command per rank:
by_hand() { # RANKS PROGRAM ARGUMENTS...
	local n=$1 status=0 port=$((20000 + RANDOM % 10000)) key
	shift
	key=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
	for r in $(seq 0 $((n - 1))); do
		COLL_RANK=$r COLL_SIZE=$n COLL_ROOT=127.0.0.1:$port COLL_JOB_KEY=$key "$@" &
	done
	for job in $(jobs -p); do wait "$job" || status=1; done
	return $status
}
torchrun_like() { # the variables torchrun sets, for where torch is not installed
	local n=$1 status=0 port=$((20000 + RANDOM % 10000))
	shift
	for r in $(seq 0 $((n - 1))); do
		RANK=$r WORLD_SIZE=$n LOCAL_RANK=$r LOCAL_WORLD_SIZE=$n MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
			TORCHELASTIC_USE_AGENT_STORE=True TORCHELASTIC_RUN_ID=matrix$$ "$@" &
	done
	for job in $(jobs -p); do wait "$job" || status=1; done
	return $status
}
export -f by_hand torchrun_like
for n in 1 2 5; do
	for p in $programs; do
		[ $quick = 1 ] && [ $p != allreduce_perf ] && continue
		prog="$build/bench/$p $sum_a"
		check "$p, $n ranks by hand" bash -c "by_hand $n $prog"
		check "$p, $n ranks, torchrun's variables" bash -c "torchrun_like $n $prog"
		if command -v torchrun >/dev/null; then
			check "$p, $n ranks, torchrun" torchrun --nproc-per-node "$n" --no-python $prog
		fi
		if command -v mpirun.openmpi >/dev/null; then
			check "$p, $n ranks, Open MPI" mpirun.openmpi --allow-run-as-root --oversubscribe -n "$n" $prog
		fi
		if command -v mpirun.mpich >/dev/null; then
			check "$p, $n ranks, MPICH" mpirun.mpich -n "$n" $prog
		fi
	done
done
for launcher in torchrun mpirun.openmpi mpirun.mpich; do
	command -v $launcher >/dev/null || skip "$launcher is not installed"
done

# One byte flipped by the hook: every program must exit non-zero.
for p in $programs; do
	for transport in shm tcp; do
		if COLL_TRANSPORTS=$transport COLL_HOOK="flip:rank=1,frame=3,byte=1" timeout 60 "$build/tools/collrun" -n 2 --no-prefix \
			"$build/bench/$p" -b 4K -e 64K -f 2 -n 2 -w 1 >>"$log" 2>&1; then
			failed=$((failed + 1))
			echo "FAILED: $p over $transport did not notice a flipped byte"
		else
			passed=$((passed + 1))
		fi
	done
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
