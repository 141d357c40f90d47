"""A job of allreduce_loop processes, and what it owns on this machine: processes,
listening sockets, names in /dev/shm. For the tests beside this file."""
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time


def now():
    return time.clock_gettime(time.CLOCK_MONOTONIC)


NAP_S, EXCUSE_S = 0.005, 0.002
_overslept = []  # when, and how long


def _nap():
    while True:
        begin = now()
        time.sleep(NAP_S)
        late = now() - begin - NAP_S
        if late > EXCUSE_S:
            _overslept.append((begin, late))


threading.Thread(target=_nap, daemon=True).start()


def starved(since, end):
    """Seconds from since to end by which short naps of this process took too long: the machine is slow, or crowded, and
    times that are promised to programs that run are not promised to those that are kept from it."""
    return sum(min(late, end - begin - NAP_S) for begin, late in list(_overslept)
               if begin + late >= since and begin + NAP_S < end)


def until(condition, seconds):
    """Wait, bounded, until the condition holds; its value."""
    end = now() + seconds
    while not condition() and now() < end:
        time.sleep(0.005)
    return condition()


def sanitized(build):
    """True if the library of this build is one of a sanitizer: Python cannot load it, a limit of memory ends it at once."""
    with open(f"{build}/src/libcoll.so", "rb") as f:
        text = f.read()
    return b"__asan_init" in text or b"__tsan_init" in text


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def shm_names():
    """Names in /dev/shm, without the host's digest and the table of running ranks, which stay for the jobs to come."""
    return {n for n in os.listdir("/dev/shm") if not n.startswith(("libcoll-digest-", "libcoll-running-"))}


def abstract_names():
    """Abstract Unix sockets of this library: inode -> (name, socket type)."""
    found = {}
    with open("/proc/net/unix") as f:
        for line in f.readlines()[1:]:
            w = line.split()
            # Flags 00010000: it listens.
            if len(w) > 7 and w[7].startswith("@") and w[3] == "00010000":
                found[int(w[6])] = (w[7][1:], int(w[4], 16))
    return found


def tcp_ports():
    """Listening TCP ports: inode -> (family, port)."""
    found = {}
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        try:
            with open("/proc/net/" + name) as f:
                rows = f.readlines()[1:]
        except FileNotFoundError:
            continue
        for line in rows:
            w = line.split()
            if w[3] == "0A":
                found[int(w[9])] = (family, int(w[1].rsplit(":", 1)[1], 16))
    return found


def inodes(pid):
    found = set()
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                m = re.match(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{fd}"))
            except OSError:
                continue
            if m:
                found.add(int(m.group(1)))
    except OSError:
        pass
    return found


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


# ---- Kills and stops ----------------------------------------------------------


def kill_all(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass


class Job:
    def __init__(self, build, transport, ranks, count, by_hand=False, late=None, **settings):
        self.ranks, self.transport, self.out, self.err = ranks, transport, [], []
        self.directory = tempfile.TemporaryDirectory()
        self.stop_file = os.path.join(self.directory.name, "stop")
        self.shm_before = shm_names()
        env = {k: v for k, v in os.environ.items() if not k.startswith("COLL_")}
        env.update({"COLL_TRANSPORTS": transport, "COLL_DEBUG": "warn"}, **settings)
        program = [f"{build}/tests/allreduce_loop", "0", str(count), self.stop_file] + [str(x) for x in late or []]
        self.started = []
        if by_hand:
            env["COLL_ROOT"] = f"127.0.0.1:{free_port()}"
            for r in range(ranks):
                self.start(program, dict(env, COLL_RANK=str(r), COLL_SIZE=str(ranks)))
        else:
            self.start([f"{build}/tools/collrun", "-n", str(ranks), "--no-prefix"] + program, env)

    def start(self, command, env):
        p = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.started.append(p)
        p.readers = []
        for pipe, lines in ((p.stdout, self.out), (p.stderr, self.err)):
            t = threading.Thread(target=lambda f=pipe, to=lines: [to.append(x.rstrip("\n")) for x in f], daemon=True)
            t.start()
            p.readers.append(t)

    def lines(self, word):
        """word RANK ...: rank -> the words that follow."""
        return {int(w[1]): w[2:] for w in (x.split() for x in list(self.out)) if w and w[0] == word}

    def running(self, seconds=30):
        """All ranks compute; rank -> process id."""
        if not until(lambda: len(self.lines("running")) == self.ranks, seconds):
            return None
        self.pids = {r: int(w[0]) for r, w in self.lines("running").items()}
        self.used = {w[1] for w in self.lines("running").values()}
        return self.pids

    def processes(self):
        """Everything that descends from what we started, and lives."""
        parent = {}
        for d in os.listdir("/proc"):
            if d.isdigit():
                try:
                    with open(f"/proc/{d}/stat") as f:
                        w = f.read().rsplit(")", 1)[1].split()
                    if w[0] != "Z":
                        parent[int(d)] = int(w[1])
                except OSError:
                    pass
        found = {p.pid for p in self.started if p.poll() is None}
        for _ in range(4):
            found |= {p for p, up in parent.items() if up in found}
        return found | {p for p in getattr(self, "pids", {}).values() if p in parent}

    def listeners(self):
        """(kind, address) of every listening socket of the job."""
        mine = set().union(*(inodes(p) for p in self.processes()))
        return {("tcp",) + a for i, a in tcp_ports().items() if i in mine} | \
               {("unix",) + a for i, a in abstract_names().items() if i in mine}

    def stop(self):
        open(self.stop_file, "w").close()

    def wait(self, seconds):
        """Exit statuses of what we started; None where it did not end."""
        until(lambda: all(p.poll() is not None for p in self.started), seconds)
        for p in self.started:
            for t in p.readers if p.poll() is not None else []:
                t.join(5)
        return [p.poll() for p in self.started]

    def end(self):
        """Whatever is left is a finding, and is ended."""
        left = self.processes()
        kill_all(left)
        for p in self.started:
            p.wait()
        self.directory.cleanup()
        return left


class Report:
    """Counts, and the closing line."""

    def __init__(self):
        self.passed = self.failed = 0

    def case(self, name, faults):
        if faults:
            self.failed += 1
            print(f"FAIL {name}")
            for f in faults[:12]:
                print(f"     {f}")
        else:
            self.passed += 1
            print(f"ok   {name}")
        import sys
        sys.stdout.flush()

    def close(self, skipped=0):
        print(f"{self.passed} passed, {self.failed} failed, {skipped} skipped")
        return 1 if self.failed or not self.passed else 0
