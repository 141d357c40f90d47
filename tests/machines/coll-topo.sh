#!/usr/bin/env bash
# coll-topo from the command line: what it prints of two machines made by hand, how it ends, what it refuses.
# usage: coll-topo.sh COLL-TOPO DIRECTORY-OF-MACHINES
set -u
tool=$1 machines=$2
passed=0 failed=0
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# expect STATUS TEXT ARGUMENTS...: the exit status, and a text in what it prints
expect() {
	local want=$1 text=$2 out status
	shift 2
	out=$(timeout 60 "$tool" "$@" 2>&1 </dev/null)
	status=$?
	if [ "$status" -ne "$want" ] || [[ $out != *"$text"* ]]; then
		echo "FAIL coll-topo $*: status $status, not $want, or no '$text' in:"
		echo "$out" | head -20
		failed=$((failed + 1))
	else
		passed=$((passed + 1))
	fi
}

two=$machines/two-sockets.xml gpus=$machines/two-gpus-nccl.xml mesh=$machines/eight-gpus-mesh-nccl.xml switches=$machines/eight-gpus-switches.xml

# ---- What it says
expect 0 'usage: coll-topo' --help
expect 0 '2 packages, 2 NUMA nodes with cores, 2 L3 caches, 8 cores, 8 hardware threads' --xml "$two"
expect 0 'NIC eth0: Ethernet, state unknown, rate 1000 Mb/s (assumed), PCI 16000 Mb/s (told), package 0' --xml "$two"
expect 0 'levels: host > package' --xml "$two" --hosts 2
expect 0 'package: 4 groups of 4 ranks: memory across is 2.1 times as far as inside (told)' --xml "$two" --hosts 2
expect 0 'NICs in use: 2 of 3 NICs: the fastest equal ones, 25000 Mb/s (assumed)' --xml "$two"
expect 0 'rail 1: eth2, 4 of 8 shares' --xml "$two"
expect 0 'rank 3 11: core 3, NIC eth1: near the rank' --xml "$two" --hosts 2
expect 0 'rank 6 7: core 3, NIC eth1: near the rank' --xml "$two" --hosts 2 --map cyclic
expect 0 'rank 3: core 3, NIC eth2: in another package; nearer ones have their share of ranks' --xml "$two" --ranks 4
expect 0 'levels: none' --xml "$two" --ranks 1
expect 0 'package: no; not among the levels that are forced' --xml "$two" --hosts 2 --levels host
expect 0 'NICs in use: 2 of 3 NICs: those whose rates are set' --xml "$two" --rates eth0:1000,eth1:250
expect 0 'rail 0: eth0, 32 of 40 shares' --xml "$two" --rates eth0:1000,eth1:250
expect 0 'levels: site > host > package' --xml "$two" --hosts 4 --sites 2
expect 0 'site: 2 groups of 16 ranks, uplink unknown' --xml "$two" --hosts 4 --sites 2
expect 0 'site: 2 groups of 16 ranks, uplink 500 Mb/s (told)' --xml "$two" --hosts 4 --sites 2 --site-rate 500
expect 0 '"site_rate": {"mbps": 500, "origin": "told"}' --xml "$two" --hosts 4 --sites 2 --site-rate 500 --json
expect 0 'GPU gpu0: linked to 1 GPUs (assumed), PCI 252064 Mb/s (told), NUMA node 0, switch 0' --nccl "$gpus"
expect 0 'NIC mlx5_1: InfiniBand, state unknown, rate 200000 Mb/s (told)' --nccl "$gpus"
expect 0 'paths of GPUs: 8 ranks, 3 classes' --nccl "$mesh"
expect 0 'class 1: link of GPUs, 160000 Mb/s (assumed)' --nccl "$mesh"
expect 0 'ring of GPUs: 0 3 2 1 5 6 7 4 (all rings compared, none is better)' --nccl "$mesh"
expect 0 'steps of class 1 or slower: 0 of 8; at least 0 in any ring' --nccl "$mesh"
expect 0 'class 2: PCI switches, 126031 Mb/s (told)' --xml "$switches"
expect 0 'rank 2 (nvml5): 2 2 - 0' --xml "$switches" --gpus nvml0,nvml3,nvml5,nvml7
expect 0 'ring of GPUs: 0 1 3 2 (all rings compared, none is better)' --xml "$switches" --gpus nvml5,nvml0,nvml7,nvml3
expect 0 'class 0: one device' --xml "$switches" --gpus nvml5,nvml5
[ "$("$tool" --xml "$two" --hosts 4 --map random:5)" = "$("$tool" --xml "$two" --hosts 4 --map random:5)" ] &&
	[ "$("$tool" --xml "$two" --hosts 4 --map random:5)" != "$("$tool" --xml "$two" --hosts 4 --map random:6)" ] &&
	passed=$((passed + 1)) || { echo "FAIL: random numbering does not follow its seed"; failed=$((failed + 1)); }
python3 - "$tool" "$two" "$gpus" "$mesh" <<-'TEXT' && passed=$((passed + 1)) || { echo "FAIL: JSON"; failed=$((failed + 1)); }
	import json, subprocess, sys
	tool, two, gpus, mesh = sys.argv[1:]
	def read(*arguments):
	    return json.loads(subprocess.run([tool, "--json", *arguments], capture_output=True, text=True, check=True).stdout)
	m = read("--xml", two, "--hosts", "2", "--map", "cyclic")
	assert [l["name"] for l in m["levels"]] == ["host", "package"], m["levels"]
	assert m["levels"][0]["group"] == [0, 1] * 8, m["levels"][0]
	assert m["cores"] == 8 and [n["name"] for n in m["nics"]] == ["eth0", "eth1", "eth2"]
	assert [r["nic"] for r in m["ranks"]] == ["eth1"] * 8 + ["eth2"] * 8, m["ranks"]
	assert sum(l["shares"] for l in m["lanes"]) == 8 * m["shares"]
	assert len(read("--nccl", gpus)["gpus"]) == 2 and "gpu_paths" not in m
	p = read("--nccl", mesh)["gpu_paths"]
	assert p["gpus"] == ["gpu%d" % i for i in range(8)] and p["ring"]["order"] == [0, 3, 2, 1, 5, 6, 7, 4], p
	assert p["ring"]["best"] and p["ring"]["slower"] == [8, 0, 0] and p["tree"]["slower"] == [7, 0, 0], p
	assert len(p["pairs"]) == 28 and p["pairs"][0] == {"ranks": [0, 1], "class": 1, "via": "link of GPUs", "mbps": 160000,
	                                                   "origin": "assumed"}, p["pairs"]
	here = read()
	assert len(here["ranks"]) == max(here["cores"], 1) and here["digest_bytes"] <= 1024, here
TEXT

# ---- What it refuses
expect 2 'coll-topo: --nonsense: unknown flag (see coll-topo --help)' --nonsense
expect 2 'coll-topo: more: unexpected argument' more
expect 2 'coll-topo: --xml: a value is missing' --xml
expect 2 'coll-topo: --xml, --nccl: give one of them' --xml "$two" --nccl "$gpus"
for n in 0 -1 x 2x 99999999999; do
	expect 2 'coll-topo: --hosts: expected a number of hosts' --hosts $n
	expect 2 'coll-topo: --ranks: expected a number of ranks' --ranks $n
done
for map in sofa random random: random:x random:5x; do
	expect 2 'coll-topo: --map: ' --map $map
done
expect 2 "coll-topo: --levels core: 'core': expected levels of site, host, package, numa, l3" --levels core
expect 2 "coll-topo: --levels numa,host: 'host': expected each level once, from the outside to the inside" --levels numa,host
expect 2 "coll-topo: --rates: 'eth0': expected NAME:RATE" --xml "$two" --rates eth0
expect 2 "coll-topo: --rates: 'eth9': the machine has no such NIC" --xml "$two" --rates eth9:5
expect 2 "coll-topo: --site-rate: '1G': expected a rate in Mb/s" --xml "$two" --hosts 2 --sites 2 --site-rate 1G
expect 2 "coll-topo: --gpus: 'nvml9': the machine has no such GPU" --xml "$switches" --gpus nvml1,nvml9
expect 2 "coll-topo: --gpus: '': the machine has no such GPU" --xml "$switches" --gpus nvml1,
expect 2 "coll-topo: --gpus: 'gpu0': the machine has no such GPU" --xml "$two" --gpus gpu0
expect 2 'coll-topo: --gpus: more than 256 ranks' --xml "$switches" --gpus "nvml0$(printf ',nvml0%.0s' {1..256})"
expect 2 'coll-topo: --site-rate: needs --sites' --xml "$two" --site-rate 500
expect 2 'coll-topo: --sites: more than --hosts' --xml "$two" --sites 2
expect 2 'coll-topo: --sites: expected a number of sites' --xml "$two" --sites 0
expect 1 'coll-topo: 4096 hosts of 4096 ranks are more than' --xml "$two" --hosts 4096 --ranks 4096
expect 1 "coll-topo: $dir/none: No such file or directory" --xml "$dir/none"
expect 1 "coll-topo: $dir: hwloc does not read this file" --xml "$dir"
expect 1 'coll-topo: /dev/zero: larger than 16 MiB' --nccl /dev/zero
expect 1 "coll-topo: $gpus: hwloc does not read this file" --xml "$gpus"
expect 1 "coll-topo: $two:3: this is a file of hwloc, not of NCCL" --nccl "$two"
: >"$dir/empty"
expect 1 "coll-topo: $dir/empty:1: there is no element" --nccl "$dir/empty"
expect 1 "coll-topo: $dir/empty: hwloc does not read this file" --xml "$dir/empty"
head -c 4000 /dev/urandom >"$dir/garbage"
expect 1 "coll-topo: $dir/garbage:" --nccl "$dir/garbage"
expect 1 "coll-topo: $dir/garbage: hwloc does not read this file" --xml "$dir/garbage"
head -20 "$two" >"$dir/cut"
# hwloc itself loses memory on such a file.
ASAN_OPTIONS="${ASAN_OPTIONS-}:detect_leaks=0" expect 1 "coll-topo: $dir/cut: hwloc does not read this file" --xml "$dir/cut"
# libhwloc 2.9 crashes on most of these; each is read, or refused in words.
for object in Machine Package NUMANode L3Cache Core PU; do
	for set in cpuset complete_cpuset allowed_cpuset nodeset complete_nodeset allowed_nodeset; do
		awk -v object="type=\"$object\"" -v set=" $set=\"[^\"]*\"" 'index($0, object) && !n && gsub(set, "") { n++ } { print }' \
			"$two" >"$dir/less"
		cmp -s "$two" "$dir/less" && continue
		out=$("$tool" --xml "$dir/less" 2>&1)
		status=$?
		[[ $status -eq 0 || $status -eq 1 && $out == *"coll-topo: $dir/less: hwloc "*" this file"* ]] &&
			passed=$((passed + 1)) || { echo "FAIL: $object without $set: status $status: $out"; failed=$((failed + 1)); }
	done
done
expect 0 '2 packages, 2 NUMA nodes with cores' --xml <(cat "$two")
head -5 "$gpus" >"$dir/cut"
expect 1 "coll-topo: $dir/cut:6: the file ends inside <" --nccl "$dir/cut"

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 40 ]
