#!/usr/bin/env python3
"""How long frames are, over tcp: those of ranks of one host as the transport likes them, between hosts shorter ones,
the shortest where ranks share cores; and as COLL_SLOT_BYTES says where that is set. Told by the line that each rank logs
when it is created, and by coll-info: a tile of a call of 2 MiB is no longer than what a frame for each rank carries.

usage: frames.py BUILD-DIRECTORY
"""
import os
import re
import subprocess
import sys

from job import Report

CPUS = len(os.sched_getaffinity(0))
CASES = [("one host", 2, "a", {}, 1 << 20),
         ("a host each", 2, "h$COLL_RANK", {}, 256 << 10 if CPUS > 1 else 128 << 10),
         ("a host each by name, more ranks than cores", CPUS + 1, "h$COLL_RANK", {}, 128 << 10),
         ("a host each, COLL_SLOT_BYTES=512K", 2, "h$COLL_RANK", {"COLL_SLOT_BYTES": "512K"}, 512 << 10)]
RANKS_MOST = 33


def said(build, ranks, host, settings):
    script = f"COLL_HOST_ID={host} exec {build}/tools/coll-info --choices"
    env = dict(os.environ, COLL_DEBUG="info", COLL_TRANSPORTS="tcp", **settings)
    p = subprocess.run([f"{build}/tools/collrun", "-n", str(ranks), "bash", "-c", script], env=env, text=True,
                       timeout=100, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return p.returncode, p.stdout


def judge(build, ranks, host, settings, frame):
    status, text = said(os.path.abspath(build), ranks, host, settings)
    slots = [int(x) for x in re.findall(r"slots \d+ x (\d+) bytes", text)]
    tiles = [int(x) for x in re.findall(r" 2097152 B  all_reduce \S+ tile=(\d+) ", text)]
    faults = []
    if status != 0 or len(slots) < ranks or not tiles:
        return [f"exit status {status}"] + text.splitlines()[-8:]
    if set(slots) != {frame}:
        faults.append(f"slots of {slots} bytes, expected {frame}")
    if max(tiles) * 4 > ranks * frame:
        faults.append(f"tiles of {tiles} elements")
    return faults


def main():
    report = Report()
    for name, ranks, host, settings, frame in CASES:
        if ranks <= RANKS_MOST:
            report.case(f"{name}: frames of {frame >> 10} KiB", judge(sys.argv[1], ranks, host, settings, frame))
    sys.exit(report.close())


main()
