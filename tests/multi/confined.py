#!/usr/bin/env python3
"""Shared memory where a container leaves little of it: /dev/shm of 64 MB, no /dev/shm, a kernel that refuses to read
other processes' memory. Long messages in plain memory between 2 and 8 ranks; every element of every result is looked
at by the programs themselves, and the ranks must have used shm.

usage: confined.py BUILD-DIRECTORY
"""
import os
import subprocess
import sys

SMALL = "mount -t tmpfs -o size=64m tmpfs /dev/shm"
# All of /dev anew, with nothing but what a program opens.
ABSENT = ("mount -t tmpfs tmpfs /dev && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/zero c 1 5 && "
          "mknod -m 666 /dev/urandom c 1 9 && mknod -m 666 /dev/random c 1 8 && test ! -e /dev/shm")
CASES = (("dev/shm of 64 MB", SMALL, False, "auto"), ("no dev/shm", ABSENT, False, "auto"),
         ("cma forbidden", "true", True, "cma"), ("cma forbidden, dev/shm of 64 MB", SMALL, True, "streamed"))


def shell(line, env=None):
    return subprocess.run(["unshare", "--mount", "--propagation", "private", "bash", "-c", line], capture_output=True, text=True,
                          timeout=120, env=env)


def command(build, ranks, program, size, forbidden):
    run = f"{build}/tools/collrun -n {ranks} {build}/bench/{program} -b {size} -e {size} -n 2 -w 1 -c 1"
    return f"exec {build}/tests/without_cma {run}" if forbidden else f"exec {run}"


def main(build):
    passed = failed = 0
    if shell("mount -t tmpfs -o size=64m tmpfs /dev/shm").returncode != 0:
        print("no mount namespaces here\n0 passed, 0 failed, 1 skipped")
        return 77
    for name, before, forbidden, way in CASES:
        for ranks, program, size in ((2, "allreduce_perf", "64M"), (2, "all_gather_perf", "64M"), (8, "allreduce_perf", "16M"),
                                     (8, "all_to_all_perf", "16M")):
            env = dict(os.environ, COLL_SHM_COPY=way, COLL_TRANSPORTS="shm", COLL_DEBUG="info")
            done = shell(f"{before} && {command(build, ranks, program, size, forbidden)}", env)
            text = done.stdout + done.stderr
            what = f"{name}: {program} of {size}, {ranks} ranks"
            if done.returncode == 77:
                print(f"skipped {what}: {done.stderr.strip()}")
                continue
            good = done.returncode == 0 and "Out of bounds values : 0 OK" in done.stdout
            print(("ok      " if good else "FAILED  ") + what)
            passed, failed = passed + good, failed + (not good)
            if not good:
                print(f"status {done.returncode}\n{text[-2000:]}")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


sys.exit(main(sys.argv[1]))
