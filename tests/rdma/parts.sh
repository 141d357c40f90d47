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
	timeout 600 "$@" 2>&1 | tee "$one"
	local status=${PIPESTATUS[0]}
	if [ $status = 0 ] && grep -q ', 0 failed' "$one"; then ok "$name"; else bad "$name: status $status"; fi
}

# perf RANKS PROGRAM ARGUMENTS...: nothing wrong, and the bytes went through the device.
perf() {
	local n=$1 program=$2 before began=$SECONDS
	shift 2
	before=$(packets)
	timeout 300 "$build/tools/collrun" -n "$n" --no-prefix "$build/bench/$program" "$@" >"$one" 2>&1
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
# What the device in software of the test conform-rdma cannot show: its ranks are threads.
processes() {
	for part in data processes death; do suite "conformance: $part" "$build/tests/conform/conform" rdma $part; done
}
failures() { suite "failures" "$build/tests/jobs" failures rdma; }
tags() {
	suite "tagged messages" "$build/tests/jobs" tags rdma on
	suite "random programs of tagged messages" "$build/tests/jobs" tags_random rdma 1 20
}

quick() {
	# A guest on a loaded host answers late; how soon a lost peer is noticed is for `failures`.
	local COLL_TRANSPORTS=rdma COLL_RDMA_TIMEOUT=19
	export COLL_TRANSPORTS COLL_RDMA_TIMEOUT
	least=2000 perf 2 allreduce_perf -b 8 -e 1M -f 8 -n 5
	for p in $programs; do perf 3 "$p" -b 4 -e 64K -f 32 -n 1 -w 0; done
}

# Device memory, on the stand-in driver.
devices() {
	export COLL_TRANSPORTS=rdma COLL_DEVICE=cuda COLL_CUDA_LIBRARY=$build/tests/softcuda/libcuda.so.1
	for n in 2 3; do perf $n allreduce_perf --device cuda -b 0 -e 64K -f 7 -n 1 -w 0; done
	suite "a script with device memory" "$build/tools/collrun" -n 2 --no-prefix "$build/tests/cuda/staged" -f 1 5 40
	unset COLL_DEVICE COLL_CUDA_LIBRARY
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
		timeout 300 "$build/tools/collrun" -n ${#list} --no-prefix bash -c 'list=$1; shift
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

# What the links say they have done, summed over both ranks: figure PATTERN, e.g. 'sent \([0-9]*\) frames'.
figure() { sed -n "s/.*rdma: a link ends: .*$1.*/\1/p" "$one" | awk '{n += $1} END {print n + 0}'; }
# path WHAT CONDITION SETTING... -- ARGUMENTS of a program: nothing wrong, and the figures are as they must be.
path() {
	local what=$1 condition=$2 began=$SECONDS settings=()
	shift 2
	while [ "$1" != -- ]; do settings+=("$1"); shift; done
	shift
	local program=$1
	shift
	env COLL_TRANSPORTS=rdma COLL_DEBUG=info "${settings[@]}" timeout 120 "$build/tools/collrun" -n 2 --no-prefix \
		"$build/bench/$program" "$@" >"$one" 2>&1
	local status=$? requests=$(figure '[ ,]\([0-9]*\) work requests') sent=$(figure 'sent \([0-9]*\) frames')
	local polled=$(figure '(\([0-9]*\) seen in their slots') copied=$(figure '; \([0-9]*\) bytes copied')
	local into=$(figure ', \([0-9]*\) into announced memory')
	local told="$sent frames, $requests work requests, $polled seen in slots, $into into announced memory, $copied bytes copied"
	if [ $status = 0 ] && grep -q 'Out of bounds values : 0 OK' "$one" && [ "$sent" -gt 0 ] && (($condition)); then
		ok "$what: $program $*: $told"
	else
		bad "$what: $program $*: status $status, $told; wanted $condition"
	fi
}
# Each way in which a frame can travel; a switch forces those that the device does not need.
paths() {
	path "small frames seen in their slots" 'polled > 0' -- allreduce_perf -b 8 -e 256 -f 2 -n 20
	path "completions only" 'polled == 0' COLL_RDMA_POLLED=0 -- allreduce_perf -b 8 -e 256 -f 2 -n 20
	path "completions only" 'polled == 0' COLL_RDMA_POLLED=0 -- all_to_all_perf -b 8 -e 1M -f 8 -n 2
	path "no immediates" 'requests >= 2 * sent' COLL_RDMA_IMMEDIATE=0 -- allreduce_perf -b 8 -e 1M -f 8 -n 2
	path "no immediates, announced" 'requests >= 2 * sent && into > 0' COLL_RDMA_IMMEDIATE=0 -- \
		broadcast_perf -R 1 -b 8 -e 1M -f 8 -n 2
	path "no immediates, completions only" 'requests >= 2 * sent && polled == 0' COLL_RDMA_IMMEDIATE=0 \
		COLL_RDMA_POLLED=0 -- all_gather_perf -b 8 -e 1M -f 8 -n 2
	path "messages of at most 5000 bytes" 'requests >= 4 * sent' COLL_RDMA_MESSAGE_MAX=5000 -- \
		allreduce_perf -b 64K -e 1M -f 4 -n 2 -w 0
	path "messages of at most 5000 bytes, announced" 'requests >= 4 * sent && into > 0' COLL_RDMA_MESSAGE_MAX=5000 -- \
		broadcast_perf -R 1 -b 64K -e 1M -f 4 -n 2 -w 0
}
# Registered memory at both ends: nothing is copied.
registered() {
	for p in broadcast_perf sendrecv_perf all_gather_perf; do # an all-to-all packs on one side
		path "registered memory" 'copied == 0 && into > 0' -- $p -R 1 -b 128K -e 4M -f 8 -n 3
	done
}
# What coll-info says of the devices.
info() {
	local began=$SECONDS
	"$build/tools/coll-info" --brief >"$one" 2>&1
	if grep -q "^  $device port 1: ACTIVE, .*NUMA node" "$one" && grep -q '^    GID [0-9]*: ' "$one" &&
		grep -q "^  rdma: $device port 1 GID" "$one"; then
		ok "coll-info: $(grep -m 1 "^  $device port 1" "$one")"
	else
		bad "coll-info on $device"
	fi
	[ -e /sys/class/net/eth77 ] || return 0
	ip link add eth78 type dummy
	ip link set eth78 up
	rdma link add rxe1 type rxe netdev eth78
	"$build/tools/coll-info" --brief >"$one" 2>&1
	if grep -q 'rxe1 port 1 is not used: no usable address' "$one"; then ok "coll-info: rxe1 has no address"; else bad "coll-info: rxe1"; fi
	ip addr add 10.78.0.1/24 dev eth78
	"$build/tools/coll-info" --brief >"$one" 2>&1
	if grep -q '  rdma: rxe0 port 1 GID' "$one" && grep -q '  rdma: rxe1 port 1 GID' "$one"; then ok "coll-info: both are used"; else bad "coll-info: rxe1 with an address"; fi
	COLL_RDMA_DEVICE=rxe1 "$build/tools/coll-info" --brief >"$one" 2>&1
	if grep -q 'rxe0 port 1 is not used: it is not in COLL_RDMA_DEVICE' "$one" && grep -q '  rdma: rxe1 port 1 GID' "$one"; then
		ok "coll-info: rxe1 by COLL_RDMA_DEVICE"
	else
		bad "coll-info: COLL_RDMA_DEVICE"
	fi
	rdma link delete rxe1
	ip link del eth78
}

rounds() {
	suite "200 jobs leave nothing" "$build/tests/rdma_rounds" 200
	suite "others use librdmacm" "$build/tests/rdma_verbs"
}

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
