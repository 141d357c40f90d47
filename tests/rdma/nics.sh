#!/usr/bin/env bash
# One NIC of two is lost in mid-call, again and again, over RDMA: two emulated machines with two wires and two devices
# each (rails.sh). Usage: nics.sh BUILD [EVENTS [SEED [FIRST]]]. The last line is `N events, N void, N with faults`; void: an
# emulated machine was kept from running for 8 s.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
build=$1 events=${2:-200} seed=${3:-1} first=${4:-0}
each=8 done=0 faults=0 void=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

for ((i = first; i < first + events; i += each)); do
	n=$((first + events - i < each ? first + events - i : each))
	tests/rdma/vm --seconds $((60 + 60 * n)) --guests 2 --wires 2 bash tests/rdma/rails.sh "$build" "'nics $seed $i $n'" >"$log" 2>&1
	status=$?
	if [ $status = 77 ]; then
		cat "$log"
		exit 77
	fi
	grep -E '^[01]: ok ' "$log"
	for ((k = i; k < i + n; k++)); do
		done=$((done + 1))
		! grep -q "^[01]: ok    nic $k of seed .*: void, " "$log" || { void=$((void + 1)); continue; }
		[ "$(grep -cE "^[01]: ok    nic $k of seed" "$log")" = 2 ] && continue
		faults=$((faults + 1))
		echo "FAIL  event $k; again: tests/rdma/nics.sh $build 1 $seed $k"
		grep -vE '^[01]: (ok |$)' "$log" | grep -A 30 "nic $k of" | head -40
	done
done
echo "$done events, $void void, $faults with faults"
[ $faults = 0 ] && [ $done -gt 0 ]
