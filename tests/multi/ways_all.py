#!/usr/bin/env python3
"""Every collective at the edges of every threshold, plain and library buffers, over shm, tcp and both: right results, and
the way on record is the first of the explained chain whose condition holds (tests/multi/ways_all.c). Rows that need a
core for each rank run with COLL_TEST_CORES. A library in which a row is left out must turn it red.

usage: ways_all.py BUILD-DIRECTORY quick|full
  quick: a few cases, seconds. full: 2 to 8 ranks, all ways of COLL_SHM_COPY, at most 20 minutes
"""
import os
import subprocess
import sys
import time

BUILD, LIMIT_S = sys.argv[1], 20 * 60
MIXED = "export COLL_HOST_ID=host-$((COLL_RANK % 2)); exec "


def run(program, part, ranks, transport, settings):
    """Exit status and output of a job."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("COLL_")}
    env.update(settings, COLL_TRANSPORTS="shm,tcp" if transport == "mixed" else transport)
    words = [os.path.join(BUILD, "tools/collrun"), "-n", str(ranks), "sh", "-c",
             (MIXED if transport == "mixed" else "exec ") + f"{os.path.join(BUILD, 'tests', program)} {part}"]
    p = subprocess.run(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S)
    return p.returncode, p.stdout


def cases(part):
    """Ranks, transport, settings."""
    if part == "quick":
        return [(2, "shm", {}), (3, "shm", {}), (3, "shm", {"COLL_TEST_CORES": "16"}), (2, "shm", {"COLL_SHM_COPY": "cached"}),
                (2, "shm", {"COLL_SHM_COPY": "cma"}), (3, "mixed", {}), (2, "tcp", {})]
    found = []
    for n in range(2, 9):
        found += [(n, t, {}) for t in ("shm", "tcp", "mixed")]
        found += [(n, "shm", {"COLL_TEST_CORES": "16"})]
        if n in (2, 4):
            found += [(n, "shm", {"COLL_SHM_COPY": way}) for way in ("cached", "streamed", "cma")]
            found += [(n, "shm", {"COLL_INTRA_BYTES": "4K"}), (n, "shm", {"COLL_INTRA": "0"}), (n, "shm", {"COLL_TEST_CORES": "1"})]
    return found


def main():
    part, failed, began = sys.argv[2], 0, time.monotonic()
    todo = cases(part)
    for n, transport, settings in todo:
        since = time.monotonic()
        status, said = run("ways_all", part, n, transport, settings)
        good = status == 0 and said.count("2 passed, 0 failed") == n
        failed += not good
        words = "".join(f", {k}={v}" for k, v in settings.items())
        print(f"{'ok  ' if good else 'FAIL'} {n} ranks, {transport}{words}: {time.monotonic() - since:.1f} s", flush=True)
        if not good:
            print("\n".join(said.splitlines()[:60]))
    status, said = run("ways_all-planted", "quick", 2, "shm", {"SOAK_PLANTED": "wrong-row"})
    caught = status != 0 and "it went" in said
    failed += not caught
    print(f"{'ok  ' if caught else 'FAIL'} a row that is left out is {'' if caught else 'not '}found")
    took = time.monotonic() - began
    if took > LIMIT_S:
        print(f"FAIL {took:.0f} s, more than {LIMIT_S}")
        failed += 1
    print(f"{len(todo) + 1 - failed} passed, {failed} failed, 0 skipped")
    sys.exit(failed > 0)


main()
