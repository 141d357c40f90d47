#!/usr/bin/env python3
"""Campaigns: ranks are killed, stopped for good or paused at random moments of everything
a communicator does, over shm, tcp and both, by hand and under collrun. Seeded: every
failure prints the command that repeats it.

usage: soak.py BUILD-DIRECTORY kills|stops|pauses|launcher|planted [OPTION...]

  kills     SIGKILL to one rank, sometimes two: every other rank ends within 2 s, by itself,
            with an error that names a killed rank
  stops     SIGSTOP, never continued: an error by COLL_TIMEOUT_MS, naming that rank
  launcher  SIGKILL to collrun: no rank stays
  pauses    SIGSTOP and SIGCONT below COLL_TIMEOUT_MS: no error, right results
  planted   the same over a library with planted defects, each of which must turn them red

  --count N      kills, stops or pauses          --seed S       (default 1)
  --ranks N      always N ranks (else 2..6)      --jobs N       jobs at once (default 2)
  --transport T  shm, tcp, mixed (COLL_HOST_ID) or netns (two network namespaces)
  --phase P      always in this phase            --only I       only case I of the seed
  --hook RULES   COLL_HOOK for every rank

Where it may (as root), it runs in namespaces of its own, so that whatever is left over
in processes, sockets and /dev/shm was left by it. The last line is
`N kills, N wrong, N late, N hung, N leftovers`.
"""
import argparse
import mmap
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

from apart import NAMESPACES, apart, belongings, leftovers, two_namespaces
from job import alive, free_port, kill_all, now, starved, until

PHASES = ["start", "create", "connect", "all_reduce", "all_to_all", "pairs", "streams", "split", "destroy"]
# How long a phase lasts about, so that the moment falls anywhere in it or a bit after.
DELAY_US = {"start": 3000, "create": 25000, "connect": 3000, "all_reduce": 1000, "all_to_all": 1500,
            "pairs": 1000, "streams": 1500, "split": 1500, "destroy": 3000}
CALLS = {"all_reduce": 12, "all_to_all": 6, "pairs": 3, "streams": 4, "split": 5}
SEATS, SEAT_BYTES = 8, 1024
SEAT = struct.Struct("<IIQIIQIiiIQQ32sQII16s896s")
LIMIT_S, HUNG_S = 2.0, 10.0
ABORTED, BOOTSTRAP = 32, 41
INDIRECT = {"aborted": "were in a communicator without the dead, aborted by one who named it",
            "told": "were in a communicator without the dead, which one who named it could not make",
            "missing": "passed the last call before the death, and missed in the next creation those who did not too"}
CREATE_TIMEOUT_MS, STOP_TIMEOUT_MS, PAUSE_TIMEOUT_MS = 1200, 1200, 2500


class Seat:
    def __init__(self, raw):
        (self.pid, self.phase, self.phase_ns, self.round, self.call, self.strike_ns, self.state, self.status,
         self.culprit, self.wrong, self.error_ns, self.end_ns, transport, self.calls, self.descriptors, self.threads,
         _, message) = SEAT.unpack(raw)
        self.transport = transport.split(b"\0")[0].decode()
        self.message = message.split(b"\0")[0].decode(errors="replace")
        self.where = f"{PHASES[self.phase]} {self.call} of round {self.round}"


def named(message):
    """Ranks of the job that a message names as gone: not the one that says it, and of
    "rank 1 (rank 3 of the job)" the second."""
    message = re.sub(r"^rank \d+ of \d+: ", "", message)
    found = {int(n) for n in re.findall(r"\brank (\d+)\b(?! \(rank )", message)}
    for ranges in re.findall(r"\branks (\d+(?:-\d+)?(?:, \d+(?:-\d+)?)*)", message):
        for part in ranges.split(", "):
            first, _, last = part.partition("-")
            found |= set(range(int(first), int(last or first) + 1))
    return found


class Job:
    """One start of `rounds`, its board, and what has been seen of it."""

    def __init__(self, build, ranks, transport, by_hand, arguments, settings, seed, network=(NAMESPACES, "10.91.7.1")):
        self.ranks, self.by_hand = ranks, by_hand
        self.directory = tempfile.mkdtemp(prefix="coll-soak.")
        path = os.path.join(self.directory, "board")
        with open(path, "wb") as f:
            f.truncate(SEAT_BYTES * (1 + SEATS))
        with open(path, "r+b") as f:
            self.board = mmap.mmap(f.fileno(), 0)
        self.output = open(os.path.join(self.directory, "output"), "w+")
        env = {k: v for k, v in os.environ.items() if not k.startswith("COLL_")}
        env.update(settings, COLL_TRANSPORTS={"shm": "shm", "tcp": "tcp"}.get(transport, ""))
        program = [f"{build}/tests/{Job.program}", path, str(seed)] + arguments
        program += {"mixed": ["hosts=2"], "netns": [f"netns={network[0]}"]}.get(transport, [])
        self.started = []
        if by_hand:
            host = network[1] if transport == "netns" else "127.0.0.1"
            port = 21000 + Job.count % 9000 if transport == "netns" else free_port()
            Job.count += 1
            env["COLL_JOB_KEY"] = os.urandom(16).hex()
            for r in range(ranks):
                self.start(program, dict(env, COLL_ROOT=f"{host}:{port}", COLL_RANK=str(r), COLL_SIZE=str(ranks)))
        else:
            self.start([f"{build}/tools/collrun", "-n", str(ranks), "--no-prefix"] + program, env)

    count = os.getpid() % 5000
    program = "rounds"

    def start(self, command, env):
        self.started.append(subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=self.output,
                                             stderr=self.output))

    def seat(self, rank):
        return Seat(self.board[SEAT_BYTES * (1 + rank):SEAT_BYTES * (2 + rank)])

    def seats(self):
        return [self.seat(r) for r in range(self.ranks)]

    def stop(self):
        self.board[0:4] = struct.pack("<I", 1)

    def ended(self):
        return all([p.poll() is not None for p in self.started])

    def living(self):
        """Ranks (and launchers) that run. A zombie does not."""
        return [p for p in [s.pid for s in self.seats()] + [p.pid for p in self.started] if p and alive(p)]

    def said(self, limit=3000):
        self.output.flush()
        self.output.seek(0)
        return self.output.read()[-limit:]

    def close(self):
        kill_all(self.living())
        for p in self.started:
            p.wait()
        self.output.close()
        self.board.close()
        shutil.rmtree(self.directory)


class Case:
    """One kill (or stop), drawn from (seed, index) alone."""

    def __init__(self, options, index):
        rng = random.Random(f"{options.what} {options.seed} {index}")
        self.index, self.signal = index, signal.SIGSTOP if options.what == "stops" else signal.SIGKILL
        self.ranks = options.ranks or rng.randint(2, 6)
        self.transport = options.transport or rng.choice(options.transports)
        self.by_hand = rng.random() < 0.5
        self.by_hand |= self.transport == "netns"
        self.phase = options.phase or rng.choice(options.phases)
        self.round = rng.choice((0, 0, 1, 2)) if self.phase != "start" else 0
        self.call = rng.randrange(CALLS.get(self.phase, 1))
        self.delay_ns = int(rng.random() ** 2 * DELAY_US[self.phase] * 1000)
        self.victims = rng.sample(range(self.ranks), 2 if self.ranks > 2 and rng.random() < 0.1 else 1)
        self.seed = rng.getrandbits(60)
        self.progress = rng.choice(["auto", "on", "off"])
        self.job = None
        self.since, self.faults, self.late, self.hung, self.left = 0, [], False, False, 0
        self.indirect = dict.fromkeys(INDIRECT, 0)

    def __str__(self):
        return (f"case {self.index}: {self.ranks} ranks, {self.transport}, {'by hand' if self.by_hand else 'collrun'}, "
                f"progress {self.progress}, {self.signal.name} of {self.victims} {self.delay_ns / 1e6:.2f} ms after {self.phase} "
                f"{self.call} of round {self.round} began")

    def begin(self, options):
        strikes = [f"strike={v}:{self.phase}:{self.round}:{self.call}:{self.delay_ns}:{int(self.signal)}"
                   for v in self.victims]
        settings = dict(options.settings, COLL_CREATE_TIMEOUT_MS=str(CREATE_TIMEOUT_MS), COLL_DEBUG="error")
        if self.signal == signal.SIGSTOP:
            settings["COLL_TIMEOUT_MS"] = str(STOP_TIMEOUT_MS)
        settings["COLL_PROGRESS"] = self.progress
        self.job = Job(options.build, self.ranks, self.transport, self.by_hand, strikes, settings, self.seed)
        self.begun = now()

    def struck(self, seats):
        """Ranks that got the signal before they had a result of their own."""
        t = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        hit = [v for v in self.victims if 0 < seats[v].strike_ns <= t and not seats[v].state]
        if self.signal == signal.SIGKILL:
            return [v for v in hit if not alive(seats[v].pid)]
        return hit

    def finished(self):
        """Look again; True when the case is over."""
        seats = self.job.seats()
        hit = self.struck(seats)
        others = [s for r, s in enumerate(seats) if r not in hit]
        at_rest = all(s.state == 2 or (s.state and not alive(s.pid)) for s in others) if hit else False
        if at_rest and self.signal == signal.SIGKILL and not self.job.ended():
            at_rest = False  # the processes must go as well
        if at_rest and self.signal == signal.SIGSTOP:
            at_rest = all(not alive(s.pid) for s in others)
        if at_rest or self.job.ended():
            return True
        if hit and not self.since:
            self.since = now()
        return now() > (self.since + HUNG_S if self.since else self.begun + 3 * HUNG_S)

    def judge(self):
        seats = self.job.seats()
        hit = self.struck(seats)
        # The machine stood still for longer than a creation may take: a case without a blow.
        self.void = not hit and all(s.status == BOOTSTRAP and " within " in s.message for s in seats)
        if not hit:
            self.faults.append("nobody was struck")
        since = min([seats[v].strike_ns for v in hit], default=0)
        limit = LIMIT_S + (STOP_TIMEOUT_MS / 1000 if self.signal == signal.SIGSTOP else 0)
        self.slowest, self.where = 0.0, [seats[v].phase for v in hit]
        for r, s in enumerate(seats):
            if s.wrong:
                self.faults.append(f"rank {r} got {s.wrong} wrong results")
            if r in hit:
                continue
            # A victim that had its result by then was struck on its way out.
            on_the_way = r in self.victims and s.state == 1 and not alive(s.pid)
            if s.state != 2 and not on_the_way:
                self.hung = self.hung or alive(s.pid)
                self.faults.append(f"rank {r} says nothing, last seen in {s.where}, {'runs' if alive(s.pid) else 'gone'}")
                continue
            # Who begins to create later than that waits for the dead from then on.
            begin = max(since, s.phase_ns) if PHASES[s.phase] == "create" else since
            took = ((s.error_ns if on_the_way else s.end_ns) - begin) * 1e-9
            self.slowest = max(self.slowest, took)
            why = self.wrong_word(seats, r, hit)
            if why:
                self.faults.append(f"rank {r} in {s.where}, {why}: status {s.status}, blames {s.culprit}: {s.message}")
            if took > limit + starved(since * 1e-9, begin * 1e-9 + took):
                self.late = True
                self.faults.append(f"rank {r} in {s.where} took {took:.2f} s: {s.message}")
        if self.signal == signal.SIGKILL and not until(lambda: not self.job.living(), 3):
            self.left += len(self.job.living())
            self.faults.append(f"processes remain: {self.job.living()}")
        if self.faults:
            for v in hit:
                self.faults.append(f"rank {v} was in {seats[v].where}")
            self.faults.append(self.job.said())
        self.job.close()


    def wrong_word(self, seats, r, hit):
        """What is wrong with the error that survivor r got; None: it names the right rank."""
        s = seats[r]
        if not s.status:
            return "no error"
        told = named(s.message)
        if s.culprit in hit:
            return None if s.culprit in told else "its text does not name whom it blames"
        # A communicator without the dead was aborted by a rank of it, with its own error as
        # the reason; or that rank could not make it.
        if s.status == ABORTED and 0 <= s.culprit < self.ranks and s.culprit != r and seats[s.culprit].status:
            self.indirect["aborted"] += 1
            return None if told & set(hit) else "the reason of the abort does not name the dead"
        if s.culprit == -1 and "(reported by" in s.message:
            self.indirect["told"] += 1
            return None if told & set(hit) else "it does not name the dead"
        # Some pass the last call before the death, some do not and end in it, having said so. The
        # former then wait in vain for all of them in the next creation, which names all that are
        # missing, or rank 0 if that is among them: then nobody can know who else is.
        if PHASES[s.phase] == "create":
            gone = {v for v, t in enumerate(seats) if t.state and t.status and t.round < s.round}
            self.indirect["missing"] += 1
            if s.culprit in gone and s.culprit in told and told <= gone | set(hit) | {0} and (
                    s.culprit == 0 or told & set(hit)):
                return None
        return "it blames a wrong rank"


class Tally:
    def __init__(self, options):
        self.options, self.wrong, self.late, self.hung, self.left, self.done = options, 0, 0, 0, 0, 0
        self.phases, self.void = [0] * len(PHASES), 0
        self.slowest, self.begun, self.indirect = 0.0, now(), dict.fromkeys(INDIRECT, 0)

    def add(self, case):
        self.done += 1
        for p in case.where:
            self.phases[p] += 1
        self.slowest = max(self.slowest, case.slowest)
        for k, n in getattr(case, "indirect", {}).items():
            self.indirect[k] += n
        self.hung += case.hung
        self.late += case.late and not case.hung
        self.left += case.left
        self.wrong += bool(case.faults) and not case.hung and not case.late and not case.left
        if case.faults:
            print(f"FAIL {case}")
            for f in case.faults[:14]:
                print(f"     {f}")
            o = self.options
            print(f"     again: ./run soak {o.what} --seed {o.seed} --only {case.index}{o.more}", flush=True)

    def close(self, unit):
        Tally.last = self
        took = now() - self.begun
        print(f"     seed {self.options.seed}; in " +
              ", ".join(f"{n} {p}" for p, n in zip(PHASES, self.phases) if n))
        print(f"     {took:.0f} s, {self.done / took:.1f} per second, the slowest rank ended after {self.slowest:.2f} s, "
              f"load {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores")
        if self.void:
            print(f"     {self.void} again, as nobody was struck before a creation took too long")
        for k, n in self.indirect.items():
            if n:
                print(f"     {n} survivors {INDIRECT[k]}")
        print(f"{self.done} {unit}, {self.wrong} wrong, {self.late} late, {self.hung} hung, {self.left} leftovers",
              flush=True)
        return 1 if self.wrong + self.late + self.hung + self.left or not self.done else 0


def strike_all(options):
    tally, running, indices = Tally(options), [], list(options.indices)
    before = belongings()
    while indices or running:
        while indices and len(running) < options.jobs:
            case = Case(options, indices.pop(0))
            case.begin(options)
            running.append(case)
        time.sleep(0.002)
        for case in [c for c in running if c.finished()]:
            running.remove(case)
            case.judge()
            if case.void and tally.void < options.count // 50 + 1:
                tally.void += 1
                indices.append(case.index)
                continue
            tally.add(case)
            if tally.done % 100 == 0 and len(options.indices) > 100:
                print(f"     {tally.done} done, {tally.wrong} wrong, {tally.late} late, {tally.hung} hung", flush=True)
    tally.left += leftovers(before)
    return tally.close(options.what)


# ---- The launcher -------------------------------------------------------------


def launcher(options):
    """collrun is killed at a random moment: all it started ends."""
    tally, before = Tally(options), belongings()
    for index in options.indices:
        rng = random.Random(f"{options.what} {options.seed} {index}")
        case = Case(options, index)
        case.transport = options.transport or rng.choice([t for t in options.transports if t != "netns"])
        case.by_hand, case.victims, case.where = False, [], []
        case.begin(options)
        collrun = case.job.started[0].pid
        time.sleep(rng.random() ** 2 * 0.3)
        case.where = [case.job.seat(0).phase]
        # The agent is collrun's only child.
        agents = children(collrun)
        target = agents[0] if agents and rng.random() < 0.5 else collrun
        family = descendants(collrun)
        os.kill(target, signal.SIGKILL)
        since = now()
        until(lambda: not any(alive(p) for p in family + case.job.living()), HUNG_S)
        left = [p for p in set(family + case.job.living()) if alive(p)]
        case.slowest = now() - since
        if left:
            case.left = len(left)
            case.faults.append(f"processes remain after {'the agent' if target != collrun else 'collrun'} is gone: {left}")
        elif case.slowest > LIMIT_S + starved(since, since + case.slowest):
            case.late = True
            case.faults.append(f"the last rank ended after {case.slowest:.2f} s")
        case.job.close()
        tally.add(case)
    tally.left += leftovers(before)
    return tally.close("kills")


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            return [int(x) for x in f.read().split()]
    except OSError:
        return []


def descendants(pid):
    found = [pid]
    for p in found:
        found += children(p)
    return found


# ---- Pauses -------------------------------------------------------------------


class Endurance:
    """A job of which ranks are paused again and again; none may notice."""

    def __init__(self, options, index, pauses):
        rng = self.rng = random.Random(f"pauses {options.seed} {index}")
        self.index, self.pauses = index, pauses
        self.ranks = options.ranks or rng.randint(2, 6)
        self.transport = options.transport or options.transports[index % len(options.transports)]
        self.by_hand = self.transport == "netns" or rng.random() < 0.5
        settings = dict(options.settings, COLL_TIMEOUT_MS=str(PAUSE_TIMEOUT_MS), COLL_CREATE_TIMEOUT_MS="20000",
                        COLL_DEBUG="error", COLL_PROGRESS=rng.choice(["auto", "on", "off"]))
        self.job = Job(options.build, self.ranks, self.transport, self.by_hand, [], settings, rng.getrandbits(60))
        self.phases, self.options = [p for p in options.phases if p != "start"], options
        self.stopped, self.where, self.faults = {}, [], []  # pid -> when to continue
        self.aim, self.next, self.ending, self.done = None, now() + 0.2, 0, 0
        self.late, self.hung, self.left, self.slowest = False, False, 0, 0.0

    def __str__(self):
        return (f"job {self.index}: {self.ranks} ranks, {self.transport}, {'by hand' if self.by_hand else 'collrun'}, "
                f"{self.done} pauses")

    def pause(self, rank, seat):
        try:
            os.kill(seat.pid, signal.SIGSTOP)
        except OSError:
            return
        self.where.append(self.job.seat(rank).phase)
        self.stopped[seat.pid] = now() + self.rng.uniform(0.05, 1.5)
        self.done += 1

    def turn(self):
        """True when it is over."""
        t, seats = now(), self.job.seats()
        for pid in [p for p, end in self.stopped.items() if end <= t]:
            del self.stopped[pid]
            try:
                os.kill(pid, signal.SIGCONT)
            except OSError:
                pass
        if any(s.state and s.status for s in seats) or self.job.ended():
            return not self.stopped
        if self.done < self.pauses and not self.stopped and t > self.next and all(s.pid for s in seats):
            # Wait for a rank to be in the phase aimed at, for a while; then any will do.
            self.aim = self.aim or (self.rng.randrange(self.ranks), self.rng.choice(self.phases), t + 0.5)
            rank, phase, give_up = self.aim
            if PHASES[seats[rank].phase] == phase or t > give_up:
                self.aim = None
                self.pause(rank, seats[rank])
                others = [r for r in range(self.ranks) if r != rank and self.rng.random() < 0.25]
                for r in others:
                    self.pause(r, seats[r])
                self.next = max(self.stopped.values(), default=t) + self.rng.uniform(0.1, 0.4)
        if self.done >= self.pauses and not self.stopped and not self.ending:
            self.ending = t
            self.job.stop()
        return bool(self.ending) and t > self.ending + 30

    def judge(self):
        for r, s in enumerate(self.job.seats()):
            if s.status or s.wrong:
                self.faults.append(f"rank {r} in {s.where}: status {s.status}, {s.wrong} wrong results: {s.message}")
            elif s.state != 2:
                self.hung = True
                self.faults.append(f"rank {r} has not ended, last seen in {s.where}")
            # Threads and descriptors between communicators are what they were before the first.
            if s.descriptors >> 16 != s.descriptors & 0xffff or s.threads >> 16 != s.threads & 0xffff:
                self.left += 1
                self.faults.append(f"rank {r}: descriptors {s.descriptors & 0xffff} -> {s.descriptors >> 16}, threads "
                                   f"{s.threads & 0xffff} -> {s.threads >> 16} in {s.round} rounds")
        if not until(self.job.ended, 5):
            self.hung = True
        if self.faults:
            self.faults.append(self.job.said())
        self.rounds = min(s.round for s in self.job.seats())
        self.job.close()


def pauses(options):
    tally, before, rounds = Tally(options), belongings(), 0
    each = 15 if options.count >= 60 else max(1, options.count // 4)
    indices = options.only if options.only else range((options.count + each - 1) // each)
    waiting, running = list(indices), []
    while waiting or running:
        while waiting and len(running) < options.jobs:
            running.append(Endurance(options, waiting.pop(0), each))
        time.sleep(0.001)
        for job in [j for j in running if j.turn()]:
            running.remove(job)
            job.judge()
            rounds += job.rounds
            tally.add(job)
            tally.done += job.done - 1
    tally.left += leftovers(before)
    print(f"     {rounds} rounds of create ... destroy")
    return tally.close("pauses")


# ---- Planted defects ----------------------------------------------------------

# Name of the defect, campaign, its options, what must be red.
PLANTED = [("none", "kills", dict(phase="all_reduce", count=2), None),
           ("wrong-rank", "kills", dict(phase="all_reduce", count=2, ranks=3), "wrong"),
           ("deaf", "kills", dict(phase="all_to_all", count=1, ranks=3, transport="shm"), "hung"),
           ("named-file", "kills", dict(phase="all_reduce", count=1, transport="shm"), "left"),
           ("wrong-byte", "pauses", dict(count=4, transport="shm"), "wrong")]


def planted(options):
    """Each defect is found for what it is, and the same cases without one are not red."""
    global HUNG_S
    HUNG_S, Job.program, missed = 3.0, "rounds-planted", 0
    for name, what, settings, red in PLANTED:
        if red == "left" and not os.environ.get("COLL_SOAK_APART"):
            print(f"skip {name}: leftovers are told from others' only in namespaces of our own", flush=True)
            continue
        o = argparse.Namespace(**vars(options))
        o.what, o.settings, o.seed, o.more = what, dict(options.settings, SOAK_PLANTED=name), options.seed, ""
        for k, v in settings.items():
            setattr(o, k, v)
        o.indices = list(range(o.count))
        print(f"---- {name}")
        status = (pauses if what == "pauses" else strike_all)(o)
        found = status == 0 if red is None else status != 0 and getattr(Tally.last, red) > 0
        print(f"{'ok   ' if found else 'FAIL '} {name}: {'is not red' if status == 0 else 'is red'}", flush=True)
        missed += not found
        if red == "left":
            os.remove("/dev/shm/coll-planted")
    print(f"{len(PLANTED) - missed} passed, {missed} failed, 0 skipped")
    return 1 if missed else 0


def main():
    p = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1])
    p.add_argument("build")
    p.add_argument("what", choices=["kills", "stops", "pauses", "launcher", "planted"])
    p.add_argument("--count", type=int, default=0)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--ranks", type=int, default=0)
    p.add_argument("--jobs", type=int, default=0)
    p.add_argument("--transport", choices=["shm", "tcp", "mixed", "netns"])
    p.add_argument("--phase", choices=PHASES)
    p.add_argument("--only", type=int, nargs="*")
    p.add_argument("--hook", default="")
    o = p.parse_args()
    apart()
    tempfile.tempdir = os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="coll-soak.")  # where nobody else leaves anything
    o.build = os.path.abspath(o.build)
    o.count = o.count or {"kills": 2000, "stops": 100, "pauses": 300, "launcher": 200, "planted": 1}[o.what]
    o.jobs = o.jobs or {"kills": 3, "stops": 6, "pauses": 4, "launcher": 1, "planted": 3}[o.what]
    o.transports = ["shm", "tcp", "mixed"]
    if o.transport in (None, "netns") and two_namespaces():
        o.transports.append("netns")
    elif o.transport == "netns":
        print("no rights to make network namespaces")
        return 77
    o.phases = list(PHASES)
    if o.what == "stops":
        o.phases = [x for x in o.phases if x not in ("start", "create", "destroy")]
    o.indices = o.only if o.only else list(range(o.count))
    o.settings = {}
    if o.hook:
        o.settings["COLL_HOOK"] = o.hook
    o.more = "".join(f" --{k} {getattr(o, k)}" for k in ("ranks", "transport", "phase", "hook") if getattr(o, k))
    print(f"soak {o.what}: seed {o.seed}, {o.count if not o.only else len(o.only)} over {', '.join(o.transports)}, "
          f"{o.jobs} jobs at once, {'in namespaces of its own' if os.environ['COLL_SOAK_APART'] else 'not apart'}", flush=True)
    campaign = {"kills": strike_all, "stops": strike_all, "launcher": launcher, "pauses": pauses, "planted": planted}
    try:
        return campaign[o.what](o)
    finally:
        shutil.rmtree(tempfile.gettempdir())


if __name__ == "__main__":
    sys.exit(main())
