#!/usr/bin/env python3
"""The table of cuda_floor on the stand-in driver: its shape, what an old driver lacks, and what is refused. No figure is
judged.

usage: floor.py CUDA_FLOOR STAND-IN

The last line is `N passed, N failed, N skipped`.
"""
import os
import re
import subprocess
import sys

HEADS = ["launch of an empty kernel", "memory operations of a stream", "questions and events", "ping-pong, one hop",
         "copies, to their end", "memory of another process", "memory of the host"]
ROWS = ["the call, idle stream", "the call, behind a pending wait", "write, pinned word: the call",
        "write, device word: the call", "a host's store, wait, write, seen by the host", "attributes, device memory",
        "two streams: wait, write", "two processes: wait, write (a wait pends in each)",
        "two processes: kernel, sync, by turns (none pends)", "device to pinned, copy engine",
        "pinned to device, kernel", "within the device, kernel of 1024 blocks", "the same, each block asks for a pinned word",
        "the same, one block asks for all", "legacy handle of 2 MiB: open", "legacy handle of 3 MiB: open", "descriptor: import",
        "cuMemHostRegister, memory file of 2 MiB"]
ROW = re.compile(r"^  (\S.{49}) +(-|\d+) +(\d+\.\d\d) +(\d+\.\d\d) +(\d+\.\d\d) +(-|\d+\.\d\d)$")

passed = failed = 0


def check(name, ok, text=""):
    global passed, failed
    print(("ok    " if ok else "FAIL  ") + name)
    if not ok:
        print(text)
    passed += ok
    failed += not ok


def run(program, driver, *flags, **env):
    return subprocess.run([program, *flags], env=dict(os.environ, COLL_CUDA_LIBRARY=driver, **env), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100)


def main():
    program, driver = sys.argv[1:]
    done = run(program, driver, "-n", "3", "-m", "3")
    lines = done.stdout.splitlines()
    rows = [m.groups() for m in map(ROW.match, lines) if m]
    check("status", done.returncode == 0, done.stdout)
    check("heads", [line[:52].strip() for line in lines if "p50 us" in line] == HEADS, done.stdout)
    missing = [r for r in ROWS if r not in [row[0].strip() for row in rows]]
    check("rows", not missing, f"{missing}\n{done.stdout}")
    check("order of figures", all(float(r[3]) <= float(r[2]) <= float(r[4]) for r in rows), done.stdout)
    other = [line for line in lines if line and not ROW.match(line) and "p50 us" not in line and line[0] != "#" and
             "created by cuMemCreate" not in line]
    check("nothing else", not other, "\n".join(other))
    done = run(program, driver + ".absent")
    check("no driver", done.returncode == 1 and "cannot load the CUDA driver" in done.stdout, done.stdout)
    done = run(program, driver, "-d", "9")
    check("no such device", done.returncode == 1 and "CUDA_ERROR_INVALID_DEVICE" in done.stdout, done.stdout)
    check("bad flag", run(program, driver, "-m", "1").returncode == 2)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    sys.exit(failed > 0)


main()
