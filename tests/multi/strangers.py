#!/usr/bin/env python3
"""Strangers at every door: while 4 ranks all-reduce, each listening socket of the job
(TCP and abstract Unix, those of the rendezvous too) gets connections that send garbage
and connections that stay open and say nothing. The job must go on and end correctly.

usage: strangers.py BUILD-DIRECTORY [GARBAGE SILENT]     (default 1000 50; in full 10000 100)
"""
import os
import random
import socket
import struct
import sys

from job import Job, Report, now

LINGER_0 = struct.pack("ii", 1, 0)  # reset on close, so that no port stays in TIME_WAIT


def connect_to(door):
    if door[0] == "tcp":
        s = socket.socket(door[1], socket.SOCK_STREAM)
        to = ("127.0.0.1" if door[1] == socket.AF_INET else "::1", door[2])
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_0)
    else:
        s = socket.socket(socket.AF_UNIX, door[2])
        to = "\0" + door[1]
    s.settimeout(2)
    try:
        s.connect(to)
        return s
    except OSError:
        s.close()
        return None


def throw(doors, garbage, silent, rng):
    """Turn by turn over the doors. Returns the silent ones and how many got in."""
    held, inside = [], {d: 0 for d in doors}
    for i in range(garbage + silent):
        for d in doors:
            s = connect_to(d)
            if not s:
                continue
            inside[d] += 1
            if i % ((garbage + silent) // silent) == 0 and len(held) < silent * len(doors):
                held.append(s)
                continue
            s.setblocking(False)
            try:
                # What the door said (a challenge, with the right magic number) goes back to it.
                said = s.recv(256) if i % 4 == 0 else b""
                s.send((said or b"") + rng.randbytes(rng.choice((1, 7, 24, 64, 300, 5000))))
            except OSError:
                try:
                    s.send(rng.randbytes(64))
                except OSError:
                    pass
            s.close()
    return held, inside


def attacked(build, transport, garbage, silent, seed):
    faults, rng = [], random.Random(seed)
    job = Job(build, transport, 4, 4096)
    # The rendezvous has a door of its own, before anybody computes.
    early = job.listeners()
    held0, _ = throw(sorted(early), min(garbage, 20), min(silent, 5), rng) if early else ([], {})
    if not job.running():
        faults.append(f"it does not start: {job.out} {job.err}")
    else:
        doors = sorted(job.listeners())
        if job.used != {transport}:
            faults.append(f"it uses {job.used}")
        if len([d for d in doors if d[0] == "tcp"]) != (4 if transport == "tcp" else 0) or len(doors) < 8:
            faults.append(f"only these doors were found: {doors}")
        begun = now()
        held, inside = throw(doors, garbage, silent, rng)
        wanted = garbage + silent
        faults += [f"{d}: only {n} of {wanted} got in" for d, n in inside.items() if n < wanted * 0.9]
        print(f"     {len(doors)} doors, {sum(inside.values())} strangers in {now() - begun:.1f} s, {len(held)} stay")
        job.stop()
        begun = now()
        statuses = job.wait(30)
        if statuses != [0]:
            faults.append(f"exit status {statuses}: {job.out} {job.err}")
        done = job.lines("done")
        if len(done) != 4 or job.lines("wrong") or job.lines("error"):
            faults.append(f"said {job.out}")
        print(f"     ended {now() - begun:.2f} s after it was told to, calls: {sorted({w[0] for w in done.values()})}")
        for s in held + held0:
            s.close()
    left = job.end()
    if left:
        faults.append(f"processes remain: {left}")
    return faults


def main():
    build = os.path.abspath(sys.argv[1])
    garbage, silent = (int(x) for x in sys.argv[2:4]) if len(sys.argv) > 3 else (1000, 50)
    seed = int(os.environ.get("SEED", "1"))
    print(f"seed {seed}, {garbage} garbage and {silent} silent connections at each door")
    report = Report()
    for transport in ("shm", "tcp"):
        report.case(f"strangers {transport}", attacked(build, transport, garbage, silent, seed))
    return report.close()


sys.exit(main())
