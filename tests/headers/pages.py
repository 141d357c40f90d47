#!/usr/bin/env python3
"""Each page of docs/design but its index begins with its claim, a picture or a table, and its invariants, on one screen. Up to
a line of its own it can be read alone in five minutes; the arguments stand below. usage: pages.py SOURCE-ROOT"""
import os
import re
import sys

LINE = "\n---\n"
SCREEN_LINES, FIVE_MINUTES_WORDS, CLAIM_WORDS = 62, 1000, 130


def faults(name, text):
    found = []
    if LINE not in text:
        return [f"{name}: no line (---) between what everybody reads and the arguments"]
    top = text.split(LINE)[0]
    prose = re.sub(r"^\|.*$", "", re.sub(r"^```.*?^```$", "", top, flags=re.M | re.S), flags=re.M)
    if len(prose.split()) > FIVE_MINUTES_WORDS:
        found.append(f"{name}: {len(prose.split())} words above the line, at most {FIVE_MINUTES_WORDS}")
    at = re.search(r"^## Invariants\n(.*?)(?=^## |\Z)", top, re.M | re.S)
    if not at or not re.search(r"^(- |\d\. )", at.group(1), re.M):
        return found + [f"{name}: no list under '## Invariants' above the line"]
    if top[:at.end()].count("\n") > SCREEN_LINES:
        found.append(f"{name}: the invariants end in line {top[:at.end()].count(chr(10))}, not on the first screen ({SCREEN_LINES})")
    if not re.search(r"^(```|\|)", top, re.M):
        found.append(f"{name}: neither a picture nor a table above the line")
    claim = re.sub(r"^# .*\n", "", re.split(r"^(?:```|\||## )", top, flags=re.M)[0])
    if not 10 <= len(claim.split()) <= CLAIM_WORDS:
        found.append(f"{name}: the claim has {len(claim.split())} words, 10 to {CLAIM_WORDS}")
    return found


def main(root):
    folder, bad = os.path.join(root, "docs/design"), []
    names = sorted(n for n in os.listdir(folder) if n.endswith(".md") and n != "README.md")
    for name in names:
        with open(os.path.join(folder, name), encoding="utf-8") as f:
            bad += faults(name, f.read())
    planted = "# A\n\n" + "word " * 20 + "\n\n| a |\n\n## Invariants\n\n- one\n" + LINE
    for change in (planted.replace(LINE, ""), planted.replace("- one", "one"), planted.replace("| a |", ""),
                   planted.replace("## Invariants", "\n" * SCREEN_LINES + "## Invariants"), planted.replace("word", "word " * 100)):
        if not faults("planted", change):
            bad.append("a planted mistake was not found")
    if faults("planted", planted):
        bad.append("a right page was refused")
    print("\n".join(bad))
    print(f"{max(len(names) - len(bad), 0)} passed, {len(bad)} failed, 0 skipped")
    return 1 if bad or len(names) < 20 else 0


sys.exit(main(sys.argv[1]))
