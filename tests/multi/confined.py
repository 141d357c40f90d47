#!/usr/bin/env python3
"""Shared memory where a container leaves little of it: /dev/shm of 64 MB, no /dev/shm, a kernel that refuses to read
other processes' memory. Long messages in plain memory between 2 and 8 ranks, and in the library's own, of which 2 ranks
take 256 MB; every element of every result is looked at by the programs themselves, and the ranks must have used shm.
Planted: memory taken from /dev/shm (named_memory.c) is enough where that is large, and fails in either of the others.

usage: confined.py BUILD-DIRECTORY
"""
import os
import subprocess
import sys

SMALL = "mount -t tmpfs -o size=64m tmpfs /dev/shm"
LARGE = "mount -t tmpfs -o size=2g tmpfs /dev/shm"
# All of /dev anew, with nothing but what a program opens.
ABSENT = ("mount -t tmpfs tmpfs /dev && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/zero c 1 5 && "
          "mknod -m 666 /dev/urandom c 1 9 && mknod -m 666 /dev/random c 1 8 && test ! -e /dev/shm")
CASES = (("dev/shm of 64 MB", SMALL, False, "auto"), ("no dev/shm", ABSENT, False, "auto"),
         ("cma forbidden", "true", True, "cma"), ("cma forbidden, dev/shm of 64 MB", SMALL, True, "streamed"))


def shell(line, env=None):
    return subprocess.run(["unshare", "--mount", "--propagation", "private", "bash", "-c", line], capture_output=True, text=True,
                          timeout=120, env=env)


OWN = "-R 1"
RUNS = ((2, "allreduce_perf", "64M", ""), (2, "allreduce_perf", "64M", OWN), (2, "all_gather_perf", "64M", ""),
        (8, "allreduce_perf", "16M", ""), (8, "all_to_all_perf", "16M", ""))


def run(build, before, forbidden, way, ranks, program, size, flags, planted=False):
    """None: not possible here; else whether all is well, and what was said."""
    command = f"{build}/tools/collrun -n {ranks} {build}/bench/{program} -b {size} -e {size} -n 2 -w 1 -c 1 {flags}"
    env = dict(os.environ, COLL_SHM_COPY=way, COLL_TRANSPORTS="shm", COLL_DEBUG="info")
    if planted:
        env["LD_PRELOAD"] = f"{build}/tests/libnamed_memory.so"
    try:
        done = shell(f"{{ {before}; }} || exit 77; exec {build + '/tests/without_cma ' if forbidden else ''}{command}", env)
    except subprocess.TimeoutExpired as e:
        return False, f"has not ended after {e.timeout} s\n{(e.stdout or b'')[-1000:]!r}\n{(e.stderr or b'')[-1000:]!r}"
    if done.returncode == 77:
        return None, done.stderr
    good = done.returncode == 0 and "Out of bounds values : 0 OK" in done.stdout
    return good, f"status {done.returncode}\n{(done.stdout + done.stderr)[-2000:]}"


def main(build):
    counts = {True: 0, False: 0, None: 0}
    if shell(SMALL).returncode != 0:
        print("no mount namespaces here\n0 passed, 0 failed, 1 skipped")
        return 77

    def case(what, good, said):
        counts[good] += 1
        print({True: "ok      ", False: "FAILED  ", None: "skipped "}[good] + what)
        if good is not True:
            print(said)

    for name, before, forbidden, way in CASES:
        for ranks, program, size, flags in RUNS:
            if flags == OWN and forbidden:  # nobody reads it through the kernel
                continue
            case(f"{name}: {program} of {size}{' own' if flags == OWN else ''}, {ranks} ranks",
                 *run(build, before, forbidden, way, ranks, program, size, flags))
    for name, before, symptom in (("2 GB", LARGE, None), ("64 MB", SMALL, "Bus error"),
                                  ("absent", ABSENT, "socket, memfd or epoll")):
        good, said = run(build, before, False, "auto", 2, "allreduce_perf", "64M", OWN, planted=True)
        if "does not come first" in said:
            case("planted: nothing can be preloaded before a sanitizer", None, "")
            break
        if symptom and good is not None:
            good = not good and symptom in said
        case(f"planted, dev/shm {name}: {'is noticed' if symptom else 'works'}", good, said)
    print(f"{counts[True]} passed, {counts[False]} failed, {counts[None]} skipped")
    return 1 if counts[False] else 0


sys.exit(main(os.path.abspath(sys.argv[1])))
