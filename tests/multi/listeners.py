#!/usr/bin/env python3
"""A job of one host has no TCP listener: from the end of creation on under every way to start one, and at no time where
the ranks know before they meet that they share a host. With tcp alone it listens on loopback only. While ranks meet that may be
on several hosts, they listen at the addresses of COLL_INTERFACE and of loopback only, and at none once they have met, also where a
launcher's store tells where rank 0 is. What cannot be started here is skipped.

usage: listeners.py BUILD-DIRECTORY"""
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile

from job import Job, Report, free_port, inodes, until

RANKS = 3


def is_rank(process, job):
    """Launchers listen, too, and some leave their sockets to what they start."""
    try:
        return os.readlink(f"/proc/{process}/exe") == os.path.realpath(job.program[0])
    except OSError:
        return False


def tcp_listeners(job):
    """(address, port) of each listening socket of its ranks."""
    of_ranks, of_launcher = set(), set()
    for p in job.processes():
        (of_ranks if is_rank(p, job) else of_launcher).update(inodes(p))
    mine, found = of_ranks - of_launcher, set()
    for name in ("tcp", "tcp6"):
        try:
            rows = open("/proc/net/" + name).readlines()[1:]
        except FileNotFoundError:
            continue
        for w in (row.split() for row in rows):
            if w[3] == "0A" and int(w[9]) in mine:
                found.add(tuple(w[1].split(":")))
    return found


def is_loopback(address):
    return address.endswith("7F") and len(address) == 8 or address == "0" * 24 + "01000000"


def as_listed(address):
    """As the kernel lists it: words of four bytes, in the order of a little-endian machine."""
    b = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    return b"".join(b[i:i + 4][::-1] for i in range(0, len(b), 4)).hex().upper()


def interface():
    """(name, its addresses as the kernel lists them) of one that has any; None: only loopback has."""
    for row in json.loads(subprocess.run(["ip", "-j", "addr"], capture_output=True, text=True).stdout or "[]"):
        found = {as_listed(a["local"]) for a in row["addr_info"]}
        if found and row["ifname"] != "lo" and "UP" in row["flags"]:
            return row["ifname"].split("@")[0], found
    return None


class Started(Job):
    """Ranks that are started one by one, or by a launcher; the last rank comes late, so that the others are seen while they wait."""

    def __init__(self, build, command, environment, ranks):
        self.ranks, self.out, self.err, self.started = ranks, [], [], []
        self.directory = tempfile.TemporaryDirectory()
        self.stop_file = os.path.join(self.directory.name, "stop")
        self.program = [f"{build}/tests/allreduce_loop", "0", "64", self.stop_file]
        env = {k: v for k, v in os.environ.items() if not k.startswith("COLL_")}
        late = ["sh", "-c", 'case "$LATE$COLL_RANK$RANK$SLURM_PROCID$OMPI_COMM_WORLD_RANK$PMI_RANK" in 2) sleep 0.4;; esac; exec "$@"', "-"]
        if command:
            self.start(command + late + self.program, dict(env, **environment(0, self)))
            return
        for r in range(ranks):
            mine = environment(r, self)
            self.start(late + self.program, dict(env, **mine, LATE="2" if r == 2 and "MEET_BY" in mine else ""))


def watched(build, command, environment, known, loopback, ranks=RANKS, at=None):
    """at: addresses at which it may listen while it is created; None: any."""
    faults, early = [], set()
    job = Started(build, command, environment, ranks)
    until(lambda: early.update(tcp_listeners(job)) or len(job.lines("running")) == ranks, 60)
    if not job.running(1):
        faults.append(f"it does not start: {job.out} {job.err}")
    at_work = tcp_listeners(job)
    if known and not loopback and early:
        faults.append(f"listened at {sorted(early)} while it was created")
    if known and [a for a, _ in early if not is_loopback(a)]:
        faults.append(f"listened at {sorted(early)}, beyond loopback, while it was created")
    if at and (not early or [a for a, _ in early if not is_loopback(a) and a not in at]):
        faults.append(f"listened at {sorted(early)} while it was created, {sorted(at)} were chosen")
    if [a for a, _ in at_work if not is_loopback(a)] or at_work and not loopback:
        faults.append(f"listens at {sorted(at_work)}")
    if loopback and not at_work:
        faults.append("no listener was found: this test sees none")
    job.stop()
    statuses = job.wait(30)
    if set(statuses) != {0} or len(job.lines("done")) != ranks:
        faults.append(f"ended with {statuses}: {job.out} {job.err}")
    if job.end():
        faults.append("processes remain")
    return faults


def ways(build):
    """name, command in front, environment of a rank, whether the ranks know that they share a host; None: not installed."""
    port = free_port()
    collrun = [f"{build}/tools/collrun", "-n", str(RANKS), "--no-prefix"]
    hand = {"COLL_SIZE": str(RANKS)}
    torch = {"WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
             "TORCHELASTIC_RUN_ID": "none"}
    slurm = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": str(RANKS), "SLURM_NNODES": "1"}
    yield "collrun", collrun, lambda r, job: {}, True
    yield "torchrun", None, lambda r, job: dict(torch, RANK=str(r), LOCAL_RANK=str(r)), True
    yield "srun", None, lambda r, job: dict(slurm, SLURM_PROCID=str(r), SLURM_LOCALID=str(r)), True
    yield "by hand, loopback", None, lambda r, job: dict(hand, COLL_RANK=str(r), COLL_ROOT=f"127.0.0.1:{port}"), True
    yield "by hand, by name", None, lambda r, job: dict(hand, COLL_RANK=str(r), COLL_ROOT=f"{os.uname().nodename}:{port}",
                                                        COLL_JOB_KEY="5" * 32), False
    for kind in ("exchange", "id"):
        yield kind, None, lambda r, job, kind=kind: {"MEET_BY": f"{kind}:{job.directory.name}:{r}:{RANKS}"}, False
    for name, more in (("mpirun.openmpi", ["--allow-run-as-root", "--oversubscribe"]), ("mpirun.mpich", [])):
        yield name, shutil.which(name) and [name, *more, "-n", str(RANKS)], lambda r, job: {}, True


def chosen(build):
    """name, command in front, environment of a rank, ranks: jobs that may be on several hosts, while they meet."""
    port = free_port()
    yield "by name", None, lambda r, job: {"COLL_RANK": str(r), "COLL_SIZE": "3", "COLL_ROOT": f"{os.uname().nodename}:{port}",
                                           "COLL_JOB_KEY": "6" * 32}, 3
    # More ranks than one parent has: some listen for others.
    yield "tree", None, lambda r, job: {"COLL_RANK": str(r), "COLL_SIZE": "10", "COLL_ROOT": f"{os.uname().nodename}:{port + 1}",
                                        "COLL_JOB_KEY": "7" * 32}, 10
    yield "id", None, lambda r, job: {"MEET_BY": f"id:{job.directory.name}:{r}:3"}, 3
    mpich = shutil.which("mpirun.mpich")
    yield "published by PMI", mpich and [mpich, "-n", "3", "env", "-u", "MPI_LOCALNRANKS"], lambda r, job: {}, 3


def main():
    build, report = os.path.abspath(sys.argv[1]), Report()
    skipped = 0
    for name, command, environment, known in ways(build):
        if command == "" or name.startswith("mpirun") and not command:
            print(f"skip {name}: not installed")
            skipped += 1
            continue
        report.case(f"listeners {name}", watched(build, command, environment, known, False))
        report.case(f"listeners {name}, tcp alone",
                    watched(build, command, lambda r, job: dict(environment(r, job), COLL_TRANSPORTS="tcp"), known, True))
    one = interface()
    for name, command, environment, ranks in chosen(build):
        if not one or command == "" or name.startswith("published") and not command:
            print(f"skip {name}, one interface: not here")
            skipped += 1
            continue
        report.case(f"listeners {name}, one interface",
                    watched(build, command, lambda r, job: dict(environment(r, job), COLL_INTERFACE=one[0]), False, False, ranks, one[1]))
    return report.close(skipped)


sys.exit(main())
