#!/usr/bin/env python3
"""A frame whose head was damaged on its way (COLL_HOOK=head): the ranks make the same
calls, so no rank says that calls differ; every rank says that a frame of the sender is
corrupt, in time. And settings that no transport could serve are refused.

usage: corrupt.py BUILD-DIRECTORY
"""
import os
import sys

from job import Report, now, until
from resets import Job, judge_errors

RANKS = 3


def damaged(build, transport, count, frame):
    faults = []
    job = Job(build, count, [None] * RANKS, COLL_TRANSPORTS=transport, COLL_HOOK=f"head:frame={frame},rank=1")
    since = now()
    until(lambda: len(job.said("error")) == RANKS, 20)
    statuses = job.finish(8)
    judge_errors(job, since, 30, faults)
    text = "\n".join(job.lines)
    if statuses != [1] * RANKS:
        faults.append(f"exit statuses {statuses}")
    if "calls differ" in text or "frame from rank 1 " not in text or "is corrupt" not in text:
        faults += job.lines[-6:]
    if any(w[0] != "1" for w in job.said("error").values()):
        faults.append(f"not all blame rank 1: {job.said('error')}")
    return faults


def refused(build, name, value, words):
    job = Job(build, 2, [None], **{name: value})
    statuses = job.finish(10)
    return [] if statuses == [1] and words in "\n".join(job.lines) else [f"{statuses} {job.lines}"]


def main():
    build = os.path.abspath(sys.argv[1])
    report = Report()
    for transport in ("shm", "tcp"):
        for count, frame in ((2, 40), (2, 57), (30000, 101)):
            report.case(f"the head of frame {frame}, {count} elements, {transport}",
                        damaged(build, transport, count, frame))
    for value in ("1", "-3", "257", "2000000000"):
        report.case(f"COLL_SLOTS={value}", refused(build, "COLL_SLOTS", value, "2 to 256 slots"))
    return report.close()


sys.exit(main())
