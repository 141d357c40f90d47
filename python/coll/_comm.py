"""Communicators, groups and persistent operations. The calls that move data are in C (coll._coll.Comm)."""

from __future__ import annotations

import array
import contextlib
import logging
import operator
import struct
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Sequence, SupportsIndex

from . import _coll, _life, _log, _objects, _secret
from ._buffers import like
from ._coll import Buffer, DeviceArray, Op, Stream
from ._errors import ArgumentError, PeerDead

Operation = _coll.Operation
Receive = _coll.Receive

# Any rank, any tag.
ANY = -1


class Message(NamedTuple):
    """What a receive got: from which rank, with which tag, and how many elements of the array."""

    source: int
    tag: int
    elements: int


class Envelope(NamedTuple):
    """What a probe sees: from which rank, with which tag, and how many elements of which type. Complex numbers count twice."""

    source: int
    tag: int
    elements: int
    dtype: str


class UniqueId(bytes):
    """128 bytes that rank 0 makes and hands to the others by any means; they pickle."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "coll.UniqueId(...)"


class Stats(list[dict[str, Any]]):
    """Counters, a dict for each transport and way. Calling it gives itself."""

    __slots__ = ()

    def __call__(self) -> Stats:
        return self


class Communicator(_coll.Comm):
    """The ranks that call together. Made by init(), split(), duplicate(), sub(). One thread at a time uses it."""

    __slots__ = ("__weakref__", "_label")

    # ---- Children ----

    def split(self, colour: int | None, key: int = 0) -> Communicator | None:
        """One child per colour, its ranks ordered by key; colour None: this rank is in none, and gets None."""
        return _kept(self._split(-1 if colour is None else colour, key))

    def duplicate(self) -> Communicator:
        """The same ranks, with an order of calls of its own: for another thread, or for independent work."""
        child = _kept(self._duplicate())
        assert child is not None
        return child

    def sub(self, ranks: Iterable[int]) -> Communicator | None:
        """The ranks listed become 0, 1, ... of a child. All ranks of this communicator call it; others get None."""
        return _kept(self._sub(ranks))

    def group(self, ranks: Iterable[int], tag: int = 0) -> Communicator:
        """The same, called by the ranks listed alone. Groups of the same ranks that they may make in different orders
        need different tags."""
        child = _kept(self._group(ranks, tag))
        assert child is not None
        return child

    def shrink(self) -> tuple[Communicator, list[int]]:
        """The members that live as a new communicator, in the order of their ranks, and the ranks of this one that are missing. All that
        live call it, also when this communicator has failed; they agree on one list. It ends all calls on this one, which is to be closed.
        TimeoutError: too few answer for a decision; call it again. Excluded: the others have decided without this rank."""
        child, lost = self._shrink()
        _life.hold(child)
        return child, lost

    def set_timeout(self, timeout: float | None = None, arrival: float | None = None) -> None:
        """Time limits of waits, in seconds: for a peer that does not answer, and for one that does not make the call.
        None: as in the settings. They count here, and for communicators made from this one later."""
        self._set_timeout(timeout, arrival)

    @property
    def name(self) -> str:
        """A name for people, in errors and log lines about this communicator, and in dumps: at most 31 letters, digits and
        . _ - : / +. "": none. Ranks may give different ones."""
        return getattr(self, "_label", "")

    @name.setter
    def name(self, name: str) -> None:
        self._set_name(name)
        self._label = name

    @property
    def stats(self) -> Stats:
        """Counters of the calls that have ended, a dict for each transport and way: transport, way, calls, bytes, waited_s. comm.stats() is
        the same."""
        return Stats(self._stats)

    # ---- Streams, memory, operations ----

    def stream(self, cuda_stream: Any = None) -> Stream:
        """A queue of calls that go on while the program computes.

        cuda_stream, a stream of this rank's device by its number or as an object of another library, makes it a name for that
        stream: calls are put into it, and neither wait for it nor make it wait on the host.
        """
        return _coll.stream(self, cuda_stream)

    def empty(self, shape: SupportsIndex | Sequence[SupportsIndex], dtype: str = "f32") -> Buffer:
        """Zeroed memory that all ranks of the host map: the fastest. numpy.asarray() and torch.from_dlpack() view it."""
        made: Buffer = self._empty(_shape(shape), dtype, False)
        return made

    def empty_on_device(self, shape: SupportsIndex | Sequence[SupportsIndex], dtype: str = "f32") -> DeviceArray:
        """Memory of this rank's device, not zeroed. cupy.asarray() and torch.from_dlpack() view it."""
        made: DeviceArray = self._empty(_shape(shape), dtype, True)
        return made

    @contextlib.contextmanager
    def register(self, x: Any) -> Iterator[Any]:
        """Announce an array for faster access, for the time of a `with`."""
        self._register(x, True)
        try:
            yield x
        finally:
            if not self.closed:
                self._register(x, False)

    def op(self, function: Callable[[memoryview, memoryview], object], commutative: bool = True) -> Op:
        """A reduction: function(left, inout) sets inout[i] = left[i] op inout[i]; left comes from lower ranks.

        All ranks make the same operations in the same order.
        """
        return self._op(function, commutative)

    def premul_sum(self, scale: float, dtype: str = "f32") -> Op:
        """The sum of scale * x, for arrays of this type."""
        return self._premul_sum(_scalar(scale, dtype), dtype)

    # ---- Messages with tags ----

    def irecv(self, x: Any, peer: int = ANY, tag: int = ANY) -> Receive:
        """Post a receive into x of a message with a tag, and return at once; Receive.wait() says what came."""
        return self._irecv(x, peer, tag)

    def probe(self, peer: int = ANY, tag: int = ANY) -> Envelope:
        """Wait for a message with a tag, and leave it where it is: receive it with the source and the tag of the result."""
        if _coll.group_open():
            raise ArgumentError("probe: it might wait for the end of the group that is open")
        envelope = self._probe(peer, tag, True)
        assert envelope is not None
        return Envelope(*envelope)

    def iprobe(self, peer: int = ANY, tag: int = ANY) -> Envelope | None:
        """What probe() gives, without waiting. None: there is no such message."""
        envelope = self._probe(peer, tag, False)
        return Envelope(*envelope) if envelope else None

    # ---- Objects ----

    def broadcast_object(self, value: Any = None, root: int = 0, *, loads: _objects.Loads | None = None) -> Any:
        """The object of the root, on every rank. Unpickling runs code of the peer: trust it, or give `loads`."""
        _refuse_group("broadcast_object")
        mine = _objects.pack(value) if self.rank == root else bytearray()
        length = array.array("Q", [len(mine)])
        self.broadcast(length, root)
        message = mine if self.rank == root else bytearray(length[0])
        self.broadcast(message, root)
        return value if self.rank == root else _objects.unpack(message, loads)

    def all_gather_object(self, value: Any, *, loads: _objects.Loads | None = None) -> list[Any]:
        """The objects of all ranks, on every rank."""
        _refuse_group("all_gather_object")
        mine = _objects.pack(value)
        lengths = array.array("Q", bytes(8 * self.size))
        self.all_gather(array.array("Q", [len(mine)]), out=lengths)
        everything = bytearray(sum(lengths))
        self.all_gather(mine, out=everything, counts=lengths)
        return [_objects.unpack(m, loads) for m in _cut(everything, lengths)]

    def gather_object(self, value: Any, root: int = 0, *, loads: _objects.Loads | None = None) -> list[Any] | None:
        """The objects of all ranks at the root; None elsewhere."""
        _refuse_group("gather_object")
        mine = _objects.pack(value)
        at_root = self.rank == root
        lengths = array.array("Q", bytes(8 * self.size if at_root else 0))
        self.gather(array.array("Q", [len(mine)]), root, out=lengths if at_root else None)
        everything = bytearray(sum(lengths))
        self.gather(mine, root, out=everything if at_root else None, counts=lengths)
        return [_objects.unpack(m, loads) for m in _cut(everything, lengths)] if at_root else None

    def scatter_object(self, values: Sequence[Any] | None = None, root: int = 0, *,
                       loads: _objects.Loads | None = None) -> Any:
        """Object number `rank` of the root's sequence."""
        _refuse_group("scatter_object")
        if self.rank == root and (values is None or len(values) != self.size):
            raise ArgumentError(f"scatter_object: the root gives {self.size} objects, one for each rank")
        messages = [_objects.pack(v) for v in values] if self.rank == root and values is not None else []
        lengths, length = _objects.lengths_of(messages), array.array("Q", [0])
        self.scatter(lengths if messages else None, root, out=length)
        message = bytearray(length[0])
        self.scatter(bytearray().join(messages) if messages else None, root, out=message,
                     counts=lengths if messages else [0] * self.size)
        return _objects.unpack(message, loads)

    def send_object(self, value: Any, peer: int, *, tag: int | None = None) -> None:
        """To recv_object() of the peer."""
        _refuse_group("send_object")
        message = _objects.pack(value)
        self.send(array.array("Q", [len(message)]), peer, tag=tag)
        self.send(message, peer, tag=tag)

    def recv_object(self, peer: int, *, tag: int | None = None, loads: _objects.Loads | None = None) -> Any:
        """From send_object() of the peer. With a tag, peer and tag may be coll.ANY."""
        _refuse_group("recv_object")
        length = array.array("Q", [0])
        if tag is None:
            self.recv(length, peer)
        else:
            first = self.irecv(length, peer, tag).wait()
            peer, tag = first.source, first.tag
        message = bytearray(length[0])
        self.recv(message, peer, tag=tag)
        return _objects.unpack(message, loads)

    # ---- The end ----

    def abort(self, reason: str = "no reason given", exit_status: int = 0) -> None:
        """End all calls on all ranks with AbortedError. Any thread may call it.

        exit_status: what the job is to end with. Others find it in the error, and collrun ends with it. 0: nothing is said."""
        self._abort(reason, exit_status)

    def close(self) -> None:
        """Destroy the communicator. Collective, but waits only for a bounded time. An exit of the process does it, too.

        Arrays of empty() stay valid: the memory goes with the last of them.
        """
        self._end(0)

    def _end(self, how: int) -> None:
        try:
            self._close(how)
        finally:
            _life.forget()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or isinstance(error, SystemExit) and not error.code:
            try:
                self.close()
            except PeerDead as death:  # of one that no call in the block needed
                _log.say(f"coll: {death}", logging.WARNING)
            return
        self._abort(_life.reason_of(error))
        with contextlib.suppress(Exception):
            self.close()

    def explain(self, collective: str, count: int, dtype: str = "f32") -> str:
        """One line that says how such a call would run."""
        return self._explain(collective, count, dtype)

    def __repr__(self) -> str:
        return "<coll.Communicator, closed>" if self.closed else f"<coll.Communicator, rank {self.rank} of {self.size}>"

    def __reduce__(self) -> Any:
        raise TypeError("a communicator cannot be pickled: the other process makes its own, with coll.init() and a "
                        "UniqueId, or with split() of one that it has")

    def __copy__(self) -> Any:
        return self.__reduce__()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.__reduce__()


def _shape(shape: SupportsIndex | Sequence[SupportsIndex]) -> tuple[SupportsIndex, ...]:
    """Numbers of array libraries are numbers, too."""
    try:
        return (operator.index(shape),)  # type: ignore[arg-type]
    except TypeError:
        return tuple(shape)  # type: ignore[arg-type]


def _kept(child: Communicator | None) -> Communicator | None:
    if child is not None:
        _life.hold(child)
    return child


def _refuse_group(name: str) -> None:
    """The lengths of objects are sent first and read; in a group they arrive at its end."""
    if _coll.group_open():
        raise ArgumentError(f"{name}: the lengths of the objects are exchanged first, and a group is open")


def _cut(everything: bytearray, lengths: Iterable[int]) -> Iterator[memoryview]:
    """A copy of each message, so that one object does not keep the memory of all."""
    view, at = memoryview(everything), 0
    for n in lengths:
        yield memoryview(bytearray(view[at:at + n]))
        at += n


def _scalar(value: float, dtype: str) -> bytes:
    """One element of a float type."""
    if dtype in ("c64", "c128"):
        dtype = "f32" if dtype == "c64" else "f64"
    if dtype == "bf16":
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
        return struct.pack("=H", (bits + 0x7fff + (bits >> 16 & 1)) >> 16)
    letters = {"f16": "=e", "f32": "=f", "f64": "=d"}
    if dtype not in letters:
        raise ArgumentError(f"premul_sum: '{dtype}' is no float type")
    return struct.pack(letters[dtype], value)


def _lines(settings: dict[str, Any]) -> list[str]:
    lines = []
    for name, value in settings.items():
        text = str(int(value)) if isinstance(value, bool) else str(value)
        lines.append(f"COLL_{name.upper()}={text}")
    return lines


def _device(device: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with a device: "cuda:2", 2, torch.device("cuda:2"), or a sequence of numbers for several ranks."""
    if device is None:
        return settings
    if isinstance(device, bool):
        raise ArgumentError(f"device is {device}: 'host', 'cuda', 'cuda:2' or a number")
    if isinstance(device, (list, tuple, range)):
        return {**settings, "device": "cuda:" + ",".join(str(int(d)) for d in device)}
    return {**settings, "device": f"cuda:{device}" if isinstance(device, int) else str(device)}


def init(rank: int | None = None, size: int | None = None, *, id: bytes | None = None,
         exchange: Callable[[bytes], bytes | Sequence[bytes]] | None = None, device: Any = None, name: str = "",
         **settings: Any) -> Communicator:
    """The communicator of all ranks of the job. Collective.

    With nothing given, everything comes from the environment: collrun, torchrun, mpirun, srun, or COLL_*; without any,
    the job is this process. id: from unique_id() of any process. exchange(mine): an all-gather that returns the bytes of all
    ranks. device: whose memory calls take beside host memory: "host", "cuda" (by the local rank), "cuda:2" or 2. name: see Communicator.name. Settings are
    those of the library (`coll-info --settings`) in lower case, without the prefix: timeout_ms=5000.
    """
    if id is None and exchange is None and size != 1:
        settings = _secret.of_store(settings)
    comm = Communicator()
    try:
        lines = _lines(_device(device, settings))
        comm._open(-1 if rank is None else rank, 0 if size is None else size, id, exchange, lines, _log.wanted(lines))
    finally:
        _secret.forget()
    _life.hold(comm)
    _life.watch_exit_of_worker()
    if name:
        comm.name = name
    return comm


def init_all(n: int, *, device: Any = None, **settings: Any) -> list[Communicator]:
    """n ranks in this process, for n threads. device: as for init(), or a sequence with the number of each rank's device."""
    lines = _lines(_device(device, settings))
    try:
        comms: list[Communicator] = _coll.open_all(Communicator, n, lines, _log.wanted(lines))
    finally:
        _secret.forget()
    for comm in comms:
        _life.hold(comm)
    return comms


def unique_id() -> UniqueId:
    """An id for init(). This process hosts the meeting until all ranks have come, whatever its rank; it need not be one."""
    try:
        return UniqueId(_coll.unique_id())
    finally:
        _secret.forget()


def progress() -> bool:
    """Advance calls on streams of all communicators of this process, without waiting. True: some are not complete."""
    return any([comm.progress() for comm in _life.held() if not comm.closed and not comm._busy])


@contextlib.contextmanager
def group() -> Iterator[None]:
    """Calls of this thread inside the `with` are handed in together at its end; results are there after it.

    If the block raises, the communicators of its calls are aborted: the others wait for the whole group.
    """
    _coll.group_begin()
    try:
        yield
    except BaseException as error:
        with contextlib.suppress(Exception):
            _coll.group_end(_life.reason_of(error))
        raise
    _coll.group_end(None)


def raw(address: int, shape: SupportsIndex | Sequence[SupportsIndex], dtype: str, owner: Any = None) -> Buffer:
    """Memory at an address that the caller vouches for, as an array. owner is kept alive with it."""
    return _coll.raw(address, _shape(shape), dtype, owner)


__all__ = ["ANY", "Communicator", "Envelope", "Message", "Operation", "Receive", "UniqueId", "group", "init", "init_all", "like", "progress", "raw", "unique_id"]
