#!/usr/bin/env python3
"""Levels inside hosts: the same layout on every rank and right results, whatever the ranks see of their hosts. Hosts are
made by COLL_HOST_ID, what is in them by hwloc's variables, and ranks are bound to two CPUs. No right is needed.

levels.py COLLRUN BENCH_FOLDER COLL_INFO
"""
import os
import re
import subprocess
import sys
import tempfile

PROGRAMS = ["allreduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"]
TWO_NODES = "HWLOC_SYNTHETIC='numa:2 core:1 pu:1'"
# The host of each rank; the first half of a host's ranks is on the first CPU, the other on the second.
EVEN = "00001111"
MIXED = "01010101"
# As lstopo would write it: two packages of a core and a NUMA node each, far from each other.
XML = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
 <object type="Machine" os_index="0" cpuset="0x3" complete_cpuset="0x3" allowed_cpuset="0x3" nodeset="0x3" complete_nodeset="0x3" allowed_nodeset="0x3" gp_index="1">
  <object type="Package" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1" gp_index="2">
   <object type="NUMANode" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1" gp_index="3" local_memory="1000000"/>
   <object type="Core" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1" gp_index="4">
    <object type="PU" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1" gp_index="5"/>
   </object>
  </object>
  <object type="Package" os_index="1" cpuset="0x2" complete_cpuset="0x2" nodeset="0x2" complete_nodeset="0x2" gp_index="6">
   <object type="NUMANode" os_index="1" cpuset="0x2" complete_cpuset="0x2" nodeset="0x2" complete_nodeset="0x2" gp_index="7" local_memory="1000000"/>
   <object type="Core" os_index="1" cpuset="0x2" complete_cpuset="0x2" nodeset="0x2" complete_nodeset="0x2" gp_index="8">
    <object type="PU" os_index="1" cpuset="0x2" complete_cpuset="0x2" nodeset="0x2" complete_nodeset="0x2" gp_index="9"/>
   </object>
  </object>
 </object>
 <distances2 type="NUMANode" nbobjs="2" kind="5" name="NUMALatency" indexing="os">
  <indexes length="4">0 1 </indexes>
  <u64values length="12">10 30 30 10 </u64values>
 </distances2>
</topology>
"""


def run(collrun, program, hosts, env, arguments):
    """h: the host of each rank; K of N: this rank among those of its host."""
    script = ("h=%s; me=${h:$COLL_RANK:1}; before=${h:0:$COLL_RANK}; k=${before//[^$me]/}; K=${#k}; n=${h//[^$me]/}; N=${#n}; "
              "CPU=$((K*2/N)); export COLL_DEBUG=info; %s; COLL_HOST_ID=x$me exec taskset -c $CPU %s %s"
              % (hosts, env, program, arguments))
    return subprocess.run([collrun, "-n", str(len(hosts)), "bash", "-c", script], capture_output=True, text=True, timeout=120)


def main():
    collrun, folder, info = sys.argv[1:4]
    passed = failed = 0

    def check(fine, what, output):
        nonlocal passed, failed
        print(("ok    " if fine else "FAILED") + " " + what, flush=True)
        if not fine:
            print(output[-4000:])
        passed += bool(fine)
        failed += not fine

    def case(what, hosts, env, layout, digests=None, program="allreduce", contains=""):
        """layout: a pattern, of the one layout that all ranks have."""
        r = run(collrun, f"{folder}/{program}_perf", hosts, env, "-b 12 -e 300012 -f 13 -n 2 -w 1 -c 1")
        text = r.stdout + r.stderr
        said = re.findall(r"layout (.*?), launcher", text)
        sent = re.findall(r"; (\d+) digests? sent for (\d+) ranks", text)
        fine = r.returncode == 0 and "Out of bounds values : 0 OK" in text and contains in text
        fine = fine and len(said) == len(hosts) and len(set(said)) == 1 and re.fullmatch(layout, said[0])
        if digests is not None:
            fine = fine and sent == [(str(digests), str(len(hosts)))] * (len(hosts) if digests else 0)
        check(bool(fine), f"{what}: {said[0] if said else 'no layout'}", text)
        return text

    if len(os.sched_getaffinity(0)) < 2 or not {0, 1} <= os.sched_getaffinity(0):
        print("skip: needs CPUs 0 and 1\n0 passed, 0 failed, 1 skipped")
        return 77
    if "Package" not in subprocess.run([info, "--brief"], capture_output=True, text=True).stdout:
        print("skip: built without hwloc\n0 passed, 0 failed, 1 skipped")
        return 77
    forced = f"export {TWO_NODES} COLL_LEVELS=host,numa"
    two = r"host\(2\) x numa\(2\) x rank\(2\)"
    for name in PROGRAMS:
        case(f"{name}, forced", EVEN, forced, two, 1, name)
    case("numbered round the hosts", MIXED, forced, two, 1)
    case("uneven", "0000011100", forced, r"host\(2\) x numa\(2\) x rank\(1\.\.4\)", 1)
    case("three hosts", "000011112222", forced, r"host\(3\) x numa\(2\) x rank\(2\)", 1)
    case("NUMA nodes as hosts", EVEN, f"export {TWO_NODES} COLL_LEVELS=numa", r"numa\(4\) x rank\(2\)", 1)
    case("hosts only", EVEN, f"export {TWO_NODES} COLL_LEVELS=host", r"host\(2\) x rank\(4\)", 0)
    case("a level that is not there", EVEN, f"export {TWO_NODES} COLL_LEVELS=host,l3", r"host\(2\) x rank\(4\)", 1,
         contains="warn: COLL_LEVELS=host,l3: there is no level l3 here: ")
    case("no sites", EVEN, f"export {TWO_NODES} COLL_LEVELS=site,host", r"host\(2\) x rank\(4\)", 0,
         contains="warn: COLL_LEVELS=site,host: there is no level site without COLL_SITE")
    case("one host, forced", "00000000", f"export {TWO_NODES} COLL_LEVELS=numa COLL_INTRA=0", r"numa\(2\) x rank\(4\)", 1)

    # By itself: what pays, with its reason. XML that agrees.
    with tempfile.TemporaryDirectory() as d:
        with open(f"{d}/two.xml", "w") as f:
            f.write(XML)
        with open(f"{d}/cut.xml", "w") as f:
            f.write(XML[:900])
        xml = f"HWLOC_XMLFILE={d}/two.xml HWLOC_THISSYSTEM=0"
        case("XML, by itself", EVEN, f"export {xml}", r"host\(2\) x package\(2\) x rank\(2\)", 1,
             contains="memory across is 3.0 times as far as inside (told)")
        case("one rank sees another XML", EVEN, f"export {xml}; [ $COLL_RANK != 6 ] || {{ unset HWLOC_XMLFILE; export {TWO_NODES}; }}",
             r"host\(2\) x package\(1\.\.2\) x rank\(2\.\.4\)", 2, contains="ranks 4 and 6 of host")
        case("each host another XML", EVEN, f"[ $me = 0 ] && export {xml} || export {TWO_NODES}",
             r"host\(2\) x package\(1\.\.2\) x (numa|rank)\(.*", 2)
        case("all ranks see something else", EVEN, "export HWLOC_SYNTHETIC=\"numa:2 core:$((COLL_RANK+1)) pu:1\"", r"host\(2\) x rank\(4\)", 8)
        case("a damaged XML", EVEN, f"export HWLOC_XMLFILE={d}/cut.xml", r"host\(2\) x rank\(4\)")
    case("one rank does not see PCI", EVEN, f"{forced}; [ $COLL_RANK != 3 ] || export HWLOC_COMPONENTS=-pci,-linuxio", r"host\(2\) x .*")
    case("one rank may use all CPUs", EVEN, f"{forced}; [ $COLL_RANK != 3 ] || CPU=0,1", r"host\(2\) x numa\(1\.\.2\) x rank\(2\.\.4\)", 1)
    case("all ranks may use all CPUs", EVEN, f"{forced}; CPU=0,1", r"host\(2\) x rank\(4\)", 1, contains="not bound")

    # Where it cannot matter nothing is read and nothing is sent.
    case("one host", "00000000", f"export {TWO_NODES}", "flat", 0)
    case("few ranks on each host", "000111", f"export {TWO_NODES}", r"host\(2\) x rank\(3\)", 0)
    case("COLL_LAYOUT=flat", EVEN, f"export {TWO_NODES} COLL_LAYOUT=flat COLL_LEVELS=host,numa", "flat", 0,
         contains="warn: COLL_LEVELS=host,numa has no effect with COLL_LAYOUT=flat")

    # This host: the second job reads the file.
    plain = "unset ${!HWLOC_@}"
    case("this host", EVEN, plain, r"host\(2\) x .*", 1)
    text = case("this host again", EVEN, plain, r"host\(2\) x .*", 1)
    check(text.count("from the file of this boot") == len(EVEN) or not os.access("/dev/shm", os.W_OK), "the digest is read once", text)

    for value in ("host,numa,moon", "numa,host", "host,host", "host,", "auto,host"):
        r = run(collrun, f"{folder}/allreduce_perf", EVEN, f"export COLL_LEVELS={value}", "-b 8 -e 8")
        check(r.returncode != 0 and f"COLL_LEVELS={value}" in r.stdout + r.stderr and "COLL-1106" in r.stdout + r.stderr,
              f"COLL_LEVELS={value} is refused", r.stdout + r.stderr)
    r = run(collrun, f"{folder}/allreduce_perf", EVEN, "[ $COLL_RANK != 2 ] || export COLL_LEVELS=host,numa", "-b 8 -e 8")
    check(r.returncode != 0 and "COLL_LEVELS" in r.stdout + r.stderr, "ranks that differ in COLL_LEVELS are refused", r.stdout + r.stderr)
    r = run(collrun, info, EVEN, forced, "--brief")
    check(r.returncode == 0 and "layout: host(2) x numa(2) x rank(2)" in r.stdout and "numa: 4 groups of 2 ranks: forced" in r.stdout,
          "coll-info", r.stdout + r.stderr)
    r = run(collrun, f"{folder}/allreduce_perf", EVEN, f"{forced} COLL_ALGO=all_gather:ring,all_reduce:ring", "-b 8 -e 8 -c 1")
    check(r.returncode == 0, "forced algorithms", r.stdout + r.stderr)

    # Damage on the way: digests and hashes of layouts that differ are errors on every rank, which name a rank.
    said, ended = "", True
    for frame in range(6):
        r = run(collrun, f"{folder}/allreduce_perf", EVEN, f"{forced}; export COLL_HOOK=flip:rank=1,frame={frame},byte=9", "-b 8 -e 8 -n 1 -w 1")
        said += r.stdout + r.stderr
        ended = ended and r.returncode < 124
    check(ended and re.search(r"the digest of rank \d is not what it announced .*COLL-3204", said), "a digest that is damaged on the way", said)
    check(re.search(r"ranks 0 and \d derive different layouts: the first difference is in level \w+ .*COLL-3205", said), "hashes that differ", said)
    r = run(collrun, f"{folder}/allreduce_perf", EVEN, f"{forced}; export COLL_HOOK=kill:rank=2,frame=1", "-b 8 -e 8 -n 1 -w 1")
    check(len(re.findall(r"rank 2 on host \S+ \(process \d+\) is dead", r.stdout + r.stderr)) >= 7, "a rank dies meanwhile", r.stdout + r.stderr)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
