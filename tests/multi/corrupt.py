#!/usr/bin/env python3
"""A frame whose head was damaged on its way (COLL_HOOK=head): the ranks make the same
calls, so no rank says that calls differ; every rank says that a frame of the sender is
corrupt, in time. And settings that no transport could serve are refused; a transport that is named and cannot be opened
is said, once per rank, and the others go on.

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


def closed(build, transports, ranks, status, words, warnings):
    """rdma cannot be used: there is no such device."""
    job = Job(build, 2, [None] * ranks, COLL_TRANSPORTS=transports, COLL_RDMA_DEVICE="none0", COLL_DEBUG="warn")
    if status == 0 and not job.running():
        return ["it does not start"] + job.lines[-3:]
    open(job.stop_file, "w").close()
    statuses = job.finish(10)
    said = [line for line in job.lines if "goes on without" in line and "rdma is not used: " in line]
    if statuses == [status] * ranks and words in "\n".join(job.lines) and len(said) == warnings:
        return []
    return [f"{statuses}, {len(said)} warnings"] + job.lines[-4:]


def main():
    build = os.path.abspath(sys.argv[1])
    report = Report()
    for transport in ("shm", "tcp"):
        for count, frame in ((2, 40), (2, 57), (30000, 101)):
            report.case(f"the head of frame {frame}, {count} elements, {transport}",
                        damaged(build, transport, count, frame))
    for value in ("1", "-3", "257", "2000000000"):
        report.case(f"COLL_SLOTS={value}", refused(build, "COLL_SLOTS", value, "2 to 256 slots"))
    report.case("rdma,tcp: goes on, and says so", closed(build, "rdma,tcp", 2, 0, "done 0", 2))
    report.case("rdma alone: an error with the reason", closed(build, "rdma", 2, 1, "(rdma is not used: ", 0))
    report.case("no list: nothing is said", closed(build, "", 2, 0, "done 0", 0))
    return report.close()


sys.exit(main())
