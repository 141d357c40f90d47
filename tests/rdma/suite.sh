#!/usr/bin/env bash
# The tests over RDMA verbs. Usage: suite.sh SOURCE BUILD built|absent [all].
#
# Without `all`, what `./run test` runs: data and processes of the conformance suite, and all-reduces
# whose bytes the device itself has counted (at most 4 minutes). With `all`, `./run
# test-rdma`: the whole conformance suite, every performance program, mixed hosts, dead and stopped ranks, troubles, and
# two machines with a wire that misbehaves, or with two wires (at most 50 minutes).
#
# On this machine's own device if there is one, else in emulated ones (tests/rdma/vm).
# The last line is `N passed, N failed, N skipped`; status 77: skipped, and why.
set -uo pipefail
source=$1 build=$2
cd "$source" || exit 1

if [ "${3:-}" = absent ]; then
	echo "rdma: skipped: this build has no RDMA verbs (libibverbs-dev, librdmacm-dev; ./run setup rdma)"
	exit 77
fi
passed=0 failed=0 skipped=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# The closing line of a part is added to ours.
add() { # WHAT STATUS
	local line
	line=$(grep -E '^(0: )?[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -1)
	line=${line#0: }
	if [ "$2" = 77 ]; then
		grep skipped "$log"
		skipped=$((skipped + 1))
	elif [ -z "$line" ] || [ "$2" -gt 1 ]; then # a part that was ended has lines of its programs
		echo "FAIL  $1: status $2, and no closing line"
		failed=$((failed + 1))
	else
		set -- $line
		passed=$((passed + $1)) failed=$((failed + $3)) skipped=$((skipped + $5))
	fi
}

# part WHAT COMMAND...: shows its lines but the last.
part() {
	local what=$1 status
	shift
	"$@" 2>&1 | tee "$log" | grep -v ' passed, '
	status=${PIPESTATUS[0]}
	add "$what" "$status"
}
one() { # PARTS...
	if [ -n "$(ls /sys/class/infiniband 2>/dev/null)" ]; then
		part "$*" bash tests/rdma/parts.sh "$build" "$@"
	else
		part "$*" tests/rdma/vm --seconds 1100 bash tests/rdma/parts.sh "$build" "$@"
	fi
}
two() { # CASES...
	part "$*" tests/rdma/vm --seconds 238 --guests 2 bash tests/rdma/wire.sh "$build" "$@"
}

# Two machines with two devices each.
rails() { # CASES...
	part "$*" tests/rdma/vm --seconds 238 --guests 2 --wires 2 bash tests/rdma/rails.sh "$build" "$@"
}

if [ "${4:-}" != all ]; then
	one processes quick
	[ $skipped = 0 ] || exit 77
else
	one conform quick
	[ $skipped = 0 ] || exit 77
	one paths registered info
	one failures rounds
	one tags
	one troubles
	one devices
	one floats2 floats3
	one floats4 floats8
	one types2 mixed22 mixed13
	one types5
	two plain loss reorder corrupt
	two mute1 down03 down1
	two killed stopped down # the last: after it soft-RoCE may connect to nobody any more
	two silent poweroff
	rails shares
	rails broadcast rates forced
	rails lost1 # one loss for each machine: after it soft-RoCE may connect to nobody any more
	rails lost2
	rails lost_idle
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ] && [ $passed -gt 0 ]
