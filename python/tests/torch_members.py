"""A group whose members change (PyTorch 2.14 and later): init_process_group(enable_reconfigure=True), dist._reconfigure().

Each case is a small program of 3 ranks that share a store; what PyTorch's own tests of Gloo ask of a backend, and what users do besides: a
rank that is killed, a process that comes later, handles in no order, handles that differ.
usage: torch_members.py [CASE...]
"""

import contextlib
import itertools
import os
import re
import sys
import tempfile

import forked
from forked import check

LIMIT_S = 240
_count = itertools.count()
HEAD = '''
import os, signal, sys, time
from datetime import timedelta
import torch, torch.distributed as dist
import coll, coll.torch
me, size = int(os.environ["COLL_RANK"]), int(os.environ["COLL_SIZE"])
store = dist.FileStore(os.environ["STORE"], size)


def begin(first=True):
    dist.init_process_group("coll", store=store, rank=me, world_size=size, timeout=timedelta(seconds=60), enable_reconfigure=True)
    if first:
        change(1, handles("first"))


def handles(key, of=None):
    store.set(f"{key}/{me}", dist._get_reconfigure_handle())
    return [store.get(f"{key}/{r}").decode() for r in (range(size) if of is None else of)]


def change(uuid, handles, s=60):
    dist._reconfigure(uuid, handles, timeout=timedelta(seconds=s)).wait()


def total():
    """The sum of 1 .. size over the members there are."""
    x = torch.full((4,), dist.get_rank() + 1.0)
    dist.all_reduce(x)
    n = dist.get_world_size()
    assert x.tolist() == [n * (n + 1) / 2] * 4, x
    return f"{dist.get_rank()} of {n}"


def meet(key, of=None):
    store.set(f"{key}/{me}", "1")
    for r in range(size) if of is None else of:
        store.get(f"{key}/{r}")


def refused(f, *args):
    try:
        f(*args)
    except (RuntimeError, ValueError, NotImplementedError) as e:
        return f"{type(e).__name__}: {e}"
    return "NOT REFUSED"


'''


def run(program, ranks=3):
    # No `with`: the ranks would leave it, too.
    store = f"{tempfile.gettempdir()}/coll-members-{os.getpid()}-{next(_count)}"
    code, out, err = forked.run(ranks, forked.program(HEAD + program), LIMIT_S, capture=True, STORE=store)
    with contextlib.suppress(OSError):
        os.unlink(store)
    return code, out, err


def says(program, *wanted, dead=()):
    """Each rank prints its line; those that are killed print none."""
    code, out, err = run(program)
    for rank, line in enumerate(wanted):
        if rank not in dead:
            check(f"[{rank}] {line}\n" in out, rank, line, out, err)
    check(code == 0 or dead, code, out, err)
    return out, err


def begins():
    """No members before the first reconfigure(); then all have all calls, messages and groups, too."""
    says("begin(False)\nprint(dist._supports_reconfigure(), dist._supports_window(), dist.get_world_size(), refused(dist.barrier)[:40])\n"
         "change(1, handles('h'))\nx, y = torch.tensor([me]), torch.tensor([9])\n"
         "works = [dist.isend(x, (me + 1) % 3), dist.irecv(y, (me + 2) % 3)]\n[w.wait() for w in works]\n"
         "print(total(), int(y) == (me + 2) % 3)\ndist.destroy_process_group()",
         *[f"True False 3 DistBackendError: coll: the group has no\n[{r}] {r} of 3 True" for r in range(3)])


def shrinks():
    """The last or the middle one is left out; it is told in its next call."""
    for out in (2, 1, 0):
        others = [r for r in range(3) if r != out]
        lines = [f"{others.index(r)} of 2 42.0" if r != out else "DistBackendError" for r in range(3)]
        said, _ = says(f"begin()\nall, others = handles('h'), {others}\nif me == {out}:\n  meet('changed')\n  print(refused(total)[:16])\n"
                       "else:\n  change(2, [all[r] for r in others])\n  meet('changed')\n  x = torch.tensor(42. if dist.get_rank() == 0 else 0.)\n"
                       "  dist.broadcast(x, group_src=0)\n  print(total(), float(x))\nmeet('over')", *lines)


def scales():
    """Alone and together again, twice; two that join one; unequal parts that merge; the same members anew."""
    says("begin(False)\nchange(10 + me, [dist._get_reconfigure_handle()])\na = total()\nchange(2, handles('a'))\nb = total()\n"
         "change(20 + me, [dist._get_reconfigure_handle()])\nc = total()\n"
         "if me < 1: change(3, handles('b', [0]))\nelse: change(4, handles('b', [1, 2]))\nd = total()\nchange(5, handles('c'))\ne = total()\n"
         "change(6, handles('d'))\nprint(a, b, c, d, e, total())\nmeet('over')",
         "0 of 1 0 of 3 0 of 1 0 of 1 0 of 3 0 of 3", "0 of 1 1 of 3 0 of 1 0 of 2 1 of 3 1 of 3", "0 of 1 2 of 3 0 of 1 1 of 2 2 of 3 2 of 3")


def orders():
    """A list gives the ranks; a set leaves them to coll, the same on all."""
    out, err = says("begin()\nchange(2, handles('a')[::-1])\nprint(total())\nchange(3, set(handles('b')))\n"
                    "ranks = [None] * 3\ndist.all_gather_object(ranks, (dist.get_rank(), me))\nprint('set', sorted(r for r, _ in ranks), sorted(m for _, m in ranks))",
                    *[f"{2 - r} of 3\n[{r}] set [0, 1, 2] [0, 1, 2]" for r in range(3)])


def death():
    """A rank is killed in mid-call; the others go on without it, and a process that comes later takes its place."""
    says("begin()\nif me == 1:\n  os.kill(os.getpid(), signal.SIGKILL)\nprint(refused(total)[:16])\nlate = me == 2\n"
         "change(2, handles('h', [0, 2]))\na = total()\n"
         # Another program, which has met nobody, on a store of its own.
         "new = None\nif me == 0:\n  r, w = os.pipe()\n  q, v = os.pipe()\n  new = os.fork()\n  if new == 0:\n"
         "    dist.init_process_group('coll', store=dist.HashStore(), rank=0, world_size=1, enable_reconfigure=True) if not dist.is_initialized() else None\n"
         "    from coll.torch._members import Members\n    g = Members(0, 1, dist.HashStore(), 60.0, 'new')\n"
         "    os.write(w, g.get_reconfigure_handle().encode())\n    all = os.read(q, 10000).decode().split()\n"
         "    from torch._C._distributed_c10d import ReconfigureOptions\n    o = ReconfigureOptions(); o.uuid, o.handles = 3, all\n    g.reconfigure(o).wait()\n"
         "    x = torch.ones(4) * 3\n    g.allreduce([x]).wait()\n    os._exit(0 if x.tolist() == [6.0] * 4 else 1)\n"
         "  store.set('new', os.read(r, 10000).decode())\nall = [*handles('i', [0, 2]), store.get('new').decode()]\n"
         "if new: os.write(v, ' '.join(all).encode())\nchange(3, all)\nprint(a, total(), os.waitpid(new, 0)[1] if new else 0)",
         "DistBackendError\n[0] 0 of 2 0 of 3 0", "", "DistBackendError\n[2] 1 of 2 1 of 3 0", dead=[1])


def after():
    """After an abort, and after a call that was too late."""
    says("begin()\ndist.group.WORLD.abort()\nchange(2, handles('a'))\na = total()\n"
         "dist.group.WORLD.set_timeout(timedelta(milliseconds=500))\nif me == 1:\n  w = dist.all_reduce(torch.ones(2), async_op=True)\n  print(refused(w.wait))\n"
         "  print(dist.group.WORLD.get_error().name)\nmeet('late')\ndist.group.WORLD.set_timeout(timedelta(seconds=60))\nchange(3, handles('b'))\nprint(a, total())",
         "0 of 3 0 of 3", "1 of 3 1 of 3", "2 of 3 2 of 3")


def averages():
    """C++ sees the new number of members: DDP divides by it."""
    says("begin()\nall = handles('h')\nif me < 2:\n  change(2, all[:2])\n  m = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))\n"
         "  m(torch.full((1, 1), me * 2. + 1)).sum().backward()\n  print(float(m.module.weight.grad))\nmeet('over')", "2.0", "2.0", "", dead=[2])


def wrong():
    """What is wrong is refused by name, and the members stay as they were."""
    out, err = says("begin()\nh = handles('h')\nprint(refused(change, 1, h))\nprint(refused(change, 2, [h[0]] * 2))\nprint(refused(change, 3, [x for x in h if x != dist._get_reconfigure_handle()]))\n"
                    "print(refused(change, 4, ['x']))\nprint(refused(dist._new_window))\nmeet('refused')\nprint(total())\n"
                    "change(5, h)\nprint(refused(change, 6, h) if me == 0 else 'stale')\nmeet('stale')\nh = handles('i')\n"
                    "print(refused(change, 7 if me else 8, h, 20))\nprint(total())",
                    *[f"{r} of 3" for r in range(3)])
    for sentence in (r"uuid 1 was already used in this group", "a process is twice", "is not among those given", "'x' is no handle of a group of coll", "one-sided windows are not there"):
        check(len(re.findall(sentence, out)) == 3, sentence, out, err)
    check(re.search(r"^\[0\] DistBackendError: coll: reconfigure: the handle of this process is an old one", out, re.M), out, err)
    check(len(re.findall(r"was given other handles, or another uuid|were given different handles|aborted the communicator", out)) == 3, out, err)
    check("NOT REFUSED" not in out, out, err)


def fixed():
    """Groups that were made without it say so."""
    _, out, err = run("dist.init_process_group('coll', store=store, rank=me, world_size=size)\nprint(dist._supports_reconfigure(), refused(dist._get_reconfigure_handle))\n"
                      "print(refused(change, 1, ['x']), total())")
    check(out.count("False NotImplementedError: coll: the members of this group do not change") == 3, out, err)


CASES = [begins, shrinks, scales, orders, death, after, averages, wrong, fixed]


def main():
    if not forked.preload("coll.torch", "torch._dynamo"):
        print(f"skipped: {sys.executable} has no torch")
        return forked.SKIPPED
    import torch.distributed as dist
    if not hasattr(dist, "_reconfigure"):
        import torch
        print(f"skipped: PyTorch {torch.__version__} has no reconfigure(); 2.14 has")
        return forked.SKIPPED
    return forked.cases(CASES, sys.argv[1:])


forked.top(main)
