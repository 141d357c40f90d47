"""Arrays in memory of a CUDA device, on the stand-in driver: every call and type by __cuda_array_interface__, DLPack, streams, order,
refusals, lifetimes. Results are compared with numpy's. usage: TEST_CUDA_LIBRARY=FILE collrun -n N python device.py"""

import gc
import os
import threading
import time
import weakref

os.environ.setdefault("SOFTCUDA_QUEUES", "32")  # a stream that is held keeps no other one
import cuda_driver as cuda
import coll
from ranks import check, equal, main, needs, raises

(np,) = needs("numpy")

TYPES = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "?", "c8", "c16"]
SHAPES = {"whole": (12, 2), "empty": (0, 2), "one": (1,), "non-divisible": (7,), "no axes": ()}
FILE_TYPES = {"i": np.int64, "u": np.uint64, "f": np.float64, "b": np.bool_, "c": np.complex128}


def make(shape, dtype, rank):
    n = int(np.prod(shape))
    return ((np.arange(n) + 3 * rank) % 5).reshape(shape).astype(dtype)


def bytes_of(x):
    """Of an array in host or device memory, ours or another's."""
    if isinstance(x, np.ndarray):
        return x.tobytes()
    return x.bytes() if hasattr(x, "bytes") else cuda.read(x.address, x.nbytes)


def same(got, wanted, *facts):
    check(tuple(got.shape) == wanted.shape, *facts, "shape", got.shape, wanted.shape)
    check(bytes_of(got) == np.ascontiguousarray(wanted).tobytes(), *facts, "wrong values")


def fresh(wanted):
    return cuda.Array(np.full(wanted.shape, 1, wanted.dtype))


def reductions(dtype):
    kind = np.dtype(dtype).kind
    return ["sum"] if kind == "c" else ["sum", "max"] if kind == "b" else ["sum", "prod", "min", "max"]


def reduce_in(op, parts):
    ufunc = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}[op]
    return ufunc.reduce(np.stack(parts), axis=0).astype(parts[0].dtype).reshape(parts[0].shape)


def each_call(comm, dtype, shape, place, **words):
    """(name, what the call returns, the result by numpy). `place` puts a numpy array where the call shall find it."""
    n, me = comm.size, comm.rank
    parts = [make(shape, dtype, r) for r in range(n)]
    for op in reductions(dtype):
        wanted = reduce_in(op, parts)
        yield op, comm.all_reduce(place(parts[me]), op, out=fresh(wanted), **words), wanted
    wanted = reduce_in("sum", parts)
    yield "new", comm.all_reduce(place(parts[me]), **words), wanted
    x = place(parts[me])
    yield "in place", comm.all_reduce(x, out=x, **words), wanted
    got = comm.reduce(place(parts[me]), "sum", n - 1, **words)
    if me == n - 1:
        yield "reduce", got, wanted
    yield "scan", comm.scan(place(parts[me]), **words), reduce_in("sum", parts[:me + 1])
    got = comm.exclusive_scan(place(parts[me]), **words)
    if me > 0:
        yield "exclusive_scan", got, reduce_in("sum", parts[:me])
    yield "broadcast", comm.broadcast(place(parts[me]), n - 1, **words), parts[n - 1]
    stacked = np.stack(parts)
    yield "all_gather", comm.all_gather(place(parts[me]), **words), stacked
    got = comm.gather(place(parts[me]), 0, **words)
    if me == 0:
        yield "gather", got, stacked
    wanted = parts[(me - 1) % n]
    yield "send_recv", comm.send_recv(place(parts[me]), (me + 1) % n, fresh(wanted), (me - 1) % n, **words), wanted
    yield from pair(comm, parts, place, words)
    if shape and shape[0] % n == 0:
        rows = shape[0] // n
        mine = slice(me * rows, (me + 1) * rows)
        yield "reduce_scatter", comm.reduce_scatter(place(parts[me]), **words), reduce_in("sum", parts)[mine]
        yield "all_to_all", comm.all_to_all(place(parts[me]), **words), np.concatenate([p[mine] for p in parts])
        yield "scatter", comm.scatter(place(parts[0]) if me == 0 else None, 0, out=fresh(parts[0][mine]), **words), parts[0][mine]
    if shape:
        yield from ragged(comm, dtype, shape, parts, place, words)


def pair(comm, parts, place, words):
    """Rank 0 to the last, without a tag and with one."""
    n, me = comm.size, comm.rank
    if me == 0:
        comm.send(place(parts[0]), n - 1, **words)
        comm.send(place(parts[0]), n - 1, tag=5, **words)
    elif me == n - 1:
        yield "recv", comm.recv(place(parts[me]), 0, **words), parts[0]
        into = place(parts[me])
        message = comm.irecv(into, 0, 5).wait()
        equal((message.source, message.tag, message.elements), (0, 5, parts[0].size))
        yield "irecv", into, parts[0]


def ragged(comm, dtype, shape, parts, place, words):
    """Parts of all ranks differ."""
    n, me = comm.size, comm.rank
    counts = [shape[0] + r for r in range(n)]
    own = [make((counts[r], *shape[1:]), dtype, r) for r in range(n)]
    yield "all_gather, counts", comm.all_gather(place(own[me]), counts=counts, **words), np.concatenate(own)
    total = [make((sum(counts), *shape[1:]), dtype, r) for r in range(n)]
    mine = slice(sum(counts[:me]), sum(counts[:me + 1]))
    yield "reduce_scatter, counts", comm.reduce_scatter(place(total[me]), counts=counts, **words), reduce_in("sum", total)[mine]
    yield ("scatter, counts", comm.scatter(place(total[0]) if me == 0 else None, 0, out=fresh(total[0][mine]),
                                           counts=counts if me == 0 else [0] * n, **words), total[0][mine])


def test_every_call(comm):
    for dtype in TYPES:
        for name, shape in SHAPES.items():
            for call, got, wanted in each_call(comm, dtype, shape, cuda.Array):
                same(got, wanted, call, dtype, name)


def test_in_streams(comm):
    stream = cuda.Stream()
    for dtype in ("i1", "f4", "c16"):
        for name, shape in SHAPES.items():
            works = [(call, work, wanted) for call, work, wanted in each_call(comm, dtype, shape, cuda.Array, stream=stream)]
            stream.wait()
            for call, work, wanted in works:
                same(work.result() if isinstance(work, coll.Work) else work, wanted, call, dtype, name, "in a stream")


def test_mixed(comm):
    """Host and device memory, by rank and by argument."""
    for turn in range(4):
        def place(x):
            return cuda.Array(x) if (comm.rank + turn) % 2 else x.copy()
        for call, got, wanted in each_call(comm, "f4", (12,), place):
            same(got, wanted, call, "turn", turn)
    for x, out in ((np.ones(5), fresh(np.ones(5))), (cuda.Array(np.ones(5)), np.zeros(5))):
        same(comm.all_reduce(x, out=out), np.full(5, float(comm.size)), "in and out differ")
    strided = np.zeros(10)[::2]
    same(comm.all_reduce(cuda.Array(np.ones(5)), out=strided), np.full(5, float(comm.size)), "out is strided host memory")


def test_interface(comm):
    """Versions, strides, places and types of __cuda_array_interface__."""
    ones, n = np.ones((2, 3), "f4"), comm.size
    sums = ones * n
    for changes in ({"version": 2}, {"version": 2, "strides": (12, 4)}, {"strides": (12, 4)}, {"descr": [("", "<f4")]}, {"mask": None}):
        same(comm.all_reduce(cuda.Array(ones, **changes)), sums, changes)
    same(comm.all_reduce(cuda.Array(ones[:1], strides=(400, 4))), sums[:1], "a stride of an axis of one is no stride")
    same(comm.all_reduce(cuda.Array(np.ones(9, "f4"), shift=4)), np.full(9, n, "f4"), "an odd address")
    equal(comm.all_reduce(cuda.Array(np.zeros(0, "f4"), data=(0, False))).nbytes, 0)
    frozen = cuda.Array(ones)
    frozen.entries["data"] = (frozen.address, True)
    same(comm.all_reduce(frozen), sums, "read-only input")
    opaque = cuda.Array(np.arange(4, dtype=">i4"))
    same(comm.broadcast(opaque), np.arange(4, dtype=">i4"), "another byte order is moved")
    raises(coll.ArgumentError, comm.all_reduce, opaque, says="not reduced")
    for changes, says in (({"typestr": "x"}, "typestr"), ({"typestr": 4}, "typestr"), ({"shape": None}, "shape"), ({"shape": (-1,)}, "shape"),
                          ({"strides": (4,)}, "strides"), ({"mask": object()}, "mask"), ({"stream": 0}, "stream 0"), ({"data": None}, "data"),
                          ({"data": 5}, "x"), ({"data": (0, False)}, "x has no memory"), ({"data": (0, False), "strides": (4, 8)}, "no memory"),
                          ({"strides": (4, 8)}, "C-contiguous"), ({"strides": (24, 8)}, "C-contiguous")):
        raises(coll.ArgumentError, comm.all_reduce, cuda.Array(ones, **changes), says=says)
    raises(coll.ArgumentError, comm.all_reduce, frozen, out=frozen, says="read-only")
    raises(coll.ArgumentError, comm.all_reduce, ones, out=frozen, says="read-only")
    raises(coll.ArgumentError, comm.all_reduce, cuda.Array(ones), out=cuda.Array(ones.astype("f8")), says="type")


def test_results(comm):
    """What a call makes: shape, type, both interfaces; it can be given to calls again."""
    made = comm.all_reduce(cuda.Array(np.ones((2, 3), "f8")))
    check(isinstance(made, coll.DeviceArray))
    equal((made.shape, made.dtype, made.nbytes, made.device), ((2, 3), "f64", 48, comm.device))
    equal(repr(made), f"coll.DeviceArray(shape=(2, 3), dtype='f64', device='{comm.device}')")
    equal(made.__cuda_array_interface__, {"shape": (2, 3), "typestr": "<f8", "data": (made.address, False), "strides": None,
                                          "stream": None, "version": 3})
    equal(made.__dlpack_device__(), (2, 0))
    for version in (None, (1, 0)):
        check("dltensor" in repr(made.__dlpack__(max_version=version)))
    raises(BufferError, made.__dlpack__, copy=True)
    raises(BufferError, made.__dlpack__, dl_device=(1, 0))
    same(comm.all_reduce(made, out=made), np.full((2, 3), float(comm.size ** 2)), "again")
    for name, code in (("bf16", "<V2"), ("bool", "|b1"), ("c64", "<c8"), ("f8e4m3", "|V1"), ("u16", "<u2")):
        x = comm.empty_on_device(5, name)
        equal(x.__cuda_array_interface__["typestr"], code)
        cuda.write(x.address, bytes(x.nbytes))
        equal(bytes_of(comm.all_reduce(x)), bytes(x.nbytes))
    equal(comm.empty_on_device((0, 3)).nbytes, 0)
    raises(coll.CollMemoryError, comm.empty_on_device, (1 << 40,), "u8")


def test_dlpack(comm):
    """__dlpack__() is told the stream of the reader; the table of C functions tells the stream of its library."""
    ones, n = np.ones(6, "f4"), comm.size
    stream = cuda.Stream()
    for code in (None, 4):  # 4: bf16, of which 0x3f803f80 are two ones
        x = cuda.Dlpack(ones if code is None else np.full(6, 0x3f80, "u2"), code=code)
        same(comm.all_reduce(x), ones * n if code is None else np.full(6, int(np.float32(n).view("u4")) >> 16, "u2"), "DLPack", code)
        equal(x.asked, [1])
    x = cuda.Dlpack(ones)
    same(comm.all_reduce(x, stream=stream).result(), ones * n, "DLPack in a stream")
    equal(x.asked, [stream.number])
    same(comm.all_reduce(cuda.Tabled(ones)), ones * n, "table")
    pinned = cuda.Pinned(ones.nbytes)
    x = cuda.Dlpack(ones, address=pinned.address)
    x.device = 3
    cuda.ctypes.memmove(pinned.address, ones.tobytes(), ones.nbytes)
    equal(list(comm.all_reduce(x, out=np.zeros(6, "f4"))), [n] * 6)


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        check(time.monotonic() < end, "nothing happens")
        time.sleep(0.001)


def late(array, value):
    """The array gets its values when its stream is let go."""
    stream = cuda.Stream()
    stream.hold()  # nothing may be made or freed from here on
    return stream, cuda.write(array.memory.address if hasattr(array, "memory") else array.address, value.tobytes(), stream.number)


def arrays_of(stream_holder):
    """Arrays of zeros that name the stream of their data: how they are made, for stream_holder(array) -> stream."""
    zeros = np.zeros(6, "f4")

    def interface():
        x = cuda.Array(zeros)
        stream, kept = stream_holder(x)
        x.entries["stream"] = stream.number
        return x, stream, kept

    def method():
        x = cuda.Dlpack(zeros)
        x.stream, kept = stream_holder(x)
        return x, x.stream, kept

    def table():
        x = cuda.Tabled(zeros)
        cuda.Tabled.current, kept = stream_holder(x)
        return x, cuda.Tabled.current, kept
    return interface, method, table


def test_order(comm):
    """A call begins when the data are ready, in a stream and without one."""
    ones, stream = np.ones(6, "f4"), cuda.Stream()
    for kind in arrays_of(lambda x: late(x, ones)):
        x, source, kept = kind()
        work = comm.all_reduce(x, stream=stream)
        check(not work.done() and not stream.idle(), kind.__name__, "ran before its data were there")
        source.let_go()
        same(work.result(), ones * comm.size, kind.__name__, "in a stream")
        x = work = None
        x, source, kept = kind()
        got, before = [], cuda.enqueued()
        thread = threading.Thread(target=lambda x=x: (cuda.use(0), got.append(comm.all_reduce(x))))
        thread.start()
        until(lambda: cuda.enqueued() >= before + 2)
        check(not got, kind.__name__, "ran before its data were there")
        source.let_go()
        thread.join(60)
        same(got[0], ones * comm.size, kind.__name__, "without a stream")
        cuda.Tabled.current = x = got = thread = None


def test_readers_wait(comm):
    """A result of a call in a stream names that stream until the call has ended."""
    ones, stream, reader = np.ones(6, "f4"), cuda.Stream(), cuda.Stream()
    keep = cuda.Array(ones)
    stream.hold()
    made = comm.empty_on_device(6)
    work = comm.all_reduce(keep, out=made, stream=stream)
    equal(made.__cuda_array_interface__["stream"], stream.number)
    made.__dlpack__(stream=reader.number)
    check(not reader.idle(), "the reader does not wait")
    again = comm.all_reduce(made, out=made, stream=reader)
    check(not again.done() and made.__cuda_array_interface__["stream"] == reader.number)
    stream.let_go()
    work.wait()
    again.wait()
    equal(made.__cuda_array_interface__["stream"], None)
    same(made, ones * comm.size ** 2)


def test_names_of_streams(comm):
    ones, stream = np.ones(6, "f4"), cuda.Stream()
    x = cuda.Array(ones)
    kept = comm.stream(stream)
    for name in (stream, stream.number, cuda.OfProtocol(stream), cuda.OfCupy(stream), cuda.OfNumba(stream), kept, 0, 1, 2):
        work = comm.all_reduce(x, stream=name)
        check(isinstance(work, coll.Work))
        same(work.result(), ones * comm.size, name)
    kept.wait()
    event = kept.record()
    event.wait()
    check(kept.query())
    operation = comm.prepare("all_reduce", x, out=cuda.Array(np.zeros(6, "f4")))
    for name in (None, stream.number, stream):
        operation.start(name)
        same(operation.wait(), ones * comm.size, "operation")
    for wrong in ("5", 1.5, object(), True):
        raises(TypeError, comm.all_reduce, x, stream=wrong, says="stream")
    raises((coll.ArgumentError, coll.UnsupportedError), comm.all_reduce, x, stream=comm.stream(), says="1212")
    with coll.group():
        works = [comm.all_reduce(x, stream=stream) for _ in range(3)]
        plain = comm.all_reduce(x)
    for got in (plain, *[w.result() for w in works]):
        same(got, ones * comm.size, "group")
    x.entries["stream"] = stream.number
    with coll.group():
        raises(coll.ArgumentError, comm.all_reduce, x, says="group")
        work = comm.all_reduce(x, stream=stream)
    same(work.result(), ones * comm.size, "group")


class Graph:
    """What `record` does in a stream, launched as often as one likes."""

    def __init__(self, stream, record):
        graph, self.stream, self.launchable = cuda.c_void_p(), stream, cuda.c_void_p()
        cuda.call("cuStreamBeginCapture_v2", cuda.c_void_p(stream.number), 0)
        try:
            record()
        finally:
            cuda.call("cuStreamEndCapture", cuda.c_void_p(stream.number), cuda.byref(graph))
        cuda.call("cuGraphInstantiateWithFlags", cuda.byref(self.launchable), graph, cuda.c_uint64(0))
        cuda.call("cuGraphDestroy", graph)

    def launch(self):
        cuda.call("cuGraphLaunch", self.launchable, cuda.c_void_p(self.stream.number))
        self.stream.wait()

    def end(self):
        cuda.call("cuGraphExecDestroy", self.launchable)


def test_graphs(comm):
    """Calls of a stream that is being captured run at each launch, with the data of that launch."""
    stream, ones, n = cuda.Stream(), np.ones(6, "f4"), comm.size
    x, sums, products, all_of = (cuda.Array(of) for of in (ones, ones, ones, np.ones((n, 6), "f4")))
    operation = comm.prepare("all_reduce", x, "max", out=cuda.Array(ones))

    def record():
        work = comm.all_reduce(x, out=sums, stream=stream)
        check(work.done() and work.wait() is None, "a work of a graph has nothing to wait for")
        with coll.group():
            comm.all_gather(x, out=all_of, stream=stream)
            comm.all_reduce(x, "prod", out=products, stream=stream)
        operation.start(stream)
        operation.wait()
        # Refused, and the capture goes on.
        for refused, says in ((lambda: comm.all_reduce(x, stream=stream), "out="),
                              (lambda: comm.all_reduce(ones, out=sums, stream=stream), "device memory"),
                              (lambda: comm.all_reduce(x, out=np.ones(6, "f4"), stream=stream), "device memory"),
                              (lambda: comm.send(x, (comm.rank + 1) % n, tag=3, stream=stream), "1217")):
            raises(coll.UnsupportedError, refused, says=says)
        x.entries["stream"] = stream.number
        raises(coll.UnsupportedError, lambda: comm.all_reduce(x, out=sums), says="give stream=")
        del x.entries["stream"]
        check(comm.empty_on_device(5) is not None, "memory, meanwhile")

    graph = Graph(stream, record)
    for launch in range(5):
        own = [ones * (r + 1 + launch) for r in range(n)]
        cuda.write(x.address, own[comm.rank].tobytes())
        graph.launch()
        same(sums, reduce_in("sum", own), "launch", launch)
        same(products, reduce_in("prod", own), "launch", launch)
        same(all_of, np.stack(own), "launch", launch)
        same(operation.wait(), reduce_in("max", own), "launch", launch)
        same(comm.all_reduce(x), reduce_in("sum", own), "between launches")
    graph.end()


def test_refused(comm):
    ones = np.ones(6, "f4")
    freed = cuda.Array(ones)
    cuda.free(freed.base)
    managed = cuda.c_uint64()
    cuda.call("cuMemAllocManaged", cuda.byref(managed), cuda.c_uint64(64), 1)
    cuda.use(1)
    other = cuda.Array(ones)
    cuda.use(0)
    for x, says in ((freed, "freed"), (cuda.Array(ones, data=(managed.value, False)), "managed"), (other, "cuda:1")):
        for stream in (None, cuda.Stream()):
            raises(coll.ArgumentError, comm.all_reduce, x, out=np.zeros(6, "f4"), stream=stream, says="1207")
            raises(coll.ArgumentError, comm.all_reduce, ones, out=x, stream=stream, says=says)
    freed.base = cuda.alloc(1)
    with coll.init(0, 1, id=coll.unique_id(), device="host") as alone:
        equal(alone.device, "host")
        before = cuda.calls()
        for x in (cuda.Array(ones), cuda.Dlpack(ones), cuda.Tabled(ones), comm.empty_on_device(6)):
            made = cuda.calls()
            raises(coll.UnsupportedError, alone.all_reduce, x, says="no device")
            raises(coll.UnsupportedError, alone.all_reduce, ones, out=x, says="no device")
            equal(cuda.calls(), made)
        check(before <= cuda.calls())
        raises(coll.UnsupportedError, alone.all_reduce, ones, stream=cuda.Stream(), says="no device")
        raises(coll.ArgumentError, alone.empty_on_device, 5, says="no device")
    same(comm.all_reduce(cuda.Array(ones)), ones * comm.size, "after all refusals")


def test_lifetimes(comm):
    """A Work and its arrays may be dropped; they live until the call has ended."""
    stream, ones = cuda.Stream(), np.ones(6, "f4")
    stream.hold()
    x, out = cuda.Array(ones), cuda.Array(ones)
    alive = [weakref.ref(x), weakref.ref(out)]
    address = out.address
    comm.all_reduce(x, out=out, stream=stream)
    del x, out
    gc.collect()
    check(all(a() is not None for a in alive), "an array of a call in progress is gone")
    stream.let_go()
    stream.wait()
    equal(np.frombuffer(cuda.read(address, 24), "f4").tolist(), [comm.size] * 6)
    until(lambda: comm.stream(stream).query() and all(a() is None for a in alive))
    before = cuda.available()
    for _ in range(20):
        comm.all_reduce(comm.empty_on_device(1 << 14), stream=stream).wait()
    equal(cuda.available(), before, "memory is not freed")
    child = comm.duplicate()
    kept = child.all_reduce(cuda.Array(ones))
    child.close()
    same(kept, ones * comm.size, "after close()")


def test_exception(comm):
    """An exception on one rank ends the calls of the others, whose streams go on."""
    stream, ones = cuda.Stream(), np.ones(6, "f4")
    child, x = comm.duplicate(), cuda.Array(ones)
    child.all_reduce(x, stream=stream).wait()
    comm.barrier()
    if comm.rank == 1:
        try:
            with child:
                raise ValueError("no such file")
        except ValueError:
            pass
    else:
        out = cuda.Array(np.zeros(6, "f4"))
        raises(coll.AbortedError, lambda: child.all_reduce(x, out=out, stream=stream).wait(), says="ValueError: no such file")
        stream.wait()
        raises(coll.AbortedError, child.all_reduce, x, says="no such file")
        child.close()
    same(comm.all_reduce(x, stream=stream).result(), ones * comm.size, "another communicator, the same stream")


def test_devices_are_named(comm):
    equal(comm.device, "cuda:0")
    equal(comm.duplicate().device, "cuda:0")
    for device, name in (("cuda:1", "cuda:1"), (1, "cuda:1"), ("cuda", "cuda:0"), ("host", "host"), (None, "cuda:0")):
        with coll.init(0, 1, id=coll.unique_id(), device=device) as alone:
            equal(alone.device, name, device)
    for device in ([1, 0], "cuda:1,0", (1, 0)):
        comms = coll.init_all(2, device=device)
        equal([c.device for c in comms], ["cuda:1", "cuda:0"])
        threads = [threading.Thread(target=c.close) for c in comms]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    for wrong in ("gpu", "cuda:9", True, 1.5):
        raises(ValueError, coll.init, 0, 1, id=coll.unique_id(), device=wrong)


if __name__ == "__main__":
    os.environ.update(COLL_DEVICE="cuda:0", COLL_ARRIVAL_TIMEOUT_MS="60000")
    cuda.use(0)
    main(test_every_call, test_in_streams, test_mixed, test_interface, test_results, test_dlpack, test_order, test_readers_wait,
         test_names_of_streams, test_graphs, test_refused, test_lifetimes, test_exception, test_devices_are_named)
