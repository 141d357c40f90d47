#!/usr/bin/env python3
"""All-reduce of device memory: this library direct and staged, in processes and threads, beside host memory, NCCL and Gloo.

Every series is a program that is run as it is: the perf programs, nccl-tests', PyTorch's (tests/compat/torch_cuda.py), and the side-by-side
run of run.py for host memory. What is not there is left out by name. See docs/guide/peers.md.
"""
import argparse
import datetime
import os
import re
import statistics
import subprocess
import sys

import cells as cells_of
import ranks as ranks_of
import run as host_run

ROOT = host_run.ROOT
FACTOR = 8
SERIES = ["direct", "threads", "staged", "host", "nccl", "libnccl"]
# Columns of nccl-tests, which the perf programs have too: size, count, type, operation, root, time ...
SIZE, TIME, WRONG, P50 = 0, 5, 8, 14


class Missing(Exception):
    """A series cannot be had here: the reason."""


def options(argv):
    p = argparse.ArgumentParser(prog="run bench devices", description=__doc__.split("\n")[0])
    p.add_argument("--build", default=ROOT + "/build/release", help="build directory")
    p.add_argument("--ranks", default="2,4", help="by commas")
    p.add_argument("--max", type=host_run.one_size, default=1 << 30, help="the largest size; from 8 bytes on, each is %d times the one before" % FACTOR)
    p.add_argument("--iterations", type=host_run.at_least(1), default=20)
    p.add_argument("--driver", default=os.environ.get("COLL_CUDA_LIBRARY", ""), help="file of the driver of CUDA; that of the tests: softcuda")
    p.add_argument("--nccl-tests", metavar="DIRECTORY", help="all_reduce_perf of nccl-tests there, built for the NCCL to compare with")
    p.add_argument("--python", default=ranks_of.default_python(), help="a Python that has torch, for NCCL and Gloo")
    p.add_argument("--series", default=",".join(SERIES), help="by commas, of these: %(default)s")
    p.add_argument("--rate", type=float, default=0, metavar="GB/S", help="of the device's memory: a column 2nS/B, what n ranks of one device need")
    p.add_argument("--limit", type=host_run.at_least(1), default=900, metavar="SECONDS", help="for each program that is run (default: %(default)s)")
    p.add_argument("--markdown", action="store_true", help="tables in Markdown")
    args = p.parse_args(argv)
    args.build = os.path.abspath(args.build)
    if args.driver == "softcuda":
        args.driver = args.build + "/tests/softcuda/libcuda.so.1"
    try:
        args.ranks = [int(n) for n in args.ranks.split(",")]
    except ValueError:
        p.error("--ranks %s: no numbers" % args.ranks)
    args.series = args.series.split(",")
    if not set(args.series) <= set(SERIES):
        p.error("--series %s: not all are of %s" % (",".join(args.series), ",".join(SERIES)))
    return args


def environment(args, **more):
    env = {k: v for k, v in os.environ.items() if k not in ("COLL_DEVICE", "COLL_CUDA_LIBRARY")}
    if args.driver:
        env["COLL_CUDA_LIBRARY"] = args.driver
    return dict(env, COLL_ARRIVAL_TIMEOUT_MS="60000", COLL_TIMEOUT_MS="30000", **more)


def said(args, argv, env):
    """(status, output); 77: skipped."""
    try:
        done = subprocess.run(argv, env=env, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=args.limit)
        return done.returncode, done.stdout
    except OSError as e:
        return 127, str(e)
    except subprocess.TimeoutExpired as e:
        return 124, "after %d s: %s" % (args.limit, (e.stdout or b"").decode(errors="replace"))


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:160] if lines else "it says nothing"


def devices(args):
    """Names of the devices; Missing: there are none."""
    text = said(args, [args.build + "/tools/coll-info"], environment(args))[1]
    names = re.findall(r"^  cuda:\d+ (.*)$", text, re.M)
    if not names:
        none = re.search(r"^cuda devices: (none: .*)$", text, re.M)
        raise Missing(none[1] if none else "coll-info does not list them: " + last_line(text))
    return names


# ---- Series ----

def rows_of(text, column):
    """{bytes: microseconds} of a table in the columns of nccl-tests."""
    found = {}
    for line in text.splitlines():
        f = line.split()
        if len(f) > column and f[SIZE].isdigit():
            if f[WRONG] not in ("0", "N/A"):
                raise ranks_of.Failed("wrong results: " + line.strip())
            found[int(f[SIZE])] = float(f[column])
    return found


def ours(args, n, threads, direct):
    line = [args.build + "/bench/allreduce_perf", "--device", "cuda", "-b", "8", "-e", str(args.max), "-f", str(FACTOR), "-n",
            str(args.iterations), "--details"]
    if threads:
        line += ["-g", str(n)]
    else:
        line = [args.build + "/tools/collrun", "--no-prefix", "-n", str(n), *line]
    # Threads that share a device need a hardware queue for each stream.
    status, text = said(args, line, environment(args, COLL_DEVICE_DIRECT=str(int(direct)), CUDA_DEVICE_MAX_CONNECTIONS="32"))
    if status:
        raise ranks_of.Failed("status %d: %s" % (status, last_line(text)))
    if direct and "device-direct" not in text:
        raise Missing("the calls are not direct: coll-info says why")
    return rows_of(text, P50)


def host(args, n):
    """Ours and Gloo with host memory, by turns: {library: {bytes: microseconds}}, and what is missing."""
    asked = ",".join(str(s) for s in sizes(args))
    line = ["--build", args.build, "--ranks", str(n), "--coll", "all_reduce", "--place", "out", "--buffers", "plain", "--peers",
            "gloo,torch", "--python", args.python, "--no-floor", "--sizes", asked, "--blocks", "5"]
    document, told = {"runs": [], "cells": []}, []
    if host_run.run_all(host_run.options(line), document, told.append):
        raise ranks_of.Failed(told[-1] if told else "it was ended")
    found = {}
    for cell in document["cells"]:
        for name, seconds in cell["seconds"].items():
            found.setdefault(name, {})[cell["bytes"]] = statistics.median(seconds) * 1e6
    return found, document["runs"][0]["missing"]


def torch(args, n, **more):
    """All-reduce of PyTorch, of its backend nccl, and of Gloo on the same tensors."""
    status, text = said(args, [args.python, ROOT + "/tests/compat/torch_cuda.py", "--times", "--ranks", str(n), "--max", str(args.max), "--factor",
                         str(FACTOR)], dict(os.environ, **more))
    if status == 77:
        raise Missing(re.sub(r"^skipped: ", "", last_line(text)))
    found = [(int(size), float(one), float(gloo)) for size, one, gloo in
             re.findall(r"^ *(\d+) B +([\d.]+) us +gloo +([\d.]+) us$", text, re.M)]
    if status or not found:
        raise ranks_of.Failed("status %d: %s" % (status, last_line(text)))
    return {size: one for size, one, _ in found}, {size: gloo for size, _, gloo in found}


def nccl_tests(args, n, count):
    if count < n:
        raise Missing("nccl-tests: %d ranks on %d device%s" % (n, count, "" if count == 1 else "s"))
    program = os.path.join(args.nccl_tests, "all_reduce_perf")
    status, text = said(args, [program, "-b", "8", "-e", str(args.max), "-f", str(FACTOR), "-g", str(n), "-n", str(args.iterations)], dict(os.environ))
    if status:
        raise ranks_of.Failed("%s: status %d: %s" % (program, status, last_line(text)))
    return rows_of(text, TIME)


class Table:
    """Series of so many ranks, and what is left out."""

    def __init__(self):
        self.columns, self.left_out, self.failed = {}, [], False

    def take(self, name, made, of_others=False):
        """made: a function that returns one series. What fails of other libraries does not fail the run."""
        try:
            self.columns[name] = made()
        except Missing as e:
            self.left_out.append("%s: %s" % (name, e))
        except ranks_of.Failed as e:
            self.left_out.append("%s: FAILED: %s" % (name, e))
            self.failed = self.failed or not of_others

    def take_pair(self, name, other, made):
        both = {}

        def first():
            both[name], both[other] = made()
            return both[name]
        self.take(name, first, of_others=True)
        if other in both:
            self.columns[other] = both[other]


def sizes(args):
    out = [8]
    while out[-1] * FACTOR <= args.max:
        out.append(out[-1] * FACTOR)
    return out


def measure(args, n, names, why, real):
    t = Table()
    for key, name, threads, direct in (("direct", "direct", False, True), ("threads", "direct, threads", True, True), ("staged", "staged", False, False)):
        if names and key in args.series:
            t.take(name, lambda: ours(args, n, threads, direct))
        elif key in args.series:
            t.left_out.append("%s: %s" % (name, why))
    if "host" in args.series:
        take_host(args, n, t)
    others = [s for s in args.series if s.endswith("nccl")]
    if others and not real:
        t.left_out.append("NCCL, Gloo of PyTorch: %s" % ("they need a real device" if names else why))
        others = []
    if "nccl" in others and args.nccl_tests:
        t.take("NCCL, nccl-tests", lambda: nccl_tests(args, n, len(names)), of_others=True)
    if "nccl" in others:
        t.take_pair("NCCL, PyTorch", "Gloo, PyTorch", lambda: torch(args, n, NCCL_MULTI_RANK_GPU_ENABLE="1"))
    if "libnccl" in others:
        nccl = args.build + "/src/compat/nccl/libnccl.so.2"
        t.take("libnccl.so.2 of this library, PyTorch", lambda: torch(args, n, LD_PRELOAD=nccl)[0])
    if args.rate:
        t.columns["2nS/B"] = {s: 2 * n * s / args.rate / 1000 for s in sizes(args)}
    return t


def take_host(args, n, t):
    try:
        found, missing = host(args, n)
        for name, title in (("ours", "host"), ("gloo", "host, Gloo"), ("torch", "host, Gloo in PyTorch")):
            if name in found:
                t.columns[title] = found[name]
            else:
                t.left_out.append("%s: %s" % (title, missing.get(name, "not measured")))
    except ranks_of.Failed as e:
        t.left_out.append("host: FAILED: %s" % e)
        t.failed = True


# ---- For people ----

def text_of(table, wanted, markdown):
    head = ["size", *table.columns]
    body = [[cells_of.size_text(s), *("%.1f" % c[s] if s in c else "-" for c in table.columns.values())] for s in wanted]
    if markdown:
        return "\n".join("| %s |" % " | ".join(row) for row in [head, ["---"] + ["---:"] * (len(head) - 1), *body])
    widths = [max(len(row[i]) for row in [head, *body]) for i in range(len(head))]
    return "\n".join("  ".join(c.rjust(w) for c, w in zip(row, widths)) for row in [head, *body])


LEGEND = """us of a call, median (nccl-tests: mean); sums of float32 out of place. direct, staged: device memory, a process for each rank; direct,
threads: -g N. host: host memory, the whole call; host, Gloo: the same by Gloo."""


def main(argv):
    args = options(argv)
    names, why, failed = [], "", False
    try:
        names = devices(args)
    except Missing as e:
        why = str(e)
    real = bool(names) and not any("(no GPU)" in name for name in names)
    print("%s; commit %s; %s; load %.1f" % (host_run.machine(), host_run.commit(),
                                            datetime.datetime.now().astimezone().isoformat(timespec="seconds"), os.getloadavg()[0]))
    print("devices: " + (why or "; ".join(names)))
    if names and not real:
        print("STAND-IN DRIVER: no figure of direct or staged calls says anything about a real device")
    print("\n" + LEGEND)
    for n in args.ranks:
        t = measure(args, n, names, why, real)
        print("\n%sall_reduce, %d ranks%s\n" % ("### " if args.markdown else "", n, "" if real or not names else ", stand-in driver"))
        if t.columns:
            print(text_of(t, sizes(args), args.markdown) + "\n")
        print("\n".join(("- " if args.markdown else "left out: ") + line for line in t.left_out), flush=True)
        failed = failed or t.failed
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
