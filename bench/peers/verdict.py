"""What is asked of the CPU paths, row by row, and what cells say to it.

A row takes the worst of its cells. Ratios are peer time / our time, or, where named so, our time / the floor's. A row
without cells has no verdict.
"""
import math
import statistics

from cells import ratios, size_text

K, M = 1 << 10, 1 << 20
MPIS = ("openmpi", "mpich")


def least(cell, ours, peers):
    """The smallest ratio to any of the peers: (median, low, high)."""
    seen = [r for r in (ratios(cell, p, ours) for p in peers) if r]
    return min(seen) if seen else None


def versus(peers, ours="ours"):
    return lambda cell: least(cell, ours, peers)


def all_of(peers, ours="ours"):
    """As versus, but a cell that lacks one of the peers says nothing."""
    return lambda cell: least(cell, ours, peers) if all(p in cell["seconds"] for p in peers) else None


def over(floor, ours="ours"):
    return lambda cell: ratios(cell, ours, floor)


def share(floor, ours="ours"):
    """Of the floor's speed."""
    return lambda cell: ratios(cell, floor, ours)


class Row:
    def __init__(self, name, seen, must, aim, sense=">=", kinds=("all_reduce",), transport="shm", sizes=(0, 1 << 62), ranks=(2,),
                 places=("in", "out"), cc=(None,)):
        self.name, self.seen, self.must, self.aim, self.sense = name, seen, must, aim, sense
        self.kinds, self.transport, self.sizes, self.ranks, self.places, self.cc = kinds, transport, sizes, ranks, places, cc

    def takes(self, c):
        cc = bool(c["cc"]) if self.cc == "equal" else c["cc"] in self.cc
        return (c["kind"] in self.kinds and c["transport"] == self.transport and c["ranks"] in self.ranks and cc
                and self.sizes[0] <= c["bytes"] <= self.sizes[1] and c["place"] in self.places and not c["cold"] and not c.get("busy"))

    def good(self, value, bound):
        return value >= bound if self.sense == ">=" else value <= bound


def one(size):
    return (size, size)


ROWS = (
    Row("shm 8-48 B / Open MPI", versus(["openmpi"]), 2.0, 2.5, sizes=(8, 48)),
    Row("shm 8-48 B / MPICH", versus(["mpich"]), 3.0, 4.0, sizes=(8, 48)),
    Row("shm 8-48 B, ours / cache line one way", over("line"), 1.5, 1.25, "<=", sizes=(8, 48)),
    Row("shm 64-512 B / Open MPI", versus(["openmpi"]), 1.8, 2.5, sizes=(64, 512)),
    Row("shm 4 KiB / both MPIs", all_of(MPIS), 1.3, 1.6, sizes=one(4 * K)),
    Row("shm 32 KiB / both MPIs", all_of(MPIS), 1.5, 1.9, sizes=one(32 * K)),
    Row("shm 256 KiB-1 MiB / both MPIs", all_of(MPIS), 1.3, 1.5, sizes=(256 * K, M)),
    Row("shm 2-16 MiB / both MPIs", all_of(MPIS), 1.5, 1.7, sizes=(2 * M, 16 * M)),
    Row("shm 128 MiB / both MPIs", all_of(MPIS), 4.0, 5.0, sizes=one(128 * M)),
    Row("shm >= 2 MiB own buffers, out of place / both MPIs", all_of(MPIS, "ours_own"), 3.0, 3.5, sizes=(2 * M, 1 << 62),
        places=("out",)),
    Row("shm >= 2 MiB own buffers, in place / both MPIs", all_of(MPIS, "ours_own"), 4.0, 5.0, sizes=(2 * M, 1 << 62),
        places=("in",)),
    Row("shm >= 2 MiB own buffers, share of the floor", share("floor", "ours_own"), 0.8, 0.9, sizes=(2 * M, 1 << 62)),
    Row("shm 4 and 8 ranks on 2 cores / best peer", versus([*MPIS, "gloo", "torch"]), 0.95, 1.5, ranks=(4, 8)),
    Row("Gloo, shm <= 64 KiB", versus(["gloo", "torch"]), 10, 10, sizes=(0, 64 * K)),
    Row("Gloo, shm > 64 KiB", versus(["gloo", "torch"]), 4, 4, sizes=(64 * K + 1, 1 << 62)),
    Row("Gloo, tcp", versus(["gloo", "torch"]), 1, 1, transport="tcp"),
    Row("tcp 8 B / Open MPI", versus(["openmpi"]), 1.3, 1.6, transport="tcp", sizes=one(8)),
    Row("tcp 8 B, ours / bare one way", over("line"), 1.5, 1.5, "<=", transport="tcp", sizes=one(8)),
    Row("tcp 64 KiB-64 MiB, share of a bare exchange", share("floor"), 0.8, 0.9, transport="tcp", sizes=(64 * K, 64 * M)),
    Row("tcp >= 4 MiB / Open MPI as shipped", versus(["openmpi"]), 1.5, 2.0, transport="tcp", sizes=(4 * M, 1 << 62)),
    Row("tcp >= 64 KiB / Open MPI, equal congestion control", versus(["openmpi"]), 1.0, 1.2, transport="tcp",
        sizes=(64 * K, 1 << 62), cc="equal"),
) + tuple(
    Row("shm %s / both MPIs" % kind, all_of(MPIS), 1.2, 1.2, kinds=(kind,))
    for kind in ("broadcast", "reduce_scatter", "all_gather", "all_to_all", "barrier"))


def straight(times):
    """Time at every n by the line through 2, 4 and 8 (time over log2 n, piece by piece): {n: time / line}."""
    out = {}
    for n in (3, 5, 6, 7):
        a, b = (2, 4) if n < 4 else (4, 8)
        if n in times and a in times and b in times:
            part = math.log2(n / a)
            out[n] = times[n] / (times[a] + (times[b] - times[a]) * part)
    return out


def any_n(cells, size):
    times = {c["ranks"]: statistics.median(c["seconds"]["ours"]) for c in cells
             if c["kind"] == "all_reduce" and c["transport"] == "tcp" and c["bytes"] == size and c["place"] == "out"
             and not c["cold"] and not c.get("busy") and c["cc"] is None and c["seconds"].get("ours")}
    return straight(times)


def verdict(row, value):
    if value is None:
        return "not measured"
    return "aim" if row.good(value, row.aim) else "must" if row.good(value, row.must) else "MISSED"


def verdicts(cells):
    """[(name, sense, must, aim, seen, verdict, misses)] with seen as a text."""
    out = []
    for row in ROWS:
        seen = [(row.seen(c), c) for c in cells if row.takes(c)]
        seen = [(s, c) for s, c in seen if s]
        if not seen:
            out.append((row.name, row.sense, row.must, row.aim, "-", verdict(row, None), []))
            continue
        (worst, low, high), where = (min if row.sense == ">=" else max)(seen, key=lambda p: p[0][0])
        misses = ["%s %s %.2f" % (size_text(c["bytes"]), c["place"] if c["ranks"] == 2 else "%d ranks %s" % (
            c["ranks"], c["place"]), s[0]) for s, c in seen if not row.good(s[0], row.must)]
        text = "%.2f (%.2f-%.2f) at %s %s" % (worst, low, high, size_text(where["bytes"]), where["place"])
        if len(row.ranks) > 1:
            text += ", %d ranks" % where["ranks"]
        out.append((row.name, row.sense, row.must, row.aim, text, verdict(row, worst), misses))
    for size in (64 * K, M):
        far = any_n(cells, size)
        name = "any n, tcp %s: time by the line through 2, 4, 8" % size_text(size)
        if not far:
            out.append((name, "<=", 1.3, 1.15, "-", "not measured", []))
            continue
        n = max(far, key=far.get)
        row = Row(name, None, 1.3, 1.15, "<=")
        out.append((name, "<=", 1.3, 1.15, "%.2f at n = %d" % (far[n], n), verdict(row, far[n]),
                    ["n = %d %.2f" % p for p in far.items() if p[1] > 1.3]))
    return out


def text(cells):
    out = []
    for name, sense, must, aim, seen, said, misses in verdicts(cells):
        out.append("%-12s %-58s %s %-5g aim %-5g seen %s" % (said, name, sense, must, aim, seen))
        if misses:
            out.append("             misses at: " + ", ".join(misses))
    return "\n".join(out)


def markdown(cells):
    out = ["| row | must | aim | seen (worst cell) | verdict |", "|---|---|---|---|---|"]
    for name, sense, must, aim, seen, said, misses in verdicts(cells):
        out.append("| %s | %s %g | %g | %s | %s%s |" % (name, sense, must, aim, seen, said,
                                                        ": " + ", ".join(misses) if misses else ""))
    return "\n".join(out)
