"""Data-parallel training by PyTorch over coll. torchrun --nproc-per-node 2 ddp_torch.py, or collrun -n 2 python ddp_torch.py"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import coll.torch  # registers the backend "coll"

dist.init_process_group("coll")
rank, size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
everything = torch.randn(256, 4)
x = everything[rank::size]
y = x.sum(1, keepdim=True).sin()

first = last = 0.0
for epoch in range(60):
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    first = first or mean.item()
    last = mean.item()

if rank == 0:
    print(f"{size} processes: the mean loss went from {first:.3f} to {last:.3f}")
assert last < first / 2
dist.destroy_process_group()
