#!/usr/bin/env bash
# What a user does wrong is answered with what is wrong, by the program's name, an exit status other than 0, and at
# once: command lines, files, settings, and jobs of which a rank is missing.
# usage: wrong_use.sh BUILD-ROOT
set -u
build=$1
export PATH=$build/tools:$build/bench:$build/examples:$PATH
unset "${!COLL_@}"
passed=0 failed=0
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# expect STATUS TEXT COMMAND...: the exit status, and a text in what it prints
expect() {
	local want=$1 text=$2 out status
	shift 2
	out=$(timeout 30 "$@" 2>&1 </dev/null)
	status=$?
	if [ "$status" -ne "$want" ] || [[ $out != *"$text"* ]]; then
		echo "FAIL $*: status $status, not $want, or no '$text' in:"
		echo "$out" | head -5
		failed=$((failed + 1))
	else
		passed=$((passed + 1))
	fi
}

# full COMMAND...: what it prints does not fit on the disk
full() { expect 1 "${1##*/}: cannot write standard output" bash -c '"$@" >/dev/full' bash "$@"; }

: >"$dir/empty"
head -c 4000 /dev/urandom >"$dir/garbage"
printf 'a:many\n' >"$dir/hosts-word"
printf 'COLL_SLOTS=3\nCOLL_SLOTS=many\n' >"$dir/settings"

# ---- A full disk
for program in collrun coll-info coll-plan coll-topo coll-trace coll-tune allreduce_perf; do
	full "$program" --help
done
[ -x "$build/examples/ddp_gpt" ] && full ddp_gpt --help
full coll-info
full coll-topo --json
full allreduce_perf -b 8 -e 8 -n 1 -w 1
full collrun -n 2 echo x
full collrun -n 2 --dry-run true

# ---- Flags that are nearly right
expect 2 'allreduce_perf: unknown flag --minbyts: did you mean --minbytes?' allreduce_perf --minbyts 8
expect 2 'coll-info: unknown flag --settngs: did you mean --settings?' coll-info --settngs
expect 2 'coll-plan: unknown flag: --layuot: did you mean --layout?' coll-plan --layuot 2x2
expect 2 'coll-topo: --jsn: unknown flag: did you mean --json?' coll-topo --jsn
expect 2 'coll-trace: unknown flag --outptu=x: did you mean --output?' coll-trace --outptu=x
expect 2 'coll-trace: no value for flag --output' coll-trace --output

# ---- collrun
expect 2 'collrun: no program given' collrun
expect 2 'collrun: the number of ranks is missing: give -n or -H' collrun true
expect 2 'collrun: unknown option --nonsense' collrun --nonsense
expect 2 'collrun: -n needs a value' collrun -n
for n in 0 -1 x 2x 99999999999; do
	expect 2 "collrun: -n $n: expected a number of ranks" collrun -n $n true
done
expect 2 'collrun: no program given' collrun -n 2
expect 127 'cannot run /no/such/program: No such file or directory' collrun -n 2 /no/such/program
expect 127 'cannot run /tmp: Permission denied' collrun -n 2 /tmp
expect 2 "collrun: --hostfile $dir/none: No such file or directory" collrun --hostfile "$dir/none" true
expect 2 "collrun: --hostfile $dir: Is a directory" collrun -n 2 --hostfile "$dir" true
expect 2 "collrun: --hostfile $dir/empty: it names no host" collrun -n 2 --hostfile "$dir/empty" true
expect 2 'expected a number of slots after the colon' collrun --hostfile "$dir/hosts-word" true
expect 2 'collrun: ' collrun --hostfile "$dir/garbage" true
expect 2 'it names no host' collrun -n 2 -H '' true
expect 2 '-n 3: the hosts have 2 slots' collrun -n 3 -H localhost:2 true
expect 2 '--bind sofa: expected core, numa or none' collrun -n 1 --bind sofa true
expect 2 '--timeout soon: expected a number of seconds' collrun -n 1 --timeout soon true
expect 2 '-x NOT_THERE: no such variable' collrun -n 1 -x NOT_THERE true
expect 1 "$dir/empty" collrun -n 1 --output "$dir/empty" true
expect 124 'has not ended within 0.2 s' collrun -n 2 --timeout 0.2 sleep 20
expect 3 'exited with status 3' collrun -n 2 sh -c 'exit 3'
expect 137 'killed by signal 9' collrun -n 2 sh -c 'kill -9 $$'

# ---- What was meant, and which build it is
expect 2 'unknown option --timeot: did you mean --timeout?' collrun --timeot 3 true
expect 0 'COLL_TIMEOUT is set but is not a setting of this library: did you mean COLL_TIMEOUT_MS?' env COLL_TIMEOUT=3 coll-info --brief
expect 1 "there is no transport 'tpc': did you mean tcp?" env COLL_TRANSPORTS=tpc coll-info --brief
for program in collrun coll-info coll-plan coll-topo coll-trace coll-tune allreduce_perf; do
	expect 0 "$program 0.1.0 (" "$program" --version
done

expect 2 'all ranks are on one host: there are no links to measure' coll-tune
expect 2 'coll-tune: unexpected argument more' coll-tune more

# ---- coll-info
expect 0 'To see those of a job:' coll-info
expect 2 'usage: coll-info' coll-info --nonsense
expect 2 'coll-info: --pid abc: expected the number of a process' coll-info --pid abc
expect 2 'there is no process 999999999' coll-info --pid 999999999
sleep 30 &
expect 2 "neither process $! nor a descendant is a rank" coll-info --pid $!
kill $!
expect 1 'no message of this version has the id 9999' coll-info --explain 9999
expect 2 'coll-info: unexpected argument choices' coll-info choices
expect 1 'COLL_SLOTS=many (environment): expected a whole number' env COLL_SLOTS=many coll-info
expect 1 "COLL_SLOTS=many (file $dir/settings:2): expected a whole number" env COLL_CONFIG_FILE="$dir/settings" coll-info
expect 1 'Is a directory' env COLL_CONFIG_FILE="$dir" coll-info

# ---- coll-trace
expect 2 'usage: coll-trace' coll-trace
expect 2 'usage: coll-trace' coll-trace --nonsense
expect 1 "coll-trace: $dir/none: No such file or directory" coll-trace "$dir/none"
expect 1 "coll-trace: $dir: " coll-trace "$dir"
expect 1 "coll-trace: $dir/garbage: " coll-trace "$dir/garbage"
expect 1 "coll-trace: $dir/empty: " coll-trace "$dir/empty"
expect 1 'coll-trace: --pid abc: expected the number of a process' coll-trace --pid abc

# ---- the perf programs
expect 2 'unknown flag --nonsense' allreduce_perf --nonsense
expect 2 'unknown flag -Z' allreduce_perf -Z
expect 2 'no value for flag -b' allreduce_perf -b
expect 2 'flag -b many: wanted a size' allreduce_perf -b many
expect 2 'unexpected argument 8M' allreduce_perf 8M
expect 2 'the smallest size (-b) exceeds the largest (-e)' allreduce_perf -b 8 -e 4
expect 2 'the operation (-o) is not defined on the type (-d)' allreduce_perf -d float -o band
expect 2 '5' broadcast_perf -b 8 -e 8 -r 5
expect 2 'allreduce_perf: /no/such/dir/file: No such file or directory' allreduce_perf -b 8 -e 8 -J /no/such/dir/file

# ---- settings, and jobs that are not whole
hello() { expect "$1" "$2" env "${@:3}" COLL_CREATE_TIMEOUT_MS=500 example_hello; }
hello 1 'COLL_RANK is set but COLL_SIZE is not' COLL_RANK=0
hello 1 'COLL_ROOT=host:port is not' COLL_RANK=0 COLL_SIZE=2
hello 1 'COLL_RANK=2 is not below COLL_SIZE=2' COLL_RANK=2 COLL_SIZE=2 COLL_ROOT=localhost:7777
for root in localhost:99999 localhost:-1 localhost:http : localhost:; do
	hello 1 "COLL_ROOT=$root: expected host:port" COLL_RANK=0 COLL_SIZE=2 COLL_ROOT=$root
done
hello 1 'names no port' COLL_RANK=0 COLL_SIZE=2 COLL_ROOT=localhost
hello 1 'COLL_JOB_KEY: expected 32 hexadecimal digits' COLL_RANK=0 COLL_SIZE=2 COLL_ROOT=localhost:7777 COLL_JOB_KEY=secret
hello 1 'rank 1 of 2 did not connect' COLL_RANK=0 COLL_SIZE=2 COLL_ROOT=localhost COLL_JOB_KEY=0123456789abcdef0123456789abcdef
hello 1 'rank 0' COLL_RANK=1 COLL_SIZE=2 COLL_ROOT=localhost COLL_JOB_KEY=0123456789abcdef0123456789abcdee
hello 1 'looking up host no.such.host.invalid' COLL_RANK=1 COLL_SIZE=2 COLL_ROOT=no.such.host.invalid:7777 COLL_JOB_KEY=0123456789abcdef0123456789abcdef
together() { expect "$1" "$2" env "${@:3}" COLL_CREATE_TIMEOUT_MS=5000 collrun -n 2 example_hello; }
together 1 'COLL_PORT_RANGE=9000: expected first-last' COLL_PORT_RANGE=9000
together 1 'COLL_PORT_RANGE=x: expected first-last' COLL_PORT_RANGE=x
together 1 'COLL_PORT_RANGE=9000-8000: expected first-last' COLL_PORT_RANGE=9000-8000
together 1 "there is no transport 'ib'" COLL_TRANSPORTS=ib
together 1 "create: COLL_ALGO: no collective has an algorithm 'nonsense'" COLL_ALGO=nonsense
together 1 "COLL_ALGO: broadcast has no algorithm 'ring'" COLL_ALGO=all_reduce:ring,broadcast:ring
together 1 'COLL_TIMEOUT_MS=0' COLL_TIMEOUT_MS=0
together 1 'COLL_DEBUG=loud: expected error, warn, info or debug' COLL_DEBUG=loud
together 1 'COLL_LOG_FILE=/no/such/dir/log: No such file or directory' COLL_LOG_FILE=/no/such/dir/log
together 1 'COLL_ISA=avx1024' COLL_ISA=avx1024
together 1 'COLL_TEST_CORES=-1: expected' COLL_TEST_CORES=-1
together 1 'COLL_SLOTS=1: a channel has 2 to' COLL_SLOTS=1
for n in 0 9 -1 x 2x 12; do
	together 1 "COLL_TCP_SOCKETS=$n: expected one of auto 1 2 3 4 5 6 7 8" COLL_TCP_SOCKETS=$n
done
together 1 'COLL_TCP_BUFFER=1073741824: expected less than 1G' COLL_TCP_BUFFER=1G
together 1 'COLL_TCP_BUFFER=big' COLL_TCP_BUFFER=big
for rates in eth0 eth0: :5 eth0:0 eth0:-1 eth0:1G eth0:4000001 eth0:1, eth0:1,eth0:2; do
	together 1 "COLL_LINK_RATES=$rates: '" COLL_LINK_RATES=$rates
done
together 0 'rank 1 of 2' COLL_LINK_RATES=nonesuch0:1000
for rate in -1 4000001; do
	together 1 "COLL_SITE_RATE=$rate: expected 0 to 4000000" COLL_SITE=a COLL_SITE_RATE=$rate
done
together 1 'COLL_SITE_RATE=1G (environment): expected a whole number' COLL_SITE=a COLL_SITE_RATE=1G
together 1 'COLL_SITE_RATE=500: the rate of a site that COLL_SITE does not name' COLL_SITE_RATE=500
together 0 'rank 1 of 2' COLL_SITE=a COLL_SITE_RATE=0
together 1 'COLL_HOOK' COLL_HOOK=burn:frame=1
together 1 'COLL_INTERFACE' COLL_INTERFACE=nonesuch0 COLL_TRANSPORTS=tcp
# What must be equal on all ranks and is not, is named; it may be written in several ways.
unequal() { expect "$1" "$2" collrun -n 3 sh -c '[ "$COLL_RANK" != 1 ] || export "$0"; exec example_hello' "$3"; }
for pair in COLL_ALGO=all_reduce:ring COLL_TRANSPORTS=shm,tcp COLL_SLOT_BYTES=8192 COLL_SLOTS=3 COLL_WINDOWS=3 COLL_MEMORY_BUDGET=100M \
	COLL_INTRA=0 COLL_INTRA_BYTES=4K COLL_VERIFY=1 COLL_SHM_COPY=cached COLL_TCP_SOCKETS=3 COLL_TEST_CORES=9; do
	unequal 1 "settings differ between rank 0 and rank 1: ${pair%%=*} must" $pair
done
unequal 1 "but is '' on rank 0 and 'all_reduce:ring' on rank 1" COLL_ALGO=all_reduce:ring
unequal 1 "but is '65536' on rank 0 and '4096' on rank 1" COLL_INTRA_BYTES=4K
for pair in COLL_INTRA_BYTES=65536 COLL_INTRA=on COLL_SLOTS=00 COLL_MEMORY_BUDGET=262144K; do
	unequal 0 'rank 1 of 3' $pair
done
together 0 'COLL_TIMEOUT_SM is set but is not a setting' COLL_TIMEOUT_SM=5

together 1 'tcp: no port to listen on in COLL_PORT_RANGE=47113-47113: Address already in use' COLL_PORT_RANGE=47113-47113 COLL_TRANSPORTS=tcp
python3 -c 'import socket, time
s = socket.create_server(("", 47115))
print("there", flush=True)
time.sleep(60)' >"$dir/there" &
taken=$!
for ((i = 0; i < 300; i++)); do [ -s "$dir/there" ] && break || sleep 0.01; done
together 0 'control links: no port to listen on in COLL_PORT_RANGE=47115-47115: Address already in use' COLL_PORT_RANGE=47115-47115 COLL_HOST_ID=here
kill $taken

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 70 ]
