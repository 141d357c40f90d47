"""Work and futures: what a call that goes on by itself returns.

A Work has parts, which are works and receives of the package coll, and perhaps a last step that copies results to the tensors of
the caller. The group holds Works with a last step, and receives, until they have ended: callers drop them (DDP's Join does).

Futures are set by the threads that run the callbacks of the parts. Functions chained to a future run there too, and may wait for
other futures.
"""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any, Callable

import torch
from torch.distributed import DistBackendError
from torch.distributed import Work as _Base

from .._errors import CancelledError, CollError, PeerLate


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

    def _on_end(self, function: Callable[[], None]) -> None:
        """The library does not tell when a message has come: a thread waits for it."""
        def wait() -> None:
            while not self._ended:
                try:
                    self._finish(None)
                except _Late:
                    pass
            function()

        threading.Thread(target=wait, name="coll-receive", daemon=True).start()

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
