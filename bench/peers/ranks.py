"""The ranks of one library: how they are started, and how they are talked to.

Each rank is a process of one of the drivers (driver.c has the protocol) and is connected to this process by a socket; a
rank that is not asked for anything sleeps in read(). Nothing here knows what is measured.
"""
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HEADER = 1 << 16
TIMES = 256 * (1 << 14) * 16  # driver.c: RANKS_MAX x CALLS_EACH_MAX x two times
FLOOR_ROOM = 1 << 31  # sparse: only what a floor touches exists


class Failed(Exception):
    """A library could not be started, died, or was wrong."""


class Missing(Failed):
    """It is not on this machine."""


def cores():
    return len(os.sched_getaffinity(0))


def which_mpirun(kind):
    """The launcher of one MPI: Debian has both under names of their own."""
    mark = {"openmpi": "Open MPI", "mpich": "HYDRA"}[kind]
    for name in ("mpirun." + kind, "mpiexec." + kind, "mpirun", "mpiexec"):
        path = shutil.which(name)
        if path and mark in subprocess.run([path, "--version"], capture_output=True, text=True).stdout:
            return path
    return None


def command_ours(ctx, ranks):
    env = {"COLL_TRANSPORTS": ctx.transport}
    if getattr(ctx, "before", None):  # two jobs, of which one is awake at a time: neither counts the other
        env["COLL_JOBS_FILE"] = "none"
    return [ctx.build + "/tools/collrun", "-n", str(ranks), "--no-prefix", ctx.build + "/bench/peers/driver_ours"], env


def command_before(ctx, ranks):
    """Another build of this library in the place of ours."""
    line, env = command_ours(ctx, ranks)
    return line[:-1] + ["env", "LD_PRELOAD=" + ctx.before, line[-1]], env


def command_openmpi(ctx, ranks):
    mpirun = which_mpirun("openmpi")
    if not mpirun:
        raise Missing("not found")
    line = [mpirun, "--oversubscribe", "--bind-to", "none", "-np", str(ranks)]
    if os.geteuid() == 0:
        line.append("--allow-run-as-root")
    for name in ("COLL_BENCH_SOCKET", "COLL_BENCH_SHARED"):
        line += ["-x", name]
    if ctx.transport == "tcp":
        line += ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]
    if ranks > cores():
        line += ["--mca", "mpi_yield_when_idle", "1"]
    return line + [ctx.build + "/bench/peers/driver_openmpi"], {}


def command_mpich(ctx, ranks):
    mpirun = which_mpirun("mpich")
    if not mpirun:
        raise Missing("not found")
    env = {}
    if ctx.transport == "tcp":
        # No shared memory; whichever network layer it was built with, over sockets.
        env = {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self", "FI_PROVIDER": "tcp"}
    return [mpirun, "-bind-to", "none", "-n", str(ranks), ctx.build + "/bench/peers/driver_mpich"], env


def command_each(program, **env):
    """Ranks without a launcher: see Ranks.start."""
    return lambda ctx, ranks: ([p.replace("{build}", ctx.build).replace("{python}", ctx.python) for p in program],
                               dict(env, COLL_BENCH_SIZE=str(ranks)))


HERE = os.path.dirname(os.path.abspath(__file__))
# name: how to start it, whether a launcher starts all ranks, memory of its buffers
KINDS = {
    "ours": (command_ours, True, "plain"),
    "ours_own": (command_ours, True, "own"),
    "before": (command_before, True, "plain"),
    "openmpi": (command_openmpi, True, "plain"),
    "mpich": (command_mpich, True, "plain"),
    "gloo": (command_each(["{build}/bench/peers/driver_gloo"]), False, "plain"),
    "torch": (command_each(["{python}", HERE + "/gloo_torch.py"]), False, "plain"),
    "floor": (command_each(["{build}/bench/peers/driver_floor"]), False, "own"),
    "line": (command_each(["{build}/bench/peers/driver_floor"], COLL_BENCH_FLOOR="line"), False, "own"),
}
SHORT = {"ours": "ours", "ours_own": "own", "before": "before", "openmpi": "OMPI", "mpich": "MPICH", "gloo": "Gloo", "torch": "torch",
         "floor": "floor", "line": "line"}
TITLES = {"ours": "ours", "ours_own": "ours, own buffers", "before": "the other build", "openmpi": "Open MPI", "mpich": "MPICH", "gloo": "Gloo",
          "torch": "Gloo in PyTorch", "floor": "floor", "line": "one way"}


class Ranks:
    """All ranks of one library. What goes wrong is Failed, with the library's name."""

    def __init__(self, name, ctx, ranks, timeout=60):
        self.name = name
        self.ctx = ctx
        self.ranks = ranks
        self.timeout = timeout
        self.text = ""
        self.sockets = []
        self.processes = []
        self.log = tempfile.TemporaryFile()
        self.memory_kind = KINDS[name][2]
        self.dir = tempfile.mkdtemp(prefix="coll-bench-")
        # A file without a name: nothing is left behind, however this ends.
        self.shared = os.memfd_create("coll-bench")
        os.truncate(self.shared, HEADER + TIMES + FLOOR_ROOM)
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def start(self):
        make, launched, _ = KINDS[self.name]
        line, extra = make(self.ctx, self.ranks)
        program = line[-1]
        if not os.path.exists(program):
            raise Missing("not built: its packages were not found")
        if not shutil.which(line[0]):
            raise Missing("not found")
        server = socket.socket(socket.AF_UNIX)
        server.bind(self.dir + "/s")
        server.listen(self.ranks)
        server.settimeout(1)
        env = dict(os.environ, COLL_BENCH_SOCKET=self.dir + "/s", COLL_BENCH_TRANSPORT=self.ctx.transport,
                   COLL_BENCH_DIR=self.dir, COLL_BENCH_CC=self.ctx.cc or "reno",
                   COLL_BENCH_SHARED="/proc/%d/fd/%d" % (os.getpid(), self.shared), **extra)
        if self.ctx.unpinned:
            env["COLL_BENCH_UNPINNED"] = "1"
        for rank in range(1 if launched else self.ranks):
            own = env if launched else dict(env, COLL_BENCH_RANK=str(rank))
            self.spawn(line, own, rank)
        try:
            self.welcome(server)
        finally:
            server.close()

    def spawn(self, line, env, rank):
        self.processes.append(subprocess.Popen(line, env=env, stdin=subprocess.DEVNULL, stdout=self.log,
                                               stderr=subprocess.STDOUT, start_new_session=True))

    def welcome(self, server):
        until = time.monotonic() + self.timeout
        by_rank = {}
        while len(self.sockets) < self.ranks:
            try:
                s = server.accept()[0]
            except socket.timeout:
                if any(p.poll() is not None for p in self.processes):
                    raise Failed("failed while starting: " + self.tail()) from None
                if time.monotonic() > until:
                    raise Failed("did not start: " + self.tail()) from None
                continue
            s.settimeout(self.timeout)
            self.sockets.append(s)
        self.streams = [s.makefile("rw") for s in self.sockets]
        for stream in self.streams:
            line = self.read(stream).split(None, 4)
            if len(line) < 4 or line[0] != "hello":
                raise Failed("did not start: " + " ".join(line) + self.tail())
            if int(line[2]) != self.ranks:
                raise Failed("has %s ranks, not %d" % (line[2], self.ranks))
            by_rank[int(line[1])] = stream
            self.text = line[4] if len(line) > 4 else self.name
        self.streams = [by_rank[r] for r in range(self.ranks)]

    def tail(self):
        self.log.flush()
        size = os.fstat(self.log.fileno()).st_size
        return os.pread(self.log.fileno(), 600, max(0, size - 600)).decode(errors="replace").strip()

    def read(self, stream):
        try:
            line = stream.readline()
        except (OSError, ValueError) as e:
            raise self.failed("does not answer (%s): %s" % (e, self.tail())) from None
        if not line:
            raise self.failed("died: " + self.tail())
        return line.strip()

    def ask(self, line):
        """One line to all ranks; the answers of all."""
        try:
            for stream in self.streams:
                stream.write(line + "\n")
                stream.flush()
        except OSError as e:
            raise self.failed("died (%s): %s" % (e, self.tail())) from None
        return [self.read(stream) for stream in self.streams]

    def prepare(self, kind, size, place, sets=1):
        """None, or why this library does not run it."""
        answers = self.ask("prepare %s %d %s %s %d" % (kind, size, place, self.memory_kind, sets))
        bad = [a for a in answers if a != "ok"]
        return bad[0].partition(" ")[2].lstrip(": ") or bad[0] if bad else None

    def failed(self, what):
        return Failed("%s: %s" % (TITLES[self.name], what))

    def check(self, same):
        """Results are right, and, where same, bitwise equal on all ranks."""
        answers = self.ask("check")
        for a in answers:
            if not a.startswith("ok "):
                raise self.failed("wrong result: " + a)
        if same and len(set(answers)) != 1:
            raise self.failed("wrong result: ranks differ")

    def block(self, how, calls, warm):
        """Seconds of one call; self.used: seconds of the processor, sleeps and preemptions of one call and rank."""
        answers = self.ask("block %s %d %d" % (how, calls, warm))
        for a in answers:
            if not a.startswith("time "):
                raise self.failed("wrong result: " + a)
        fields = [[float(f) for f in a.split()[1:]] for a in answers]
        self.used = [sum(column) / len(answers) / calls for column in zip(*fields)][1:]
        return max(f[0] for f in fields) / calls

    def close(self):
        for stream in getattr(self, "streams", []):
            try:
                stream.write("quit\n")
                stream.flush()
            except (OSError, ValueError):
                pass
        for p in self.processes:
            try:
                p.wait(10 if self.sockets else 0.1)
            except subprocess.TimeoutExpired:
                try:
                    os.killpg(p.pid, 9)  # its own session, made by start
                except ProcessLookupError:
                    pass
                p.wait()
        for s in getattr(self, "streams", []) + self.sockets:
            try:
                s.close()
            except OSError:
                pass
        self.processes, self.sockets, self.streams = [], [], []
        if self.shared is not None:
            os.close(self.shared)
            self.shared = None
        shutil.rmtree(self.dir, ignore_errors=True)


def default_python():
    return os.environ.get("COLL_BENCH_PYTHON", sys.executable)
