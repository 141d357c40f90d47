#!/usr/bin/env python3
"""The binary interface is that of tests/headers/coll.abi, or has more functions.

A library with an empty body for every function of coll.h and ddp.h is compiled with debug information; libabigail
describes its functions and the types that they reach, and compares them with the baseline. What is no addition of a
function makes the test fail: a function that is gone, another argument, a struct of another layout. If the change is
meant, --write makes the new baseline, and CHANGELOG.md gets a line. The test `exports` compares the names with those
that leave the library.
usage: abi.py SOURCE-ROOT [--write]"""
import os
import re
import subprocess
import sys
import tempfile

HEADERS = ("coll.h", "ddp.h")
BASELINE = "tests/headers/coll.abi"


def functions(text):
    """Prototypes of a header, without COLL_API and the semicolon."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    return [" ".join(p.split()) for p in re.findall(r"^COLL_API\s+([^;]*?)\s*;", text, flags=re.M)]


def call(*command):
    return subprocess.run(command, capture_output=True, text=True)


def library(folder, headers):
    """Compile headers, {name: text}, into a library; returns its path."""
    os.makedirs(os.path.join(folder, "coll"), exist_ok=True)
    for name, text in headers.items():
        with open(os.path.join(folder, "coll", name), "w") as f:
            f.write(text)
    source, made = os.path.join(folder, "bodies.c"), os.path.join(folder, "libcoll.so")
    with open(source, "w") as f:
        f.write("".join(f'#include "coll/{name}"\n' for name in headers))
        for text in headers.values():
            f.write("".join(f"{p}\n{{\n\t__builtin_trap();\n}}\n" for p in functions(text)))
    done = call("cc", "-std=c11", "-g", "-fPIC", "-shared", "-I", folder, "-o", made, source)
    if done.returncode:
        sys.exit(done.stderr)
    return made


def differences(baseline, headers):
    with tempfile.TemporaryDirectory() as folder:
        made = library(folder, headers)
        done = call("abidiff", "--no-show-locs", "--no-added-syms", "--no-corpus-path", baseline, made)
        return done.returncode, done.stdout + done.stderr


def self_test(headers, baseline):
    """What must be found, and what must not."""
    coll = headers["coll.h"]
    edits = {
        "an argument": ("int coll_comm_rank(const coll_comm *comm)", "int coll_comm_rank(const coll_comm *comm, int n)", True),
        "a function that is gone": ("COLL_API int coll_version(void);", "", True),
        "a member in the middle": ("\tint tag;\n\tsize_t count;", "\tint tag;\n\tint more;\n\tsize_t count;", True),
        "a value of an enum": ("COLL_ERR_ABORTED = 32,", "COLL_ERR_ABORTED = 33,", True),
        "a new function": ("COLL_API int coll_version(void);", "COLL_API int coll_version(void);\nCOLL_API int coll_newer(void);", False),
    }
    for what, (old, new, found) in edits.items():
        if coll.count(old) != 1:
            yield f"self-test: {what}: the header has no '{old}'"
        elif bool(differences(baseline, {**headers, "coll.h": coll.replace(old, new)})[0]) != found:
            yield f"self-test: {what} was {'not ' if found else ''}found"


def main():
    root = sys.argv[1]
    baseline = os.path.join(root, BASELINE)
    for tool in ("abidw", "abidiff"):
        if not any(os.access(os.path.join(d, tool), os.X_OK) for d in os.get_exec_path()):
            print(f"SKIPPED: no {tool} (package abigail-tools)")
            return 77
    headers = {}
    for name in HEADERS:
        with open(os.path.join(root, "include/coll", name)) as f:
            headers[name] = f.read()
    if "--write" in sys.argv:
        with tempfile.TemporaryDirectory() as folder:
            done = call("abidw", "--no-show-locs", "--no-corpus-path", "--no-comp-dir-path", "--short-locs", "--no-parameter-names", "--no-elf-needed",
                        "--type-id-style", "hash", "--out-file", baseline, library(folder, headers))
        print(done.stderr or f"{BASELINE}: written")
        return done.returncode
    status, text = differences(baseline, headers)
    faults = [text] if status else []
    faults += self_test(headers, baseline) if not faults else []
    count = sum(len(functions(text)) for text in headers.values())
    print("\n".join(faults) or f"{count} functions as in {BASELINE}")
    return 1 if faults or count < 100 else 0


sys.exit(main())
