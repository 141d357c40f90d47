#!/usr/bin/env python3
"""Direct calls on the stand-in driver: random scripts, programs, deaths, and what crosses host memory.

usage: mapped.py BUILD-DIRECTORY few|suite|planted|soak [ONLY]

  few    one of each kind, for builds with sanitizers
  suite  2 to 4 ranks as processes and threads, one and several devices, fallbacks, deaths (a minute)
  planted  defects of the library that must be found
  soak   more ranks, 10 000 seeds, 300 deaths (two hours)
  ONLY   the cases whose name has this text

The last line is `N passed, N failed, N skipped`.
"""
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

from cases import PERF, Cases

THREADS = {"SOFTCUDA_QUEUES": "32"}
# Settings under which the memory is shared in another way, or not at all, and what the calls then are.
WAYS = [("handles", {"SOFTCUDA_NO_VMM": "1"}, "direct"),
        ("no handles", {"SOFTCUDA_NO_VMM": "1", "SOFTCUDA_OTHER_PID_NS": "1"}, "staged"),
        ("descriptors in other namespaces", {"SOFTCUDA_OTHER_PID_NS": "1"}, "direct"),
        ("no export", {"SOFTCUDA_MISSING": "cuMemExportToShareableHandle"}, "direct"),
        ("no batches", {"SOFTCUDA_MISSING": "cuStreamBatchMemOp"}, "direct"),
        ("switched off", {"COLL_DEVICE_DIRECT": "0"}, "staged"),
        ("an alias", {"SOFTCUDA_HOST_ALIAS": "1"}, "direct"),
        ("two devices", {"SOFTCUDA_DEVICES": "2"}, "direct"),
        ("another path of shm", {"COLL_INTRA": "0"}, "direct")]


# Origins of records.c, what explain says of long calls on buffers of that origin, and the settings.
SMALL = {"COLL_DEVICE_SLOT_BYTES": "128K"}  # calls of many tiles
STEADY = [("library", 3, "in-place", {}), ("exportable", 1, "in-place", {}), ("plain", 0, "cuMemAlloc", {}),
          ("private", 2, "cannot be exported", {}), ("library without mapping", 3, "cuMemAlloc", {"SOFTCUDA_NO_VMM": "1"}),
          ("no export", 3, "cuMemAlloc", {"SOFTCUDA_MISSING": "cuMemExportToShareableHandle"}),
          ("library in other namespaces", 3, "in-place", {"SOFTCUDA_OTHER_PID_NS": "1"})]
STEADY_THREADS = [("plain", 0, "in-place", {}), ("private", 2, "in-place", {}),
                  ("plain on 3 devices", 0, "in-place", {"SOFTCUDA_DEVICES": "3", "COLL_DEVICE": "cuda:0,1,2"}),
                  ("exportable on 3 devices", 1, "in-place", {"SOFTCUDA_DEVICES": "3", "COLL_DEVICE": "cuda:0,1,2"}),
                  ("private on 3 devices", 2, "cannot be exported", {"SOFTCUDA_DEVICES": "3", "COLL_DEVICE": "cuda:0,1,2"})]
DEFECTS = [("early-record",), ("no-tail",), ("stale-region",), ("wrong-offset",), ("wrong-offset", "-g"), ("kept-in-place",)]


class Suite(Cases):
    def case(self, name, argv, env=None, timeout_s=120, wanted="direct"):
        self.cases([(name, argv, dict(env or {}, STAGED_WANTED=wanted))], timeout_s)

    # Buffers come and go, and what a process maps does not grow with them: its slots and those of the other ranks.
    def mappings(self):
        name = "mappings of small buffers"
        if not self.wanted(name):
            return
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "counts")
            done = subprocess.run([self.program("tests/cuda/cuda_mapped"), "processes"], env=dict(self.env, SOFTCUDA_COUNTS=path),
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
            rows = [line.split() for line in open(path)]
        mapped = [int(count) for pid, name, count in rows if name in ("cuMemMap", "cuIpcOpenMemHandle")]
        # Of two ranks in each of two processes: slots (6), buffers (4), and buffers of three others (12).
        self.say(name, done.returncode == 0 and len(mapped) >= 2 and max(mapped) <= 22, f"{rows}\n{done.stdout}")

    # Ranks that are threads: 4 devices in one process, 2 processes with 2 devices each.
    def perf(self, every):
        for n, kind in enumerate(PERF):
            argv = [self.program(f"bench/{kind}_perf"), "--device", "cuda", "-b", "0", "-e", "64K", "-f", "16", "-n", "1",
                    "-w", "0"]
            self.case(f"{kind}_perf -g 4", [*argv, "-g", "4"], {"SOFTCUDA_DEVICES": "4"})
            if n < 2 or every:
                self.case(f"{kind}_perf 2 -g 2", self.collrun(2, *argv, "-g", "2"), {"SOFTCUDA_DEVICES": "2"})

    # The links of a saved machine give another ring than rank order. Every process of a host sees it.
    def ring(self):
        name = "a ring of GPUs"
        machine = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "machines", "four-gpus-crossed.xml")
        at = ["0000:11:00.0", "0000:21:00.0", "0000:31:00.0", "0000:41:00.0"]
        links = {"HWLOC_XMLFILE": machine, "SOFTCUDA_DEVICES": "4", "SOFTCUDA_PCI": ",".join(at), "SOFTCUDA_QUEUES": "32"}
        for case, env, wanted in (("links", links, "ring of GPUs: 0 2 1 3; slowest step: link of GPUs"),
                                  ("in order", dict(links, CUDA_VISIBLE_DEVICES="0,2,1,3"), "rank order: no ring of GPUs is better"),
                                  ("an unknown GPU", dict(links, SOFTCUDA_PCI=""), "rank order: hwloc does not list these GPUs"),
                                  ("one device", dict(links, SOFTCUDA_DEVICES="1"), "rank order: one device")):
            if self.wanted(f"{name}: {case}"):
                done = subprocess.run(self.collrun(4, self.program("tools/coll-info")), env=dict(self.env, **env), text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
                self.say(f"{name}: {case}", done.returncode == 0 and f"device memory of the ranks: mapped by descriptors; {wanted}"
                         in done.stdout and f"device-direct (device memory mapped by descriptors; {wanted}" in done.stdout, done.stdout)
        self.case(f"{name}: scripts 4", self.collrun(4, *self.scripts(300, 2, 40)), links)
        self.case(f"{name}: long scripts 4", self.collrun(4, *self.scripts(310, 1, 20, 3000000)), links)
        self.case(f"{name}: scripts threads 4", self.scripts("-t", 4, 320, 2, 40), dict(links, COLL_DEVICE="cuda:0,1,2,3"))

    # coll-info names what a driver lacks, beside the driver and beside the device.
    # This driver takes the PTX of every compiler.
    def abilities(self):
        for missing, lacks in (("", ""), ("cuStreamBatchMemOp", "batch"), ("cuMemCreate,cuIpcOpenMemHandle", "vmm ipc"),
                               ("cuUserObjectCreate", "capture")):
            name = f"coll-info names what is missing: {lacks or 'nothing'}"
            if not self.wanted(name):
                continue
            env = dict(self.env, SOFTCUDA_MISSING=missing, SOFTCUDA_DRIVER_VERSION="99090")
            done = subprocess.run([self.program("tools/coll-info")], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  timeout=120)
            without, lines = f", without {lacks}" if lacks else "", done.stdout.splitlines()
            device = "softcuda device 0 (no GPU)"
            wanted = [f"cuda devices: 1, driver {env['COLL_CUDA_LIBRARY']} for CUDA 99.9{without}",
                      f"  cuda:0 {device}, compute capability 9.0", f"device of rank 0: cuda:0, {device}, driver 99.9{without}"]
            self.say(name, done.returncode == 0 and all(line in lines for line in wanted), "\n".join(lines[:20]))

    def host_bytes(self):
        for size in ("256K", "1M", "4M"):
            name = f"bytes in host memory of {size}"
            if not self.wanted(name):
                continue
            few, many = self.counts(1, size, "2"), self.counts(3, size, "2")
            self.say(name, many["cuLaunchKernel"] > few["cuLaunchKernel"] and many["host_bytes"] == few["host_bytes"],
                     f"{few} {many}")

    # A rank is killed at a random moment: the others end by an error that names it.
    def death(self, seed):
        name = f"death {seed}"
        if not self.wanted(name):
            return
        pick = random.Random(seed)
        n, victim, most = 3, pick.randrange(3), pick.choice([800000, 3000000])
        ranks = self.ranks(n, self.scripts(seed, 100000, 40, most), COLL_TIMEOUT_MS="2000", SOFTCUDA_SEED=str(seed),
                           STAGED_BEGUN="1", SOFTCUDA_QUEUES=pick.choice(["1", "8"]), **pick.choice(WAYS[:1] + [("", {}, "")])[1])
        for rank in ranks:
            rank.stdout.readline()
        time.sleep(2 * pick.random())
        ranks[victim].send_signal(signal.SIGKILL)
        killed = time.monotonic()
        text = "".join(f"-- rank {r}\n" + self.ended(ranks[r], killed + 20) for r in range(n))
        late = time.monotonic() - killed
        named = sum(f"rank {victim} " in part and "dead or unreachable" in part for part in text.split("-- rank ")[1:])
        self.say(name, named == n - 1 and late < 10, f"{late:.1f} s\n{text}")

    def records(self, *argv, planted=False):
        return [self.program("tests/cuda/cuda_records" + ("-planted" if planted else "")), *map(str, argv)]

    def in_place(self):
        for name, origin, wanted, env in STEADY:
            self.case(f"in place {name}", self.collrun(2, *self.records("-s", 1, 1, 16)),
                      dict(SMALL, RECORDS_ORIGIN=str(origin), RECORDS_WANTED=wanted, **env))
        for name, origin, wanted, env in STEADY_THREADS:
            self.case(f"in place threads {name}", self.records("-t", 3, "-s", 1, 1, 16),
                      dict(THREADS, RECORDS_ORIGIN=str(origin), RECORDS_WANTED=wanted, **env))

    # A defect that was planted is found: a result is wrong, a kernel faults, or a stream does not end.
    def defects(self):
        for defect, *mode in DEFECTS:
            name = " ".join(["planted", defect, *mode])
            if not self.wanted(name):
                continue
            found = False
            for seed in range(1, 9):
                env = dict(self.env, **SMALL, SOAK_PLANTED=defect, SOFTCUDA_SEED=str(seed))
                done = subprocess.run(self.collrun(2, *self.records(*mode, seed, 1, 40, planted=True)), env=env, capture_output=True,
                                      text=True, timeout=120)
                found = done.returncode != 0
                if found:
                    break
            self.say(name, found, "not found")

    def programs(self):
        for queues, blocking in (("8", "0"), ("1", "1")):
            self.case(f"programs queues {queues} blocking {blocking}", [self.program("tests/cuda/cuda_mapped")],
                      {"SOFTCUDA_QUEUES": "32" if queues == "8" else "1", "CUDA_LAUNCH_BLOCKING": blocking,
                       "COLL_PROGRESS": "on"})

    # One of each kind of case.
    def few(self):
        self.case("programs", [self.program("tests/cuda/cuda_mapped")], {"SOFTCUDA_QUEUES": "1", "COLL_PROGRESS": "on"})
        self.case("scripts one queue 3", self.collrun(3, *self.scripts(40, 1, 40)), {"SOFTCUDA_QUEUES": "1", "SOFTCUDA_SEED": "3"})
        self.case("long scripts 2", self.collrun(2, *self.scripts(20, 1, 20, 3000000)))
        self.case("scripts threads 3", self.scripts("-t", 3, 60, 1, 40), THREADS)
        self.case("scripts handles", self.collrun(2, *self.scripts(90, 1, 30)), {"SOFTCUDA_NO_VMM": "1"})
        self.case("records 2", self.collrun(2, *self.records(1, 1, 24)), SMALL)
        self.case("records groups threads", self.records("-t", 3, "-g", 5, 1, 20), dict(THREADS, **SMALL))
        self.case("records many buffers", self.collrun(2, *self.records("-m", 1, 1, 20)))
        self.case("in place", self.collrun(2, *self.records("-s", 1, 1, 16)), dict(SMALL, RECORDS_ORIGIN="3", RECORDS_WANTED="in-place"))
        self.death(1)

    def short(self):
        self.programs()
        for n in (2, 3):
            self.case(f"scripts {n}", self.collrun(n, *self.scripts(1, 3, 40)), {"SOFTCUDA_SEED": "1"})
            self.case(f"scripts one queue {n}", self.collrun(n, *self.scripts(40, 2, 40)),
                      {"SOFTCUDA_QUEUES": "1", "SOFTCUDA_SEED": "3"})
        self.case("scripts 8", self.collrun(8, *self.scripts(10, 1, 30)))
        self.case("long scripts 3", self.collrun(3, *self.scripts(20, 2, 20, 3000000)))
        self.case("scripts blocking launches", self.collrun(2, *self.scripts(80, 2, 40)), {"CUDA_LAUNCH_BLOCKING": "1"})
        self.case("long scripts blocking launches", self.collrun(2, *self.scripts(7, 1, 25, 4000000)), {"CUDA_LAUNCH_BLOCKING": "1"})
        self.case("scripts threads 2", self.scripts("-t", 2, 60, 2, 40), THREADS)
        self.case("scripts threads 4 devices", self.scripts("-t", 4, 70, 2, 40),
                  {"SOFTCUDA_DEVICES": "4", "COLL_DEVICE": "cuda:0,1,2,3"})
        self.case("scripts threads no peer access", self.scripts("-t", 2, 75, 1, 30),
                  {"SOFTCUDA_DEVICES": "2", "SOFTCUDA_NO_PEER": "1"}, wanted="staged")
        for name, env, wanted in WAYS:
            self.case(f"scripts {name}", self.collrun(2, *self.scripts(90, 1, 30)), env, wanted=wanted)
        for n, env in ((2, {"SOFTCUDA_SEED": "1"}), (3, {"SOFTCUDA_QUEUES": "1"}), (2, {"CUDA_LAUNCH_BLOCKING": "1"})):
            self.case(f"records {n} {env}", self.collrun(n, *self.records(1, 2, 24)), dict(SMALL, **env))
        self.case("records threads", self.records("-t", 3, 5, 2, 24), dict(THREADS, **SMALL))
        # Calls that block on one rank and are in a stream of another, with one queue: the first seed is one of a deadlock.
        for seed, env in ((100, {"SOFTCUDA_QUEUES": "1"}), (2, {"SOFTCUDA_SEED": "2"})):
            self.case(f"records groups {env}", self.collrun(3, *self.records("-g", seed, 1, 20)), dict(SMALL, **env))
        self.case("records groups threads", self.records("-t", 3, "-g", 5, 1, 20), dict(THREADS, **SMALL))
        self.case("records many buffers", self.collrun(2, *self.records("-m", 1, 1, 60)))
        self.in_place()
        self.ring()
        self.abilities()
        self.perf(False)
        for program in PERF[:-2]:
            self.ways(program, "device-direct")
        self.driver_calls()
        self.mappings()
        self.host_bytes()
        self.death(1)

    def long(self):
        for n in (2, 3, 5, 8):
            table = ["--device", "cuda", "-n", "1", "-w", "0"]
            self.case(f"every type, bit for bit {n}", self.collrun(n, *self.scripts("-a", 1, 1, 0)), timeout_s=1800)
            self.case(f"all types {n}", self.collrun(n, self.program("bench/allreduce_perf"), *table, "-b", "0", "-e", "64K",
                                                     "-f", "7", "-d", "all", "-o", "all"), timeout_s=1800)
            for kind in (["-d", "float", "-o", "sum"], ["-d", "int8", "-o", "max"]):
                self.case(f"one queue {kind[1]} {n}", self.collrun(n, self.program("bench/allreduce_perf"), *table, "-b", "0", "-e",
                                                                   "64K", "-f", "7", *kind), {"SOFTCUDA_QUEUES": "1"}, timeout_s=600)
            for program in PERF[1:]:
                self.case(f"{program} {n}", self.collrun(n, self.program(f"bench/{program}_perf"), *table, "-b", "0", "-e", "64K", "-f",
                                                         "7", *(["-d", "all", "-o", "all"] if "reduce" in program else [])),
                          timeout_s=1800)
            self.case(f"16 MiB {n}", self.collrun(n, self.program("bench/allreduce_perf"), *table, "-b", "64K", "-e", "16M",
                                                  "-f", "4"), timeout_s=600)
        self.seeds(10000, 250, STAGED_WANTED="direct")
        for n in (2, 3):
            for queues in ("1", "8"):
                self.case(f"random seeds {n} queues {queues}", self.collrun(n, *self.scripts(0, 250, 40)),
                          {"SOFTCUDA_QUEUES": queues, "SOFTCUDA_SEED": "1"}, 1800)
            self.case(f"scripts threads {n}", self.scripts("-t", n, 1, 100, 40), THREADS, 900)
            self.case(f"every type, bit for bit threads {n}", self.scripts("-a", "-t", n, 1, 1, 0), THREADS, 900)
        self.case("scripts threads 5", self.scripts("-t", 5, 1, 20, 40), THREADS, 900)
        for n in (2, 3, 4):
            self.case(f"scripts threads {n} devices queues 1", self.scripts("-t", n, 1, 50, 40),
                      {"SOFTCUDA_QUEUES": "1", "SOFTCUDA_DEVICES": "4", "COLL_DEVICE": "cuda:0,1,2,3"}, 900)
        self.perf(True)
        for n in (2, 3, 5, 8):
            for queues in ("1", "8"):
                for first in range(0, 200 if n < 5 else 40, 20):
                    self.case(f"records {n} queues {queues} from {first}", self.collrun(n, *self.records(first, 20, 40)),
                              dict(SMALL, SOFTCUDA_QUEUES=queues, SOFTCUDA_SEED=str(first + 1)), 1800)
        for n in (2, 3, 5):
            for queues in ("1", "8"):
                for first in range(0, 200, 20):
                    self.case(f"records groups {n} queues {queues} from {first}", self.collrun(n, *self.records("-g", first, 20, 40)),
                              dict(SMALL, SOFTCUDA_QUEUES=queues, SOFTCUDA_SEED=str(first + 1)), 1800)
            self.case(f"records groups threads {n}", self.records("-t", n, "-g", 300, 40, 40), dict(THREADS, **SMALL), 1800)
        self.case("records 1000 buffers", self.collrun(2, *self.records("-m", 1, 1, 1000)), timeout_s=1800)
        for n in (5, 8):
            for queues in ("1", "8"):
                self.case(f"scripts {n} queues {queues}", self.collrun(n, *self.scripts(500, 20, 40)), {"SOFTCUDA_QUEUES": queues},
                          timeout_s=1800)
        for seed in range(300):
            self.death(seed)


def main():
    if len(sys.argv) < 3 or sys.argv[2] not in ("few", "suite", "planted", "soak"):
        sys.exit(__doc__)
    suite = Suite(sys.argv[1], sys.argv[3] if len(sys.argv) > 3 else None)
    {"few": suite.few, "suite": suite.short, "planted": suite.defects, "soak": suite.long}[sys.argv[2]]()
    print(f"{suite.passed} passed, {suite.failed} failed, 0 skipped")
    sys.exit(suite.failed > 0 or suite.passed == 0)


main()
