#!/usr/bin/env bash
# Parts of the tests over RDMA verbs, to be run where a device is: parts.sh BUILD PART...
# The last line is `N passed, N failed, N skipped`. suite.sh calls it, in an emulated
# machine where this one has no device.
set -uo pipefail
build=$1
shift
device=$(ls /sys/class/infiniband | head -1)
counters=/sys/class/infiniband/$device/ports/1/hw_counters
programs="allreduce_perf all_gather_perf reduce_scatter_perf broadcast_perf reduce_perf all_to_all_perf gather_perf
	scatter_perf sendrecv_perf barrier_perf"
passed=0 failed=0 skipped=0
one=$(mktemp)
trap 'rm -f "$one"' EXIT

ok() { passed=$((passed + 1)); echo "ok    $* ($((SECONDS - began)) s)"; }
bad() { failed=$((failed + 1)); echo "FAIL  $*"; tail -n 12 "$one"; }
counter() { cat "$counters/$1" 2>/dev/null || echo 0; }
packets() { counter sent_pkts; }

# suite NAME COMMAND...: a program with a closing line of its own.
suite() {
	local name=$1 began=$SECONDS
	shift
	timeout 210 "$@" 2>&1 | tee "$one"
	local status=${PIPESTATUS[0]}
	if [ $status = 0 ] && grep -q ', 0 failed' "$one"; then ok "$name"; else bad "$name: status $status"; fi
}

# perf RANKS PROGRAM ARGUMENTS...: nothing wrong, and the bytes went through the device.
perf() {
	local n=$1 program=$2 before began=$SECONDS
	shift 2
	before=$(packets)
	timeout 120 "$build/tools/collrun" -n "$n" --no-prefix "$build/bench/$program" "$@" >"$one" 2>&1
	local status=$? sent=$(($(packets) - before))
	if [ $status != 0 ] || ! grep -q 'Out of bounds values : 0 OK' "$one"; then
		bad "$program, $n ranks, $*: status $status"
	elif [ "$n" -gt 1 ] && [ "$(packets)" != 0 ] && [ $sent -lt "${least:-20}" ]; then
		bad "$program, $n ranks, $*: the device sent $sent packets only"
	else
		ok "$program, $n ranks, $*: $sent packets"
	fi
}

conform() { suite "conformance" "$build/tests/conform/conform" rdma; }
failures() { suite "failures" "$build/tests/failures" rdma; }

quick() {
	local COLL_TRANSPORTS=rdma
	export COLL_TRANSPORTS
	least=2000 perf 2 allreduce_perf -b 8 -e 1M -f 8 -n 5
	for p in $programs; do perf 3 "$p" -b 4 -e 64K -f 32 -n 1 -w 0; done
}

floats2() {
	export COLL_TRANSPORTS=rdma
	for p in $programs; do perf 2 "$p" -b 4 -e 32M -f 8 -n 1 -w 0; done
}
floats() { # RANKS
	export COLL_TRANSPORTS=rdma
	for p in $programs; do perf "$1" "$p" -b 4 -e 1M -f 8 -n 1 -w 0; done
}
floats3() { floats 3; }
floats4() { floats 4; }
floats8() { floats 8; }
types() { # RANKS
	export COLL_TRANSPORTS=rdma
	for p in $programs; do perf "$1" "$p" -b 0 -e 64K -f 23 -d all -n 1 -w 0; done
}
types2() { types 2; }
types5() { types 5; }

# Hosts made of one machine: shared memory inside, rdma between.
mixed() { # HOSTS, one letter for each rank
	local list=$1 p before began
	unset COLL_TRANSPORTS
	for p in $programs; do
		began=$SECONDS before=$(packets)
		timeout 120 "$build/tools/collrun" -n ${#list} --no-prefix bash -c 'list=$1; shift
			COLL_HOST_ID=host-${list:$COLL_RANK:1} exec "$@"' - "$list" \
			"$build/bench/$p" -b 4 -e 1M -f 8 -n 1 -w 0 >"$one" 2>&1
		local status=$? sent=$(($(packets) - before))
		if [ $status = 0 ] && grep -q 'Out of bounds values : 0 OK' "$one" && [ $sent -gt 20 ]; then
			ok "$p, hosts $list: $sent packets"
		else
			bad "$p, hosts $list: status $status, $sent packets"
		fi
	done
}
mixed22() { mixed aabb; }
mixed13() { mixed abbb; }

rounds() { suite "200 jobs leave nothing" "$build/tests/rdma_rounds" 200; }

# works WHAT PATTERN PREFIX...: an all-reduce that need not run over rdma, and one line says why.
works() {
	local what=$1 pattern=$2 began=$SECONDS
	shift 2
	COLL_TRANSPORTS=rdma,tcp COLL_DEBUG=warn "$@" timeout 60 "$build/tools/collrun" -n 2 --no-prefix \
		"$build/bench/allreduce_perf" -b 8 -e 256K -f 32 -n 1 -w 0 >"$one" 2>&1
	local status=$? lines=$(grep -c "$pattern" "$one")
	if [ $status = 0 ] && grep -q 'Out of bounds values : 0 OK' "$one" && [ "$lines" -le 2 ] &&
		[ "$lines" -ge 1 ]; then
		ok "$what: tcp; $(grep -m 1 "$pattern" "$one")"
	else
		bad "$what: status $status, $lines lines of $pattern"
	fi
}
# refused WHAT PATTERN PREFIX...: where only rdma is allowed, an error that says why; no crash.
refused() {
	local what=$1 pattern=$2 began=$SECONDS
	shift 2
	COLL_TRANSPORTS=rdma COLL_DEBUG=info "$@" timeout 60 "$build/tools/collrun" -n 2 --no-prefix \
		"$build/bench/allreduce_perf" -b 8 -e 256K -f 32 -n 1 -w 0 >"$one" 2>&1
	local status=$?
	if [ $status -gt 0 ] && [ $status -lt 124 ] && grep -q "$pattern" "$one"; then
		ok "$what, rdma alone: $(grep -m 1 "$pattern" "$one")"
	else
		bad "$what, rdma alone: status $status"
	fi
}
both() { works "$@"; refused "$@"; }
unlocked() { (ulimit -l 64; exec setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock "$@"); }

# The last ones take the device away: only in an emulated machine.
troubles() {
	both "a limit of 64 KiB of locked memory" 'ulimit -l' unlocked
	both "a wrong GID index" 'COLL_RDMA_GID_INDEX=7' env COLL_RDMA_GID_INDEX=7
	both "a device that is not there" 'COLL_RDMA_DEVICE' env COLL_RDMA_DEVICE=mlx9_0
	[ -e /sys/class/net/eth77 ] || return 0
	ip addr del 10.77.0.1/24 dev eth77
	both "a device without an address" 'no RDMA device has an address' env
	rdma link delete rxe0
	refused "no device" 'no RDMA device' env
}

for part in "$@"; do
	$part
done
if [ -e "$counters/rcvd_rnr_err" ] && [ "$(counter rcvd_rnr_err)" != 0 ]; then
	echo "FAIL  a receive was missing $(counter rcvd_rnr_err) times"
	failed=$((failed + 1))
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ] && [ $passed -gt 0 ]
