#!/usr/bin/env python3
"""Live sockets are reset (`ss -K`) while 3 ranks do all-reduces and all-to-alls over tcp:
each time the job either goes on with right results, or every rank says an error that names
a rank, in bounded time; never a wrong result, never a hang.

usage: resets.py BUILD-DIRECTORY [--count N] [--seed S] [--only I]

Data and control sockets alike: in every other job the ranks take each other for other
hosts, and then the control links are TCP too. Seeded; a failure prints its number.
"""
import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading

from job import Report, free_port, inodes, now, starved, until

RANKS, LIMIT_S, GOES_ON_S = 3, 2.0, 1.0


class Job:
    def __init__(self, build, count, hosts, commands=None, before=(), **settings):
        self.lines, self.seen = [], {}
        self.directory = tempfile.TemporaryDirectory()
        self.stop_file = os.path.join(self.directory.name, "stop")
        root = settings.pop("root", f"127.0.0.1:{free_port()}")
        env = {k: v for k, v in os.environ.items() if not k.startswith("COLL_")}
        env.update({"COLL_TRANSPORTS": "tcp", "COLL_ROOT": root, "COLL_JOB_KEY": os.urandom(16).hex(), "COLL_DEBUG": "error"}, **settings)
        self.ranks = len(hosts)
        self.started = []
        for r, host in enumerate(hosts):
            mine = dict(env, COLL_RANK=str(r), COLL_SIZE=str(self.ranks), **({"COLL_HOST_ID": host} if host else {}))
            command = list(before) + [f"{build}/tests/exchange_loop", str(count), self.stop_file] + (commands[r] if commands else [])
            p = subprocess.Popen(command, env=mine, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.started.append(p)
            for pipe in (p.stdout, p.stderr):
                threading.Thread(target=self.read, args=(pipe,), daemon=True).start()

    def read(self, pipe):
        for line in pipe:
            self.lines.append(line.rstrip("\n"))

    def said(self, word):
        """word RANK ...: rank -> the words that follow, of the last such line."""
        return {int(w[1]): w[2:] for w in (x.split() for x in list(self.lines)) if len(w) > 1 and w[0] == word}

    def running(self):
        return until(lambda: len(self.said("running")) == self.ranks, 30)

    def rounds(self):
        return min((int(w[0]) for w in self.said("round").values()), default=0)

    def finish(self, seconds):
        """Exit statuses; None: it had to be killed."""
        until(lambda: all(p.poll() is not None for p in self.started), seconds)
        statuses = [p.poll() for p in self.started]
        for p in self.started:
            if p.poll() is None:
                p.kill()
            p.wait()
        until(lambda: len(self.said("error")) + len(self.said("done")) >= self.ranks, 1)
        return statuses


def established(pids):
    """Sockets of these processes that are connected: (local address, port, remote, port)."""
    ours = set().union(*(inodes(p) for p in pids))
    found = []
    out = subprocess.run(["ss", "-tneHO", "state", "established"], capture_output=True, text=True).stdout
    for line in out.splitlines():
        m = re.search(r"(\S+):(\d+)\s+(\S+):(\d+)\s.*ino:(\d+)", line)
        if m and int(m.group(5)) in ours:
            found.append(m.groups()[:4])
    return found


def reset(sock):
    local, port, remote, remote_port = sock
    subprocess.run(["ss", "-K", "-t", "src", local, "sport", "=", f":{port}", "dst", remote, "dport", "=",
                    f":{remote_port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def judge_errors(job, since, limit_s, faults):
    """Every rank says an error that names a rank, in time. The slowest one's seconds."""
    said = job.said("error")
    slowest = 0.0
    for r in range(job.ranks):
        if r not in said:
            faults.append(f"rank {r} says no error")
            continue
        took = int(said[r][1]) * 1e-9 - since
        slowest = max(slowest, took)
        if took > limit_s + starved(since, since + took):
            faults.append(f"rank {r} took {took:.2f} s")
        if int(said[r][0]) < 0 or not re.search(r"rank \d", " ".join(said[r][3:])):
            faults.append(f"rank {r} names nobody: {' '.join(said[r])}")
    return slowest


def one(build, seed, number):
    rng = random.Random(f"{seed}/{number}")
    hosts = [f"host{r}" for r in range(RANKS)] if number % 2 else [None] * RANKS
    faults = []
    job = Job(build, rng.choice([2, 300, 20000, 100000]), hosts)
    if not job.running():
        job.finish(0)
        return "", ["it does not start: " + "; ".join(job.lines[-3:])]
    until(lambda: False, rng.random() * 0.03)
    sockets = established([p.pid for p in job.started])
    victims = rng.sample(sockets, min(len(sockets), rng.choice([1, 1, 1, 2])))
    before, since = job.rounds(), now()
    for v in victims:
        reset(v)
    until(lambda: job.said("error") or job.said("wrong") or job.rounds() >= before + 128, LIMIT_S + 1)
    if not job.said("error") and not job.said("wrong"):
        open(job.stop_file, "w").close()
    statuses = job.finish(LIMIT_S + 8)
    if not victims:
        faults.append("no socket to reset")
    if job.said("wrong") or 2 in statuses:
        faults.append(f"a wrong result: {job.said('wrong')}")
    if None in statuses:
        faults.append(f"a hang: exit statuses {statuses}")
    if job.said("error"):
        slowest = judge_errors(job, since, LIMIT_S, faults)
        how = f"error after {slowest:.3f} s: " + " ".join(list(job.said("error").values())[0][2:])[:150]
    else:
        how = "went on"
        if statuses != [0] * RANKS:
            faults.append(f"exit statuses {statuses}")
    if faults:
        faults += job.lines[-9:]
    return how, faults


def missing():
    if os.geteuid() != 0:
        return "resetting sockets needs root"
    if not shutil.which("ss"):
        return "no ss here"
    return None


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("--count", type=int, default=8)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only", type=int)
    a = p.parse_args()
    if missing():
        print(f"skip resets: {missing()}\n0 passed, 0 failed, 1 skipped")
        return 77
    report, outcomes = Report(), {}
    for n in range(a.count) if a.only is None else [a.only]:
        how, faults = one(os.path.abspath(a.build), a.seed, n)
        print(f"     {how}")
        outcomes[how.split(" ")[0]] = outcomes.get(how.split(" ")[0], 0) + 1
        report.case(f"reset {n} of seed {a.seed}", faults)
    print("     " + ", ".join(f"{k}: {v}" for k, v in outcomes.items()))
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
