#!/usr/bin/env bash
# The rdma transport beside perftest, on one device of this machine, block by block:
# A B A B ..., medians of the ratios. Usage: rdma.sh BUILD [BLOCKS]; without a device:
# tests/rdma/vm bash bench/rdma.sh BUILD.
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
lat() { perftest "$1" -s "$2" -n "$3" -F | awk '{print $5}'; }      # typical, one way
rate() { perftest "$1" -s "$2" -n "$3" -F | awk '{print $4 * 1.048576}'; } # average, 10^6 bytes per s
median() { sort -g | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }

compare() { # MODE BYTES COUNT PERFTEST
	local theirs ours all_t='' all_o='' ratios=''
	for _ in $(seq "$blocks"); do
		if [ "$1" = lat ]; then theirs=$(lat "$4" "$2" "$3"); else theirs=$(rate "$4" "$2" "$3"); fi
		ours=$("$build/bench/rdma_wire" "$1" "$2" "$3" 1 | awk '{print $3}')
		all_t+="${theirs:-0}"$'\n' all_o+="${ours:-0}"$'\n'
		ratios+="$(awk -v a="${ours:-0}" -v b="${theirs:-0}" 'BEGIN {print (b > 0 ? a / b : 0)}')"$'\n'
	done
	printf '%-6s %8d B  %-13s %9.2f  ours %9.2f  ratio %.2f (%s .. %s)\n' "$1" "$2" "$4" \
		"$(printf %s "$all_t" | median)" "$(printf %s "$all_o" | median)" "$(printf %s "$ratios" | median)" \
		"$(printf %s "$ratios" | sort -g | head -1)" "$(printf %s "$ratios" | sort -g | tail -1)"
}

compare lat 8 2000 ib_write_lat
compare lat 8 2000 ib_send_lat
for bytes in 65536 1048576 4194304; do
	compare value $bytes $((50331648 / bytes)) ib_write_bw
	compare ref $bytes $((50331648 / bytes)) ib_write_bw
done
