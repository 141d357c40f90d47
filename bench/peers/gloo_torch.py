"""The driver of PyTorch's gloo: the protocol and the timing of driver.c, as far as Python goes.

usage: by run.py only. Buffers are torch tensors; what Python itself takes (some microseconds a call) is part of the time.
"""
import mmap
import os
import socket
import struct
import sys
import time


def pin(rank):
    allowed = sorted(os.sched_getaffinity(0))
    if not os.environ.get("COLL_BENCH_UNPINNED"):
        os.sched_setaffinity(0, {allowed[rank % len(allowed)]})


parent = socket.socket(socket.AF_UNIX)
parent.connect(os.environ["COLL_BENCH_SOCKET"])
stream = parent.makefile("rw")


def answer(line):
    stream.write(line + "\n")
    stream.flush()


rank, size = int(os.environ["COLL_BENCH_RANK"]), int(os.environ["COLL_BENCH_SIZE"])
pin(rank)
try:
    import warnings
    warnings.simplefilter("ignore")
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", rank=rank, world_size=size,
                            store=dist.FileStore(os.environ["COLL_BENCH_DIR"] + "/store", size))
except Exception as e:  # noqa: BLE001: whatever it is, the parent is told
    answer("failed " + str(e).replace("\n", " ")[:150])
    sys.exit(1)

# The meeting place: one word a rank. Each is written by its rank alone; aligned 8-byte stores are whole.
fd = os.open(os.environ["COLL_BENCH_SHARED"], os.O_RDWR)
words = memoryview(mmap.mmap(fd, 1 << 16)).cast("Q")
WORDS_A_RANK = 8
arrived = 0


def meet():
    global arrived
    arrived += 1
    words[rank * WORDS_A_RANK] = arrived
    spins = 0
    for r in range(size):
        while words[r * WORDS_A_RANK] < arrived:
            spins += 1
            if spins % 1000 == 0:
                os.sched_yield()


class Job:
    def __init__(self, kind, nbytes, place):
        self.kind, self.in_place, self.root = kind, place == "in", 0
        blocks = size if kind in ("reduce_scatter", "all_gather", "all_to_all") else 1
        self.count = nbytes // 4 // blocks
        self.blocks_in = size if kind in ("reduce_scatter", "all_to_all") else 1
        self.blocks_out = size if kind in ("all_gather", "all_to_all") else 1
        self.input = torch.zeros(self.count * self.blocks_in)
        self.out = self.input if self.in_place else torch.zeros(self.count * self.blocks_out)
        self.call = getattr(self, kind, None)

    def touch(self, value):
        if self.kind != "broadcast" or rank == self.root:
            self.input.fill_(value)

    # Out of place is a copy and a call in place: torch has no other.
    def all_reduce(self):
        if not self.in_place:
            self.out.copy_(self.input)
        dist.all_reduce(self.out)

    def broadcast(self):
        dist.broadcast(self.out, self.root)

    def all_gather(self):
        dist.all_gather_into_tensor(self.out, self.input)

    def all_to_all(self):
        dist.all_to_all_single(self.out, self.input)

    def barrier(self):
        dist.barrier()


def pattern(r, n, at=0):
    i = torch.arange(at, at + n, dtype=torch.int64)
    return ((i * 7 + r * 13 + i // 1021) % 101).float()


def expected(j):
    if j.kind == "all_reduce":
        return sum(pattern(r, j.count) for r in range(size))
    if j.kind == "broadcast":
        return pattern(j.root, j.count)
    if j.kind == "all_gather":
        return torch.cat([pattern(r, j.count) for r in range(size)])
    if j.kind == "all_to_all":
        return torch.cat([pattern(r, j.count, rank * j.count) for r in range(size)])
    return j.out


def check(j):
    j.root = size - 1
    j.input.copy_(pattern(rank, j.count * j.blocks_in))
    if j.kind == "broadcast" and rank != j.root:
        j.input.fill_(-1)
    want = expected(j)
    meet()
    j.call()
    wrong = int((j.out != want).sum())
    meet()
    return "ok same" if not wrong else "wrong %d of %d" % (wrong, want.numel())


def run(j, how, first, n, samples):
    for k in range(first, first + n):
        j.root = k % size
        j.touch(float(1 + rank + k % 8))
        if how == "each":
            meet()
            begin = time.monotonic_ns()
            j.call()
            samples.append((begin, time.monotonic_ns()))
        else:
            j.call()


SAMPLES = 1 << 16  # where the times of ranks begin in the shared file, as in driver.c
CALLS_MAX = 1 << 14


def block(j, how, calls, warm):
    n = min(calls, CALLS_MAX)
    samples = []
    run(j, how, 0, warm, [])
    meet()
    if how == "loop":
        begin = time.monotonic_ns()
        run(j, how, warm, n, None)
        samples = [(begin, time.monotonic_ns())]
    else:
        run(j, how, warm, n, samples)
    data = struct.pack("<%dQ" % (2 * len(samples)), *[t for s in samples for t in s])
    os.pwrite(fd, data, SAMPLES + rank * CALLS_MAX * 16)
    last = warm + n - 1
    meet()
    ns = 0
    all_of = [struct.unpack("<%dQ" % (2 * len(samples)), os.pread(fd, len(data), SAMPLES + r * CALLS_MAX * 16))
              for r in range(size)]
    for i in range(len(samples)):
        ns += max(0, max(t[2 * i + 1] for t in all_of) - max(t[2 * i] for t in all_of))
    meet()
    if j.kind == "all_reduce" and j.count and float(j.out[-1]) != sum(1 + r + last % 8 for r in range(size)):
        return "wrong result of the last call"
    return "time %.9f" % (ns * 1e-9 * calls / n)


def obey():
    j = None
    for line in stream:
        word = line.split()
        if word[0] == "prepare":
            j = Job(word[1], int(word[2]), word[3])
            if j.call is None or int(word[5]) != 1 or j.in_place != (j.kind == "broadcast" or
                                                                          j.kind == "all_reduce" and j.in_place):
                answer("none: not in this library")
            else:
                meet()
                answer("ok")
        elif word[0] == "check":
            answer(check(j))
        elif word[0] == "block":
            answer(block(j, word[1], int(word[2]), int(word[3])))
        elif word[0] == "quit":
            break
        else:
            answer("wrong: no such command")


answer("hello %d %d %d PyTorch %s, gloo" % (rank, size, os.getpid(), torch.__version__))
obey()
os._exit(0)  # its own threads end badly when a peer has gone first
