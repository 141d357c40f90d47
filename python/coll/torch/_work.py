"""Work and futures: what a call that goes on by itself returns.

A Work has parts, which are works and receives of the package coll, and perhaps a last step that copies results to the tensors of
the caller. The group holds Works with a last step, and receives, until they have ended: callers drop them (DDP's Join does).

A Work of tensors on a device is another thing: see OnDevice.

Futures are set by the threads that run the callbacks of the parts. Functions chained to a future run there too, and may wait for
other futures.
"""

from __future__ import annotations

import functools
import re
import threading
from datetime import timedelta
from typing import Any, Callable

import torch
from torch.distributed import DistBackendError
from torch.distributed import Work as _Base

from .. import _coll
from .._errors import CancelledError, CollError, PeerLate
from .._work import sleeping
from . import _devices


# Python's names, and torch's.
_NAMES = {"the id": "PyTorch's store", "it closed its communicator": "it called destroy_process_group()", "close:": "destroy_process_group:",
          "irecv": "recv"}
_TORCH = re.compile(r"\b(?:" + "|".join(_NAMES) + r")(?!\w)")


def translate(error: BaseException, limit_s: float | None = None) -> BaseException:
    """The exception that users of torch expect: what went wrong among ranks is a DistBackendError with the same sentence.

    Wrong arguments stay what they are (ValueError), and so does what is no error of the library.
    """
    if not isinstance(error, CollError) or (error.lost == "call" and not isinstance(error, CancelledError)):
        return error
    text = _TORCH.sub(lambda found: _NAMES[found[0]], str(error))
    if isinstance(error, PeerLate) and limit_s is not None:
        text += f": Timed out waiting {round(limit_s * 1000)}ms for it"
    made: BaseException = DistBackendError(text)
    made.__cause__ = error
    return made


# The threads of Python. One is in the second list until it is in the first. threading.active_count() takes three times as long.
STARTED: Any = getattr(threading, "_active", (0, 0))
STARTING: Any = getattr(threading, "_limbo", (0, 0))


def other_threads() -> bool:
    """Whether this process has threads of Python, other than this one, that may make calls."""
    return len(STARTING) + len(STARTED) > 1 and threading.active_count() - sleeping() > 1


def seconds(timeout: Any) -> float | None:
    """A time limit of torch; None: none was given."""
    if timeout is None:
        return None
    value = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
    return value if value > 0 else None


def milliseconds(limit: float, least: int = 0) -> int:
    """A time limit for the library, which has at most 24 days."""
    return max(least, round(min(limit, 2e6) * 1000))


class _Late(DistBackendError):  # type: ignore[misc]
    """A limit of a wait has passed; the call has not failed."""


class Work(_Base):  # type: ignore[misc]
    """A call in progress. Its tensors are in use until wait() has returned, or is_completed() said so."""

    _parts: tuple[Any, ...] = ()
    _after: Callable[[], None] | None = None
    _lock: Any = None
    _value: Any = None
    _failure: BaseException | None = None
    _ended = True
    _future: Any = None
    _start: Any = None  # what the future is chained to
    _limit: float | None = None  # of the group
    _message: Any = None
    _source = -1
    _device: Any = None  # of its tensors, if that is no host memory

    def wait(self, timeout: Any = None) -> bool:
        if not self._ended:
            self._finish(seconds(timeout))
        if self._failure is not None:
            raise self._failure
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        if not self._ended and self._ready():
            self._finish(None)
        return self._ended

    def is_success(self) -> bool:
        return self.is_completed() and self._failure is None

    def exception(self) -> BaseException | None:
        self.is_completed()
        return self._failure

    def result(self) -> Any:
        return self._value

    def _source_rank(self) -> int:
        return self._source

    source_rank = _source_rank

    def get_future(self) -> Any:
        if self._future is None:
            self._start = torch.futures.Future() if self._device is None else _devices.cuda.future(self._device)
            # A future of torch fails only by a function chained to another: DDP, which is C++, takes an exception that
            # set_exception() has put into one for a tensor.
            ended = self.is_completed()
            self._future = self._start if ended and self._failure is None else self._start.then(functools.partial(_coll.outcome, self))
            if ended:
                self._start.set_result(self._value)
            else:
                self._on_end(self._set_future)
        return self._future

    getFuture = get_future

    # ---- Inside ----

    def _on_end(self, function: Callable[[], None]) -> None:
        """Call function() when all parts have ended: here, or in a thread of the package, which it may keep."""
        ahead = iter(self._parts)

        def step(_: Any = None) -> None:
            for part in ahead:
                if isinstance(part, Work):
                    if not part.is_completed():
                        part._on_end(step)
                        return
                elif not part.done():
                    part.add_done_callback(step)
                    return
            function()

        step()

    def _set_future(self) -> None:
        self.is_completed()
        self._start.set_result(None)

    def _ready(self) -> bool:
        """Whether all parts have ended."""
        try:
            return all(part.done() for part in self._parts)
        except CollError:  # another thread waits for a receive
            return False

    def _finish(self, limit: float | None) -> None:
        """Wait for the parts and make the last step. After the limit: an error, and the call goes on."""
        if not self._lock.acquire(timeout=-1 if limit is None else limit):
            raise self._late(limit)
        try:
            if self._ended:
                return
            try:
                self._await(limit)
                if self._after is not None:
                    with torch.inference_mode():  # its tensors may be of that mode, and this another thread
                        self._after()
            except _Late:
                raise
            except CollError as error:
                self._failure = translate(error, self._limit)
            except TimeoutError:
                raise self._late(limit) from None
            except Exception as error:
                self._failure = error
            self._ended = True
            self._parts = ()
            self._after = None
        finally:
            self._lock.release()

    def _await(self, limit: float | None) -> None:
        for part in self._parts:
            self._message = part.wait(limit)

    def _late(self, limit: float | None) -> BaseException:
        return _Late(f"coll: the call is not complete: Timed out waiting {round((limit or 0) * 1000)}ms for it; it goes on")


class Receive(Work):
    """A posted receive. From any rank it has a time limit, that of its group. After a limit it takes no message any more."""

    _any = False
    _elements = 0

    def _on_end(self, function: Callable[[], None]) -> None:
        """The library does not tell when a message has come: a thread waits for it."""
        def wait() -> None:
            while not self._ended:
                try:
                    self._finish(None)
                except _Late:  # another thread waits
                    pass
            function()

        threading.Thread(target=wait, name="coll-receive", daemon=True).start()

    def _await(self, limit: float | None) -> None:
        try:
            super()._await(limit)
        except TimeoutError as error:
            receive, = self._parts
            if isinstance(error, CollError):
                raise
            if receive.cancel():
                raise DistBackendError(f"coll: recv: Timed out waiting {round((limit or 0) * 1000)}ms for a message; the receive "
                                       "was taken back") from None
            self._message = receive.wait()  # it has come this moment

    def _ready(self) -> bool:
        after: Any = self._after  # another thread may end the receive meanwhile
        return super()._ready() and (self._device is None or after is None or after.ready())

    def _finish(self, limit: float | None) -> None:
        if limit is None and self._any:
            limit = self._limit
        super()._finish(limit)
        if self._message is not None and self._failure is None:
            self._source = self._message.source
            if self._message.elements != self._elements:
                self._failure = DistBackendError(
                    f"coll: recv: the message of rank {self._message.source} with tag {self._message.tag} has "
                    f"{self._message.elements} elements, the tensor has {self._elements}")


class Several(Work):
    """Works of calls that were made together."""

    def _ready(self) -> bool:
        return all(part.is_completed() for part in self._parts)


class OnDevice(Work):
    """Calls in the lane of a group.

    wait() makes the caller's current stream wait, and not the host: an error that comes later is shown by the next call, by
    is_completed(), a barrier, or the end of the group. With a time limit it waits on the host, and shows the error itself.
    """

    _event: Any = None  # the end of the calls, in the stream of the lane
    _lane: Any = None
    _beside: tuple[Work, ...] = ()  # calls with host memory that were made together with these
    _held: Any = None  # tensors that are read or written until then
    _captured = False  # it runs when its graph does, and nothing may be asked

    def wait(self, timeout: Any = None) -> bool:
        limit = seconds(timeout)
        for work in self._beside:
            work.wait(timeout)
        if limit is not None and not self._ended and not self._captured:
            self._finish(limit)
        elif not self._ended:
            self._look()
            _devices.cuda.follow(_devices.cuda.current(self._device), self._event)
        if self._failure is not None:
            self._lane.told = True
            raise self._failure
        return True

    def exception(self) -> BaseException | None:
        error = super().exception()
        self._lane.told = self._lane.told or error is not None
        return error

    def is_completed(self) -> bool:
        return self._captured or super().is_completed()

    def _look(self) -> None:
        """See an error that is there already."""
        if any(part.done() and part.exception() is not None for part in self._parts):
            self._finish(None)

    def _ready(self) -> bool:
        return all(w.is_completed() for w in self._beside) and all(p.done() for p in self._parts) and bool(self._event.query())

    def _finish(self, limit: float | None) -> None:
        super()._finish(limit)
        if self._ended:
            self._held = None
        if isinstance(self._failure, DistBackendError) and isinstance(self._failure.__cause__, CollError):
            self._lane.failure = self._failure.__cause__

    def get_future(self) -> Any:
        """Complete at once, as those of PyTorch's backend nccl: its wait() and what is chained to it follow the lane."""
        if self._future is None and self.exception() is None:
            for work in self._beside:
                work.wait()
            self._future = _devices.cuda.future(self._device)
            with _devices.cuda.inside(self._lane.stream):
                self._future.set_result(self._value)
        return self._future if self._future is not None else super().get_future()

    getFuture = get_future


def on_device(lane: Any, parts: tuple[Any, ...], value: Any, held: Any) -> OnDevice:
    """The Work of what the lane has been given until now."""
    work = OnDevice()
    work._lane, work._device = lane, lane.device
    work._event = _devices.cuda.event(lane.stream)
    work._value = value
    work._parts = parts
    work._after = work._event.synchronize
    work._held = held
    return work


def together(works: list[Work], value: Any) -> OnDevice:
    """One Work of several, of which some are on the device. These run one after the other, so the last event is that of all."""
    there = [w for w in works if isinstance(w, OnDevice)]
    work = OnDevice()
    work._lane, work._device, work._event, work._limit = there[-1]._lane, there[-1]._device, there[-1]._event, there[-1]._limit
    work._value = value
    work._lock = threading.Lock()
    work._parts = tuple(part for w in there for part in w._parts)
    work._after = work._event.synchronize
    work._ended = all(w._ended for w in there)
    work._captured = all(w._captured for w in there)
    work._failure = next((w._failure for w in there if w._failure is not None), None)
    work._beside = tuple(w for w in works if not isinstance(w, OnDevice))
    return work


def done(value: Any) -> Work:
    """The Work of a call that has ended."""
    work = Work()
    work._value = value
    return work
