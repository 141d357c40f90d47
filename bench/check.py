#!/usr/bin/env python3
"""What the check of payloads costs (COLL_CHECK): the default beside none, by turns in the same processes. Over loopback
between two names of hosts, and between two network namespaces whose link is shaped to 10 Gb/s (root).

usage: check.py BUILD-DIRECTORY [FLAGS OF versus]
"""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "multi"))
from wires import Wires, missing  # noqa: E402

CELLS = "all_reduce/8,512,4K,32K,256K,2M,16M,128M/plain"
SHAPE = ("rate", "10gbit", "burst", "1mb", "latency", "50ms")


def versus(build, hosts, more):
    """Ratios: the time of none by the time of the default."""
    library = f"{build}/src/libcoll.so"
    env = dict(os.environ, COLL_TRANSPORTS="tcp", COLL_JOB_KEY="%032x" % 99)
    return subprocess.run([f"{build}/bench/versus", "--netns", hosts, "--old-setting", "COLL_CHECK=none", "--below", "0",
                           "--cells", CELLS, *more, library, library], env=env).returncode


def main():
    build, more = os.path.abspath(sys.argv[1]), sys.argv[2:]
    print("# Loopback, two names of hosts; old: COLL_CHECK=none, new: the default", flush=True)
    status = versus(build, "@a,@b", more)
    why = missing("tc")
    wires = None if why else Wires("10.94", tbf=SHAPE)
    try:
        if wires and wires.good:
            print("# 10 Gb/s between two network namespaces", flush=True)
            status |= versus(build, ",".join(wires.names), more)
        else:
            print(f"# no shaped link: {why or 'network namespaces cannot be joined'}")
    finally:
        if wires:
            wires.close()
    return status


sys.exit(main())
