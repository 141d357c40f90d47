"""coll.torch beside Gloo, by turns in one run. usage: collrun -n 2 python bench/torch_ddp.py [ROUNDS] [--busy N] [--step]

Prints medians: dist.all_reduce of 4 floats in a group of one rank beside a group that does nothing; the same of two ranks, free and
with each rank on a core of its own; 25 MiB; steps of DDP with 12 layers Linear(512) and with a transformer of 10.7 M parameters, beside
the same steps without DDP. --busy: N processes compute meanwhile. --step: the transformer alone, in blocks of a second, for
./run bench cores.
"""

import argparse
import math
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import coll.torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers"))
from run import Busy  # noqa: E402


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
    """Seconds of calls that all ranks make, interleaved, in each round."""
    times = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            dist.barrier()
            times[name].append(timed(call, count))
    return times


def medians_us(times):
    return {name: statistics.median(t) * 1e6 for name, t in times.items()}


def report(what, times, better=None):
    medians = medians_us(times)
    line = ", ".join(f"{name} {us:.1f} us" if us < 1000 else f"{name} {us / 1000:.2f} ms" for name, us in medians.items())
    if better:
        line += f": {medians[better[1]] / medians[better[0]]:.2f} times as fast as {better[1]}"
    if dist.get_rank() == 0:
        print(f"{what:34} {line}", flush=True)


def step(model, x):
    model.zero_grad(set_to_none=False)
    model(x).sum().backward()


class Transformer(torch.nn.Module):
    """10.7 million parameters: 43 MB of gradients."""

    WORDS, WIDTH, HEADS, LAYERS = 256, 384, 6, 6

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(self.WORDS, self.WIDTH)
        self.layers = torch.nn.ModuleList(torch.nn.TransformerEncoderLayer(self.WIDTH, self.HEADS, 4 * self.WIDTH, 0.0, batch_first=True)
                                          for _ in range(self.LAYERS))
        self.head = torch.nn.Linear(self.WIDTH, self.WORDS)

    def forward(self, words):
        x = self.embedding(words)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def steps(make, batch, groups):
    """A step of the model without DDP, and with it over each group, all from the same weights."""
    plain = make()
    models = {"no DDP": plain}
    for name, group in groups.items():
        copy = make()
        copy.load_state_dict(plain.state_dict())
        models[name] = DistributedDataParallel(copy, process_group=group)
    return {name: lambda m=m: step(m, batch) for name, m in models.items()}


def transformer(groups):
    torch.manual_seed(1)
    return steps(Transformer, torch.randint(Transformer.WORDS, (2, 48)), groups)


def transformer_alone(groups, rounds, block_s=1.0):
    """Lines for bench/peers/cores.py."""
    calls = transformer(groups)
    for call in calls.values():
        call()
    count = torch.tensor([math.ceil(block_s / timed(calls["no DDP"], 2))])
    dist.broadcast(count, 0)
    times = by_turns(calls, int(count), rounds)
    if dist.get_rank() == 0:
        for name, seconds in times.items():
            print(f"{'ours' if name == 'coll' else name} seconds: " + " ".join(f"{s:.5g}" for s in seconds), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("rounds", nargs="?", type=int, default=15)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--step", action="store_true")
    args = parser.parse_args()
    busy = Busy(args.busy if os.environ.get("COLL_RANK", "0") == "0" else 0)
    try:
        measure(args.rounds, args.step)
    finally:
        busy.close()


def measure(rounds, step_alone):
    torch.set_num_threads(1)
    cores = sorted(os.sched_getaffinity(0))
    dist.Backend.register_backend("empty", lambda store, rank, size, timeout: Empty(rank, size), devices=["cpu"])
    dist.init_process_group("coll")
    rank, size = dist.get_rank(), dist.get_world_size()
    ours, gloo = dist.group.WORLD, dist.new_group(backend="gloo")
    both = {"coll": ours, "gloo": gloo}
    if step_alone:
        transformer_alone(both, rounds)
        dist.destroy_process_group()
        return
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
    linear = steps(lambda: torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(12)]), torch.randn(64, 512), both)
    report("DDP step, 12 x Linear(512)", by_turns(linear, 5, rounds), ("coll", "gloo"))
    report("DDP step, transformer of 10.7 M", by_turns(transformer(both), 2, rounds), ("coll", "gloo"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
