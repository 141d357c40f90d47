#!/usr/bin/env python3
"""Idle cores and busy ones, side by side: 2, 4 and 8 ranks beside 0, 2, 4 and 8 processes that compute, all libraries in turns.

Of each cell it says how long a call of ours takes beside the faster of the peers, and what processor time it takes beside that
of the same peer. --keep writes docs/results/cores.md and cores.json. See docs/guide/peers.md.

Exit status 1: a wrong result, or a library of ours that failed; with --judge also a cell above what must be.
"""
import argparse
import datetime
import os
import re
import statistics
import subprocess
import sys
import time
import types

import cells as cells_of
import ranks as ranks_of
import run as run_of

K, M = 1 << 10, 1 << 20
SHORT = (("all_reduce", 4), ("all_reduce", 4 * K), ("barrier", 0), ("send_recv", 4))
LONG = (("all_reduce", 64 * K), ("all_reduce", M), ("all_reduce", 3 * M), ("all_reduce", 25 * M))
QUICK = (("all_reduce", 4), ("barrier", 0), ("all_reduce", 64 * K), ("all_reduce", 25 * M))
STEP = "DDP step"  # of bench/torch_ddp.py
PEERS = ("openmpi", "gloo")
SHORT_MUST, LONG_MUST, LONG_MEDIAN = 1.2, 1.05, 0.8
QUOTED = (("all_reduce", 4), ("barrier", 0), ("all_reduce", 64 * K), ("all_reduce", 25 * M))  # first on the page, of two ranks
CORES_MD = os.path.join(run_of.ROOT, "docs", "results", "cores.md")


def what(cell):
    size = "" if cell["kind"] in ("barrier", STEP) else " " + cells_of.size_text(cell["bytes"])
    return {"send_recv": "there and back"}.get(cell["kind"], cell["kind"]) + size


def is_long(cell):
    return cell["kind"] == STEP or (cell["kind"] == "all_reduce" and cell["bytes"] >= 64 * K)


def beside(cell):
    """(ratio of times to the faster peer and its interval, ratio of processor times or None, that peer); None: no peer."""
    seen = [(cells_of.ratios(cell, "ours", p), p) for p in cells_of.beside(cell)]
    seen = [(r, p) for r, p in seen if r]
    if not seen:
        return None
    ratio, peer = max(seen)
    ours, theirs = (cells_of.median_used(cell, n) for n in ("ours", peer))
    return ratio, ours[0] / theirs[0] if ours and theirs and theirs[0] > 0 else None, peer


def must_of(cell):
    return LONG_MUST if is_long(cell) else SHORT_MUST


def misses(cells):
    """Sentences."""
    out, long_ = [], []
    for c in cells:
        seen = beside(c)
        if not seen:
            continue
        (middle, low, high), cpu, peer = seen
        where = "%d ranks, %d busy, %s" % (c["ranks"], c["busy"], what(c))
        if is_long(c):
            long_.append(middle)
        if middle > must_of(c):
            out.append("%s: %.2f (%.2f-%.2f) of %s, at most %g" % (where, middle, low, high, ranks_of.TITLES[peer], must_of(c)))
        if is_long(c) and cpu is not None and cpu > 1.05:
            out.append("%s: %.2f of the processor time of %s" % (where, cpu, ranks_of.TITLES[peer]))
    if long_ and statistics.median(long_) > LONG_MEDIAN:
        out.append("the median of the %d cells of 64 KiB and more is %.2f, at most %g" % (len(long_), statistics.median(long_), LONG_MEDIAN))
    return out


def us(value):
    return "-" if value is None else "%.1f" % value if value < 100 else "%.0f" % value


def ratio_text(seen):
    return "-" if not seen else "%.2f" % seen[0][0] if seen[0][0] < 10 else "%.0f" % seen[0][0]


def by_row(cells):
    rows = {}
    for c in cells:
        rows.setdefault(what(c), {})[c["busy"]] = c
    return rows


def summary(cells):
    """Time of ours over that of the faster peer."""
    out = []
    for n in sorted({c["ranks"] for c in cells}):
        here = [c for c in cells if c["ranks"] == n]
        busy = sorted({c["busy"] for c in here})
        out += ["| %d ranks | %s |" % (n, " | ".join("idle" if b == 0 else "%d busy" % b for b in busy)), "|---" * (len(busy) + 1) + "|"]
        for name, row in by_row(here).items():
            out.append("| %s | %s |" % (name, " | ".join(ratio_text(row.get(b) and beside(row[b])) for b in busy)))
        out.append("")
    return "\n".join(out)


def details(cells):
    """All that was measured of a call: us by each library; processor time, sleeps and preemptions of a rank."""
    names = [n for n in ("ours", *PEERS) if any(n in c["seconds"] for c in cells)]
    head = ["ranks", "busy", "call"] + [ranks_of.SHORT[n] + " us" for n in names] + ["ours / faster"]
    head += [ranks_of.SHORT[n] + " cpu us, sleeps, preempted" for n in names]
    out = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for c in sorted(cells, key=lambda c: (c["ranks"], c["busy"])):
        seen = beside(c)
        interval = "%.2f (%.2f-%.2f)" % seen[0] if seen else "-"
        used = [cells_of.median_used(c, n) for n in names]
        out.append("| %d | %d | %s | %s | %s | %s |" % (
            c["ranks"], c["busy"], what(c), " | ".join(us(cells_of.median_us(c, n)) for n in names), interval,
            " | ".join("%s, %.2f, %.2f" % (us(u[0]), u[1], u[2]) if u else "-" for u in used)))
    return "\n".join(out)


def page(document):
    first = document["runs"][0]
    bad = misses(document["cells"])
    lines = ["# Idle and busy cores", "",
             "One command: `./run bench cores --keep`; [how it measures](../guide/peers.md#busy-cores). %s; commit %s; %s; load %.1f at the" % (
                 first["machine"], first["commit"], first["date"][:16].replace("T", " "), first["load"][0]),
             "beginning; %d blocks of %g ms in turns. %s." % (first["blocks"], first["block_ms"], "; ".join(
                 "%s: %s" % (ranks_of.TITLES[n], t) for n, t in first["versions"].items())),
             "*Busy* is how many processes compute beside the ranks. Ratios hold for this machine and this run.", "", quoted(document),
             "## Time of a call, ours over the faster peer", "", summary(document["cells"]),
             "## What must be and is not", ""]
    lines += ["- %s." % b for b in bad] or ["Nothing."]
    lines += ["", "Short calls may take %g times as long as those of the faster peer, calls from 64 KiB on %g, and their median %g." % (
        SHORT_MUST, LONG_MUST, LONG_MEDIAN), "", "## All cells", "", details(document["cells"]), ""]
    return "\n".join(lines)


def quoted(document):
    """Two ranks, idle and beside as many busy processes as were measured in the middle."""
    cells = [c for c in document["cells"] if c["ranks"] == 2]
    busy = sorted({c["busy"] for c in cells if c["busy"]})
    if not cells or not busy:
        return ""
    half = busy[len(busy) // 2]
    out = ["| us of a call, two ranks on %s | idle: ours | faster peer | beside %d busy processes: ours | faster peer |" % (
        document["runs"][0]["machine"].split(", ")[1], half), "|---|---|---|---|---|"]
    for kind, size in (*QUOTED, (STEP, 0)):
        row = []
        for b in (0, half):
            cell = next((c for c in cells if (c["kind"], c["bytes"], c["busy"]) == (kind, size, b)), None)
            seen = cell and beside(cell)
            row += [us(cells_of.median_us(cell, "ours")), "%s (%s)" % (us(cells_of.median_us(cell, seen[2])), ranks_of.TITLES[seen[2]])] if seen else ["-", "-"]
        if row != ["-"] * 4:
            out.append("| %s | %s |" % (what({"kind": kind, "bytes": size}), " | ".join(row)))
    return "\n".join(out) + "\n"


def keep(document):
    cells_of.save(CORES_MD[:-2] + "json", document)
    with open(CORES_MD, "w") as f:
        f.write(page(document))


def new_cell(n, busy, kind, size):
    return {"transport": "shm", "cc": None, "ranks": n, "kind": kind, "bytes": size, "place": "out", "cold": False, "busy": busy,
            "how": "loop", "seconds": {}, "used": {}, "left_out": {}}


def step_cell(args, busy, say):
    """A step of data-parallel training through PyTorch, by a program of its own; None: there is no PyTorch."""
    env = dict(os.environ, PYTHONPATH=os.path.abspath(args.build) + "/python")
    if subprocess.run([args.python, "-c", "import torch"], capture_output=True).returncode:
        return None
    done = subprocess.run([args.build + "/tools/collrun", "-n", "2", "--no-prefix", args.python, run_of.ROOT + "/bench/torch_ddp.py", str(args.blocks),
                           "--busy", str(busy), "--step"], env=env, capture_output=True, text=True)
    cell = new_cell(2, busy, STEP, 0)
    for name in ("ours", "gloo"):
        found = re.search(r"^%s seconds: (.*)$" % name, done.stdout, re.M)
        if not found:
            say("%s beside %d: %s" % (STEP, busy, (done.stdout + done.stderr)[-400:]))
            return None
        cell["seconds"][name] = [float(x) for x in found[1].split()]
    return cell


def run_ranks(args, n, document, say):
    """All cells of so many ranks: their libraries are started once."""
    ctx = types.SimpleNamespace(build=os.path.abspath(args.build), transport="shm", python=args.python, cc=None, unpinned=True, before=None)
    libs, begin = [], time.monotonic()
    try:
        missing = run_of.start(["ours", *args.peers], ctx, n, say, libs)
        run = {"date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"), "machine": run_of.machine(),
               "commit": run_of.commit(), "transport": "shm", "cc": None, "ranks": n, "block_ms": args.block_ms, "blocks": args.blocks,
               "pinned": False, "versions": {l.name: l.text for l in libs}, "missing": missing, "load": os.getloadavg(), "limits": None}
        document["runs"].append(run)
        for count in args.busy:
            busy = run_of.Busy(count)
            try:
                for kind, size in args.calls:
                    cell = new_cell(n, count, kind, size)
                    run_of.measure(libs, cell, args, say)
                    document["cells"].append(cell)
                    seen = beside(cell)
                    print("%d ranks, %d busy, %-18s ours %10s us  %s" % (n, count, what(cell), us(cells_of.median_us(cell, "ours")), "  ".join(
                        "%s %s us" % (ranks_of.TITLES[p], us(cells_of.median_us(cell, p))) for p in cells_of.beside(cell)) + (
                            "  ours/faster %.2f, cpu %s" % (seen[0][0], "%.2f" % seen[1] if seen[1] is not None else "-") if seen else "")), flush=True)
            finally:
                busy.close()
            if n == 2 and not args.no_step:
                cell = step_cell(args, count, say)
                if cell:
                    document["cells"].append(cell)
        run["seconds"] = round(time.monotonic() - begin, 1)
    except ranks_of.Failed as e:
        say("failed: %s" % e)
        return 1
    finally:
        for lib in libs:
            lib.close()
    return 0


def numbers(least):
    one = run_of.at_least(least)
    return lambda text: [one(t) for t in text.split(",")]


def options(argv):
    p = argparse.ArgumentParser(prog="run bench cores", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=run_of.ROOT + "/build/release", help="build directory")
    p.add_argument("--ranks", type=numbers(2), default=[2, 4, 8], help="by commas (default: 2,4,8)")
    p.add_argument("--busy", type=numbers(0), default=[0, 2, 4, 8], help="processes that compute, by commas (default: 0,2,4,8)")
    p.add_argument("--peers", default=",".join(PEERS), help="by commas; none: only ours")
    p.add_argument("--blocks", type=run_of.at_least(1), default=9)
    p.add_argument("--block-ms", type=run_of.at_least(0.001, float), default=1000)
    p.add_argument("--quick", action="store_true", help="four calls, 3 blocks of 0.3 s: about 4 minutes")
    p.add_argument("--no-step", action="store_true", help="no %s (bench/torch_ddp.py; needs PyTorch)" % STEP)
    p.add_argument("--python", default=ranks_of.default_python(), help="a Python that has torch")
    p.add_argument("--json", help="keep the cells in this file")
    p.add_argument("--merge", nargs="+", metavar="FILE", help="measure nothing: the cells of these files")
    p.add_argument("--keep", action="store_true", help="write docs/results/cores.md and cores.json")
    p.add_argument("--judge", action="store_true", help="say what must be and is not")
    args = p.parse_args(argv)
    args.peers = run_of.peers_named(args.peers)
    args.calls, args.cold_bytes = SHORT + LONG, 0
    if args.quick:
        args.calls, args.blocks, args.block_ms = QUICK, 3, 300
    return args


def main(argv):
    args = options(argv)
    document, status = {"runs": [], "cells": []}, 0
    if args.merge:
        document = cells_of.merge([cells_of.load(f) for f in args.merge])
    for n in [] if args.merge else args.ranks:
        status = run_ranks(args, n, document, lambda line: print(line, file=sys.stderr, flush=True)) or status
    if not document["cells"]:
        return status or 1
    print("\n" + summary(document["cells"]))
    if args.json:
        cells_of.save(args.json, document)
    if args.keep:
        keep(document)
    if args.judge:
        bad = misses(document["cells"])
        print("\n".join(bad) or "all cells are within what must be")
        status = status or bool(bad)
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
