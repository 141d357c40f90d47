"""A campaign by itself: in namespaces of its own, where that is allowed, so that what is left over in processes, sockets and
/dev/shm was left by it.
"""
import os
import shutil
import subprocess
import sys
import tempfile

from job import abstract_names, alive, shm_names, tcp_ports, until

NAMESPACES = "/run/netns/coll-soak-"


def belongings():
    mine = {int(d) for d in os.listdir("/proc") if d.isdigit() and alive(d)} if os.environ.get("COLL_SOAK_APART") else set()
    return {"process": mine, "file in /dev/shm": shm_names(),
            "file in " + tempfile.gettempdir(): set(os.listdir(tempfile.gettempdir())),
            "socket": set(abstract_names().values()) | set(tcp_ports().values())}


def leftovers(before):
    """Counts and names what was not there before; only in namespaces of our own is all of it ours."""
    if not os.environ.get("COLL_SOAK_APART"):
        return 0
    until(lambda: all(not v - before[k] for k, v in belongings().items()), 3)
    found = [(k, x) for k, v in belongings().items() for x in v - before[k]]
    for kind, x in found:
        print(f"     left over: {kind} {x}")
    return len(found)


def apart():
    """Start the program again in namespaces of our own, where that is allowed."""
    if os.environ.get("COLL_SOAK_APART") is not None or not shutil.which("unshare"):
        return
    wrap = ["unshare", "--net", "--pid", "--mount", "--fork", "--kill-child"]
    here = os.path.abspath(sys.argv[0])
    inside = ("mount -t proc proc /proc && mount -t tmpfs tmpfs /dev/shm && mkdir -p /run/netns && "
              "mount -t tmpfs tmpfs /run/netns && ip link set lo up")
    if subprocess.run(wrap + ["sh", "-c", inside], stderr=subprocess.DEVNULL).returncode != 0:
        os.environ["COLL_SOAK_APART"] = ""
        return
    script = inside + f' && COLL_SOAK_APART=1 exec "{sys.executable}" "{here}" "$@"'
    os.execvp(wrap[0], wrap + ["sh", "-c", script, "sh"] + sys.argv[1:])


def two_namespaces():
    """Two hosts, joined by a cable."""
    if not os.environ.get("COLL_SOAK_APART"):
        return False
    a, b = os.path.basename(NAMESPACES) + "0", os.path.basename(NAMESPACES) + "1"
    commands = [f"ip netns add {a}", f"ip netns add {b}", f"ip link add v0 netns {a} type veth peer name v1 netns {b}"]
    for n, name in ((0, a), (1, b)):
        commands += [f"ip -n {name} addr add 10.91.7.{n + 1}/24 dev v{n}", f"ip -n {name} link set v{n} up",
                     f"ip -n {name} link set lo up"]
    return subprocess.run(["sh", "-c", " && ".join(commands)], stderr=subprocess.DEVNULL).returncode == 0
