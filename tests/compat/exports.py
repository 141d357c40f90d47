#!/usr/bin/env python3
"""libnccl.so.2 exports what NCCL 2.32 exports, without versions and nothing else; and the layouts and values of
src/compat/nccl/abi.h are those of nccl.h, where one is installed.

usage: exports.py SOURCE-ROOT LIBRARY COMPILER...
NCCL_HOME names an installation of NCCL; else the usual places and the Python packages are searched.
The last line is `N passed, N failed, N skipped`.
"""
import glob
import os
import re
import site
import subprocess
import sys
import tempfile

root, library, compiler = sys.argv[1], sys.argv[2], sys.argv[3:]
passed = failed = skipped = 0


def check(what, ok, text=""):
    global passed, failed
    print(("ok    " if ok else "FAIL  ") + what + ("" if ok else ": " + text))
    passed += ok
    failed += not ok


def names_of(path):
    out = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1]: line.split()[-2] for line in out.splitlines()}


def exports():
    with open(f"{root}/tests/compat/nccl-2.32-exports.txt") as f:
        wanted = f.read().split()
    ours = names_of(library)
    check(f"{len(wanted)} names are exported", set(wanted) == set(ours), f"{sorted(set(wanted) ^ set(ours))}")
    check("without versions", not any("@" in name for name in ours))
    check("97 functions with their twins", sum(n.startswith("nccl") for n in ours) == 97 and sum(n.startswith("pnccl") for n in ours) == 96)
    check("a tool can take the place of the plain names", all(kind == "W" for name, kind in ours.items() if "p" + name in ours))
    dynamic = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    headers = subprocess.run(["readelf", "-lW", library], capture_output=True, text=True, check=True).stdout
    room = int(next(line.split()[5] for line in headers.splitlines() if line.split()[:1] == ["TLS"]), 16)
    check("a program that loads it late has room for its thread-local data", room <= 256, f"{room} bytes")
    check("soname libnccl.so.2", "[libnccl.so.2]" in dynamic, dynamic)


def headers():
    places = [os.environ.get("NCCL_HOME", "") + "/include", "/usr/include", "/usr/local/include", "/usr/local/cuda/include"]
    for base in site.getsitepackages() + [site.getusersitepackages()]:
        places += glob.glob(base + "/nvidia/nccl/include")
    return next((p for p in places if os.path.exists(p + "/nccl.h")), None)


# What both headers must agree on.
STRUCTS = ["ncclConfig_t", "ncclCollConfig_t", "ncclSimInfo_t", "ncclUniqueId"]


def facts():
    """C statements that print the size and offsets of each structure and the value of each constant of abi.h."""
    with open(f"{root}/src/compat/nccl/abi.h") as f:
        text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
    lines = []
    for name in STRUCTS:
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        body = re.search(r"struct \{([^{}]*)\} " + name + ";", text).group(1)
        for declaration in filter(None, map(str.strip, body.split(";"))):
            for member in declaration.split(","):
                member = re.search(r"(\w+)(\[\w+\])?\s*$", member).group(1)
                lines.append(f'printf("{name}.{member} %zu\\n", offsetof({name}, {member}));')
    for name, of in re.findall(r"\b(nccl\w+) = ([\w]+)[,\s}]", text):
        lines.append(f'printf("{name} %lld\\n", (long long){name});')
    for name in re.findall(r"\b(NCCL_(?!WIN_FLAGS|FUNCTION|SIM_MAGIC)[A-Z_]+)(?: =|\s0x)", text):
        lines.append(f'printf("{name} %lld\\n", (long long){name});')
    return lines


def build_and_run(directory, name, include, lines):
    path = f"{directory}/{name}.c"
    with open(path, "w") as f:
        f.write(f"#include <stddef.h>\n#include <stdio.h>\n{include}\nint main(void)\n{{\n" + "\n".join(lines) + "\nreturn 0;\n}\n")
    subprocess.run([*compiler, "-w", "-I", directory, "-o", path[:-2], path], check=True)
    return subprocess.run([path[:-2]], capture_output=True, text=True, check=True).stdout


def layouts():
    global skipped
    place = headers()
    if not place:
        print("skip  layouts: no nccl.h found (NCCL_HOME)")
        skipped += 1
        return
    with open(place + "/nccl.h") as f:
        text = f.read()
    version = [int(re.search(rf"#define NCCL_{part} (\d+)", text).group(1)) for part in ("MAJOR", "MINOR")]
    if version < [2, 32]:
        print(f"skip  layouts: {place}/nccl.h is of NCCL {version[0]}.{version[1]}, and 2.32 is wanted")
        skipped += 1
        return
    with tempfile.TemporaryDirectory() as d:
        # nccl.h needs a few names of the CUDA runtime, and no more.
        for name in ("cuda_runtime.h", "cuda_fp16.h", "cuda_bf16.h"):
            with open(f"{d}/{name}", "w") as f:
                f.write("#define CUDART_VERSION 12000\n#ifndef RUNTIME\n#define RUNTIME\n#include <stdint.h>\n"
                        "typedef struct CUstream_st *cudaStream_t;\ntypedef struct CUevent_st *cudaEvent_t;\n#endif\n")
        lines = facts()
        ours = build_and_run(d, "ours", f'#include "{root}/src/compat/nccl/abi.h"', lines)
        theirs = build_and_run(d, "theirs", f'#include "{d}/cuda_runtime.h"\n#include "{place}/nccl.h"', ["#undef printf", *lines])
        differ = [f"{a} / {b}" for a, b in zip(ours.splitlines(), theirs.splitlines()) if a != b]
        check(f"{len(ours.splitlines())} layouts and values are those of {place}/nccl.h", ours == theirs and len(lines) > 80, f"{differ}")


exports()
layouts()
print(f"{passed} passed, {failed} failed, {skipped} skipped")
sys.exit(failed > 0)
