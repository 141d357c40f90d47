"""What PyTorch builds on process groups, compared with one process: DDP, FSDP2, DTensor, checkpoints, pipelines, compiled collectives.

usage: collrun -n N python torch_train.py
"""

import copy
import os
import shutil
import tempfile
import warnings

from torch_ranks import check, dist, equal, main, rank, same, size, torch

from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel as DDP

warnings.filterwarnings("ignore")


class Net(torch.nn.Module):
    """Layers of which one may be left out."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = torch.nn.Linear(6, 8), torch.nn.Linear(8, 8), torch.nn.Linear(8, 2)
        self.table = torch.nn.Embedding(5, 6, sparse=True)

    def forward(self, x, use_b=True, words=None):
        x = torch.tanh(self.a(x if words is None else x + self.table(words)))
        return self.c(torch.tanh(self.b(x)) if use_b else x)


def net(dtype=torch.float64, table=False):
    torch.manual_seed(1)
    model = Net().to(dtype)
    model.table.requires_grad_(table)
    return model


def batches(count=4, dtype=torch.float64):
    """The batches of all ranks, in equal parts."""
    return torch.randn(size(), count, 6, generator=torch.Generator().manual_seed(2), dtype=dtype)


def loss_of(model, x, **words):
    return model(x, **words).square().mean()


def grads(model):
    return {n.removeprefix("module."): p.grad for n, p in model.named_parameters()}


def close(got, wanted, *facts, tolerance=1e-12):
    check(torch.allclose(got.to_dense(), wanted.to_dense(), atol=tolerance, rtol=tolerance), *facts, got, wanted)


def compare(model, whole, *facts, tolerance=1e-12):
    """The gradients of all ranks are those of one process with all batches."""
    got, wanted = grads(model), grads(whole)
    for name in wanted:
        if wanted[name] is not None:
            close(got[name], wanted[name], name, *facts, tolerance=tolerance)


def test_ddp():
    x = batches()
    for words in ({}, {"bucket_cap_mb": 0.0005}, {"static_graph": True}, {"gradient_as_bucket_view": True}, {"broadcast_buffers": False}):
        model, whole = net(), net()
        ddp = DDP(model, **words)
        for _ in range(3):
            ddp.zero_grad()
            whole.zero_grad()
            loss_of(ddp, x[rank()]).backward()
            loss_of(whole, x.flatten(0, 1)).backward()
            compare(ddp, whole, words)
    model, whole = net(), net()
    ddp = DDP(model, find_unused_parameters=True)
    for use in (True, False, True):
        ddp.zero_grad()
        whole.zero_grad()
        loss_of(ddp, x[rank()], use_b=use).backward()
        loss_of(whole, x.flatten(0, 1), use_b=use).backward()
        compare(ddp, whole, "unused", use)


def test_ddp_no_sync():
    x = batches()
    model, whole = net(), net()
    ddp = DDP(model, find_unused_parameters=True)
    with ddp.no_sync():
        loss_of(ddp, x[rank()]).backward()
    loss_of(ddp, x[rank()] * 2).backward()
    (loss_of(whole, x.flatten(0, 1)) + loss_of(whole, 2 * x.flatten(0, 1))).backward()
    compare(ddp, whole, "no_sync")


def test_ddp_sparse():
    """Gradients of an embedding are sparse tensors."""
    x, words = batches(), torch.arange(4)
    model, whole = net(table=True), net(table=True)
    ddp = DDP(model)
    loss_of(ddp, x[rank()], words=(words + rank()) % 5).backward()
    loss_of(whole, x.flatten(0, 1), words=torch.cat([(words + r) % 5 for r in range(size())])).backward()
    check(model.table.weight.grad.is_sparse)
    compare(ddp, whole, "sparse")


def test_ddp_join():
    """Ranks with fewer batches shadow the calls of the others."""
    from torch.distributed.algorithms.join import Join
    ddp = DDP(net(), find_unused_parameters=True)
    steps = 0
    with Join([ddp]):
        for x in batches(2)[0].repeat(3 + rank(), 1, 1):
            loss_of(ddp, x).backward()
            steps += 1
    equal(steps, 3 + rank())
    for name, p in ddp.named_parameters():
        every = [torch.empty_like(p) for _ in range(size())]
        dist.all_gather(every, p.detach())
        for e in every:
            same(e, every[0], name)


def hook_chain(state, bucket):
    """A future that waits for others, and for the call of another function."""
    half = (bucket.buffer() / dist.get_world_size())
    first = dist.all_reduce(half, async_op=True).get_future()
    second = dist.all_reduce(torch.ones(1, dtype=half.dtype), async_op=True).get_future()

    def add(f):
        count = second.wait()[0]
        third = torch.zeros(2)
        dist.all_reduce(third, async_op=True).get_future().wait()
        return f.value()[0] * (count / dist.get_world_size())

    return first.then(add).then(lambda f: f.value() + 0)


def test_ddp_hooks():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    x = batches(dtype=torch.float32)
    for hook, state, tolerance in ((hook_chain, None, 1e-6), (default_hooks.allreduce_hook, None, 1e-6), (default_hooks.fp16_compress_hook, None, 2e-3),
                                   (powerSGD_hook.powerSGD_hook, powerSGD_hook.PowerSGDState(None, 2, start_powerSGD_iter=2), None)):
        model, whole = net(torch.float32), net(torch.float32)
        ddp = DDP(model, bucket_cap_mb=0.0005)
        ddp.register_comm_hook(state, hook)
        for _ in range(4):
            ddp.zero_grad()
            whole.zero_grad()
            loss_of(ddp, x[rank()]).backward()
            loss_of(whole, x.flatten(0, 1)).backward()
            if tolerance:
                compare(ddp, whole, hook.__name__, tolerance=tolerance)
        for name, g in grads(ddp).items():
            if g is not None:
                every = [torch.empty_like(g) for _ in range(size())]
                dist.all_gather(every, g)
                for e in every:
                    same(e, every[0], hook.__name__, name)


def test_zero_optimizer():
    from torch.distributed.optim import ZeroRedundancyOptimizer
    x = batches()
    model, whole = net(), net()
    ddp = DDP(model)
    ours = ZeroRedundancyOptimizer([p for p in ddp.parameters() if p.requires_grad], torch.optim.Adam, lr=0.1)
    theirs = torch.optim.Adam([p for p in whole.parameters() if p.requires_grad], lr=0.1)
    for _ in range(3):
        ddp.zero_grad()
        whole.zero_grad()
        loss_of(ddp, x[rank()]).backward()
        loss_of(whole, x.flatten(0, 1)).backward()
        ours.step()
        theirs.step()
    for (name, p), q in zip(model.named_parameters(), whole.parameters(), strict=True):
        close(p.detach(), q.detach(), name, tolerance=1e-9)


def fsdp(model):
    from torch.distributed.fsdp import fully_shard
    for layer in (model.a, model.b, model.c):
        fully_shard(layer)
    return fully_shard(model)


def test_fsdp2():
    x = batches()
    model, whole = net(), net()
    for m in (model, whole):
        del m.table
    fsdp(model)
    ours, theirs = torch.optim.SGD(model.parameters(), lr=0.5), torch.optim.SGD(whole.parameters(), lr=0.5)
    for _ in range(3):
        ours.zero_grad()
        theirs.zero_grad()
        loss_of(model, x[rank()]).backward()
        loss_of(whole, x.flatten(0, 1)).backward()
        ours.step()
        theirs.step()
    for (name, p), q in zip(model.named_parameters(), whole.parameters(), strict=True):
        close(p.full_tensor().detach(), q.detach(), name)


def test_dtensor():
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
    n, me = size(), rank()
    mesh = init_device_mesh("cpu", (n,))
    for rows in (2 * n, 2 * n + 1, 1):
        whole = torch.arange(rows * 4, dtype=torch.float64).view(rows, 4)
        d = distribute_tensor(whole, mesh, [Shard(0)])
        same(d.full_tensor(), whole, "shard", rows)
        same(d.redistribute(mesh, [Shard(1)]).full_tensor(), whole, "shard to shard", rows)
        same(d.redistribute(mesh, [Replicate()]).to_local(), whole, "replicate", rows)
        close((d @ d.t()).full_tensor(), whole @ whole.t(), "product", rows)
        p = DTensor.from_local(whole * (me + 1), mesh, [Partial()])
        same(p.full_tensor(), whole * (n * (n + 1) / 2), "partial", rows)
        same(p.redistribute(mesh, [Shard(0)]).full_tensor(), whole * (n * (n + 1) / 2), "partial to shard", rows)


def test_tensor_parallel():
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = init_device_mesh("cpu", (size(),))
    torch.manual_seed(3)
    whole = torch.nn.Sequential(torch.nn.Linear(6, 4 * size()), torch.nn.ReLU(), torch.nn.Linear(4 * size(), 6)).double()
    model = parallelize_module(copy.deepcopy(whole), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    x = torch.randn(5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    out, wanted = model(x), whole(x)
    close(out.detach(), wanted.detach(), "tensor parallel")
    out.square().sum().backward()
    wanted.square().sum().backward()
    close(model[0].weight.grad.full_tensor(), whole[0].weight.grad, "its gradients")


def test_checkpoints():
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
    where = [tempfile.mkdtemp() if rank() == 0 else None]
    dist.broadcast_object_list(where)
    model = net()
    del model.table
    fsdp(model)
    wanted = {n: p.full_tensor().detach().clone() for n, p in model.named_parameters()}
    dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=os.path.join(where[0], "a"))
    dcp.async_save({"model": get_model_state_dict(model)}, checkpoint_id=os.path.join(where[0], "b")).result()
    for name in ("a", "b"):
        with torch.no_grad():
            for p in model.parameters():
                p.zero_()
        state = {"model": get_model_state_dict(model)}
        dcp.load(state, checkpoint_id=os.path.join(where[0], name))
        set_model_state_dict(model, state["model"])
        for n, p in model.named_parameters():
            same(p.full_tensor().detach(), wanted[n], name, n)
    dist.barrier()
    if rank() == 0:
        shutil.rmtree(where[0])


def test_pipeline():
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
    n, me = size(), rank()
    torch.manual_seed(5)
    layers = [torch.nn.Linear(6, 6).double() for _ in range(n)]
    whole = torch.nn.Sequential(*copy.deepcopy(layers))
    stage = PipelineStage(layers[me], me, n, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, 4, loss_fn=lambda y, t: (y - t).square().mean())
    x = torch.randn(8, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(6))
    t, losses = x.flip(0), []
    if n == 1:
        schedule.step(x, target=t, losses=losses)
    elif me == 0:
        schedule.step(x)
    elif me == n - 1:
        schedule.step(target=t, losses=losses)
    else:
        schedule.step()
    wanted = [(whole(a) - b).square().mean() for a, b in zip(x.chunk(4), t.chunk(4))]
    (sum(wanted) / 4).backward()
    if me == n - 1:
        close(torch.stack([l.detach() for l in losses]), torch.stack([w.detach() for w in wanted]), "losses")
    close(layers[me].weight.grad, whole[me].weight.grad, "gradients of a stage")


def test_compiled():
    import torch.distributed._functional_collectives as f
    n, me = size(), rank()
    group = dist.group.WORLD

    def function(x):
        y = f.all_reduce(x * 2, "sum", group)
        z = f.all_gather_tensor(y, 0, group)
        r = f.reduce_scatter_tensor(z, "avg", 0, group)
        s = f.all_to_all_single(z, None, None, group)
        return r + y, f.broadcast(s, 0, group) if hasattr(f, "broadcast") else s

    x = torch.arange(4.0) + me
    plain = function(x)
    total = 2 * (torch.arange(4.0) * n + n * (n - 1) / 2)
    same(plain[0].clone(), total + total, "functional")
    same(plain[1].clone(), total.repeat(n), "functional")
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)(x)
    for a, b in zip(plain, compiled):
        same(b.clone(), a.clone(), "compiled")
    import torch.distributed.nn.functional as nn
    y = (torch.arange(3.0) + me).requires_grad_(True)
    nn.all_reduce(y * (me + 1)).sum().backward()
    same(y.grad, torch.full((3,), float(n * (me + 1))), "autograd")


def test_coalescing_and_batches():
    from torch.distributed.distributed_c10d import _coalescing_manager
    n, me = size(), rank()
    xs = [torch.full((k + 1,), me + float(k)) for k in range(5)]
    with _coalescing_manager():
        for x in xs:
            dist.all_reduce(x)
    for k, x in enumerate(xs):
        same(x, torch.full((k + 1,), n * float(k) + n * (n - 1) / 2), "coalesced", k)
    outs = [torch.zeros(n * (k + 1)) for k in range(3)]
    with _coalescing_manager(async_ops=True) as manager:
        for k in range(3):
            dist.all_gather_single(outs[k], torch.full((k + 1,), float(me)))
    manager.wait()
    for k in range(3):
        same(outs[k], torch.arange(float(n)).repeat_interleave(k + 1), "coalesced all_gather", k)
    outs = [torch.zeros(k + 1) for k in range(3)]
    with _coalescing_manager():
        for k in range(3):
            dist.reduce_scatter_single(outs[k], torch.arange(float(n * (k + 1))))
    for k in range(3):
        same(outs[k], (torch.arange(k + 1.0) + me * (k + 1)) * n, "coalesced reduce_scatter", k)
    right, left = (me + 1) % n, (me - 1) % n
    for count in (3, 100003):
        got = torch.zeros(count)
        for w in dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.full((count,), float(me)), right), dist.P2POp(dist.irecv, got, left)]):
            w.wait()
        same(got, torch.full((count,), float(left)), "batch_isend_irecv", count)
    # Sends that nobody waits for yet, of all lengths, received in the other order, from any source.
    works = [dist.isend(torch.full((c,), float(c + me)), right, tag=c) for c in (1, 5000, 200000)]
    for c in (200000, 5000, 1):
        got = torch.zeros(c)
        equal(dist.recv(got, None if c == 5000 else left, tag=c), left)
        same(got, torch.full((c,), float(c + left)), "tag", c)
    for w in works:
        w.wait()


def test_meshes_and_objects():
    n, me = size(), rank()
    every = [None] * n
    dist.all_gather_object(every, {"rank": me, "x": torch.full((2,), me)})
    for r in range(n):
        equal(every[r]["rank"], r)
        same(every[r]["x"], torch.full((2,), r))
    box = [me, "x" * 1000] if me == 0 else [None, None]
    dist.broadcast_object_list(box)
    equal(box, [0, "x" * 1000])
    if n % 2 == 0:
        mesh = init_device_mesh("cpu", (n // 2, 2), mesh_dim_names=("a", "b"))
        x = torch.tensor([float(me)])
        dist.all_reduce(x, group=mesh.get_group("b"))
        same(x, torch.tensor([float(2 * (me // 2 * 2) + 1)]), "mesh")


if __name__ == "__main__":
    main(test_ddp, test_ddp_no_sync, test_ddp_sparse, test_ddp_join, test_ddp_hooks, test_zero_optimizer, test_fsdp2, test_dtensor,
         test_tensor_parallel, test_checkpoints, test_pipeline, test_compiled, test_coalescing_and_batches, test_meshes_and_objects)
