"""What is measured: cells, their statistics, and the file they are kept in.

A cell is one collective of one size between so many ranks; of each library it keeps the seconds of one call in each of
its blocks. Blocks of all libraries take turns, so that block b of one and block b of another saw the same machine; ratios
are made block by block and their median is what counts.
"""
import json
import math
import re
import statistics

KINDS = ("all_reduce", "broadcast", "reduce_scatter", "all_gather", "all_to_all", "barrier")
MESSAGES = ("send_recv",)  # by name only
PEERS = ("before", "openmpi", "mpich", "gloo", "torch")
KEY = ("transport", "cc", "ranks", "kind", "bytes", "place", "cold", "busy")
RUN = ("machine", "commit", "date", "load", "versions", "missing")


def size_of(text):
    """'8', '4K', '2M', '1G': bytes."""
    match = re.fullmatch(r"(\d+)([KMG]?)i?[Bb]?", text.strip(), re.IGNORECASE)
    if not match:
        raise ValueError("not a size: " + text)
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2].upper()]


def size_text(size):
    for shift, unit in ((30, "Gi"), (20, "Mi"), (10, "Ki")):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return "%d %sB" % (size >> shift, unit)
    return "%d B" % size


def interval(values):
    """Median, and the order statistics that enclose the true one with 95 % (no assumption on the distribution)."""
    v = sorted(values)
    reach = math.ceil(1.96 * math.sqrt(len(v)) / 2)
    middle = len(v) // 2
    return statistics.median(v), v[max(0, middle - reach)], v[min(len(v) - 1, middle + reach)]


def ratios(cell, above, below):
    """Of times of two libraries, block by block: (median, low, high); None when one is missing."""
    a, b = cell["seconds"].get(above), cell["seconds"].get(below)
    if not a or not b or len(a) != len(b):
        return None
    return interval([x / y for x, y in zip(a, b)])


def median_us(cell, name):
    values = cell["seconds"].get(name)
    return statistics.median(values) * 1e6 if values else None


def median_used(cell, name):
    """Of a call and a rank: microseconds of the processor, sleeps, preemptions; None: not known."""
    values = cell.get("used", {}).get(name)
    return [statistics.median(v) * scale for v, scale in zip(zip(*values), (1e6, 1, 1))] if values else None


def beside(cell):
    """Peers that it was measured beside: ratios hold within one run only."""
    return tuple(p for p in PEERS if p in cell["seconds"])


def key(cell):
    return tuple(cell.get(k) for k in KEY) + beside(cell)


def merge(documents):
    """One document of several: the later one's cell replaces an earlier one's beside the same peers."""
    cells, runs = {}, []
    for d in documents:
        runs += d["runs"]
        for c in d["cells"]:
            cells[key(c)] = dict(c)
    order = {k: i for i, k in enumerate(KINDS + MESSAGES)}
    out = sorted(cells.values(), key=lambda c: (c["transport"], str(c["cc"]), c["ranks"], order.get(c["kind"], 99), c["place"],
                                                bool(c["cold"]), c.get("busy", 0), beside(c), c["bytes"]))
    return {"runs": runs, "cells": out}


def whole(rows, names):
    return isinstance(rows, list) and all(isinstance(r, dict) and all(n in r for n in names) for r in rows)


def load(path):
    """OSError, ValueError: what is wrong with the file, in a sentence."""
    with open(path) as f:
        try:
            d = json.load(f)
        except ValueError as e:
            raise ValueError("%s is no result of this program, or not all of one: %s" % (path, e)) from None
    if not isinstance(d, dict) or not whole(d.get("runs"), RUN) or not whole(d.get("cells"), (*KEY[:-1], "seconds")):
        raise ValueError(path + " is no result of this program")
    return d


def save(path, document):
    with open(path, "w") as f:
        f.write('{"runs": [\n')
        f.write(",\n".join(json.dumps(r) for r in document["runs"]))
        f.write('],\n"cells": [\n')
        f.write(",\n".join(json.dumps(c) for c in document["cells"]))
        f.write("]}\n")
