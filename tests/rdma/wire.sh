#!/usr/bin/env bash
# Two emulated machines and a wire that misbehaves: both run wire.sh BUILD CASE... with
# GUEST=0 and GUEST=1 (tests/rdma/vm --guests 2). Each case is a job of two ranks, one
# here and one there, that exchanges until it is stopped or fails; every element of every
# result is checked (tests/multi/exchange_loop.c). Creating the job brings the machines
# into step, and what one does next waits for what it sees: rounds, counters, an error.
# The last line is `N passed, N failed, N skipped`.
set -uo pipefail
build=$1
shift
counters=/sys/class/infiniband/rxe0/ports/1/hw_counters
passed=0 failed=0
export COLL_TRANSPORTS=${COLL_TRANSPORTS:-rdma} COLL_SIZE=2 COLL_JOB_KEY=00112233445566778899aabbccddeeff
export COLL_TIMEOUT_MS=3000 COLL_DEBUG=${COLL_DEBUG:-info}
out=/tmp/out
number=0

ok() { passed=$((passed + 1)); echo "ok    $*"; }
bad() { failed=$((failed + 1)); echo "FAIL  $*"; tail -n 8 $out; tail -n 12 $out.err; }
rounds() { awk '$1 == "round" || $1 == "done" {n = $3} END {print n + 0}' $out; }
counter() { cat "$counters/$1"; }
# What a device counts when packets are lost, late or out of order.
troubles() { echo $(($(counter duplicate_request) + $(counter out_of_seq_request) + $(counter rcvd_seq_err) + $(counter completer_retry_err))); }
connections() { sed -n 's/.*rdma: a link ends: .* connected \([0-9]*\) times.*/\1/p' $out.err | sort -n | tail -1; }

# Until the command succeeds; false: not within N s.
wait_for() { # S COMMAND...
	local until=$((SECONDS + $1))
	shift
	until "$@"; do
		[ $SECONDS -le $until ] || return 1
		sleep 0.02
	done
}
line() { grep -q "^$1" $out; }
over() { line 'done\|error\|wrong'; }
beyond() { over || [ "$(rounds)" -ge "$1" ]; }
# So many rounds more than now.
more_rounds() { wait_for "$2" beyond $(($(rounds) + $1)); }

start() { # COUNT GUEST-OF-RANK-0
	number=$((number + 1))
	rm -f /tmp/stop $out $out.err
	export COLL_ROOT=10.77.0.$(($2 + 1)):$((7000 + number)) COLL_RANK=$((GUEST ^ $2))
	"$build/tests/exchange_loop" "$1" /tmp/stop >$out 2>$out.err &
	job=$!
	wait_for 40 line running && return
	bad "it does not start"
	kill -9 $job
	wait $job
	return 1
}

# Rank 0 ends the job; right and without an error on both sides.
finish() { # NAME
	[ $COLL_RANK = 1 ] || touch /tmp/stop
	wait_for 60 over
	wait $job
	local status=$?
	if [ $status = 0 ] && line 'done'; then
		ok "$*: $(rounds) rounds, connected $(connections) times"
	else
		bad "$*: status $status"
	fi
}

dropped() { tc -s qdisc show dev eth0 | sed -n 's/.*dropped \([0-9]*\).*/\1/p' | head -1; }
seen() { over || [ $(($($1) - began)) -ge "$2" ]; }

# Both ends send through netem, until the first has counted enough of what the case is for.
netem() { # NAME COUNTER LEAST NETEM-ARGUMENTS...
	local name=$1 counter=$2 least=$3 began first
	shift 3
	start 3000 0 || return
	tc qdisc replace dev eth0 root netem "$@"
	began=$($counter) first=$(rounds)
	[ $GUEST = 1 ] || wait_for 50 seen "$counter" "$least"
	[ $GUEST = 1 ] || more_rounds 64 30
	local n=$(($($counter) - began))
	finish "$name ($*; from round $first on; $counter $n)"
	if [ $GUEST = 0 ] && [ $n -lt "$least" ]; then bad "$name: $counter only $n"; fi
	tc qdisc del dev eth0 root
}
plain() { start 3000 0 && more_rounds 64 30; finish plain; }
loss() { netem loss dropped 20 delay 5ms loss 1%; }
reorder() { netem reorder troubles 5 delay 2ms reorder 25% 50%; }
corrupt() { netem corrupt troubles 5 delay 1ms corrupt 1%; }

# GUEST 1 takes its own link down for a while, or nothing leaves it: the job goes on. It is
# rank 0, so it knows when there is enough after the gap.
# By processes that wait for no other of the machine, and are there before it begins: an emulated one
# takes half a second to start one, and the gap would be longer than it says.
out() { # TOOL SECONDS BEGIN END
	[ -p /tmp/never ] || mkfifo /tmp/never
	chrt -f 20 bash -c '{ echo "$3"; read -r -t "$2" -u 9; echo "$4"; } 9<>/tmp/never | $1 -batch -' - "$@"
}
unlink() { out ip "$1" 'link set eth0 down' 'link set eth0 up'; }
mute() { out tc "$1" 'qdisc replace dev eth0 root netem loss 100%' 'qdisc del dev eth0 root'; }
gap() { # SECONDS unlink|mute LEAST-CONNECTIONS
	start 3000 1 || return
	[ $GUEST = 0 ] || $2 "$1"
	[ $GUEST = 0 ] || more_rounds 128 40
	finish "$2 for $1 s"
	if [ "$(connections)" -lt "$3" ]; then bad "$2 for $1 s: the connection was not made again"; fi
}
down03() { gap 0.3 unlink 1; }
down1() { gap 1 unlink 1; }
mute1() { gap 1 mute 2; }

# What a survivor must say: whom it has lost, and that within so long of the call in which
# it happened.
fails() { # NAME LIMIT-MS PATTERN
	wait_for 30 over
	local took=$(sed -n 's/^error .*, after \([0-9]*\)\.\([0-9]*\) s in .*/\1\2/p' $out)
	if ! over; then kill -9 $job; fi
	wait $job
	if grep -q "^error $COLL_RANK $((1 - COLL_RANK)) .*$3" $out && [ -n "$took" ] && [ $((10#$took)) -lt "$2" ]; then
		ok "$1: after $((10#$took)) ms: $(grep '^error' $out | cut -d' ' -f5- | cut -c1-300)"
	else
		bad "$1: after ${took:-?} ms"
	fi
}
# Both machines are where they were before: the other's call has ended by then, too.
apart() { sleep 4; }

# For good: nothing leaves GUEST 1 any more, or its link is down. Both ends say so.
silent() {
	start 300 0 || return
	more_rounds 64 30
	[ $GUEST = 0 ] || tc qdisc replace dev eth0 root netem loss 100%
	fails "nothing leaves one side" 4500 ''
	[ $GUEST = 0 ] || { apart; tc qdisc del dev eth0 root; }
}
down() {
	start 300 0 || return
	more_rounds 64 30
	[ $GUEST = 0 ] || ip link set eth0 down
	fails "link down for good" 4500 ''
	[ $GUEST = 0 ] || { apart; ip link set eth0 up; }
}
killed() {
	start 300 0 || return
	if [ $GUEST = 1 ]; then more_rounds 64 30; kill -9 $job; wait $job; ok "killed itself"; return; fi
	fails "peer killed" 2000 ''
}
# Until the other has seen it: what is stopped is ended then.
stopped() {
	start 300 0 || return
	if [ $GUEST = 0 ]; then
		fails "peer stopped" 5500 ''
		wait_for 20 eval 'echo seen >/dev/tcp/10.77.0.2/7990'
		return
	fi
	more_rounds 64 30
	kill -STOP $job
	timeout 60 busybox nc -l -p 7990 >/dev/null
	kill -9 $job
	wait $job
	ok "stopped itself"
}
poweroff() {
	start 300 0 || return
	if [ $GUEST = 1 ]; then more_rounds 64 30; echo o >/proc/sysrq-trigger; sleep 20; fi
	fails "peer powered off" 4500 ''
}

for part in "$@"; do
	$part 2>/dev/null
done
echo "packets sent $(counter sent_pkts), troubles of the device $(troubles), retries exceeded $(counter retry_exceeded_err)"
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
