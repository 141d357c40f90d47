#!/usr/bin/env python3
"""One of 4 ranks is killed, stopped or late in the middle of all-reduces, under collrun
and started by hand: the others say by themselves, in time, which rank it was, and
nothing is left behind. Times are read only to check the documented bounds.

usage: kills.py BUILD-DIRECTORY
"""
import os
import signal
import sys

from job import Job, Report, abstract_names, now, shm_names, starved, until

RANKS, TIMEOUT_MS = 4, 1500


def remains(job, faults):
    """Nothing of the job may be left: call it after the job has ended by itself."""
    pids = set(job.pids.values())
    until(lambda: not job.processes(), 5)
    left = job.end()
    if left:
        faults.append(f"processes remain: {left} of {pids}")
    # Other programs' come and go; the job's would stay.
    files = shm_names() - job.shm_before
    until(lambda: not files & shm_names(), 20)
    if files & shm_names():
        faults.append(f"in /dev/shm: {files & shm_names()}")
    mine = {n for n, _ in job.names} & {n for n, _ in abstract_names().values()}
    if mine:
        faults.append(f"abstract sockets remain: {mine}")


def survivors(job, victim, since, limit_s, faults):
    """Each survivor's own line names the victim, and was written within the limit."""
    others = [r for r in range(RANKS) if r != victim]
    until(lambda: set(others) <= set(job.lines("error")), limit_s + 3)
    said = job.lines("error")
    for r in others:
        if r not in said:
            faults.append(f"rank {r} says nothing: {job.out} {job.err}")
            continue
        took = int(said[r][1]) * 1e-9 - since
        if int(said[r][0]) != victim or f"rank {victim} " not in " ".join(said[r][2:]):
            faults.append(f"rank {r} blames rank {said[r][0]}: {' '.join(said[r][2:])}")
        if took > limit_s + starved(since, since + took):
            faults.append(f"rank {r} took {took:.2f} s")
    return max((int(w[1]) * 1e-9 - since for w in said.values()), default=0)


def struck(build, transport, by_hand, sig, victim, count):
    faults = []
    job = Job(build, transport, RANKS, count, by_hand, COLL_TIMEOUT_MS=str(TIMEOUT_MS))
    if not job.running():
        job.end()
        return [f"it does not start: {job.out} {job.err}"]
    job.names = {(d[1], d[2]) for d in job.listeners() if d[0] == "unix"}
    if job.used != {transport}:
        faults.append(f"it uses {job.used}")
    since = now()
    os.kill(job.pids[victim], sig)
    limit = 2.0 if sig == signal.SIGKILL else TIMEOUT_MS / 1000 + 2.0
    slowest = survivors(job, victim, since, limit, faults)
    # Nobody else ends a stopped process that was started by hand.
    if sig == signal.SIGSTOP and by_hand:
        os.kill(job.pids[victim], signal.SIGKILL)
    statuses = job.wait(10)
    if None in statuses or 0 in statuses:
        faults.append(f"exit statuses {statuses}")
    if not by_hand and sig == signal.SIGKILL:
        if statuses != [128 + sig] or not any(f"rank {victim} " in x and "signal 9" in x for x in job.err):
            faults.append(f"collrun ends with {statuses} and says {job.err}")
    print(f"     the slowest survivor took {slowest:.2f} s")
    remains(job, faults)
    return faults


def late(build, transport, by_hand):
    """5 s late and more than the timeout, but alive: no failure."""
    faults = []
    job = Job(build, transport, RANKS, 1000, by_hand, late=(2, 5000), COLL_TIMEOUT_MS=str(TIMEOUT_MS))
    if not job.running():
        job.end()
        return [f"it does not start: {job.out} {job.err}"]
    job.names = {(d[1], d[2]) for d in job.listeners() if d[0] == "unix"}
    job.stop()
    statuses = job.wait(30)
    if any(s != 0 for s in statuses) or len(job.lines("done")) != RANKS:
        faults.append(f"exit statuses {statuses}: {job.out} {job.err}")
    remains(job, faults)
    return faults


def main():
    build = os.path.abspath(sys.argv[1])
    report = Report()
    victims = 0
    for transport in ("shm", "tcp"):
        for by_hand in (False, True):
            where = f"{transport}, {'by hand' if by_hand else 'collrun'}"
            for count in (2, 1 << 18):
                for sig in (signal.SIGKILL, signal.SIGSTOP):
                    victim = victims % RANKS
                    victims += 3 if count > 2 else 1
                    report.case(f"{sig.name} of rank {victim}, {count} elements, {where}",
                                struck(build, transport, by_hand, sig, victim, count))
            report.case(f"late, {where}", late(build, transport, by_hand))
    return report.close()


sys.exit(main())
