#!/usr/bin/env python3
"""docs/guide/ways.md ends with what coll-info --ways prints, and each row names a section of an experiment that exists.
usage: ways.py BUILD-ROOT SOURCE-ROOT [--write]"""
import re
import subprocess
import sys

BUILD, ROOT = sys.argv[1:3]
PAGE = f"{ROOT}/docs/guide/ways.md"
MARK = "--write -->\n"


def sections(page):
    with open(f"{ROOT}/docs/results/experiments/{page}") as f:
        return re.findall(r"^#+ (.*)$", f.read(), re.M)


def main():
    table = subprocess.run([f"{BUILD}/tools/coll-info", "--ways"], capture_output=True, text=True, check=True).stdout
    with open(PAGE) as f:
        head = f.read().partition(MARK)[0] + MARK
    if "--write" in sys.argv:
        with open(PAGE, "w") as f:
            f.write(head + "\n" + table)
    faults, rows = [], [line.split(" | ") for line in table.splitlines() if line.count(" | ") == 8][1:]
    for row in rows:
        measured = row[-1].rstrip(" |")
        page, _, section = measured.partition(", ")
        if measured != "layout" and not any(s.startswith(section) for s in sections(page)):
            faults.append(f"{row[0]}: {page} has no section {section}")
    with open(PAGE) as f:
        if f.read() != head + "\n" + table:
            faults.append("docs/guide/ways.md is not what tests/headers/ways.py --write makes")
    if len(rows) < 10:
        faults.append("coll-info --ways prints no table")
    print("\n".join(faults) or f"{len(rows)} rows")
    return 1 if faults else 0


sys.exit(main())
