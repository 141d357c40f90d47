"""Programs for PyTorch's backend "gloo" run on coll, unchanged: COLL_TORCH_AS=gloo, python -m coll.torch, torchrun -m coll.torch.

usage: torch_as.py [CASE...]
"""

import os
import re
import subprocess
import sys
import tempfile

import forked
from forked import check

LIMIT_S = 240
HEAD = ("import os, sys\nimport torch, torch.distributed as dist\nfrom datetime import timedelta\nfrom coll.torch import _alias, ProcessGroup\n"
        "_alias.activate('gloo')\n")
# What users bring: no word of coll.
SCRIPT = '''
import os, sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset


def work(rank, size):
    if size:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[2])
        dist.init_process_group("gloo", rank=rank, world_size=size)
    else:
        dist.init_process_group(backend="gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    for x, in DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2, num_workers=1):
        model(x).sum().backward()
    dist.monitored_barrier()
    if dist.get_rank() == 1 and os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0":
        os._exit(3)
    # In one piece: the processes write to one pipe.
    os.write(1, f"{sys.argv[1]} {dist.get_backend()} {type(dist.group.WORLD).__module__}\\n".encode())
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        work(0, 0)
    else:
        mp.spawn(work, args=(2,), nprocs=2)
        print("end of", __name__, __file__ == sys.argv[0], sys.path[0] == os.path.dirname(os.path.abspath(__file__)))
'''


def run(program, ranks=2, **env):
    return forked.run(ranks, forked.program(HEAD + program), LIMIT_S, capture=True, **env)


def launch(words, **env):
    """The script, started by these words; its directory is not the current one."""
    with tempfile.TemporaryDirectory() as place:
        name = os.path.join(place, "train.py")
        with open(name, "w") as f:
            f.write(SCRIPT)
        done = subprocess.run([sys.executable, *[w.replace("SCRIPT", name) for w in words]], capture_output=True, text=True, timeout=LIMIT_S,
                              env={**os.environ, **env})
    return done.returncode, done.stdout, done.stderr


def free_port():
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def group():
    """The group is of coll and called gloo; so are those made of it. It is told once, with the name of PyTorch's own."""
    code, out, err = run("dist.init_process_group()\nr = dist.get_rank()\nassert isinstance(dist.group.WORLD, ProcessGroup)\ndist.destroy_process_group()\n"
                         "dist.init_process_group('gloo')\nassert isinstance(dist.group.WORLD, ProcessGroup) and dist.get_backend() == 'gloo'\n"
                         "assert dist.is_backend_available('gloo') and dist.is_backend_available('cpu:gloo')\n"
                         "g = dist.new_group([0, 1])\nh = dist.new_group(backend='gloo')\n"
                         "for x in (g, h): assert isinstance(x, ProcessGroup) and dist.get_backend(x) == 'gloo'\n"
                         "dist.monitored_barrier(h, timedelta(seconds=60), wait_all_ranks=True)\n"
                         "own = dist.new_group(backend='torch_gloo')\nassert not isinstance(own, ProcessGroup) and dist.get_backend(own) == 'torch_gloo'\n"
                         "assert type(own._get_backend(torch.device('cpu'))).__name__ == 'ProcessGroupGloo'\n"
                         "for x in (None, g, own): y = torch.full((2,), r + 1.0); dist.all_reduce(y, group=x); assert y[0] == 3\n"
                         "print('whole')\ndist.destroy_process_group()\n")
    check(code == 0 and out.count("whole") == 2, code, out, err)
    check(len(re.findall(r"\[0\] coll: backend 'gloo' is coll [\d.]+ .*'torch_gloo'", err)) == 1 and "[1] coll" not in err, err)


def halves():
    """Of a list of backends coll takes the half of gloo; the rest is PyTorch's. The tensors of the rest are without memory here."""
    code, out, err = run("from torch.testing._internal.distributed import fake_pg\n"
                         "def pair(n): return torch.ones(n), torch.ones(n, device='meta')\n"
                         "for asked in ('cpu:gloo,meta:fake', 'meta:fake,cpu:gloo'):\n"
                         "  dist.init_process_group(asked)\n  w = dist.group.WORLD\n"
                         "  for g in (w, dist.new_group([1, 0])):\n"
                         "    assert isinstance(g, ProcessGroup) and sorted(map(str, g._device_types)) == ['cpu', 'meta'], g._device_types\n"
                         "    assert type(g._get_backend(torch.device('meta'))).__name__ == 'FakeProcessGroup' and g._get_backend('cpu') is g\n"
                         "    a, b = pair(3)\n    dist.all_reduce(a, group=g)\n    dist.all_reduce(b, group=g)\n    assert a.tolist() == [2, 2, 2], a\n"
                         "    parts = [torch.zeros(1) for _ in range(2)]\n    dist.all_gather(parts, torch.full((1,), dist.get_rank() + 1.0), group=g)\n"
                         "    assert sorted(p.item() for p in parts) == [1, 2]\n    dist.all_gather([b, b.clone()], b, group=g)\n    dist.barrier(group=g)\n"
                         "  assert dist.get_backend() == asked\n  print('both', w.group_name == w._rest.group_name)\n"
                         "  dist.destroy_process_group()\n")
    check(code == 0 and out.count("both True") == 4, code, out, err)


def refused():
    """Another name than gloo; and words of the command that mean nothing."""
    code, out, err = run("try: _alias.activate('nccl')\nexcept ValueError as e: print(e)\n", ranks=1)
    check("COLL_TORCH_AS=nccl: coll can stand for the backend 'gloo' alone" in out, out, err)


def spawned():
    """A script by python -m coll.torch, whose processes are those of mp.spawn."""
    code, out, err = launch(["-m", "coll.torch", "SCRIPT", "word", free_port()])
    check(code == 0 and out.count("word gloo coll.torch._group") == 2 and "end of __main__ True True" in out, code, out, err)
    check(err.count("coll: backend 'gloo' is coll") == 1 and "COLL-5102" not in err, err)


def torchrun():
    """The same below torchrun, which starts a rank again."""
    code, out, err = launch(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1", "-m", "coll.torch", "SCRIPT", "word"])
    # Rank 0 of the first try may have come as far.
    check(code == 0 and out.count("word gloo coll.torch._group") in (2, 3) and "exitcode: 3" in err, code, out, err)


def environment():
    """The variable alone, by the entry point: a script that is started in the usual way."""
    code, out, err = launch(["SCRIPT", "word", free_port()], COLL_TORCH_AS="gloo")
    check(code == 0 and out.count("word gloo coll.torch._group") == 2 and err.count("coll: backend 'gloo' is coll") == 1, code, out, err)
    code, out, err = launch(["-c", "import torch"], COLL_TORCH_AS="nccl")
    check(code != 0 and "COLL_TORCH_AS=nccl: coll can stand for the backend 'gloo' alone" in err, code, out, err)
    code, out, err = launch(["-c", "import torch, sys; print([m for m in sys.modules if m == 'coll' or m.startswith('coll.')])"])
    check(code == 0 and out == "[]\n", code, out, err)


CASES = [group, halves, refused, spawned]
MORE = [torchrun, environment]


def main():
    if not forked.preload("coll.torch", "torch.testing._internal.distributed.fake_pg"):
        print(f"skipped: {sys.executable} has no torch")
        return forked.SKIPPED
    return forked.cases(CASES if sys.argv[1:] == [] else MORE if sys.argv[1:] == ["more"] else CASES + MORE,
                        [] if sys.argv[1:] == ["more"] else sys.argv[1:])


forked.top(main)
