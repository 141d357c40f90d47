"""Log lines of the library and of this package: to stderr, or to a logger of the program."""

from __future__ import annotations

import logging
import os
import sys
import threading
from typing import Any

from . import _coll

_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)
# Lines of the library begin with the rank and one of these.
_NAMES = (" error: ", " warn: ", " info: ", " debug: ")
_logger: Any = None
_thread: threading.Thread | None = None
_lock = threading.Lock()


def log_to(logger: logging.Logger | None) -> None:
    """Give the log lines of the library to a logger, from a thread of their own; nothing goes to stderr from then on. None: to stderr again.

    COLL_DEBUG chooses the level. Where COLL_LOG_FILE or COLL_CONFIG_FILE is set, it counts for communicators that init() makes later.
    """
    global _logger, _thread
    with _lock:
        _logger = logger
        _coll.log_attach(logger is not None)
        if logger is not None and _thread is None:
            _thread = threading.Thread(target=_run, name="coll-log", daemon=True)
            _thread.start()


def wanted(settings: list[str]) -> bool:
    """Whether lines of a communicator come here: not where the library writes them to a file."""
    files = any(s.startswith(("COLL_LOG_FILE=", "COLL_CONFIG_FILE=")) for s in settings)
    return _logger is not None or not (files or os.environ.get("COLL_LOG_FILE") or os.environ.get("COLL_CONFIG_FILE"))


def threads() -> int:
    """That make no calls of the library."""
    return int(_thread is not None)


def say(text: str, level: int = logging.INFO) -> None:
    """A line of this package."""
    logger = _logger
    if logger is not None:
        logger.log(level, text)
    else:
        print(text, file=sys.stderr, flush=True)


def _give(lines: list[tuple[int, str]]) -> None:
    logger = _logger
    for level, line in lines if logger is not None else ():
        logger.log(_LEVELS[level & 3], "%s", line.replace(_NAMES[level & 3], ": ", 1))


def _run() -> None:
    global _thread
    while True:
        lines = _coll.log_wait(True)
        if lines is None:
            with _lock:
                if _logger is None:
                    _thread = None
                    return
        else:
            _give(lines)


def end(write: bool) -> None:
    """At exit: what waits is given, and what nobody will raise is written, if it is news."""
    _give(_coll.log_wait(False) or [])
    _coll.log_flush(write)


def _forked() -> None:
    """The thread stayed with the parent; the child writes to stderr."""
    global _logger, _thread, _lock
    _logger = _thread = None
    _lock = threading.Lock()


__all__ = ["log_to"]
