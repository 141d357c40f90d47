#!/usr/bin/env python3
"""Links of several sockets over two interfaces: ranks in two network namespaces, joined by two
veth pairs. Both carry the frames; a rank that is killed, both interfaces down, and a damaged head
end every rank within 2 s with an error that names a rank. One interface that goes down, whichever of the two, ends nothing,
nor do strangers at the doors, nor a second network that is announced and leads nowhere.

usage: rails.py BUILD-DIRECTORY [PART-OF-A-NAME]
"""
import os
import random
import signal
import subprocess
import sys
import time

from job import Report, now, starved, until
from resets import Job, judge_errors
from wires import wires_or_none

LIMIT_S = 2.0
# Frames of 16 KiB, so that a call has more tiles than windows.
COUNT, SLOT = 30000, "16K"


def start(build, wires, ranks, faults, root=None, **settings):
    job = Job(build, COUNT, [None] * ranks, commands=[[wires.names[r % 2]] for r in range(ranks)],
              root=root or f"{wires.address(0, 0)}:{random.randrange(20000, 30000)}", COLL_SLOT_BYTES=SLOT, **settings)
    if not job.running():
        faults += ["it does not start: " + "; ".join(job.lines[-3:])]
    return job


def ends(job, ranks, since, faults):
    """Every rank says an error in time; in words, how."""
    until(lambda: len(job.said("error")) >= ranks or job.said("wrong"), 8)
    statuses = job.finish(LIMIT_S + 6)
    if job.said("wrong") or 2 in statuses:
        faults.append(f"a wrong result: {job.said('wrong')}")
    if None in statuses:
        faults.append(f"a hang: exit statuses {statuses}")
    return f"error after {judge_errors(job, since, LIMIT_S, faults):.2f} s"


def goes_on(job, ranks, faults):
    before = job.rounds()
    if not until(lambda: job.rounds() >= before + 128 or job.said("error"), 20):
        faults.append("it does not go on")
    open(job.stop_file, "w").close()
    statuses = job.finish(10)
    if statuses != [0] * ranks or job.said("error"):
        faults.append(f"exit statuses {statuses}, errors {job.said('error')}")


def shares(build, wires, settings, both):
    faults, before = [], wires.sent()
    job = start(build, wires, 2, faults, **settings)
    goes_on(job, 2, faults)
    sent = [b - a for a, b in zip(before, wires.sent())]
    part = sent[1] / max(1, sum(sent))
    if (both and not 0.3 < part < 0.7) or (not both and part > 0.01):
        faults.append(f"bytes by e0 and e1: {sent}")
    return f"{100 * part:.0f} % by the second interface", faults, job


def deaf(build, wires):
    """A network that is announced, and leads nowhere: its socket takes the other one."""
    wires.lose(1)
    _, faults, job = shares(build, wires, {}, False)
    wires.know(1)
    return "", faults, job


def later(build, wires):
    """A network that led nowhere when the sockets were made works by the time that the only one in use is lost."""
    faults = []
    wires.lose(1)
    job = start(build, wires, 2, faults)
    wires.know(1)
    before = job.rounds()
    wires.set(0, "down")
    if not until(lambda: job.rounds() >= before + 128 or job.said("error"), 30):
        faults.append(f"it does not go on over e1: {job.rounds() - before} rounds")
    wires.set(0, "up")
    goes_on(job, 2, faults)
    return "", faults, job


def killed(build, wires):
    faults = []
    job = start(build, wires, 3, faults)
    since = now()
    os.kill(job.started[2].pid, signal.SIGKILL)
    until(lambda: len(job.said("error")) >= 2, 8)
    job.finish(LIMIT_S + 6)
    said = job.said("error")
    for r in range(2):
        if r not in said or said[r][0] != "2":
            faults.append(f"rank {r} does not name rank 2: {said.get(r)}")
        elif int(said[r][1]) * 1e-9 - since > LIMIT_S + starved(since, int(said[r][1]) * 1e-9):
            faults.append(f"rank {r} took {int(said[r][1]) * 1e-9 - since:.2f} s")
    return "", faults, job


def moved(build, wires, cuts, ranks=4):
    """An interface goes down in mid-call, then the next one, each time after the other is back: calls go on over the one that is
    left, with right results, and no rank sees an error. The longest time between two calls of a rank is told."""
    faults, longest = [], 0
    job = start(build, wires, ranks, faults)
    for k in cuts:
        if not job.running():
            break
        before, since = job.rounds(), now()
        wires.set(k, "down")
        # Two rounds that began after the cut: the first may have had all that it needs.
        if not until(lambda: job.rounds() >= before + 64 or job.said("error"), 20) or job.said("error"):
            faults.append(f"e{k} is down: {job.rounds() - before} rounds, {job.said('error')}")
        longest = max(longest, now() - since)
        wires.set(k, "up")
        time.sleep(0.2)  # until it works
        if faults:
            break
    goes_on(job, ranks, faults)
    return f"64 rounds of {ranks} ranks after a cut: at most {longest:.2f} s", faults, job


def both_lost(build, wires):
    """The last rail's end is the link's: every rank says so, and names an interface."""
    faults = []
    job = start(build, wires, 4, faults, COLL_UNREACHABLE_MS="1000")
    since = now()
    wires.set(0, "down")
    wires.set(1, "down")
    how = ends(job, 4, since, faults)
    wires.set(0, "up")
    wires.set(1, "up")
    return how, faults, job


def next_job(build, wires, k):
    """A job that starts while an interface is down does without it."""
    faults, root = [], f"{wires.address(1 - k, 0)}:{random.randrange(20000, 30000)}"
    wires.set(k, "down")
    job = start(build, wires, 4, faults, root=root)
    goes_on(job, 4, faults)
    wires.set(k, "up")
    return "", faults, job


def damaged(build, wires):
    faults = []
    # The hook counts from the first call on: the rank is in its rounds then.
    job = Job(build, COUNT, [None] * 2, commands=[[n] for n in wires.names],
              root=f"{wires.address(0, 0)}:{random.randrange(20000, 30000)}", COLL_SLOT_BYTES=SLOT, COLL_HOOK="head:frame=501,rank=1")
    until(lambda: len(job.said("error")) >= 2, 20)
    job.finish(8)
    if "is corrupt" not in "\n".join(job.lines):
        faults.append("nobody says corrupt")
    return "", faults, job


GARBAGE = """
import random, re, socket, subprocess
rng, ports = random.Random(1), set()
for line in subprocess.run(["ss", "-tlnH"], capture_output=True, text=True).stdout.splitlines():
    ports.add(int(line.split()[3].rsplit(":", 1)[1]))
for p in sorted(ports):
    for i in range(200):
        s = socket.create_connection(("127.0.0.1", p), 2)
        s.send(rng.randbytes(rng.choice((1, 7, 40, 72, 144, 300))))
        s.close()
print(len(ports))
"""


def strangers(build, wires):
    faults = []
    job = start(build, wires, 2, faults)
    said = subprocess.run(wires.inside(0) + [sys.executable, "-c", GARBAGE], capture_output=True,
                          text=True)
    if said.returncode != 0 or int(said.stdout or 0) < 1:
        faults.append(f"no strangers: {said.stderr[-200:]}")
    goes_on(job, 2, faults)
    return f"at {said.stdout.strip()} ports", faults, job


def main():
    build = os.path.abspath(sys.argv[1])
    wires = wires_or_none("rails", "10.93", 2, ("ss",))
    if not wires:
        return 77
    report = Report()
    one = dict(COLL_INTERFACE="e0", COLL_TCP_SOCKETS="3")
    cases = [("both interfaces carry the frames", shares, {}, True), ("three sockets on one interface", shares, one, False),
             ("one socket by the setting", shares, dict(COLL_TCP_SOCKETS="1"), False),
             ("the second network leads nowhere", deaf), ("it works later, and the first is lost", later), ("a rank is killed", killed),
             ("the first is lost in a call", moved, [0]), ("the second is lost in a call", moved, [1]),
             ("one or the other, again and again", moved, [1, 0, 0, 1], 2), ("both are lost", both_lost),
             ("a job without the first", next_job, 0), ("a job without the second", next_job, 1),
             ("a damaged head", damaged), ("strangers at the doors", strangers)]
    try:
        for name, case, *rest in [c for c in cases if len(sys.argv) < 3 or sys.argv[2] in c[0]]:
            how, faults, job = case(build, wires, *rest)
            if how:
                print(f"     {how}")
            report.case(name, faults + (job.lines[-8:] if faults else []))
    finally:
        wires.close()
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
