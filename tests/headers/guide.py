#!/usr/bin/env python3
"""The C examples of docs/guide/async.md and training.md compile without a warning; links between pages lead
somewhere, and the README of a directory of pages lists all of them.
usage: guide.py SOURCE-ROOT [CC]"""
import glob
import os
import re
import subprocess
import sys

ROOT, CC = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "cc"
# What the examples take for granted.
KNOWN = "coll_comm *comm, float *grad, float *x, size_t n, coll_operation *op, float *w0, float *w1, int steps"

blocks = []
for page in ("async", "training"):
    with open(f"{ROOT}/docs/guide/{page}.md") as f:
        blocks += re.findall(r"```c\n(.*?)```", f.read(), re.S)
source = ("#include <stdio.h>\n#include <coll/coll.h>\n#include <coll/ddp.h>\nvoid compute_something_else(void);\n"
          "void compute_the_gradient(int param, float *grad);\nvoid update(float *w0, float *w1, const float *grads);\n")
for i, block in enumerate(blocks):
    source += f"void example_{i}({KNOWN});\nvoid example_{i}({KNOWN})\n{{\n{block.replace('...', ';')}}}\n"
done = subprocess.run([CC, "-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-fsyntax-only",
                       f"-I{ROOT}/include", "-x", "c", "-"], input=source, text=True)
compiled = len(blocks) > 0 and done.returncode == 0

lost = []
for page in [f"{ROOT}/README.md", f"{ROOT}/CONTRIBUTING.md"] + glob.glob(f"{ROOT}/docs/**/*.md", recursive=True):
    with open(page) as f:
        text = f.read()
    to = [t for t in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text) if "://" not in t]
    here = os.path.dirname(page)
    lost += [f"{page} links to {t}, which is not there" for t in to if not os.path.exists(os.path.join(here, t))]
    if os.path.basename(page) == "README.md" and "/docs/" in page[len(ROOT):] and "/results/" not in page:
        lost += [f"{page} does not list {p}" for p in os.listdir(here)
                 if p.endswith(".md") and p != "README.md" and p not in to]
for line in lost:
    print(line)
failed = (not compiled) + bool(lost)
print(f"{2 - failed} passed, {failed} failed, 0 skipped")
sys.exit(failed > 0)
