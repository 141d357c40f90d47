"""ProcessGroup "coll": a communicator with the interface of torch.distributed.

Blocking calls (asyncOp false) run in the caller. Others go on the group's stream, one after the other. A blocking call waits for
those before it, so all calls of a group run in the order in which they were made. Threads of torch (autograd, hooks, futures) call
side by side.

Two locks, taken in this order. `_turn` is held during a collective, also while it waits: the order of collectives is that of its
owners. `_lock` is held while something is handed to the communicator, which takes one thread at a time, and for the lists. Messages
take `_lock` alone, so a thread can send or receive while another one waits in a collective. For that, a blocking call goes on the
stream where the process has other threads; where it has none, it goes into the communicator, which is faster.

Calls with CUDA tensors have a communicator and a stream of their own: the lane of the group (_devices.py). It is made by the first
of these calls, which all ranks of the group make, on the device of its tensors.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections import Counter, deque
from datetime import timedelta
from typing import Any, Callable, Iterator

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as _c10d

from .. import _comm, _life
from .._errors import CollError, UnsupportedError
from . import _devices, _tensors
from ._collectives import Collectives
from ._pairs import Pairs
from ._work import Receive, Several, Work, done, milliseconds, on_device, other_threads, seconds, translate

# destroy_process_group() waits so long for calls in progress.
_END_S = 3.0

_CPU, _CUDA = torch.device("cpu"), torch.device("cuda")


class ProcessGroup(Collectives, Pairs, dist.ProcessGroup):  # type: ignore[misc]
    """Made by init_process_group("coll"), new_group() and split_group()."""

    def __init__(self, comm: Any, store: Any, limit: float, name: str = "", parent: ProcessGroup | None = None,
                 ranks: list[int] | None = None) -> None:
        dist.ProcessGroup.__init__(self, comm.rank, comm.size)
        self._comm = comm
        self._store = store
        self._rank: int = comm.rank
        self._size: int = comm.size
        self._limit = limit
        self._turn = threading.RLock()
        self._lock = threading.RLock()
        self._forget()
        self._collecting: dict[int, list[Work]] = {}  # for threads
        self._parent = parent  # and the ranks of this group there
        self._ranks = ranks or []
        self._lane: Any = None  # of the device
        self._active: Any = None  # the lane and the tensors of the call that is being made
        self._landing: Any = None  # the stream for messages to the device
        self._splits_made: Counter[str] = Counter()  # by their ranks: only these may count
        self._gone = False
        self._name = str(name)
        self._description = "undefined"
        self.set_timeout(timedelta(seconds=limit))

    def _forget(self) -> None:
        """No call was made on the communicator."""
        self._stream: Any = None
        self._last: Any = None  # the last call on the stream, if it may be unfinished
        self._works: deque[Work] = deque()  # unfinished ones that somebody must finish, in order
        self._receives: deque[Work] = deque()  # the same, which end in any order
        self._in_use = _tensors.Ranges()  # memory of unfinished calls; that of calls that copy their results
        self._written_back = _tensors.Ranges()
        self._idle: list[Any] = []
        self._sending: list[tuple[Any, Any]] = []

    # ---- Calls ----

    def _call(self, opts: Any, method: str, args: tuple[Any, ...], words: dict[str, Any], value: Any,
              after: Callable[[], None] | None = None) -> Work:
        """One collective. Blocking: it has ended, and `after` has run. Else its Work."""
        later = getattr(opts, "asyncOp", True) or self._collected() is not None
        try:
            with self._turn:
                if self._active is not None:
                    return self._call_in_lane(method, args, words, value, after)
                if not later:
                    if self._last is not None:
                        self._settle()
                    self._run(method, *args, **words)
                    if after is not None:
                        after()
                    return done(value)
                part = self._start(method, args, words)
        except CollError as error:
            if self._active is not None:
                self._active[0].told = True
            raise translate(error, self._limit) from error
        work = Work()
        work._parts = (part,)
        work._after = after
        work._value = value
        self._begin(work)
        return work

    def _start(self, method: str, args: tuple[Any, ...], words: dict[str, Any]) -> Any:
        """The work of a call on the stream."""
        with self._lock:
            if self._stream is None:
                self._stream = self._comm.stream()
            self._last = getattr(self._comm, method)(*args, **words, stream=self._stream)
        return self._last

    def _run(self, method: str, *args: Any, **words: Any) -> Any:
        """The result of a blocking call. Messages of other threads pass it by."""
        if self._size == 1 or not other_threads():
            with self._lock:
                return getattr(self._comm, method)(*args, **words)
        part = self._start(method, args, words)
        try:
            result = part.result()
        except CollError:
            raise
        except BaseException:  # of a signal handler: as in a call without a stream
            self._comm.abort("interrupted")
            raise
        self._last = None
        return result

    def _call_in_lane(self, method: str, args: tuple[Any, ...], words: dict[str, Any], value: Any,
                      after: Callable[[], None] | None) -> Work:
        """The same with tensors on the device. It does not wait on the host, asynchronous or not: the Work tells the caller's stream."""
        lane, tensors = self._active
        part = lane.call(method, args, words)
        if after is not None:
            after()
        work = on_device(lane, (part,), value, tensors)
        if _devices.cuda.capturing():
            work._captured, work._ended, work._parts = True, False, ()
            collected = self._collected()
            if collected is not None:
                collected.append(work)
        else:
            self._begin(work)
        return work

    @contextlib.contextmanager
    def _on(self, device: torch.device, tensors: list[torch.Tensor]) -> Iterator[None]:
        """Calls of this thread go into the lane of the device."""
        with self._turn:
            if self._active is not None:  # calls that are made together
                yield
                return
            lane = self._lane_on(device)
            with lane.entered():
                self._active = lane, tensors
                try:
                    yield
                finally:
                    self._active = None

    def open_device(self, device: torch.device) -> None:
        """Make the lane before the first call. All ranks of the group do, each with its device."""
        with self._turn:
            self._lane_on(device)

    def _lane_on(self, device: torch.device) -> Any:
        if self._lane is None:
            if _devices.cuda.capturing():
                raise UnsupportedError("coll: the first call of a group with CUDA tensors makes its communicator, which cannot be done while a "
                                       "stream is captured: make a call before")
            try:
                self._lane = _devices.Lane(self._make_device_comm(device), device)
                self._set_limits()
            except CollError as error:
                raise translate(error, self._limit) from error
        if self._lane.device != device:
            raise UnsupportedError(f"coll: the device of this group is {self._lane.device}, that of its first call, and the tensors are on "
                                   f"{device}. A rank has one device in a group: make another group for the other one")
        return self._lane

    def _make_device_comm(self, device: torch.device) -> Any:
        """From the lane of the parent, if all ranks have it, on this device; else as a job of its own, which meets by the group."""
        self._settle()
        above: Any = self._parent._lane if self._parent is not None else None
        mine = torch.tensor([above is not None and above.device == device], dtype=torch.uint8)
        if bool(self._run("all_gather", mine).all()):
            with self._parent._turn:  # type: ignore[union-attr]
                return above.comm.group(self._ranks, _tag_of(self._name))

        def exchange(mine: bytes) -> bytes:
            everything = bytearray(len(mine) * self._size)
            self._run("all_gather", mine, out=everything)
            return bytes(everything)

        return _comm.init(self._rank, self._size, exchange=exchange, device=device.index,
                          create_timeout_ms=milliseconds(self._limit, 1000), arrival_timeout_ms=milliseconds(self._limit))

    def _begin(self, work: Work) -> None:
        """The group keeps the works that need somebody: with a last step, and receives, which end when they are dropped."""
        work._limit = self._limit
        work._lock = threading.Lock()
        work._ended = False
        collected = self._collected()
        if collected is not None and not isinstance(work, Several):
            collected.append(work)
        with self._lock:
            while self._works and self._works[0].is_completed():
                self._works.popleft()
            # The oldest two, in turns: one that does not end keeps no others.
            for _ in range(min(2, len(self._receives))):
                oldest = self._receives.popleft()
                if not oldest.is_completed():
                    self._receives.append(oldest)
            if isinstance(work, Receive):
                self._receives.append(work)
            elif work._after is not None or isinstance(work, Several):
                self._works.append(work)

    def _settle(self) -> None:
        """Calls on the stream end before what comes now; their errors are shown by their Works."""
        if self._last is not None:
            self._last.exception()
            self._last = None
        with self._lock:
            self._works = deque(work for work in self._works if not work.is_completed())
        if not self._works:
            self._in_use, self._written_back = _tensors.Ranges(), _tensors.Ranges()

    def _order(self, tensors: list[torch.Tensor], copied: bool) -> None:
        """Before a call with these tensors: those that are not contiguous, lazy views, and lists, are copied in the call, and written when
        its end is seen. What an unfinished call does with the same memory comes first. copied: they are in any case."""
        if self._last is None:
            return
        if self._last.done() and not self._works:
            self._settle()
            return
        copied = copied or len(tensors) > 2 or not all(_tensors.is_plain(t) for t in tensors)
        mine = _tensors.memory_of(tensors)
        if self._written_back.meet(mine) or copied and self._in_use.meet(mine):
            self._settle()

    def _remember(self, work: Work, tensors: list[torch.Tensor]) -> None:
        mine = _tensors.memory_of(tensors)
        self._in_use.add(mine)
        if work._after is not None or isinstance(work, Several):
            self._written_back.add(mine)

    def barrier(self, opts: Any = None, timeout: Any = None) -> Work:
        limit = seconds(opts) if isinstance(opts, timedelta) else seconds(timeout if timeout is not None else
                                                                          getattr(opts, "timeout", None))
        opts = opts if hasattr(opts, "asyncOp") else None
        self._settle_device()
        if opts is not None and not opts.asyncOp and limit is not None and limit != self._limit:
            return self._barrier_within(opts, limit)
        if opts is not None and not opts.asyncOp:
            with self._turn:
                self._settle()
        return self._call(opts, "barrier", (), {}, [])

    def _settle_device(self) -> None:
        """What was done on the device before ends before a barrier, which is a call of the host."""
        with self._turn:
            error = self._lane.settle() if self._lane is not None else None
            if error is not None:
                self._lane.told = True
                raise translate(error, self._limit) from error

    def _barrier_within(self, opts: Any, limit: float) -> Work:
        with self._turn, self._within(limit):
            return self._call(opts, "barrier", (), {}, [])

    @contextlib.contextmanager
    def _within(self, limit: float) -> Iterator[None]:
        """Another time limit than that of the group, for one call."""
        with self._lock:
            usual, self._limit = self._limit, limit
            self._set_limits()
        try:
            yield
        finally:
            with self._lock, contextlib.suppress(CollError):  # the communicator may be lost, and limits do not matter
                self._limit = usual
                self._set_limits()

    def _start_coalescing(self, device: Any = None) -> None:
        self._collecting[threading.get_ident()] = []

    def _end_coalescing(self, device: Any = None) -> Work:
        return self._together(self._collecting.pop(threading.get_ident(), []), [])

    def _collected(self) -> list[Work] | None:
        """Where this thread collects the works of its calls."""
        return self._collecting.get(threading.get_ident()) if self._collecting else None

    # ---- Names ----

    # torch keeps the names of a group in its backends, of which this group has none.

    @property
    def group_name(self) -> str:
        return self._name

    def getGroupName(self) -> str:
        return self._name

    def setGroupName(self, name: str) -> None:
        self._name = str(name)

    _set_group_name = setGroupName

    @property
    def group_desc(self) -> str:
        return self._description

    def getGroupDesc(self) -> str:
        return self._description

    def setGroupDesc(self, description: str) -> None:
        self._description = str(description)

    _set_group_desc = setGroupDesc

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    def name(self) -> str:
        return "coll"

    getBackendName = name
    _get_backend_name = name

    def get_group_store(self) -> Any:
        return self._store

    @property
    def _device_types(self) -> list[torch.device]:
        return [_CPU, _CUDA] if _devices.built() else [_CPU]

    @property
    def communicator(self) -> Any:
        """The coll.Communicator of the group, for what torch has no name for. It takes host memory."""
        return self._comm

    @property
    def device_communicator(self) -> Any:
        """The one that takes CUDA tensors; None before the first call with some."""
        return self._lane.comm if self._lane is not None else None

    # What torch asks of the backend of a device. This group is its own.

    def _get_backend(self, device: Any) -> Any:
        if torch.device(device).type not in ("cpu", "cuda"):
            raise RuntimeError(f"coll: this group moves tensors in host memory and on CUDA devices, and has no backend for {device}; make "
                               "another group for it")
        return self

    supports_splitting = False
    supports_coalescing = False
    supports_time_estimate = False
    supports_window = False
    supports_reconfigure = False

    get_backend = _get_backend  # since 2.14

    def new_window(self, *_: Any) -> Any:
        raise NotImplementedError("coll: one-sided windows are not there: use isend() and irecv()")

    def get_reconfigure_handle(self) -> str:
        raise NotImplementedError("coll: the members of this group do not change: it was not made by init_process_group(enable_reconfigure=True)")

    def reconfigure(self, opts: Any) -> Any:
        return self.get_reconfigure_handle()

    def _set_sequence_number_for_group(self) -> None:
        pass

    def _get_sequence_number_for_group(self) -> int:
        return 0

    # ---- Time limits ----

    def set_timeout(self, timeout: Any) -> None:
        """How long a rank may be late for a call."""
        limit = seconds(timeout)
        if limit is None:
            raise ValueError(f"coll: a time limit is more than 0, not {timeout}")
        self._limit = limit
        with self._turn:
            self._set_limits()

    _set_default_timeout = set_timeout

    def _set_limits(self) -> None:
        # A silent peer is given up after 30 s unless the program is in more of a hurry; then before one is late, which says less.
        with self._lock:
            for comm in [self._comm] if self._lane is None else [self._comm, self._lane.comm]:
                comm.set_timeout(self._limit * .8 if self._limit < 30 else None, self._limit)

    # ---- Children ----

    def split_group(self, new_ranks: Any, timeout: Any = None, opts: Any = None, group_name: Any = None, group_desc: Any = None,
                    device_types: Any = None) -> ProcessGroup | None:
        """The ranks listed, which are ranks of this group, as a group that torch.distributed takes. Collective over them."""
        ranks = [int(r) for r in new_ranks]
        for device in device_types or []:
            self._get_backend(device)
        if self._rank not in ranks:
            return None
        listed = ",".join(map(str, ranks))
        self._splits_made[listed] += 1
        name = str(group_name) if group_name else f"{self.group_name}:split:{_tag_of(listed):016x}:{self._splits_made[listed]}"
        limit = seconds(timeout) or self._limit
        child = ProcessGroup(self.make_child(ranks, name), dist.PrefixStore(f"{name}/", self._store), limit, name, self, ranks)
        if group_desc:
            child._set_group_desc(group_desc)
        self._make_known(child, ranks)
        return child

    splitGroup = split_group

    def _make_known(self, child: ProcessGroup, ranks: list[int]) -> None:
        """Put a child into torch's lists of groups, as new_group() does, if this group is there and the name of the child is new."""
        above = {mine: rank for rank, mine in _c10d._world.pg_group_ranks.get(self, {}).items()}
        if above and child._name not in _c10d._world.pg_names.values():
            _c10d._register_pg_in_world(child, _c10d._world.pg_map[self][0], child._store, child._name,
                                        _c10d._world.pg_backend_config[self], {above[r]: i for i, r in enumerate(ranks)})

    def make_child(self, ranks: list[int], name: str) -> Any:
        """A communicator of ranks of this group. The name keeps apart groups of the same ranks that are made side by side."""
        try:
            with self._turn, self._lock:
                return self._comm.group(ranks, _tag_of(name))
        except CollError as error:
            raise translate(error, self._limit) from error

    def merge_remote_group(self, *args: Any, **words: Any) -> Any:
        raise NotImplementedError("coll: groups cannot be merged; start the job with all ranks, and split it")

    mergeRemoteGroup = merge_remote_group

    # ---- The end ----

    def abort(self, reason: str = "torch.distributed aborted the group") -> None:
        """End all calls of all ranks with an error."""
        if self._lane is not None:
            self._lane.comm.abort(reason)
        self._comm.abort(reason)

    def shutdown(self) -> None:
        """Calls in progress end, then the group. Waits for the others for a bounded time."""
        if self._gone:
            return
        self._gone = True
        with self._alone("destroy_process_group() came while a call did not end"):
            lane, self._lane = self._lane, None
            error = _end_lane(lane) if lane is not None else None
            if not self._comm.closed:
                self._stream = self._last = None
                self._idle, self._sending = [], []
                with contextlib.suppress(CollError):
                    self._comm._end(_life.UNHEARD)
            self._works.clear()
            self._receives.clear()
        if error is not None and not lane.told:  # results on the device are wrong, and nobody knows
            raise translate(error, self._limit) from error

    @contextlib.contextmanager
    def _alone(self, late: str) -> Iterator[None]:
        """Both locks, and no call in progress. These get _END_S to end, as those of a process that exits; then they are aborted."""
        until = time.monotonic() + _END_S
        with contextlib.ExitStack() as held:
            for lock in (self._turn, self._lock):
                if not lock.acquire(timeout=max(0.0, until - time.monotonic())):
                    self.abort(late)
                    lock.acquire()
                held.callback(lock.release)
            works = [self._last, *(work for _, work in self._sending), self._lane.last if self._lane is not None else None]
            while any(work is not None and not work.done() for work in works):
                if time.monotonic() > until:
                    self.abort(late)
                    break
                time.sleep(0.0005)
            yield

    def __repr__(self) -> str:
        return f"<coll.torch.ProcessGroup {self.group_name!r}, rank {self._rank} of {self._size}>"


def _tag_of(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")


def _end_lane(lane: Any) -> CollError | None:
    """Its error, if it has one."""
    if lane.comm.closed:
        return None
    error: CollError | None = lane.settle()
    lane.last = None
    with contextlib.suppress(CollError):
        lane.comm.close()
    return error


__all__ = ["ProcessGroup"]
