"""What the suites of staged, direct and captured calls share: programs on the stand-in driver, and what a run of them says."""
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "multi"))
from job import free_port  # noqa: E402

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

    # Calls of the driver by one rank, by entry point, in a run with so many iterations.
    def counts(self, iterations, size, warmup):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "counts")
            subprocess.run(self.collrun(2, self.program("bench/allreduce_perf"), "--device", "cuda", "-b", size, "-e", size, "-n",
                                        str(iterations), "-w", warmup, "-c", "0"),
                           env=dict(self.env, SOFTCUDA_COUNTS=path), stdout=subprocess.DEVNULL, check=True, timeout=120)
            rows = [line.split() for line in open(path)]
        return {name: int(count) for pid, name, count in rows if pid == rows[0][0]}
