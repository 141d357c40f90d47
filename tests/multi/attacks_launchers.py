#!/usr/bin/env python3
"""Strangers against jobs of one host that mpirun starts, or that meet by the caller's exchange, by an id, or by torchrun's variables with
a secret. Another user of the host, who knows all that is public about the job: while the last rank is missing, and when all have met,
he proves computed keys at each open port and socket, floods it with garbage, silence and half handshakes, replays to it what he
was answered, and comes as the missing rank. Before that he took what names and ports he can compute. Nobody may notice. Root, and a user
`nobody`; a launcher that is not installed is skipped.

usage: attacks_launchers.py BUILD-DIRECTORY [CONNECTIONS [CASE...]]       (default 600; in full 10000)"""
import os
import shutil
import subprocess
import sys
import threading

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from attacks import COUNT, LATE_S, MEMORY_MB, PORT, RUN, Job, Stranger, prepare  # noqa: E402
from job import Report, inodes, now, starved, tcp_ports, until  # noqa: E402
from wires import missing  # noqa: E402

RANKS = 3
# As the launcher leaves them, but for what leads to its own connections, which are closed to other users.
PUBLIC = ("OMPI_", "PMIX_RANK", "PMIX_NAMESPACE", "PMI_RANK", "PMI_SIZE", "MPI_LOCAL", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC_",
          "COLL_RANK", "COLL_SIZE", "COLL_ROOT")
OF_RANK = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "PMIX_RANK", "PMI_RANK", "MPI_LOCALRANKID", "RANK", "LOCAL_RANK", "COLL_RANK")


def is_rank(process, program):
    try:
        return os.readlink(f"/proc/{process}/exe") == program
    except OSError:
        return False


def below(roots):
    """These processes and all that they have started."""
    found, fresh = set(), list(roots)
    while fresh:
        p = fresh.pop()
        found.add(p)
        try:
            for task in os.listdir(f"/proc/{p}/task"):
                with open(f"/proc/{p}/task/{task}/children") as f:
                    fresh += [int(c) for c in f.read().split()]
        except OSError:
            pass
    return found


class Launched(Job):
    """The ranks are started by one command, or by one for each rank; the last one waits for a word."""

    def __init__(self, place, command, variables):
        super().__init__(place, RANKS, "127.0.0.1")
        self.go, self.program, self.folder = self.stop + "-go", os.path.realpath(f"{place}/rank"), self.stop + "-x"
        os.mkdir(self.folder, 0o700)
        hold = ["sh", "-c", f'case "$LAST$OMPI_COMM_WORLD_RANK$PMI_RANK" in {RANKS - 1}) while [ ! -e {self.go} ]; do sleep 0.01; done;; esac; '
                'exec "$@"', "-", self.program, "0", COUNT, self.stop]
        env = {k: v for k, v in os.environ.items() if not k.startswith("COLL_")}
        env.update(COLL_DEBUG="warn", COLL_CREATE_TIMEOUT_MS="25000")
        for r in range(1 if command else RANKS):
            mine = dict(env, **variables(r, self)) if command else dict(env, **variables(r, self), LAST=str(r))
            p = subprocess.Popen(command + hold, env=mine, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/")
            self.ranks[r], self.lines[r] = p, []
            p.reader = threading.Thread(target=lambda p=p, r=r: [self.lines[r].append(x.rstrip()) for x in p.stdout], daemon=True)
            p.reader.start()

    def said(self, word):
        return sum(x.startswith(word) for lines in self.lines.values() for x in lines)

    def pids(self):
        return [int(p) for p in os.listdir("/proc") if p.isdigit() and is_rank(p, self.program)]

    def doors(self, space, address):
        """Without those of the launcher, which some leave to what they start: MPICH's mpiexec ends when a stranger says garbage to it."""
        of_launcher = set().union(*(inodes(p) for p in below([p.pid for p in self.ranks.values()]) if not is_rank(p, self.program)))
        mine = set().union(*(inodes(p) for p in self.pids()))
        ports = {port for inode, (_, port) in tcp_ports().items() if inode in mine - of_launcher}
        return [d for d in super().doors(space, address) if d[0] == "unix" or d[2] in ports]

    def ended(self):
        return any(p.poll() is not None for p in self.ranks.values())

    def all_running(self, seconds=30):
        return until(lambda: self.said("running") == RANKS or self.ended(), seconds) and self.said("running") == RANKS

    def public(self, rank):
        """The variables by which a process would be that rank."""
        with open(f"/proc/{self.pids()[0]}/environ", errors="replace") as f:
            env = dict(x.split("=", 1) for x in f.read().split("\0") if "=" in x)
        return {k: str(rank) if k in OF_RANK else v for k, v in env.items() if k.startswith(PUBLIC)}

    def end(self):
        for p in self.ranks.values():
            if p.poll() is None:
                p.terminate()
        for pid in self.pids():
            os.kill(pid, 9)
        for p in self.ranks.values():
            p.wait()
            p.reader.join(5)


def attack(job, s, count):
    """At everything that is open now. What was found, and what was seen to be wrong."""
    doors = job.doors(None, "127.0.0.1")
    if not doors:
        return "nothing is open", []
    forged = s.do("forge", doors=doors)
    replayed = s.do("replay", doors=doors, recorded=[os.urandom(40).hex(), (b"COLLmee2" + bytes(16) + bytes(16)).hex()])
    flooded = s.do("flood", doors=doors, count=count)
    faults = ["FORGE: a message with a computed key was believed"] if forged.get("believed") else []
    faults += ["REPLAY: what was said again was believed"] if replayed.get("answered") else []
    faults += [f"FLOOD: only {flooded} of {count} connections got in"] if flooded.get("inside", 0) < count / 2 else []
    return f"{len(doors)} places ({sum(d[0] == 'tcp' for d in doors)} ports), forged {forged}, flood {flooded}", faults


def against(place, count, command, variables):
    s = Stranger(place, "127.0.0.1", RANKS)
    taken = s.do("squat")
    job = Launched(place, command, variables)
    faults = []
    try:
        # Its ranks have opened what they wait at, if they do.
        if not until(lambda: len(job.pids()) == RANKS - 1 or job.ended(), 20) or job.ended():
            return [f"the first ranks do not start: {job.lines}"]
        until(lambda: job.doors(None, "127.0.0.1"), 2)
        creating, faults = attack(job, s, count // 2)
        if not job.pids():
            return faults + [f"the first ranks have ended: {creating}, {job.lines}"]
        said = s.do("join", rank=RANKS - 1, seconds=4, env=job.public(RANKS - 1))
        faults += [f"JOIN: another user was taken for rank {RANKS - 1}: {said}"] if said.get("joined") else []
        begun = now()
        open(job.go, "w").close()
        if not job.all_running():
            return faults + [f"SQUAT or FLOOD: the job does not start, {taken}: {job.lines}"]
        late = now() - begun - starved(begun, now())
        faults += [f"DELAY: the late rank joined after {late:.2f} s"] if late > 1 + LATE_S else []
        before = job.memory_mb()
        running, wrong = attack(job, s, count)
        grown = job.memory_mb() - before
        print(f"     squatted {taken}; creating: {creating}; late rank after {late:.2f} s; running: {running}; memory + {grown:.1f} MB")
        faults += wrong + ([f"FLOOD: {grown:.1f} MB more"] if grown > MEMORY_MB else [])
        faults += job.finish()
    finally:
        s.end()
        job.end()
    return faults


def ways():
    """name, command in front (None: it is not installed), variables of a rank."""
    here = {"WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": os.uname().nodename, "MASTER_PORT": str(PORT),
            "TORCHELASTIC_RUN_ID": RUN, "COLL_JOB_KEY": os.urandom(16).hex()}
    openmpi, mpich = shutil.which("mpirun.openmpi"), shutil.which("mpirun.mpich")
    one = openmpi and [openmpi, "--allow-run-as-root", "--oversubscribe", "-n", str(RANKS)]
    other = mpich and [mpich, "-n", str(RANKS)]
    none = {}
    yield "openmpi", one, lambda r, job: none
    yield "openmpi, by PMIx", one and one + ["env", "-u", "OMPI_COMM_WORLD_LOCAL_SIZE"], lambda r, job: none
    yield "mpich", other, lambda r, job: none
    yield "mpich, by PMI", other and other + ["env", "-u", "MPI_LOCALNRANKS"], lambda r, job: none
    for kind in ("exchange", "id"):
        yield kind, [], lambda r, job, kind=kind: {"MEET_BY": f"{kind}:{job.folder}:{r}:{RANKS}"}
    yield "torchrun, hosts with a secret", [], lambda r, job: dict(here, RANK=str(r))


def main():
    build, count = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 600
    why, report, skipped = missing("setpriv"), Report(), 0
    if why:
        print(f"skip attacks_launchers: {why}\n0 passed, 0 failed, 1 skipped")
        return 77
    place = prepare(build)
    try:
        for name, command, variables in ways():
            if sys.argv[3:] and name not in sys.argv[3:]:
                continue
            if command is None:
                print(f"skip {name}: not installed")
                skipped += 1
                continue
            report.case(name, against(place, count, command, variables))
        return report.close(skipped)
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    sys.exit(main())
