#!/usr/bin/env bash
# Two emulated machines with two wires and two devices each (tests/rdma/vm --guests 2 --wires 2): both run
# rails.sh BUILD CASE... with GUEST=0 and GUEST=1. Each case is a job of one or two ranks on each machine. What goes
# over each wire is what its interface has counted: soft-RoCE sends through it.
# The last line is `N passed, N failed, N skipped`.
set -uo pipefail
build=$1
shift
passed=0 failed=0 number=0
export COLL_HOST_ID=host-$GUEST COLL_JOB_KEY=00112233445566778899aabbccddeeff COLL_TIMEOUT_MS=3000 COLL_DEBUG=${COLL_DEBUG:-info}
out=/tmp/out

ok() { passed=$((passed + 1)); echo "ok    $*"; }
bad() { failed=$((failed + 1)); echo "FAIL  $*"; tail -qn 12 $out.*; }
sent() { cat "/sys/class/net/eth$1/statistics/tx_bytes"; }
wait_for() { # S COMMAND...: until the command succeeds
	local until=$((SECONDS + $1))
	shift
	until "$@"; do
		[ $SECONDS -le $until ] || return 1
		sleep 0.2
	done
}

# ranks N COMMAND...: so many on this machine, in the background; all are in jobs.
ranks() {
	local n=$1 i
	shift
	number=$((number + 1))
	rm -f $out.* /tmp/stop
	export COLL_ROOT=10.77.0.1:$((7000 + number)) COLL_SIZE=$((2 * n))
	export COLL_TRANSPORTS=$([ "$n" = 1 ] && echo rdma || echo shm,rdma)
	jobs=()
	for ((i = 0; i < n; i++)); do
		COLL_RANK=$((GUEST * n + i)) timeout -s KILL 100 "$@" >$out.$i 2>$out.$i.err &
		jobs+=($!)
	done
}

# carries WHAT N LEAST MOST SETTING... -- PROGRAM ARGUMENTS...: right results, and that share, in percent, of what
# this machine sent went over the second wire.
carries() {
	local what=$1 n=$2 least=$3 most=$4 settings=() status=0 a b
	shift 4
	while [ "$1" != -- ]; do settings+=("$1"); shift; done
	shift
	a=$(sent 0) b=$(sent 1)
	# An emulated machine with several ranks is slower to acknowledge than a device expects: it need not send again.
	ranks "$n" env COLL_RDMA_TIMEOUT=18 COLL_TIMEOUT_MS=20000 "${settings[@]}" "$build/bench/$1" "${@:2}"
	for j in "${jobs[@]}"; do wait "$j" || status=$?; done
	a=$(($(sent 0) - a)) b=$(($(sent 1) - b))
	local part=$((100 * b / (a + b + 1)))
	local told="$what, $n on each machine: $*: $a and $b bytes, $part % over the second wire"
	if [ $status != 0 ] || { [ $GUEST = 0 ] && ! grep -q 'Out of bounds values : 0 OK' $out.0; }; then
		bad "$told: status $status"
	elif { [ "$least" -gt 0 ] && [ $((a + b)) -lt 2000000 ]; } || [ $part -lt "$least" ] || [ $part -gt "$most" ]; then
		bad "$told, not $least to $most"
	else
		ok "$told"
	fi
}
shares() {
	carries "two devices" 1 30 70 -- allreduce_perf -b 4M -e 4M -n 3 -w 1
	carries "two devices" 2 30 70 -- allreduce_perf -b 4M -e 4M -n 1 -w 0
	carries "two devices" 2 30 70 -- all_to_all_perf -b 4M -e 4M -n 1 -w 0
}
# Only the root's machine sends much.
broadcast() {
	[ $GUEST = 0 ] && local least=30 most=70 || local least=0 most=100
	carries "two devices" 1 $least $most -- broadcast_perf -b 4M -e 4M -n 1 -w 0
	carries "two devices" 2 $least $most -- broadcast_perf -b 4M -e 4M -n 1 -w 0
	carries "registered memory" 1 $least $most -- broadcast_perf -R 1 -b 4M -e 4M -n 1 -w 0
}
rates() {
	carries "rates of 2 and 1" 1 25 41 COLL_LINK_RATES=rxe0:1000,rxe1:500 -- allreduce_perf -b 4M -e 4M -n 4 -w 1
	carries "rates of 20 and 1" 1 0 3 COLL_LINK_RATES=eth0:20000,eth1:1000 -- allreduce_perf -b 4M -e 4M -n 3 -w 1
}
forced() {
	carries "COLL_RDMA_DEVICE=rxe0" 1 0 3 COLL_RDMA_DEVICE=rxe0 -- allreduce_perf -b 4M -e 4M -n 3 -w 1
	carries "COLL_RDMA_DEVICE=rxe1" 1 94 100 COLL_RDMA_DEVICE=rxe1 -- allreduce_perf -b 4M -e 4M -n 3 -w 1
	carries "one end has one" 1 94 100 COLL_RDMA_DEVICE=$([ $GUEST = 0 ] && echo rxe1) -- \
		allreduce_perf -b 4M -e 4M -n 3 -w 1
}

said() { grep -h "^$1" $out.? | wc -l; }
all_said() { [ "$(said "$1")" -ge "$2" ]; }
# lost N MODE: GUEST 1 loses its second device during a call (again) or between calls (idle). No call fails, none is long,
# and the next communicator does without.
lost() {
	local n=$1 mode=$2 longest status=0
	mkdir -p /run/netns
	[ -e /run/netns/here ] || { touch /run/netns/here; mount --bind /proc/self/ns/net /run/netns/here; }
	ranks "$n" "$build/tests/exchange_loop" 30000 /tmp/stop here "$mode"
	wait_for 60 all_said running "$n" || { bad "lost: it does not start"; kill -9 "${jobs[@]}"; return; }
	sleep 1 # the other machine is running, too
	# Mute first: what virtio_net has sent, and not given back when it goes down, soft-RoCE waits for.
	[ $GUEST = 0 ] || { tc qdisc replace dev eth1 root netem loss 100%; sleep 0.3; ip link set eth1 down; }
	sleep 4
	touch /tmp/stop
	wait_for 40 all_said 'done' "$n" || status='it does not go on'
	longest=$(sed -n 's/^done [0-9]* [0-9]* //p' $out.? | sort -n | tail -1)
	[ "${longest:-99999}" -lt 1500 ] || status=late
	wait_for 40 all_said again "$n" || status='no next communicator'
	[ "$(said error)" = 0 ] || status="$(said error) errors"
	grep -hq 'rail 2 is lost.*rxe1.*goes on over.*rxe0' $out.?.err || status='the rail did not move'
	if [ "$status" = 0 ]; then
		ok "lost, $mode, $n on each machine: $(grep -h '^done' $out.0), the longest round $longest ms: $(
			grep -h 'rail 2 is lost' $out.?.err | head -1 | cut -c1-300)"
	else
		bad "lost, $mode, $n on each machine: $status, ${longest:-?} ms: $(grep -h '^error' $out.?)"
	fi
	wait "${jobs[@]}"
	sleep 1
	[ $GUEST = 0 ] || { ip link set eth1 up; tc qdisc del dev eth1 root; }
	wait_for 10 eval 'rdma link show rxe1/1 | grep -q ACTIVE'
	sleep 2
}
# One of the two ends of a wire loses it in mid-call: nothing leaves it, or it is down as well. Drawn from SEED and the
# number of the event, equally on both machines, which the job keeps in step.
strike() { # WIRE MS DOWN
	tc qdisc replace dev "eth$1" root netem loss 100%
	[ "$3" = 0 ] || { sleep 0.3; ip link set "eth$1" down; }
	sleep "$(printf '%d.%03d' $(($2 / 1000)) $(($2 % 1000)))"
	[ "$3" = 0 ] || ip link set "eth$1" up
	tc qdisc del dev "eth$1" root
}
# How long this machine was kept from running, in ms, from now until the job is stopped.
naps() {
	local until late=0 never
	[ -p /tmp/never ] || mkfifo /tmp/never
	exec {never}<>/tmp/never
	while [ ! -e /tmp/stop ]; do
		until=$((${EPOCHREALTIME/./} + 20000))
		read -r -t 0.02 -u $never
		until=$((${EPOCHREALTIME/./} - until))
		[ $until -lt 5000 ] || late=$((late + until / 1000))
	done
	echo $late >/tmp/late
}
# nic SEED NUMBER: no call fails, none takes 1.5 s longer than this machine slept, results are right, and the next
# communicator works. Errors of a machine that slept for as long as a host may be out of reach are told, not judged.
nic() {
	RANDOM=$(($1 * 1009 + $2))
	local n=$((RANDOM % 3 == 0 ? 2 : 1)) counts=(300 3000 30000)
	local count=${counts[RANDOM % 3]} side=$((RANDOM % 2)) wire=$((RANDOM % 2)) down=$((RANDOM % 2))
	local ms=$((50 + RANDOM % 2950)) after=$((RANDOM % 1500)) longest late why=() rail napping
	local told="nic $2 of seed $1: $n on each machine, count $count, machine $side loses eth$wire$(
		[ $down = 0 ] || echo ', which is down,') for $ms ms"
	mkdir -p /run/netns
	[ -e /run/netns/here ] || { touch /run/netns/here; mount --bind /proc/self/ns/net /run/netns/here; }
	ranks "$n" env COLL_TIMEOUT_MS=30000 "$build/tests/exchange_loop" "$count" /tmp/stop here again
	wait_for 60 all_said running "$n" || { bad "$told: it does not start"; kill -9 "${jobs[@]}"; wait "${jobs[@]}"; return; }
	naps &
	napping=$!
	sleep "$(printf '%d.%03d' $((after / 1000)) $((after % 1000)))"
	[ $GUEST != $side ] || strike $wire $ms $down
	[ $GUEST = $side ] || sleep $((ms / 1000 + 2))
	sleep 2
	touch /tmp/stop
	wait_for 60 all_said 'done\|error\|wrong' "$n" || why+=('it does not go on')
	longest=$(sed -n 's/^done [0-9]* [0-9]* //p' $out.? | sort -n | tail -1)
	wait $napping
	late=$(cat /tmp/late)
	[ "${longest:-0}" -lt $((1500 + late)) ] || why+=("a stall of $longest ms, of which it slept at most $late")
	wait_for 60 all_said again "$n" || why+=('no next communicator')
	[ "$(said error)" = 0 ] || why+=("$(said error) errors")
	[ "$(said wrong)" = 0 ] || why+=("$(said wrong) wrong results")
	wait_for 20 eval '! kill -0 "${jobs[@]}" 2>/dev/null' || { why+=('it does not end'); kill -9 "${jobs[@]}"; }
	wait "${jobs[@]}" || true
	rail=$(grep -h 'rail [0-9] is lost' $out.?.err | head -1 | cut -c1-160)
	if [ ${#why[@]} = 0 ]; then
		ok "$told: $(grep -h '^done' $out.0), slept $late ms; ${rail:-no rail was lost}"
	elif [ "$late" -ge 8000 ] && [ "$(said wrong)" = 0 ]; then
		ok "$told: void, as it slept for $late ms: $(printf '%s; ' "${why[@]}")"
	else
		bad "$told: slept $late ms: $(printf '%s; ' "${why[@]}")$(grep -h '^error\|^wrong' $out.?)"
	fi
	[ $GUEST != $side ] || mend $wire
}
# The device of a wire that was away is a new one: soft-RoCE may connect to nobody any more.
mend() { # WIRE
	rdma link delete "rxe$1"
	rdma link add "rxe$1" type rxe netdev "eth$1"
	wait_for 10 eval "rdma link show rxe$1/1 | grep -q ACTIVE"
}
nics() { # SEED FIRST COUNT
	local i
	for ((i = $2; i < $2 + $3; i++)); do nic "$1" $i; done
}
lost1() { lost 1 again; }
lost2() { lost 2 again; }
lost_idle() { lost 1 idle; }

for part in "$@"; do
	$part
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
