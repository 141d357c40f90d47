#!/usr/bin/env python3
"""Whether ranks may spin depends on the cores of their machine, whatever they call their hosts: containers of one
machine are hosts of their own and share its cores all the same. One rank more than there are processors, each on a
host of its own by name: all of them know that they have no core each. As many as processors, each pinned to one:
none of them says so.

usage: cores.py BUILD-DIRECTORY
"""
import os
import subprocess
import sys

MOST = 64
WORDS = "more ranks than cores"


def lines(build, ranks, pinned):
    """What each rank says of itself."""
    cpus = sorted(os.sched_getaffinity(0))
    script = 'export COLL_HOST_ID=host-$COLL_RANK; '
    if pinned:
        script += "set -- %s; shift $COLL_RANK; exec taskset -c $1 " % " ".join(map(str, cpus))
    else:
        script += "exec "
    env = dict(os.environ, COLL_DEBUG="info", COLL_TRANSPORTS="tcp")
    p = subprocess.run([os.path.join(build, "tools/collrun"), "-n", str(ranks), "bash", "-c",
                        script + os.path.join(build, "examples/example_hello")], env=env, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, timeout=100)
    said = [l for l in p.stdout.splitlines() if "launcher" in l and "slots" in l]
    if p.returncode != 0 or len(said) != ranks or not all(f"({ranks} host" in l for l in said):
        sys.exit(f"{ranks} ranks: exit {p.returncode}\n{p.stdout}")
    return sum(WORDS in l for l in said)


def main():
    build = sys.argv[1]
    cpus = len(os.sched_getaffinity(0))
    if cpus + 1 > MOST or cpus < 2:
        print("skipped: of 2 to %d processors" % (MOST - 1))
        sys.exit(77)
    crowded, alone = lines(build, cpus + 1, False), lines(build, cpus, True)
    bad = (crowded != cpus + 1) + (alone != 0)
    print(f"{cpus + 1} ranks: {crowded} without a core each; {cpus} ranks, pinned: {alone}")
    print(f"{2 - bad} passed, {bad} failed, 0 skipped")
    sys.exit(bad > 0)


main()
