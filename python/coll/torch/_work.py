"""Work and futures: what a call that goes on by itself returns.

A Work has parts, which are works and receives of the package coll, and perhaps a last step that copies results to the tensors of
the caller. The group holds Works with a last step, and receives, until they have ended: callers drop them (DDP's Join does).

Futures are set by threads of this module. One of them leads: it waits for works. Functions chained to a future run in the
thread that sets it, and may wait for other futures. So a leader that has a future to set hands over first.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from datetime import timedelta
from typing import Any, Callable

import torch
from torch.distributed import DistBackendError
from torch.distributed import Work as _Base

from .._errors import CancelledError, CollError, PeerLate

# So long a leader waits for one work before it looks at the others, and so long a thread without a future to set stays.
_LOOK_S = 0.005
_IDLE_S = 5.0


def translate(error: BaseException, limit_s: float | None = None) -> BaseException:
    """The exception that users of torch expect: what went wrong among ranks is a DistBackendError with the same sentence.

    Wrong arguments stay what they are (ValueError), and so does what is no error of the library.
    """
    if not isinstance(error, CollError) or (error.lost == "call" and not isinstance(error, CancelledError)):
        return error
    text = str(error)
    if isinstance(error, PeerLate) and limit_s is not None:
        text += f": Timed out waiting {round(limit_s * 1000)}ms for it"
    made: BaseException = DistBackendError(text)
    made.__cause__ = error
    return made


def seconds(timeout: Any) -> float | None:
    """A time limit of torch; None: none was given."""
    if timeout is None:
        return None
    value = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
    return value if value > 0 else None


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
            self._start = torch.futures.Future()
            # A future of torch fails only by a function chained to another: DDP, which is C++, takes an exception that
            # set_exception() has put into one for a tensor.
            ended = self.is_completed()
            self._future = self._start if ended and self._failure is None else self._start.then(self._outcome)
            if ended:
                self._start.set_result(self._value)
            else:
                _setters.add(self)
        return self._future

    getFuture = get_future

    # ---- Inside ----

    def _outcome(self, _: Any) -> Any:
        if self._failure is not None:
            raise self._failure
        return self._value

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
                for part in self._parts:
                    self._message = part.wait(limit)
                if self._after is not None:
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

    def _late(self, limit: float | None) -> BaseException:
        return _Late(f"coll: the call is not complete: Timed out waiting {round((limit or 0) * 1000)}ms for it; it goes on")


class Receive(Work):
    """A posted receive. From any rank it has a time limit, that of its group."""

    _any = False
    _elements = 0

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


def done(value: Any) -> Work:
    """The Work of a call that has ended."""
    work = Work()
    work._value = value
    return work


class _Setters:
    """The threads that set futures."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.queue: deque[Work] = deque()
        self.leading = False
        self.idle = 0

    def add(self, work: Work) -> None:
        with self.changed:
            self.queue.append(work)
            if not self.leading:
                self.call_leader()

    def call_leader(self) -> None:
        if self.idle:
            self.changed.notify()
        else:
            threading.Thread(target=self.run, name="coll-futures", daemon=True).start()

    def lead(self) -> bool:
        """Wait until this thread leads. False: nothing to do for long."""
        with self.changed:
            while self.leading or not self.queue:
                self.idle += 1
                told = self.changed.wait(_IDLE_S)
                self.idle -= 1
                if not told and (self.leading or not self.queue):
                    return False
            self.leading = True
            return True

    def run(self) -> None:
        while self.lead():
            work = self.await_one()
            with self.changed:
                self.queue.remove(work)
                self.leading = False
                if self.queue:
                    self.call_leader()
            work._start.set_result(None)

    def await_one(self) -> Work:
        """Wait until some work of the queue has ended. Works of one group end in order, those of several do not."""
        while True:
            try:
                self.queue[0]._finish(_LOOK_S)
            except _Late:
                pass
            for work in list(self.queue):
                if work.is_completed():
                    return work


_setters = _Setters()


def _forked() -> None:
    """The threads stayed with the parent."""
    global _setters
    _setters = _Setters()


os.register_at_fork(after_in_child=_forked)
