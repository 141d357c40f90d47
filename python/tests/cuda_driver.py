"""A program's own use of CUDA, on the stand-in driver: memory, streams, and arrays of several kinds in device memory.

The driver is the file of TEST_CUDA_LIBRARY, which this makes COLL_CUDA_LIBRARY, before the library reads it.
"""

import ctypes
import os
import sys
from ctypes import POINTER, byref, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p, py_object

PATH = os.environ.get("TEST_CUDA_LIBRARY", "")
if not os.path.exists(PATH):
    print(f"skipped: no stand-in driver at TEST_CUDA_LIBRARY={PATH!r}")
    sys.exit(77)
os.environ["COLL_CUDA_LIBRARY"] = PATH
_library = ctypes.CDLL(PATH)
_library.softcuda_enqueued.restype = ctypes.c_long
_library.softcuda_done.restype = ctypes.c_long
_library.softcuda_count.restype = ctypes.c_long
_library.softcuda_count.argtypes = [c_char_p]


def call(name, *args):
    status = getattr(_library, name)(*args)
    if status != 0:
        raise RuntimeError(f"{name}: {status}")


def calls(name=None):
    return _library.softcuda_count(None if name is None else name.encode())


def enqueued():
    return _library.softcuda_enqueued()


def use(device):
    """The context of a device becomes that of this thread."""
    context = c_void_p()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", byref(context), device)
    call("cuCtxSetCurrent", context)


def alloc(length):
    address = c_uint64()
    call("cuMemAlloc_v2", byref(address), c_uint64(max(length, 1)))
    return address.value


def free(address):
    call("cuMemFree_v2", c_uint64(address))


def write(address, data, stream=None):
    """In a stream: when the stream reaches it; `data` is copied first into memory that the caller keeps."""
    if stream is None:
        if data:
            call("cuMemcpyHtoD_v2", c_uint64(address), data, c_uint64(len(data)))
        return None
    kept = Pinned(len(data))
    ctypes.memmove(kept.address, data, len(data))
    call("cuMemcpyHtoDAsync_v2", c_uint64(address), c_void_p(kept.address), c_uint64(len(data)), c_void_p(stream))
    return kept


def read(address, length):
    data = ctypes.create_string_buffer(max(length, 1))
    if length:
        call("cuMemcpyDtoH_v2", data, c_uint64(address), c_uint64(length))
    return data.raw[:length]


def available():
    """Bytes of the device that are free."""
    left, total = c_uint64(), c_uint64()
    call("cuMemGetInfo_v2", byref(left), byref(total))
    return left.value


class Pinned:
    """Host memory that the device knows."""

    def __init__(self, length):
        self.pointer = c_void_p()
        call("cuMemHostAlloc", byref(self.pointer), c_uint64(max(length, 1)), 3)
        self.address = self.pointer.value


class Stream:
    """A stream with a word that can hold it. torch's name for its handle, and those of others by subclasses."""

    def __init__(self):
        handle = c_void_p()
        call("cuStreamCreate", byref(handle), 1)
        self.number = handle.value
        self.page = Pinned(4)
        self.word = c_uint32.from_address(self.page.address)

    @property
    def cuda_stream(self):
        return self.number

    def hold(self):
        """What comes behind waits for let_go()."""
        self.word.value = 0
        on_device = c_uint64()
        call("cuMemHostGetDevicePointer_v2", byref(on_device), c_void_p(self.page.address), 0)
        call("cuStreamWaitValue32_v2", c_void_p(self.number), on_device, 1, 0)

    def let_go(self):
        self.word.value = 1

    def idle(self):
        return _library.cuStreamQuery(c_void_p(self.number)) == 0

    def wait(self):
        call("cuStreamSynchronize", c_void_p(self.number))


class OfProtocol:
    def __init__(self, stream):
        self.of = stream

    def __cuda_stream__(self):
        return 0, self.of.number


class OfCupy:
    def __init__(self, stream):
        self.ptr = stream.number


class OfNumba:
    def __init__(self, stream):
        self.handle = c_void_p(stream.number)


class Array:
    """__cuda_array_interface__ over memory of its own, filled from a numpy array."""

    def __init__(self, of, *, stream=None, version=3, shift=0, **changes):
        self.length = of.nbytes
        self.base = alloc(self.length + shift)
        self.address = self.base + shift
        write(self.address, of.tobytes())
        self.shape, self.dtype = of.shape, of.dtype
        entries = {"shape": of.shape, "typestr": of.dtype.str, "data": (self.address, False), "version": version}
        if version == 3:
            entries.update(strides=None, stream=stream)
        self.entries = {**entries, **changes}

    @property
    def __cuda_array_interface__(self):
        return self.entries

    def bytes(self):
        return read(self.address, self.length)

    def __del__(self):
        free(self.base)


# ---- DLPack ----


class _Tensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device", c_int32), ("device_id", c_int32), ("ndim", c_int32), ("code", c_uint8), ("bits", c_uint8),
                ("lanes", c_uint16), ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)), ("offset", c_uint64)]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", c_void_p), ("deleter", c_void_p)]


class _Version(ctypes.Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32)]


_from_object = ctypes.PYFUNCTYPE(ctypes.c_int, py_object, POINTER(_Tensor))
_current_stream = ctypes.PYFUNCTYPE(ctypes.c_int, c_int32, c_int32, POINTER(c_void_p))


class _Table(ctypes.Structure):
    _fields_ = [("version", _Version), ("older", c_void_p), ("allocate", c_void_p), ("managed", c_void_p), ("to_object", c_void_p),
                ("from_object", _from_object), ("current_stream", _current_stream)]


_codes = {"i": 0, "u": 1, "f": 2, "b": 6, "c": 5, "bf16": 4}
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = py_object, [c_void_p, c_char_p, c_void_p]
# A capsule keeps no copy of its name.
_TENSOR, _TABLE = b"dltensor", b"dlpack_exchange_api"


def _fill(tensor, array, device=2):
    tensor.data, tensor.device, tensor.device_id, tensor.ndim = array.address, device, 0, len(array.shape)
    tensor.code = array.code if array.code is not None else _codes[array.dtype.kind]
    tensor.bits, tensor.lanes = 8 * array.dtype.itemsize, 1
    array.dims = (c_int64 * max(1, len(array.shape)))(*array.shape)
    tensor.shape, tensor.strides, tensor.offset = array.dims, None, 0


class Dlpack:
    """Another library's array with __dlpack__(stream=): its data are made by `stream`, which it orders before the reader's."""

    device = 2

    def __init__(self, of, stream=None, code=None, address=None):
        self.memory = Array(of)
        self.address, self.shape, self.dtype, self.stream, self.code = address or self.memory.address, of.shape, of.dtype, stream, code
        self.asked = []

    def bytes(self):
        return self.memory.bytes()

    def __dlpack_device__(self):
        return self.device, 0

    def __dlpack__(self, *, stream=None, max_version=None):
        self.asked.append(stream)
        if self.stream is not None and stream != -1:
            event = c_void_p()
            call("cuEventCreate", byref(event), 2)
            call("cuEventRecord", event, c_void_p(self.stream.number))
            call("cuStreamWaitEvent", c_void_p(0 if stream is None else stream), event, 0)
        self.managed = _Managed()
        _fill(self.managed.tensor, self, self.device)
        return _new_capsule(ctypes.addressof(self.managed), _TENSOR, None)


class Tabled:
    """The same by DLPack's table of C functions, as torch's tensors are read. `current` is the stream of all of them."""

    current = None
    code = None

    def __init__(self, of):
        self.memory = Array(of)
        self.address, self.shape, self.dtype = self.memory.address, of.shape, of.dtype

    def bytes(self):
        return self.memory.bytes()


@_from_object
def _read_tabled(array, out):
    _fill(out.contents, array)
    return 0


@_current_stream
def _read_current(device, number, out):
    out[0] = Tabled.current.number if Tabled.current is not None else None
    return 0


_table = _Table(_Version(1, 3), None, None, None, None, _read_tabled, _read_current)
Tabled.__dlpack_c_exchange_api__ = _new_capsule(ctypes.addressof(_table), _TABLE, None)
