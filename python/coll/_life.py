"""The end of a process: a normal exit destroys its communicators, an uncaught exception aborts them, a fork forgets them."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, NoReturn

from . import _coll, _log, _work
from ._errors import CancelledError

if TYPE_CHECKING:
    from types import FrameType

    from ._comm import Communicator

# Communicators that are not destroyed yet, in order of creation. Nobody collects them: destroying needs the other ranks.
_held: dict[int, Communicator] = {}

# At exit, calls on streams get so long to complete.
_EXIT_S = 3.0

# The process ends: it takes back receives, also those for which threads wait.
_ending = False

# What a communicator is told about its end (comm.c): arrays may lie in its memory until the interpreter ends; or only until the process
# does, which runs no other code.
_AT_EXIT, _IN_WORKER = 1, 2
# The error of an end that nobody catches is for the log.
UNHEARD = 3


def hold(comm: Communicator) -> None:
    _held[id(comm)] = comm


def forget() -> None:
    """Drop those that have been destroyed."""
    for comm in list(_held.values()):
        if not comm._held:
            _held.pop(id(comm), None)


def held() -> list[Communicator]:
    return list(_held.values())


# The library's sentences have room for so many bytes of a reason.
_REASON_BYTES = 160


def _fitting(text: str) -> str:
    """The text, or its beginning and its end."""
    while len(text.encode()) > _REASON_BYTES:
        half = (min(len(text), _REASON_BYTES) - 5) // 2 - (len(text.encode()) > len(text))
        text = f"{text[:half].rstrip()} ... {text[-half:].lstrip()}"
    return text


def reason_of(error: BaseException) -> str:
    """One line for the other ranks."""
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        return f"its program ended with exit status {error.code or 0}"
    text = " ".join(str(error).split())
    return _fitting(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def status_of(error: SystemExit) -> int:
    """The exit status of the process that it ends."""
    return error.code if isinstance(error.code, int) else int(error.code is not None)


class _Exit:
    """Goes with the SystemExit of sys.exit(). If no code of Python runs by then, that ended the program."""

    def __init__(self, reason: str, status: int) -> None:
        self.reason, self.status = reason, status

    def __del__(self) -> None:
        global _exit
        if sys is not None and sys._getframe().f_back is None:
            _exit = self.reason, self.status


_exit: tuple[str, int] | None = None


def _sys_exit(status: Any = None, /) -> NoReturn:
    """Exit the interpreter by raising SystemExit(status)."""
    error = SystemExit(status)
    if status_of(error) != 0:
        error.__dict__["_coll_exit"] = _Exit(reason_of(error), status_of(error))
    try:
        raise error
    finally:
        del error  # else its traceback holds this frame, which holds it


def _quit(self: Any, code: Any = None) -> NoReturn:
    """exit() and quit(), which close the input."""
    with contextlib.suppress(Exception):
        sys.stdin.close()
    sys.exit(code)


# This process has told the others why it ends, and its user reads that in an error: its log has no news.
_told = False


def abort_all(error: BaseException, thread: int | None = None) -> None:
    """Abort the communicators of this process, or those that a thread was the last to use."""
    global _told
    _told = _told or thread is None
    for comm in held():
        if thread is None or comm._thread == thread:
            comm._abort(reason_of(error))


def _interactive() -> bool:
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


def _goes_on() -> bool:
    """Whether a program calls the hook, to print an error that it has handled: no module runs when Python calls it."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return frame is not None or threading.current_thread() is not threading.main_thread()


def _ended_program(error: BaseException) -> bool:
    """Whether it left the main module: others are kept as the last error when a program has handled them."""
    if error.__traceback__ is None or isinstance(error, SystemExit):
        return False
    frame = error.__traceback__.tb_frame
    if frame.f_code.co_name == "_run_module_as_main":
        return True
    return frame.f_code.co_name == "<module>" and frame.f_globals is vars(sys.modules["__main__"]) and \
        frame.f_code.co_filename not in ("<console>", "<input>")


def _uncaught(kind: Any, error: Any, trace: Any) -> None:
    if _held and not _interactive() and isinstance(error, BaseException) and not _goes_on():
        abort_all(error)
    _before(kind, error, trace)


def _uncaught_in_thread(args: Any) -> None:
    error = args.exc_value
    if _ending and error is not None and isinstance(error.__cause__ or error, CancelledError):
        return  # this exit ended its receive: that is no failure of the thread
    if args.exc_value is not None and args.thread is not None and not isinstance(args.exc_value, SystemExit):
        abort_all(args.exc_value, _coll.thread())
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


def _end_of_worker() -> None:
    """Of multiprocessing: its error is on its way when it ends."""
    error = sys.exc_info()[1]
    if isinstance(error, SystemExit) and status_of(error) != 0:  # torch catches the error of a worker, and leaves in its stead
        cause = error.__context__
        _abort_exit(reason_of(error if cause is None else cause), status_of(error))
    elif error is not None and not isinstance(error, SystemExit):
        abort_all(error)
    _close(_IN_WORKER)


def _abort_exit(reason: str, status: int) -> None:
    global _told
    _told = True
    _coll.log_flush(True)
    for comm in held():
        comm._abort(reason, status)


def end() -> None:
    """At exit. The error that ended the program may have gone to somebody else's hook: then abort, too."""
    error = getattr(sys, "last_value", None)
    if error is not None and not _interactive() and _ended_program(error):
        abort_all(error)
    elif _exit is not None:
        _abort_exit(*_exit)
    _close(_AT_EXIT)


def _close(when: int) -> None:
    global _ending
    _ending = True
    _coll.log_ending()
    for comm in reversed(held()):
        if comm._busy:
            comm._abort("the process ended while a thread was in " + comm._busy)
            continue
        comm._withdraw()
        if not comm.closed and _unfinished(comm):
            comm._abort("the process ended before its calls on streams were complete")
        try:
            comm._close(when)
        except Exception:  # nobody is left to catch it
            pass
    _log.end(not _told)
    forget()


def _in_child() -> None:
    _held.clear()
    _log._forked()
    _work._forked()


def watch_exit_of_worker() -> None:
    """Processes of multiprocessing end without atexit."""
    module = sys.modules.get("multiprocessing.process")
    if module is None or module.parent_process() is None:
        return
    from multiprocessing import util
    util.Finalize(None, _end_of_worker, exitpriority=100)


_before = sys.excepthook
_before_in_thread = threading.excepthook
sys.excepthook = _uncaught
sys.exit = _sys_exit
for _name in ("exit", "quit"):
    if type(getattr(builtins, _name, None)).__name__ == "Quitter":
        type(getattr(builtins, _name)).__call__ = _quit
threading.excepthook = _uncaught_in_thread
atexit.register(end)
os.register_at_fork(after_in_child=_in_child)
