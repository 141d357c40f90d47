"""CUDA tensors of torch on the stand-in driver, for a torch without CUDA: memory, streams, and the operations that coll.torch makes.

A Tensor says that it is on cuda:0 and lies in memory of the stand-in. Copies are put into the current stream of the thread, as torch
does; arithmetic is done on the host, behind that stream. Memory that is given back is handed out again at once, as torch's
allocator does within one stream, and before that keeps its values: what is read or written too late is seen.
"""

import contextlib
import ctypes
import os
import threading
from ctypes import byref, c_uint64, c_void_p

os.environ.setdefault("SOFTCUDA_QUEUES", "32")
import cuda_driver as driver
from ranks import needs

(torch,) = needs("torch")

DEVICE = torch.device("cuda", 0)
_aten = torch.ops.aten
_here = threading.local()


def enter():
    """The context of the device is that of this thread."""
    if not getattr(_here, "entered", False):
        _here.entered = True
        driver.use(0)


# ---- Memory ----


class Memory:
    """A block of the device."""

    free = {}
    lock = threading.RLock()

    def __init__(self, length):
        self.length = 1 << max(9, (length - 1).bit_length() if length > 1 else 0)
        with Memory.lock:
            ready = Memory.free.setdefault(self.length, [])
            self.address = ready.pop() if ready else driver.alloc(self.length)

    def __del__(self):
        Memory.free[self.length].append(self.address)


def reserve(count, *lengths):
    """Make blocks, so that none has to be made while a stream waits."""
    enter()
    made = [Memory(length) for length in lengths for _ in range(count)]
    del made


# ---- Streams ----


class Stream:
    def __init__(self, number=None):
        enter()
        handle = c_void_p()
        if number is None:
            driver.call("cuStreamCreate", byref(handle), 1)
        self.cuda_stream = handle.value or 0
        self.page = driver.Pinned(4)
        self.word = ctypes.c_uint32.from_address(self.page.address)

    def hold(self):
        """What comes behind waits for let_go()."""
        self.word.value = 0
        driver.call("cuStreamWaitValue32_v2", c_void_p(self.cuda_stream), c_uint64(self.page.address), 1, 0)

    def let_go(self):
        self.word.value = 1

    def idle(self):
        enter()
        return driver._library.cuStreamQuery(c_void_p(self.cuda_stream)) == 0

    def synchronize(self):
        enter()
        driver.call("cuStreamSynchronize", c_void_p(self.cuda_stream))


class Event:
    def __init__(self, stream):
        enter()
        self.handle = c_void_p()
        driver.call("cuEventCreate", byref(self.handle), 2)
        driver.call("cuEventRecord", self.handle, c_void_p(stream.cuda_stream))

    def query(self):
        enter()
        status = driver._library.cuEventQuery(self.handle)
        if status not in (0, 600):
            raise RuntimeError(f"cuEventQuery: {status}")
        return status == 0

    def synchronize(self):
        enter()
        driver.call("cuEventSynchronize", self.handle)

    def __del__(self):
        driver._library.cuEventDestroy_v2(self.handle)


_default = Stream(0)


class Cuda:
    """What coll.torch asks of torch.cuda."""

    def __init__(self, streams=24):
        self.pool = [Stream() for _ in range(streams)]

    def current(self, device=DEVICE):
        return getattr(_here, "current", _default)

    def stream(self, device=DEVICE):
        self.pool.append(self.pool.pop(0))
        return self.pool[-1]

    @contextlib.contextmanager
    def inside(self, stream):
        before = self.current()
        _here.current = stream
        try:
            yield
        finally:
            _here.current = before

    def event(self, stream):
        return Event(stream)

    def follow(self, stream, event):
        enter()
        driver.call("cuStreamWaitEvent", c_void_p(stream.cuda_stream), event.handle, 0)

    def finish(self, stream):
        stream.synchronize()

    def capturing(self):
        state = ctypes.c_int()
        enter()
        driver.call("cuStreamIsCapturing", c_void_p(self.current().cuda_stream), byref(state))
        return state.value != 0

    def future(self, device):
        return Future()


class Future:
    """torch's own refuses tensors of a device that torch was built without."""

    def __init__(self):
        self.event, self.got, self.chained, self.is_set = None, None, [], threading.Event()

    def set_result(self, value):
        self.got, self.event = value, Event(cuda.current())
        self.is_set.set()
        for function in self.chained:
            function()

    def wait(self):
        self.is_set.wait()
        cuda.follow(cuda.current(), self.event)
        return self.got

    def done(self):
        return self.is_set.is_set()

    def then(self, function):
        after = Future()
        self.chained.append(lambda: after.set_result(function(self)))
        if self.done():
            self.chained.pop()()
        return after


class Graph:
    """What is put into a stream in the `with`; launch() runs it."""

    def __init__(self, stream):
        self.stream, self.graph, self.ready = c_void_p(stream.cuda_stream), c_void_p(), c_void_p()

    def __enter__(self):
        driver.call("cuStreamBeginCapture_v2", self.stream, 0)

    def __exit__(self, *error):
        driver.call("cuStreamEndCapture", self.stream, byref(self.graph))
        driver.call("cuGraphInstantiateWithFlags", byref(self.ready), self.graph, c_uint64(0))

    def launch(self):
        driver.call("cuGraphLaunch", self.ready, self.stream)


cuda = Cuda()
torch.cuda.get_device_capability = lambda device=None: (9, 0)  # torch asks before it reduces 8-bit floats


# ---- Tensors ----


_KINDS = {torch.bfloat16: 4, torch.bool: 6, torch.float8_e4m3fn: 10, torch.float8_e4m3fnuz: 11, torch.float8_e5m2: 12,
          torch.float8_e5m2fnuz: 13}


def _kind(dtype):
    if dtype in _KINDS:
        return _KINDS[dtype]
    return 5 if dtype.is_complex else 2 if dtype.is_floating_point else 0 if dtype.is_signed else 1


class _Storage:
    def __init__(self, memory):
        self.memory = memory

    def data_ptr(self):
        return self.memory.address


class Tensor(torch.Tensor):
    @staticmethod
    def __new__(cls, memory, dtype, shape, strides, at=0, device=DEVICE):
        """at: bytes from the start of the memory."""
        made = torch.Tensor._make_wrapper_subclass(cls, shape, strides=strides, storage_offset=at // dtype.itemsize, dtype=dtype,
                                                   device=device)
        made.memory, made.at = memory, at
        return made

    def data_ptr(self):
        return self.memory.address + self.at

    def untyped_storage(self):
        return _Storage(self.memory)

    # These ask for the device before they come to __torch_dispatch__.

    def copy_(self, source, non_blocking=False):
        return _copy(self, source)

    def contiguous(self, **words):
        return self if self.is_contiguous() else _clone(self)

    def __repr__(self, **words):
        return f"<on the device: {host(self)}>"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in _OPERATIONS:
            return _OPERATIONS[func](*args, **kwargs)
        if func.is_view or func is _aten._unsafe_view.default:
            return _view(func, args, kwargs)
        raise NotImplementedError(f"{func} of tensors on the stand-in")


def _view(func, args, kwargs):
    """Other shapes and strides of the same memory, as torch finds them for a tensor without memory."""
    x = args[0]
    whole = torch.empty(x.memory.length, dtype=torch.uint8, device="meta").view(x.dtype)
    found = func(whole.as_strided(x.shape, x.stride(), x.storage_offset()), *args[1:], **kwargs)
    made = [Tensor(x.memory, y.dtype, y.shape, y.stride(), y.storage_offset() * y.element_size())
            for y in (found if isinstance(found, (list, tuple)) else [found])]
    return made if isinstance(found, (list, tuple)) else made[0]


def empty(shape, dtype=torch.float32):
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    strides = torch.empty(shape, device="meta").stride()
    count = 1
    for n in shape:
        count *= n
    return Tensor(Memory(count * dtype.itemsize), dtype, shape, strides)


def _places(x):
    """Where each element lies: bytes from its address."""
    if isinstance(x, Tensor):
        strides, start = x.stride(), x.data_ptr()
    else:
        strides, start = x.stride(), x.data_ptr()
    at = torch.full(x.shape, start, dtype=torch.int64)
    for axis, (n, stride) in enumerate(zip(x.shape, strides)):
        shape = [1] * len(x.shape)
        shape[axis] = n
        at = at + (torch.arange(n) * stride * x.element_size()).view(shape)
    return at.reshape(-1).tolist()


def _runs(to, source):
    """(to, from, bytes) of pieces that lie together at both ends."""
    size = to.element_size()
    if to.is_contiguous() and source.is_contiguous():
        if to.numel():
            yield to.data_ptr(), source.data_ptr(), to.numel() * size
        return
    runs = []
    for a, b in zip(_places(to), _places(source)):
        if runs and runs[-1][0] + runs[-1][2] == a and runs[-1][1] + runs[-1][2] == b:
            runs[-1][2] += size
        else:
            runs.append([a, b, size])
    yield from runs


def _copy(to, source, non_blocking=False):
    if source.dtype != to.dtype or source.is_conj() or source.is_neg():
        source = host(source).resolve_conj().resolve_neg().to(to.dtype)
    if tuple(source.shape) != tuple(to.shape):
        source = source.expand(to.shape)
    stream = c_void_p(cuda.current().cuda_stream)
    enter()
    name = {(True, True): "cuMemcpyDtoDAsync_v2", (True, False): "cuMemcpyHtoDAsync_v2", (False, True): "cuMemcpyDtoHAsync_v2"}[
        isinstance(to, Tensor), isinstance(source, Tensor)]
    for a, b, length in _runs(to, source):
        driver.call(name, c_uint64(a) if isinstance(to, Tensor) else c_void_p(a), c_uint64(b) if isinstance(source, Tensor) else c_void_p(b),
                    c_uint64(length), stream)
    if name != "cuMemcpyDtoDAsync_v2":
        cuda.current().synchronize()
    return to


def host(x):
    """A copy in host memory, when the current stream has come to it."""
    return _copy(torch.empty(x.shape, dtype=x.dtype), x) if isinstance(x, Tensor) else x


def device(x):
    """A copy on the device, put into the current stream."""
    return _copy(empty(x.shape, x.dtype), x)


def laid_out(x):
    """The same, with the strides of x and the memory around it, which is that of its base."""
    base = x if x._base is None else x._base
    home = device(base.reshape(-1).view(torch.uint8) if base.numel() else torch.empty(0, dtype=torch.uint8))
    return Tensor(home.memory, x.dtype, x.shape, x.stride(), x.storage_offset() * x.element_size())


def _clone(x, **words):
    return _copy(empty(x.shape, x.dtype), x)


def _cat(parts, dim=0):
    made, at = empty((sum(p.numel() for p in parts),), parts[0].dtype), 0
    for p in parts:
        _copy(made.narrow(0, at, p.numel()), p)
        at += p.numel()
    return made


def _to(x, dtype=None, device=None, **words):
    made = host(x) if dtype is None else host(x).to(dtype)
    return made if device is not None and torch.device(device).type == "cpu" else globals()["device"](made)


def _reshape(x, shape):
    y = x if x.is_contiguous() else _clone(x)
    return _view(_aten.view.default, (y, shape), {})


_OPERATIONS = {
    _aten.clone.default: _clone,
    _aten.cat.default: _cat,
    _aten._to_copy.default: _to,
    _aten.reshape.default: _reshape,
    _aten.new_empty.default: lambda x, shape, dtype=None, **words: empty(shape, dtype or x.dtype),
    _aten.empty_like.default: lambda x, **words: empty(x.shape, words.get("dtype") or x.dtype),
    _aten.mul.Tensor: lambda x, factor: device(host(x) * (host(factor) if isinstance(factor, torch.Tensor) else factor)),
}


# ---- DLPack's table, as torch's own tensors have ----


@driver._from_object
def _read(x, out):
    t = out.contents
    t.data, t.device, t.device_id, t.ndim = x.data_ptr(), 2, 0, x.dim()
    t.code, t.bits, t.lanes, t.offset = _kind(x.dtype), 8 * x.dtype.itemsize, 1, 0
    x.dims = (driver.c_int64 * max(1, 2 * x.dim()))(*x.shape, *x.stride())
    t.shape = ctypes.cast(x.dims, driver.POINTER(driver.c_int64))
    t.strides = ctypes.cast(ctypes.addressof(x.dims) + 8 * x.dim(), driver.POINTER(driver.c_int64))
    return 0


@driver._current_stream
def _read_current(kind, number, out):
    out[0] = cuda.current().cuda_stream or None
    return 0


_table = driver._Table(driver._Version(1, 3), None, None, None, None, _read, _read_current)
Tensor.__dlpack_c_exchange_api__ = driver._new_capsule(ctypes.addressof(_table), driver._TABLE, None)
