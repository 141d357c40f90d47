#!/usr/bin/env python3
"""What comm.all_reduce(x, "max", out=x) on 4 floats costs above the same call from C, in one run, for each kind of array.

usage: [collrun -n 2] python_overhead.py BUILD-DIRECTORY [ROUNDS]

Kinds take turns with C, so that all see the same machine; of each the least and the median of 15 turns are printed. Alone
(one rank) the call itself is almost nothing, and what is left is Python; with two ranks on two cores the waiting hides
part of it.
"""
import array
import ctypes
import os
import statistics
import sys
import time

BUILD = os.path.abspath(sys.argv[1])
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 20000
TURNS = 15
sys.path.insert(0, os.path.join(BUILD, "python"))
import coll  # noqa: E402


def arrays():
    found = {"array.array": array.array("f", [1.0] * 4)}
    try:
        import numpy
        found["numpy"] = numpy.ones(4, numpy.float32)
    except ImportError:
        print("numpy is not installed")
    try:
        import torch
        found["torch"] = torch.ones(4)
    except ImportError:
        print("torch is not installed")
    return found


def turn(comm, x):
    call, start = comm.all_reduce, time.perf_counter_ns()
    for _ in range(ROUNDS):
        call(x, "max", out=x)
    return (time.perf_counter_ns() - start) / ROUNDS


def empty_turn():
    """What the loop itself costs."""
    def nothing(x, op, out):
        pass
    start = time.perf_counter_ns()
    for _ in range(ROUNDS):
        pass
    return (time.perf_counter_ns() - start) / ROUNDS


def main():
    comm = coll.init()
    library = ctypes.CDLL(os.path.join(BUILD, "bench", "python_overhead.so"))
    library.coll_bench_loop.restype = ctypes.c_double
    library.coll_bench_loop.argtypes = [ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    floats = (ctypes.c_float * 4)(1, 1, 1, 1)
    kinds = arrays()
    seen = {"C": [], **{name: [] for name in kinds}}
    for _ in range(TURNS):
        seen["C"].append(library.coll_bench_loop(comm.handle, floats, 4, ROUNDS))
        for name, x in kinds.items():
            seen[name].append(turn(comm, x))
    if comm.rank == 0:
        print(f"{comm.size} ranks, {ROUNDS} calls per turn, {TURNS} turns; nanoseconds per call (loop {empty_turn():.0f})")
        least, middle = min(seen["C"]), statistics.median(seen["C"])
        for name, times in seen.items():
            print(f"{name:12} least {min(times):7.0f}  median {statistics.median(times):7.0f}  above C: "
                  f"{min(times) - least:6.0f} {statistics.median(times) - middle:6.0f}")


main()
