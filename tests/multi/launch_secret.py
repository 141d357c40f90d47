#!/usr/bin/env python3
"""Jobs beyond one host have a secret, or say that they have none: each launcher by its variables, each source of a secret, in
two network namespaces; and a secret is not in what the system shows of the processes of a job.

usage: launch_secret.py BUILD-DIRECTORY MUNGE-STUB"""
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from job import Job, Report, sanitized, until
from wires import wires_or_none

BUILD, MUNGE = sys.argv[1:3]
DIGITS = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
REFUSED, WARNED = "COLL-1119", "COLL-5114"
PLAIN = {k: v for k, v in os.environ.items() if not k.startswith(("COLL_", "XDG_", "SLURM_", "PMI", "OMPI_", "TORCHELASTIC")) and
         k not in ("RANK", "WORLD_SIZE")}

# What stands for torch where it is asked for its store: a file.
STORE = """
import fcntl, os
class TCPStore:
    def __init__(self, host, port, is_master):
        assert not is_master and host == os.environ["MASTER_ADDR"] and port == int(os.environ["MASTER_PORT"])
    def compare_set(self, name, expected, value):
        with open(os.path.join(os.path.dirname(__file__), "store-" + name.replace("/", "-")), "a+") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            f.seek(0)
            had = f.read()
            if had == expected:
                f.truncate(0)
                f.write(value)
                had = value
            return had.encode()
"""
OBJECTS = """
import coll, os
with coll.init() as comm:
    assert not os.environ.get("COLL_JOB_KEY")
    print("objects", comm.all_gather_object(("of", comm.rank)))
"""
# The key of the launch is good for all communicators, whatever made the first one.
AGAIN = """
import coll, os
coll.unique_id()
assert os.environ["COLL_JOB_KEY"] == ""
""" + 2 * OBJECTS


class Case:
    """Two ranks, on two hosts: rank r has common, and what is in each[r]; `{r}` there is its number."""

    port = 20000 + os.getpid() % 9000

    def __init__(self, wires, common, each=({}, {}), command=None, pass_fds=((), ())):
        Case.port += 1
        self.out, ranks = [], []
        for r in range(2):
            env = {**PLAIN, "HOME": "/nowhere", "COLL_CREATE_TIMEOUT_MS": "20000", **common, **each[r]}
            env = {k: v.replace("{r}", str(r)).replace("{root}", wires.address(0, 0)).replace("{port}", str(Case.port))
                   for k, v in env.items()}
            ranks.append(subprocess.Popen(wires.inside(r) + (command or [f"{BUILD}/tools/coll-info", "--brief"]), env=env, text=True,
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=pass_fds[r]))
        for p in ranks:
            self.out.append(p.communicate(timeout=120)[0])
        self.status = [p.returncode for p in ranks]
        self.all = "\n".join(self.out)

    def works(self, secret, warned=0):
        return [f"{self.status} {self.all[:1500]}"] if self.status != [0, 0] or f"secret: {secret}\n" not in self.out[0] or \
            self.all.count(WARNED) != warned or DIGITS[:16] in self.all else []

    def refused(self, ranks=(0, 1)):
        """By one line, which the library logs and coll-info repeats."""
        return [f"{self.status} {self.all[:1500]}"] if any(
            self.status[r] != 1 or [REFUSED in line for line in self.out[r].splitlines()] != [True, True] for r in ranks) else []


HAND = {"COLL_RANK": "{r}", "COLL_SIZE": "2", "COLL_ROOT": "{root}:{port}"}
TORCHRUN = {"RANK": "{r}", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "{root}", "MASTER_PORT": "{port}",
            "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_USE_AGENT_STORE": "True"}
SRUN = {"SLURM_PROCID": "{r}", "SLURM_JOB_ID": "{port}", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "2",
        "SLURM_NNODES": "2", "SLURM_STEP_NODELIST": "{root},other"}


def key_file(where, name, text=b"16 bytes or more", mode=0o600):
    path = os.path.join(where, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(text)
    os.chmod(path, mode)
    return path


def by_sources(report, wires, where):
    path, other = key_file(where, "a-key"), key_file(where, "another", b"another of these")
    key_file(where, "coll/key")
    # What the machine has of munge is not found.
    key_file(where, "no-munge/libmunge.so.2", b"")
    no_munge = {"LD_LIBRARY_PATH": f"{where}/no-munge"}
    for name, launch in (("by hand", HAND), ("torchrun", TORCHRUN), ("srun", {**SRUN, **no_munge})):
        report.case(f"{name}, no secret", Case(wires, launch).refused())
        report.case(f"{name}, COLL_INSECURE=1", Case(wires, {**launch, "COLL_INSECURE": "1"}).works("none, as COLL_INSECURE allows", 1))
        report.case(f"{name}, a file of the user", Case(wires, {**launch, "XDG_CONFIG_HOME": where}).works("~/.config/coll/key"))
    report.case("COLL_KEY_FILE", Case(wires, {**HAND, "COLL_KEY_FILE": path}).works("COLL_KEY_FILE"))
    report.case("COLL_JOB_KEY", Case(wires, {**HAND, "COLL_JOB_KEY": DIGITS, "COLL_DEBUG": "debug"}).works("COLL_JOB_KEY"))
    fds = [os.open(path, os.O_RDONLY) for _ in range(2)]
    report.case("COLL_KEY_FD", Case(wires, HAND, [{"COLL_KEY_FD": str(fd)} for fd in fds], pass_fds=[[fd] for fd in fds]).works("COLL_KEY_FD"))
    report.case("one rank has no secret", Case(wires, {**HAND, "COLL_CREATE_TIMEOUT_MS": "1000"}, [{"COLL_KEY_FILE": path}, {}]).refused([1]))
    c = Case(wires, {**HAND, "COLL_CREATE_TIMEOUT_MS": "2000"}, [{"COLL_KEY_FILE": path}, {"COLL_KEY_FILE": other}])
    report.case("two secrets", [] if c.status == [1, 1] and "is the key not the same on all hosts?" in c.out[1] else [c.all])
    os.chmod(path, 0o644)
    c = Case(wires, {**HAND, "COLL_KEY_FILE": path})
    report.case("a file that others may read", [] if c.status == [1, 1] and c.all.count("chmod 600") == 4 else [c.all])


def by_munge(report, wires, where):
    here, none = {"LD_LIBRARY_PATH": f"{where}/munge"}, {"LD_LIBRARY_PATH": f"{where}/no-munge"}
    os.makedirs(f"{where}/munge")
    shutil.copy(MUNGE, f"{where}/munge/libmunge.so.2")
    report.case("srun, munge", Case(wires, {**SRUN, **here}).works("munge"))
    report.case("srun, munge, requeued", Case(wires, {**SRUN, **here, "SLURM_RESTART_COUNT": "1"}).works("munge"))
    report.case("srun, munge, an interface", Case(wires, {**SRUN, **here, "COLL_INTERFACE": "e0"}).works("munge"))
    report.case("srun, munge, a range of ports", Case(wires, {**SRUN, **here, "COLL_PORT_RANGE": "19000-19030"}).works("munge"))
    report.case("srun, a key file before munge", Case(wires, {**SRUN, **here, "XDG_CONFIG_HOME": where}).works("~/.config/coll/key"))
    c = Case(wires, {**SRUN, **none})
    report.case("srun, no libmunge", c.refused() + [f"it does not say: {w}" for w in ("there is no libmunge.so.2", "--mpi=pmi2", "coll/key") if w not in c.all])
    short = {**SRUN, "COLL_CREATE_TIMEOUT_MS": "2000"}
    c = Case(wires, {**short, **here}, [{}, {"MUNGE_STUB_USER": "4711"}])
    report.case("munge: another user is rank 0", [] if c.status == [1, 1] and "is of user 4711" in c.out[1] and "rank 1 of 2 did not connect" in c.out[0] else [c.all])
    c = Case(wires, {**short, **here}, [{}, {"SLURM_STEP_NUM_TASKS": "3"}])
    report.case("munge: another job of the user", [] if c.status == [1, 1] and "another job of this user" in c.out[1] else [c.all])
    c = Case(wires, {**short, **here}, [{"XDG_CONFIG_HOME": where}, {}])
    report.case("munge: rank 0 has a key file", [] if c.status == [1, 1] and "has another secret than munge" in c.out[1] else [c.all])
    report.case("munge: rank 0 has no free descriptor", without_descriptors(wires, {**SRUN, **here}))


def naps(pid):
    """How often each thread has gone to sleep of its own accord; None: it sleeps now."""
    found = {}
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/status") as f:
            text = f.read()
        found[task] = None if re.search(r"State:\s+S", text) else int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.M)[1])
    return found


# Connects to the ports until one hands out a credential.
CONNECT = """
import socket, sys
for port in sys.argv[2:]:
    s = socket.create_connection((sys.argv[1], int(port)))
    print("connected", flush=True)
    s.settimeout(5)
    try:
        if s.recv(5) == b"STUB:":
            print(port)
    except TimeoutError:
        pass
"""


def without_descriptors(wires, env):
    """Who waits to be accepted keeps no thread of rank 0 running."""
    env = {**PLAIN, "HOME": "/nowhere", "COLL_CREATE_TIMEOUT_MS": "100000",
           **{k: v.replace("{root}", wires.address(0, 0)).replace("{r}", "0").replace("{port}", "9") for k, v in env.items()}}
    rank = subprocess.Popen(wires.inside(0) + [f"{BUILD}/tools/coll-info", "--brief"], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def handed_out():
        ports = []
        for table in "tcp", "tcp6":
            with open(f"/proc/{rank.pid}/net/{table}") as f:
                ports += [int(line.split()[1].split(":")[1], 16) for line in f.readlines()[1:] if line.split()[3] == "0A"]
        done = subprocess.run(wires.inside(1) + [sys.executable, "-c", CONNECT, wires.address(0, 0), *map(str, ports)], capture_output=True, text=True)
        return [word for word in done.stdout.split() if word.isdigit()]

    try:
        ports = until(lambda: handed_out() or rank.poll() is not None, 60)
        if rank.poll() is not None or not ports:
            return [f"nothing is handed out: {rank.communicate()[0] if rank.poll() is not None else ports}"]
        used = {int(fd) for fd in os.listdir(f"/proc/{rank.pid}/fd")}
        limit = min(set(range(max(used) + 2)) - used)
        resource.prlimit(rank.pid, resource.RLIMIT_NOFILE, (limit, limit))
        with subprocess.Popen(wires.inside(1) + [sys.executable, "-c", CONNECT, wires.address(0, 0), *ports], stdout=subprocess.PIPE, text=True) as stranger:
            stranger.stdout.readline()
            time.sleep(0.1)
            before = naps(rank.pid)
            rests = until(lambda: all(n is None or n > (before.get(t) or 0) + 3 for t, n in naps(rank.pid).items()), 10)
            got = stranger.stdout.read()
        return ([f"it was served: {got}"] if got else []) + ([] if rests else [f"a thread runs on: {before} {naps(rank.pid)}"])
    finally:
        rank.kill()
        rank.wait()


def by_python(report, wires, where):
    if not os.path.exists(f"{BUILD}/python/coll/__init__.py") or sanitized(BUILD):
        return
    os.makedirs(os.path.join(where, "torch"))
    key_file(where, "torch/__init__.py", b"")
    key_file(where, "torch/distributed.py", STORE.encode())
    python, here = [sys.executable, "-c", OBJECTS], {"PYTHONPATH": f"{BUILD}/python:{where}"}
    for name, more, ends in (("torchrun's store", {}, 0), ("no store", {"TORCHELASTIC_USE_AGENT_STORE": "False"}, 1)):
        c = Case(wires, {**TORCHRUN, **here, **more}, command=python)
        said = [c.out[r].count("as closed as MASTER_PORT") for r in range(2)]
        good = c.status == [ends, ends] and (said == [0, 0] and c.all.count(REFUSED) == 2 if ends else
                                             said == [1, 0] and REFUSED not in c.all and c.all.count("objects [('of', 0), ('of', 1)]") == 2)
        report.case("Python: " + name, [] if good else [f"{c.status} {c.all[:1500]}"])
    key_file(where, "python-key")
    key_file(where, "settings", f"COLL_KEY_FILE = {where}/python-key".encode())
    for name, more, program, uses_store in (("torchrun, COLL_JOB_KEY twice", {"COLL_JOB_KEY": DIGITS}, AGAIN, 0),
                                            ("torchrun, a key file in a file of settings", {"COLL_CONFIG_FILE": f"{where}/settings"}, OBJECTS, 0),
                                            ("torchrun's store, COLL_INSECURE=0", {"COLL_INSECURE": "0"}, OBJECTS, 1),
                                            ("torchrun's store, insecure=False", {}, OBJECTS.replace("init()", "init(insecure=False)"), 1)):
        c = Case(wires, {**TORCHRUN, **here, **more}, command=[sys.executable, "-c", program])
        good = c.status == [0, 0] and c.all.count("objects [('of', 0), ('of', 1)]") == 2 * program.count("objects") and \
            c.all.count("as closed as MASTER_PORT") == uses_store
        report.case("Python: " + name, [] if good else [f"{c.status} {c.all[:1500]}"])
    c = Case(wires, {**HAND, **here, "COLL_JOB_KEY": DIGITS}, command=python)
    report.case("Python: the key is not in os.environ", [] if c.status == [0, 0] else [c.all[:1500]])


def has_key(text):
    return any(part in text for part in (DIGITS[:16].encode(), DIGITS[16:].encode(), bytes.fromhex(DIGITS)[:8], bytes.fromhex(DIGITS)[7::-1]))


def leaks(pid):
    """Where the system shows a secret, or a part of the one that is known."""
    found = []
    for name in ("environ", "cmdline"):
        with open(f"/proc/{pid}/{name}", "rb") as f:
            text = f.read()
        if re.search(rb"COLL_JOB_KEY=\w", text) or has_key(text):
            found.append(f"/proc/{pid}/{name}: {text[:300]!r}")
    return found


def shown(report):
    for by_hand in (True, False):
        where = tempfile.TemporaryDirectory()
        job = Job(BUILD, "shm", 2, 64, by_hand=by_hand, COLL_DUMP_FILE=where.name + "/dump.%r", **({"COLL_JOB_KEY": DIGITS} if by_hand else {}))
        faults = [] if job.running(60) else [f"it does not run: {job.out} {job.err}"]
        pids, dump = job.processes(), where.name + "/dump.0"
        os.kill(job.pids[0], signal.SIGUSR1)
        faults += [] if until(lambda: os.path.exists(dump) and os.path.getsize(dump) > 0, 20) else ["there is no dump"]
        with open(dump, "rb") as f:
            faults += ["the dump has the key"] if has_key(f.read()) else []
        faults += [f for pid in pids for f in leaks(pid)] + ([] if len(pids) >= (2 if by_hand else 4) else [f"{pids} alone"])
        job.stop()
        faults += [] if set(job.wait(60)) == {0} else [f"it does not end: {job.err}"]
        job.end()
        report.case(f"what the system shows of {'ranks by hand' if by_hand else 'collrun and its ranks'}", faults)


def main():
    report = Report()
    shown(report)
    wires = wires_or_none("launch-secret", "10.97")
    if not wires:
        return report.close()
    try:
        with tempfile.TemporaryDirectory() as where:
            by_sources(report, wires, where)
            by_munge(report, wires, where)
            by_python(report, wires, where)
    finally:
        wires.close()
    return report.close()


sys.exit(main())
