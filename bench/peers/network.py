"""Hosts on one machine: network namespaces joined by bridges, each link shaped by tbf: what leaves a host, and, on request,
what enters it.

The program moves to namespaces of its own first (network, processes, mounts): the kernel takes away all that is in them when
the program ends, however it ends. Needs root, ip, tc and unshare.
"""
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time

INSIDE = "COLL_LAYOUTS_INSIDE"
# Where the kernel's tables of names, memory files and temporary files of this run are: they vanish with it.
PREPARE = ("mount -t proc proc /proc && mount -t tmpfs tmpfs /dev/shm && mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && "
           "ip link set lo up")


class Refused(Exception):
    """The machine does not let us make it."""


def missing():
    """Why there can be no such network, or None."""
    lacks = [t for t in ("ip", "tc", "unshare", "mount", "hostname") if not shutil.which(t)]
    if os.geteuid() != 0:
        return "network namespaces need root"
    return "no %s here" % " or ".join(lacks) if lacks else None


def apart(words):
    """The command line that runs words in namespaces of its own."""
    return ["unshare", "--net", "--pid", "--mount", "--uts", "--ipc", "--fork", "--kill-child", "sh", "-c",
            PREPARE + ' && export TMPDIR=/dev/shm %s=1 && exec "$@"' % INSIDE, "sh", *words]


def allowed():
    return not missing() and subprocess.run(apart(["true"]), stderr=subprocess.DEVNULL).returncode == 0


def end_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def go_apart():
    """Run this program again, apart, and end with its status; returns when it is."""
    if os.environ.get(INSIDE):
        return
    p = subprocess.Popen(apart([sys.executable, *sys.argv]), preexec_fn=end_with_parent)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: p.kill())  # unshare blocks both; when it dies, all that it has started does
    status = p.wait()
    sys.exit(status if status >= 0 else 128 - status)


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise Refused("%s: %s" % (" ".join(words), done.stderr.strip()))
    return done.stdout


class Network:
    """Host h has the interfaces e0, e1 ... with the addresses 10.60.0.(h + 1), 10.61.0.(h + 1) ... One bridge for each rail
    and site; the bridges of the sites of a rail hang on one more by uplinks. A rate of 0 shapes nothing."""

    def __init__(self, links, congestion, inward=False):
        self.links, self.congestion, self.inward = links, congestion, inward
        self.rates = {}  # of each device of ours that all traffic of a link passes
        self.sites = sorted(set(links.sites or [0]))
        for host in range(links.hosts):
            run("ip", "netns", "add", self.name(host))
            run("ip", "-n", self.name(host), "link", "set", "lo", "up")
        for rail in range(len(links.nics[0])):
            self.make_bridges(rail)
            for host in range(links.hosts):
                self.plug(rail, host)
        for host in range(links.hosts):
            self.await_carriers(self.name(host))

    @staticmethod
    def await_carriers(name):
        """The kernel says that a carrier is there some time after both ends are up."""
        end = time.monotonic() + 10
        while "NO-CARRIER" in run("ip", "-n", name, "link", "show"):
            if time.monotonic() > end:
                raise Refused("an interface of %s has no carrier" % name)
            time.sleep(0.01)

    @staticmethod
    def name(host):
        return "h%d" % host

    @staticmethod
    def address(rail, host):
        return "10.%d.0.%d" % (60 + rail, host + 1)

    def networks(self):
        return ["10.%d.0.0/24" % (60 + k) for k in range(len(self.links.nics[0]))]

    def inside(self, host):
        """The words before a command that runs on that host, under its name."""
        return ["ip", "netns", "exec", self.name(host), "unshare", "--uts", "sh", "-c",
                'hostname %s && exec "$@"' % self.name(host), "sh"]

    @staticmethod
    def bridge(name):
        run("ip", "link", "add", name, "type", "bridge")
        run("ip", "link", "set", name, "up")

    @staticmethod
    def shape(device, rate, host=None):
        where = ["-n", host] if host else []
        if rate:
            run("tc", *where, "qdisc", "add", "dev", device, "root", "tbf", "rate", "%dmbit" % rate, "burst", "256kb",
                "latency", "20ms")

    def make_bridges(self, rail):
        for site in self.sites:
            self.bridge("b%ds%d" % (rail, site))
        if len(self.sites) == 1:
            return
        self.bridge("core%d" % rail)
        for site in self.sites:
            up, down = "up%ds%d" % (rail, site), "down%ds%d" % (rail, site)
            run("ip", "link", "add", up, "type", "veth", "peer", "name", down)
            for device, bridge in ((up, "b%ds%d" % (rail, site)), (down, "core%d" % rail)):
                run("ip", "link", "set", device, "master", bridge, "up")
                self.shape(device, self.links.uplink)
            self.rates[up] = self.links.uplink

    def plug(self, rail, host):
        port, nic, name = "v%dr%d" % (host, rail), "e%d" % rail, self.name(host)
        run("ip", "link", "add", port, "type", "veth", "peer", "name", nic, "netns", name)
        run("ip", "link", "set", port, "master", "b%ds%d" % (rail, self.links.site_of(host)), "up")
        run("ip", "-n", name, "addr", "add", self.address(rail, host) + "/24", "dev", nic)
        run("ip", "-n", name, "link", "set", nic, "up")
        # Whatever a socket asks for or the system has: some kernels refuse another default in a namespace.
        run("ip", "-n", name, "route", "replace", self.networks()[rail], "dev", nic, "proto", "kernel", "scope", "link", "src",
            self.address(rail, host), "congctl", "lock", self.congestion)
        for device, where in ((nic, name), (port, None))[:2 if self.inward else 1]:
            self.shape(device, self.links.nics[host][rail], where)
        self.rates[port] = self.links.nics[host][rail]

    def moved(self):
        """Bytes by (device, direction) since it was made."""
        seen = {d["ifname"]: d["stats64"] for d in json.loads(run("ip", "-json", "-statistics", "link", "show"))}
        return {(device, way): seen[device][way]["bytes"] for device in self.rates for way in ("rx", "tx")}

    def busiest_s(self, before, after):
        """Seconds that the busiest direction of a link needs, at its rate, for what it moved between the two."""
        return max(8e-6 * (after[k] - before[k]) / self.rates[k[0]] for k in before)
