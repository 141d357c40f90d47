"""Calls that go on while the program computes, awaited one by one. collrun -n 2 python overlap.py"""

import array
import asyncio

import coll


async def main(comm: coll.Communicator) -> list[float]:
    stream = comm.stream()
    works: list[coll.Work] = []
    for layer in range(8):
        gradient = array.array("d", [float(comm.rank + layer)] * 1000)  # what a layer's backward pass computes
        works.append(comm.all_reduce(gradient, "avg", stream=stream))   # goes on while the next one computes
    return [(await work)[0] for work in works]


with coll.init() as comm:
    means = asyncio.run(main(comm))
    if comm.rank == 0:
        print(means)
