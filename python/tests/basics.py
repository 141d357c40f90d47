"""Every call with what Python has by itself: no numpy, no torch. usage: collrun -n N python basics.py"""

import array
import ctypes
import inspect
import pickle
import struct
import sys

import coll
from ranks import check, equal, floats, main, raises

INTS = {"sum": lambda a, b: a + b, "prod": lambda a, b: a * b, "min": min, "max": max,
        "band": lambda a, b: a & b, "bor": lambda a, b: a | b, "bxor": lambda a, b: a ^ b,
        "land": lambda a, b: int(bool(a) and bool(b)), "lor": lambda a, b: int(bool(a) or bool(b)),
        "lxor": lambda a, b: int(bool(a) != bool(b))}


def fold(op, values):
    """Logical operations give 0 or 1, of one value too."""
    result = int(bool(values[0])) if op[0] == "l" else values[0]
    for v in values[1:]:
        result = INTS[op](result, v)
    return result


def test_reductions(comm):
    n, everyone = comm.size, range(comm.size)
    for op in INTS:
        mine = array.array("i", [(comm.rank + 1) * k % 7 for k in range(9)])
        columns = [[(r + 1) * k % 7 for r in everyone] for k in range(9)]
        wanted = [fold(op, c) for c in columns]
        equal(comm.all_reduce(mine, op).tolist(), wanted, "all_reduce", op)
        copy = mine[:]
        check(comm.all_reduce(copy, op, out=copy) is copy)
        equal(copy.tolist(), wanted, "all_reduce in place", op)
        got = comm.reduce(mine, op, n - 1)
        equal(got.tolist() if got is not None else None, wanted if comm.rank == n - 1 else None, "reduce", op)
        equal(comm.scan(mine, op).tolist(), [fold(op, c[:comm.rank + 1]) for c in columns], "scan", op)
        before = comm.exclusive_scan(mine, op)
        equal(before and before.tolist(), [fold(op, c[:comm.rank]) for c in columns] if comm.rank else None, "exclusive_scan", op)
        tall = array.array("i", mine.tolist() * n)
        out = array.array("i", bytes(4 * 9))
        equal(comm.reduce_scatter(tall, op, out=out).tolist(), wanted, "reduce_scatter", op)
    equal(comm.all_reduce(floats(1, 2, comm.rank), "avg").tolist(), [1, 2, (n - 1) / 2])


def test_moves(comm):
    n, rank = comm.size, comm.rank
    x = floats(rank, rank + 0.5)
    got = comm.all_gather(x)
    equal((got.shape, got.dtype), ((n, 2), "f32"))
    equal(got.tolist(), [[r, r + 0.5] for r in range(n)])
    root = n - 1
    got = comm.gather(x, root)
    equal(got.tolist() if got is not None else None, [[r, r + 0.5] for r in range(n)] if rank == root else None)
    y = floats(7, 8) if rank == root else floats(0, 0)
    check(comm.broadcast(y, root) is y)
    equal(y.tolist(), [7, 8])
    equal(comm.all_to_all(floats(*(10 * rank + d for d in range(n)))).tolist(), [10 * s + rank for s in range(n)])
    out = floats(0, 0)
    comm.scatter(floats(*range(2 * n)) if rank == root else None, root, out=out)
    equal(out.tolist(), [2 * rank, 2 * rank + 1])
    if rank == root:
        equal(comm.scatter(floats(*range(2 * n)), root).tolist(), [2 * rank, 2 * rank + 1])
    else:
        comm.scatter(None, root, out=out)
    check(comm.barrier() is None)
    equal(comm.all_reduce(bytes(3)).tolist(), [0, 0, 0], "read-only input")
    equal(comm.all_reduce(floats()).tolist(), [], "nothing")


def test_counts(comm):
    n, rank = comm.size, comm.rank
    counts = [r + 1 for r in range(n)]
    mine = floats(*[rank] * counts[rank])
    joined = [float(r) for r in range(n) for _ in range(r + 1)]
    for how in (counts, tuple(counts), array.array("Q", counts), "any"):
        equal(comm.all_gather(mine, counts=how).tolist(), joined, "counts", how)
        got = comm.gather(mine, 0, counts=how)
        equal(got.tolist() if got is not None else None, joined if rank == 0 else None)
    got = comm.reduce_scatter(floats(*range(sum(counts))), counts=counts)
    begin = sum(counts[:rank])
    equal(got.tolist(), [n * float(v) for v in range(begin, begin + counts[rank])])
    out = floats(*[0] * counts[rank])
    comm.scatter(floats(*range(sum(counts))) if rank == 0 else None, out=out, counts=counts)
    equal(out.tolist(), [float(v) for v in range(begin, begin + counts[rank])])
    # Rank s sends s + 2 d elements to rank d.
    x = floats(*[100 * rank + d for d in range(n) for _ in range(rank + 2 * d)])
    got = comm.all_to_all(x, in_counts=[rank + 2 * d for d in range(n)], out_counts=[s + 2 * rank for s in range(n)])
    equal(got.tolist(), [100.0 * s + rank for s in range(n) for _ in range(s + 2 * rank)])


def test_layouts(comm):
    """Every second element, and from the end: copied and written back."""
    n = comm.size
    for step in (2, -1, -3):
        data = array.array("i", range(30))
        view = memoryview(data)[::step]
        values = view.tolist()
        check(comm.all_reduce(view, out=view) is view)
        equal(view.tolist(), [n * v for v in values], "in place, step", step)
        others = [v for i, v in enumerate(data) if i not in range(30)[::step]]
        equal(others, [i for i in range(30) if i not in range(30)[::step]], "between, step", step)
        out = memoryview(array.array("i", bytes(4 * 2 * len(values))))[::2]
        comm.all_reduce(view, out=out)
        equal(out.tolist(), [n * n * v for v in values])
    tall = memoryview(array.array("d", range(2 * n)))[::-1]
    equal(comm.all_to_all(tall).shape, (2 * n,))
    square = memoryview(bytearray(struct.pack("6h", *range(6)))).cast("h", (2, 3))
    equal(comm.all_reduce(square).tolist(), [[0, n, 2 * n], [3 * n, 4 * n, 5 * n]])


def test_types(comm):
    n = comm.size
    for letter in "bBhHiIlLqQfd":
        got = comm.all_reduce(array.array(letter, [1, 2, 3]))
        equal(got.tolist(), [n, 2 * n, 3 * n], letter)
    flags = memoryview(bytearray([comm.rank == 0, 0, 1])).cast("?")
    equal(comm.all_reduce(flags).tolist(), [True, False, True], "bool, sum")
    equal(comm.all_reduce(flags, "prod").tolist(), [n == 1, False, True], "bool, prod")
    raises(coll.ArgumentError, comm.all_reduce, flags, "avg", says="no 'avg'")
    text = memoryview(b"\0\0ab").cast("c")
    equal(bytes(comm.all_gather(text, out=bytearray(4 * n))), b"\0\0ab" * n)
    raises(coll.ArgumentError, comm.all_reduce, text, says="can be moved but not reduced")


class Masked(bytearray):
    """As numpy's masked arrays, which hand out their memory and not their mask."""

    mask = True

    def filled(self, value):
        return bytes(self)


class Column:
    """As a column of pandas: no buffer, and perhaps values that are missing."""

    def __init__(self, *missing):
        self.missing = missing

    def isna(self):
        return memoryview(bytes(self.missing))

    def to_numpy(self):
        return None


def test_help(comm):
    """What is written in C has docstrings, and signatures with the names of its arguments."""
    for kind in (coll.Communicator, coll.Work, coll.Stream, coll.Event, coll.Op, coll.Operation, coll.Receive, coll.Buffer, coll.DeviceArray):
        check(inspect.getdoc(kind), kind)
        for name, member in inspect.getmembers(kind):
            if name.startswith("_"):
                continue
            check(inspect.getdoc(member), kind, name)
            if callable(member):
                inspect.signature(member)
    equal(str(inspect.signature(comm.all_reduce)), "(x, op='sum', *, out=None, stream=None)")
    equal(str(inspect.signature(comm.host)), "(rank, /)")
    equal(inspect.getdoc(comm.scan), "The reduction over ranks 0 to this one: an array like x.")
    # The names are those that the calls take: a wrong one is refused by name, these are not.
    x = floats(1, 2)
    for name in ("all_reduce", "reduce", "scan"):
        words = inspect.signature(getattr(comm, name)).parameters
        values = {"x": x, "op": "max", "root": 0, "out": None, "stream": None}
        getattr(comm, name)(**{word: values[word] for word in words})


def test_arguments(comm):
    """Refused before anything is sent, alike on one rank alone: the communicator goes on."""
    x = floats(1, 2, 3)
    raises(coll.ArgumentError, comm.all_reduce, x, "summ", says="'summ'")
    raises(coll.ArgumentError, comm.all_reduce, x, out=floats(1, 2), says="out has 2 elements, 3 are needed")
    raises(coll.ArgumentError, comm.all_reduce, x, out=array.array("d", [1, 2, 3]), says="type")
    raises(coll.ArgumentError, comm.all_reduce, x, out=bytes(12), says="read-only")
    raises(coll.ArgumentError, comm.all_reduce, bytes(4), "sum", out=bytes(4), says="read-only")
    raises(coll.ArgumentError, comm.all_reduce, 3.0, says="pass numpy.asarray() of it")
    raises(coll.ArgumentError, comm.all_reduce, [1.0, 2.0], says="pass numpy.asarray() of it")
    raises(coll.ArgumentError, comm.all_reduce, {1: 2}, says="send_object")
    raises(coll.ArgumentError, comm.all_reduce, Column(), says="pass x.to_numpy()")
    raises(coll.ArgumentError, comm.all_reduce, Column(0, 1), says="has missing values")
    raises(coll.ArgumentError, comm.all_reduce, Masked(8), says="x is masked (<class ")
    raises(coll.ArgumentError, comm.all_reduce, x, out=Masked(12), says="out is masked")
    raises(coll.ArgumentError, comm.all_reduce, None, says="x is None")
    raises(coll.ArgumentError, comm.broadcast, x, comm.size, says="root is")
    raises(coll.ArgumentError, comm.broadcast, x, -1, says="root is")
    raises(coll.ArgumentError, comm.all_gather, x, counts=[3] * (comm.size + 1), says="one for each")
    raises(coll.ArgumentError, comm.all_gather, x, counts=[4] * comm.size, says="x has 3 elements")
    for wrong in (-1, "3", 1 << 64):
        raises(coll.ArgumentError, comm.all_gather, x, counts=[wrong] * comm.size, says="counts")
    raises(coll.ArgumentError, comm.all_gather, x, counts=3, says="counts")
    raises(coll.ArgumentError, comm.all_gather, x, counts=comm.empty((comm.size, 1), "i32"), says="counts")
    raises(coll.ArgumentError, comm.send, x, None, tag=1, says="peer is None")
    raises(coll.ArgumentError, comm.explain, "all_reduce", -1, says="count")
    raises(coll.ArgumentError, comm.all_to_all, x, in_counts=[1] * comm.size, says="go together")
    raises(ValueError, comm.all_reduce, x, "summ")
    raises(TypeError, comm.all_reduce, says="misses argument 'x'")
    raises(TypeError, comm.all_reduce, x, "sum", x, says="positional")
    raises(TypeError, comm.all_reduce, x, outt=x, says="no argument 'outt'")
    raises(TypeError, comm.all_reduce, x, x=x, says="twice")
    raises(TypeError, comm.all_reduce, x, stream="3", says="stream")
    raises(coll.UnsupportedError, comm.all_reduce, x, stream=3, says="no device")
    raises(coll.ArgumentError, comm.send, x, comm.size, says="peer is")
    raises(coll.ArgumentError, comm.host, comm.size)
    raises(coll.ArgumentError, comm.explain, "all_reduce", 4, "f31", says="f31")
    if comm.size > 1:
        raises(coll.ArgumentError, comm.all_to_all, floats(*range(comm.size + 1)), says="cannot share equally")
        raises(coll.ArgumentError, comm.scatter, None, (comm.rank + 1) % comm.size, says="out is needed")

    class Device:
        __cuda_array_interface__ = {}

    class Tensor:
        def __dlpack__(self, **words):
            raise BufferError("no tensor today")

    raises(coll.UnsupportedError, comm.all_reduce, Device(), says="copy the array to the host")
    error = raises(coll.ArgumentError, comm.all_reduce, Tensor(), says="no tensor today")
    check(isinstance(error.__cause__, BufferError))
    equal(comm.all_reduce(x).tolist(), [comm.size * v for v in x], "afterwards")


def test_dlpack(comm):
    """An object that has DLPack and nothing else, of the old and of the new form."""
    class Old:
        def __init__(self, of):
            self.of = of

        def __dlpack__(self, stream=None):
            return self.of.__dlpack__()

        def __dlpack_device__(self):
            return self.of.__dlpack_device__()

    class New(Old):
        def __dlpack__(self, *, stream=None, max_version=None):
            return self.of.__dlpack__(max_version=max_version)

    for kind in (Old, New):
        below = comm.all_reduce(floats(1, 2))
        x = kind(below)
        check(comm.all_reduce(x, out=x) is x)
        equal(below.tolist(), [comm.size ** 2, 2 * comm.size ** 2])
    equal(below.__dlpack_device__(), (1, 0))
    memory = array.array("i", range(6))
    moved = Crafted(memory, 8, (2,), None)
    comm.all_reduce(moved, out=moved)
    equal(memory.tolist(), [0, 1, 2 * comm.size, 3 * comm.size, 4, 5], "at an offset")
    spread = Crafted(memory, 4, (2,), (3,))
    equal(comm.all_reduce(spread).tolist(), [comm.size, 4 * comm.size], "with strides in elements")
    raises(coll.UnsupportedError, comm.all_reduce, Crafted(memory, 0, (2,), None, device=2), says="copy the array to the host")
    raises(coll.UnsupportedError, comm.all_reduce, Crafted(memory, 0, (2,), None, bits=4), says="4 bits")
    raises(coll.UnsupportedError, comm.all_reduce, Newer(memory), says="DLPack 2.3")

    class Interrupted:
        def __dlpack__(self, **words):
            raise KeyboardInterrupt

    raises(KeyboardInterrupt, comm.all_reduce, Interrupted())


def test_without_memory(comm):
    """An address that is NULL is refused, wherever it is read from and however the elements lie."""
    nothing = (ctypes.c_int * 4).from_address(0)
    for x in (nothing, memoryview(nothing)[::2], Crafted(None, 0, (2,), None), Crafted(None, 8, (2,), (3,))):
        raises(coll.ArgumentError, comm.all_reduce, x, says="x has no memory")
        raises(coll.ArgumentError, comm.all_reduce, array.array("i", [1] * len(x)), out=x, says="out has no memory")
    equal(comm.all_gather(Crafted(None, 8, (0,), (3,))).shape, (comm.size, 0), "no elements need none")
    error = raises(coll.ArgumentError, comm.broadcast, Crafted(None, 0, (2,), None), says="Crafted")
    check("to_local" not in str(error))
    Wrapper = type("Wrapper", (Crafted,), {"to_local": None})
    raises(coll.ArgumentError, comm.broadcast, Wrapper(None, 0, (2,), None), says="to_local()")


def test_impossible_shapes(comm):
    """Shapes that no memory can have: below zero, more bytes than there are addresses, elements of no bytes."""
    memory = array.array("i", range(6))
    wrong = [Crafted(memory, 0, shape, strides) for shape, strides in (
        ((-2,), None), ((-2, -3), None), ((1 << 32, 1 << 32), None), ((0, 1 << 32, 1 << 32), None), ((1 << 62,), (0,)),
        ((1 << 31, 1 << 31), (0, 0)), ((1,) * 65, None))]
    nameless, Empty = Crafted(memory, 0, (2,), None), type("Empty", (ctypes.Structure,), {"_fields_": []})
    nameless.tensor.shape = None
    for x in (*wrong, nameless, (Empty * 1000)()):
        raises(coll.ArgumentError, comm.broadcast, x, says="x has an impossible shape")
        raises(coll.ArgumentError, comm.all_reduce, memory, out=x, says="out has an impossible shape")
    raises(coll.UnsupportedError, comm.broadcast, Crafted(memory, 0, (2,), None, bits=0), says="0 bits")
    equal(comm.broadcast(Crafted(memory, 0, (1 << 40, 0), None)).kept[0], memory, "empty")


class Crafted:
    """A DLPack tensor made by hand, of i32, over the memory of an array, or over none."""

    class Tensor(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32), ("device_id", ctypes.c_int32),
                    ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                    ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                    ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
                    ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]

    def __init__(self, memory, offset, shape, strides, device=1, bits=32):
        sizes = (ctypes.c_int64 * len(shape))(*shape)
        steps = (ctypes.c_int64 * len(shape))(*strides) if strides else None
        self.kept = memory, sizes, steps
        self.tensor = self.Tensor(memory.buffer_info()[0] if memory else None, device, 0, len(shape), 0, bits, 1, sizes, steps, offset)

    def __len__(self):
        return self.kept[1][0]

    def __dlpack__(self, **words):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.tensor), self.name, None)

    name = b"dltensor"


class Newer(Crafted):
    """A tensor of a version of DLPack whose layout nobody can tell yet."""

    class Header(ctypes.Structure):
        _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("rest", ctypes.c_uint64 * 16)]

    def __init__(self, memory):
        self.tensor = self.Header(2, 3)

    name = b"dltensor_versioned"


def fortran(x):
    """A view in the order of Fortran, which only C code asks for."""
    view, get = ctypes.create_string_buffer(200), ctypes.pythonapi.PyObject_GetBuffer
    get.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int]
    get(x, view, 0x40 | 0x10 | 0x8)
    ctypes.pythonapi.PyBuffer_Release(view)


class Number:
    """A number of an array library."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


def test_buffers(comm):
    equal([comm.empty(s).shape for s in (Number(2), (Number(2), 3), [2], Number(0))], [(2,), (2, 3), (2,), (0,)])
    ones = comm.empty(comm.size, "i32")
    for i in range(comm.size):
        ones[i] = 1
    for counts in (ones, [Number(1)] * comm.size):
        equal(comm.all_gather(floats(comm.rank), counts=counts).tolist(), list(range(comm.size)))
    equal(list(ones), [1] * comm.size, "as a sequence")
    raises(BufferError, ones.__dlpack__, dl_device=(2, 0))
    ones.__dlpack__(dl_device=(1, 0))
    raises(TypeError, ones.__dlpack__, dl_device=5, says="dl_device is 5")
    check('"dltensor"' in repr(ones.__dlpack__(max_version=(-1, 0))))
    equal(bytes(memoryview(comm.empty((2, 1), "i8")).tobytes("F")), b"\0\0")
    raises(BufferError, fortran, comm.empty((2, 3), "i8"))
    fortran(comm.empty((1, 3), "i8"))
    x = comm.empty((2, 3), "i16")
    equal((x.shape, x.dtype, x.nbytes, len(x), x.tolist()), ((2, 3), "i16", 12, 2, [[0] * 3] * 2))
    x[1, 2] = 5
    comm.all_reduce(x, out=x)
    equal(x[1, 2], 5 * comm.size)
    check("i16" in repr(x))
    raises(coll.ArgumentError, comm.empty, (2, -1))
    raises(coll.ArgumentError, comm.empty, 2, "f31")
    raises(coll.ArgumentError, comm.empty, (1 << 62, 4))
    equal(comm.all_reduce(comm.empty(0)).tolist(), [])
    brain = comm.empty(4, "bf16")
    memoryview(brain)[0] = 0x3f80  # 1.0
    equal(memoryview(comm.all_reduce(brain))[0], {1: 0x3f80, 2: 0x4000, 3: 0x4040, 4: 0x4080}[comm.size])
    data = floats(1, 2)
    address, _ = data.buffer_info()
    alias = coll.raw(address, 2, "f32", data)
    comm.all_reduce(alias, out=alias)
    equal(data.tolist(), [comm.size, 2 * comm.size])
    raises(coll.ArgumentError, coll.raw, 0, 2, "f32", says="address")
    with comm.register(data):
        comm.all_reduce(data, out=data)
    equal(data[0], comm.size ** 2)


def test_tolist(comm):
    """Every type has its numbers, in the shape of the Buffer."""
    def made(dtype, data, shape):
        x = comm.empty(shape, dtype)
        if data:
            memoryview(x).cast("B")[:] = data
        return x.tolist()

    bits = {"f16": 0x3e00, "bf16": 0x3fc0, "f8e4m3": 0x3c, "f8e5m2": 0x3e}
    for dtype, one_and_half in bits.items():
        data = one_and_half.to_bytes(1 if dtype[1] == "8" else 2, sys.byteorder)
        equal(made(dtype, data * 6, (2, 3)), [[1.5] * 3] * 2, dtype)
        equal(made(dtype, data, ()), 1.5, dtype, "without axes")
        equal(made(dtype, b"", (2, 0)), [[], []], dtype, "empty")
    equal(made("c64", struct.pack("=4f", 1.5, -2, 0, 1e-45), 2), [1.5 - 2j, complex(0, struct.unpack("f", struct.pack("f", 1e-45))[0])])
    equal(made("c128", struct.pack("=2d", 1.5, 1e-320), (1, 1)), [[1.5 + 1e-320j]])
    for dtype in ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f32", "f64", "bool"):
        x = comm.empty(3, dtype)
        x[1] = 1
        equal(x.tolist(), [0, 1, 0], dtype)


def test_operations(comm):
    n = comm.size

    def keep_larger(left, inout):
        for i, v in enumerate(left):
            inout[i] = max(v, inout[i])

    def last(left, inout):
        check(left.readonly and not inout.readonly and left.format == "i")

    x = array.array("i", [comm.rank, -comm.rank, 5])
    larger, right = comm.op(keep_larger), comm.op(last, commutative=False)
    equal(comm.all_reduce(x, larger).tolist(), [n - 1, 0, 5])
    equal(comm.all_reduce(x, right).tolist(), [n - 1, 1 - n, 5])
    kept = []
    keeper = comm.op(lambda left, inout: kept.append((left, inout)), commutative=False)
    equal(comm.all_reduce(array.array("i", [comm.rank] * 9), keeper).tolist(), [n - 1] * 9)
    check(n == 1 or kept)
    for left, inout in kept:
        equal(left.tolist() + inout.tolist(), [left[0]] * len(left) + [inout[0]] * len(left), "kept arguments have memory of their own")
    before = sys.getrefcount(keeper)
    keeper.close()
    equal(sys.getrefcount(keeper), before - 1, "a closed operation is not kept")
    larger.close()
    raises(coll.ArgumentError, comm.all_reduce, x, larger, says="is closed")
    twice = comm.premul_sum(2.0)
    equal(comm.all_reduce(floats(1, 2), twice).tolist(), [2 * n, 4 * n])
    raises(coll.ArgumentError, comm.premul_sum, 2.0, "i32", says="no float")
    if n > 1:
        other = comm.duplicate()
        raises(coll.ArgumentError, other.all_reduce, x, right, says="another communicator")
        other.close()


def test_pairs(comm):
    n, rank = comm.size, comm.rank
    if n == 1:
        raises(coll.ArgumentError, comm.send, floats(1), 0)
        return
    x, y = floats(rank), floats(-1)
    if rank == 0:
        comm.send(x, 1)
        equal(comm.recv(y, 1).tolist(), [1])
    elif rank == 1:
        equal(comm.recv(y, 0).tolist(), [0])
        comm.send(x, 0)
    comm.send_recv(x, (rank + 1) % n, y, (rank - 1) % n)
    equal(y.tolist(), [(rank - 1) % n])
    if rank == 0:
        comm.send_recv(x, 1, None, None)
    elif rank == 1:
        comm.send_recv(None, None, y, 0)
        equal(y.tolist(), [0])
    raises(coll.ArgumentError, comm.send_recv, x, None, y, 0)


def probes(comm, left, right, stream):
    """What a probe sees, a receive of its source and tag gets."""
    check(comm.iprobe() is None, "no message yet")
    comm.barrier()
    comm.send(array.array("h", [comm.rank] * 3), right, tag=21)
    comm.send(floats(comm.rank), right, tag=22)
    equal(comm.probe(tag=22), coll.Envelope(left, 22, 1, "f32"))
    for look in (comm.probe, comm.iprobe, lambda: comm.probe(left), lambda: comm.iprobe(left, 21)):
        seen = look()
        equal(tuple(seen), (left, 21, 3, "i16"))
    with coll.group():
        equal(comm.iprobe(left, 22).elements, 1)
        raises(coll.ArgumentError, comm.probe, left, 22)
    room = comm.empty(seen.elements, seen.dtype)
    equal(comm.recv(room, seen.source, tag=seen.tag).tolist(), [left] * 3)
    equal(comm.iprobe(left, 21), None)
    equal(comm.recv(floats(0), left, tag=22).tolist(), [left])
    comm.barrier()
    work = comm.send(floats(1, 2), right, tag=23, stream=stream)
    posted = comm.irecv(floats(0, 0), left, 23)
    posted.wait()
    work.wait()
    equal(comm.iprobe(), None, "a posted receive has taken it")
    for wrong in (lambda: comm.probe(comm.size), lambda: comm.iprobe(-2), lambda: comm.probe(left, -2)):
        raises(coll.ArgumentError, wrong)
    comm.barrier()


def test_tags(comm):
    n, rank = comm.size, comm.rank
    right, left = (rank + 1) % n, (rank - 1) % n
    # To each rank, itself among them, in another order than it is taken.
    first, second = floats(-1, -1), floats(-1, -1)
    got = [comm.irecv(second, left, 2), comm.irecv(first, left, 1)]
    comm.send(floats(rank, 1), right, tag=1)
    comm.send(floats(rank, 2), right, tag=2)
    equal(got[1].wait(timeout=20), coll.Message(left, 1, 2))
    equal(tuple(got[0].wait()), (left, 2, 2))
    equal((first.tolist(), second.tolist()), ([left, 1], [left, 2]))
    check(got[0].done() and got[0].cancel() is False and got[0].wait().tag == 2)
    # Any source, any tag; shorter than the array, which is not contiguous.
    room = memoryview(array.array("i", [9] * 8))[::2]
    waiting = comm.irecv(room)
    comm.send(array.array("i", [rank, 5]), right, tag=rank + 10)
    message = waiting.wait()
    equal(message, coll.Message(left, left + 10, 2))
    equal(room.tolist(), [left, 5, 9, 9])
    comm.barrier()
    # Blocking, on a stream, in a group.
    stream = comm.stream()
    with coll.group():
        later = comm.irecv(first, left, 4)
        comm.send(floats(4, rank), right, tag=4)
    later.wait()
    equal(first.tolist(), [4, left])
    work = comm.send(floats(6, rank), right, tag=6, stream=stream)
    check(comm.recv(first, coll.ANY, tag=6) is first)
    work.wait()
    equal(first.tolist(), [6, left])
    # A type or length that does not fit costs this message and nothing else.
    comm.send(floats(1, 2, 3), right, tag=7)
    raises(coll.ArgumentError, comm.irecv(first, left, 7).wait)
    comm.send(floats(1, 2), right, tag=7)
    raises(coll.ArgumentError, comm.irecv(array.array("i", [0, 0]), left, 7).wait)
    probes(comm, left, right, stream)
    # Taken back, and dropped.
    waiting = comm.irecv(first, left, 8)
    raises(TimeoutError, waiting.wait, 0.01)
    check(not waiting.done() and waiting.cancel() is True)
    raises(coll.CancelledError, waiting.wait)
    comm.irecv(floats(0), left, 9)
    comm.barrier()
    comm.send(floats(3), right, tag=9)
    equal(comm.recv(floats(0), left, tag=9).tolist(), [3], "the dropped receive took no message")
    if n > 1:
        comm.send_object({"from": rank}, right, tag=11)
        equal(comm.recv_object(coll.ANY, tag=coll.ANY), {"from": left})
    for wrong in (lambda: comm.send(first, right, tag=-1), lambda: comm.recv(first, n, tag=1),
                  lambda: comm.recv(first, left, tag=-2), lambda: comm.send(first, coll.ANY, tag=1),
                  lambda: comm.recv(first, coll.ANY), lambda: comm.recv(first, left, tag=1, stream=stream),
                  lambda: comm.irecv(b"1234", left, 1)):
        raises(coll.ArgumentError, wrong)


def test_objects(comm):
    n, rank = comm.size, comm.rank
    big = {"rank": rank, "data": bytearray([rank]) * 100000, "buffer": pickle.PickleBuffer(bytearray([rank] * 5000))}
    root = n - 1
    got = comm.broadcast_object(big if rank == root else None, root)
    equal((got["rank"], bytes(got["data"]), bytes(got["buffer"])), (root, bytes([root]) * 100000, bytes([root]) * 5000))
    equal(comm.all_gather_object(("é", rank, None)), [("é", r, None) for r in range(n)])
    got = comm.gather_object({rank}, 0)
    equal(got, [{r} for r in range(n)] if rank == 0 else None)
    equal(comm.scatter_object([[r] * r for r in range(n)] if rank == root else None, root), [rank] * rank)
    if n > 1 and rank < 2:
        if rank == 0:
            comm.send_object("to 1", 1)
        else:
            equal(comm.recv_object(0), "to 1")
    seen = []

    def loads(data, buffers=()):
        seen.append(len(data))
        return pickle.loads(data, buffers=buffers)

    equal(comm.all_gather_object(1, loads=loads), [1] * n)
    equal(len(seen), n)
    raises(coll.ArgumentError, comm.scatter_object, [0] * (n + 1), rank)
    calls = {"broadcast_object": (1,), "all_gather_object": (1,), "gather_object": (1,), "scatter_object": ([1] * n,),
             "send_object": (1, (rank + 1) % n), "recv_object": ((rank - 1) % n,)}

    def in_group(call, *args):
        with coll.group():
            call(*args)

    for name, args in calls.items():
        raises(coll.ArgumentError, in_group, getattr(comm, name), *args, says=name + ": the lengths of the objects")
        equal(comm.all_reduce(floats(1)).tolist(), [n], "after", name, "in a group")
    x = floats(1)
    with coll.group():
        comm.all_reduce(x, out=x)
        raises(coll.ArgumentError, comm.broadcast_object, 1, says="a group is open")
    equal(x.tolist(), [n], "the group goes on")


def test_children(comm):
    n, rank = comm.size, comm.rank
    half = comm.split(rank % 2, -rank)
    equal((half.size, half.rank), (len(range(rank % 2, n, 2)), len(range(rank % 2, n, 2)) - 1 - rank // 2))
    equal(half.all_reduce(floats(1)).tolist(), [half.size])
    none = comm.split(None)
    check(none is None)
    first = comm.sub([0])
    equal(first is not None, rank == 0)
    other = comm.duplicate()
    equal((other.rank, other.size), (rank, n))
    with other:
        equal(other.all_reduce(floats(1)).tolist(), [n])
    check(other.closed and not comm.closed)
    raises(coll.ArgumentError, other.all_reduce, floats(1), says="closed")
    other.close()
    half.close()
    raises(coll.ArgumentError, comm.sub, [-1])
    # Made by its members alone; the others are in another call meanwhile.
    members = list(range(n - 1, -1, -2))
    if rank in members:
        few = comm.group(members, tag=7)
        equal((few.size, few.rank), (len(members), members.index(rank)))
        equal(few.all_gather(floats(rank)).tolist(), [[float(r)] for r in members])
        few.close()
    comm.barrier()
    raises(coll.ArgumentError, comm.group, [n])


def test_queries(comm):
    equal(comm.transport(comm.rank), "self")
    check(comm.host(0) and 0 <= comm.local_rank < comm.local_size)
    check("all_reduce" in comm.explain("all_reduce", 1000, "f32"))
    comm.all_reduce(floats(1, 2))
    check(comm.last_way is None or isinstance(comm.last_way, str))
    before = sum(row["calls"] for row in comm.stats)
    comm.all_reduce(floats(1, 2))
    rows = comm.stats()
    equal(sum(row["calls"] for row in rows), before + 1)
    check(all(row["bytes"] >= 0 and row["waited_s"] >= 0 and row["transport"] and row["way"] for row in rows))
    check("rank" in repr(comm))
    equal(comm.name, "")
    comm.name = "tp-1"
    equal(comm.name, "tp-1")
    raises(coll.ArgumentError, setattr, comm, "name", "two words", says="(tp-1)")
    comm.name = ""
    comm.set_timeout(20, 30.5)
    comm.set_timeout()
    raises(coll.ArgumentError, comm.set_timeout, 0)
    raises(coll.ArgumentError, comm.set_timeout, -1)
    for copy in (pickle.dumps, __import__("copy").copy, __import__("copy").deepcopy):
        raises(TypeError, copy, comm, says="cannot be pickled")
    key = pickle.loads(pickle.dumps(coll.UniqueId(bytes(128))))
    check(isinstance(key, coll.UniqueId) and len(key) == 128)
    error = raises(coll.ArgumentError, comm.all_reduce, 1)
    again = pickle.loads(pickle.dumps(error))
    equal((type(again), again.status, str(again), again.lost), (coll.ArgumentError, 10, str(error), "call"))
    check(issubclass(coll.PeerDead, ConnectionError) and issubclass(coll.PeerLate, TimeoutError))
    raises(coll.ConfigError, coll.init, 0, 1, no_such_setting=1)
    for kind in (int, 5):
        raises(TypeError, coll._coll.open_all, kind, 1, [])
    raises(coll.ArgumentError, coll.init, 0, 1, id=b"short", says="UniqueId")
    alone = coll.init(0, 1, exchange=lambda mine: [mine], timeout_ms=1000)
    equal(alone.all_reduce(floats(3)).tolist(), [3])
    alone.close()


main(test_reductions, test_moves, test_counts, test_layouts, test_types, test_help, test_arguments, test_dlpack, test_without_memory,
     test_impossible_shapes, test_buffers, test_tolist, test_operations, test_pairs, test_tags, test_objects, test_children, test_queries)
