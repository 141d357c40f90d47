#!/usr/bin/env python3
"""Messages and their ids: every error and warning of the sources begins with an id or
gets that of its status, every id is explained, none is explained that nobody says, and
docs/guide/messages.md shows the table. usage: messages.py SOURCE-ROOT [--write]"""
import os
import re
import sys

ROOT = sys.argv[1]
PAGE = f"{ROOT}/docs/guide/messages.md"
GROUPS = {1: "The call or the configuration", 2: "Another rank", 3: "The communicator", 4: "This process",
          5: "Warnings", 6: "Transports"}
# Log calls whose text was made elsewhere, id included.
PASSED_ON = {("src/core/thread_error.c", "m.tag"), ("src/control/control.c", "line->text"),
             ("src/core/error.c", "m.tag"), ("src/comm/closing.c", "(*error_out)->message")}
STRING = r'"(?:[^"\\]|\\.)*"'


def sources():
    for top in ("src", "transports", "topology"):
        for directory, _, names in os.walk(f"{ROOT}/{top}"):
            for name in sorted(names):
                if name.endswith((".c", ".h")) and not name.endswith("_test.c") and not name.startswith("messages"):
                    path = os.path.join(directory, name)
                    with open(path) as f:
                        yield os.path.relpath(path, ROOT), f.read()


def rows():
    with open(f"{ROOT}/src/base/messages_rows.h") as f:
        found = re.findall(rf"^MESSAGE\((\d+), (\w+), ({STRING}), ({STRING})\)$", f.read(), re.M)
    unquote = lambda s: s[1:-1].replace('\\"', '"')
    return [(int(i), status, unquote(meaning), unquote(action)) for i, status, meaning, action in found]


def statuses():
    with open(f"{ROOT}/include/coll/coll.h") as f:
        return set(re.findall(r"\b(COLL_ERR_\w+)\s*=", f.read()))


def attention(text):
    """Calls that log an error or a warning: from the level to the end of the statement."""
    for m in re.finditer(r"log\([\w>.&()-]+,\s*(?:COLL_LOG_(?:ERROR|WARN)|[01]),(.*?)\);", text, re.S):
        yield m.group(1)


def page(table):
    lines = ["# Messages", "", "Every error and warning ends in an id, `[COLL-3101]`. An id means the same in all versions; texts may be",
             "reworded. `coll-info --explain 3101` shows a row of this page.", ""]
    for group, title in GROUPS.items():
        lines += [f"## {title}", "", "| id | means | what to do |", "|---|---|---|"]
        lines += [f"| COLL-{i:04} | {meaning} | {action} |".replace("\\", "") for i, _, meaning, action in table
                  if i // 1000 == group]
        lines += [""]
    return "\n".join(lines[:-1]) + "\n"


def main():
    table, faults, said = rows(), [], set()
    ids = [i for i, *_ in table]
    if "--write" in sys.argv:
        with open(PAGE, "w") as f:
            f.write(page(table))
    with open(f"{ROOT}/src/base/messages_rows.h") as f:
        if len(re.findall("^MESSAGE", f.read(), re.M)) != len(table) or not table:
            faults.append("messages_rows.h: a row is not MESSAGE(id, status, meaning, action)")
    if ids != sorted(set(ids)):
        faults.append("messages_rows.h: ids are not in order, or twice")
    for path, text in sources():
        said |= {int(i) for i in re.findall(r'"\[COLL-(\d{4})\] ', text)}
        for stray in re.findall(r"(?<!\")\[COLL-\d+\](?! )", text):
            faults.append(f"{path}: {stray} does not begin a text")
        for call in attention(text):
            first = re.search(STRING, call)
            if any(p == path and word in call for p, word in PASSED_ON):
                continue
            if not first or not re.match(r'"\[COLL-\d{4}\] ', first.group()):
                faults.append(f"{path}: logged without an id:{call}")
    generic = {status: i for i, status, *_ in table if status != "COLL_OK"}
    for i in sorted(said - set(ids)):
        faults.append(f"COLL-{i:04} is said, but not explained in messages_rows.h")
    for i in sorted(set(ids) - said - set(generic.values())):
        faults.append(f"COLL-{i:04} is explained, but nobody says it")
    if set(generic) != statuses():
        faults.append(f"statuses without a row, or rows without a status: {set(generic) ^ statuses()}")
    try:
        with open(PAGE) as f:
            if f.read() != page(table):
                faults.append("docs/guide/messages.md is not what tests/headers/messages.py --write makes")
    except FileNotFoundError:
        faults.append("docs/guide/messages.md is missing")
    print("\n".join(faults) or f"{len(table)} messages, {len(said)} of them said with their own id")
    return 1 if faults else 0


sys.exit(main())
