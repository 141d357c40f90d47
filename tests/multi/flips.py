#!/usr/bin/env python3
"""A router between two hosts flips one bit of a data connection, and puts the TCP checksum right, as a broken one does. With
the default settings no result is wrong: each job ends, both ranks say that the link between them is corrupt, and then they make another communicator. With
COLL_CHECK=none the same makes wrong results, so the router does what it should.

usage: flips.py BUILD-DIRECTORY [--count N] [--seed S]
"""
import argparse
import os
import random
import re
import sys

from job import Report, until
from resets import Job
from router import Router
from wires import missing

TRIES, UNCHECKED = 5, 6  # without a check; a bit of a head is found all the same


def one(build, router, rng, check):
    """What came of one flip: corrupt, wrong or passed, and what is at fault."""
    job = Job(build, rng.choice([2, 300, 30000, 200000]), [None] * 2, commands=[[n] + ([] if check else ["again"]) for n in router.names],
              root=f"{router.address(0)}:{rng.randrange(20000, 30000)}", COLL_JOB_KEY="%032x" % 77, COLL_TIMEOUT_MS="8000", **check)
    if not job.running():
        job.finish(0)
        return "", ["it does not start: " + "; ".join(job.lines[-3:])]
    before = router.flipped
    for _ in range(TRIES):  # a packet may be lost behind the router, and is then sent again as it was
        router.flip(rng.randrange(2))
        if until(lambda: job.said("error") or job.said("wrong"), 4):
            break
    else:
        open(job.stop_file, "w").close()
    statuses, faults = job.finish(1 if job.said("wrong") else 15), []
    text = "\n".join(job.lines)
    if (None in statuses and not job.said("wrong")) or router.flipped == before:
        faults.append(f"exit statuses {statuses}, {router.flipped - before} bits flipped")
    if job.said("wrong"):
        return "wrong", faults if check else faults + [f"a wrong result: {job.said('wrong')}"]
    if not job.said("error"):
        return "passed", faults if check else faults + ["a flipped bit that nobody saw"]
    # A rank may have ended before its last line is read.
    if check == {} and not until(lambda: len(job.said("again")) == 2, 5):
        faults.append(f"no other communicator can be made behind it: {job.said('again')}, exit statuses {statuses}")
    for rank in range(2):
        said = job.said("error").get(rank, ["?"])
        if "corrupt" not in said or not re.search("link between rank (0 and rank 1|1 and rank 0)", " ".join(said)):
            faults.append(f"rank {rank} says {' '.join(said)}")
    if "corrupt stream: " not in text or router.address(0) not in text:
        faults.append("the cause or the link is not named")
    return "corrupt", faults + (job.lines[-6:] if faults else [])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("--count", type=int, default=8)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    why = missing() or (None if os.path.exists("/dev/net/tun") else "no /dev/net/tun here")
    router = None if why else Router("10.92.7", a.seed)
    if router and not router.good:
        router.close()
        why = "cannot make tun devices in network namespaces"
    if why:
        print(f"skip flips: {why}\n0 passed, 0 failed, 1 skipped")
        return 77
    report, build, seen = Report(), os.path.abspath(a.build), {}
    try:
        for n in range(a.count):
            how, faults = one(build, router, random.Random(f"{a.seed}/{n}"), {})
            seen[how] = seen.get(how, 0) + 1
            report.case(f"flip {n} of seed {a.seed}", faults)
        without = [one(build, router, random.Random(f"{a.seed}/none/{n}"), {"COLL_CHECK": "none"}) for n in range(UNCHECKED)]
        report.case("without a check some are wrong", [] if "wrong" in [w[0] for w in without] else [str(without)])
    finally:
        router.close()
    print(f"{sum(seen.values())} bits: {seen}; without a check {[w[0] for w in without]}")
    return report.close()


sys.exit(main())
