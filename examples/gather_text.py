#!/usr/bin/env python3
"""Concatenate this project's sources and documents into one text.

usage: gather_text.py SOURCE_ROOT OUTPUT DEPFILE

The order is that of the sorted paths, so the same tree gives the same bytes.
The depfile names every file read, and the directories: ninja gathers again
when one of them changes.
"""
import os
import sys

TOPS = ["include", "src", "transports", "topology", "sim", "ddp", "gpt", "examples", "python", "bench", "tools",
        "tests", "docs"]
ENDINGS = (".c", ".h", ".md", ".py", ".sh", ".build", ".map")
LARGEST = 256 * 1024  # bytes: generated tables are no prose


def gather(root):
    paths, folders = [], [root]
    for name in os.listdir(root):
        if name.endswith(ENDINGS):
            paths.append(os.path.join(root, name))
    for top in TOPS:
        for folder, subfolders, names in os.walk(os.path.join(root, top)):
            subfolders[:] = [s for s in subfolders if not s.startswith((".", "build"))]
            folders.append(folder)
            paths += [os.path.join(folder, n) for n in names if n.endswith(ENDINGS) and not n.startswith(".")]
    paths = [p for p in paths if os.path.isfile(p) and os.path.getsize(p) <= LARGEST]
    return sorted(paths, key=lambda p: os.path.relpath(p, root).encode()), folders


def main():
    root, output, depfile = sys.argv[1:]
    paths, folders = gather(root)
    with open(output, "wb") as out:
        for path in paths:
            with open(path, "rb") as f:
                out.write(f.read())
    with open(depfile, "w", encoding="utf-8") as deps:
        escaped = [p.replace(" ", "\\ ") for p in paths + folders]
        deps.write(output + ": " + " ".join(escaped) + "\n")


main()
