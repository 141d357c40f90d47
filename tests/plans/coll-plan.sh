#!/usr/bin/env bash
# coll-plan from the command line: what it prints, how it ends, what it refuses.
# usage: coll-plan.sh COLL-PLAN
set -u
tool=$1
failed=0
passed=0

# expect STATUS TEXT ARGUMENTS...: the exit status, and a text in what it prints
expect() {
	local want=$1 text=$2 out status
	shift 2
	out=$("$tool" "$@" 2>&1)
	status=$?
	if [ "$status" -ne "$want" ] || [[ $out != *"$text"* ]]; then
		echo "FAIL coll-plan $*: status $status, not $want, or no '$text' in:"
		echo "$out" | tail -5
		failed=$((failed + 1))
	else
		passed=$((passed + 1))
	fi
}

expect 0 'usage: coll-plan COLLECTIVE' --help
expect 2 'usage: coll-plan COLLECTIVE'
expect 2 'unknown flag: --foo' verify --foo
expect 2 'unknown flag: -x' all_reduce -x
expect 2 'flag without a value: -n' all_reduce --algo ring -n
expect 2 '-n: 0' all_reduce --algo ring -n 0
expect 2 'unknown collective or command: all_reduction' all_reduction --algo ring -n 4
expect 2 'no such algorithm for this collective: bruck' all_reduce --algo bruck -n 4
expect 2 'not below the number of ranks: --rank' all_reduce --algo ring -n 4 --rank 4
expect 2 '--all cannot be combined with a choice' verify --all -n 4
expect 2 'needs --all, a collective' verify
expect 0 'plan all_reduce ring rank 2 size 8 root 0 chunks 8 run 1' all_reduce --algo ring -n 8 --rank 2
expect 0 'recv_reduce_send from 1 op in[1] to 3 of 1+1 pre' all_reduce --algo ring -n 8 --rank 2 --fused
expect 0 'plan broadcast binomial rank 4 size 5 root 3' broadcast --algo binomial -n 5 --root 3 --rank all
expect 0 'twoshot' list
expect 0 '1.750 S' count all_reduce -n 8
expect 0 ' plans, 0 failed' verify -n 12
expect 0 '2 plans, 0 failed' verify all_reduce --algo ring -n 130
expect 0 '2 plans, 0 failed' verify broadcast --algo circulant -n 19 --root 7 -j 1
expect 2 'cannot be verified: verify --layouts sweeps them: --layout' verify all_reduce --algo circulant --layout 2x4
expect 2 'needs a layout, as verify --layouts makes them: leaders' verify --algo leaders -n 4
expect 2 'not for so many ranks: oneshot' verify --algo oneshot -n 200
expect 2 '--layouts cannot be combined with a choice' verify --layouts all_reduce
# Two sites of two hosts: the root's host sends to the other site and to its neighbour.
expect 0 '7.000 S      2.000 S' count broadcast --algo leaders --layout 2x2x2
# Over an uplink of 100 Mb/s a MiB takes 84 ms; the sites' slowest counts.
expect 0 '1.500 S      1.000 S     83.886 ms' count all_reduce --algo circulant --layout 2x2x2 --rates 500,100

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
