#!/usr/bin/env python3
"""Calls captured into graphs, on the stand-in driver: every kind of call, many launches, lives and failures.

usage: capture.py BUILD-DIRECTORY suite|soak [ONLY]

  suite  ranks 2 and 3, shm and tcp, one and eight hardware queues (1 minute)
  soak   ranks 2, 3 and 5, more seeds and launches, 60 failures (half an hour)
  ONLY   the cases whose name has this text

The last line is `N passed, N failed, N skipped`.
"""
import random
import re
import sys
import time

from cases import Cases

# How long a survivor's stream may take to drain.
DRAIN_S = 2.0


class Suite(Cases):
    def rank(self, name, *argv):
        return [self.program(f"tests/cuda/{name}"), *map(str, argv)]

    def launched(self, name, n, argv, timeout_s=120, **env):
        self.case(name, self.collrun(n, *argv), timeout_s, **env)

    # A rank fails between two launches, or in one: the others' streams drain, and their errors name it.
    def failure(self, how, n, seed):
        pick = random.Random(f"{how} {n} {seed}")
        victim, launches = pick.randrange(n), pick.randrange(2, 20)
        transport, queues = pick.choice(["shm,loop", "tcp"]), pick.choice(["1", "8"])
        name = f"{how} {n} seed {seed} {transport} queues {queues}"
        if not self.wanted(name):
            return
        ranks = self.ranks(n, self.rank("capture", how, launches, victim), SOFTCUDA_SEED=str(seed), COLL_TRANSPORTS=transport,
                           COLL_TIMEOUT_MS="2000", SOFTCUDA_QUEUES=queues)
        text, right, worst, until = "", True, 0.0, time.monotonic() + 60
        for r in range(n):
            said = self.ended(ranks[r], until)
            text += f"-- rank {r} of {n}, rank {victim} fails\n" + said
            drain = re.search(r"took ([0-9.]+) s to drain", said)
            if r != victim or how == "abort":
                worst = max(worst, float(drain.group(1)) if drain else 60.0)
                right = right and ranks[r].returncode == 0 and drain is not None and float(drain.group(1)) < DRAIN_S
        self.say(f"{name}: drained in {worst:.3f} s", right, text)

    def run(self, sizes, seeds, launches, failures):
        for n in sizes:
            for transport in ("shm,loop", "tcp"):
                for queues in ("1", "8"):
                    # Calls of a graph are staged, and plans of three ranks round otherwise than direct calls.
                    env = dict(COLL_DEVICE_DIRECT=str(int(n == 2)), COLL_TRANSPORTS=transport, SOFTCUDA_QUEUES=queues, SOFTCUDA_SEED="7")
                    where = f"{n} {transport} queues {queues}"
                    first = random.Random(where).randrange(1000)
                    self.launched(f"every call {where}", n, self.rank("staged", "-g", first, seeds, 20), 900, **env)
                    self.launched(f"several {where}", n, self.rank("capture", "several", 5), **env)
            self.launched(f"persistent {n}", n, self.rank("capture", "persistent", launches), 300)
            for name in ("overlapping", "abandoned", "refused", "itself", "outliving", "last", "warm", "beside"):
                self.launched(f"{name} {n}", n, self.rank("capture", name, 10))
            self.launched(f"without a thread {n}", n, self.rank("capture", "refused"), COLL_PROGRESS="off")
            for seed in range(failures):
                for how in ("between", "during", "abort"):
                    self.failure(how, n, seed)


def main():
    if len(sys.argv) < 3 or sys.argv[2] not in ("suite", "soak"):
        sys.exit(__doc__)
    suite = Suite(sys.argv[1], sys.argv[3] if len(sys.argv) > 3 else None)
    if sys.argv[2] == "suite":
        suite.run((2, 3), 1, 1000, 1)
    else:
        suite.run((2, 3, 5), 20, 1000, 20)
    print(f"{suite.passed} passed, {suite.failed} failed, 0 skipped")
    sys.exit(suite.failed > 0 or suite.passed == 0)


main()
