#!/usr/bin/env python3
"""Whether ranks may spin depends on the cores of their machine, whatever they call their hosts: containers of one
machine are hosts of their own and share its cores all the same. One rank more than there are processors, each on a
host of its own by name: all of them know that they have no core each. As many as processors, each pinned to one:
none of them says so. Nor do as many as the first on machines of their own, which the kernel's boot id tells apart.

usage: cores.py BUILD-DIRECTORY
"""
import os
import subprocess
import sys

MOST = 64
WORDS = "more ranks than cores"
CPUS = sorted(os.sched_getaffinity(0))
PINNED = "set -- %s; shift $COLL_RANK; exec taskset -c $1 " % " ".join(map(str, CPUS))
# Machines of their own meet over TCP: files and sockets of one host are none of the other's.
BOOT_ID = "/proc/sys/kernel/random/boot_id"
ELSEWHERE = f"f=$(mktemp); echo machine-$COLL_RANK > $f; mount --bind $f {BOOT_ID} && rm $f && export COLL_ROOT=0.0.0.0 && exec "


def lines(build, ranks, before):
    """How many ranks say that they have no core each."""
    script = "export COLL_HOST_ID=host-$COLL_RANK; " + before
    env = dict(os.environ, COLL_DEBUG="info", COLL_TRANSPORTS="tcp")
    apart = ["unshare", "--mount", "--propagation", "private"] if before == ELSEWHERE else []
    p = subprocess.run([os.path.join(build, "tools/collrun"), "-n", str(ranks)] + apart + ["bash", "-c",
                        script + os.path.join(build, "examples/example_hello")], env=env, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, timeout=100)
    said = [l for l in p.stdout.splitlines() if "launcher" in l and "slots" in l]
    # Machines that have only a loopback interface in common have no way to one another: they say so after creation.
    if (p.returncode != 0 and before != ELSEWHERE) or len(said) != ranks or not all(f"({ranks} host" in l for l in said):
        sys.exit(f"{ranks} ranks: exit {p.returncode}\n{p.stdout}")
    return sum(WORDS in l for l in said)


def can_be_elsewhere():
    words = ["unshare", "--mount", "--propagation", "private", "mount", "--bind", "/dev/null", BOOT_ID]
    return subprocess.run(words, stderr=subprocess.DEVNULL).returncode == 0


def main():
    build, cpus = sys.argv[1], len(CPUS)
    if cpus + 1 > MOST or cpus < 2:
        print(f"skipped: of 2 to {MOST - 1} processors\n0 passed, 0 failed, 1 skipped")
        sys.exit(77)
    cases = [("on one machine", cpus + 1, "exec ", cpus + 1), ("pinned", cpus, PINNED, 0)]
    if can_be_elsewhere():
        cases.append(("on machines of their own", cpus + 1, ELSEWHERE, 0))
    failed = 0
    for name, ranks, before, expected in cases:
        crowded = lines(build, ranks, before)
        failed += crowded != expected
        print(f"{'ok  ' if crowded == expected else 'FAIL'} {ranks} ranks, {name}: {crowded} without a core each")
    print(f"{len(cases) - failed} passed, {failed} failed, {3 - len(cases)} skipped")
    sys.exit(failed > 0)


main()
