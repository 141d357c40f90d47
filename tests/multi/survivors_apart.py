#!/usr/bin/env python3
"""Survivors of killed ranks, which are on two hosts: network namespaces joined by a cable, every other rank in the second.
Messages, posted receives and groups of the living, and random programs of them. usage: survivors_apart.py BUILD-DIRECTORY [SEED [COUNT]]"""
import os
import subprocess
import sys

from job import Report
from wires import Wires, missing


def main():
    jobs = os.path.abspath(sys.argv[1]) + "/tests/jobs"
    seed, count = (sys.argv[2:] + ["1", "4"][len(sys.argv) - 2:])[:2]
    why = missing()
    wire = None if why else Wires("10.89")
    if wire and not wire.good:
        wire.close()
        why = "cannot make a veth pair between network namespaces"
    if why:
        print(f"skip survivors-apart: {why}\n0 passed, 0 failed, 1 skipped")
        return 77
    env = {**os.environ, "MEETING_HOSTS": ":".join("/run/netns/" + n for n in wire.names)}
    report = Report()
    try:
        for words in (["survivors", "tcp"], ["survivors", "mixed"], ["survivors_random", "tcp", seed, count],
                      ["survivors_random", "mixed", seed, count]):
            r = subprocess.run([jobs] + words, env=env, capture_output=True, text=True)
            report.case(" ".join(words), [] if r.returncode == 0 else [r.stdout + r.stderr])
    finally:
        wire.close()
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
