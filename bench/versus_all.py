#!/usr/bin/env python3
"""Two builds of the library by turns in 40 cells: shared memory, tcp, devices and hosts. ./run bench versus --all OLD NEW.

Runs bench/versus once for each group of cells. Devices are those of COLL_CUDA_LIBRARY, by default the stand-in driver of the
tests, whose copies cost what copies of host memory cost: the cells show what the library does around them. Hosts are network
namespaces that this program makes, which needs root; otherwise their cells are left out, and the last line says so.

Prints versus' tables, then each group's median and the median of all cells. Exit status 1: that is below --least, or a
cell could not be measured.
usage: versus_all.py [--build DIRECTORY] [--blocks N] [--ms T] [--least R] [--json FILE] [--only GROUP] OLD.so NEW.so"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers"))
import network  # noqa: E402

HOSTS = "hosts"
# (name, ranks, hosts, settings, cells): 40 cells in all.
GROUPS = [
    ("shm", 2, 0, {"COLL_TRANSPORTS": "shm"}, ["*/8,32K,2M/plain", "all_reduce/32K,2M,16M/library"]),
    ("shm, 4 ranks", 4, 0, {"COLL_TRANSPORTS": "shm"}, ["all_reduce/8,32K/plain"]),
    ("tcp", 2, 0, {"COLL_TRANSPORTS": "tcp"}, ["all_reduce,all_to_all/8,64K,2M/plain"]),
    ("device, direct", 2, 0, {"DEVICE": "1"}, ["all_reduce/8,64K,2M/device", "broadcast,all_gather/64K/device"]),
    ("device, staged", 2, 0, {"DEVICE": "1", "COLL_DEVICE_DIRECT": "0"}, ["all_reduce/8K,2M/device", "all_to_all/64K/device"]),
    (HOSTS + ", 1 + 1", 2, 2, {}, ["all_reduce/8,64K,2M/plain"]),
    (HOSTS + ", 2 + 2", 4, 2, {}, ["all_reduce/8,64K,2M/plain"]),
]
CELLS = 40


class Links:
    """What network.Network wants to know: two hosts, one interface each, not shaped."""
    hosts, nics, sites, uplink = 2, [[0], [0]], None, 0

    @staticmethod
    def site_of(host):
        return 0


def environment(settings, driver):
    env = {k: v for k, v in os.environ.items() if not k.startswith("COLL_")}
    env.update(settings)
    if env.pop("DEVICE", None):
        env["COLL_CUDA_LIBRARY"] = driver
    return env


def measure(args, group, out):
    """The cells of a group, or None: versus said why."""
    _, ranks, hosts, settings, cells = group
    words = [f"{args.build}/bench/versus", "--ranks", str(ranks), "--blocks", str(args.blocks), "--ms", str(args.ms), "--below", "0",
             "--json", out]
    if hosts:
        words += ["--netns", ",".join(network.Network.name(h) for h in range(hosts))]
    for cell in cells:
        words += ["--cells", cell]
    done = subprocess.run(words + [args.old, args.new], env=environment(settings, args.driver))
    if done.returncode != 0:
        return None
    with open(out) as f:
        return json.load(f)["cells"]


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build/release")
    p.add_argument("--blocks", type=int, default=9)
    p.add_argument("--ms", type=float, default=5)
    p.add_argument("--least", type=float, default=0.98, help="the least median that is good; default 0.98")
    p.add_argument("--json", help="write all cells here")
    p.add_argument("--only", help="groups whose name begins so")
    p.add_argument("old")
    p.add_argument("new")
    args = p.parse_args()
    args.driver = os.environ.get("COLL_CUDA_LIBRARY") or os.path.abspath(args.build) + "/tests/softcuda/libcuda.so.1"
    return args


def main():
    args = arguments()
    groups = [g for g in GROUPS if g[0].startswith(args.only or "")]
    made, left_out, failed, found = None, [], [], {}
    if any(g[2] for g in groups):
        if network.allowed():
            network.go_apart()
            made = network.Network(Links(), "reno")
    with tempfile.TemporaryDirectory() as scratch:
        for group in groups:
            if group[2] and not made:
                left_out.append(group[0])
                continue
            print(f"\n## {group[0]}", flush=True)
            cells = measure(args, group, os.path.join(scratch, "cells.json"))
            if cells is None:
                failed.append(group[0])
            else:
                found[group[0]] = cells
    ratios = {name: [c["first"]["ratio"] for c in cells] for name, cells in found.items()}
    print()
    for name, values in ratios.items():
        print(f"# {name}: {len(values)} cells, median {statistics.median(values):.3f}, lowest {min(values):.3f}")
    every = [r for values in ratios.values() for r in values]
    median = statistics.median(every) if every else 0
    print(f"# {len(every)} of {CELLS} cells, median {median:.3f}, lowest {min(every, default=0):.3f}"
          + (f"; left out, since there are no network namespaces: {', '.join(left_out)}" if left_out else "")
          + (f"; failed: {', '.join(failed)}" if failed else ""))
    if args.json:
        with open(args.json, "w") as f:
            json.dump({"old": args.old, "new": args.new, "groups": found}, f, indent=1)
    return 1 if failed or median < args.least else 0


sys.exit(main())
