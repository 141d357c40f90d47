#!/usr/bin/env python3
"""Statements of README.md that can be compared with their sources.

- The figures are those of the tables that it links to.
- Each `./run` line names a command and flags that exist; each path to choose leads to a page.
- The fragment of C compiles, and those of Python are Python.
- Version and address are the same wherever they stand (tools/release/version.py, address.py).
usage: readme.py SOURCE-ROOT [CC]"""
import os
import re
import subprocess
import sys

IDLE, BUSY = "docs/results/2026-11-23-intel-r-xeon-r-processor-2-cores.md", "docs/results/experiments/intra.md"
IDLE_TABLE = "### all_reduce, shm, 2 ranks, out of place (beside Open MPI, MPICH)"
# Rows of README, and columns of the two tables.
COLUMNS = {"idle, libcoll": "ours us", "idle, libcoll in memory of `coll_mem_alloc()`": "own us", "idle, Open MPI": "OMPI us", "idle, MPICH": "MPICH us",
           "busy, libcoll": "now", "busy, Gloo over TCP on the same host": "Gloo 0.5, tcp"}
SIZES = {"4 B": "4", "4 KiB": "4 Ki", "64 KiB": "64 Ki"}


def cells(line):
    return [c.strip() for c in line.strip().strip("|").split("|")]


def table(text, start):
    """Rows of the first table behind a text."""
    lines = text[text.index(start):].split("\n")
    first = next(i for i, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[first:]:
        if not line.startswith("|"):
            break
        rows.append(cells(line))
    return [r for r in rows if not re.fullmatch(r"[-: ]+", r[0])]


def figures(readme, idle, busy):
    heads = [r for r in table(idle, IDLE_TABLE)]
    sources = {"idle": {(row[0], head): row[heads[0].index(head)] for row in heads[1:] for head in heads[0]}}
    rows = table(busy, "## Busy cores")
    sources["busy"] = {(row[1], head): row[rows[0].index(head)].split(" ")[0] for row in rows[1:] if row[0] == "4" for head in rows[0]}
    found = 0
    for start in ("| | 8 B |", "| | 4 B |"):
        shown = table(readme, start)
        for row in shown[1:]:
            source = sources[row[0][:4]]
            for size, value in zip(shown[0][1:], row[1:]):
                want = source.get((size if row[0][:4] == "idle" else SIZES[size], COLUMNS[row[0]]))
                found += 1
                if value != want:
                    yield f"README.md: {row[0]}, {size}: {value}, but the results have {want}"
    if found < 20:
        yield f"README.md: {found} figures, at least 20 expected"


def commands(readme, run, helps):
    """helps: from the command behind ./run to the text that lists its flags."""
    known = set(re.findall(r"^\s+([a-z-]+(?: \| [a-z-]+)*)\) ", run, re.M))
    known = {word for group in known for word in group.split(" | ")}
    lines = re.findall(r"\./run ([^\n`#]+)", readme)
    for line in lines:
        words = line.split()
        if words[0] not in known:
            yield f"README.md: ./run has no command {words[0]}"
        for flag in [w for w in words[1:] if w.startswith("--")]:
            if flag not in helps.get(words[0], ""):
                yield f"README.md: ./run {words[0]} has no flag {flag}"
    if len(lines) < 4:
        yield "README.md: too few lines of ./run"


def paths(readme):
    rows = table(readme, "## Choose your path")[1:]
    if len(rows) != 6:
        yield f"README.md: {len(rows)} paths, not 6"
    for row in rows:
        if "](docs/guide/" not in row[1] and "[concepts]" not in row[1]:
            yield f"README.md: the path of {row[0]} leads to no page"
    if len(table(readme, "## Beside others")) != 9:
        yield "README.md: the comparison has not 8 rows"


def fragments(readme, root, cc):
    for kind, body in re.findall(r"^```(c|python)\n(.*?)^```", readme, re.M | re.S):
        if kind == "python":
            try:
                compile(body, "README.md", "exec")
            except SyntaxError as e:
                yield f"README.md: {e}"
        elif "int main" not in body:
            source = f"#include <coll/coll.h>\nvoid f(const float *in, float *out, size_t count, coll_comm *comm);\n" \
                     f"void f(const float *in, float *out, size_t count, coll_comm *comm)\n{{\n{body}}}\n"
            done = subprocess.run([cc, "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{root}/include", "-x", "c", "-"], input=source,
                                  text=True, capture_output=True)
            if done.returncode:
                yield f"README.md: a fragment does not compile:\n{done.stderr}"


def self_test(readme, idle, busy, run):
    if not list(figures(readme.replace("| 0.156 |", "| 0.155 |"), idle, busy)):
        yield "self-test: a wrong figure is not found"
    if not list(figures(readme.replace("| 2764 |", "| 2765 |"), idle, busy)):
        yield "self-test: a wrong busy figure is not found"
    if len(list(commands(readme + "\n./run nonsense\n./run bench --nonsense\n", run, {"bench": "--quick --busy"}))) < 2:
        yield "self-test: a wrong command is not found"
    if not list(paths(readme.replace("](docs/guide/nccl.md)", "]()"))):
        yield "self-test: a path without a page is not found"
    if not list(fragments("```python\nx = (\n```\n", ".", "cc")):
        yield "self-test: a wrong fragment is not found"


def main():
    root, cc = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "cc"
    def read(name):
        with open(os.path.join(root, name), encoding="utf-8") as f:
            return f.read()
    readme, idle, busy, run = read("README.md"), read(IDLE), read(BUSY), read("run")
    bench = subprocess.run([sys.executable, os.path.join(root, "bench/peers/run.py"), "--help"], capture_output=True, text=True).stdout
    faults = list(self_test(readme, idle, busy, run))
    faults += figures(readme, idle, busy)
    faults += commands(readme, run, {"bench": bench})
    faults += paths(readme)
    faults += fragments(readme, root, cc)
    for tool in ("address", "version"):
        done = subprocess.run([sys.executable, os.path.join(root, f"tools/release/{tool}.py"), root], capture_output=True, text=True)
        if done.returncode:
            faults.append(done.stdout.strip() + done.stderr)
    print("\n".join(faults) or "README: figures, commands, paths, fragments, versions and the address are those of their sources")
    return 1 if faults else 0


sys.exit(main())
