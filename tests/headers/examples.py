#!/usr/bin/env python3
"""Every function of the public headers is called by an example, every example is on docs/guide/examples.md, and each program of
the tutorial has less than 80 lines. usage: examples.py SOURCE-ROOT"""
import glob
import os
import re
import sys


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def code(text):
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


def lacking(headers, examples):
    """Functions that no example calls."""
    declared = set(re.findall(r"\b(coll_\w+)\(", " ".join(re.findall(r"COLL_API [^;]*?\(", code(headers)))))
    return declared, sorted(n for n in declared if not re.search(rf"\b{n}\(", examples))


def main(root):
    headers = "".join(read(p) for p in sorted(glob.glob(f"{root}/include/coll/*.h")))
    files = sorted(glob.glob(f"{root}/examples/*.c"))
    examples = "".join(code(read(p)) for p in files)
    page, tutorial = read(f"{root}/docs/guide/examples.md"), read(f"{root}/docs/guide/tutorial.md")
    declared, missing = lacking(headers, examples)
    faults = [f"{name}(): no example calls it" for name in missing]
    for path in files + sorted(glob.glob(f"{root}/python/examples/*.py")):
        name = os.path.basename(path)
        if f"`{name}`" not in page and not name.startswith("ddp_gpt_"):
            faults.append(f"docs/guide/examples.md does not name {name}")
    lessons = re.findall(r"`examples/(\w+\.c)`", tutorial)
    for name in lessons:
        lines = read(f"{root}/examples/{name}").count("\n")
        if lines >= 80:
            faults.append(f"examples/{name}: {lines} lines, less than 80 for the tutorial")
    if len(lessons) < 8 or len(declared) < 100:
        faults.append(f"{len(lessons)} lessons, {len(declared)} functions")
    # The check must be able to fail.
    if lacking(headers, examples.replace("coll_comm_shrink(", "other("))[1] != missing + ["coll_comm_shrink"] and "coll_comm_shrink" not in missing:
        faults.append("self-test: a function that no example calls is not found")
    print("\n".join(faults) or f"{len(declared)} functions in {len(files)} examples, {len(lessons)} lessons")
    return 1 if faults else 0


sys.exit(main(sys.argv[1]))
