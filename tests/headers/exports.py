#!/usr/bin/env python3
"""The names that leave the library are listed one by one in src/libcoll.map: those of the functions that coll.h and
ddp.h declare, no more and no fewer, in alphabetical order and without wildcards. (The test `install` compares the
headers with what the compiled library exports.)
usage: exports.py SOURCE-ROOT"""
import os
import re
import sys

HEADERS = ("include/coll/coll.h", "include/coll/ddp.h")
MAP = "src/libcoll.map"


def declared(text):
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    return re.findall(r"^\s*COLL_API\b[^;(]*?\b(\w+)\s*\(", text, flags=re.M)


def listed(text):
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    match = re.search(r"\bglobal:(.*?)\blocal:\s*\*;", text, flags=re.S)
    return [name.strip() for name in match[1].split(";") if name.strip()] if match else []


def faults(names, exported):
    found = [f"{MAP}: {name} is no name of a function" for name in exported if not re.fullmatch(r"\w+", name)]
    found += [f"{name} is declared and not in {MAP}" for name in sorted(set(names) - set(exported))]
    found += [f"{MAP}: {name} is not declared" for name in sorted(set(exported) - set(names))]
    if exported != sorted(set(exported)):
        found.append(f"{MAP}: not in alphabetical order, or a name stands twice")
    return found


def self_test():
    names = declared("/* COLL_API int coll_no(void); */\nCOLL_API int coll_a(int (*f)(void));\nCOLL_API const char *\ncoll_b(void);")
    exported = listed("V {\n/* a */ global:\n\tcoll_a;\n\tcoll_b;\n\tlocal: *;\n};")
    if names != ["coll_a", "coll_b"] or exported != names or faults(names, exported):
        return ["self-test: lists are not read as they should"]
    for wrong in (["coll_*"], ["coll_a"], ["coll_a", "coll_b", "coll_c"], ["coll_b", "coll_a"]):
        if not faults(names, wrong):
            return [f"self-test: {wrong} was taken for {names}"]
    return []


def read(root, path):
    with open(os.path.join(root, path)) as f:
        return f.read()


def main():
    root = sys.argv[1]
    names = [name for path in HEADERS for name in declared(read(root, path))]
    found = self_test() + faults(names, listed(read(root, MAP)))
    print("\n".join(found) or f"{len(names)} functions, each declared and exported")
    return 1 if found or len(names) < 100 else 0


sys.exit(main())
