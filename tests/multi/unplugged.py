#!/usr/bin/env python3
"""The wire between two hosts goes away without a word: 2 + 2 ranks in two network
namespaces, joined by a veth pair of which one end is taken down. No FIN, no reset. Down
for good, every rank says within 2 s an error that names a rank of the other side (the
kernels still answer: nobody is dead). Back after a moment: no error, right results.

usage: unplugged.py BUILD-DIRECTORY [--count N] [--seed S]
"""
import argparse
import os
import random
import shutil
import subprocess
import sys

from job import Report, now, until
from resets import Job, judge_errors

# The promise of docs/design/failures.md for what is dead or unreachable.
LIMIT_S = 2.0
# Shorter than TCP's second retransmission, and than what counts as unreachable.
GAP_S = (0.05, 0.45)
# A loaded machine may need longer to put it back: then an error that names a rank is right too.
GAP_MOST_S = 0.5


def ip(*words):
    return subprocess.run(["ip"] + list(words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


class Wire:
    """Two namespaces and the pair between them."""

    def __init__(self):
        self.names = [f"coll-wire-{os.getpid()}-{i}" for i in range(2)]
        self.good = all(ip("netns", "add", n) for n in self.names)
        a, b = self.names
        self.good = self.good and ip("-n", a, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", b)
        for i, n in enumerate(self.names):
            self.good = self.good and ip("-n", n, "link", "set", "lo", "up") and \
                ip("-n", n, "addr", "add", f"10.91.8.{1 + i}/24", "dev", "eth0") and \
                ip("-n", n, "link", "set", "eth0", "address", self.mac(i)) and \
                ip("-n", n, "link", "set", "eth0", "up")
        self.good = self.good and self.know(0) and self.know(1)

    def mac(self, side):
        return f"02:00:0a:5b:08:0{1 + side}"

    def know(self, side):
        """A kernel repeats a question for the other's address, lost with the wire, only after 1 s: it has it."""
        return ip("-n", self.names[side], "neigh", "replace", f"10.91.8.{2 - side}", "lladdr", self.mac(1 - side), "dev",
                  "eth0", "nud", "permanent")

    def set(self, side, state):
        ip("-n", self.names[side], "link", "set", "eth0", state)
        if state == "up":
            self.know(side)

    def close(self):
        for n in self.names:
            ip("netns", "del", n)


def one(build, wire, rng, back):
    faults = []
    side = rng.randrange(2)
    job = Job(build, rng.choice([2, 3000, 100000]), [None] * 4, commands=[[wire.names[r % 2]] for r in range(4)],
              root=f"10.91.8.1:{rng.randrange(20000, 30000)}")
    if not job.running():
        job.finish(0)
        return "", ["it does not start: " + "; ".join(job.lines[-3:])]
    until(lambda: False, rng.random() * 0.03)
    before, since = job.rounds(), now()
    wire.set(side, "down")
    if back:
        until(lambda: False, rng.uniform(*GAP_S))
        wire.set(side, "up")
        long = now() - since > GAP_MOST_S
    until(lambda: job.said("error") or job.said("wrong") or (back and job.rounds() >= before + 192), 8)
    how = "went on"
    if back and not job.said("error"):
        open(job.stop_file, "w").close()
    statuses = job.finish(LIMIT_S + 8)
    wire.set(side, "up")
    if job.said("wrong") or 2 in statuses:
        faults.append(f"a wrong result: {job.said('wrong')}")
    if None in statuses:
        faults.append(f"a hang: exit statuses {statuses}")
    if back and long and job.said("error"):
        how = f"back after more than {GAP_MOST_S} s: error after {judge_errors(job, since, LIMIT_S, faults):.2f} s"
    elif back:
        if statuses != [0] * 4 or job.said("error"):
            faults.append(f"exit statuses {statuses}, errors {job.said('error')}")
    else:
        how = f"error after {judge_errors(job, since, LIMIT_S, faults):.2f} s"
    if faults:
        faults += job.lines[-8:]
    return how, faults


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("--count", type=int, default=4)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    why = "network namespaces need root" if os.geteuid() != 0 else "no ip here" if not shutil.which("ip") else None
    wire = None if why else Wire()
    if wire and not wire.good:
        wire.close()
        why = "cannot make a veth pair between network namespaces"
    if why:
        print(f"skip unplugged: {why}\n0 passed, 0 failed, 1 skipped")
        return 77
    report = Report()
    try:
        for n in range(a.count):
            how, faults = one(os.path.abspath(a.build), wire, random.Random(f"{a.seed}/{n}"), n % 2 == 1)
            print(f"     {how}")
            report.case(f"{'back after a moment' if n % 2 else 'down for good'}, {n} of seed {a.seed}", faults)
    finally:
        wire.close()
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
