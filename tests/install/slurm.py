#!/usr/bin/env python3
"""Jobs under a real Slurm: slurmctld, munged and two slurmd, each host in namespaces of its own (network, host name, processes,
/tmp, /run and /dev/shm) on a bridge, nothing of which is left. The commands are those of the section Slurm of docs/guide/clusters.md,
as they stand there: all give the same model. The job script is requeued while its ranks train. Then what users of Slurm
meet besides: no munged, steps inside steps, a shell inside an allocation, a rank that fails, signals.

Needs root, Debian's munge, slurmctld, slurmd, slurm-client, and libpmix-dev: the pmix plugin of Slurm loads libpmix.so.
Ends with 77 and the reason where one is missing. usage: slurm.py SOURCE BUILD-DIRECTORY"""
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../multi"))
from job import Report, until  # noqa: E402

HOSTS, NETWORK, LIMIT_S = ("login", "alpha1", "beta2"), "10.98.7", 300
TOOLS = ("ip", "unshare", "nsenter", "munged", "slurmctld", "slurmd", "srun", "salloc", "sbatch")
CONF = """\
ClusterName=libcoll
SlurmctldHost=login
SlurmUser=root
AuthInfo=cred_expire=5
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdSpoolDir={folder}/spool-%n
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=alpha1,beta2 CPUs=4
PartitionName=all Nodes=ALL Default=YES
"""
HOST = """\
set -e
hostname {name}
ip link set lo up
mount --bind {build} {folder}/build
for d in /dev/shm /run /tmp; do mount -t tmpfs none $d; done
mount --bind {folder}/hosts /etc/hosts
mkdir /run/munge
>{folder}/up-{name}
while :; do sleep 60 & wait; done
"""


def run(*words):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


class Cluster:
    """The folder is on all hosts, as the build is."""

    def __init__(self, build, folder):
        self.build, self.folder, self.started, self.spaces, self.inner = build, folder, [], [], {}
        os.mkdir(f"{folder}/build")
        os.mkdir(f"{folder}/state")
        self.write("hosts", "127.0.0.1 localhost\n" + "".join(f"{NETWORK}.{i + 1} {n}\n" for i, n in enumerate(HOSTS)))
        self.write("slurm.conf", CONF.format(folder=folder))
        self.write("cgroup.conf", "CgroupPlugin=cgroup/v1\n")
        with open(f"{folder}/munge.key", "wb") as f:
            os.chmod(f.fileno(), 0o600)
            f.write(os.urandom(128))
        self.env = {"PATH": f"{folder}/build/tools:{folder}/build/examples:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                    "HOME": "/nowhere", "SLURM_CONF": f"{folder}/slurm.conf", "COLL_CREATE_TIMEOUT_MS": "120000"}

    def write(self, name, text):
        with open(f"{self.folder}/{name}", "w", encoding="utf-8") as f:
            f.write(text)

    def read(self, name):
        try:
            with open(f"{self.folder}/{name}", encoding="utf-8") as f:
                return f.read()
        except OSError:
            return ""

    def start(self):
        for i, name in enumerate(HOSTS):
            self.host(i, name)
        for name in HOSTS:
            self.daemon(name, "munged", "--foreground", "--force", f"--key-file={self.folder}/munge.key", f"--seed-file=/run/munge/seed")
        if not until(lambda: all(self.run("munge -n", on=name).returncode == 0 for name in HOSTS), 30):
            raise SystemExit("munged does not start: " + self.read("munged-login.out"))
        self.daemon("login", "slurmctld", "-D")
        for name in HOSTS[1:]:
            self.daemon(name, "slurmd", "-D", "-N", name)
        if not until(lambda: self.run("sinfo -h -o %t").stdout.split() == ["idle"], 60):
            raise SystemExit("the nodes do not come up: " + self.read("slurmctld-login.out") + self.read("slurmd-alpha1.out"))

    def host(self, i, name):
        space = f"coll-slurm-{os.getpid()}-{i}"
        run("ip", "netns", "add", space)
        self.spaces.append(space)
        if i == 0:
            run("ip", "-n", space, "link", "add", "net", "type", "bridge")
        else:
            run("ip", "-n", space, "link", "add", "net", "type", "veth", "peer", "name", f"port{i}", "netns", self.spaces[0])
            run("ip", "-n", self.spaces[0], "link", "set", f"port{i}", "master", "net", "up")
        run("ip", "-n", space, "addr", "add", f"{NETWORK}.{i + 1}/24", "dev", "net")
        run("ip", "-n", space, "link", "set", "net", "up")
        text = HOST.format(name=name, folder=self.folder, build=self.build)
        keeper = subprocess.Popen(["ip", "netns", "exec", space, "unshare", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child",
                                   "--mount-proc", "sh", "-c", text])
        self.started.append(keeper)
        if not until(lambda: os.path.exists(f"{self.folder}/up-{name}"), 60):
            raise SystemExit(f"host {name} does not start")
        with open(f"/proc/{keeper.pid}/task/{keeper.pid}/children", encoding="ascii") as f:
            self.inner[name] = f.read().split()[0]

    def inside(self, name, *words):
        return ["nsenter", "-t", self.inner[name], "-n", "-u", "-i", "-m", "-p", "--wd=" + self.folder, *words]

    def daemon(self, name, *words):
        with open(f"{self.folder}/{words[0]}-{name}.out", "w", encoding="utf-8") as out:
            self.started.append(subprocess.Popen(self.inside(name, *words), env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out))

    def run(self, text, on="login"):
        return subprocess.run(self.inside(on, "timeout", "-k", "5", str(LIMIT_S), "bash", "-c", text), env=self.env, text=True, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def left(self):
        """What ranks and launchers have left on the hosts, but the one file in which jobs of a user see each other."""
        found = []
        for name in HOSTS:
            files = self.run("find /tmp /dev/shm /run -name '*coll*' ! -name 'libcoll-running-*'; ps -eo args | grep -E '[c]ollrun|[d]dp_gpt|[c]oll-info'", on=name)
            found += [f"{name}: {line}" for line in files.stdout.splitlines()]
        return found

    def close(self):
        for p in reversed(self.started):
            p.kill()
        for p in self.started:
            p.wait()
        for s in self.spaces:
            subprocess.run(["ip", "netns", "del", s], check=False)


# ---- The page ----

def section(source):
    """The commands, and the job script."""
    with open(f"{source}/docs/guide/clusters.md", encoding="utf-8") as f:
        text = re.search(r"^## Slurm\n(.*?)(?=^## |\Z)", f.read(), re.M | re.S)[1]
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S)
    scripts = [b for b in blocks if b.startswith("#!")]
    lines = [line.split("  #")[0].rstrip() for b in blocks if b not in scripts for line in b.splitlines()]
    if len(scripts) != 1 or "`job.sh`" not in text:
        raise SystemExit("the section Slurm has no job script, or does not name it job.sh")
    return lines, scripts[0]


def requeued(cluster, command):
    """The job begins again while its ranks train."""
    number = re.search(r"job (\d+)", cluster.run(command).stdout)[1]
    out = f"slurm-{number}.out"
    if not until(lambda: "step     1/" in cluster.read(out), LIMIT_S):
        return [f"it does not begin: {cluster.read(out)}"]
    cluster.run(f"scontrol requeue {number}")
    state = lambda: cluster.run(f"scontrol show job {number}").stdout  # noqa: E731
    if not until(lambda: re.search("JobState=(COMPLETED|FAILED|CANCELLED)", state()), LIMIT_S):
        return [f"it does not end: {state()}\n{cluster.read(out)}"]
    return [] if "Restarts=1" in state() and "JobState=COMPLETED" in state() else [f"{state()}\n{cluster.read(out)}"]


def of_page(report, cluster, source):
    lines, script = section(source)
    cluster.write("job.sh", script)
    first = None
    for line in lines:
        begun = time.monotonic()
        shutil.rmtree(f"{cluster.folder}/result", ignore_errors=True)
        if line.startswith("sbatch"):
            faults = requeued(cluster, line)
        else:
            ran = cluster.run(line)
            faults = [] if ran.returncode == 0 and "4 ranks" in ran.stdout else [f"status {ran.returncode}: {ran.stdout}"]
        if not faults:
            with open(f"{cluster.folder}/result/model/model.safetensors", "rb") as f:
                digest = hashlib.sha256(f.read()).hexdigest()
            print(f"SHA-256 {digest[:16]}, {time.monotonic() - begun:.1f} s: {line}", flush=True)
            first = first or digest
            faults = [] if digest == first else [f"another result: {digest}, expected {first}"]
        report.case(line, faults)


# ---- Besides ----

TWO_AND_TWO = ["rank 0 on alpha1", "rank 1 on alpha1", "rank 2 on beta2", "rank 3 on beta2"]
NO_MUNGED = "unshare -m sh -c 'mount -t tmpfs none /run; exec coll-info --brief'"
INNER = "srun --overlap --mpi=none"
CASES = (
    ("srun's key is from munge", "srun -N2 -n4 coll-info --brief", 0, ["launcher: srun, secret: munge", *TWO_AND_TWO]),
    ("pmi2's is from Slurm", "srun --mpi=pmi2 -N2 -n4 coll-info --brief", 0, ["secret: unique id", *TWO_AND_TWO]),
    ("pmix's is from Slurm", "srun --mpi=pmix -N2 -n4 coll-info --brief", 0, ["secret: unique id", *TWO_AND_TWO]),
    ("three ranks on two hosts", "srun -N2 -n3 coll-info --brief", 0, ["secret: munge", "rank 1 on alpha1", "rank 2 on beta2"]),
    ("ranks dealt in turn", "srun -N2 -n4 -m cyclic coll-info --brief", 0, ["rank 1 on beta2", "rank 2 on alpha1", "rank 3 on beta2"]),
    ("no munged", f"srun -N2 -n2 {NO_MUNGED}", 1, ["COLL-1119", "no munged at /run/munge", "--mpi=pmi2", "~/.config/coll/key"]),
    ("no munged, one host", f"srun -N1 -n2 {NO_MUNGED}", 0, ["secret: none needed", "rank 1 on alpha1"]),
    ("a step without PMI inside one with pmi2", f"salloc -N1 -n2 srun --mpi=pmi2 -N1 -n1 {INNER} -N1 -n2 coll-info --brief", 0,
     ["launcher: srun", "rank 1 on alpha1"]),
    ("a step without PMI inside one with pmix", f"salloc -N2 -n4 srun --mpi=pmix -N1 -n1 {INNER} -N2 -n4 coll-info --brief", 0,
     ["secret: munge", "ranks: 4\n"]),
    ("two steps of a job at once", "salloc -N2 -n4 sh -c 'srun --overlap coll-info --brief & srun --overlap coll-info --brief; wait'", 0,
     2 * TWO_AND_TWO),
    ("collrun in an allocation", "salloc -N2 -n4 collrun --no-prefix coll-info --brief", 0, ["launcher: collrun", *TWO_AND_TWO]),
    ("collrun with more ranks", "salloc -N2 -n4 collrun -n 6 --no-prefix coll-info --brief", 0, ["rank 2 on alpha1", "rank 3 on beta2", "rank 5 on beta2"]),
    ("collrun in the shell that salloc starts on a node", "salloc -N2 -n4 srun --interactive --preserve-env collrun --no-prefix coll-info --brief", 0,
     TWO_AND_TWO),
    ("collrun in a step", "salloc -N2 -n4 srun -N1 -n1 -w beta2 collrun -n 2 --no-prefix coll-info --brief", 0, ["rank 0 on beta2", "rank 1 on beta2"]),
    ("a rank fails", "salloc -N2 -n4 collrun sh -c 'sleep 1; [ $COLL_RANK != 2 ] || exit 7; exec sleep 100'", 7,
     ["collrun: rank 2 on host beta2: exited with status 7"]),
    ("SIGTERM", "salloc -N2 -n4 sh -c 'collrun sleep 100 & sleep 3; kill $!; wait $!'", 143, ["signal 15"]),
    ("SIGKILL", "salloc -N2 -n4 sh -c 'collrun sleep 100 & sleep 3; kill -9 $!; wait $!'", 137, []),
    ("standard input", "echo a line | salloc -N2 -n4 collrun --no-prefix cat", 0, ["a line\n"]),
)


def besides(report, cluster):
    for name, command, status, words in CASES:
        ran = cluster.run(command)
        lacks = [w for w in words if ran.stdout.count(w) < words.count(w)]
        report.case(name, [] if ran.returncode == status and not lacks else [f"{command}: status {ran.returncode}, it lacks {lacks}: {ran.stdout}"])
    until(lambda: not cluster.left(), 20)
    report.case("nothing is left on the hosts", cluster.left())


def main():
    source, build = (os.path.abspath(p) for p in sys.argv[1:3])
    lacks = [t for t in TOOLS if not shutil.which(t, path=os.environ["PATH"] + ":/usr/sbin:/sbin")]
    if os.geteuid() or lacks:
        print(f"skip Slurm: {'there is no ' + ', '.join(lacks) if lacks else 'needs root'}\n0 passed, 0 failed, 1 skipped")
        return 77
    report = Report()
    with tempfile.TemporaryDirectory(prefix="slurm-", dir="/var/tmp") as folder:
        cluster = Cluster(build, folder)
        try:
            cluster.start()
            of_page(report, cluster, source)
            besides(report, cluster)
        finally:
            cluster.close()
    return report.close()


sys.exit(main())
