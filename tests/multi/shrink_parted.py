#!/usr/bin/env python3
"""coll_comm_shrink() of five ranks on two hosts, network namespaces, whose cable is cut: three go on, two get COLL_AGAIN, and
COLL_ERR_EXCLUDED when it is mended. usage: shrink_parted.py BUILD-DIRECTORY"""
import os
import subprocess
import sys

from job import Report
from wires import wires_or_none

LIMIT_S = 150


def run(jobs, wire):
    env = {**os.environ, "MEETING_HOSTS": ":".join("/run/netns/" + n for n in wire.names), "COLL_UNREACHABLE_MS": "1500"}
    job = subprocess.Popen(["timeout", str(LIMIT_S), jobs, "shrink", "tcp", "1", "parted"], env=env, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said = []
    for line in job.stdout:
        said.append(line)
        if line == "ready\n":
            wire.set(0, "down")
        elif line in ("going on\n", "again\n") and {"going on\n", "again\n"} <= set(said):
            wire.set(0, "up")
    faults = [f"it did not say '{word}'" for word in ("ready", "going on", "again") if word + "\n" not in said]
    return faults + (["".join(said)] if job.wait() or faults else [])


def main():
    wire = wires_or_none("shrink-parted", "10.97")
    if not wire:
        return 77
    report = Report()
    try:
        report.case("three of five go on", run(os.path.abspath(sys.argv[1]) + "/tests/jobs", wire))
    finally:
        wire.close()
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
