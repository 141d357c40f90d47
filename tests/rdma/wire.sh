#!/usr/bin/env bash
# Two emulated machines and a wire that misbehaves: both run wire.sh BUILD CASE... with
# GUEST=0 and GUEST=1 (tests/rdma/vm --guests 2). Each case is a job of two ranks, one
# here and one there, that exchanges until it is stopped or fails; every element of every
# result is checked (tests/multi/exchange_loop.c). Creating the job brings the machines
# into step. The last line is `N passed, N failed, N skipped`.
set -uo pipefail
build=$1
shift
counters=/sys/class/infiniband/rxe0/ports/1/hw_counters
passed=0 failed=0
export COLL_TRANSPORTS=${COLL_TRANSPORTS:-rdma} COLL_SIZE=2 COLL_RANK=$GUEST COLL_JOB_KEY=00112233445566778899aabbccddeeff
export COLL_TIMEOUT_MS=3000 COLL_DEBUG=${COLL_DEBUG:-warn}
out=/tmp/out
number=0

ok() { passed=$((passed + 1)); echo "ok    $*"; }
bad() { failed=$((failed + 1)); echo "FAIL  $*"; tail -n 8 $out $out.err; }
ms() { echo $(($(date +%s%N) / 1000000)); }
rounds() { awk '$1 == "round" || $1 == "done" {n = $3} END {print n + 0}' $out; }
count() { cat "$counters/$1"; }

# Until a line begins with this word; false: not within N s.
line() { # WORD S
	local until=$(($(ms) + 1000 * $2))
	until grep -q "^$1" $out; do
		[ "$(ms)" -lt $until ] || return 1
		sleep 0.02
	done
}

start() { # COUNT
	number=$((number + 1))
	rm -f /tmp/stop $out
	COLL_ROOT=10.77.0.1:$((7000 + number)) "$build/tests/exchange_loop" "$1" /tmp/stop >$out 2>$out.err &
	job=$!
	line running 30
}

# Ends the job from GUEST 0; right and without an error on both sides.
finish() { # NAME
	touch /tmp/stop
	line 'done' 40
	wait $job
	local status=$?
	if [ $status = 0 ] && grep -q '^done' $out; then ok "$*: $(rounds) rounds"; else bad "$*: status $status"; fi
}

qdisc() { tc qdisc replace dev eth0 root netem "$@"; }
dropped() { tc -s qdisc show dev eth0 | sed -n 's/.*dropped \([0-9]*\).*/\1/p' | head -1; }

# Both sides under netem for 8 s, in the middle of a job.
netem() { # NAME NETEM-ARGUMENTS...
	local name=$1 before
	shift
	start 3000 || { bad "$name: it does not start"; return; }
	qdisc "$@"
	before=$(rounds)
	sleep 8
	local seen="$(tc -s qdisc show dev eth0 | tr '\n' ' ')"
	tc qdisc del dev eth0 root
	seen="dropped $(sed -n 's/.*dropped \([0-9]*\).*/\1/p' <<<"$seen")"
	finish "$name ($*; $before rounds before; $seen)"
}
plain() { start 3000; sleep 3; finish plain; }
loss() { netem loss delay 5ms loss 1%; }
reorder() { netem reorder delay 2ms reorder 25% 50%; }
corrupt() { netem corrupt delay 1ms corrupt 1%; }

# GUEST 1 takes its own link down for a while, or nothing leaves it: the job goes on.
unlink() { ip link set eth0 down; sleep "$1"; ip link set eth0 up; }
mute() { tc qdisc replace dev eth0 root netem loss 100%; sleep "$1"; tc qdisc del dev eth0 root; }
gap() { # SECONDS unlink|mute
	local before
	start 3000 || { bad "gap: it does not start"; return; }
	sleep 0.3
	[ $GUEST = 0 ] || $2 "$1"
	before=$(rounds)
	sleep 5
	finish "$2 for $1 s, $before rounds before"
}
down03() { gap 0.3 unlink; }
down1() { gap 1 unlink; }
mute1() { gap 1 mute; }

# What a survivor must say, and when: within 2 s of the moment GUEST 1 says, which is not
# known here: within so many s of the last round that was seen.
fails() { # NAME LIMIT-MS PATTERN
	local before=$(ms) last=-1 at
	at=$before
	until grep -q '^error\|^done\|^wrong' $out; do
		[ "$(ms)" -lt $((before + 20000)) ] || break
		[ "$(wc -l <$out)" = "$last" ] || { last=$(wc -l <$out); at=$(ms); }
		sleep 0.01
	done
	wait $job
	local took=$(($(ms) - at))
	if grep -q "^error $GUEST $((1 - GUEST)) .*$3" $out && [ $took -lt "$2" ]; then
		ok "$1: after $took ms: $(grep '^error' $out | cut -d' ' -f5- | cut -c1-300)"
	else
		bad "$1: after $took ms"
	fi
}

# For good: nothing leaves GUEST 1 any more, or its link is down.
silent() {
	start 300 || { bad "silent: it does not start"; return; }
	[ $GUEST = 0 ] || { sleep 0.5; tc qdisc replace dev eth0 root netem loss 100%; }
	fails "nothing leaves one side" 3500 ''
	sleep 3
	[ $GUEST = 0 ] || tc qdisc del dev eth0 root
}
down() {
	start 300 || { bad "down: it does not start"; return; }
	[ $GUEST = 0 ] || { sleep 0.5; ip link set eth0 down; }
	fails "link down for good" 3500 ''
	sleep 3
	[ $GUEST = 0 ] || ip link set eth0 up
	sleep 2
}
killed() {
	start 300 || { bad "killed: it does not start"; return; }
	if [ $GUEST = 1 ]; then sleep 0.5; kill -9 $job; wait $job; ok "killed itself"; return; fi
	fails "peer killed" 2000 ''
}
stopped() {
	start 300 || { bad "stopped: it does not start"; return; }
	if [ $GUEST = 1 ]; then sleep 0.5; kill -STOP $job; sleep 8; kill -9 $job; wait $job; ok "stopped itself"; return; fi
	fails "peer stopped" 6000 ''
}
poweroff() {
	start 300 || { bad "poweroff: it does not start"; return; }
	if [ $GUEST = 1 ]; then sleep 0.5; echo o >/proc/sysrq-trigger; sleep 20; fi
	fails "peer powered off" 3000 ''
}

for part in "$@"; do
	$part 2>/dev/null
done
echo "packets sent $(count sent_pkts), sent again $(count retry_exceeded_err) $(count completer_retry_err)"
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
