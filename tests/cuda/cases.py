"""What the suites of staged, direct and captured calls share: programs on the stand-in driver, and what a run of them says."""
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "multi"))
from job import free_port  # noqa: E402

PERF = ["allreduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter", "sendrecv", "barrier"]

# Driver calls that enqueue.
ENQUEUE = {"cuLaunchKernel", "cuStreamWaitValue32", "cuStreamWriteValue32", "cuStreamBatchMemOp", "cuMemcpyAsync",
           "cuEventRecord", "cuStreamWaitEvent"}


class Cases:
    """only: the cases whose name has this text, or None."""

    def __init__(self, build, only, **env):
        self.build, self.only = os.path.abspath(build), only
        self.passed = self.failed = 0
        self.begun = time.monotonic()
        self.env = dict(os.environ, COLL_CUDA_LIBRARY=f"{self.build}/tests/softcuda/libcuda.so.1", COLL_DEVICE="cuda",
                        COLL_ARRIVAL_TIMEOUT_MS="20000", COLL_TIMEOUT_MS="10000", **env)

    def program(self, name):
        return f"{self.build}/{name}"

    def collrun(self, n, *argv):
        return [self.program("tools/collrun"), "-n", str(n), *argv]

    def scripts(self, *argv):
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
        self.cases([(name, argv, env)], timeout_s)

    # Programs that run at the same time, each of which is right, or ends by failed checks if it is said to.
    def cases(self, rows, timeout_s=120):
        started = []
        for name, argv, env in rows:
            if self.wanted(name):
                fails = env.pop("fails", False)
                started.append((name, fails, subprocess.Popen(argv, env=dict(self.env, **env), stdout=subprocess.PIPE,
                                                              stderr=subprocess.STDOUT, text=True, start_new_session=True)))
        until = time.monotonic() + timeout_s
        for name, fails, child in started:
            try:
                told = child.communicate(timeout=max(1, until - time.monotonic()))[0]
                right = child.returncode == 1 and " 1 failed" in told if fails else child.returncode == 0
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                told, right = child.communicate()[0] + f"\nstill running after {timeout_s} s", False
            self.say(name, right, told)

    # The seeds of a fixed script: a part of them with each number of ranks and of queues.
    def seeds(self, total, at_once, **env):
        each = total // 4
        for first in range(0, each, at_once):
            n_seeds = min(at_once, each - first)
            for queues in ("1", "8"):
                self.cases([(f"seeds {first + 1} to {first + n_seeds}, {n} ranks, {queues} queues",
                             self.collrun(n, *self.scripts("-f", first + 1, n_seeds, 40)),
                             dict(env, SOFTCUDA_QUEUES=queues, SOFTCUDA_SEED=str(first + 1))) for n in (2, 3)], 1200)

    # Ranks without a launcher, which would end all with the first.
    def ranks(self, n, argv, **env):
        port = free_port()
        return [subprocess.Popen(argv, env=dict(self.env, COLL_ROOT=f"127.0.0.1:{port}", COLL_RANK=str(r), COLL_SIZE=str(n), **env),
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for r in range(n)]

    # What a rank says until it ends, or is killed.
    def ended(self, rank, until):
        try:
            return rank.communicate(timeout=max(1, until - time.monotonic()))[0]
        except subprocess.TimeoutExpired:
            rank.kill()
            return rank.communicate()[0] + "still running"

    # The way of every call that moves bytes, as the program says it.
    def ways(self, program, of_program):
        name = f"way of {program}_perf: {of_program}"
        if not self.wanted(name):
            return
        done = subprocess.run(self.collrun(2, self.program(f"bench/{program}_perf"), "--device", "cuda", "-b", "64", "-e", "1M", "-f",
                                           "16", "-n", "1", "-w", "0", "--details"),
                              env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
        rows = [line.split() for line in done.stdout.splitlines() if "#" not in line and len(line.split()) > 8]
        named = done.stdout.count("device  0 [0000:a0:00] softcuda device 0 (no GPU)") == 2
        self.say(name, done.returncode == 0 and named and len(rows) >= 3 and all(row[-1].startswith(of_program) for row in rows),
                 done.stdout)

    # A small call in steady state: in and out of place, a loop for the mean and one for the percentiles, so that 100 iterations
    # are 400 calls.
    def driver_calls(self):
        name = "driver calls of a small call"
        if not self.wanted(name):
            return
        few, many = self.counts(100, "64", "10"), self.counts(200, "64", "10")
        more = {k: (many[k] - few.get(k, 0)) / 400 for k in many if many[k] != few.get(k, 0)}
        asks = {k: v for k, v in more.items() if "Get" in k or "Query" in k or "Capturing" in k}
        # What a watching thread asks now and then differs between the runs.
        other = [k for k, v in more.items() if v > 0.05 and k != "host_bytes" and k not in ENQUEUE and k not in asks]
        # The exchange of numbers before a loop is not counted out: a call in a hundred.
        self.say(name, 0 < sum(v for k, v in more.items() if k in ENQUEUE) < 5.1 and sum(asks.values()) < 5.1 and not other, str(more))

    # Calls of the driver by one rank, by entry point, in a run with so many iterations.
    def counts(self, iterations, size, warmup):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "counts")
            subprocess.run(self.collrun(2, self.program("bench/allreduce_perf"), "--device", "cuda", "-b", size, "-e", size, "-n",
                                        str(iterations), "-w", warmup, "-c", "0"),
                           env=dict(self.env, SOFTCUDA_COUNTS=path), stdout=subprocess.DEVNULL, check=True, timeout=120)
            rows = [line.split() for line in open(path)]
        return {name: int(count) for pid, name, count in rows if pid == rows[0][0]}
