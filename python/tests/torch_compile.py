"""torch.compile around what calls the backend: the same weights and values as without it, over four steps (DDP calls the backend from
inside a compiled frame from the second step on).

usage: collrun -n N python torch_compile.py
"""

import copy
import warnings
from contextlib import nullcontext

from torch_ranks import check, dist, main, rank, same, size, torch

from torch.nn.parallel import DistributedDataParallel as DDP

warnings.filterwarnings("ignore")
STEPS = 4


class Net(torch.nn.Module):
    """With buffers, which DDP broadcasts, and a part that can be left out."""

    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b, self.c = torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 8), torch.nn.Linear(8, 2)

    def forward(self, x, use_b=True):
        x = torch.tanh(self.norm(self.a(x)))
        return self.c(torch.relu(self.b(x)) if use_b else x)


def net():
    torch.manual_seed(1)
    return Net().double()


def batch(step):
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(100 * step + rank()), dtype=torch.float64)


def compiled(what, several_buckets=False):
    """PyTorch's splitting of graphs at the buckets of DDP refuses buckets that are smaller than the first one's 1 MB."""
    torch._dynamo.reset()
    torch._dynamo.config.optimize_ddp = not several_buckets
    return torch.compile(what, backend="aot_eager")


def step(model, x, **words):
    loss = model(x, **words).square().mean()
    loss.backward()
    return loss


def all_reduce_beside(model, x):
    """A training step with a call of its own, not awaited at once."""
    loss = model(x).square().mean()
    loss.backward()
    total = loss.detach().clone()
    dist.all_reduce(total, async_op=True).wait()
    return total


def sum_of(future):
    return future.value()[0] / size()


def hook(state, bucket):
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(sum_of)


def train(model, one_step=step, accumulate=False, **words):
    """The values of each step. accumulate: gradients of two steps are one, and the first is of this rank alone."""
    optimizer = torch.optim.SGD([p for p in model.parameters()], lr=0.3)
    values = []
    for number in range(STEPS):
        first = accumulate and number % 2 == 0
        with model.no_sync() if first else nullcontext():
            values.append(one_step(model, batch(number), **words).detach())
        if not first:
            optimizer.step()
            optimizer.zero_grad()
    return values


def compare(name, plain, ours, got, wanted):
    for a, b in zip(got, wanted, strict=True):
        check(torch.allclose(a, b, rtol=1e-12, atol=1e-12), name, a, b)
    # A compiled forward pass may add in another order.
    for (key, a), b in zip(ours.state_dict().items(), plain.state_dict().values(), strict=True):
        a, b = (x.full_tensor() if hasattr(x, "full_tensor") else x for x in (a, b))
        check(torch.allclose(a, b, rtol=1e-9, atol=1e-12), name, key, a, b)
        every = [torch.empty_like(a) for _ in range(size())]
        dist.all_gather(every, a.contiguous())
        if "running" not in key:
            for e in every:
                same(e, every[0], name, key)


def route(name, wrap, prepare=compiled, one_step=step, compiled_step=step, **words):
    plain, ours = wrap(net()), wrap(net())
    wanted = train(plain, one_step, **words)
    compare(name, plain, ours, train(prepare(ours), compiled_step, **words), wanted)


def test_ddp():
    for words in ({}, {"bucket_cap_mb": 0.0002}, {"static_graph": True}, {"gradient_as_bucket_view": True}, {"broadcast_buffers": False},
                  {"find_unused_parameters": True}):
        route(f"DDP {words}", lambda m: DDP(m, **words), prepare=lambda m: compiled(m, "bucket_cap_mb" in words))
    route("DDP of a compiled module", lambda m: DDP(compiled(m)), prepare=lambda m: m)
    route("unused", lambda m: DDP(m, find_unused_parameters=True), use_b=False)
    route("no_sync", DDP, accumulate=True)


def test_ddp_hooks():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    made = ((hook, lambda: None), (default_hooks.allreduce_hook, lambda: None), (default_hooks.fp16_compress_hook, lambda: None),
            (powerSGD_hook.powerSGD_hook, lambda: powerSGD_hook.PowerSGDState(None, 2, start_powerSGD_iter=2)))
    for function, state in made:
        def wrap(model):
            # PowerSGD's calls follow each other in callbacks: those of two buckets would meet in any order, on any backend.
            powers = function is powerSGD_hook.powerSGD_hook
            model = DDP(model.float(), bucket_cap_mb=25) if powers else DDP(model, bucket_cap_mb=0.0002)
            model.register_comm_hook(state(), function)
            return model

        if function is powerSGD_hook.powerSGD_hook:  # its start is random: it runs, and ranks agree
            ours = wrap(net())
            got = compiled(ours, True)
            for number in range(STEPS):
                step(got, batch(number).float())
            compare("PowerSGD", ours, ours, [], [])
        else:
            route(f"hook {function.__name__}", wrap, prepare=lambda m: compiled(m, True))


def test_join():
    from torch.distributed.algorithms.join import Join
    results = []
    for prepare in (lambda m: m, compiled):
        model = DDP(net(), find_unused_parameters=True, broadcast_buffers=False)
        called, optimizer = prepare(model), torch.optim.SGD(model.parameters(), lr=0.3)
        with Join([model]):
            for number in range(STEPS + rank()):
                optimizer.zero_grad()
                step(called, batch(number))
                optimizer.step()
        results.append(model)
    for p, q in zip(*(m.named_parameters() for m in results), strict=True):
        check(torch.allclose(p[1], q[1], rtol=1e-9, atol=1e-12), "join", p[0])


def test_whole_step():
    route("a whole step", DDP, prepare=lambda m: m, compiled_step=compiled(step))
    route("a call beside", DDP, prepare=lambda m: m, one_step=all_reduce_beside, compiled_step=compiled(all_reduce_beside))


def test_fsdp2():
    from torch.distributed.fsdp import fully_shard

    def wrap(model):
        for layer in (model.a, model.b, model.c):
            fully_shard(layer)
        return fully_shard(model)
    route("fully_shard", wrap)
    route("fully_shard, layers compiled", lambda m: wrap(copy.deepcopy(m)), prepare=lambda m: m.compile(backend="aot_eager") or m)


def test_calls():
    """Calls of torch.distributed and of Works in a compiled function. Those of objects, and methods of groups, are refused there by
    PyTorch with any backend."""
    group = dist.group.WORLD

    def function(x):
        y = x * 2
        work = dist.all_reduce(y, group=group, async_op=True)
        z = x + 1
        work.wait()
        dist.broadcast(z, 0, group=group)
        every = [torch.empty_like(y) for _ in range(size())]
        dist.all_gather(every, y + rank())
        return y + sum(every) + z

    x = torch.arange(4.0) + rank()
    again = compiled(function)
    for _ in range(STEPS):
        same(again(x), function(x), "calls")


main(test_ddp, test_ddp_hooks, test_join, test_whole_step, test_fsdp2, test_calls)
