"""Two network namespaces joined by veth pairs e0, e1 ..., each a network of its own: for tests and
benchmarks that need two hosts. Needs root and `ip`, and `tc` to shape."""
import os
import shutil
import subprocess

from job import until


def run(*words):
    return subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def ip(*words):
    return run("ip", *words)


def missing(*tools):
    """Why there can be no wires, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    lacks = [t for t in ("ip",) + tools if not shutil.which(t)]
    return f"no {' or '.join(lacks)} here" if lacks else None


def wires_or_none(name, network, pairs=1, tools=(), why=None):
    """Wires for the test of that name; None, and it is said that the test is skipped: they cannot be made, tools are missing, or
    the caller says why."""
    why = missing(*tools) or why
    wires = None if why else Wires(network, pairs)
    if wires and not wires.good:
        wires.close()
        why = "cannot make veth pairs between network namespaces"
    if why:
        print(f"skip {name}: {why}\n0 passed, 0 failed, 1 skipped")
    return None if why else wires


class Wires:
    """Side i of pair k has the address NETWORK.k.(1 + i); network: its first two numbers. tbf: what shapes every end
    (words of tc), nothing by default. good: all of it could be made."""

    def __init__(self, network, pairs=1, tbf=None):
        self.network, self.pairs = network, pairs
        self.names = [f"coll-wires-{os.getpid()}-{i}" for i in range(2)]
        self.good = all(ip("netns", "add", n) for n in self.names) and \
            all(ip("-n", n, "link", "set", "lo", "up") for n in self.names) and \
            all(self.make(k) for k in range(pairs)) and \
            (not tbf or all(run("tc", "-n", n, "qdisc", "add", "dev", f"e{k}", "root", "tbf", *tbf)
                            for n in self.names for k in range(pairs)))

    def address(self, k, side):
        return f"{self.network}.{k}.{1 + side}"

    def mac(self, k, side):
        return f"02:00:0a:5d:0{k}:0{1 + side}"

    def make(self, k):
        e, (a, b) = f"e{k}", self.names
        return ip("-n", a, "link", "add", e, "type", "veth", "peer", "name", e, "netns", b) and \
            all(ip("-n", n, "addr", "add", self.address(k, i) + "/24", "dev", e) and
                ip("-n", n, "link", "set", e, "address", self.mac(k, i)) and
                ip("-n", n, "link", "set", e, "up") for i, n in enumerate(self.names)) and self.carried(k) and self.know(k)

    def carried(self, k):
        """The kernel says that a carrier is there some time after both ends are up."""
        return until(lambda: not any("NO-CARRIER" in subprocess.run(["ip", "-n", n, "link", "show", f"e{k}"],
                                                                    capture_output=True, text=True).stdout for n in self.names), 10)

    def know(self, k):
        """A kernel repeats a question for the other's address, lost with the wire, only after 1 s: it has it."""
        return all(self.neighbour(k, i, self.mac(k, 1 - i)) for i in range(2))

    def neighbour(self, k, side, mac):
        return ip("-n", self.names[side], "neigh", "replace", self.address(k, 1 - side), "lladdr", mac, "dev", f"e{k}",
                  "nud", "permanent")

    def set(self, k, state, side=0):
        """One end of the pair goes down, without a word, or up again."""
        ip("-n", self.names[side], "link", "set", f"e{k}", state)
        if state == "up":
            self.carried(k)
            self.know(k)

    def lose(self, k):
        """What is sent over this pair reaches nobody, until they know."""
        for i in range(2):
            self.neighbour(k, i, "02:00:00:00:00:09")

    def inside(self, side):
        """The words before a command that runs on that side."""
        return ["ip", "netns", "exec", self.names[side]]

    def sent(self):
        """Bytes out of the first side, by pair."""
        return [int(subprocess.run(self.inside(0) + ["cat", f"/sys/class/net/e{k}/statistics/tx_bytes"],
                                   capture_output=True, text=True).stdout) for k in range(self.pairs)]

    def close(self):
        for n in self.names:
            ip("netns", "del", n)
