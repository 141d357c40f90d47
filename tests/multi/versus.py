#!/usr/bin/env python3
"""bench/versus: the built library beside a copy of itself gives a line and a ratio for each cell, with results that are
checked; what is slower than asked fails after its repetition; wrong results, missing libraries, libraries without the
calls and wrong flags end it with their status and a sentence. Nothing is said of times.

usage: versus.py BUILD-DIRECTORY
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

from job import Report

KINDS = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all")
QUICK = ("--blocks", "3", "--ms", "0.1")


def run(build, *arguments, **settings):
    # The environment of a build script is not that of a job: the library warns of names that it does not have.
    env = {k: v for k, v in os.environ.items() if not k.startswith("COLL_")}
    env.update(settings)
    return subprocess.run([f"{build}/bench/versus", *arguments], env=env, text=True, capture_output=True, timeout=200)


def check(report, name, holds, seen):
    report.case(name, [] if holds else [seen])


def rows(p):
    return [line.split() for line in p.stdout.splitlines() if line and not line.startswith("#")]


def tables(build, report, old, new, out):
    driver = os.path.abspath(f"{build}/tests/softcuda/libcuda.so.1")
    for name, cells, n, flags, settings in (
            ("shm", ("--cells", "*/8,20000/*", "--cells", "all_reduce,all_gather/2Mi/*"), 24, (), {"COLL_TRANSPORTS": "shm"}),
            ("tcp-touch", ("--cells", "*/20000/library"), 5, ("--touch",), {"COLL_TRANSPORTS": "tcp"}),
            ("in-place", ("--cells", "*/2Mi/plain"), 5, ("--in-place", "--touch"), {}),
            ("three", ("--cells", "*/8/plain"), 5, ("--ranks", "3"), {}),
            ("device", ("--cells", "*/20000/device"), 5, (), {"COLL_CUDA_LIBRARY": driver})):
        if name == "device" and not os.path.exists(driver):
            continue
        p = run(build, *QUICK, "--below", "0", "--json", out, *cells, *flags, old, new, **settings)
        seen = rows(p)
        check(report, f"{name}: ends well", p.returncode == 0 and not p.stderr, p.stdout + p.stderr)
        check(report, f"{name}: all cells", len(seen) == n and {r[0] for r in seen} == set(KINDS)
                     and {r[2] for r in seen} == ({cells[1].split("/")[2]} if n == 5 else {"plain", "library"}), p.stdout)
        check(report, f"{name}: quartiles enclose the median",
                     all(0 < float(r[6]) <= float(r[5]) <= float(r[7]) for r in seen), p.stdout)
        if p.returncode == 0:
            with open(out) as f:
                kept = json.load(f)
            check(report, f"{name}: the file has them", len(kept["cells"]) == n and not any(
                c["slower"] or len(c["first"]["blocks"]) != 3 or "again" in c for c in kept["cells"]), str(kept))


def verdicts(build, report, old, new, out):
    cell = ("--cells", "all_reduce/8/plain")
    p = run(build, *QUICK, *cell, "--below", "1e6", "--json", out, old, new)
    check(report, "below: fails after a repetition", p.returncode == 1 and len(rows(p)) == 2 and "SLOWER" in p.stdout,
                 p.stdout + p.stderr)
    with open(out) as f:
        kept = json.load(f)["cells"]
    check(report, "below: the file says so", kept[0]["slower"] and len(kept[0]["again"]["blocks"]) == 27, str(kept))
    p = run(build, *QUICK, "--cells", "all_gather/4096/plain", "--below", "0", old, new, COLL_INTRA="0",
            COLL_TRANSPORTS="tcp", COLL_HOOK="flip:rank=1,frame=0,every=1")
    check(report, "a wrong result fails", p.returncode == 1 and "old library" in p.stderr and "wrong result" in p.stderr,
                 p.stdout + p.stderr)
    p = run(build, *QUICK, *cell, old, new, COLL_TRANSPORTS="pigeon")
    check(report, "a failed creation fails", p.returncode == 1 and "creation: " in p.stderr and "COLL-" in p.stderr,
                 p.stdout + p.stderr)
    p = run(build, *QUICK, *cell, "--netns", "nowhere", old, new)
    check(report, "no such host", p.returncode == 1 and "namespace nowhere" in p.stderr, p.stdout + p.stderr)


def refusals(build, report, old, new, scratch):
    text, missing = os.path.join(scratch, "text.so"), os.path.join(scratch, "none.so")
    with open(text, "w") as f:
        f.write("no library")
    for name, arguments, says in (
            ("missing old", (missing, new), "old library: " + missing),
            ("missing new", (old, missing), "new library: " + missing),
            ("no library", (old, text), "new library: " + text),
            ("no such calls", (old, f"{build}/tests/libnamed_memory.so"), "has no coll_comm_create"),
            ("one library", (old,), "wants two libraries"),
            ("unknown flag", ("--fast", old, new), "--fast"),
            ("no value", (old, new, "--blocks"), "no value"),
            ("blocks", ("--blocks", "2", old, new), "--blocks 2: wants"),
            ("ranks", ("--ranks", "1", old, new), "--ranks 1: wants"),
            ("below", ("--below", "x", old, new), "--below x: wants"),
            ("hosts", ("--netns", "a,b,c", old, new), "3 network namespaces for 2 ranks"),
            ("no host", ("--netns", "a,,b", old, new), "--netns a,,b: wants"),
            ("collective", ("--cells", "scan/8/plain", old, new), "'scan' is no collective"),
            ("bytes", ("--cells", "*/7/plain", old, new), "'7' is no size"),
            ("buffers", ("--cells", "*/8/shared", old, new), "'shared' is no kind of buffers"),
            ("two lists", ("--cells", "*/8", old, new), "COLLECTIVES/BYTES/BUFFERS"),
            ("json", ("--json", os.path.join(scratch, "none", "x"), old, new), "--json")):
        p = run(build, *arguments)
        check(report, f"refused: {name}", p.returncode == 2 and says in p.stderr and not rows(p), p.stdout + p.stderr)
    p = run(build, "--help")
    check(report, "help", p.returncode == 0 and "--below R" in p.stdout, p.stdout + p.stderr)


def main(build):
    report = Report()
    with tempfile.TemporaryDirectory() as scratch:
        old, new, out = (os.path.join(scratch, name) for name in ("old.so", "new.so", "out.json"))
        for name in (old, new):
            shutil.copy(f"{build}/src/libcoll.so", name)
        tables(build, report, old, new, out)
        verdicts(build, report, old, new, out)
        refusals(build, report, old, new, scratch)
    return report.close()


sys.exit(main(sys.argv[1]))
