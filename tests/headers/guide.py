#!/usr/bin/env python3
"""The C examples of docs/guide/async.md, tags.md and training.md compile without a warning; links between pages lead to a file
and, where they name one, to a heading of it; the README of a directory of pages lists all of them.
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
for page in ("async", "tags", "training"):
    with open(f"{ROOT}/docs/guide/{page}.md") as f:
        blocks += re.findall(r"```c\n(.*?)```", f.read(), re.S)
source = ("#include <stdio.h>\n#include <coll/coll.h>\n#include <coll/ddp.h>\nvoid compute_something_else(void);\n"
          "void compute_the_gradient(int param, float *grad);\nvoid update(float *w0, float *w1, const float *grads);\n")
for i, block in enumerate(blocks):
    source += f"void example_{i}({KNOWN});\nvoid example_{i}({KNOWN})\n{{\n{block.replace('...', ';')}}}\n"
done = subprocess.run([CC, "-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-fsyntax-only",
                       f"-I{ROOT}/include", "-x", "c", "-"], input=source, text=True)
compiled = len(blocks) > 0 and done.returncode == 0



def prose(text):
    """Without code: nothing in it is a link or a heading."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^ *```.*?^ *```$", "", text, flags=re.S | re.M))


def anchors(text):
    """What the headings of a page are called in links, as GitHub makes it."""
    found = set()
    for title in re.findall(r"^#+ +(.*?) *#*$", re.sub(r"^ *```.*?^ *```$", "", text, flags=re.S | re.M), re.M):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        name = base = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        for i in range(1, 100):
            if name not in found:
                break
            name = f"{base}-{i}"
        found.add(name)
    return found | set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))


def dead(page, text):
    """Links of a page that lead nowhere."""
    found = []
    for to, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", prose(text)):
        if "://" in to or to.startswith("mailto:"):
            continue
        at = os.path.join(os.path.dirname(page), to) if to else page
        if not os.path.exists(at):
            found.append(f"{page} links to {to}, which is not there")
        elif anchor and (at == page or at.endswith(".md")):
            other = text if at == page else open(at, encoding="utf-8").read()
            if anchor not in anchors(other):
                found.append(f"{page} links to {to}#{anchor}, a heading that is not there")
    return found


# The check must be able to fail.
SAMPLE = "# One, `two` (three)\n\n[a](#one-two-three) [b](#none) [c](no-such-page.md) `[d](x.md)`\n"
lost = [] if len(dead(os.path.abspath(__file__), SAMPLE)) == 2 else ["the check of links does not find dead ones"]
for page in sorted(glob.glob(f"{ROOT}/*.md")) + sorted(glob.glob(f"{ROOT}/docs/**/*.md", recursive=True)):
    with open(page, encoding="utf-8") as f:
        text = f.read()
    here = os.path.dirname(page)
    lost += dead(page, text)
    # docs/results has tables by date; its README names those that matter.
    if os.path.basename(page) == "README.md" and "/docs/" in page[len(ROOT):] and not here.endswith("/results"):
        to = re.findall(r"\]\(([^)#]+)", text)
        lost += [f"{page} does not list {p}" for p in os.listdir(here)
                 if p.endswith(".md") and p != "README.md" and p not in to]
for line in lost:
    print(line)
failed = (not compiled) + bool(lost)
print(f"{2 - failed} passed, {failed} failed, 0 skipped")
sys.exit(failed > 0)
