#!/usr/bin/env python3
"""Statements of the docs that can be checked are true.

- docs/design/engine.md lists the files of src/engine: all of them, and no others.
- docs/design/failures.md names tests: each is a file of the folder that stands before it in its row.
- The environment is read by src/base/config.c, and by the files of GETENV for what is no setting of the struct.
- docs/design/README.md lists the process globals with the files that hold them: those whose objects have data that may
  be written, and no others.
usage: facts.py SOURCE-ROOT BUILD-ROOT"""
import json
import os
import re
import subprocess
import sys


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def sources(*folders):
    return sorted(os.path.join(base, name) for top in folders for base, _, names in os.walk(top)
                  for name in names if name.endswith((".c", ".h")) and "_test" not in name)


def codes(text):
    return re.findall(r"`([^`]+)`", text)


# ---- Tables of files ----

def table(text, head):
    """The rows of the table that begins with this line."""
    lines = text[text.index(head):].split("\n")
    return [line for i, line in enumerate(lines) if line.startswith("|") and all(x.startswith("|") for x in lines[:i + 1])]


def first_cells(text, head):
    return [name for row in table(text, head)[2:] for name in codes(row.split("|")[1])]


def check_engine(text, there):
    named = first_cells(text, "| file | owns |")
    for name in sorted(there - set(named)):
        yield f"docs/design/engine.md: the table of files lacks {name}"
    for name in sorted(set(named) - there):
        yield f"docs/design/engine.md: src/engine has no {name}"


def check_tests(text, exists):
    """In a row of names the folder of the first counts for those that have none."""
    for row in table(text, "| | |\n|---|---|"):
        folder = ""
        for name in codes(row.split("|")[1]):
            if "/" in name and not name.startswith("./"):
                folder = os.path.dirname(name)
            elif re.fullmatch(r"\w+\.(c|py|sh)", name):
                name = os.path.join(folder, name)
            if re.fullmatch(r"[\w/]+\.(c|py|sh)", name) and not exists(name):
                yield f"docs/design/failures.md: there is no {name}"


# ---- The environment ----

GETENV = {
    "src/base/config.c": "the settings themselves",
    "src/bootstrap/probe.c": "variables of launchers",
    "src/bootstrap/slurm.c": "variables of Slurm",
    "src/bootstrap/meeting_file.c": "the user's folder for files that live as long as the session",
    "src/bootstrap/secret.c": "the user's folder for the key file",
    "src/bootstrap/pmi.c": "the descriptor of a launcher",
    "src/device/cuda.c": "CUDA_VISIBLE_DEVICES",
    "src/device/cuda_load.c": "CUDA_VISIBLE_DEVICES",
    "topology/host_digest.c": "the user's folder for files that live as long as the session",
    "src/compat/nccl/variables.c": "variables of NCCL",
    "src/compat/nccl/driver.c": "COLL_DEVICE=host, before there is a communicator",
}


def check_getenv(named, readers):
    for path in sorted(readers - set(named)):
        yield f"{path}: reads the environment: read the struct of base/config.h"
    for path in sorted(set(named) - readers):
        yield f"{path}: does not read the environment any more"


# ---- Globals ----

def writable(symbols):
    """Names of objects in sections that may be written after the start."""
    return [line.split()[-1] for line in symbols.splitlines()
            if re.search(r" O \.(data|bss)(\.(?!rel\.ro)\S*)?\t|^\S+ [gl]      ? \.t(data|bss)\S*\t", line)]


def holders(build, root):
    found = set()
    for c in json.loads(read(os.path.join(build, "compile_commands.json"))):
        if c["output"].startswith(("libcoll_core", "src/compat")) and c["output"].endswith(".o"):
            source = os.path.relpath(os.path.join(c["directory"], c["file"]), root)
            symbols = subprocess.run(["objdump", "-t", os.path.join(build, c["output"])], capture_output=True, text=True).stdout
            if source.endswith(".c") and not source.startswith("..") and writable(symbols):
                found.add(source)
    return found


def check_globals(text, found):
    begin = text.index("Process globals are few.")
    named = {p for code in codes(text[begin:text.index("\n## ", begin)]) for p in spread(code) if p.endswith(".c")}
    for path in sorted(found - named):
        yield f"{path}: has data of the process; docs/design/README.md does not name it"
    for path in sorted(named - found):
        yield f"docs/design/README.md: {path} has no data of the process"


def spread(path):
    m = re.search(r"\{([^{}]*)\}", path)
    return [path] if not m else [p for part in m[1].split(",") for p in spread(path[:m.start()] + part + path[m.end():])]


def self_test():
    if list(check_engine("x\n\n| file | owns |\n|---|---|\n| `a.c`, `b.h` | - |\n\n| `c.c` |\n", {"a.c", "d.c"})) == []:
        yield "self-test: a table of files"
    page = "| | |\n|---|---|\n| `tests/multi/a.c`, `b.c` | - |\n"
    if list(check_tests(page, lambda p: p == "tests/multi/a.c")) != ["docs/design/failures.md: there is no tests/multi/b.c"]:
        yield "self-test: a test in another folder"
    if len(list(check_getenv({"src/a/b.c": ""}, {"src/a/c.c"}))) != 2:
        yield "self-test: readers of the environment"
    table = ("0 l     O .bss\t04 counter\n0 l     O .data.rel.ro.local\t04 names\n0 g     O .data\t04 level\n0 g     F .text\t04 f\n"
             "0 l       .tbss\t04 mine\n0 l    d  .tbss\t04 .tbss\n0 l     O .rodata\t04 text\n")
    if writable(table) != ["counter", "level", "mine"]:
        yield f"self-test: {writable(table)} may be written"
    if len(list(check_globals("Process globals are few.\n- a (`src/{a,b}.c`)\n\n## Next `src/c.c`", {"src/b.c", "src/c.c"}))) != 2:
        yield "self-test: globals"


def main():
    root, build = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    os.chdir(root)
    engine = {n for n in os.listdir("src/engine") if n.endswith((".c", ".h")) and "_test" not in n}
    readers = {p for p in sources("src", "transports", "topology", "ddp") if re.search(r"\bgetenv\s*\(", read(p)) and p.endswith(".c")}
    held = holders(build, root)
    faults = list(self_test())
    faults += check_engine(read("docs/design/engine.md"), engine)
    faults += check_tests(read("docs/design/failures.md"), os.path.exists)
    faults += check_getenv(GETENV, readers)
    faults += check_globals(read("docs/design/README.md"), held)
    print("\n".join(faults) or f"{len(engine)} files of the engine, {len(readers)} readers of the environment, {len(held)} files with globals")
    return 1 if faults or not engine or not readers or not held else 0


sys.exit(main())
