#!/usr/bin/env python3
"""Staged calls on the stand-in driver: random scripts, perf programs, deaths.

usage: staged.py BUILD-DIRECTORY suite|soak [ONLY]

  suite  ranks 2 and 3, shm and tcp, one and eight hardware queues, threads, deaths (2 minutes)
  soak   more ranks, types and operations, 10 000 seeds, 300 deaths (two hours)
  ONLY   the cases whose name has this text

The last line is `N passed, N failed, N skipped`.
"""
import os
import signal
import subprocess
import sys
import tempfile
import time

PERF = ["allreduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter",
        "sendrecv", "barrier"]
ENQUEUE = {"cuLaunchKernel", "cuStreamWaitValue32", "cuStreamWriteValue32", "cuStreamBatchMemOp", "cuMemcpyAsync",
           "cuEventRecord", "cuStreamWaitEvent"}


# A defect, and the test that finds it.
PLANTED = [("none", "behind_work"), ("late-kernel", "behind_work"), ("pageable-copy", "behind_work"),
           ("late-stream", "behind_work"), ("host-touch", "behind_work"), ("stale-words", "two_communicators"),
           ("none", "two_communicators")]


# Every second rank is on another host, or has no device.
HOSTS = "export COLL_HOST_ID=$((COLL_RANK % 2));"
DEVICES = 'if [ $((COLL_RANK % 2)) = 0 ]; then set -- "$@" --device host; else set -- "$@" --device cuda; fi;'


class Suite:
    def __init__(self, build, soak, only):
        self.build, self.soak, self.only = os.path.abspath(build), soak, only
        self.passed = self.failed = 0
        self.begun = time.monotonic()
        self.env = dict(os.environ, COLL_CUDA_LIBRARY=f"{self.build}/tests/softcuda/libcuda.so.1",
                        COLL_DEVICE="cuda", COLL_DEVICE_DIRECT="0", COLL_ARRIVAL_TIMEOUT_MS="20000", COLL_TIMEOUT_MS="10000")

    def program(self, name):
        return f"{self.build}/{name}"

    def collrun(self, n, *argv):
        return [self.program("tools/collrun"), "-n", str(n), *argv]

    def staged(self, *argv):
        return [self.program("tests/cuda/staged"), *map(str, argv)]

    def say(self, name, ok, text=""):
        print(("ok    " if ok else "FAIL  ") + f"{name}, {time.monotonic() - self.begun:.1f} s", flush=True)
        self.begun = time.monotonic()
        if not ok:
            print("\n".join(text.splitlines()[-25:]), flush=True)
        self.passed += ok
        self.failed += not ok

    def wanted(self, name):
        return not self.only or self.only in name

    def case(self, name, argv, timeout_s=120, **env):
        if not self.wanted(name):
            return
        try:
            done = subprocess.run(argv, env=dict(self.env, **env), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, timeout=timeout_s)
            self.say(name, done.returncode == 0, done.stdout)
        except subprocess.TimeoutExpired as e:
            self.say(name, False, f"still running after {timeout_s} s\n" + str(e.stdout or "")[-2000:])

    # The driver is found at run time, if at all.
    def needed(self):
        name = "libcoll.so needs no CUDA library"
        if self.wanted(name):
            text = subprocess.run(["readelf", "-d", self.program("src/libcoll.so")], stdout=subprocess.PIPE, text=True, check=True).stdout
            rows = [line for line in text.splitlines() if "(NEEDED)" in line]
            self.say(name, len(rows) > 0 and not any("cuda" in row or "nv" in row for row in rows), text)

    # Defects of the library, each of which a part of the program `queues` must find.
    def planted(self):
        for defect, part in PLANTED:
            name = f"planted {defect}"
            if not self.wanted(name):
                continue
            child = subprocess.Popen([self.program("tests/cuda/cuda_queues-planted"), self.env["COLL_CUDA_LIBRARY"], part],
                                     env=dict(self.env, SOAK_PLANTED=defect), stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT, text=True, start_new_session=True)
            try:
                told = child.communicate(timeout=30)[0]
                found = "FAIL " in told and " 1 failed" in told
            except subprocess.TimeoutExpired:  # a program that does not end is found, too
                os.killpg(child.pid, signal.SIGKILL)
                told, found = child.communicate()[0] + "\nstill running", True
            self.say(name, found != (defect == "none") and (found or child.returncode == 0), told)

    # Calls of the driver by one rank, by entry point, in a run with so many iterations.
    def counts(self, iterations):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "counts")
            subprocess.run(self.collrun(2, self.program("bench/allreduce_perf"), "--device", "cuda", "-b", "64", "-e", "64", "-n",
                                        str(iterations), "-w", "10", "-c", "0"),
                           env=dict(self.env, SOFTCUDA_COUNTS=path), stdout=subprocess.DEVNULL, check=True, timeout=120)
            rows = [line.split() for line in open(path)]
        return {name: int(count) for pid, name, count in rows if pid == rows[0][0] and name != "host_bytes"}

    # In and out of place, a loop for the mean and one for the percentiles: 100 iterations are 400 calls.
    def driver_calls(self):
        name = "driver calls of a small call"
        if not self.wanted(name):
            return
        few, many = self.counts(100), self.counts(200)
        more = {k: (many[k] - few.get(k, 0)) / 400 for k in many if many[k] != few.get(k, 0)}
        asks = sum(v for k, v in more.items() if "Get" in k or "Query" in k or "Capturing" in k)
        puts = sum(v for k, v in more.items() if k in ENQUEUE)
        # What a watching thread asks now and then differs between the runs.
        other = [k for k, v in more.items() if v > 0.05 and k not in ENQUEUE and not ("Get" in k or "Query" in k or "Capturing" in k)]
        # The exchange of numbers before a loop is not counted out: a call in a hundred.
        self.say(name, 0 < puts < 5.1 and asks < 5.1 and not other, str(more))

    # Ranks that are killed, stopped or abort.
    def deaths(self, events, seed, timeout_s):
        self.case(f"{events} deaths", [self.program("tests/cuda/cuda_death"), self.env["COLL_CUDA_LIBRARY"], str(events), str(seed)],
                  timeout_s)

    # An own choice by the number of the rank.
    def by_rank(self, shell, n, *argv):
        return self.collrun(n, "sh", "-c", shell + ' exec "$@"', "sh", *argv)

    def short(self):
        for n in (2, 3):
            self.case(f"scripts shm {n}", self.collrun(n, *self.staged(1, 10, 40)), SOFTCUDA_SEED="1")
            self.case(f"scripts tcp {n}", self.collrun(n, *self.staged(20, 5, 40)), COLL_TRANSPORTS="tcp",
                      SOFTCUDA_SEED="2")
            self.case(f"scripts one queue {n}", self.collrun(n, *self.staged(40, 5, 40)), SOFTCUDA_QUEUES="1",
                      SOFTCUDA_SEED="3")
            self.case(f"allreduce_perf {n}", self.collrun(n, self.program("bench/allreduce_perf"), "--device", "cuda", "-b",
                                                          "0", "-e", "64K", "-f", "7", "-n", "1", "-w", "0"))
        self.case("scripts threads 2", self.staged("-t", 2, 60, 5, 40), SOFTCUDA_QUEUES="32")
        self.case("scripts blocking launches", self.collrun(2, *self.staged(80, 3, 40)), CUDA_LAUNCH_BLOCKING="1")
        self.case("all_to_all_perf 3", self.collrun(3, self.program("bench/all_to_all_perf"), "--device", "cuda", "-b", "0",
                                                    "-e", "64K", "-f", "7", "-n", "1", "-w", "0"))
        self.driver_calls()
        self.needed()
        self.planted()

    def long(self):
        for n in (1, 2, 3, 5, 8):
            table = ["--device", "cuda", "-n", "1", "-w", "0"]
            self.case(f"all types {n}", self.collrun(n, self.program("bench/allreduce_perf"), *table, "-b", "0", "-e", "64K",
                                                     "-f", "7", "-d", "all", "-o", "all"), 1800)
            self.case(f"16 MiB {n}", self.collrun(n, self.program("bench/allreduce_perf"), *table, "-b", "64K", "-e", "16M",
                                                  "-f", "4"), 600)
            perf = [self.program("bench/allreduce_perf"), *table, "-b", "0", "-e", "64K", "-f", "7"]
            for kind in (["-d", "float", "-o", "sum"], ["-d", "int8", "-o", "max"]):
                self.case(f"{kind[1]} one queue {n}", self.collrun(n, *perf, *kind), 600, SOFTCUDA_QUEUES="1")
                self.case(f"{kind[1]} tcp {n}", self.collrun(n, *perf, *kind), 600, COLL_TRANSPORTS="tcp")
                if n > 1:
                    self.case(f"{kind[1]} mixed hosts {n}", self.by_rank(HOSTS, n, *perf, *kind), 600)
            self.case(f"unaligned {n}", self.collrun(n, *perf, "-u", "1", "-d", "bfloat16"), 600)
            if n > 1:
                self.case(f"device beside host {n}", self.by_rank(DEVICES, n, perf[0], *perf[3:]), 600)
            for program in PERF[1:]:
                self.case(f"{program} {n}", self.collrun(n, self.program(f"bench/{program}_perf"), *table, "-b", "0", "-e",
                                                         "64K", "-f", "7", "-d", "bfloat16"), 600)
            for transport in ("shm,loop", "tcp"):
                for queues in ("1", "8"):
                    self.case(f"scripts {transport} {n} queues {queues}", self.collrun(n, *self.staged(1000, 20, 40)), 900,
                              COLL_TRANSPORTS=transport, SOFTCUDA_QUEUES=queues, SOFTCUDA_SEED="5")
        for n in (2, 3):
            for queues in ("1", "8"):
                for first in range(0, 2500, 250):
                    self.case(f"seeds {n} queues {queues} from {first}", self.collrun(n, *self.staged(first, 250, 40)), 1800,
                              SOFTCUDA_QUEUES=queues, SOFTCUDA_SEED=str(first + 1))
            self.case(f"scripts threads {n}", self.staged("-t", n, 1, 100, 40), 900, SOFTCUDA_QUEUES="32")
        self.deaths(300, 1, 1800)


def main():
    if len(sys.argv) < 3 or sys.argv[2] not in ("suite", "soak"):
        sys.exit(__doc__)
    suite = Suite(sys.argv[1], sys.argv[2] == "soak", sys.argv[3] if len(sys.argv) > 3 else None)
    suite.long() if suite.soak else suite.short()
    print(f"{suite.passed} passed, {suite.failed} failed, 0 skipped")
    sys.exit(suite.failed > 0 or suite.passed == 0)


main()
