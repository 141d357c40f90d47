"""Fully sharded training (FSDP2) on CPUs over coll. torchrun --nproc-per-node 2 fsdp2.py, or collrun -n 2 python fsdp2.py"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import coll.torch  # registers the backend "coll"

dist.init_process_group("coll")
rank, size = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (size,))

torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)])
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
held = sum(p.to_local().numel() for p in model.parameters())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

x = torch.randn(32, 64, generator=torch.Generator().manual_seed(rank))
first = last = 0.0
for step in range(20):
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    first = first or loss.item()
    last = loss.item()

if rank == 0:
    print(f"{size} processes, {held} of {4 * (64 * 64 + 64)} numbers here: the loss went from {first:.3f} to {last:.3f}")
assert last < first
dist.destroy_process_group()
