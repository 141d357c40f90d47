#!/usr/bin/env python3
"""The version of the project, wherever it stands: named once each, and written together.

usage: version.py SOURCE-ROOT            compare them
       version.py SOURCE-ROOT X.Y.Z      write this one. CHANGELOG.md and the symbol version of new functions are for people."""
import glob
import os
import re
import sys

# File, what stands before the version, and its form: {v} all of it, or {a}, {b}, {c} its parts.
PLACES = (
    ("meson.build", r"^  version: '", "{v}"), ("src/meson.build", r"\{'version': '", "{v}"), ("README.md", r"^Version ", "{v}"), ("CITATION.cff", r"^version: ", "{v}"),
    ("debian/changelog", r"\Alibcoll \(", "{v}"),
    ("include/coll/coll.h", r"^#define COLL_VERSION_MAJOR ", "{a}"), ("include/coll/coll.h", r"^#define COLL_VERSION_MINOR ", "{b}"),
    ("include/coll/coll.h", r"^#define COLL_VERSION_PATCH ", "{c}"), ("include/coll/coll.h", r'for logs and reports: "', "{v}"),
    ("docs/guide/nccl.md", r"by libcoll ", "{v}"), ("docs/guide/perf.md", r"^# libcoll version ", "{v}"), ("docs/guide/tools.md", r"^libcoll ", "{v}"),
    ("tests/wrong_use.sh", r'expect 0 "\$program ', "{v}"),
    ("bench/guards.sh", r"-j2 src/libcoll.so.", "{v}"), ("bench/guards.sh", r"guards-true/src/libcoll.so.", "{v}"), ("bench/guards.sh", r"guards-false/src/libcoll.so.", "{v}"),
)
MAN = (r'^\.TH .*"libcoll ', "{v}")


def form(pattern, version):
    a, b, c = version.split(".")
    return pattern.format(v=version, a=a, b=b, c=c)


def find(text, before):
    return re.search(rf"({before})(\d+(?:\.\d+\.\d+)?)\b", text, re.M)


def main(root, new):
    def read(name):
        with open(os.path.join(root, name), encoding="utf-8") as f:
            return f.read()
    version = new or find(read("meson.build"), PLACES[0][1])[2]
    wrong = []
    pages = [os.path.relpath(p, root) for p in sorted(glob.glob(f"{root}/docs/man/*.[1-9]")) if ".TH " in read(p)]
    places = PLACES + tuple((page, *MAN) for page in pages)
    for name, before, pattern in places:
        text = read(name)
        at = find(text, before)
        if not at:
            wrong.append(f"{name}: no version behind {before}")
        elif at[2] != form(pattern, version):
            if new:
                with open(os.path.join(root, name), "w", encoding="utf-8") as f:
                    f.write(text[:at.start(2)] + form(pattern, version) + text[at.end(2):])
            else:
                wrong.append(f"{name}: {at[2]}, but meson.build says {version}")
    # The check must be able to fail.
    if find("Version 0.1.0, not", r"^Version ")[2] != "0.1.0" or find("x", r"^Version "):
        wrong.append("self-test: a version is not found where it is")
    print("\n".join(wrong) or f"version {version} in {len(places)} places")
    return 1 if wrong else 0


sys.exit(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None))
