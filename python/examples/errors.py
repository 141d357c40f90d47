"""What an error says. collrun -n 3 python errors.py"""

import array
import os
import signal

import coll

with coll.init(arrival_timeout_ms=5000) as comm:
    x = array.array("f", [1.0])
    try:
        if comm.rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        while True:
            comm.all_reduce(x, out=x)
    except coll.PeerError as error:
        print(f"rank {comm.rank}: lost the {error.lost} {error.rank} on {error.host} in {error.kind}: {error}")
