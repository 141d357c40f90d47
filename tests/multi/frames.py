#!/usr/bin/env python3
"""How long frames are over tcp, and how many tiles are under way: between ranks of one host long ones, as the transport likes
them; between hosts shorter ones and more tiles, where ranks share cores the shortest; and frames as COLL_SLOT_BYTES says
where that is set. Told by the line that each rank logs when it is created, and by coll-info for a call of 2 MiB.

usage: frames.py BUILD-DIRECTORY
"""
import os
import re
import subprocess
import sys

from job import Report

CROWDED = len(os.sched_getaffinity(0)) + 1
CROWDED_MOST = 17  # more, and the memory budget asks for shorter frames
CALL = 2 << 20
LONG, LINK, SHORT = 1 << 20, 512 << 10, 128 << 10


def said(build, ranks, host, settings):
    script = f"COLL_HOST_ID={host} exec {build}/tools/coll-info --choices"
    env = dict(os.environ, COLL_DEBUG="info", COLL_TRANSPORTS="tcp", **settings)
    p = subprocess.run([f"{build}/tools/collrun", "-n", str(ranks), "bash", "-c", script], env=env, text=True,
                       timeout=100, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return p.returncode, p.stdout


def judge(build, ranks, host, settings, frame, crowded_frame):
    """The frame is the second one where ranks say that they share cores."""
    status, text = said(os.path.abspath(build), ranks, host, settings)
    slots = [int(x) for x in re.findall(r"slots \d+ x (\d+) bytes", text)]
    calls = [(int(t) * 4, int(w)) for t, w in re.findall(r" 2097152 B  all_reduce \S+ tile=(\d+) windows=(\d+)", text)]
    crowded = "more ranks than cores" in text
    expected = crowded_frame if crowded else frame
    if status != 0 or len(slots) < ranks or not calls:
        return [f"exit status {status}"] + text.splitlines()[-8:]
    faults = [] if set(slots) == {expected} else [f"slots of {slots} bytes, expected {expected}"]
    if ranks == CROWDED and not crowded:
        faults.append("ranks that share cores do not say so")
    for tile, windows in calls:
        if tile > ranks * expected:
            faults.append(f"a tile of {tile} bytes")
        if frame != LONG and not crowded and windows < min(4, -(-CALL // tile)):
            faults.append(f"{windows} tiles of {tile} bytes under way")
    return faults


def main():
    report, build = Report(), sys.argv[1]
    report.case("one host", judge(build, 2, "a", {}, LONG, LONG))
    report.case("a host each", judge(build, 2, "h$COLL_RANK", {}, LINK, SHORT))
    report.case("a host each, frames as set", judge(build, 2, "h$COLL_RANK", {"COLL_SLOT_BYTES": "192K"}, 192 << 10, 192 << 10))
    if CROWDED <= CROWDED_MOST:
        report.case("a host each by name, more ranks than cores", judge(build, CROWDED, "h$COLL_RANK", {}, LINK, SHORT))
    else:
        print(f"not run: {CROWDED} ranks")
    sys.exit(report.close())


main()
