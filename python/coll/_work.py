"""Work: a call on a stream that goes on by itself."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Callable, Generator

from . import _coll

# How long the watcher waits for one work before it looks at the others.
_LOOK_S = 0.005


class Work(_coll.Work):
    """What a call with `stream=` returns. It owns its buffers until the call is complete, and may be dropped before."""

    __slots__ = ("__weakref__", "_callbacks")

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

        Callbacks run one after the other; one that waits for the callback of another work waits for ever.
        """
        if self.done():
            function(self)
        else:
            _watch(self, function)

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


class _Watcher:
    """One thread that waits for works with callbacks. Its waits also move calls where there is no progress thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.watched: list[tuple[Work, Callable[[Work], object]]] = []
        self.thread: threading.Thread | None = None

    def add(self, work: Work, function: Callable[[Work], object]) -> None:
        with self.lock:
            self.watched.append((work, function))
            if self.thread is None:
                self.thread = threading.Thread(target=self.run, name="coll-callbacks", daemon=True)
                self.thread.start()

    def run(self) -> None:
        while True:
            with self.lock:
                if not self.watched:
                    self.thread = None
                    return
                first = self.watched[0][0]
            try:
                first._exception(_LOOK_S)
            except TimeoutError:
                pass
            with self.lock:
                ended = [w for w in self.watched if w[0].done()]
                self.watched = [w for w in self.watched if w not in ended]
            for work, function in ended:
                self.call(work, function)

    @staticmethod
    def call(work: Work, function: Callable[[Work], object]) -> None:
        try:
            function(work)
        except Exception:
            import sys
            import traceback
            print("coll: a callback of a Work raised", file=sys.stderr)
            traceback.print_exc()


_watcher = _Watcher()


def _watch(work: Work, function: Callable[[Work], object]) -> None:
    _watcher.add(work, function)


def _forked() -> None:
    """The thread stayed with the parent."""
    global _watcher
    _watcher = _Watcher()
