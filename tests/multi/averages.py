#!/usr/bin/env python3
"""Averages of f16, bf16 and 8-bit floats over every way of calls that reduce (tests/multi/averages.c, job): shared memory of
2, 3, 4 and 18 ranks, two hosts, tcp, and the algorithms that need a layout. Fails if a way that should be met is not.

usage: averages.py BUILD-DIRECTORY
"""
import os
import subprocess
import sys

BUILD = sys.argv[1]
HOSTS = "export COLL_HOST_ID=host-$((COLL_RANK % 2)); exec "
CASES = [  # ranks, transports, settings, ways that must be met
    (2, "shm", {}, {"pair-swap", "zero-copy"}),
    (2, "shm", {"COLL_SHM_COPY": "cached"}, {"pair-stream"}),
    (3, "shm", {"COLL_TEST_CORES": "16"}, {"eager-line", "eager-lines", "eager-chunk", "zero-copy", "cico"}),
    (4, "shm", {"COLL_INTRA": "0"}, set()),
    (18, "shm", {}, {"central"}),
    (3, "tcp", {}, set()),
    (3, "shm,tcp", {}, set()),
    (5, "shm,tcp", {"COLL_ALGO": "all_reduce:leaders,reduce:lanes"}, {"leaders", "lanes"}),
    (4, "shm,tcp", {"COLL_ALGO": "reduce:leaders"}, {"leaders"}),
]


def main():
    failed = 0
    for ranks, transports, settings, ways in CASES:
        env = {k: v for k, v in os.environ.items() if not k.startswith("COLL_")}
        env.update(settings, COLL_TRANSPORTS=transports)
        words = [os.path.join(BUILD, "tools/collrun"), "-n", str(ranks), "sh", "-c",
                 (HOSTS if "," in transports else "exec ") + os.path.join(BUILD, "tests/averages") + " job"]
        p = subprocess.run(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
        met = {line.split("way ")[1] for line in p.stdout.splitlines() if "way " in line}
        missing = {w for w in ways if w not in met}
        good = p.returncode == 0 and p.stdout.count("1 passed, 0 failed") == ranks and not missing
        failed += not good
        said = "".join(f", {k}={v}" for k, v in settings.items())
        print(f"{'ok  ' if good else 'FAIL'} {ranks} ranks, {transports}{said}: {', '.join(sorted(met))}", flush=True)
        if not good:
            print("missing:", ", ".join(sorted(missing)))
            print("\n".join(p.stdout.splitlines()[:40]))
    print(f"{len(CASES) - failed} passed, {failed} failed, 0 skipped")
    sys.exit(failed > 0)


main()
