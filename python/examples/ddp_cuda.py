"""Data-parallel training on GPUs over coll. torchrun --nproc-per-node 2 ddp_cuda.py, or collrun -n 2 python ddp_cuda.py"""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import coll.torch  # registers the backend "coll"

if not torch.cuda.is_available():
    print("skipped: torch sees no CUDA device")
    sys.exit(77)

dist.init_process_group("coll")  # sets LOCAL_RANK where the launcher did not
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())  # several ranks may share one
torch.cuda.set_device(device)
rank, size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
layers = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)).to(device)
model = DistributedDataParallel(layers, device_ids=[device.index])
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
everything = torch.randn(256, 4)
x = everything[rank::size].to(device)
y = x.sum(1, keepdim=True).sin()

first = last = 0.0
for epoch in range(60):
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()  # gradients are summed in the stream of the group meanwhile
    optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    first = first or mean.item()
    last = mean.item()

dist.barrier()  # a rank that died would be seen here
if rank == 0:
    print(f"{size} processes on {torch.cuda.get_device_name(device)}: the mean loss went from {first:.3f} to {last:.3f}")
assert last < first / 2
dist.destroy_process_group()
