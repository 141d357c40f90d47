#!/usr/bin/env python3
"""Hosts as they are: two of them with networks that lead nowhere before the one that joins them, bridges with equal
addresses, a wrong default route, IPv6 alone. In each a rank is late for its call, which opens control connections:
right results, and nobody is dead.

usage: networks.py BUILD-DIRECTORY [PART-OF-A-NAME]"""
import os
import random
import signal
import sys

from job import Report, until
from resets import Job
from wires import Wires, ip, missing

LATE_S = 1.2
# name: networks that lead nowhere before the joining one, and behind it; bridges; a wrong default route; IPv6 alone
LAYOUTS = {"one network": (0, 0, False, False, False), "five before": (5, 0, False, False, False),
           "twelve before, bridges": (12, 0, True, False, False), "four behind, wrong default route": (2, 4, True, True, False),
           "IPv6 alone": (3, 0, True, False, True)}


def lonely(wire, first, count):
    """Another on each host, with nobody at its other end."""
    return all(ip("-n", n, "link", "add", f"rail{k}", "type", "veth", "peer", "name", f"rail{k}x") and
               ip("-n", n, "link", "set", f"rail{k}x", "up") and ip("-n", n, "link", "set", f"rail{k}", "up") and
               ip("-n", n, "addr", "add", f"10.{95 + i}.{k}.1/24", "dev", f"rail{k}")
               for k in range(first, first + count) for i, n in enumerate(wire.names))


def bridges(wire):
    return all(ip("-n", n, "link", "add", "docker0", "type", "veth", "peer", "name", "docker0x") and
               ip("-n", n, "link", "set", "docker0x", "up") and ip("-n", n, "link", "set", "docker0", "up") and
               ip("-n", n, "addr", "add", "172.17.0.1/16", "dev", "docker0") for n in wire.names)


def six(wire):
    return all(ip("-n", n, "addr", "flush", "dev", "e0") and
               ip("-n", n, "addr", "add", f"fd94::{1 + i}/64", "dev", "e0", "nodad") for i, n in enumerate(wire.names))


def build_hosts(wire, layout):
    before, behind, with_bridges, wrong_route, ip6 = layout
    return wire.good and lonely(wire, 0, before) and (not with_bridges or bridges(wire)) and wire.make(0) and \
        lonely(wire, before, behind) and (not ip6 or six(wire)) and \
        (not wrong_route or all(ip("-n", n, "route", "add", "default", "via", f"10.{95 + i}.0.9")
                                for i, n in enumerate(wire.names)))


def one(build, wire, ip6):
    port = random.Random(wire.names[0]).randrange(20000, 30000)
    job = Job(build, 1000, [None] * 2, commands=[[n] for n in wire.names],
              root=f"[fd94::1]:{port}" if ip6 else f"{wire.address(0, 0)}:{port}", COLL_CREATE_TIMEOUT_MS="30000")
    if not job.running():
        job.finish(0)
        return ["it does not start: " + "; ".join(job.lines[-3:])]
    late = job.started[1]
    os.kill(late.pid, signal.SIGSTOP)
    until(lambda: job.said("error"), LATE_S)
    os.kill(late.pid, signal.SIGCONT)
    before = job.rounds()
    until(lambda: job.said("error") or job.rounds() > before + 20, 20)
    open(job.stop_file, "w").close()
    statuses = job.finish(20)
    if statuses != [0, 0] or job.said("error") or job.said("wrong"):
        return [f"exit statuses {statuses}"] + job.lines[-6:]
    return []


def main():
    why = missing()
    if why:
        print(f"skip networks: {why}\n0 passed, 0 failed, 1 skipped")
        return 77
    report = Report()
    for name, layout in LAYOUTS.items():
        if len(sys.argv) > 2 and sys.argv[2] not in name:
            continue
        wire = Wires("10.94", pairs=0)
        try:
            if not build_hosts(wire, layout):
                print("skip networks: cannot make them\n0 passed, 0 failed, 1 skipped")
                return 77
            report.case(name, one(os.path.abspath(sys.argv[1]), wire, layout[4]))
        finally:
            wire.close()
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
