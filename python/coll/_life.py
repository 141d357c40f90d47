"""The end of a process: a normal exit destroys its communicators, an uncaught exception aborts them, a fork forgets them."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from . import _work

if TYPE_CHECKING:
    from ._comm import Communicator

# Communicators that are not destroyed yet, in order of creation. Nobody collects them: destroying needs the other ranks.
_held: dict[int, Communicator] = {}

# At exit, calls on streams get so long to complete.
_EXIT_S = 3.0


def hold(comm: Communicator) -> None:
    _held[id(comm)] = comm


def forget() -> None:
    """Drop those that have been destroyed."""
    for comm in list(_held.values()):
        if not comm._held:
            _held.pop(id(comm), None)


def held() -> list[Communicator]:
    return list(_held.values())


def reason_of(error: BaseException) -> str:
    """One line for the other ranks."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def abort_all(error: BaseException, thread: int | None = None) -> None:
    """Abort the communicators of this process, or those that a thread was the last to use."""
    for comm in held():
        if thread is None or comm._thread == thread:
            comm._abort(reason_of(error))


def _interactive() -> bool:
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


def _uncaught(kind: Any, error: Any, trace: Any) -> None:
    if _held and not _interactive() and isinstance(error, BaseException):
        abort_all(error)
    _before(kind, error, trace)


def _uncaught_in_thread(args: Any) -> None:
    if args.exc_value is not None and args.thread is not None and not isinstance(args.exc_value, SystemExit):
        abort_all(args.exc_value, args.thread.ident)
    _before_in_thread(args)


def _unfinished(comm: Communicator) -> bool:
    """Whether calls on streams do not end in the time that an exit gives them."""
    until = time.monotonic() + _EXIT_S
    try:
        while comm.progress():
            if time.monotonic() > until:
                return True
            time.sleep(0.0005)
    except Exception:
        return False
    return False


def end() -> None:
    """At exit. The last error of the process may have been handled by somebody else's hook: then abort, too."""
    error = sys.exc_info()[1] or getattr(sys, "last_value", None)
    if error is not None and not isinstance(error, SystemExit) and not _interactive():
        abort_all(error)
    for comm in reversed(held()):
        if comm._busy:
            comm._abort("the process ended while a thread was in " + comm._busy)
            continue
        if not comm.closed and _unfinished(comm):
            comm._abort("the process ended before its calls on streams were complete")
        try:
            comm._close(True)
        except Exception:  # the library has logged it, and nobody is left to catch it
            pass
    forget()


def _in_child() -> None:
    _held.clear()
    _work._forked()


def watch_exit_of_worker() -> None:
    """Processes of multiprocessing end without atexit."""
    module = sys.modules.get("multiprocessing.process")
    if module is None or module.parent_process() is None:
        return
    from multiprocessing import util
    util.Finalize(None, end, exitpriority=100)


_before = sys.excepthook
_before_in_thread = threading.excepthook
sys.excepthook = _uncaught
threading.excepthook = _uncaught_in_thread
atexit.register(end)
os.register_at_fork(after_in_child=_in_child)
