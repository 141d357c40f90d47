#!/usr/bin/env python3
"""Hosts as they are: two of them with networks that lead nowhere before or after the one that joins them, bridges with
equal addresses, a wrong default route, IPv6 alone, a firewall, and some of other shapes. In each a rank comes late to a
split, another is stopped for a while, and all-reduces and all-to-alls run: right results, and nobody is dead. Where no
data can pass, an error names the address, the port and what was tried there.

usage: networks.py BUILD-DIRECTORY [all|PART-OF-A-NAME]

all: the whole product of 0 to 12 other networks, their place, bridges, routes and IPv6, several at once."""
import concurrent.futures
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys

from job import Report, sanitized, until
from resets import Job
from wires import Wires, ip, missing

LATE_S, AT_ONCE = 1.2, 4


class Layout(Wires):
    """Two hosts, joined by e0. gone: it is not to work, and the text has to match this."""

    gone, ranks, transports, settings, before, one_net = None, 2, "tcp", {}, (), False

    def __init__(self, before=0, behind=0, bridges=False, wrong_route=False, ip6=False):
        super().__init__("10.94", pairs=0)
        self.ip6 = ip6
        self.good = self.good and self.lonely(0, before) and (not bridges or self.bridges()) and self.join() and \
            self.lonely(before, behind) and (not ip6 or self.six()) and (not wrong_route or self.wrong_route()) and self.extra()

    def join(self):
        return self.make(0)

    def extra(self):
        return True

    def lone(self, name, address, side, carrier="up"):
        """An interface with nobody at its other end."""
        n = self.names[side]
        return ip("-n", n, "link", "add", name, "type", "veth", "peer", "name", name + "x") and \
            ip("-n", n, "link", "set", name + "x", carrier) and ip("-n", n, "link", "set", name, "up") and \
            ip("-n", n, "addr", "add", address, "dev", name)

    def lonely(self, first, count, sides=(0, 1)):
        return all(self.lone(f"rail{k}", f"10.{95 + i}.{k}.1/24", i) for k in range(first, first + count) for i in sides)

    def bridges(self):
        return all(self.lone("docker0", "172.17.0.1/16", i) for i in range(2))

    def six(self):
        return all(ip("-n", n, "addr", "flush", "dev", "e0") and
                   ip("-n", n, "addr", "add", f"fd94::{1 + i}/64", "dev", "e0", "nodad") for i, n in enumerate(self.names))

    def wrong_route(self):
        """Through a network that leads nowhere, if there is one."""
        return all(ip("-n", n, "route", "add", "default", "via", f"10.{95 + i}.0.9") or
                   ip("-n", n, "route", "add", "default", "dev", "lo") for i, n in enumerate(self.names))

    def root(self):
        self.port = getattr(self, "port", random.Random(self.names[0]).randrange(20000, 30000))
        return f"[fd94::1]:{self.port}" if self.ip6 else f"{self.address(0, 0)}:{self.port}"

    def firewall(self, side):
        """New connections to one port alone come in: to others the first packet of TCP over IPv4 is dropped."""
        self.root()
        return self.filter(side, "11,40 0 0 12,21 0 8 2048,48 0 0 23,21 0 6 6,48 0 0 47,84 0 0 18,21 0 3 2,40 0 0 36,"
                                 f"21 1 0 {self.port},6 0 0 2,6 0 0 0")

    def filter(self, side, code):
        """Classic BPF judges what comes in: 0 lets it through, 2 drops it."""
        n = self.names[side]
        return all(subprocess.run(["tc", "-n", n] + w.split() + more, capture_output=True).returncode == 0 for w, more in (
            ("qdisc add dev e0 clsact", []),
            ("filter replace dev e0 ingress protocol all prio 1 handle 1 bpf da bytecode", [code])))


class Firewalls(Layout):
    gone = r"10\.94\.0\.\d:\d+: (no answer|Connection timed out)"

    def extra(self):
        return self.firewall(0) and self.firewall(1)


class Firewall(Layout):
    """The other host can be reached, so data pass."""

    def extra(self):
        return self.firewall(0)


class HalfOpen(Layout):
    """A connection to the ports of ranks is made, but nothing that is said on it arrives."""

    gone, settings = r"10\.94\.0\.\d:21\d\d\d: no answer to the handshake", {"COLL_PORT_RANGE": "21000-21100"}

    def extra(self):
        self.port = 20000
        return all(self.filter(i, "11,40 0 0 12,21 0 8 2048,48 0 0 23,21 0 6 6,48 0 0 47,69 4 0 2,40 0 0 36,53 2 0 32768,"
                                  f"21 1 0 {self.port},6 0 0 2,6 0 0 0") for i in range(2))


class BlackHole(Layout):
    """Large packets do not arrive, as where the path has a smaller MTU and nobody says so."""

    gone = r"connected from 10\.94\.0\.2:\d+ and proved the key, but sent nothing more"
    settings = {"COLL_CREATE_TIMEOUT_MS": "4000"}

    def extra(self):
        return all(self.filter(i, "4,128 0 0 0,37 0 1 1000,6 0 0 2,6 0 0 0") for i in range(2))


class OtherOrder(Layout):
    """The joining network comes first on one host and last on the other."""

    def join(self):
        return self.lonely(0, 5, sides=[0]) and self.make(0) and self.lonely(0, 5, sides=[1])


class TwoInterfaces(Layout):
    """The address of the joining network is that of another interface too."""

    def extra(self):
        return all(self.lone("twin", f"{self.address(0, i)}/24", i) for i in range(2))


class NoCarrier(Layout):
    """A network that both have, up, but without a carrier, and before the other."""

    def join(self):
        return all(self.lone("cable", f"10.93.0.{1 + i}/24", i, carrier="down") for i in range(2)) and self.make(0)


class LinkLocal(Layout):
    """IPv6 addresses of the link alone: they are not used for data."""

    gone = r"link-local"

    def extra(self):
        return all(ip("-n", n, "addr", "flush", "dev", "e0") and
                   ip("-n", n, "addr", "add", f"fe80::{1 + i}/64", "dev", "e0", "nodad") for i, n in enumerate(self.names))

    def root(self):
        return "[fe80::1%e0]:21000"


class Four(Layout):
    """Two ranks on each."""

    ranks, transports = 4, "shm,tcp"


class Copies(Layout):
    """Without /proc both take themselves for the same host, as copies of one machine do. A sanitizer needs it."""

    transports, before = "shm,tcp", ("unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc && exec "$0" "$@"')


class Restored(Layout):
    """Machines restored from one image that runs: boot, network namespace and an address are those of the other, too."""

    ranks, transports = 4, "shm,tcp"
    before = ("unshare", "-m", "sh", "-c",
              "mount -t tmpfs none /proc && mkdir -p /proc/sys/kernel/random /proc/self/ns && cd /proc/self/ns && "
              "echo 1c1c1c1c-0000-4000-8000-000000000001 >/proc/sys/kernel/random/boot_id && "
              'for n in net pid; do echo >"$n:[7]"; ln -s "$n:[7]" $n; done; exec "$0" "$@"')

    def extra(self):
        return all(self.lone("overlay", "10.96.0.1/24", i) for i in range(2))


class Apart(Layout):
    """Processes, names and mounts are apart on one host, the network is not."""

    transports, before, one_net = "shm,tcp", ("unshare", "--mount", "--ipc", "--pid", "--fork", "--mount-proc"), True


class Three(Layout):
    """Each pair of three has a network of its own. The address of rank 0 that all are given is in one of them, to which
    the third host has a route."""

    ranks = 3

    def join(self):
        self.names.append(self.names[0][:-1] + "2")
        pairs = [(0, 1), (0, 2), (1, 2)]
        return ip("netns", "add", self.names[2]) and ip("-n", self.names[2], "link", "set", "lo", "up") and \
            all(ip("-n", self.names[a], "link", "add", f"p{b}", "type", "veth", "peer", "name", f"p{a}", "netns", self.names[b]) and
                all(ip("-n", self.names[x], "addr", "add", f"10.94.{k}.{1 + x}/24", "dev", f"p{y}") and
                    ip("-n", self.names[x], "link", "set", f"p{y}", "up") for x, y in ((a, b), (b, a)))
                for k, (a, b) in enumerate(pairs)) and \
            ip("-n", self.names[2], "route", "add", "10.94.0.0/24", "via", "10.94.1.1")


OTHERS = {"a firewall on both": Firewalls, "a firewall on one": Firewall, "connections half open": HalfOpen,
          "large packets lost": BlackHole, "interfaces in another order": OtherOrder,
          "an address on two interfaces": TwoInterfaces, "a network without carrier": NoCarrier,
          "link-local IPv6 alone": LinkLocal, "two ranks on each host": Four, "copies of one host": Copies, "machines restored from one image": Restored, "namespaces of one host": Apart, "three hosts, three networks": Three}
QUICK = [(0, 0, False, False, False), (5, 0, False, False, False), (12, 0, True, False, False), (2, 4, True, True, False),
         (3, 0, True, False, True)]


def product():
    return [(before, behind, bridges, route, six) for before, behind in [(n, 0) for n in range(13)] + [(0, n) for n in range(1, 13)]
            for bridges in (False, True) for route in (False, True) for six in (False, True)]


def name_of(before, behind, bridges, route, six):
    words = [f"{before} before" if before else "", f"{behind} behind" if behind else "", "bridges" if bridges else "",
             "wrong default route" if route else "", "IPv6 alone" if six else ""]
    return ", ".join(w for w in words if w) or "one network"


def refused(job, layout):
    """Every rank says what does not work, at what address."""
    statuses = job.finish(45)
    texts = [" ".join(w) for w in job.said("error").values()]
    faults = [f"exit statuses {statuses}"] if statuses != [1] * layout.ranks else []
    if not texts or not any(re.search(layout.gone, t) for t in texts):
        faults.append("no text has " + layout.gone)
    return faults + (job.lines[-6:] if faults else [])


def one(build, layout):
    hosts = layout.names[:1] if layout.one_net else layout.names
    job = Job(build, 1000, [None] * layout.ranks, [[hosts[r % len(hosts)], "split"] for r in range(layout.ranks)], layout.before,
              root=layout.root(), **{"COLL_CREATE_TIMEOUT_MS": "30000", "COLL_UNREACHABLE_MS": "4000" if layout.gone else "10000",
                                     "COLL_TIMEOUT_MS": "6000" if layout.gone else "30000",
                                     "COLL_TRANSPORTS": layout.transports, **layout.settings})
    if layout.gone:
        return refused(job, layout)
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
    if statuses != [0] * layout.ranks or job.said("error") or job.said("wrong"):
        return [f"exit statuses {statuses}"] + job.lines[-6:]
    return []


def try_one(build, make, arguments):
    """Faults; None: the hosts cannot be made."""
    layout = make(*arguments)
    try:
        return one(build, layout) if layout.good else None
    finally:
        layout.close()


def main():
    why = missing("tc")
    if why:
        print(f"skip networks: {why}\n0 passed, 0 failed, 1 skipped")
        return 77
    report = Report()
    words = sys.argv[2] if len(sys.argv) > 2 else ""
    cases = {name_of(*p): (Layout, p) for p in (product() if words == "all" else QUICK)}
    cases.update({name: (make, ()) for name, make in OTHERS.items() if not (make in (Copies, Restored) and sanitized(sys.argv[1]))})
    with concurrent.futures.ProcessPoolExecutor(AT_ONCE, multiprocessing.get_context("spawn")) as pool:
        going = {name: pool.submit(try_one, os.path.abspath(sys.argv[1]), *case) for name, case in cases.items()
                 if words == "all" or words in name}
        for name, result in going.items():
            faults = result.result()
            if faults is None:
                print(f"skip {name}: cannot make it")
            else:
                report.case(name, faults)
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
