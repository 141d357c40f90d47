#!/usr/bin/env python3
"""Links of several sockets over two interfaces: ranks in two network namespaces, joined by two
veth pairs. Both carry the frames; a rank that is killed, an interface that goes down, whichever
of the two, and a damaged head end every rank within 2 s with an error that names a rank;
strangers at the doors end nothing, nor does a second network that is announced and leads nowhere.

usage: rails.py BUILD-DIRECTORY
"""
import os
import random
import re
import signal
import subprocess
import sys

from job import Report, now, starved, until
from resets import Job, judge_errors
from wires import Wires, missing

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


def unplugged(build, wires, k):
    faults = []
    job = start(build, wires, 4, faults)
    since = now()
    wires.set(k, "down")
    how = ends(job, 4, since, faults)
    wires.set(k, "up")
    for r, words in job.said("error").items():
        link = re.search(r"the link between rank (\d) on host \S+ and rank (\d) on host \S+ is lost", " ".join(words))
        if int(words[0]) % 2 == r % 2 and not (link and int(link.group(1)) % 2 != int(link.group(2)) % 2):
            faults.append(f"rank {r} names neither the other side nor a link to it: {words}")
    return how, faults, job


def lost(build, wires, k, mode, kept):
    """During a call, or between calls: every rank names the interface in time. The next communicator, in the same processes,
    does without; so does a new job."""
    faults = []
    settings = {"COLL_LINK_RATES": "e0:1000,e1:1000", "COLL_DEBUG": "info"}
    root = f"{wires.address(1 - k, 0)}:{random.randrange(20000, 30000)}"
    job = Job(build, COUNT, [None] * 4, commands=[[wires.names[r % 2], mode] for r in range(4)], root=root,
              COLL_SLOT_BYTES=SLOT, **settings)
    if not job.running():
        faults += ["it does not start: " + "; ".join(job.lines[-3:])]
    since = now()
    wires.set(k, "down")
    if mode == "idle" and not until(lambda: any("link down" in line for line in job.lines), LIMIT_S + starved(since, now())):
        faults.append("nobody notices between calls")
    if mode == "idle":
        open(job.stop_file, "w").close()
    until(lambda: len(job.said("error")) >= 4 or job.said("wrong"), 8)
    took = judge_errors(job, since, LIMIT_S, faults)
    for r, words in job.said("error").items():
        if f"e{k}, {wires.address(k, 0)}" not in " ".join(words) and f"e{k}, {wires.address(k, 1)}" not in " ".join(words):
            faults.append(f"rank {r} does not name e{k}: {words}")
    if not until(lambda: len(job.said("again")) == 4, 20):
        faults.append(f"the next communicator: {sorted(job.said('again'))}")
    if job.finish(10) != [0] * 4:
        faults.append("exit statuses")
    if kept:
        next_job = start(build, wires, 4, faults, root=root, **settings)
        goes_on(next_job, 4, faults)
        job.lines += next_job.lines
    wires.set(k, "up")
    return f"error after {took:.2f} s", faults, job


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
    why = missing("ss")
    wires = None if why else Wires("10.93", 2)
    if wires and not wires.good:
        wires.close()
        why = "cannot make veth pairs between network namespaces"
    if why:
        print(f"skip rails: {why}\n0 passed, 0 failed, 1 skipped")
        return 77
    report = Report()
    one = dict(COLL_INTERFACE="e0", COLL_TCP_SOCKETS="3")
    cases = [("both interfaces carry the frames", shares, {}, True), ("three sockets on one interface", shares, one, False),
             ("one socket by the setting", shares, dict(COLL_TCP_SOCKETS="1"), False),
             ("the second network leads nowhere", deaf), ("a rank is killed", killed),
             ("the first interface goes down", unplugged, 0), ("the second interface goes down", unplugged, 1),
             ("the first is lost during a call", lost, 0, "again", True), ("the second is lost during a call", lost, 1, "again", False),
             ("the first is lost between calls", lost, 0, "idle", False), ("the second is lost between calls", lost, 1, "idle", True),
             ("a damaged head", damaged), ("strangers at the doors", strangers)]
    try:
        for name, case, *rest in cases:
            how, faults, job = case(build, wires, *rest)
            if how:
                print(f"     {how}")
            report.case(name, faults + (job.lines[-8:] if faults else []))
    finally:
        wires.close()
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
