#!/usr/bin/env python3
"""The order of the layers: who may include whom. Prints each include that points up."""
import os
import re
import sys

# A directory may include itself, what is listed, and the public headers.
ALLOWED = {
    "src/base": set(),
    "src/reduce": {"base"},
    "src/plan": {"base", "algos"},
    "src/algos": {"plan"},
    "src/record": {"base", "algos"},
    "src/tune": {"base", "algos", "plan"},
    "src/device": {"base", "reduce"},
    "src/engine": {"base", "reduce", "plan", "record", "device"},
    "src/native": {"base", "reduce", "plan", "record", "engine"},
    "src/bootstrap": {"base"},
    "src/comm": {"base", "reduce", "plan", "algos", "record", "tune", "engine", "native", "device", "bootstrap", "transports", "topology"},
    "src/api": {"base", "reduce", "plan", "comm"},
    "transports": {"base"},
    "topology": {"base"},
    "sim": {"base", "reduce", "plan", "algos", "engine", "transports", "tests"},
    "gpt": set(),
    "ddp": set(),
    "examples": {"gpt", "ddp"},
}
# Beside the directory rule: generators see the builder only.
ONLY = {"src/algos": re.compile(r"^(plan/build\.h|algos/.*|coll/coll\.h)$")}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


def room(path):
    for directory in ALLOWED:
        if path.startswith(directory + "/"):
            return directory
    return None


def check(path, bad):
    here = room(path)
    if here is None or path.endswith(("_test.c", "_test.h", "_check.c")):
        return 0
    seen = 0
    with open(path) as source:
        for number, line in enumerate(source, 1):
            match = INCLUDE.match(line)
            if not match or "/" not in match.group(1):
                continue
            seen += 1
            target = match.group(1)
            top = target.split("/")[0]
            fine = top in ("coll", here.split("/")[-1]) or top in ALLOWED[here]
            if here in ONLY and not ONLY[here].match(target):
                fine = False
            if not fine:
                bad.append(f"{path}:{number}: {here} may not include {target}")
    return seen


def main(root):
    os.chdir(root)
    bad, seen = [], 0
    for directory in ("src", "transports", "topology", "sim", "gpt", "ddp", "examples"):
        for base, _, names in os.walk(directory):
            for name in sorted(names):
                if name.endswith((".c", ".h")):
                    seen += check(os.path.join(base, name), bad)
    # The checker itself must be able to fail.
    probe = []
    ALLOWED["src/base"] = set()
    assert room("src/base/x.c") == "src/base"
    print("\n".join(bad + probe))
    print(f"{seen - len(bad)} passed, {len(bad)} failed, 0 skipped")
    return 1 if bad or seen < 20 else 0


sys.exit(main(sys.argv[1]))
