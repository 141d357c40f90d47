"""What the suites of staged and of direct calls share: programs on the stand-in driver, and what a run of them says."""
import os
import subprocess
import tempfile
import time

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

    # Calls of the driver by one rank, by entry point, in a run with so many iterations.
    def counts(self, iterations, size, warmup):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "counts")
            subprocess.run(self.collrun(2, self.program("bench/allreduce_perf"), "--device", "cuda", "-b", size, "-e", size, "-n",
                                        str(iterations), "-w", warmup, "-c", "0"),
                           env=dict(self.env, SOFTCUDA_COUNTS=path), stdout=subprocess.DEVNULL, check=True, timeout=120)
            rows = [line.split() for line in open(path)]
        return {name: int(count) for pid, name, count in rows if pid == rows[0][0]}
