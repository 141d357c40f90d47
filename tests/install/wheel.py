#!/usr/bin/env python3
"""The wheel that ./run wheel has made, as those who install it see it: auditwheel, abi3audit and twine judge the file; then it is installed in a minbase
root, by debootstrap, that has python3 and pip alone, and its programs and collectives run there. With `torch`, PyTorch and numpy are installed beside
it, and DistributedDataParallel trains over coll.

Another processor than this machine's runs by qemu-user-static. Needs root, debootstrap and the package sources of this machine; ends with 77 and the
reason where one is missing. usage: wheel.py BUILD/wheel [PROCESSOR] [torch]"""
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/release"))
import bare_root

WHAT = "the wheel on a bare system"

DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
PIP = "python3 -m pip --disable-pip-version-check --no-cache-dir install --quiet --break-system-packages --root-user-action=ignore --no-index --find-links=/wheels"
# Without numpy: what implements the buffer protocol.
REDUCE = """
import array, coll
comm = coll.init()
mine, sums = array.array("d", [comm.rank + 1.0] * 1000), array.array("d", [0.0] * 1000)
comm.all_reduce(mine, out=sums)
assert sums == array.array("d", [comm.size * (comm.size + 1) / 2.0] * 1000), sums[:3]
comm.barrier()
print("rank", comm.rank, "of", comm.size, coll.version, sums[0])
"""
TRAIN = """
import torch, torch.distributed as dist, coll.torch
dist.init_process_group("coll")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
steps = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.full((4, 8), float(dist.get_rank() + 1))
for _ in range(5):
    steps.zero_grad()
    model(x).square().mean().backward()
    steps.step()
mine = torch.cat([p.detach().flatten() for p in model.parameters()])
of_all = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
dist.all_gather(of_all, mine)
assert all(torch.equal(o, mine) for o in of_all) and torch.isfinite(mine).all()
print("rank", dist.get_rank(), "of", dist.get_world_size(), "backend", dist.get_backend(), "torch", torch.__version__)
dist.destroy_process_group()
"""

failed = 0


def say(what, good, told):
    global failed
    failed += not good
    print(f"== {what}: {'ok' if good else 'FAILED'}\n{told.strip()}", flush=True)


def judge(file, processor):
    def tool(*args):
        done = subprocess.run([sys.executable, "-m", *args, file], capture_output=True, text=True, check=False, env=dict(os.environ, NO_COLOR="1", COLUMNS="150"))
        return done.returncode, done.stdout + done.stderr
    status, told = tool("auditwheel", "show")
    tag = re.search(r'platform tag:\s*"(\S+)"', told)
    say("auditwheel show", status == 0 and tag and tag[1] == f"manylinux_2_28_{processor}", tag[0] if tag else told)
    status, told = tool("abi3audit", "--strict", "--summary")
    say("abi3audit --strict", status == 0 and "0 ABI version mismatches and 0 ABI" in re.sub(r"\s+", " ", told), told)
    status, told = tool("twine", "check", "--strict")
    say("twine check --strict", status == 0 and "PASSED" in told, told)


def emulated(processor):
    """Whether the kernel runs that processor's programs: qemu-user-static registers itself in binfmt_misc."""
    try:
        with open(f"/proc/sys/fs/binfmt_misc/qemu-{processor}", encoding="utf-8") as f:
            return f.read().startswith("enabled")
    except FileNotFoundError:
        return False


def inside(root, line):
    done = bare_root.inside(root, line, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def no_more(root):
    told = inside(root, "command -v gcc cc clang; ls /usr/lib/*/libhwloc* 2>/dev/null")[1]
    return not told, told


def lines(processor):
    """(what, line, pattern that its output has)"""
    yield "pip install", f"{PIP} libcoll && python3 -m pip show libcoll", r"Version: \d"
    yield "import", "cd / && python3 -c 'import coll; print(coll.version, coll.get_library(), coll.get_include())'", r"coll/lib/libcoll-wheel\.so .*coll/include"
    yield "python -m coll", "python3 -m coll", "transports"
    # hwloc finds the caches that the kernel shows; the kernels are those of the processor.
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        flags = f.read()
    best = "scalar" if processor != "x86_64" or " avx2" not in flags else "avx512" if " avx512vl" in flags else "avx2"
    yield "coll-info", "coll-info --brief", rf"reduction kernels {best}\b(.*\n)*.*(Package|Core|NUMA)"
    yield "all programs start", "for p in /usr/local/lib/python3*/dist-packages/coll/bin/*; do $p --help >/dev/null 2>&1 || { echo $p; exit 1; }; done; echo all", "^all$"
    yield "collrun -n 3, all_reduce", "collrun -n 3 python3 /reduce.py", r"(?s)(rank \d of 3 .*6\.0.*){3}"
    yield "the same over tcp", "COLL_TRANSPORTS=tcp collrun -n 3 python3 /reduce.py", r"(?s)(rank \d of 3 .*6\.0.*){3}"
    yield "collrun -n 3 allreduce_perf", "collrun -n 3 allreduce_perf -b 4 -e 64K -f 64", r"(?m)^\s*16384"


def lines_of_torch():
    yield "pip install 'libcoll[torch]'", f"{PIP} 'libcoll[torch]'", ""
    yield "DDP", "collrun -n 3 python3 /train.py", r"(?s)(rank \d of 3 backend coll torch.*){3}"


def torch_wheels(folder):
    """What the extra names, fetched outside of the root."""
    done = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--only-binary", ":all:", "--dest", folder, "torch==2.13.0+cpu", "numpy"],
                          capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else "pip cannot fetch torch 2.13.0+cpu here: " + done.stderr.strip().split("\n")[-1]


def main():
    out, asked = os.path.abspath(sys.argv[1]), sys.argv[2:]
    processor = next((a for a in asked if a != "torch"), platform.machine())
    with open(f"{out}/dist/wheels.json", encoding="utf-8") as f:
        name = next(n for n in json.load(f)["files"] if n.endswith(f"_{processor}.whl"))
    judge(f"{out}/dist/{name}", processor)
    bare_root.need(WHAT)
    if processor != platform.machine() and not emulated(processor):
        bare_root.skip(f"{WHAT}: the kernel runs no programs of {processor}: qemu-user-static and binfmt_misc do that")
    with tempfile.TemporaryDirectory(prefix="wheel-") as folder:
        root = os.path.join(folder, "root")
        bare_root.make(root, *bare_root.mirror(WHAT), include="python3,python3-pip", architecture=DEBIAN[processor])
        say("no compiler, no hwloc", *no_more(root))
        os.makedirs(f"{root}/wheels")
        shutil.copy(f"{out}/dist/{name}", f"{root}/wheels")
        for file, text in (("reduce.py", REDUCE), ("train.py", TRAIN)):
            with open(f"{root}/{file}", "w", encoding="utf-8") as f:
                f.write(text)
        todo = list(lines(processor))
        if "torch" in asked:
            why = torch_wheels(f"{root}/wheels")
            if why:
                print(f"SKIPPED: DDP: {why}")
            else:
                todo += lines_of_torch()
        for what, line, pattern in todo:
            status, told = inside(root, line)
            say(what, status == 0 and re.search(pattern, told), told[-1500:])
    print(f"{4 + len(todo) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


sys.exit(main())
