#!/usr/bin/env python3
"""The C examples of docs/guide/async.md and training.md compile without a warning.
usage: guide.py SOURCE-ROOT [CC]"""
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
good = len(blocks) > 0 and done.returncode == 0
print(f"{len(blocks) if good else 0} passed, {0 if good else max(1, len(blocks))} failed, 0 skipped")
sys.exit(not good)
