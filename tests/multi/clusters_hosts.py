"""Hosts on one network: each a network, host name, mount and IPC namespace with a first process, and a /tmp and a /dev/shm of its
own. They live in namespaces of the caller (apart.py) and end with it."""
import os
import signal
import subprocess
import tempfile

NETWORK = "10.91.7"
GATEWAY = NETWORK + ".1"
# Kept from host to host. ssh: as `ssh [-x] [-o X]... HOST COMMAND` does it. The numbers of the first processes stand in a file.
SSH = """#!/bin/sh
while :; do
	case $1 in
	-o) shift 2 ;;
	-*) shift ;;
	*) break ;;
	esac
done
host=$1 init=$(sed -n "s/^$1 //p" {folder}/inits)
shift
[ -n "$init" ] || {{ echo "ssh: Could not resolve hostname $host" >&2; exit 255; }}
exec nsenter -t "$init" --net --uts --ipc --mount sh -c "cd $HOME; $*"
"""


def shell(*lines):
    return subprocess.run(["sh", "-ec", "\n".join(lines)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def network():
    """The bridge between all hosts. Why there is none, or None."""
    if not os.environ.get("COLL_SOAK_APART"):
        return "namespaces need root"
    made = shell("ip link add coll-br type bridge", f"ip addr add {GATEWAY}/24 dev coll-br", "ip link set coll-br up")
    return None if made.returncode == 0 else f"no bridge: {made.stderr.strip()}"


class Host:
    """setup: lines of sh that run in it as root first. apart: with process numbers of its own. shm: the size of /dev/shm."""

    count = 0

    @staticmethod
    def next_address(ahead=0):
        return f"{NETWORK}.{10 + Host.count + ahead}"

    def __init__(self, name, setup=(), apart=False, shm="64m"):
        self.name, self.address = name, Host.next_address()
        self.net, outer = f"coll-{Host.count}", f"coll-v{Host.count}"
        Host.count += 1
        made = shell(f"ip netns add {self.net}", f"ip link add {outer} type veth peer name eth0 netns {self.net}",
                     f"ip link set {outer} master coll-br up", f"ip -n {self.net} addr add {self.address}/24 dev eth0",
                     f"ip -n {self.net} link set eth0 up", f"ip -n {self.net} link set lo up", f"ip -n {self.net} route add default via {GATEWAY}")
        lines = ["mount -t proc proc /proc"] * apart + [f"mount -t tmpfs -o size={shm} tmpfs /dev/shm", "mount -t tmpfs -o mode=1777 tmpfs /tmp",
                                                        f"hostname {name}", *setup, "echo up", "exec sleep 100000"]
        self.first = subprocess.Popen(["ip", "netns", "exec", self.net, "unshare", "--uts", "--ipc", "--mount", "--propagation", "private",
                                       *["--pid"] * apart, "--fork", "--kill-child", "sh", "-ec", "\n".join(lines)],
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = self.first.stdout.readline()
        if made.returncode != 0 or said != "up\n":
            raise RuntimeError(f"no host {name}: {made.stderr} {said}")
        with open(f"/proc/{self.first.pid}/task/{self.first.pid}/children") as f:
            self.init = f.read().split()[0]
        self.apart = apart

    def command(self, words):
        return ["nsenter", "-t", self.init, "--net", "--uts", "--ipc", "--mount", *["--pid"] * self.apart,
                "sh", "-c", 'cd "$0" 2>/dev/null; exec "$@"', os.getcwd(), *words]

    def end(self):
        """All its processes, if they have numbers of their own."""
        try:
            os.kill(int(self.init), signal.SIGKILL)
        except OSError:
            pass
        self.first.wait()
        shell(f"ip netns del {self.net}")


class Hosts:
    """Hosts of these names, which reach each other by name and by ssh; bin: a folder of programs before all others."""

    def __init__(self, *names):
        self.folder = tempfile.mkdtemp(dir="/var/tmp")
        self.bin = os.path.join(self.folder, "bin")
        os.mkdir(self.bin)
        table = os.path.join(self.folder, "hosts")
        with open(table, "w") as f:
            f.write("127.0.0.1 localhost\n" + "".join(f"{Host.next_address(i)} {n}\n" for i, n in enumerate(names)))
        subprocess.run(["mount", "--bind", table, "/etc/hosts"], check=True)
        self.hosts = {n: Host(n, ["mkdir /tmp/home"], shm="512m") for n in names}
        with open(os.path.join(self.folder, "inits"), "w") as f:
            f.write("".join(f"{n} {h.init}\n" for n, h in self.hosts.items()))
        self.program("ssh", SSH.format(folder=self.folder))

    def program(self, name, text):
        with open(os.path.join(self.bin, name), "w") as f:
            f.write(text)
        os.chmod(os.path.join(self.bin, name), 0o755)

    def start(self, name, command, env):
        return subprocess.Popen(self.hosts[name].command(["sh", "-ec", command]), env=env, text=True, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
