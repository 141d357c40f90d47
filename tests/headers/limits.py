#!/usr/bin/env python3
"""Thresholds live in src/base/limits.h: no other file of the folders that select or cut has a number of bytes of its own,
and each of them names an experiment that exists. usage: limits.py SOURCE-ROOT"""
import os
import re
import sys

ROOT = sys.argv[1]
LIMITS = "src/base/limits.h"
PAGES = "docs/results/experiments"
FOLDERS = ["select", "intra", "engine", "core", "call", "match", "inflight", "devcall", "comm"]
# No thresholds: how memory is laid out, counts of trials and turns, texts, stacks, and limits of a setting or of a table.
LAYOUT = {"COLL_LINE_BYTES", "COLL_LINES", "COLL_FIRST_PAYLOAD", "COLL_MORE_PAYLOAD", "COLL_ENTRY_PAYLOAD", "COLL_WIDE_PIECES",
          "COLL_EDGE_MAX", "COLL_PIECES_MAX", "COLL_AREA_GAP", "COLL_TILE_AREAS", "COLL_INTRA_SIZE_MAX", "COLL_CENTRAL_SIZE_MAX",
          "COLL_CENTRAL_CELL_MIN", "COLL_INTRA_OPS_MAX", "PAGE", "SLICE_MIN", "SCRATCH_ALIGN", "WORD_MAX", "STACK_BYTES", "REGIONS_MAX",
          "SLOTS_MAX", "TCP_BUFFER_MAX", "COLL_WINDOWS_MAX", "COLL_OPS_MAX", "COLL_IN_FLIGHT_MAX", "CLOSINGS_MAX", "PAUSE_MAX",
          "TEXT_MAX", "COLL_WAY_MAX", "FIRST_LONG", "COLL_CENTRAL_AHEAD", "AHEAD", "SWAP_AHEAD", "COLL_MATCH_CELL_BYTES", "FIRST_BYTES", "REST_BYTES",
          "COLL_MAPPED_RANKS_MAX", "MAPPED_FOUND_BYTES", "COLL_LABEL_BYTES", "COLL_AHEAD_TABLE_BYTES"}
NUMBER = r"\(?(?:\(size_t\))?(?:0x[0-9a-f]+|\d+)(?:\.\d*)?[uUlLf]*\)?(?:\s*(?:<<|\*)\s*\d+)?"
# A name that says a size, set to a number: in an enum, by #define, as a constant, or in a designated initialiser.
NAMED = re.compile(rf"(?:#define\s+)?\b([A-Z_0-9]*(?:MIN|MAX|BYTES|LEAST|LONG|SHORT|LIMIT|COUNT|AHEAD|UNIT|TILE))\b\s*(?:=|\s)\s*({NUMBER})\s*(?:[,;}}/\n]|$)")
LOWER = re.compile(rf"\b(\w+_bytes)\s*=\s*({NUMBER})\s*[,;}}]")
# A size compared with a number of four digits or a shift.
COMPARED = re.compile(rf"\w*bytes\w*\)?\s*(?:<=?|>=?)\s*((?:\d{{4,}}|\d+u?\s*<<\s*\d+))")


def code(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S)


def value(number):
    number = re.sub(r"\(size_t\)|[()uUlLf]", "", number)
    return eval(number, {"__builtins__": {}})  # digits and operators alone: see NUMBER


def strays(path, text):
    text = code(text)
    found = [(m.group(1), m.group(2), m.start()) for m in NAMED.finditer(text) if m.group(1) not in LAYOUT]
    found += [(m.group(1), m.group(2), m.start()) for m in LOWER.finditer(text) if value(m.group(2)) >= 256]
    found += [("a comparison", m.group(1), m.start()) for m in COMPARED.finditer(text)]
    return [f"{path}:{text.count(chr(10), 0, at) + 1}: {name} {number} belongs in {LIMITS}" for name, number, at in found]


def sections():
    found = {}
    for name in os.listdir(f"{ROOT}/{PAGES}"):
        with open(f"{ROOT}/{PAGES}/{name}") as f:
            found[name] = re.findall(r"^#+ (.*)$", f.read(), re.M)
    return found


def check_limits(text, pages):
    """Each limit has one comment, whose end is an experiment."""
    faults, rows = [], re.findall(r"/\* (.*) \*/\n\s+(COLL_\w+) = ", text)
    if len(rows) != len(re.findall(r"^\s+COLL_\w+ = ", text, re.M)) or not rows:
        faults.append(f"{LIMITS}: a limit without a comment of one line above it")
    for comment, name in rows:
        m = re.search(r"(?:(\w[\w-]*\.md), ([^.]+)|layout)$", comment)
        if not m:
            faults.append(f"{LIMITS}: {name} names no experiment")
        elif m.group(1) and not any(s.startswith(m.group(2)) for s in pages.get(m.group(1), [])):
            faults.append(f"{LIMITS}: {name}: {PAGES}/{m.group(1)} has no section {m.group(2)}")
    return faults, len(rows)


def main():
    with open(f"{ROOT}/{LIMITS}") as f:
        faults, limits = check_limits(f.read(), sections())
    files = 0
    for folder in FOLDERS:
        for name in sorted(os.listdir(f"{ROOT}/src/{folder}")):
            path = f"src/{folder}/{name}"
            if name.endswith((".c", ".h")) and not name.endswith(("_test.c", "_test.h")):
                files += 1
                with open(f"{ROOT}/{path}") as f:
                    faults += strays(path, f.read())
    planted = strays("planted.c", "enum { COPY_MIN = 4096 };\nif (bytes > 65536)\n\treturn (struct rule){.least_bytes = 2 << 20};\n")
    if len(planted) != 3 or not check_limits("\t/* No page. nowhere.md, Here */\n\tCOLL_X = 1\n", {})[0]:
        faults.append("a planted threshold is not found")
    print("\n".join(faults) or f"{limits} limits, {files} other files without any")
    return 1 if faults else 0


sys.exit(main())
