#!/usr/bin/env python3
"""Staged calls on the stand-in driver: random scripts, perf programs, deaths.

usage: staged.py BUILD-DIRECTORY few|suite|planted|soak [ONLY [SEEDS]]

  few    one of each kind, for builds with sanitizers
  suite  48 seeds of a fixed script, random scripts: ranks 2 and 3, shm and tcp (1 minute)
  planted  defects of the library that must be found
  soak   seeds: SEEDS of the fixed script (10 000); death: 300 events; matrix: ranks, types, operations, transports,
         hosts, threads; scripts: random ones (an hour in all)
  ONLY   the cases whose name has this text

The last line is `N passed, N failed, N skipped`.
"""
import os
import subprocess
import sys

from cases import PERF, Cases

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "multi"))
from apart import NAMESPACES, apart, two_namespaces  # noqa: E402
from job import free_port  # noqa: E402

# A defect, and the test that finds it.
PLANTED = [("none", "behind_work"), ("late-kernel", "behind_work"), ("pageable-copy", "behind_work"),
           ("late-stream", "behind_work"), ("host-touch", "behind_work"), ("stale-words", "in_a_row"), ("none", "in_a_row")]


# Every second rank is on another host, or has no device.
HOSTS = "export COLL_HOST_ID=$((COLL_RANK % 2));"
DEVICES = 'if [ $((COLL_RANK % 2)) = 0 ]; then set -- "$@" --device host; else set -- "$@" --device cuda; fi;'


class Suite(Cases):
    def __init__(self, build, only):
        super().__init__(build, only, COLL_DEVICE_DIRECT="0")
        self.skipped = 0

    # The driver is found at run time, if at all.
    def needed(self):
        name = "libcoll.so needs no CUDA library"
        if self.wanted(name):
            text = subprocess.run(["readelf", "-d", self.program("src/libcoll.so")], stdout=subprocess.PIPE, text=True, check=True).stdout
            rows = [line for line in text.splitlines() if "(NEEDED)" in line]
            self.say(name, len(rows) > 0 and not any("cuda" in row or "nv" in row for row in rows), text)

    # Defects of the library, each of which a part of the program `queues` must find, and soon.
    def planted(self):
        for defect, part in PLANTED:
            self.case(f"planted {defect}", [self.program("tests/cuda/cuda_queues-planted"), self.env["COLL_CUDA_LIBRARY"], part], 60,
                      fails=defect != "none", SOAK_PLANTED=defect)

    # Ranks that are killed, stopped or abort.
    def deaths(self, events, seed, timeout_s):
        self.case(f"{events} deaths, seed {seed}",
                  [self.program("tests/cuda/cuda_death"), self.env["COLL_CUDA_LIBRARY"], str(events), str(seed)], timeout_s)

    # An own choice by the number of the rank.
    def by_rank(self, shell, n, *argv):
        return self.collrun(n, "sh", "-c", shell + ' exec "$@"', "sh", *argv)

    # Ranks in two network namespaces by turns.
    def in_namespaces(self, name, n, argv, timeout_s):
        of = [f"COLL_RANK={r} COLL_HOST_ID={r % 2} ip netns exec {os.path.basename(NAMESPACES)}{r % 2} \"$@\" & p{r}=$!" for r in range(n)]
        ends = [f"wait $p{r} || s=1" for r in range(n)]
        self.case(name, ["sh", "-c", "; ".join(of + ends + ["exit ${s:-0}"]), "sh", *argv], timeout_s,
                  COLL_ROOT=f"10.91.7.1:{free_port()}", COLL_JOB_KEY=os.urandom(16).hex(), COLL_SIZE=str(n))

    # One of each kind of case.
    def few(self):
        self.seeds(8, 2)
        for transport in ("shm,loop", "tcp"):
            self.case(f"scripts {transport} 3", self.collrun(3, *self.scripts(20, 1, 40)), COLL_TRANSPORTS=transport, SOFTCUDA_SEED="2")
        self.case("types and operations", self.collrun(2, *self.scripts("-a", 90, 1, 1)))
        self.case("scripts threads 3", self.scripts("-t", 3, 60, 1, 40), SOFTCUDA_QUEUES="32")

    def short(self):
        self.seeds(48, 12)
        for n in (2, 3):
            self.cases([(f"scripts shm {n}", self.collrun(n, *self.scripts(1, 4, 40)), dict(SOFTCUDA_SEED="1")),
                        (f"scripts tcp {n}", self.collrun(n, *self.scripts(20, 4, 40)),
                         dict(COLL_TRANSPORTS="tcp", SOFTCUDA_SEED="2"))])
            self.case(f"allreduce_perf {n}", self.collrun(n, self.program("bench/allreduce_perf"), "--device", "cuda", "-b",
                                                          "0", "-e", "64K", "-f", "7", "-n", "1", "-w", "0"))
        self.cases([("types and operations", self.collrun(2, *self.scripts("-a", 90, 1, 1)), {}),
                    ("scripts blocking launches", self.collrun(2, *self.scripts(80, 3, 40)), dict(CUDA_LAUNCH_BLOCKING="1"))])
        self.case("all_to_all_perf 3", self.collrun(3, self.program("bench/all_to_all_perf"), "--device", "cuda", "-b", "0",
                                                    "-e", "64K", "-f", "7", "-n", "1", "-w", "0"))
        for program in PERF[:-1]:
            self.ways(program, "staged")
        self.driver_calls()
        self.needed()

    # Ranks, types, operations, transports, hosts, kinds of memory.
    def matrix(self, n):
        every = ["-b", "0", "-e", "64K", "-f", "7"]
        table = ["--device", "cuda", "-n", "1", "-w", "0", *every]
        perf = [self.program("bench/allreduce_perf"), *table]
        self.case(f"matrix {n}: every type and operation", self.collrun(n, *perf, "-d", "all", "-o", "all"), 1800)
        self.case(f"matrix {n}: bits of host calls", self.collrun(n, *self.scripts("-a", 1, 1, 1)), 600, SOFTCUDA_SEED="3")
        for kind in (["-d", "float", "-o", "sum"], ["-d", "int8", "-o", "max"]):
            what = f"{kind[1]} {kind[3]}"
            self.case(f"matrix {n}: {what}, one queue", self.collrun(n, *perf, *kind), 600, SOFTCUDA_QUEUES="1")
            self.case(f"matrix {n}: {what}, tcp", self.collrun(n, *perf, *kind), 600, COLL_TRANSPORTS="tcp")
            if n > 1:
                self.case(f"matrix {n}: {what}, mixed hosts", self.by_rank(HOSTS, n, *perf, *kind), 600)
            if n > 1 and self.namespaces:
                self.in_namespaces(f"matrix {n}: {what}, two namespaces", n, [*perf, *kind], 600)
        self.case(f"matrix {n}: to 16 MiB", self.collrun(n, *perf[:7], "-b", "64K", "-e", "16M", "-f", "4"), 600)
        self.case(f"matrix {n}: misaligned", self.collrun(n, *perf, "-u", "1", "-d", "bfloat16"), 600)
        if n > 1:
            self.case(f"matrix {n}: device beside host", self.by_rank(DEVICES, n, perf[0], *perf[3:]), 600)
        for program in PERF[1:]:
            reduces = "reduce" in program
            self.case(f"matrix {n}: {program}", self.collrun(n, self.program(f"bench/{program}_perf"), *table, "-d",
                                                             "all" if reduces else "bfloat16", *(["-o", "all"] if reduces else [])), 1200)

    def long(self, seeds):
        self.seeds(seeds, 250)
        for seed in (1, 2):
            self.deaths(150, seed, 900)
        self.namespaces = two_namespaces()
        if not self.namespaces:
            print("skip  no network namespaces here: mixed hosts by COLL_HOST_ID alone")
            self.skipped += 1
        for n in (1, 2, 3, 5, 8):
            self.matrix(n)
        for n in (2, 3):
            self.case(f"matrix {n} threads: bits of host calls", self.scripts("-a", "-t", n, 1, 3, 1), 900, SOFTCUDA_QUEUES="32",
                      SOFTCUDA_SEED="4")
            self.case(f"scripts threads {n}", self.scripts("-t", n, 1, 100, 40), 900, SOFTCUDA_QUEUES="32")
        for n in (1, 2, 3, 5, 8):
            for transport in ("shm,loop", "tcp"):
                for queues in ("1", "8"):
                    self.case(f"scripts {transport} {n} queues {queues}", self.collrun(n, *self.scripts(1000, 20, 40)), 900,
                              COLL_TRANSPORTS=transport, SOFTCUDA_QUEUES=queues, SOFTCUDA_SEED="5")


def main():
    if len(sys.argv) < 3 or sys.argv[2] not in ("few", "suite", "planted", "soak"):
        sys.exit(__doc__)
    if sys.argv[2] == "soak":
        apart()
    suite = Suite(sys.argv[1], sys.argv[3] if len(sys.argv) > 3 else None)
    if sys.argv[2] == "soak":
        suite.long(int(sys.argv[4]) if len(sys.argv) > 4 else 10000)
    else:
        {"few": suite.few, "suite": suite.short, "planted": suite.planted}[sys.argv[2]]()
    print(f"{suite.passed} passed, {suite.failed} failed, {suite.skipped} skipped")
    sys.exit(suite.failed > 0 or suite.passed == 0)


main()
