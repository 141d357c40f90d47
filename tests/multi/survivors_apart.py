#!/usr/bin/env python3
"""Survivors of killed ranks, which are on two hosts: network namespaces joined by a cable, every other rank in the second.
Messages, posted receives and groups of the living, and random programs of them. usage: survivors_apart.py BUILD-DIRECTORY [SEED [COUNT]]"""
import os
import subprocess
import sys

from job import Report
from wires import wires_or_none


def main():
    jobs = os.path.abspath(sys.argv[1]) + "/tests/jobs"
    seed, count = (sys.argv[2:] + ["1", "4"][len(sys.argv) - 2:])[:2]
    wire = wires_or_none("survivors-apart", "10.89")
    if not wire:
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
