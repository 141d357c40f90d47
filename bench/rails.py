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
import shutil
import statistics
import subprocess
import sys

MUST = 1.8

SETTINGS = {
    "one interface": dict(COLL_INTERFACE="e0"),
    "one, 4 sockets": dict(COLL_INTERFACE="e0", COLL_TCP_SOCKETS="4"),
    "two interfaces": dict(COLL_INTERFACE="e0,e1"),
    "two, 4 sockets": dict(COLL_INTERFACE="e0,e1", COLL_TCP_SOCKETS="4"),
}


def ip(*words):
    return subprocess.run(["ip"] + list(words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


class Wires:
    """Two namespaces, and the pairs e0, e1 between them, each a network of its own."""

    def __init__(self, mbit):
        self.names = [f"coll-rails-{os.getpid()}-{i}" for i in range(2)]
        self.good = all(ip("netns", "add", n) for n in self.names)
        a, b = self.names
        for k in range(2):
            e = f"e{k}"
            self.good = self.good and ip("-n", a, "link", "add", e, "type", "veth", "peer", "name", e, "netns", b)
            for i, n in enumerate(self.names):
                self.good = self.good and ip("-n", n, "link", "set", "lo", "up") and \
                    ip("-n", n, "addr", "add", f"10.92.{k}.{1 + i}/24", "dev", e) and \
                    ip("-n", n, "link", "set", e, "up") and self.shape(n, e, mbit)

    def shape(self, name, e, mbit):
        words = ["tc", "-n", name, "qdisc", "add", "dev", e, "root", "tbf", "rate", f"{mbit}mbit", "burst", "256kb",
                 "latency", "20ms"]
        return subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0

    def close(self):
        for n in self.names:
            ip("netns", "del", n)


def measure(a, wires, settings):
    """GB/s out of each rank."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("COLL_")}
    env.update(settings, COLL_TRANSPORTS="tcp", COLL_TCP_CONGESTION=a.cc, COLL_SIZE="2",
               COLL_ROOT=f"10.92.0.1:{random.randrange(20000, 30000)}")
    size = f"{a.mib}M"
    command = [f"{os.path.abspath(a.build)}/bench/allreduce_perf", "-b", size, "-e", size, "-n", str(a.iters), "-w", "2"]
    ranks = [subprocess.Popen(["ip", "netns", "exec", n] + command, env=dict(env, COLL_RANK=str(r)), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for r, n in enumerate(wires.names)]
    try:
        said = [p.communicate(timeout=120)[0] for p in ranks]
    finally:
        for p in ranks:
            p.kill()
    rows = [line.split() for line in said[0].splitlines() if line.strip() and not line.startswith("#")]
    if any(p.returncode for p in ranks) or not rows:
        sys.exit("rails: a rank failed:\n" + "".join(said))
    return float(rows[-1][7])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("--mbit", type=int, default=1000)
    p.add_argument("--mib", type=int, default=16)
    p.add_argument("--turns", type=int, default=3)
    p.add_argument("--iters", type=int, default=10)
    p.add_argument("--cc", default="cubic")
    a = p.parse_args()
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        print("rails: no right to make network namespaces, or no ip, tc")
        return 77
    wires = Wires(a.mbit)
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
