"""coll.torch beside Gloo, by turns in one run. usage: collrun -n 2 python bench/torch_ddp.py [ROUNDS]

Prints medians: dist.all_reduce of 4 floats in a group of one rank beside a group that does nothing; the same of two ranks, free and
with each rank on a core of its own; 25 MiB; a step of DDP with 12 layers Linear(512), beside the same step without DDP.
"""

import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import coll.torch


class Empty(dist.ProcessGroup):
    """What torch's own wrapper costs: a group whose calls return at once."""

    def __init__(self, rank, size):
        super().__init__(rank, size)

    def allreduce(self, tensors, opts):
        return None

    @property
    def _device_types(self):
        return [torch.device("cpu")]


def timed(call, count):
    began = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - began) / count


def by_turns(calls, count, rounds):
    """Medians in microseconds of calls that all ranks make, interleaved."""
    times = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            dist.barrier()
            times[name].append(timed(call, count))
    return {name: statistics.median(t) * 1e6 for name, t in times.items()}


def report(what, medians, better=None):
    line = ", ".join(f"{name} {us:.1f} us" if us < 1000 else f"{name} {us / 1000:.2f} ms" for name, us in medians.items())
    if better:
        line += f": {medians[better[1]] / medians[better[0]]:.2f} times as fast as {better[1]}"
    if dist.get_rank() == 0:
        print(f"{what:34} {line}", flush=True)


def step(model, x):
    model.zero_grad(set_to_none=False)
    model(x).sum().backward()


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    torch.set_num_threads(1)
    cores = sorted(os.sched_getaffinity(0))
    dist.Backend.register_backend("empty", lambda store, rank, size, timeout: Empty(rank, size), devices=["cpu"])
    dist.init_process_group("coll")
    rank, size = dist.get_rank(), dist.get_world_size()
    ours, gloo = dist.group.WORLD, dist.new_group(backend="gloo")
    alone = [dist.new_group([r], backend="coll") for r in range(size)][rank]
    empty = [dist.new_group([r], backend="empty") for r in range(size)][rank]
    x = torch.ones(4)
    report("all_reduce of 4 floats, 1 rank", by_turns({"coll": lambda: dist.all_reduce(x, group=alone),
                                                       "empty": lambda: dist.all_reduce(x, group=empty)}, 2000, rounds))
    small = {"coll": lambda: dist.all_reduce(x, group=ours), "gloo": lambda: dist.all_reduce(x, group=gloo)}
    x.zero_()
    free = by_turns(small, 200, rounds)
    report(f"4 floats, {size} ranks", free, ("coll", "gloo"))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    pinned = by_turns(small, 200, rounds)
    report(f"4 floats, {size} ranks, pinned", pinned, ("coll", "gloo"))
    report("  pinned beside Gloo free", {"coll": pinned["coll"], "gloo": free["gloo"]}, ("coll", "gloo"))
    os.sched_setaffinity(0, cores)
    later = {"coll": lambda: dist.all_reduce(x, group=ours, async_op=True).wait(),
             "coll, future": lambda: dist.all_reduce(x, group=ours, async_op=True).get_future().wait(),
             "gloo": lambda: dist.all_reduce(x, group=gloo, async_op=True).wait()}
    report("4 floats, asynchronous", by_turns(later, 100, rounds), ("coll", "gloo"))
    big = torch.zeros(25 << 18)
    report("25 MiB", by_turns({"coll": lambda: dist.all_reduce(big, group=ours),
                               "gloo": lambda: dist.all_reduce(big, group=gloo)}, 2, rounds), ("coll", "gloo"))
    torch.manual_seed(0)
    layers = [torch.nn.Linear(512, 512) for _ in range(12)]
    plain = torch.nn.Sequential(*layers)
    models = {"no DDP": plain}
    for name, group in (("coll", ours), ("gloo", gloo)):
        copy = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(12)])
        copy.load_state_dict(plain.state_dict())
        models[name] = DistributedDataParallel(copy, process_group=group)
    batch = torch.randn(64, 512)
    report("DDP step, 12 x Linear(512)", by_turns({name: lambda m=m: step(m, batch) for name, m in models.items()}, 5, rounds),
           ("coll", "gloo"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
