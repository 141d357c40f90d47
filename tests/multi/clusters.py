#!/usr/bin/env python3
"""The commands of docs/guide/clusters.md, as they stand there, on hosts made of namespaces: each section by its heading. A block of
sh runs on node1. Each line of a console runs on the host that its prompt names, beside the others up to an empty line.

usage: clusters.py SOURCE-ROOT BUILD-DIRECTORY SECTION..."""
import copy
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile

import clusters_pods
from apart import apart
from clusters_hosts import Host, Hosts, network
from job import Report

ROOT, BUILD = (os.path.abspath(p) for p in sys.argv[1:3])
PAGE = f"{ROOT}/docs/guide/clusters.md"
LIMIT_S = 240
GOOD = "Out of bounds values : 0 OK"
PLAIN = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy") and not k.startswith(("COLL", "XDG_", "SLURM_", "PMI", "OMPI_", "TORCHELASTIC", "PBS_", "LSB_", "RAY_")) and
         k not in ("RANK", "WORLD_SIZE", "PE_HOSTFILE")}


# torchrun as far as ranks see it: two ranks on each node.
AGENT = """#!/bin/sh
while [ "$1" != --no-python ]; do shift; done
shift
node=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-$SLURM_PROCID}}
export WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 MASTER_ADDR=node1 MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none TORCHELASTIC_USE_AGENT_STORE=True
RANK=$((2 * node)) LOCAL_RANK=0 "$@" & first=$!
RANK=$((2 * node + 1)) LOCAL_RANK=1 "$@"
status=$?
wait $first && exit $status
"""
# A node with two actors whatever the machine has, and no more of Ray than they need.
RAY = f"""#!/bin/sh
[ "$1" != start ] || set -- "$@" --num-cpus=2 --object-store-memory=80000000
[ "$2" != --head ] || set -- "$@" --include-dashboard=false
exec {sys.executable} -m ray.scripts.scripts "$@"
"""
TORCHRUN = f"""#!/bin/sh
exec {sys.executable} -m torch.distributed.run "$@"
"""
# A small one, of which a rank is killed at the first start, between its steps 10 and 20.
SPOT = """#!/bin/sh
[ "${{COLLRUN_RESTART:-0}}" != 0 ] || export COLL_HOOK=kill:rank=3,frame=110
exec {program} "$@" --layers 1 --width 16 --heads 1 --context 16 --no-sample
"""
# mpirun -n 2 -H node1,node2 PROGRAM...
LAUNCHERS = (("openmpi", """#!/bin/sh
exec {mpirun} "$@"
""", "openmpi (OMPI_COMM_WORLD_RANK="), ("mpich", """#!/bin/sh
hosts=$4
shift 4
exec {mpirun} -n 2 -hosts $hosts "$@"
""", "mpich (PMI_RANK="), ("srun", """#!/bin/sh
shift 4
export SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_NTASKS=2 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=node[1-2] SLURM_LOCALID=0
SLURM_PROCID=0 ssh node1 "$*" & first=$!
SLURM_PROCID=1 ssh node2 "$*"
status=$?
wait $first && exit $status
""", "srun (SLURM_PROCID="))


def sections():
    """Heading: blocks of commands, [kind, text]."""
    with open(PAGE, encoding="utf-8") as f:
        parts = re.split(r"^## (.*)\n", f.read(), flags=re.M)
    return {h: re.findall(r"^```(sh|console)\n(.*?)^```$", text, re.M | re.S) for h, text in zip(parts[1::2], parts[2::2])}


class Nodes(Hosts):
    """node1 and node2, with the programs of the build."""

    def __init__(self):
        super().__init__("node1", "node2")
        self.env = {**PLAIN, "HOME": "/tmp/home", "PYTHONPATH": f"{BUILD}/python", "PATH": ":".join(
            [self.bin, os.path.dirname(sys.executable)] + [f"{BUILD}/{d}" for d in ("tools", "bench", "examples")] + [PLAIN["PATH"]])}

    def run(self, blocks, **more):
        """What they say, and their statuses."""
        out, statuses = "", []
        parts = [(kind, part) for kind, text in blocks for part in (text.split("\n\n") if kind == "console" else [text])]
        for kind, text in parts:
            by_host = {"node1": text}
            if kind == "console":
                by_host = dict(line.split("$ ", 1) for line in text.splitlines())
            started = [self.start(h, command, {**self.env, **more}) for h, command in by_host.items()]
            for p in started:
                try:
                    out += p.communicate(timeout=LIMIT_S)[0]
                except subprocess.TimeoutExpired:
                    p.kill()
                    out += p.communicate()[0] + f"\nno end within {LIMIT_S} s"
            statuses += [p.returncode for p in started]
        return out, statuses

    def file(self, name, text):
        with open(os.path.join(self.folder, name), "w") as f:
            f.write(text)
        return f.name


def faults(ran, **counts):
    """count of a text: how often it is there."""
    out, statuses = ran
    wrong = [f"{text!r} {out.count(text)} times" for text, n in counts.pop("texts", {GOOD: 1}).items() if out.count(text) != n]
    return wrong + [f"{statuses} {out[-3000:]}"] if wrong or set(statuses) != {0} else []


def by_ssh(nodes, blocks):
    yield "collrun", faults(nodes.run(blocks))


def keys(nodes, blocks):
    yield "no key", [] if "COLL-1119" in nodes.run(blocks[1:])[0] else ["works without"]
    yield "by hand", faults(nodes.run(blocks))


def batch(nodes, blocks):
    lines = nodes.file("nodes", "node1\nnode1\nnode2\nnode2\n")
    for name, env in (("PBS", {"PBS_NODEFILE": lines}), ("LSF", {"LSB_DJOB_HOSTFILE": lines}),
                      ("Grid Engine", {"PE_HOSTFILE": nodes.file("pe", "node1 2 all.q@node1 <NULL>\nnode2 2 all.q@node2 <NULL>\n")})):
        yield name, faults(nodes.run(blocks, **env), texts={GOOD: 1, "on      node1": 2, "on      node2": 2})


def firewalls(nodes, blocks):
    rules = """flush ruleset
        table inet t {
            chain c {
                type filter hook input priority 0; policy drop;
                iif lo accept
                ct state established,related accept
                tcp dport %s accept
            }
        }
        """
    if not shutil.which("nft"):
        return
    for ports, name in (("20000-20099", "the range is open"), ("20100-20199", "another range is open")):
        for h in nodes.hosts.values():
            subprocess.run(h.command(["nft", rules % ports]), check=True)
        ran = nodes.run(blocks, COLL_CREATE_TIMEOUT_MS="60000" if ports == "20000-20099" else "4000")
        yield name, faults(ran) if ports == "20000-20099" else [] if set(ran[1]) != {0} and GOOD not in ran[0] else ran
    for h in nodes.hosts.values():
        subprocess.run(h.command(["nft", "flush ruleset"]), check=True)


def by_torchrun(nodes, blocks, torchrun=None):
    """Below three launchers. torchrun: a program, else one that sets its variables."""
    nodes.program("torchrun", torchrun or AGENT)
    key = nodes.file("key", "16 bytes or more")
    os.chmod(key, 0o600)
    more = {"COLL_KEY_FILE": key, "COLL_DEBUG": "info", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}
    for name, program, words in LAUNCHERS:
        found = shutil.which(f"mpirun.{name}")
        if not found and name != "srun":
            print(f"skip torchrun below {name}: no mpirun.{name} here")
            continue
        nodes.program("mpirun", program.format(mpirun=found))
        ran = nodes.run(blocks, **more)
        yield f"below {name}", faults(ran, texts={GOOD: 1, ", 4 ranks": 1}) or [] if f"launcher torchrun; passed over: {words}" in ran[0] else [ran[0][:3000]]
        if torchrun:
            return


def by_mpirun(nodes, blocks):
    for name, block in zip(("openmpi", "mpich"), blocks):
        found = shutil.which(f"mpirun.{name}")
        if not found:
            print(f"skip {name}: no mpirun.{name} here")
            continue
        nodes.program("mpirun", f'#!/bin/sh\nexec {found} "$@"\n')
        ran = nodes.run([block], COLL_DEBUG="info", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        yield name, faults(ran, texts={GOOD: 1, "on      node1": 2, "on      node2": 2}) or ([] if f"launcher {name}" in ran[0] else [ran[0][:3000]])


def spot(nodes, blocks):
    if os.path.exists(f"{BUILD}/examples/ddp_gpt"):
        nodes.program("ddp_gpt", SPOT.format(program=f"{BUILD}/examples/ddp_gpt"))
        yield "a rank is killed", faults(nodes.run(blocks, OPENBLAS_NUM_THREADS="1"), texts={
            "starting the job anew (1 of 3)": 1, "continuing after step 10": 1, "step    20/20": 1})


def manifest():
    import yaml
    with open(f"{ROOT}/examples/kubernetes/job.yaml", encoding="utf-8") as f:
        return list(yaml.safe_load_all(f))


def invalid(objects):
    import kubernetes_validate
    found = []
    for o in objects:
        try:
            kubernetes_validate.validate(o, kubernetes_validate.latest_version(), strict=True)
        except kubernetes_validate.ValidationError as e:
            found.append(f"{o['kind']}: {e}")
    return found


def variable(job, name, value):
    row = next(r for r in job["spec"]["template"]["spec"]["containers"][0]["env"] if r["name"] == name)
    row.pop("valueFrom", None)
    row["value"] = value


def with_hook(job, index, tries):
    """Rank 1 of the first job is killed in an all-reduce."""
    job["spec"]["template"]["spec"]["containers"][0]["env"].append({"name": "COLL_HOOK", "value": "kill:rank=1,frame=6" if tries == 0 else ""})


def without_group(job, index, tries):
    del job["spec"]["template"]["spec"]["securityContext"]["fsGroup"]


def with_mode(job, index, tries):
    del job["spec"]["template"]["spec"]["volumes"][0]["secret"]["defaultMode"]


def with_index(job, index, tries):
    variable(job, "COLL_RANK", "$(JOB_COMPLETION_INDEX)")


def by_args(job, index, tries):
    """What the page says of torchrun: the index is known in the words of the command."""
    del job["spec"]["template"]["spec"]["containers"][0]["env"][0]
    job["spec"]["template"]["spec"]["containers"][0]["command"][:0] = ["env", "COLL_RANK=$(JOB_COMPLETION_INDEX)"]


def by_kubernetes(nodes, blocks):
    if not importlib.util.find_spec("yaml"):
        print(f"skip Kubernetes: no module yaml in {sys.executable}: ./run setup clusters")
        return
    if importlib.util.find_spec("kubernetes_validate"):
        broken = manifest()
        broken[1]["spec"]["completionModes"] = "Indexed"
        yield "the manifest is valid", invalid(manifest())
        yield "a manifest that is not", [] if invalid(broken) else ["is accepted"]
    else:
        print(f"skip whether the manifest is valid: no module kubernetes_validate in {sys.executable}: ./run setup clusters")
    service, job = manifest()
    env = {r["name"]: r.get("value") for r in job["spec"]["template"]["spec"]["containers"][0]["env"]}
    name = job["metadata"]["name"]
    yield "its names and numbers agree", [] if service["metadata"]["name"] == name == job["spec"]["template"]["spec"]["subdomain"] and \
        service["spec"]["selector"] == {"batch.kubernetes.io/job-name": name} and env["COLL_ROOT"].startswith(f"{name}-0.{name}:") and \
        int(env["COLL_SIZE"]) == job["spec"]["completions"] else [str(env)]
    names = clusters_pods.Names()
    for case, change, said in (("the page", None, GOOD), ("a rank is killed", with_hook, GOOD), ("no fsGroup", without_group, "/key: Permission denied"),
                               ("no defaultMode", with_mode, "mode 0644): chmod 600 it [COLL-1120]"),
                               ("the index in env", with_index, "COLL_RANK=$(JOB_COMPLETION_INDEX)"), ("the index in a command", by_args, GOOD)):
        def changed(job, index, tries, change=change):
            job = copy.deepcopy(job)
            if change:
                change(job, index, tries)
            return job

        folder = tempfile.mkdtemp(dir=nodes.folder)
        pods = clusters_pods.Pods(folder, names, lambda name, setup: Host(name, setup(Host.next_address()), apart=True), BUILD, changed)
        pods.most_failures = None if said == GOOD else 0
        nodes.program("kubectl", f"#!/bin/sh\nexec {sys.executable} {clusters_pods.__file__} {folder} \"$@\"\n")
        out, statuses = nodes.run(blocks)
        faults = [] if (statuses == [0]) == (said == GOOD) and said in out + str(pods.logs) else [f"{statuses} {out} {pods.logs}"[:4000]]
        if case == "the page" and not pods.names.asked_early:
            faults.append("nobody asked for a name before it was there")
        if change is with_hook and pods.tries[1:2] != [2]:
            faults.append(f"starts: {pods.tries}")
        yield case, faults


def by_ray(nodes, blocks):
    if not importlib.util.find_spec("ray"):
        print(f"skip Ray: no module ray in {sys.executable}: ./run setup clusters")
        return
    if not os.path.exists(f"{BUILD}/python/coll/__init__.py"):
        print("skip Ray: the build has no Python package")
        return
    nodes.program("ray", RAY)
    # No name server is there to ask, which gRPC's own resolver waits for.
    yield "actors", faults(nodes.run(blocks, RAY_USAGE_STATS_ENABLED="0", RAY_NUM_REDIS_GET_RETRIES="100", GRPC_DNS_RESOLVER="native"), texts={"4 ranks on 2 nodes: 60 all-reduces, 0 wrong": 1,
                                                                                 "rank 0 reaches the others over shm, tcp": 1})


def by_real_torchrun(nodes, blocks):
    if importlib.util.find_spec("torch"):
        yield from by_torchrun(nodes, blocks, TORCHRUN)
    else:
        print("skip torchrun itself: no torch here")


SECTIONS = {"torchrun": by_torchrun, "torchrun itself": by_real_torchrun, "Kubernetes": by_kubernetes, "Ray": by_ray, "ssh": by_ssh, "Keys": keys, "Open MPI and MPICH": by_mpirun, "PBS, LSF, Grid Engine": batch, "Firewalls": firewalls, "Spot machines": spot}
# ./run check slurm runs these, on a Slurm of its own.
ELSEWHERE = {"Slurm"}


def main():
    apart()
    os.chdir(ROOT)  # the page names files of the tree
    report, page = Report(), sections()
    why = network()
    if why:
        print(f"skip clusters: {why}\n0 passed, 0 failed, 1 skipped")
        return 77
    report.case("every block of the page is run", [h for h, blocks in page.items() if blocks and h not in SECTIONS and h not in ELSEWHERE])
    nodes = Nodes()
    try:
        for heading in sys.argv[3:]:
            for name, wrong in SECTIONS[heading](nodes, page[heading.split(" itself")[0]]):
                report.case(f"{heading}: {name}", wrong)
    finally:
        shutil.rmtree(nodes.folder)
    if report.passed + report.failed == 1:
        print("0 passed, 0 failed, 1 skipped")
        return 77
    return report.close()


sys.exit(main())
