"""The mean over all ranks, ten lines. collrun -n 4 python mean.py"""

import numpy as np

import coll

with coll.init() as comm:
    x = np.full(4, comm.rank + 1.0)
    mean = comm.all_reduce(x, "avg")
    print(f"rank {comm.rank} of {comm.size}: {mean}")
