#!/usr/bin/env python3
"""One all-reduce over one interface and over two: two ranks in two network namespaces that are
joined by two veth pairs, each of which tbf shapes (burst 256 kb, at most 20 ms in its queue).
The settings take turns, A B C A B C; the ratio is that of rates within one turn, the median of
the turns. Exit status 1: two interfaces carry less than 1.8 times what one does; 77: no right.

usage: rails.py BUILD-DIRECTORY [--mbit 1000] [--mib 16] [--turns 3] [--iters 10] [--cc cubic]
"""
import argparse
import os
import random
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "multi"))
from wires import Wires, missing

MUST = 1.8

SETTINGS = {
    "one interface": dict(COLL_INTERFACE="e0"),
    "one, 4 sockets": dict(COLL_INTERFACE="e0", COLL_TCP_SOCKETS="4"),
    "two interfaces": dict(COLL_INTERFACE="e0,e1"),
    "two, 4 sockets": dict(COLL_INTERFACE="e0,e1", COLL_TCP_SOCKETS="4"),
}


def measure(a, wires, settings):
    """GB/s out of each rank."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("COLL_")}
    env.update(settings, COLL_TRANSPORTS="tcp", COLL_TCP_CONGESTION=a.cc, COLL_SIZE="2",
               COLL_ROOT=f"{wires.address(0, 0)}:{random.randrange(20000, 30000)}")
    size = f"{a.mib}M"
    command = [f"{os.path.abspath(a.build)}/bench/allreduce_perf", "-b", size, "-e", size, "-n", str(a.iters), "-w", "2"]
    ranks = [subprocess.Popen(wires.inside(r) + command, env=dict(env, COLL_RANK=str(r)), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for r in range(2)]
    try:
        said = [p.communicate(timeout=120)[0] for p in ranks]
    finally:
        for p in ranks:
            p.kill()
    rows = [line.split() for line in said[0].splitlines() if line.strip() and not line.startswith("#")]
    if any(p.returncode for p in ranks) or not rows:
        sys.exit("rails: a rank failed:\n" + "".join(said))
    return int(rows[-1][0]) / float(rows[-1][5]) * 1e-3  # size / time: algbw has two decimals


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("--mbit", type=int, default=1000)
    p.add_argument("--mib", type=int, default=16)
    p.add_argument("--turns", type=int, default=3)
    p.add_argument("--iters", type=int, default=10)
    p.add_argument("--cc", default="cubic")
    a = p.parse_args()
    why = missing("tc")
    if why:
        print(f"rails: {why}")
        return 77
    wires = Wires("10.92", 2, ["rate", f"{a.mbit}mbit", "burst", "256kb", "latency", "20ms"])
    rates = {name: [] for name in SETTINGS}
    try:
        if not wires.good:
            print("rails: cannot make shaped veth pairs between network namespaces")
            return 77
        for _ in range(a.turns):
            for name, settings in SETTINGS.items():
                rates[name].append(measure(a, wires, settings))
    finally:
        wires.close()
    ratio = {}
    for name, got in rates.items():
        ratio[name] = statistics.median(g / one for g, one in zip(got, rates["one interface"]))
        print(f"{a.mbit} Mbit/s  {a.mib} MiB  {name:15} {statistics.median(got):.4f} GB/s  {ratio[name]:.2f} x one")
    return 1 if ratio["two interfaces"] < MUST else 0


if __name__ == "__main__":
    sys.exit(main())
