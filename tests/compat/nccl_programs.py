#!/usr/bin/env python3
"""The calls of programs that load NCCL from Python, in their order, by ctypes: vLLM's wrapper, PyTorch's process group, and
cupy. Ranks are processes, except cupy's, which one thread has together.

usage: nccl_programs.py LIBRARY [RANKS ...]
Memory and streams are those of the stand-in driver (COLL_CUDA_LIBRARY), or of the host without it.
The last line is `N passed, N failed, N skipped`.
"""
import array
import ctypes
import multiprocessing
import os
import sys
import time
import traceback

LIBRARY = sys.argv[1]
SIZES = [int(n) for n in sys.argv[2:]] or [2, 3]
DRIVER = os.environ.get("COLL_CUDA_LIBRARY", "")
DEVICES = int(os.environ.get("SOFTCUDA_DEVICES", "1"))
LIMIT_S = 100
INT8, UINT8, INT32, INT64, FLOAT32, FLOAT64 = 0, 1, 2, 4, 7, 8
SUM, PROD, MAX, MIN, AVG = range(5)
UNDEF = -2**31
SUCCESS, REMOTE_ERROR, IN_PROGRESS = 0, 6, 7
CODES = {UINT8: "B", INT32: "i", INT64: "q", FLOAT32: "f", FLOAT64: "d"}

pointer, size_t, integer = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


class Config(ctypes.Structure):
    """ncclConfig_t of 2.29, which PyTorch 2.12 and 2.13 are built with: shorter than that of 2.32."""
    _fields_ = [("size", size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint), ("blocking", integer), ("cgaClusterSize", integer),
                ("minCTAs", integer), ("maxCTAs", integer), ("netName", ctypes.c_char_p), ("splitShare", integer),
                ("trafficClass", integer), ("commName", ctypes.c_char_p), ("collnetEnable", integer), ("CTAPolicy", integer),
                ("shrinkShare", integer), ("nvlsCTAs", integer), ("nChannelsPerNetPeer", integer), ("nvlinkCentricSched", integer),
                ("graphUsageMode", integer), ("numRmaCtx", integer)]


def config(**values):
    c = Config()
    for name, kind in Config._fields_:
        setattr(c, name, None if kind is ctypes.c_char_p else UNDEF if kind is integer else 0)
    c.size, c.magic, c.version = ctypes.sizeof(Config), 0xCAFEBEEF, 22907
    for name, value in values.items():
        setattr(c, name, value)
    return c


class Nccl:
    """The functions by name; an error is an exception with the library's sentence."""

    def __init__(self):
        self.lib = ctypes.CDLL(LIBRARY)
        self.lib.ncclGetErrorString.restype = self.lib.ncclGetLastError.restype = ctypes.c_char_p
        self.lib.ncclGetLastError.argtypes = [pointer]
        data = [pointer, pointer, size_t, integer]
        self.types = {
            "ncclCommInitRank": [pointer, integer, UniqueId, integer], "ncclCommInitRankConfig": [pointer, integer, UniqueId, integer, pointer],
            "ncclAllReduce": data + [integer, pointer, pointer], "ncclReduce": data + [integer, integer, pointer, pointer],
            "ncclReduceScatter": data + [integer, pointer, pointer], "ncclAllGather": data + [pointer, pointer],
            "ncclAlltoAll": data + [pointer, pointer], "ncclBroadcast": data + [integer, pointer, pointer],
            "ncclSend": [pointer, size_t, integer, integer, pointer, pointer], "ncclRecv": [pointer, size_t, integer, integer, pointer, pointer],
            "ncclCommInitAll": [pointer, integer, pointer], "ncclCommSplit": [pointer, integer, integer, pointer, pointer],
            "ncclCommShrink": [pointer, pointer, integer, pointer, pointer, integer], "ncclMemAlloc": [pointer, size_t],
            "ncclCommRegister": [pointer, pointer, size_t, pointer], "ncclCommWindowRegister": [pointer, pointer, size_t, pointer, integer],
            "ncclRedOpCreatePreMulSum": [pointer, pointer, integer, integer, pointer], "ncclRedOpDestroy": [integer, pointer],
            "ncclCommSuspend": [pointer, integer], "ncclCommMemStats": [pointer, integer, pointer]}

    def result(self, name, *args):
        f = getattr(self.lib, name)
        f.restype = integer
        f.argtypes = self.types.get(name, [pointer] * len(args))
        return f(*args)

    def __getattr__(self, name):
        def call(*args):
            code = self.result(name, *args)
            if code:
                raise RuntimeError(f"{name}: {code} {self.lib.ncclGetErrorString(code).decode()}: {self.lib.ncclGetLastError(None).decode()}")
        return call


class Machine:
    """Memory and a stream of a device, or of the host."""

    def __init__(self, nccl, device):
        self.nccl, self.cuda, self.stream = nccl, None, pointer()
        if not DRIVER:
            return
        self.cuda = ctypes.CDLL(DRIVER)
        self.context = pointer()
        self.must(self.cuda.cuInit(0))
        self.must(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), device))
        self.use()
        self.must(self.cuda.cuStreamCreate(ctypes.byref(self.stream), 1))

    @staticmethod
    def must(code):
        if code:
            raise RuntimeError(f"driver: {code}")

    def use(self):
        """with Device(k)"""
        if self.cuda:
            self.must(self.cuda.cuCtxSetCurrent(self.context))

    def alloc(self, length):
        p = pointer()
        self.use()
        self.nccl.ncclMemAlloc(ctypes.byref(p), max(length, 1))
        return p.value

    def put(self, values, type):
        data = array.array(CODES[type], values)
        p = self.alloc(len(data) * data.itemsize)
        self.write(p, data)
        return p

    def write(self, p, data):
        raw = data.tobytes()
        if self.cuda and raw:
            self.must(self.cuda.cuMemcpyHtoDAsync_v2(ctypes.c_uint64(p), raw, size_t(len(raw)), self.stream))
            self.wait()
        else:
            ctypes.memmove(p, raw, len(raw))

    def wait(self):
        if self.cuda:
            self.must(self.cuda.cuStreamSynchronize(self.stream))

    def get(self, p, count, type):
        self.use()
        data = array.array(CODES[type], bytes(count * array.array(CODES[type]).itemsize))
        raw = ctypes.create_string_buffer(len(data) * data.itemsize + 1)
        if self.cuda and count:
            self.must(self.cuda.cuMemcpyDtoHAsync_v2(raw, ctypes.c_uint64(p), size_t(len(data) * data.itemsize), self.stream))
            self.wait()
        else:
            ctypes.memmove(raw, p, len(data) * data.itemsize)
        data = array.array(CODES[type])
        data.frombytes(raw.raw[:-1])
        return list(data)


class Rank:
    def __init__(self, rank, size, store, met):
        self.nccl = Nccl()
        self.rank, self.size, self.store, self.met = rank, size, store, met
        self.at = Machine(self.nccl, rank % DEVICES)
        self.comm = pointer()
        self.s = self.at.stream

    def id(self, name):
        """Rank 0 makes it, and the store of the program carries it."""
        u = UniqueId()
        if self.rank == 0:
            self.nccl.ncclGetUniqueId(ctypes.byref(u))
            for _ in range(self.size - 1):
                self.store.put((name, bytes(u)))
            return u
        found, raw = self.store.get()
        assert found == name
        ctypes.memmove(ctypes.byref(u), raw, 128)
        return u

    def same(self, what, p, type, wanted):
        got = self.at.get(p, len(wanted), type)
        assert got == list(wanted), f"{what} on rank {self.rank} of {self.size}: {got[:8]} instead of {list(wanted)[:8]}"


# ---- vLLM ------------------------------------------------------------------------

def pynccl(r):
    n, at, s = r.nccl, r.at, r.s
    version = integer()
    n.ncclGetVersion(ctypes.byref(version))
    assert version.value == 22809, version.value
    u = r.id("vllm")
    n.ncclCommInitRank(ctypes.byref(r.comm), r.size, u, r.rank)
    warm = at.put([0.0], FLOAT32)
    n.ncclAllReduce(warm, warm, 1, FLOAT32, SUM, r.comm, s)
    at.wait()
    count, total = 5000, r.size * (r.size + 1) / 2
    x, y = at.put([r.rank + 1.0] * count, FLOAT32), at.put([0.0] * count * r.size, FLOAT32)
    n.ncclAllReduce(x, y, count, FLOAT32, SUM, r.comm, s)
    r.same("all_reduce", y, FLOAT32, [total] * count)
    n.ncclReduce(x, y, count, FLOAT32, MAX, 0, r.comm, s)
    if r.rank == 0:
        r.same("reduce", y, FLOAT32, [float(r.size)] * count)
    n.ncclAllGather(x, y, count, FLOAT32, r.comm, s)
    r.same("all_gather", y, FLOAT32, [k + 1.0 for k in range(r.size) for _ in range(count)])
    n.ncclReduceScatter(y, x, count, FLOAT32, SUM, r.comm, s)
    r.same("reduce_scatter", x, FLOAT32, [(r.rank + 1.0) * r.size] * count)
    at.write(x, array.array("f", [r.rank + 1.0] * count))
    # Blocks of different lengths: a group of broadcasts, and of reductions.
    lengths = [10 * (k + 1) for k in range(r.size)]
    n.ncclGroupStart()
    offset = 0
    for k, length in enumerate(lengths):
        n.ncclBroadcast(x, y + 4 * offset, length, FLOAT32, k, r.comm, s)
        offset += length
    n.ncclGroupEnd()
    r.same("all_gatherv", y, FLOAT32, [k + 1.0 for k, length in enumerate(lengths) for _ in range(length)])
    n.ncclGroupStart()
    offset = 0
    for k, length in enumerate(lengths):
        n.ncclReduce(y + 4 * offset, x, length, FLOAT32, SUM, k, r.comm, s)
        offset += length
    n.ncclGroupEnd()
    r.same("reduce_scatterv", x, FLOAT32, [(r.rank + 1.0) * r.size] * lengths[r.rank])
    at.write(x, array.array("f", [r.rank + 1.0] * count))
    # Stages of a pipeline.
    if r.rank > 0:
        n.ncclRecv(y, count, FLOAT32, r.rank - 1, r.comm, s)
        r.same("recv", y, FLOAT32, [float(r.rank)] * count)
    if r.rank < r.size - 1:
        n.ncclSend(x, count, FLOAT32, r.rank + 1, r.comm, s)
    n.ncclBroadcast(x, y, count, FLOAT32, r.size - 1, r.comm, s)
    r.same("broadcast", y, FLOAT32, [float(r.size)] * count)
    window = pointer(1)
    n.ncclCommWindowRegister(r.comm, x, 4 * count, ctypes.byref(window), 1)
    assert not window.value
    n.ncclCommWindowDeregister(r.comm, window)
    n.ncclCommDestroy(r.comm)


# ---- PyTorch -----------------------------------------------------------------------

def until_ready(r, comm):
    """As with a configuration that does not block."""
    state = integer(IN_PROGRESS)
    while state.value == IN_PROGRESS:
        r.nccl.ncclCommGetAsyncError(comm, ctypes.byref(state))
    assert state.value == SUCCESS, r.nccl.lib.ncclGetLastError(None)


def create(r, name, blocking):
    u = r.id(name)
    c = config(blocking=blocking, commName=b"default_pg")
    code = r.nccl.result("ncclCommInitRankConfig", ctypes.byref(r.comm), r.size, u, r.rank, ctypes.byref(c))
    assert code in (SUCCESS, IN_PROGRESS), r.nccl.lib.ncclGetLastError(None)
    until_ready(r, r.comm)


def collectives_of_torch(r, comm, rank, size):
    n, at, s, count = r.nccl, r.at, r.s, 700
    total = size * (size + 1) // 2
    x, y = at.put([rank + 1] * count * size, INT64), at.put([0] * count * size, INT64)

    def grouped(*calls):
        n.ncclGroupStart()
        for name, *args in calls:
            getattr(n, name)(*args)
        n.ncclGroupEnd()

    grouped(("ncclAllReduce", x, y, count, INT64, SUM, comm, s))
    r.same("all_reduce", y, INT64, [total] * count)
    # A barrier is a sum of one element; collectives may be coalesced.
    one = at.put([1.0], FLOAT32)
    grouped(("ncclAllReduce", one, one, 1, FLOAT32, SUM, comm, s))
    r.same("barrier", one, FLOAT32, [float(size)])
    grouped(*[("ncclAllGather", x + 8 * 10 * i, y + 8 * 10 * i * size, 10, INT64, comm, s) for i in range(40)])
    r.same("coalesced all_gather", y, INT64, [k + 1 for _ in range(40) for k in range(size) for _ in range(10)])
    grouped(*[("ncclReduceScatter", x + 8 * 10 * i * size, y + 8 * 10 * i, 10, INT64, SUM, comm, s) for i in range(5)])
    r.same("coalesced reduce_scatter", y, INT64, [total] * 50)
    # Bytes of 8-bit floats are gathered as they are.
    small = at.put([rank + 3] * 100, UINT8)
    wide = at.put([0] * 100 * size, UINT8)
    grouped(("ncclAllGather", small, wide, 100, UINT8, comm, s))
    r.same("bytes", wide, UINT8, [k + 3 for k in range(size) for _ in range(100)])
    # all_to_all with lengths of their own, this rank included.
    length = [[10 * (a + 2 * b + 1) for b in range(size)] for a in range(size)]
    calls, at_in, at_out = [], 0, 0
    for k in range(size):
        calls.append(("ncclSend", x + 8 * at_in, length[rank][k], INT64, k, comm, s))
        calls.append(("ncclRecv", y + 8 * at_out, length[k][rank], INT64, k, comm, s))
        at_in, at_out = at_in + length[rank][k], at_out + length[k][rank]
    grouped(*calls)
    r.same("all_to_all", y, INT64, [k + 1 for k in range(size) for _ in range(length[k][rank])])
    grouped(("ncclAlltoAll", x, y, 20, INT64, comm, s))
    r.same("all_to_all_single", y, INT64, [k + 1 for k in range(size) for _ in range(20)])
    # gather and scatter are messages.
    calls = [("ncclSend", x, 30, INT64, 0, comm, s)] if rank else [("ncclRecv", y + 8 * 30 * k, 30, INT64, k, comm, s) for k in range(1, size)]
    grouped(*calls)
    if rank == 0:
        r.same("gather", y + 8 * 30, INT64, [k + 1 for k in range(1, size) for _ in range(30)])
    grouped(("ncclBroadcast", x, x, count, INT64, size - 1, comm, s))
    r.same("broadcast", x, INT64, [size] * count)
    # A premultiplied sum whose factor is a tensor, and one whose factor is a number.
    ones, sums = at.put([1.0] * count, FLOAT32), at.put([0.0] * count, FLOAT32)
    factor, number, op = at.put([0.5], FLOAT32), ctypes.c_float(0.25), integer()
    for scalar, where, wanted in ((pointer(factor), 0, 0.5), (ctypes.byref(number), 1, 0.25)):
        n.ncclRedOpCreatePreMulSum(ctypes.byref(op), scalar, FLOAT32, where, comm)
        grouped(("ncclAllReduce", ones, sums, count, FLOAT32, op.value, comm, s))
        n.ncclRedOpDestroy(op.value, comm)
        r.same("premultiplied", sums, FLOAT32, [wanted * size] * count)


def torch_life(r):
    n = r.nccl
    create(r, "torch", 1)
    rank, size = integer(), integer()
    n.ncclCommUserRank(r.comm, ctypes.byref(rank))
    n.ncclCommCount(r.comm, ctypes.byref(size))
    assert (rank.value, size.value) == (r.rank, r.size)
    collectives_of_torch(r, r.comm, r.rank, r.size)
    # Memory of its allocator is registered, segment by segment.
    segment, handle = r.at.alloc(1 << 16), pointer()
    n.ncclCommRegister(r.comm, segment, 1 << 16, ctypes.byref(handle))
    n.ncclCommDeregister(r.comm, handle)
    n.ncclMemFree(pointer(segment))
    # new_group(): by a split, in which the others have no colour.
    child, c = pointer(), config(blocking=0, splitShare=1)
    code = n.result("ncclCommSplit", r.comm, r.rank % 2 if r.rank < r.size - 1 or r.size == 2 else -1, r.rank, ctypes.byref(child), ctypes.byref(c))
    assert code in (SUCCESS, IN_PROGRESS)
    until_ready(r, r.comm)
    assert bool(child.value) == (r.rank < r.size - 1 or r.size == 2)
    if child.value:
        until_ready(r, child)
        n.ncclCommUserRank(child, ctypes.byref(rank))
        n.ncclCommCount(child, ctypes.byref(size))
        collectives_of_torch(r, child, rank.value, size.value)
    # suspend and resume, as in 2.13.
    n.ncclCommSuspend(r.comm, 1)
    n.ncclCommResume(r.comm)
    value = ctypes.c_uint64(9)
    n.ncclCommMemStats(r.comm, 1, ctypes.byref(value))
    assert value.value == 0
    # shutdown(): all are finalized, then destroyed; the children first.
    for comm in filter(None, (child, r.comm)):
        if comm.value:
            n.ncclCommFinalize(comm)
            until_ready(r, comm)
            n.ncclCommDestroy(comm)


def torch_abort(r):
    """A rank that does not come; the watchdog of the others aborts all communicators in a group, and a new one is made."""
    n = r.nccl
    create(r, "abort", 0)
    child, c = pointer(), config(splitShare=1)
    n.ncclCommSplit(r.comm, 0, r.rank, ctypes.byref(child), ctypes.byref(c))
    # An abort ends what other ranks have not left, the split included.
    r.met.wait(LIMIT_S)
    x = r.at.put([1.0] * 100, FLOAT32)
    if r.rank > 0 and r.at.cuda:
        # Another rank may have aborted it by now.
        assert n.result("ncclAllReduce", x, x, 100, FLOAT32, SUM, child, r.s) in (SUCCESS, REMOTE_ERROR)
    n.ncclGroupStart()
    n.ncclCommAbort(child)
    n.ncclCommAbort(r.comm)
    n.ncclGroupEnd()
    r.at.wait()  # nothing is pending any more
    create(r, "again", 1)
    collectives_of_torch(r, r.comm, r.rank, r.size)
    r.met.wait(LIMIT_S)
    n.ncclCommAbort(r.comm)


def torch_shrink(r):
    n, few = r.nccl, pointer()
    create(r, "shrink", 1)
    if r.rank != 1:
        c = config(shrinkShare=1)
        n.ncclCommShrink(r.comm, (integer * 1)(1), 1, ctypes.byref(few), ctypes.byref(c), 0)
        collectives_of_torch(r, few, r.rank - (r.rank > 1), r.size - 1)
        n.ncclCommDestroy(few)
    n.ncclCommDestroy(r.comm)


# ---- cupy --------------------------------------------------------------------------------

def cupy(size, store):
    """One process with all devices."""
    n = Nccl()
    machines = [Machine(n, k % DEVICES) for k in range(size)]
    devices, comms = (integer * size)(*[k % DEVICES for k in range(size)]), (pointer * size)()
    n.ncclCommInitAll(comms, size, devices)
    comms = [pointer(c) for c in comms]
    count, value = 300, integer()
    for k, c in enumerate(comms):
        for name, wanted in (("ncclCommCuDevice", k % DEVICES if DRIVER else -1), ("ncclCommUserRank", k), ("ncclCommCount", size)):
            getattr(n, name)(c, ctypes.byref(value))
            assert value.value == wanted, (name, value.value, wanted)

    def sums(comms, machines):
        buffers = [m.put([k + 1.0] * count, FLOAT64) for k, m in enumerate(machines)]
        n.ncclGroupStart()
        for c, m, p in zip(comms, machines, buffers):
            n.ncclAllReduce(p, p, count, FLOAT64, SUM, c, m.stream)
        n.ncclGroupEnd()
        for m, p in zip(machines, buffers):
            got = m.get(p, count, FLOAT64)
            assert got == [len(comms) * (len(comms) + 1) / 2.0] * count, got[:4]

    sums(comms, machines)
    parts = [pointer() for _ in comms]
    n.ncclGroupStart()
    for k, c in enumerate(comms):
        n.ncclCommSplit(c, 0 if k else -1, k, ctypes.byref(parts[k]), None)
    n.ncclGroupEnd()
    assert not parts[0].value and all(p.value for p in parts[1:])
    if size > 1:
        sums(parts[1:], machines[1:])
    for c in parts[1:] + comms:
        n.ncclCommGetAsyncError(c, ctypes.byref(value))
        assert value.value == SUCCESS
    for c in parts[1:] + comms:
        n.ncclCommDestroy(c)


# ---- Running ------------------------------------------------------------------------------------

def run_rank(program, rank, size, store, met):
    try:
        program(Rank(rank, size, store, met))
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        sys.stdout.flush()
        os._exit(1)


def run_alone(program, size, store):
    try:
        program(size, store)
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        sys.stdout.flush()
        os._exit(1)


def run(program, size):
    fork = multiprocessing.get_context("fork")
    store = fork.Queue()
    if program is cupy:
        ranks = [fork.Process(target=run_alone, args=(program, size, store))]
    else:
        met = fork.Barrier(size)
        ranks = [fork.Process(target=run_rank, args=(program, k, size, store, met)) for k in range(size)]
    for p in ranks:
        p.start()
    until = time.monotonic() + LIMIT_S
    while any(p.is_alive() for p in ranks) and time.monotonic() < until:
        # Nobody waits long for what a failed rank would have sent.
        if any(p.exitcode for p in ranks):
            until = min(until, time.monotonic() + 10)
        for p in ranks:
            p.join(0.02)
    late = [k for k, p in enumerate(ranks) if p.is_alive()]
    for p in ranks:
        p.kill()
        p.join()
    ok = not late and all(p.exitcode == 0 for p in ranks)
    print(("ok    " if ok else "FAIL  ") + f"{program.__name__} {size}" + (f" ranks {late} do not end" if late else ""), flush=True)
    return ok


def main():
    results = []
    for size in SIZES:
        for program in (pynccl, torch_life, torch_abort, torch_shrink, cupy):
            if program is torch_shrink and size < 3:
                continue
            results.append(run(program, size))
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed, 0 skipped")
    sys.exit(not all(results))


main()
