"""Types of coll._coll, which is written in C (python/native)."""

from typing import Any, Callable, Literal, Protocol, Sequence, SupportsIndex, TypeVar, final, overload

from ._comm import Message as _Message
from ._work import Work as _Work

_T = TypeVar("_T")

# What has elements in memory: numpy arrays, torch tensors, array.array, memoryview, bytes, Buffer, all with DLPack or
# __cuda_array_interface__.
_Array = Any
_Name = Literal["sum", "prod", "min", "max", "avg", "band", "bor", "bxor", "land", "lor", "lxor"]
_Counts = Sequence[int]

@final
class Op:
    """A reduction made by Communicator.op() or premul_sum()."""

    def close(self) -> None:
        """All ranks close the same operations in the same order; the end of the communicator closes the others."""

@final
class Event:
    """A point in a stream. Several threads may wait for it."""

    def wait(self, timeout: float | None = None) -> None:
        """Wait until it is reached; raises the first error of the stream, or TimeoutError."""
    def query(self) -> bool:
        """Whether it is reached."""

@final
class Stream:
    """A queue of calls that run one after the other, while the program goes on. Made by Communicator.stream()."""

    def wait(self, timeout: float | None = None) -> None:
        """Wait until all calls are complete; raises the first error of the stream, or TimeoutError."""
    def query(self) -> bool:
        """Whether all calls are complete; raises the first error of the stream."""
    def record(self) -> Event:
        """A point behind all calls so far."""
    def wait_event(self, event: Event) -> None:
        """Calls made from now on wait for the event."""
    def close(self) -> None:
        """Complete its calls, then free it. The end of the communicator does it, too."""

@final
class Buffer:
    """An array of this package: the buffer protocol and DLPack, no arithmetic."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of elements along each axis."""
    @property
    def dtype(self) -> str:
        """The element type: "f32", "i64", "bf16" ..."""
    @property
    def address(self) -> int:
        """Of the first byte."""
    @property
    def nbytes(self) -> int:
        """Length in bytes."""
    def tolist(self) -> Any:
        """The elements as Python numbers, in lists of lists."""
    def __len__(self) -> int: ...
    def __getitem__(self, key: Any) -> Any: ...
    def __setitem__(self, key: Any, value: Any) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

@final
class DeviceArray:
    """An array in memory of a device, made by a call or by Communicator.empty_on_device(): DLPack and
    __cuda_array_interface__, no arithmetic. Its end waits for the work of the device, as that of cudaFree() does."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of elements along each axis."""
    @property
    def dtype(self) -> str:
        """The element type: "f32", "i64", "bf16" ..."""
    @property
    def address(self) -> int:
        """Of the first byte, on the device."""
    @property
    def nbytes(self) -> int:
        """Length in bytes."""
    @property
    def device(self) -> str:
        """The device: "cuda:0" ..."""
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...
    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

@final
class Receive:
    """A posted receive. One thread waits for it. One that is dropped is cancelled."""

    def wait(self, timeout: float | None = None) -> _Message:
        """Wait for the message; TimeoutError: none yet, and the receive goes on. CancelledError: it was cancelled."""
    def done(self) -> bool:
        """Whether the message has come, or the receive has failed or was cancelled."""
    def cancel(self) -> bool:
        """Take it back. False: too late, it has a message."""

@final
class Operation:
    """A call that is prepared once and started often, with the same arrays. Calling it starts it and waits."""

    def start(self, stream: _Stream | None = None) -> None:
        """Start the call; on a stream, behind what it holds. One start at a time."""
    def wait(self, timeout: float | None = None) -> Any:
        """Wait, and return what the call returns; TimeoutError: it goes on."""
    def __call__(self) -> Any:
        """Start it, wait, and return what the call returns."""
    def close(self) -> None:
        """Free it, here alone. The end of the communicator does it, too."""

class _HasCudaStream(Protocol):
    def __cuda_stream__(self) -> tuple[int, int]: ...

class _OfTorch(Protocol):
    @property
    def cuda_stream(self) -> int: ...

class _OfCupy(Protocol):
    @property
    def ptr(self) -> int: ...

class _OfNumba(Protocol):
    @property
    def handle(self) -> Any: ...

# A Stream, or a stream of this rank's device: its number (cudaStream_t), an object with __cuda_stream__(), or a stream of torch, cupy
# or numba.
_Stream = Stream | int | _HasCudaStream | _OfTorch | _OfCupy | _OfNumba

class Work:
    def done(self) -> bool:
        """Whether the call is complete."""
    @property
    def _is_done(self) -> bool: ...
    @property
    def _failed(self) -> bool: ...
    def _result(self, timeout: float | None, /) -> Any: ...
    def _exception(self, timeout: float | None, /) -> BaseException | None: ...

class Comm:
    @property
    def rank(self) -> int:
        """This rank, from 0."""
    @property
    def size(self) -> int:
        """Number of ranks."""
    @property
    def local_rank(self) -> int:
        """Index among the ranks of this host."""
    @property
    def local_size(self) -> int:
        """Number of ranks of this host."""
    @property
    def closed(self) -> bool:
        """Whether it was closed, here or by a fork."""
    @property
    def handle(self) -> int:
        """coll_comm *, for C libraries that are linked with the same libcoll."""
    @property
    def device(self) -> str:
        """The device whose memory this rank may pass beside host memory: "cuda:0" ...; "host": none."""
    @property
    def last_way(self) -> str | None:
        """How the last completed call was carried out (docs/guide/ways.md)."""
    @property
    def _stats(self) -> list[dict[str, Any]]: ...
    @property
    def last_error(self) -> BaseException | None:
        """The last error of this communicator; None: there was none."""
    def host(self, rank: int, /) -> str:
        """The name of the host of a rank."""
    def transport(self, rank: int, /) -> str:
        """What connects this rank with that one: shm, tcp ..."""
    def progress(self) -> bool:
        """Advance calls on streams, without waiting. True: some are not complete."""

    # Each call: with out=None a new array like x; out=x works in place; with stream= a Work at once.
    # The docstring of the first overload counts for all.
    @overload
    def all_reduce(self, x: _Array, op: _Name | Op = "sum", *, out: _T, stream: None = None) -> _T:
        """The reduction over all ranks, on every rank: an array like x."""
    @overload
    def all_reduce(self, x: _T, op: _Name | Op = "sum", *, out: None = None, stream: None = None) -> _T: ...
    @overload
    def all_reduce(self, x: _Array, op: _Name | Op = "sum", *, out: Any = None, stream: _Stream) -> _Work: ...
    @overload
    def reduce(self, x: _Array, op: _Name | Op = "sum", root: int = 0, *, out: Any = None, stream: None = None) -> Any:
        """The reduction over all ranks, at the root; None elsewhere."""
    @overload
    def reduce(self, x: _Array, op: _Name | Op = "sum", root: int = 0, *, out: Any = None, stream: _Stream) -> _Work: ...
    @overload
    def broadcast(self, x: _T, root: int = 0, *, stream: None = None) -> _T:
        """x of the root, written in place on the others; returns x."""
    @overload
    def broadcast(self, x: _Array, root: int = 0, *, stream: _Stream) -> _Work: ...
    @overload
    def all_gather(self, x: _Array, *, out: Any = None, counts: _Counts | Literal["any"] | None = None,
                   stream: None = None) -> Any:
        """The arrays of all ranks, on every rank: shape (size,) + x.shape; with counts, joined along axis 0.

        counts are the rows of each rank; "any": the ranks exchange them first.
        """
    @overload
    def all_gather(self, x: _Array, *, out: Any = None, counts: _Counts | Literal["any"] | None = None,
                   stream: _Stream) -> _Work: ...
    @overload
    def reduce_scatter(self, x: _Array, op: _Name | Op = "sum", *, out: Any = None, counts: _Counts | None = None,
                       stream: None = None) -> Any:
        """This rank's part, along axis 0, of the reduction over all ranks.

        counts are the rows of each rank's part; without them the parts are equal.
        """
    @overload
    def reduce_scatter(self, x: _Array, op: _Name | Op = "sum", *, out: Any = None, counts: _Counts | None = None,
                       stream: _Stream) -> _Work: ...
    @overload
    def all_to_all(self, x: _Array, *, out: Any = None, in_counts: _Counts | None = None,
                   out_counts: _Counts | None = None, stream: None = None) -> Any:
        """Part r of axis 0 goes to rank r; the result has the parts from ranks 0, 1, ... in this order.

        in_counts and out_counts are the rows to and from each rank; without them the parts are equal.
        """
    @overload
    def all_to_all(self, x: _Array, *, out: Any = None, in_counts: _Counts | None = None,
                   out_counts: _Counts | None = None, stream: _Stream) -> _Work: ...
    @overload
    def gather(self, x: _Array, root: int = 0, *, out: Any = None, counts: _Counts | Literal["any"] | None = None,
               stream: None = None) -> Any:
        """As all_gather() at the root; None elsewhere."""
    @overload
    def gather(self, x: _Array, root: int = 0, *, out: Any = None, counts: _Counts | Literal["any"] | None = None,
               stream: _Stream) -> _Work: ...
    @overload
    def scatter(self, x: _Array | None, root: int = 0, *, out: Any = None, counts: _Counts | None = None,
                stream: None = None) -> Any:
        """This rank's part of axis 0 of the root's x. Elsewhere x is None, and out= is needed."""
    @overload
    def scatter(self, x: _Array | None, root: int = 0, *, out: Any = None, counts: _Counts | None = None,
                stream: _Stream) -> _Work: ...
    @overload
    def scan(self, x: _Array, op: _Name | Op = "sum", *, out: _T, stream: None = None) -> _T:
        """The reduction over ranks 0 to this one: an array like x."""
    @overload
    def scan(self, x: _T, op: _Name | Op = "sum", *, out: None = None, stream: None = None) -> _T: ...
    @overload
    def scan(self, x: _Array, op: _Name | Op = "sum", *, out: Any = None, stream: _Stream) -> _Work: ...
    @overload
    def exclusive_scan(self, x: _Array, op: _Name | Op = "sum", *, out: _T, stream: None = None) -> _T | None:
        """The reduction over the ranks before this one: an array like x. Rank 0 has none: None, and out stays."""
    @overload
    def exclusive_scan(self, x: _T, op: _Name | Op = "sum", *, out: None = None, stream: None = None) -> _T | None: ...
    @overload
    def exclusive_scan(self, x: _Array, op: _Name | Op = "sum", *, out: Any = None, stream: _Stream) -> _Work: ...
    @overload
    def barrier(self, *, stream: None = None) -> None:
        """Returns when all ranks have called it."""
    @overload
    def barrier(self, *, stream: _Stream) -> _Work: ...
    @overload
    def send(self, x: _Array, peer: int, *, tag: int | None = None, stream: None = None) -> None:
        """Send x. Without a tag the peer receives as many elements; with one, it may have room for more."""
    @overload
    def send(self, x: _Array, peer: int, *, tag: int | None = None, stream: _Stream) -> _Work: ...
    @overload
    def recv(self, x: _T, peer: int, *, tag: int | None = None, stream: None = None) -> _T:
        """Receive into x, and return it. With a tag, peer and tag may be coll.ANY, and x may be longer than the message."""
    @overload
    def recv(self, x: _Array, peer: int, *, tag: int | None = None, stream: _Stream) -> _Work: ...
    @overload
    def send_recv(self, x: _Array | None, dest: int | None, out: Any, source: int | None, *, stream: None = None) -> Any:
        """Send x to dest and receive into out from source at the same time; returns out. None: no such side."""
    @overload
    def send_recv(self, x: _Array | None, dest: int | None, out: Any, source: int | None, *, stream: _Stream) -> _Work: ...
    def prepare(self, name: str, /, *args: Any, **arguments: Any) -> Operation:
        """The call of that name with these arguments, to be started often. Collective."""

    # For coll._comm.
    @property
    def _held(self) -> bool: ...
    @property
    def _busy(self) -> str | None: ...
    @property
    def _thread(self) -> int: ...
    def _open(self, rank: int, size: int, id: bytes | None, exchange: Any, settings: list[str], log: bool, /) -> None: ...
    def _close(self, when: int, /) -> None: ...
    def _withdraw(self) -> None: ...
    def _abort(self, reason: str, exit_status: int = 0, /) -> None: ...
    def _set_name(self, name: str, /) -> None: ...
    def _split(self, colour: int, key: int, /) -> Any: ...
    def _duplicate(self) -> Any: ...
    def _sub(self, ranks: Any, /) -> Any: ...
    def _group(self, ranks: Any, tag: int, /) -> Any: ...
    def _shrink(self) -> tuple[Any, list[int]]: ...
    def _set_timeout(self, timeout: float | None, arrival: float | None, /) -> None: ...
    def _empty(self, shape: tuple[SupportsIndex, ...], dtype: str, on_device: bool, /) -> Any: ...
    def _register(self, x: _Array, on: bool, /) -> None: ...
    def _explain(self, collective: str, count: int, dtype: str, /) -> str: ...
    def _probe(self, peer: int, tag: int, wait: bool, /) -> tuple[int, int, int, str] | None: ...
    def _irecv(self, x: _Array, peer: int, tag: int, /) -> Receive: ...
    def _op(self, function: Callable[[memoryview, memoryview], object], commutative: bool, /) -> Op: ...
    def _premul_sum(self, scale: bytes, dtype: str, /) -> Op: ...

def setup(error: Any, argument: Any, unsupported: Any, like: Any, describe: Any, advice: Any, work: Any, message: Any, /) -> None: ...
def raw(address: int, shape: tuple[SupportsIndex, ...], dtype: str, owner: Any, /) -> Buffer: ...
def version() -> int: ...
def unique_id() -> bytes: ...
def library() -> str: ...
def status_string(status: int, /) -> str: ...
def open_all(kind: type[Comm], n: int, settings: list[str], log: bool, /) -> Any: ...
def stream(comm: Comm, named: Any, /) -> Stream: ...
def group_begin() -> None: ...
def group_open() -> bool: ...
def group_end(reason: str | None, /) -> None: ...
def reap() -> None: ...
def thread() -> int: ...
def log_attach(on: bool, /) -> None: ...
def log_wait(wait: bool, /) -> list[tuple[int, str]] | None: ...
def log_flush(write: bool, /) -> None: ...
def log_ending() -> None: ...
def outcome(work: Any, future: Any, /) -> Any: ...
def watch(work: Work, /) -> bool: ...
def lead(work: Work, /) -> None: ...
def sleep() -> None: ...
def wake() -> None: ...
def taken() -> list[Any]: ...
