"""10 000 asynchronous calls whose Works nobody keeps. usage: collrun -n 2 python dropped.py [CALLS]

Under valgrind or AddressSanitizer (see dropped.sh) it shows whether the library writes to memory that is gone.
"""

import array
import sys

import coll

calls = int(sys.argv[1]) if len(sys.argv) > 1 else 10000
with coll.init() as comm:
    stream = comm.stream()
    for i in range(calls):
        x = array.array("f", [i % 100] * (1 + i % 300))
        comm.all_reduce(x, out=x, stream=stream)
        del x
        if i % 1000 == 999:
            stream = comm.stream()  # the one before goes with its calls
    last = comm.all_reduce(array.array("f", [1.0]), stream=stream).result()
    assert last.tolist() == [comm.size], last.tolist()
    comm.barrier()
    if comm.rank == 0:
        print(f"{calls} calls, {comm.size} ranks")
