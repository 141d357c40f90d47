#!/usr/bin/env python3
"""Random events of machines and networks happen to jobs of 2 to 6 ranks on two hosts (network namespaces) while they create,
call, split and destroy: ranks killed, stopped or paused, the cable away for a moment or for good, one NIC of two down, packets
lost both ways or one way, sockets reset, limits of descriptors and memory lowered, no space for dumps. Each event is judged: what
passes must leave no error, what does not must end every survivor in time with an error that names the culprit. Root, `ip`, `tc`
and `ss`.

usage: chaos.py BUILD-DIRECTORY [--events N] [--seed S] [--jobs N] [--kind K] [--again] [--only I...]

--again: an event with faults, wrong results apart, is run once more, alone, and that is what counts: other programs may have
kept this one from running. An event is drawn from (seed, index) alone, but for the moment at which the job is by then. The last line is
`N events, N wrong results, N stalls, N wrong culprits, N leftovers`.
"""
import argparse
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from apart import apart, belongings, leftovers
from job import alive, inodes, now, sanitized, starved, until
import soak

UNREACHABLE_MS, TIMEOUT_MS, CREATE_TIMEOUT_MS = 2500, 3000, 5000
DEAD_S, HUNG_S = 2.0, 15.0
LONGER_S = 0.3  # beyond what was drawn: TCP's tries are no closer
PREFIX = "/run/netns/coll-chaos-"


def ip(*words):
    return subprocess.run(["ip", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


class Hosts:
    """Two namespaces with a cable v, and one w that is down but for events of NICs; rank r runs on host r % 2."""

    def __init__(self, number):
        self.number, self.prefix = number, f"{PREFIX}{number}-"
        self.names = [os.path.basename(self.prefix) + str(i) for i in range(2)]
        self.good = all(ip("netns", "add", n) for n in self.names) and \
            all(ip("link", "add", c + "0", "netns", self.names[0], "type", "veth", "peer", "name", c + "1", "netns", self.names[1])
                for c in "vw") and \
            all(self.up(i) and ip("-n", n, "link", "set", "lo", "up") and
                subprocess.run(["tc", "-n", n, "qdisc", "add", "dev", f"v{i}", "clsact"]).returncode == 0
                for i, n in enumerate(self.names))

    def address(self, side, cable="v"):
        return f"10.92.{self.number + (100 if cable == 'w' else 0)}.{side + 1}"

    def up(self, side, cable="v"):
        mac = [f"02:00:0a:{ord(cable):02x}:{self.number:02x}:0{i + 1}" for i in range(2)]
        n, e = self.names[side], f"{cable}{side}"
        return ip("-n", n, "link", "set", e, "address", mac[side]) and \
            ip("-n", n, "addr", "replace", self.address(side, cable) + "/24", "dev", e) and ip("-n", n, "link", "set", e, "up") and \
            ip("-n", n, "neigh", "replace", self.address(1 - side, cable), "lladdr", mac[1 - side], "dev", e, "nud", "permanent")

    def down(self, side, cable="v"):
        ip("-n", self.names[side], "link", "set", f"{cable}{side}", "down")

    def lose(self, side, share):
        """Of what leaves this side, that share is dropped: the filter loads a random number, and 2 is the verdict of a loss
        (linux/pkt_cls.h)."""
        code = f"4,32 0 0 4294963256,53 1 0 {min(int(share * 2**32), 2**32 - 1)},6 0 0 2,6 0 0 0"
        subprocess.run(["tc", "-n", self.names[side], "filter", "replace", "dev", f"v{side}", "egress", "protocol", "all", "prio",
                        "1", "handle", "1", "bpf", "da", "bytecode", code], check=True)

    def keep(self, side):
        subprocess.run(["tc", "-n", self.names[side], "filter", "del", "dev", f"v{side}", "egress"], stderr=subprocess.DEVNULL)

    def whole(self):
        for side in range(2):
            self.keep(side)
            self.up(side)

    def second(self, used):
        for side in range(2):
            (self.up if used else self.down)(side, "w")
        until(lambda: not used or not any("NO-CARRIER" in subprocess.run(["ip", "-n", n, "link", "show", f"w{i}"], capture_output=True,
                                                                         text=True).stdout for i, n in enumerate(self.names)), 5)


class Event(soak.Case):
    """One event of one job. hit: ranks that it ends; sides: it parts the hosts, so each names a rank of the other."""

    kind, mortal, sides, every = "", True, False, True
    limit_s, known_s = DEAD_S, 0.0  # known_s: of it, before anybody may say so

    def __init__(self, options, index, rng):
        self.index, self.rng, self.build = index, rng, options.build
        self.ranks, self.victim = rng.randint(2, 6), 0
        self.victim = rng.randrange(self.ranks)
        self.wait_s = rng.random() ** 2 * 2.5
        self.indirect = dict.fromkeys(soak.INDIRECT, 0)
        self.hit, self.faults, self.struck_at, self.back_at, self.done = [], {}, 0.0, 0.0, False
        self.at, self.moved_at = [], now()
        self.times = []  # of survivors, in a call or a split: until each had its error, behind known_s

    def __str__(self):
        return f"event {self.index}: {self.kind}, {self.ranks} ranks, of rank {self.victim}, {self.detail()}"

    def detail(self):
        return f"{self.wait_s:.2f} s after the start"

    def settings(self):
        return {}

    def begin(self, hosts):
        self.hosts = hosts
        env = dict(COLL_UNREACHABLE_MS=str(UNREACHABLE_MS), COLL_TIMEOUT_MS=str(TIMEOUT_MS), COLL_DEBUG="error",
                   COLL_CREATE_TIMEOUT_MS=str(CREATE_TIMEOUT_MS), COLL_PROGRESS=self.rng.choice(["auto", "on", "off"]))
        self.job = soak.Job(self.build, self.ranks, "netns", True, [], dict(env, **self.settings()), self.rng.getrandbits(60),
                            (hosts.prefix, hosts.address(0)))
        self.begun = now()

    def may_strike(self, seats):
        return True

    def strike(self):
        """It happens; returns how long until it is over, None: for good."""
        raise NotImplementedError

    def heal(self):
        pass

    def pid(self, rank):
        return self.job.seat(rank).pid

    def turn(self):
        """A look; True when the event is over."""
        t, seats = now(), self.job.seats()
        at = [(s.round, s.phase, s.call) for s in seats]
        if at != self.at:
            self.at, self.moved_at = at, t
        if not self.struck_at:
            if all(s.pid for s in seats) and t > self.begun + self.wait_s and self.may_strike(seats):
                self.rounds = [s.round for s in seats]
                self.where = [seats[r].where for r in range(self.ranks)]
                self.struck_at = now()
                lasts = self.strike()
                self.back_at = now() + lasts if lasts is not None else 0.0
                self.hit = self.hit if self.mortal else []
            return self.job.ended() or t > self.moved_at + HUNG_S + self.wait_s
        if self.back_at and t > self.back_at:
            self.heal()
            self.back_at = 0.0
            self.over_at = now()
        rest = [r for r in range(self.ranks) if r not in self.hit]
        if all(seats[r].state == 2 or (seats[r].state and not alive(seats[r].pid)) for r in rest):
            return not self.back_at
        ended = [r for r in rest if seats[r].state]
        if not self.back_at and self.goes_on() and not ended and not self.done and \
                all(seats[r].round > self.rounds[r] for r in rest) and t > self.struck_at + 0.3:
            self.done = True  # new communicators were made since: it goes on
            self.job.stop()
        return t > max(self.struck_at, self.moved_at, getattr(self, "over_at", 0)) + HUNG_S

    def goes_on(self):
        """It may, or must, end no rank."""
        return not self.mortal

    def longer(self):
        return 0

    def judge(self):
        seats = self.job.seats()
        for r, s in enumerate(seats):
            if s.wrong:
                self.fault("wrong", f"rank {r} got {s.wrong} wrong results")
            if r in self.hit:
                continue
            if s.state == 0:
                self.fault("stall", f"rank {r} says nothing, last seen in {s.where}, {'runs' if alive(s.pid) else 'gone'}")
            elif s.status and not self.mortal and self.longer() > LONGER_S:
                print(f"     not judged, as it lasted {self.longer():.2f} s longer: rank {r} of {self}: {s.message}")
            elif s.status and not self.mortal:
                self.fault("culprit", f"rank {r} in {s.where} must not fail: status {s.status}, blames {s.culprit}: {s.message}")
            elif s.status or not self.goes_on():
                self.judge_error(seats, r)
        self.rest_goes()
        if self.faults:
            self.fault("", self.job.said())
        self.job.close()
        self.hosts.whole()

    def judge_error(self, seats, r):
        s, since = seats[r], self.struck_at
        # Whoever begins to create later than that waits for the missing from then on, until the limit of the creation.
        create = soak.PHASES[s.phase] == "create"
        begin = max(since, s.phase_ns * 1e-9) if create else since
        took = (s.end_ns or s.error_ns) * 1e-9 - begin
        if not create:
            self.times.append((s.error_ns or s.end_ns) * 1e-9 - begin - self.known_s)
        limit = max(self.limit_s, CREATE_TIMEOUT_MS / 1000 + 0.5) if create else self.limit_s
        if took > limit + starved(since, begin + took):
            self.fault("stall", f"rank {r} in {s.where} took {took:.2f} s: {s.message}")
        why = self.wrong_word(seats, r, self.culprits(r))
        if why:
            self.fault("culprit", f"rank {r} in {s.where}, {why}: status {s.status}, blames {s.culprit}: {s.message}")

    def culprits(self, r):
        """Whom survivor r may name."""
        return [x for x in range(self.ranks) if x % 2 != r % 2] if self.sides else self.hit or [self.victim]

    def rest_goes(self):
        """What was stopped ends; then no process is left."""
        for r in self.hit:
            try:
                os.kill(self.pid(r), signal.SIGKILL)
            except OSError:
                pass
        if not until(lambda: not self.job.living(), 3):
            self.fault("stall", f"processes remain: {self.job.living()}")

    def fault(self, what, text):
        self.faults.setdefault(what, []).append(text)


class Kill(Event):
    kind = "kill"

    def strike(self):
        self.hit = [self.victim]
        os.kill(self.pid(self.victim), signal.SIGKILL)


class Stop(Kill):
    kind, limit_s, known_s = "stop", DEAD_S + TIMEOUT_MS / 1000, TIMEOUT_MS / 1000

    def strike(self):
        self.hit = [self.victim]
        os.kill(self.pid(self.victim), signal.SIGSTOP)


class Passing(Event):
    """It lasts for a while, and nobody may notice."""

    mortal, longest_s = False, 1.5

    def begin(self, hosts):
        self.lasts = self.rng.uniform(0.02, self.longest_s)
        super().begin(hosts)

    def longer(self):
        """By how much it was longer than drawn: this program may have been kept from ending it."""
        return self.over_at - self.struck_at - self.lasts if hasattr(self, "over_at") else 0

    def detail(self):
        return f"for {self.lasts:.2f} s, {super().detail()}"

    def strike(self):
        self.start()
        return self.lasts


class Pause(Passing):
    kind = "pause"

    def start(self):
        os.kill(self.pid(self.victim), signal.SIGSTOP)

    def heal(self):
        os.kill(self.pid(self.victim), signal.SIGCONT)


class Flap(Passing):
    # TCP sends again after 0.2, 0.6, 1.4 and 3 s, and the last of these is beyond UNREACHABLE_MS.
    kind, longest_s = "flap", 1.2

    def start(self):
        self.hosts.down(self.victim % 2)

    def heal(self):
        self.hosts.whole()


class Outage(Flap):
    """With the delays of a user: the cable is away at a moment of each kind, for as long as switches and routers take."""

    kind, every = "outage", False

    def begin(self, hosts):
        self.phase = self.rng.choice(["create", "connect", "split", ""])
        super().begin(hosts)
        self.lasts = self.rng.choice([0.05, 0.5, 1.0, 2.0, 5.0])

    def settings(self):
        return dict(COLL_UNREACHABLE_MS="10000", COLL_TIMEOUT_MS="30000", COLL_CREATE_TIMEOUT_MS="60000")

    def may_strike(self, seats):
        # A machine that is crowded shows some moments too seldom.
        return not self.phase or soak.PHASES[seats[self.victim].phase] == self.phase or now() > self.begun + self.wait_s + HUNG_S / 3


class Nic(Passing):
    """One of two NICs goes down in a call: no call fails, or takes longer than a call may that waits for another rail."""

    kind, longest_s, stall_s = "nic of two", 3.0, 1.5

    def begin(self, hosts):
        hosts.second(True)
        self.cable, self.stalls = self.rng.choice("vw"), {}
        super().begin(hosts)

    def settings(self):
        return Outage.settings(self)

    def may_strike(self, seats):
        return soak.PHASES[seats[self.victim].phase] in soak.CALLS

    def start(self):
        self.hosts.down(self.victim % 2, self.cable)

    def heal(self):
        self.hosts.up(self.victim % 2, self.cable)

    def turn(self):
        """Calls in which a rank is for long; a creation may wait for the NIC, whose address the job was given."""
        for r, s in enumerate(self.job.seats() if self.struck_at else []):
            began = max(s.phase_ns * 1e-9, self.struck_at)
            if soak.PHASES[s.phase] in soak.CALLS and not s.state and now() - began > self.stall_s:
                self.stalls[r, began] = (now(), s.where)
        return super().turn()

    def judge(self):
        for (r, began), (end, where) in self.stalls.items():
            if end - began > self.stall_s + starved(began, end):
                self.fault("stall", f"rank {r} was in {where} for {end - began:.2f} s with {self.cable} down")
        super().judge()
        self.hosts.second(False)


class OneWay(Passing):
    kind, longest_s = "one way lost", 1.0

    def start(self):
        self.hosts.lose(self.victim % 2, 1.0)

    def heal(self):
        self.hosts.whole()


class Loss(OneWay):
    kind = "loss"

    def detail(self):
        return f"{self.share * 100:.1f} % of the packets, {super().detail()}"

    def begin(self, hosts):
        self.share = self.rng.choice([0.002, 0.01, 0.03])
        super().begin(hosts)

    def start(self):
        for side in range(2):
            self.hosts.lose(side, self.share)


class Away(Event):
    kind, sides, known_s = "away for good", True, min(UNREACHABLE_MS, TIMEOUT_MS) / 1000
    limit_s = DEAD_S + known_s

    def strike(self):
        self.hosts.down(self.victim % 2)


class Deaf(Away):
    kind = "one way lost for good"

    def strike(self):
        self.hosts.lose(self.victim % 2, 1.0)


class Reset(Event):
    """The job goes on, or each error names an end of the link, which two ranks have."""

    kind, limit_s = "reset", DEAD_S

    def goes_on(self):
        return True

    def strike(self):
        side = self.hosts.names[self.victim % 2]
        ours = inodes(self.pid(self.victim))
        out = subprocess.run(["ip", "netns", "exec", side, "ss", "-tneHO", "state", "established"], capture_output=True, text=True).stdout
        rows = [w for w in (x.split() for x in out.splitlines()) if any(f"ino:{i} " in " ".join(w) + " " for i in ours)]
        if rows:
            local, remote = self.rng.choice(rows)[2:4]
            subprocess.run(["ip", "netns", "exec", side, "ss", "-K", "-t", "src", local.rsplit(":", 1)[0].strip("[]"), "sport", "=",
                            ":" + local.rsplit(":", 1)[1], "dst", remote.rsplit(":", 1)[0].strip("[]"), "dport", "=",
                            ":" + remote.rsplit(":", 1)[1]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def culprits(self, r):
        return [self.victim] if r != self.victim else [x for x in range(self.ranks) if x != r]

    def wrong_word(self, seats, r, hit):
        # The link of the victim and one other: either of them.
        other = {s.culprit for s in seats if s.culprit >= 0} | {self.victim}
        return super().wrong_word(seats, r, list(other - {r}) or hit)


class Descriptors(Event):
    """A limit that holds from now on: the job goes on until something needs more."""

    kind, limit, least, words = "descriptors", resource.RLIMIT_NOFILE, 3, ("descriptor", "RLIMIT_NOFILE", "too many open files")
    limit_s = DEAD_S + TIMEOUT_MS / 1000

    # Before, the program itself may need more: to enter its namespace.
    def may_strike(self, seats):
        return soak.PHASES[seats[self.victim].phase] != "start"

    def goes_on(self):
        return True

    def amount(self):
        return self.rng.randint(self.least, 40)

    def strike(self):
        n = self.amount()
        resource.prlimit(self.pid(self.victim), self.limit, (n, n))

    def judge_error(self, seats, r):
        super().judge_error(seats, r)
        s = seats[r]
        if r == self.victim and not any(w in s.message.lower() for w in (x.lower() for x in self.words)):
            self.fault("culprit", f"rank {r} does not say what it lacks: {s.message}")

    def wrong_word(self, seats, r, hit):
        return None if r == self.victim else super().wrong_word(seats, r, hit)


class Memory(Descriptors):
    kind, limit, words = "memory", resource.RLIMIT_AS, ("memory",)

    def amount(self):
        with open(f"/proc/{self.pid(self.victim)}/statm") as f:
            return (int(f.read().split()[0]) + self.rng.choice([0, 1, 64, 1024])) * 4096


class Disk(Kill):
    """Dumps and the log go to a file system that is full: the errors are the same."""

    kind = "no space, kill"

    def settings(self):
        return {"COLL_DUMP_FILE": "/run/coll-chaos-full/dump.%r", "COLL_LOG_FILE": "/run/coll-chaos-full/log.%r"}

    @staticmethod
    def prepare():
        os.makedirs("/run/coll-chaos-full", exist_ok=True)
        ok = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", "/run/coll-chaos-full"]).returncode == 0
        with open("/run/coll-chaos-full/fill", "wb") as f:
            f.write(b"x" * 4096)
        return ok


KINDS = [Kill, Stop, Pause, Flap, Nic, OneWay, Loss, Away, Deaf, Reset, Descriptors, Memory, Disk, Outage]


def draw(options, index):
    rng = random.Random(f"chaos {options.seed} {index}")
    kinds = [k for k in KINDS if (options.kind in k.kind if options.kind else k.every) and not (k is Memory and options.sanitized)]
    return kinds[index % len(kinds)](options, index, rng)


class Tally:
    def __init__(self):
        self.events, self.wrong, self.stall, self.culprit, self.survivors = 0, 0, 0, 0, 0
        self.kinds, self.begun, self.again, self.excused = {}, now(), None, set()
        self.times = {}

    def add(self, event, seed):
        if self.again is not None and event.faults and "wrong" not in event.faults and event.index not in self.excused:
            print(f"     once more, alone: {event}: " + "; ".join(t for what, texts in event.faults.items() if what for t in texts))
            self.excused.add(event.index)
            self.again.append(event.index)
            return
        self.events += 1
        self.survivors += event.ranks - len(event.hit)
        for what in ("wrong", "stall"):
            setattr(self, what, getattr(self, what) + (what in event.faults))
        self.culprit += len(event.faults.get("culprit", []))
        self.times.setdefault((event.kind, event.known_s), []).extend(event.times)
        seen = self.kinds.setdefault(event.kind, [0, 0])
        seen[0] += 1
        seen[1] += bool(event.faults)
        if event.faults:
            print(f"FAIL {event}; they were in {getattr(event, 'where', [])}")
            for texts in event.faults.values():
                for t in texts[:6]:
                    print(f"     {t}")
            print(f"     again: ./run soak chaos --seed {seed} --only {event.index}", flush=True)

    def close(self, left):
        for kind, (n, bad) in self.kinds.items():
            print(f"     {kind}: {n} events, {bad} with faults")
        for (kind, known_s), times in self.times.items():
            n, times = len(times), sorted(times)
            if n:
                print(f"     {kind}: {n} errors in calls, p50 {times[n // 2]:.2f} s, p99 {times[n * 99 // 100]:.2f}, most "
                      f"{times[-1]:.2f}" + (f", behind the limit of {known_s:.1f} s" if known_s else ""))
        print(f"     {now() - self.begun:.0f} s, load {os.getloadavg()[0]:.1f}, {self.survivors} survivors")
        print(f"{self.events} events, {self.wrong} wrong results, {self.stall} stalls, {self.culprit} wrong culprits, "
              f"{left} leftovers", flush=True)
        return 1 if self.wrong or self.stall or left or self.culprit > 0.002 * self.survivors or not self.events else 0


def campaign(options, hosts):
    tally, waiting, free, running = Tally(), list(options.only or range(options.events)), list(hosts), []
    tally.again = [] if options.again else None
    while waiting or running or tally.again:
        if not waiting and not running:
            waiting.append(tally.again.pop(0))
        while waiting and free:
            event = draw(options, waiting.pop(0))
            event.begin(free.pop())
            running.append(event)
        time.sleep(0.003)
        for event in [e for e in running if e.turn()]:
            running.remove(event)
            event.judge()
            tally.add(event, options.seed)
            free.append(event.hosts)
    return tally


def main():
    p = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1])
    p.add_argument("build")
    p.add_argument("--events", type=int, default=1000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--jobs", type=int, default=3)
    p.add_argument("--kind", default="")
    p.add_argument("--again", action="store_true")
    p.add_argument("--only", type=int, nargs="*")
    o = p.parse_args()
    if os.geteuid() != 0 or not all(shutil.which(t) for t in ("ip", "tc", "ss", "unshare")):
        print("skip chaos: it needs root, ip, tc, ss and unshare\n0 passed, 0 failed, 1 skipped")
        return 77
    apart()
    tempfile.tempdir = os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="coll-chaos.")
    o.build = os.path.abspath(o.build)
    o.sanitized = sanitized(o.build)
    try:
        hosts = [Hosts(i) for i in range(o.jobs)] if os.environ.get("COLL_SOAK_APART") else []
        if not hosts or not all(h.good for h in hosts) or not Disk.prepare():
            print("skip chaos: no rights to make network namespaces\n0 passed, 0 failed, 1 skipped")
            return 77
        print(f"soak chaos: seed {o.seed}, {len(o.only or range(o.events))} events, {o.jobs} jobs at once", flush=True)
        before = belongings()
        tally = campaign(o, hosts)
        return tally.close(leftovers(before))
    finally:
        shutil.rmtree(tempfile.gettempdir())


if __name__ == "__main__":
    sys.exit(main())
