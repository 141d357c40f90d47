#!/usr/bin/env python3
"""The wire between two hosts goes away without a word: 2 + 2 ranks in two network
namespaces, joined by a veth pair of which one end is taken down. No FIN, no reset. Down
for good, every rank says within 1 s after COLL_UNREACHABLE_MS an error that names a rank of the other side (the
kernels still answer: nobody is dead). Back after a moment: no error, right results. Down while the first ranks are in destroy and
the others still in the last call: the first wait for them, as long as a link would.

usage: unplugged.py BUILD-DIRECTORY [--count N] [--seed S]
"""
import argparse
import os
import random
import sys

from job import Report, now, until
from resets import Job, judge_errors
from wires import wires_or_none

# Of COLL_UNREACHABLE_MS, and what docs/design/failures.md promises behind it.
UNREACHABLE_S = 3.0
LIMIT_S = UNREACHABLE_S + 1.0
# Behind TCP's third retransmission, and shorter than what counts as unreachable.
GAP_S = (0.05, 1.4)
# A loaded machine may need longer to put it back: then an error that names a rank is right too.
GAP_MOST_S = 1.6
# Longer than destroy waits for a late rank.
END_GAP_S, LONGER_S = 3.8, 12.0


def one(build, wire, rng, back):
    faults = []
    side = rng.randrange(2)
    job = Job(build, rng.choice([2, 3000, 100000]), [None] * 4, commands=[[wire.names[r % 2]] for r in range(4)],
              root=f"{wire.address(0, 0)}:{rng.randrange(20000, 30000)}",
              COLL_UNREACHABLE_MS=str(int(UNREACHABLE_S * 1000)))
    if not job.running():
        job.finish(0)
        return "", ["it does not start: " + "; ".join(job.lines[-3:])]
    until(lambda: False, rng.random() * 0.03)
    before, since = job.rounds(), now()
    wire.set(0, "down", side)
    if back:
        until(lambda: False, rng.uniform(*GAP_S))
        wire.set(0, "up", side)
        long = now() - since > GAP_MOST_S
    until(lambda: job.said("error") or job.said("wrong") or (back and job.rounds() >= before + 192), 8)
    how = "went on"
    if back and not job.said("error"):
        open(job.stop_file, "w").close()
    statuses = job.finish(LIMIT_S + 8)
    wire.set(0, "up", side)
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


def at_the_end(build, wire, rng):
    """Rank 0 has sent all of its last call, a broadcast, to a wire that is away, and destroys its communicator."""
    faults = []
    job = Job(build, rng.choice([2, 3000]), [None] * 4, commands=[[wire.names[r % 2], "last"] for r in range(4)],
              root=f"{wire.address(0, 0)}:{rng.randrange(20000, 30000)}", COLL_UNREACHABLE_MS=str(int(LONGER_S * 1000)))
    if not job.running():
        job.finish(0)
        return ["it does not start: " + "; ".join(job.lines[-3:])]
    side = rng.randrange(2)
    wire.set(0, "down", side)
    since = now()
    open(job.stop_file, "w").close()
    until(lambda: False, END_GAP_S)
    wire.set(0, "up", side)
    lasted = now() - since
    statuses = job.finish(LONGER_S + 10)
    if statuses != [0] * 4 or job.said("error"):
        faults = [f"exit statuses {statuses}, errors {job.said('error')}, away for {lasted:.2f} s"] + job.lines[-8:]
    return faults


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("--count", type=int, default=4)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    wire = wires_or_none("unplugged", "10.91")
    if not wire:
        return 77
    report = Report()
    try:
        for n in range(a.count):
            how, faults = one(os.path.abspath(a.build), wire, random.Random(f"{a.seed}/{n}"), n % 2 == 1)
            print(f"     {how}")
            report.case(f"{'back after a moment' if n % 2 else 'down for good'}, {n} of seed {a.seed}", faults)
        report.case("away while ranks leave", at_the_end(os.path.abspath(a.build), wire, random.Random(f"{a.seed}/end")))
    finally:
        wire.close()
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
