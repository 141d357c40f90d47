"""Work: a call on a stream that goes on by itself."""

from __future__ import annotations

import asyncio
import logging
import threading
import traceback
from collections import deque
from typing import Any, Callable, Generator

from . import _coll, _log


class Work(_coll.Work):
    """What a call with `stream=` returns. It owns its buffers until the call is complete, and may be dropped before."""

    __slots__ = ("__weakref__",)

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the call is complete; raises its error. TimeoutError: it is not yet, and goes on."""
        self._result(timeout)

    def result(self, timeout: float | None = None) -> Any:
        """The same, and what the call returns without a stream."""
        return self._result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait, and return the error instead of raising it."""
        return self._exception(timeout)

    def add_done_callback(self, function: Callable[[Work], object]) -> None:
        """Call function(self) when the call is complete: at once if it is, else in a thread of this package.

        A callback may wait for other works, and for their callbacks.
        """
        if self.done():
            function(self)
        else:
            _callbacks.add(self, function)

    def __await__(self) -> Generator[Any, None, Any]:
        """The result, in a coroutine; the event loop goes on meanwhile."""
        if not self.done():
            loop = asyncio.get_running_loop()
            future: asyncio.Future[None] = loop.create_future()
            self.add_done_callback(lambda _: _tell(loop, future))
            yield from future
        return self._result(None)


def _tell(loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
    try:
        loop.call_soon_threadsafe(lambda: None if future.done() else future.set_result(None))
    except RuntimeError:  # the loop was closed meanwhile: nobody waits
        pass


_Item = tuple[Work, Callable[[Work], object]]


class _Callbacks:
    """The threads that run callbacks.

    One leads: it waits for the oldest work. Others are free: they sleep until the library tells that some other work has
    ended. A callback may wait for the callback of another work: while one runs, there is a thread for the rest.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.watched: dict[Work, list[Callable[[Work], object]]] = {}
        self.ready: deque[_Item] = deque()
        self.led = False
        self.free = 0

    def add(self, work: Work, function: Callable[[Work], object]) -> None:
        with self.lock:
            if work in self.watched:
                self.watched[work].append(function)
                return
            if _coll.watch(work):
                self.watched[work] = [function]
                self.call_in()
                return
        function(work)

    def call_in(self) -> None:
        """One thread for what is ready, or one that leads; and if there is more to watch than the leader's work, a free one."""
        if self.ready or (self.watched and not self.led):
            if self.free:
                _coll.wake()
                return
        elif len(self.watched) < 2 or self.free:
            return
        self.free += 1
        threading.Thread(target=self.run, name="coll-callbacks", daemon=True).start()

    def run(self) -> None:
        while True:
            item = self.wait()
            if item is not None:
                self.call(*item)
                with self.lock:
                    self.free += 1

    def wait(self) -> _Item | None:
        with self.lock:
            if self.ready:
                return self.take()
            first = next(iter(self.watched), None) if not self.led else None
            if first is not None:
                self.led = True
                self.free -= 1
                self.call_in()
        if first is None:
            _coll.sleep()
        else:
            _coll.lead(first)
        works = _coll.taken()
        with self.lock:
            if first is not None:  # its end may not have been told yet
                self.led = False
                self.free += 1
                works.insert(0, first)
            for work in works:
                self.ready.extend((work, function) for function in self.watched.pop(work, []))
            return self.take() if self.ready else None

    def take(self) -> _Item:
        """One alone: the next may be what it waits for."""
        item = self.ready.popleft()
        self.free -= 1
        self.call_in()
        return item

    @staticmethod
    def call(work: Work, function: Callable[[Work], object]) -> None:
        try:
            function(work)
        except Exception:
            _log.say("coll: a callback of a Work raised\n" + traceback.format_exc().rstrip(), logging.ERROR)


_callbacks = _Callbacks()


def sleeping() -> int:
    """Threads of this package that call nothing until there is a work to watch."""
    return _log.threads() + (_callbacks.free if not _callbacks.watched and not _callbacks.ready else 0)


def _forked() -> None:
    """The threads stayed with the parent."""
    global _callbacks
    _callbacks = _Callbacks()
