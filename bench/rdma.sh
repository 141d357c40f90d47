#!/usr/bin/env bash
# The rdma transport beside perftest, on one device of this machine, block by block:
# A B A B ..., medians of the ratios. Usage: rdma.sh BUILD [BLOCKS [counts]]; without a
# device: tests/rdma/vm bash bench/rdma.sh BUILD. counts: what one message costs, instead.
set -uo pipefail
build=$1 blocks=${2:-5}
device=$(ls /sys/class/infiniband | head -1)
port=18515

# A server in the background, a client whose table we read.
perftest() { # PROGRAM ARGUMENTS...
	port=$((port + 1))
	"$@" -d "$device" -p $port >/dev/null 2>&1 &
	local server=$!
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		grep -qi ":$(printf %04X $port) .* 0A " /proc/net/tcp /proc/net/tcp6 && break
		sleep 0.2
	done
	"$@" -d "$device" -p $port localhost 2>/dev/null | awk '$1 ~ /^[0-9]+$/ {print}' | tail -1
	wait $server
}
lat() { perftest "$1" -s "$2" -n "$3" -F | awk '{print $5, $6}'; }  # typical and average, one way
rate() { perftest "$1" -s "$2" -n "$3" -F | awk '{print $4 * 1.048576}'; } # average, 10^6 bytes per s
median() { sort -g | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }

compare() { # MODE BYTES COUNT PERFTEST
	local theirs ours line avg all_t='' all_o='' ratios='' averages='' lost=0
	for _ in $(seq "$blocks"); do
		if [ "$1" = lat ]; then theirs=$(lat "$4" "$2" "$3"); else theirs=$(rate "$4" "$2" "$3"); fi
		read -r theirs avg <<<"$theirs"
		line=$("$build/bench/rdma_wire" "$1" "$2" "$3" 1 2>/dev/null)
		ours=$(awk '{print $3}' <<<"$line")
		# perftest fails now and then, and says "inf": no block then.
		if ! [[ $theirs =~ ^[0-9.]+$ && $ours =~ ^[0-9.]+$ ]]; then
			lost=$((lost + 1))
			continue
		fi
		all_t+="${theirs:-0}"$'\n' all_o+="${ours:-0}"$'\n'
		[ "$1" != lat ] || averages+=" $avg/$(awk '{print $5}' <<<"$line")"
		ratios+="$(awk -v a="${ours:-0}" -v b="${theirs:-0}" 'BEGIN {print (b > 0 ? a / b : 0)}')"$'\n'
	done
	printf '%-6s %8d B  %-13s %9.2f  ours %9.2f  ratio %.2f (%s .. %s)\n' "$1" "$2" "$4" \
		"$(printf %s "$all_t" | median)" "$(printf %s "$all_o" | median)" "$(printf %s "$ratios" | median)" \
		"$(printf %s "$ratios" | sort -g | head -1)" "$(printf %s "$ratios" | sort -g | tail -1)"
	[ $lost = 0 ] || echo "       $lost of $blocks blocks lost"
	[ -z "$averages" ] || echo "       averages, theirs/ours:$averages"
}

# What one message costs: the counters of both ends over one run, and its system calls.
count() { # MODE BYTES COUNT
	echo "$1 $2 B, $(($3 + $3 / 10 + 1)) messages (lat: there and back):"
	VERBOSE=1 "$build/bench/rdma_wire" "$1" "$2" "$3" 1 2>&1 >/dev/null | grep 'a link ends' | sed 's/rdma: a link ends: /  /'
	command -v strace >/dev/null || return 0
	strace -f -c -o /tmp/rdma_calls "$build/bench/rdma_wire" "$1" "$2" "$3" 1 >/dev/null 2>&1
	awk '$NF ~ /^(write|read|poll|epoll_ctl|epoll_wait|ioctl|futex|timerfd_settime|sched_yield)$/ {printf "  %s %s", $4, $NF} END {print ""}' \
		/tmp/rdma_calls
}

if [ "${3:-}" = counts ]; then
	count lat 8 1000
	count value 65536 200
	count ref 65536 200
	count ref 1048576 20
	exit
fi
compare lat 8 2000 ib_write_lat
compare lat 8 2000 ib_send_lat
for bytes in 65536 1048576 4194304; do
	compare value $bytes $((50331648 / bytes)) ib_write_bw
	compare ref $bytes $((50331648 / bytes)) ib_write_bw
done
