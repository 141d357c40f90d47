#!/usr/bin/env python3
"""What the choice costs: each collective by the row that the library chooses, and by every row that serves the call.

Hosts are network namespaces (network.py) whose links are shaped or not, and told (--untold: not). All rows of a kind have ranks of
their own, with COLL_ALGO, and take turns block by block; so does the choice, twice. The regret of a cell is the choice's time
over that of the fastest row, medians of blocks. A cell in which the choice and the same again differ by more than 1.15 is noise
and is not judged.

Exit status 1: a wrong result, a failure, or a judged cell of 64 KiB and more, links told, above --must; 77: no right to make
network namespaces. See docs/guide/peers.md.
"""
import argparse
import os
import re
import statistics
import sys

import bounds
import layouts
import network
import ranks as ranks_of
import run as run_of

HERE = os.path.dirname(os.path.abspath(__file__))
LAYOUTS = {"2x1": [1, 1], "4x1": [1] * 4, "8x1": [1] * 8, "2x2": [2, 2], "2x4": [4, 4], "1+3+2": [1, 3, 2]}
KINDS = ("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter")
BYTES = "8,1K,16K,64K,256K,1M,4M"
NOISE, JUDGED = 1.15, 64 << 10


def rows_of(kind):
    """The names of the table of algorithms."""
    with open(os.path.join(HERE, "..", "..", "src", "algos", "algos.c")) as f:
        return re.findall(r'^\t(?:ROW|LEVELS|LAYOUT)\(%s,\s*"(\w+)"' % kind.upper(), f.read(), re.M)


class RowRanks(layouts.RanksApart):
    """The ranks that take one row, or the choice if it is None."""

    def __init__(self, case, row):
        self.row = row
        super().__init__("ours", case, len(case.host_of))

    def spawn(self, line, env, rank):
        super().spawn(line, dict(env, **({"COLL_ALGO": self.row} if self.row else {"COLL_DEBUG": "info"})), rank)

    def chosen(self, kind, size):
        """What the log says of the last such call."""
        text = os.pread(self.log.fileno(), os.fstat(self.log.fileno()).st_size, 0).decode(errors="replace")
        said = re.findall(r"%s count=\d+ bytes=%d: (\w+)" % (kind, size), text)
        return said[-1] if said else "?"


class Arguments(argparse.Namespace):
    """What a case of layouts.py reads of its own."""

    def __init__(self, args, hosts, mbit):
        super().__init__(build=args.build, cc=args.cc, before=None, pin=False, mca=[], told=not args.untold and mbit > 0, hosts=hosts,
                         mbit=mbit, nic_mbit=None, host_mbit=None, rails=1, sites=None)


def start(case, kind):
    """The choice twice, and a row each; rows that cannot start are none of this job."""
    return [RowRanks(case, None), RowRanks(case, None)] + [RowRanks(case, "%s:%s" % (kind, row)) for row in rows_of(kind)]


def serving(libs, kind, size, how, seconds):
    """[(library, calls of a block)]: those that have the row for this call."""
    ready = []
    for lib in list(libs):
        try:
            if lib.prepare(kind, size, "in" if kind == "broadcast" else "out"):
                continue
            if how == "back":
                one = lib.block(how, 2, 1)
                ready.append((lib, max(2, min(10000, round(seconds / max(one, 1e-6))))))
            else:
                ready.append((lib, run_of.calibrate(lib, how, seconds)))
        except ranks_of.Failed:
            if lib.row is None:
                raise
            lib.close()
            libs.remove(lib)
    return ready


def cell(args, libs, kind, size, how):
    """(seconds of the choice, of the choice again, of the fastest row, its name, what was chosen)"""
    ready = serving(libs, kind, size, how, args.block_ms * 1e-3)
    times = {lib: [] for lib, _ in ready}
    for _ in range(args.blocks):
        for lib, calls in ready:
            times[lib].append(lib.block(how, calls, 1))
    middle = [(statistics.median(times[lib]), lib) for lib, _ in ready]
    best, row = min(((t, lib.row.split(":")[1]) for t, lib in middle if lib.row), default=(middle[0][0], "-"))
    return middle[0][0], middle[1][0], best, row, middle[0][1].chosen(kind, size)


def one_network(args, name, mbit):
    """How many cells are above what must be."""
    case_args = Arguments(args, LAYOUTS[name], mbit)
    net = network.Network(layouts.links_of(case_args), args.cc, True)
    case = layouts.Case(case_args, net, "block")
    above = 0
    print("# %s ranks, %s%s, load %.1f" % (name, "%d Mb/s" % mbit if mbit else "not shaped", ", told" if case_args.told else "",
                                          os.getloadavg()[0]), flush=True)
    for kind in args.coll:
        libs = start(case, kind)
        try:
            for size in args.bytes:
                size = layouts.one_size(kind, max(size, 8), sum(case_args.hosts))
                if size == 0:
                    continue
                how = "back" if mbit else run_of.how(kind, size, sum(case_args.hosts), ranks_of.cores())
                own, again, best, row, chosen = cell(args, libs, kind, size, how)
                noise = max(own, again) / min(own, again)
                regret = min(own, again) / best
                line = "%-14s %8s  chosen %-13s %s  best %-13s %s  regret %.2f" % (
                    kind, layouts.cells_of.size_text(size), chosen, layouts.time_text(min(own, again)), row,
                    layouts.time_text(best), regret)
                if mbit:
                    line += "  floor %.2f" % (bounds.least_s(kind, size, case_args.hosts, net.links) / layouts.PAYLOAD / min(own, again))
                judged = noise <= NOISE
                bad = judged and case_args.told and size >= JUDGED and regret > args.must
                above += bad
                print(line + ("" if judged else "  noise %.2f, not judged" % noise) + ("  above %g" % args.must if bad else ""), flush=True)
        finally:
            for lib in libs:
                lib.close()
    return above


def options(argv):
    p = argparse.ArgumentParser(prog="run bench regret", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=run_of.ROOT + "/build/release", help="build directory")
    p.add_argument("--layouts", type=layouts.known("layout", LAYOUTS), default=list(LAYOUTS), help="by commas: " + ", ".join(LAYOUTS))
    p.add_argument("--mbit", type=layouts.numbers(","), default=[100, 1000, 0], help="rates of links, by commas; 0: not shaped")
    p.add_argument("--coll", type=layouts.known("collective", KINDS), default=list(KINDS), help="by commas")
    p.add_argument("--bytes", type=run_of.sizes, default=run_of.sizes(BYTES), help="by commas (default: %s)" % BYTES)
    p.add_argument("--untold", action="store_true", help="do not tell the library the rates")
    p.add_argument("--blocks", type=run_of.at_least(1), default=5)
    p.add_argument("--block-ms", type=run_of.at_least(0.001, float), default=200)
    p.add_argument("--cc", default="cubic", help="congestion control of everyone")
    p.add_argument("--must", type=float, default=1.10, help="the most regret of a judged cell")
    return p.parse_args(argv)


def main(argv):
    args = options(argv)
    if not os.environ.get(network.INSIDE):
        if not network.allowed():
            print("regret: %s: skipped" % (network.missing() or "not allowed to make network namespaces"))
            return 77
        if len(args.layouts) * len(args.mbit) > 1:  # a network for each
            status = 0
            for name in args.layouts:
                for mbit in args.mbit:
                    rest = [a for flag in ("--layouts", "--mbit") for a in (flag, name if flag == "--layouts" else str(mbit))]
                    one = layouts.subprocess.run([sys.executable, os.path.abspath(__file__), *argv, *rest]).returncode
                    status = one or status
            return status
    network.go_apart()
    try:
        return 1 if one_network(args, args.layouts[0], args.mbit[0]) else 0
    except (ranks_of.Failed, network.Refused) as e:
        print("failed: %s" % e, flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
