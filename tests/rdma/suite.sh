#!/usr/bin/env bash
# What the test suite runs over RDMA verbs: the conformance suite, unchanged, and an
# all-reduce whose bytes the device itself has counted. Usage: suite.sh SOURCE BUILD [built|absent].
# Runs here when this machine has an RDMA device, else in an emulated one (tests/rdma/vm).
set -uo pipefail
source=$1 build=$2
counters=/sys/class/infiniband/rxe0/ports/1/hw_counters

if [ "${3:-}" = absent ]; then
	echo "rdma: skipped: this build has no RDMA verbs (libibverbs-dev, librdmacm-dev; ./run setup rdma)"
	exit 77
fi
if [ "${3:-}" != inside ] && [ -z "$(ls /sys/class/infiniband 2>/dev/null)" ]; then
	cd "$source" && exec tests/rdma/vm --seconds 280 bash tests/rdma/suite.sh "$source" "$build" inside
fi
failed=0
timeout 240 "$build/tests/conform/conform" rdma | tee /tmp/conform.out
[ "${PIPESTATUS[0]}" = 0 ] || failed=1
grep -q ' 0 failed' /tmp/conform.out || failed=1
before=$(cat $counters/sent_pkts 2>/dev/null || echo 0)
COLL_TRANSPORTS=rdma timeout 60 "$build/tools/collrun" -n 2 --no-prefix "$build/bench/allreduce_perf" -b 8 -e 1M -f 8 -n 5 |
	tee /tmp/perf.out
grep -q 'Out of bounds values : 0 OK' /tmp/perf.out || { echo "all-reduce over rdma: wrong or unfinished"; failed=1; }
if [ -e $counters/sent_pkts ]; then
	sent=$(($(cat $counters/sent_pkts) - before))
	echo "the device sent $sent packets, found no receive $(cat $counters/rcvd_rnr_err) times"
	# 1 MiB alone is 256 packets of 4096 bytes each way, 10 times or more.
	[ $sent -gt 2000 ] || { echo "the bytes went elsewhere"; failed=1; }
	[ "$(cat $counters/rcvd_rnr_err)" = 0 ] || { echo "a receive was missing"; failed=1; }
fi
exit $failed
