#!/usr/bin/env python3
"""Calls captured into graphs, on the stand-in driver: every kind of call, many launches, lives and failures.

usage: capture.py BUILD-DIRECTORY few|suite|planted|soak [ONLY]

  few    one of each kind, for builds with sanitizers
  suite  shm and tcp, one and eight hardware queues, direct and staged, each case with 2 or with 3 ranks (half a minute)
  planted  defects of the library that must be found
  soak   ranks 2, 3 and 5, more seeds and launches, 60 failures (half an hour)
  ONLY   the cases whose name has this text

The last line is `N passed, N failed, N skipped`.
"""
import os
import random
import re
import subprocess
import sys
import tempfile
import time

from cases import Cases

SMALL = {"COLL_DEVICE_SLOT_BYTES": "128K"}  # direct calls of many tiles
DEFECTS = ["early-taken", "early-clear"]
# How long a survivor's stream may take to drain.
DRAIN_S = 2.0


class Suite(Cases):
    ranks_of = None  # how many cases there were for so many ranks; None: each case runs with every number

    # Whether this case is for n ranks: the cases alternate.
    def turn(self, n):
        if self.ranks_of is None:
            return True
        self.ranks_of[n] = self.ranks_of.get(n, n) + 1
        return self.ranks_of[n] % 2 == 0

    def rank(self, name, *argv):
        return [self.program(f"tests/cuda/{name}"), *map(str, argv)]

    def launched(self, name, n, argv, timeout_s=120, **env):
        if self.turn(n):
            self.case(name, self.collrun(n, *argv), timeout_s, **env)

    # A rank fails between two launches, or in one: the others' streams drain, and their errors name it.
    def failure(self, how, n, seed):
        pick = random.Random(f"{how} {n} {seed}")
        victim, launches, small = pick.randrange(n), pick.randrange(2, 20), pick.choice([SMALL, {}])
        transport, queues = pick.choice(["shm,loop", "tcp"]), pick.choice(["1", "8"])
        name = f"{how} {n} seed {seed} {transport} queues {queues}"
        if not self.wanted(name):
            return
        ranks = self.ranks(n, self.rank("capture", how, launches, victim), SOFTCUDA_SEED=str(seed), COLL_TRANSPORTS=transport,
                           COLL_TIMEOUT_MS="2000", SOFTCUDA_QUEUES=queues, **small)
        text, right, worst, until = "", True, 0.0, time.monotonic() + 60
        for r in range(n):
            said = self.ended(ranks[r], until)
            text += f"-- rank {r} of {n}, rank {victim} fails\n" + said
            drain = re.search(r"took ([0-9.]+) s to drain", said)
            if r != victim or how == "abort":
                worst = max(worst, float(drain.group(1)) if drain else 60.0)
                right = right and ranks[r].returncode == 0 and drain is not None and float(drain.group(1)) < DRAIN_S
        self.say(f"{name}: drained in {worst:.3f} s", right, text)

    # Collectives that go direct in graphs.
    def direct(self, n, launches):
        every = self.rank("cuda_graphs", "kinds", launches)
        for queues, blocking in (("1", "0"), ("8", "0"), ("1", "1")):
            env = dict(SMALL, SOFTCUDA_QUEUES=queues, CUDA_LAUNCH_BLOCKING=blocking, SOFTCUDA_SEED="3")
            self.launched(f"every kind {n} queues {queues} blocking {blocking}", n, every, 300, **env)
        self.launched(f"every kind {n} staged", n, every, 300, COLL_DEVICE_DIRECT="0")
        self.case(f"every kind {n} threads", self.rank("cuda_graphs", "-t", n, "kinds", launches), 300, SOFTCUDA_QUEUES="32", **SMALL)
        self.case(f"every call {n} threads", self.rank("staged", "-g", "-t", n, 3, 1, 30), 300, SOFTCUDA_QUEUES="32")
        self.launched(f"long calls {n}", n, self.rank("staged", "-g", 17, 1, 20, 3000000), 300, STAGED_WANTED="direct", **SMALL)
        self.launched(f"one on the heels of another {n}", n, self.rank("cuda_graphs", "chase", 300))
        self.launched(f"groups that differ {n}", n, self.rank("cuda_graphs", "groups", 10), **SMALL)
        self.launched(f"groups on host memory {n}", n, self.rank("cuda_graphs", "together", 10), **SMALL)
        self.case(f"groups that differ {n} threads", self.rank("cuda_graphs", "-t", n, "groups", 10), 300, SOFTCUDA_QUEUES="32", **SMALL)
        self.launched(f"groups that differ {n} staged", n, self.rank("cuda_graphs", "groups", 10), COLL_DEVICE_DIRECT="0")
        for name in ("different", "absent"):
            self.launched(f"{name} {n}", n, self.rank("cuda_graphs", name), COLL_ARRIVAL_TIMEOUT_MS="1500")
        for seed in range(3):
            self.case(f"aborted {n + 2} threads {seed}", self.rank("cuda_graphs", "-t", n + 2, "aborted", 40), 300, SOFTCUDA_QUEUES="32",
                      SOFTCUDA_SEED=str(seed))
        for wanted in ("direct", "staged"):
            self.launched(f"way {n} {wanted}", n, self.rank("cuda_graphs", "way"), STAGED_WANTED=wanted,
                          COLL_DEVICE_DIRECT=str(int(wanted == "direct")))

    # Bytes of the library in host memory, by rank, for so many launches of each kind.
    def host_bytes(self, launches, **env):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "counts")
            subprocess.run(self.collrun(2, *self.rank("cuda_graphs", "bytes", launches)), env=dict(self.env, SOFTCUDA_COUNTS=path, **env),
                           stdout=subprocess.DEVNULL, check=True, timeout=120)
            rows = [line.split() for line in open(path)]
        return [sum(int(count) for pid, name, count in rows if name == what) for what in ("cuGraphLaunch", "host_bytes")]

    def crossings(self):
        name = "bytes in host memory"
        if not self.wanted(name):
            return
        few, many, staged = self.host_bytes(1), self.host_bytes(3), self.host_bytes(1, COLL_DEVICE_DIRECT="0")
        self.say(name, many[0] == 3 * few[0] > 0 and many[1] == few[1] < staged[1], f"{few} {many}, staged {staged}")

    def defects(self):
        for defect in DEFECTS:
            name, found = f"planted {defect}", False
            if not self.wanted(name):
                continue
            for seed in range(1, 9):
                env = dict(self.env, SOAK_PLANTED=defect, SOFTCUDA_SEED=str(seed))
                done = subprocess.run(self.collrun(3, *self.rank("cuda_graphs-planted", "chase", 300)), env=env, capture_output=True,
                                      text=True, timeout=120)
                found = found or done.returncode != 0
                if found:
                    break
            self.say(name, found, "not found")

    # One of each kind of case.
    def few(self):
        self.crossings()
        self.launched("every call 3", 3, self.rank("staged", "-g", 5, 1, 20))
        self.launched("every kind 3", 3, self.rank("cuda_graphs", "kinds", 4), SOFTCUDA_QUEUES="1", **SMALL)
        self.launched("every kind 2 staged", 2, self.rank("cuda_graphs", "kinds", 4), COLL_DEVICE_DIRECT="0")
        self.launched("groups that differ 3", 3, self.rank("cuda_graphs", "groups", 5), **SMALL)
        self.case("groups that differ 3 threads", self.rank("cuda_graphs", "-t", 3, "groups", 5), SOFTCUDA_QUEUES="32", **SMALL)
        self.launched("different 2", 2, self.rank("cuda_graphs", "different"), COLL_ARRIVAL_TIMEOUT_MS="1500")
        self.case("aborted 4 threads", self.rank("cuda_graphs", "-t", 4, "aborted", 10), SOFTCUDA_QUEUES="32")
        for name in ("several", "persistent", "overlapping", "crowded", "both-ways", "abandoned", "refused", "itself", "outliving", "last", "warm", "beside"):
            self.launched(f"{name} 2", 2, self.rank("capture", name, 10))
        for how in ("between", "during", "abort"):
            self.failure(how, 3, 0)

    def run(self, sizes, seeds, launches, kinds, failures):
        self.crossings()
        for n in sizes:
            for transport in ("shm,loop", "tcp"):
                for queues in ("1", "8"):
                    # tcp alone maps no device memory: then the calls are staged.
                    env = dict(COLL_TRANSPORTS=transport, SOFTCUDA_QUEUES=queues, SOFTCUDA_SEED="7")
                    where = f"{n} {transport} queues {queues}"
                    first = random.Random(where).randrange(1000)
                    wanted = "staged" if transport == "tcp" else "direct"
                    self.launched(f"every call {where}", n, self.rank("staged", "-g", first, seeds, 20), 900, STAGED_WANTED=wanted, **env)
                    self.launched(f"several {where}", n, self.rank("capture", "several", 5), **env)
            self.direct(n, kinds)
            for how, env in (("", {}), (" staged", {"COLL_DEVICE_DIRECT": "0"}), (" tcp", {"COLL_TRANSPORTS": "tcp"})):
                self.launched(f"persistent {n}{how}", n, self.rank("capture", "persistent", launches), 300, **env)
            for name in ("overlapping", "crowded", "both-ways", "abandoned", "refused", "itself", "outliving", "last", "warm", "beside"):
                self.launched(f"{name} {n}", n, self.rank("capture", name, 10))
            self.launched(f"crowded {n} staged", n, self.rank("capture", "crowded"), COLL_DEVICE_DIRECT="0")
            self.launched(f"without a thread {n}", n, self.rank("capture", "refused"), COLL_PROGRESS="off")
            for seed in range(failures):
                for how in ("between", "during", "abort"):
                    self.failure(how, n, seed)


def main():
    if len(sys.argv) < 3 or sys.argv[2] not in ("few", "suite", "planted", "soak"):
        sys.exit(__doc__)
    suite = Suite(sys.argv[1], sys.argv[3] if len(sys.argv) > 3 else None)
    if sys.argv[2] == "few":
        suite.few()
    elif sys.argv[2] == "suite":
        suite.ranks_of = {}
        suite.run((2, 3), 1, 500, 40, 1)
    elif sys.argv[2] == "planted":
        suite.defects()
    else:
        suite.defects()
        suite.run((2, 3, 5), 20, 1000, 1000, 20)
    print(f"{suite.passed} passed, {suite.failed} failed, 0 skipped")
    sys.exit(suite.failed > 0 or suite.passed == 0)


main()
