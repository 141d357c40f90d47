#!/usr/bin/env python3
"""The PTX of the device kernels: no contraction, no approximate arithmetic, no local memory, accesses of 16 bytes. It assembles
for two generations where there is a ptxas. The same check must find what is wrong with kernels that are planted.

usage: ptx.py PTX PLANTED_PTX"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

ENTRY = re.compile(r"^\.visible \.entry (\w+)\(.*?^\}$", re.M | re.S)
# What an entry may not hold, and why.
FORBIDDEN = [
    (r"\b(fma|mad)\.(rn|rz|rm|rp|f)\b.*", "is fused: the result differs from the host's"),
    (r"\b\w+\.(\w+\.)*(ftz|approx|full|sat)\.\S*", "is not the arithmetic of IEEE 754"),
    (r"\b(ld|st)\.local\b.*|\.local \.align.*", "is in local memory: an array or the argument is indexed there"),
    (r"\bld\.global\.(\w+\.)*nc\.\S*", "may keep old contents of memory that others write"),
    (r"\b(ld|st)\.(volatile\.)?(v\d\.)?[busf]\d+\b.*", "does not say which memory it means"),
    (r"\bcall\b.*", "is a call: everything is inline"),
]
WIDE = r"\b%s\.global\.(v4\.[busf]32|v2\.[busf]64)\b"
# Entries that move a few words.
WORDS_ONLY = ("coll_kernel_look", "coll_kernel_signal")
# In an entry that reduces: the loop over the bytes of one element, or the element itself. Memory read by T_load()
# would have a load for each byte.
BYTE_LOADS = 2
GENERATIONS = ["sm_75", "sm_90"]


def faults(text):
    found = []
    for match in ENTRY.finditer(text):
        name, body = match.group(1), re.sub(r"//.*", "", match.group(0))
        for pattern, why in FORBIDDEN:
            found += [f"{name}: {m.group(0).strip()} {why}" for m in re.finditer(pattern, body)]
        for access in ("ld", "st") if name not in WORDS_ONLY else ():
            if not re.search(WIDE % access, body):
                found.append(f"{name}: no {access} of 16 bytes")
        loads = len(re.findall(r"\bld\.global\.[busf]8\b", body))
        if "_reduce_" in name and loads > BYTE_LOADS:
            found.append(f"{name}: {loads} loads of a byte")
    return found


def assemble(path):
    """What ptxas says against it; None where there is none."""
    if not shutil.which("ptxas"):
        return None
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for generation in GENERATIONS:
            result = subprocess.run(["ptxas", "-v", f"-arch={generation}", "-o", os.path.join(folder, "cubin"), path],
                                    capture_output=True, text=True)
            if result.returncode:
                found.append(f"ptxas for {generation}: {result.stderr[:2000]}")
            # Registers that do not suffice end in local memory as well.
            found += [f"{generation}: {line.strip()}" for line in result.stderr.splitlines()
                      if "stack frame" in line and not line.strip().startswith("0 bytes stack frame, 0 bytes spill stores")]
    return found


def entry(*lines):
    wide = ("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];", "st.global.v4.u32 [%rd1], {%r1, %r2, %r3, %r4};")
    return ".visible .entry coll_kernel_reduce_x(\n)\n{\n\t" + "\n\t".join(wide + lines) + "\n\tret;\n}\n"


def missed(planted):
    """Planted mistakes that are not found."""
    lines = ["div.approx.ftz.f32 %f1, %f2, %f3;", "st.local.u64 [%rd1], %rd2;", "ld.u32 %r1, [%rd1];",
             "ld.global.nc.u32 %r1, [%rd1];", "call.uni (retval0), f;", "mad.rn.f32 %f1, %f2, %f3, %f4;",
             "\n\t".join(["ld.global.u8 %rs1, [%rd1];"] * 4)]
    bad = [f"not found: {line}" for line in lines if len(faults(entry(line))) == 0]
    if faults(entry("mad.lo.s32 %r1, %r2, %r3, %r4;", "div.rn.f32 %f1, %f2, %f3;", "ld.global.u8 %rs1, [%rd1];")):
        bad.append("a kernel without a mistake is refused")
    if not any("no ld of 16" in fault for fault in faults(entry().replace("ld.global.v4", "ld.global"))):
        bad.append("not found: narrow loads")
    if not any("is fused" in fault for fault in faults(planted)):
        bad.append("not found: the fma of the kernel compiled without the flag")
    return bad


def main(path, planted):
    with open(path) as f:
        text = f.read()
    with open(planted) as f:
        bad = missed(f.read())
    bad += faults(text)
    entries, assembled = len(ENTRY.findall(text)), assemble(path)
    if entries != text.count(".entry"):
        bad.append(f"{entries} entries are read, of {text.count('.entry')}")
    bad += assembled or []
    print("\n".join(bad))
    print("ptxas: " + ("not here" if assembled is None else ", ".join(GENERATIONS)))
    print(f"{max(entries - len(bad), 0)} passed, {len(bad)} failed, 0 skipped")
    return 1 if bad or not entries else 0


sys.exit(main(sys.argv[1], sys.argv[2]))
