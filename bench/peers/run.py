#!/usr/bin/env python3
"""This library beside Open MPI, MPICH and Gloo, and beside what the machine can do, in one run.

The ranks of every library are started once; then, cell by cell, their blocks take turns (A B C A B C ...), one library
awake at a time. See docs/guide/peers.md.
"""
import argparse
import datetime
import json
import math
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import types

import cells as cells_of
import verdict
import plot
import ranks as ranks_of
import report

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SIZES = {
    True: "8,48,512,4K,32K,256K,1M,2M,16M,128M",
    False: "8,16,32,48,64,128,256,512,1K,2K,4K,8K,16K,32K,64K,128K,256K,512K,1M,2M,4M,8M,16M,32M,64M,128M",
}
# Everything that the judge asks for, part by part: --table. quick: its sizes where time is short.
MPIS = "openmpi,mpich"
PEERS = ("openmpi", "mpich", "gloo", "torch")
TABLE = {
    "shm": ["--coll", "all_reduce", "--peers", MPIS],
    "others": ["--coll", "broadcast,reduce_scatter,all_gather,all_to_all,barrier", "--peers", MPIS],
    "crowd4": ["--ranks", "4", "--coll", "all_reduce", "--peers", MPIS],
    "crowd8": ["--ranks", "8", "--coll", "all_reduce", "--peers", MPIS],
    "gloo": ["--coll", "all_reduce", "--place", "out", "--buffers", "plain", "--peers", "gloo,torch", "--no-floor"],
    "tcp": ["--transport", "tcp", "--coll", "all_reduce", "--buffers", "plain"],
    "equal": ["--transport", "tcp", "--coll", "all_reduce", "--buffers", "plain", "--peers", MPIS, "--cc", "reno"],
    **{"ranks%d" % n: ["--transport", "tcp", "--coll", "all_reduce", "--place", "out", "--buffers", "plain", "--peers", "none",
                       "--no-floor", "--ranks", str(n), "--sizes", "64K,1M"] for n in (2, 3, 4, 5, 6, 7, 8)},
}
QUICK_TABLE = {
    "shm": ["--sizes", "8,48,512,4K,32K,256K,1M,2M,16M,128M"],
    "others": ["--sizes", "8,512,4K,32K,256K,2M,16M", "--buffers", "plain"],
    "crowd4": ["--sizes", "8,4K,32K,256K,2M,16M", "--place", "out", "--buffers", "plain"],
    "crowd8": ["--sizes", "8,4K,32K,256K,2M,16M", "--place", "out", "--buffers", "plain", "--blocks", "5"],
    "gloo": ["--sizes", "8,4K,64K,256K,1M,16M", "--blocks", "5"],
    "tcp": ["--sizes", "8,4K,64K,256K,1M,4M,16M,64M", "--place", "out"],
    "equal": ["--sizes", "64K,1M,4M,16M,64M", "--place", "out"],
}
BUFFERS = {"plain": "ours", "own": "ours_own"}
LOOP_UP_TO = 4096  # bytes: above, inputs are written outside the time


def places(kind, asked):
    if kind == "broadcast":
        return ["in"]
    if kind == "all_reduce":
        return asked
    return ["out"]


def how(kind, size, ranks, cores, busy=0):
    """Why: driver.c. With more ranks than cores, or others on them, nobody can say when a call began."""
    return "loop" if kind == "barrier" or size <= LOOP_UP_TO or ranks > cores or busy else "each"


class Busy:
    """Processes that compute beside the ranks, as loaders of data do; they end with this one."""

    def __init__(self, n):
        endless = "import ctypes; ctypes.CDLL(None).prctl(1, 9)\nwhile True: pass"
        self.processes = [subprocess.Popen([sys.executable, "-c", endless]) for _ in range(n)]

    def close(self):
        for p in self.processes:
            p.kill()
        for p in self.processes:
            p.wait()


def calibrate(lib, how_, seconds):
    """Calls in a block of about so many seconds."""
    calls = 1
    while True:
        one = lib.block(how_, calls, 1 if calls == 1 else 0)
        if one * calls >= seconds / 8:
            return max(1, math.ceil(seconds / one))
        calls = min(calls * 8, max(calls + 1, math.ceil(seconds / 4 / max(one, 1e-9))))


def measure(libs, cell, args, say):
    """Fill one cell. Libraries that do not have it are left out; what fails, or is wrong, fails the run."""
    kind, size, place = cell["kind"], cell["bytes"], cell["place"]
    h = cell.setdefault("how", how(kind, size, cell["ranks"], ranks_of.cores(), cell["busy"]))
    sets = 1
    if cell["cold"]:
        sets = max(2, min(64, math.ceil(args.cold_bytes / max(size, 1))))
    ready, calls = [], {}
    for lib in libs:
        reason = lib.prepare(kind, size, place, sets)
        if reason:
            cell["left_out"][lib.name] = reason
            continue
        lib.check(kind in ("all_reduce", "broadcast", "all_gather"))
        calls[lib.name] = calibrate(lib, h, args.block_ms * 1e-3)
        ready.append(lib)
    if not ready:
        say("%s of %s: left out: %s" % (kind, cells_of.size_text(size), next(iter(cell["left_out"].values()))))
    for lib in ready:
        cell["seconds"][lib.name], cell["used"][lib.name] = [], []
    for b in range(args.blocks):
        for lib in ready:
            n = calls[lib.name]
            cell["seconds"][lib.name].append(float("%.5g" % lib.block(h, n, max(1, n // 10))))
            cell["used"][lib.name].append([float("%.5g" % u) for u in lib.used])
    cell["calls"] = calls
    cell["load"] = os.getloadavg()[0]
    for lib in ready:
        lib.prepare("barrier", 0, "out")  # gives the memory back


def start(names, ctx, ranks, say, libs):
    """What starts is put in libs, the caller's to close however this ends; what is missing is returned."""
    missing = {}
    for name in names:
        try:
            libs.append(ranks_of.Ranks(name, ctx, ranks))
        except ranks_of.Failed as e:
            missing[name] = str(e)
            say("%s: %s" % (ranks_of.TITLES[name], e))
            if name in ("ours", "ours_own"):
                raise
    return missing


def machine():
    model = platform.machine()
    try:
        with open("/proc/cpuinfo") as f:
            model = next((l.split(":")[1].strip() for l in f if l.startswith("model name")), model)
    except OSError:
        pass
    return "%s, %d cores, Linux %s" % (model, ranks_of.cores(), platform.release())


def commit():
    def git(*line):
        return subprocess.run(["git", "-C", ROOT, *line], capture_output=True, text=True).stdout.strip()
    try:
        return git("rev-parse", "--short=12", "HEAD") + (" and changes" if git("status", "--porcelain", "-uno") else "")
    except OSError:
        return "unknown"


def limits(build):
    """Rates of the machine itself: limits.c."""
    try:
        done = subprocess.run([build + "/bench/peers/peers_limits"], capture_output=True, text=True, timeout=60)
        return json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def own_network(cc, argv):
    """Go on in a network of our own whose sockets all get this congestion control; other programs do not notice."""
    if os.environ.get("COLL_BENCH_NETWORK") != cc:
        if os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("ip"):
            raise SystemExit("--cc needs root, unshare and ip: not measured")
        os.environ["COLL_BENCH_NETWORK"] = cc
        os.execvp("unshare", ["unshare", "--net", sys.executable, os.path.abspath(__file__), *argv])
    # An address besides the loopback interface's: Open MPI leaves that one out. What goes to it stays in the kernel all the same.
    for line in ("link set lo up", "link add bench0 type veth peer name bench1", "address add 10.77.9.1/24 dev bench0",
                 "link set bench0 up", "link set bench1 up"):
        subprocess.run(["ip", *line.split()], check=True)
    try:
        with open("/proc/sys/net/ipv4/tcp_congestion_control", "w") as f:
            f.write(cc)
    except OSError as e:
        raise SystemExit("congestion control %s: %s: not measured" % (cc, e.strerror)) from None


def at_least(least, kind=int):
    def number(text):
        value = kind(text)
        if not least <= value < math.inf:
            raise argparse.ArgumentTypeError("%s is not a number from %g on" % (text, least))
        return value
    return number


def one_size(text):
    try:
        return cells_of.size_of(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from None


def sizes(text):
    return [one_size(t) for t in text.split(",")]


def buffers(text):
    names = text.split(",")
    for name in names:
        if name not in BUFFERS:
            raise argparse.ArgumentTypeError("no buffers '%s'; there are %s" % (name, ", ".join(BUFFERS)))
    return [BUFFERS[n] for n in names]


def writable(path):
    """Whether a file can be written there; what has been measured for an hour must not be lost at its end."""
    where = path if os.path.exists(path) else os.path.dirname(os.path.abspath(path))
    return not os.path.isdir(path) and os.access(where, os.W_OK)


def options(argv):
    p = argparse.ArgumentParser(prog="run bench", description=__doc__.split("\n")[0])
    p.add_argument("--build", default=ROOT + "/build/release", help="build directory")
    p.add_argument("--quick", action="store_true", help="fewer sizes: at most 5 minutes")
    p.add_argument("--ranks", type=at_least(1), default=2)
    p.add_argument("--transport", choices=("shm", "tcp"), default="shm")
    p.add_argument("--coll", default=",".join(cells_of.KINDS), help="collectives, by commas")
    p.add_argument("--sizes", type=sizes, help="by commas: 8,4K,2M")
    p.add_argument("--place", default="both", choices=("out", "in", "both"), help="of all_reduce")
    p.add_argument("--peers", default=",".join(PEERS), help="by commas; none: only ours")
    p.add_argument("--buffers", type=buffers, default="plain,own", help="ours in plain memory, in coll_mem_alloc()'s, or both")
    p.add_argument("--no-floor", action="store_true", help="do not measure what the machine can do")
    p.add_argument("--blocks", type=at_least(1), default=9)
    p.add_argument("--block-ms", type=at_least(0.001, float), help="default 10")
    p.add_argument("--cold", action="store_true", help="data is in no cache when a call begins")
    p.add_argument("--cold-bytes", type=one_size, default=128 << 20, help="how much lies between two uses")
    p.add_argument("--busy", type=at_least(0), default=0, help="so many processes compute beside the ranks; blocks of a second then")
    p.add_argument("--before", metavar="OLD.so", help="another build of this library, measured beside this one")
    p.add_argument("--cc", help="tcp: this congestion control for everyone (needs root); default: each library as shipped")
    p.add_argument("--unpinned", action="store_true", help="do not tie ranks to cores")
    p.add_argument("--python", default=ranks_of.default_python(), help="a Python that has torch")
    p.add_argument("--json", help="keep the cells in this file")
    p.add_argument("--table", nargs="?", const=",".join(TABLE), metavar="PARTS",
                   help="all that --judge asks for, or these parts of it: " + ", ".join(TABLE))
    p.add_argument("--shaped", action="store_true", help="instead: all-reduce over shaped links (namespaces, tbf; needs root) beside bare "
                   "streams, one rank on each host, the whole matrix, judged; --blocks each (default 3; --quick 1)")
    p.add_argument("--keep", action="store_true", help="tables, cells and plots into docs/results, by date and machine")
    p.add_argument("--markdown", action="store_true", help="tables in Markdown")
    p.add_argument("--svg", metavar="DIR", help="plots into this directory")
    p.add_argument("--merge", nargs="+", metavar="FILE", help="measure nothing: show the cells of these files; later ones' replace earlier ones'")
    p.add_argument("--judge", action="store_true", help="what is asked of each size, and whether it is met")
    args = p.parse_args(argv)
    try:
        if args.svg:
            os.makedirs(args.svg, exist_ok=True)
    except OSError as e:
        p.error("--svg %s: %s" % (args.svg, e.strerror))
    if args.block_ms is None:
        args.block_ms = 1000 if args.busy else 10
    if args.before:
        args.before = os.path.abspath(args.before)
        if not os.path.isfile(args.before):
            p.error("--before %s is no file" % args.before)
    if args.json and not writable(args.json):
        p.error("--json %s cannot be written" % args.json)
    return args


def plan(args, say=lambda line: None):
    out = []
    for kind in args.coll.split(","):
        if kind not in cells_of.KINDS + cells_of.MESSAGES:
            raise SystemExit("no collective '%s'; there are %s" % (kind, ", ".join(cells_of.KINDS + cells_of.MESSAGES)))
        asked = [0] if kind == "barrier" else args.sizes or sizes(SIZES[args.quick])
        if kind not in ("all_reduce", "broadcast", "barrier", *cells_of.MESSAGES):
            odd = [cells_of.size_text(s) for s in asked if s % (4 * args.ranks)]
            if odd:
                say("%s of %s: left out: no multiple of 4 bytes for each of %d ranks" % (kind, ", ".join(odd), args.ranks))
            asked = [s for s in asked if s % (4 * args.ranks) == 0]
        for place in places(kind, ["out", "in"] if args.place == "both" else [args.place]):
            for bytes_ in asked:
                out.append({"transport": args.transport, "cc": args.cc, "ranks": args.ranks, "kind": kind, "bytes": bytes_,
                            "place": place, "cold": args.cold, "busy": args.busy, "seconds": {}, "used": {}, "left_out": {}})
    return out


def show(document, args):
    for run in document["runs"]:
        print("%s; commit %s; %s; load %.1f%s\n%s" % (
            run["machine"], run["commit"], run["date"], run["load"][0],
            "; congestion control " + run["cc"] if run.get("cc") else "",
            "; ".join("%s: %s" % (ranks_of.TITLES[n], t) for n, t in run["versions"].items())))
        for name, why in run["missing"].items():
            print("%s: %s" % (ranks_of.TITLES[name], why))
        if run.get("limits"):
            print("limits: " + ", ".join("%s %.4g" % (k.replace("_", " "), v) for k, v in run["limits"].items()))
        print()
    print((report.markdown if args.markdown else report.text)(document["cells"]))
    print(report.LEGEND)
    if args.judge:
        print("\n" + (verdict.markdown if args.markdown else verdict.text)(document["cells"]))


def write_plot(file, title, group, run):
    """Whether there was something to plot."""
    text = plot.svg(group, title, "%s; commit %s; %s" % (run["machine"], run["commit"], run["date"][:10]))
    if text:
        with open(file, "w") as f:
            f.write(text)
    return bool(text)


def keep(document, args):
    plots = 0
    if args.json:
        cells_of.save(args.json, document)
    if args.svg:
        os.makedirs(args.svg, exist_ok=True)
        for title, group in report.groups(document["cells"]).items():
            name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") + ".svg"
            plots += write_plot(os.path.join(args.svg, name), title, group, document["runs"][-1])
    kept = (["cells in " + args.json] if args.json else []) + (["%d plots in %s" % (plots, args.svg)] if args.svg else [])
    if kept:
        print("\n" + "; ".join(kept))


def shown(cells):
    """What a page shows: of each transport the all-reduce of two ranks out of place, beside most others."""
    best = {}
    for title, group in report.groups(cells).items():
        c = group[0]
        if (c["kind"], c["ranks"], c["place"], c["cc"], c["cold"]) == ("all_reduce", 2, "out", None, False):
            rank = (len(group), sum(len(g["seconds"]) for g in group))
            best[c["transport"]] = max(best.get(c["transport"], ((0, 0), "", [])), (rank, title, group), key=lambda b: b[0])
    return {transport: (title, group) for transport, (_, title, group) in best.items()}


def keep_results(document, args):
    """docs/results/DATE-MACHINE.json, .md and plots."""
    where = os.path.join(ROOT, "docs", "results")
    last = document["runs"][-1]
    short = "-".join(re.findall(r"[a-z0-9]+", last["machine"].split(", Linux")[0].lower()))
    name = "%s-%s" % (last["date"][:10], short)
    os.makedirs(where, exist_ok=True)
    cells_of.save("%s/%s.json" % (where, name), document)
    with open("%s/%s.md" % (where, name), "w") as f:
        f.write("# %s, %s\n\n" % (last["machine"], last["date"][:10]))
        f.write("[How it was measured](../guide/peers.md). Runs that the cells are from:\n\n")
        f.write("| began | commit | what | load before | s |\n|---|---|---|---|---|\n")
        for r in document["runs"]:
            f.write("| %s | %s | %s%s, %d ranks | %.1f | %.0f |\n" % (
                r["date"][:19], r["commit"], r["transport"], " " + r["cc"] if r.get("cc") else "", r["ranks"], r["load"][0],
                r.get("seconds", 0)))
        for r in document["runs"]:
            if r.get("limits"):
                f.write("\nRates of the machine: %s.\n" % ", ".join("%s %.3g" % (k.replace("_", " "), v) for k, v in r["limits"].items()))
                break
        f.write("\n## What is asked\n\n" + verdict.markdown(document["cells"]) + "\n\n## Tables\n\n")
        f.write(report.LEGEND + "\n\n" + report.markdown(document["cells"]))
    for transport, (title, group) in shown(document["cells"]).items():
        write_plot("%s/%s-all-reduce-%s.svg" % (where, last["date"][:10], transport), title, group, last)


def without(argv, option):
    """The arguments less an option and its value, be it behind a space or an equals sign."""
    out, behind = [], False
    for a in argv:
        if not (a == option or a.startswith(option + "=") or behind and not a.startswith("-")):
            out.append(a)
        behind = a == option
    return out


def run_table(args, argv):
    """Each part by a run of its own, merged; a part that fails, fails the table, and the others are measured all the same."""
    status, documents = 0, []
    rest = [a for a in argv if a not in ("--keep", "--judge", "--markdown")]
    for option in ("--table", "--json", "--svg"):
        rest = without(rest, option)
    with tempfile.TemporaryDirectory() as dir_:
        for part in args.table.split(","):
            if part not in TABLE:
                raise SystemExit("no part '%s'; there are %s" % (part, ", ".join(TABLE)))
            file = "%s/%s.json" % (dir_, part)
            line = [sys.executable, os.path.abspath(__file__), *TABLE[part], *(QUICK_TABLE.get(part, []) if args.quick else []), *rest,
                    "--json", file]
            status = subprocess.run(line, stdout=subprocess.DEVNULL).returncode or status
            if os.path.exists(file):
                documents.append(cells_of.load(file))
    return cells_of.merge(documents), status


def run_shaped(args, argv):
    """One rank on each host, of layouts.py; its lines are its judgement. With --keep they go to docs/results."""
    blocks = 1 if args.quick else args.blocks if "--blocks" in argv else 3
    head = "%s; commit %s; %s; load %.1f; %d blocks" % (
        machine(), commit(), datetime.datetime.now().astimezone().isoformat(timespec="seconds"), os.getloadavg()[0], blocks)
    lines = [head]
    print(head, flush=True)
    command = [sys.executable, HERE + "/layouts.py", "--build", args.build, "--table", "single", "--blocks", str(blocks)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as p:
        for line in p.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip())
    below = [l for l in lines if l.endswith("below 0.93")]
    left = [l for l in lines if "not judged" in l]
    cells = [l for l in lines[1:] if " ours " in l]
    lines.append("%d cells, %d below 0.93, %d not judged" % (len(cells), len(below), len(left)))
    print(lines[-1])
    if args.keep and p.returncode in (0, 1):
        short = "-".join(re.findall(r"[a-z0-9]+", machine().split(", Linux")[0].lower()))
        with open("%s/docs/results/%s-%s-shaped.txt" % (ROOT, datetime.date.today().isoformat(), short), "w") as f:
            f.write("\n".join(lines) + "\n")
    return p.returncode


def peers_named(text):
    peers = [p for p in text.split(",") if p and p != "none"]
    for p in peers:
        if p not in PEERS:
            raise SystemExit("no peer '%s'; there are %s" % (p, ", ".join(PEERS)))
    return peers


def run_all(args, document, say):
    """Fill the document; the exit status."""
    ctx = types.SimpleNamespace(build=os.path.abspath(args.build), transport=args.transport, python=args.python, cc=args.cc,
                                unpinned=args.unpinned, before=args.before)
    names = args.buffers + (["before"] if args.before else []) + peers_named(args.peers)
    with_floor = not args.no_floor and args.ranks <= ranks_of.cores()
    names += ["floor", "line"] if with_floor else []
    begin = time.monotonic()
    todo = plan(args, say)
    libs, busy = [], None
    try:
        missing = start(names, ctx, args.ranks, say, libs)
        run = {"date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"), "machine": machine(),
               "commit": commit(), "transport": args.transport, "cc": args.cc, "ranks": args.ranks,
               "block_ms": args.block_ms, "blocks": args.blocks, "pinned": not args.unpinned,
               "versions": {l.name: l.text for l in libs}, "missing": missing,
               "load": os.getloadavg(), "limits": limits(ctx.build) if with_floor else None}
        document["runs"].append(run)
        busy = Busy(args.busy)
        for i, cell in enumerate(todo):
            measure(libs, cell, args, say)
            document["cells"].append(cell)
            run["seconds"] = round(time.monotonic() - begin, 1)
            if sys.stderr.isatty():
                print("\r%d of %d cells " % (i + 1, len(todo)), end="", file=sys.stderr, flush=True)
    except ranks_of.Failed as e:
        say("failed: %s" % e)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        if busy:
            busy.close()
        for lib in libs:
            lib.close()
    return 0


def main(argv):
    args = options(argv)
    document, status = {"runs": [], "cells": []}, 0
    # What was measured so far is kept when somebody ends it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if args.shaped:
        return run_shaped(args, argv)
    if args.merge:
        try:
            document = cells_of.merge([cells_of.load(f) for f in args.merge])
        except (OSError, ValueError) as e:
            raise SystemExit("--merge: %s" % e) from None
    elif args.table:
        document, status = run_table(args, argv)
    else:
        if args.cc:
            own_network(args.cc, argv)
        status = run_all(args, document, lambda line: print(line, file=sys.stderr, flush=True))
    show(document, args)
    if document["cells"]:  # else what an earlier run has found stays
        keep(document, args)
    if args.keep and document["runs"]:
        keep_results(document, args)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
