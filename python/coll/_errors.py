"""Exceptions: one class for each status of the library, with what is known about the cause."""

from __future__ import annotations

import re
from typing import Any


class CollError(RuntimeError):
    """A call failed. `str()` is the library's sentence; the parts of it are attributes.

    `lost` says what can no longer be used: "call" (nothing but this call), "peer", "communicator" or "process".
    """

    status: int = 0
    rank: int = -1
    host: str = ""
    operation: int = 0
    kind: str = ""
    step: int = -1
    link: str = ""
    elapsed: float = 0.0
    message: str = ""
    late: tuple[int, ...] = ()
    exit_status: int = 0

    def __init__(self, message: str = "", **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        if not self.status:
            self.status = _STATUS_OF.get(type(self), 42)
        for name, value in facts.items():
            setattr(self, name, value)

    @property
    def lost(self) -> str:
        return _LOST.get(self.status // 10, "process")

    def __reduce__(self) -> Any:
        return (make, (self.status, self.rank, self.host, self.operation, self.kind, self.step, self.link,
                       self.elapsed, self.message, self.late, self.exit_status))


class ArgumentError(CollError, ValueError):
    """The call is wrong; nothing was sent."""


class UnsupportedError(CollError, NotImplementedError):
    """This version or this machine cannot do it."""


class CollMemoryError(CollError, MemoryError):
    """Out of memory."""


class ConfigError(CollError, ValueError):
    """A setting is malformed, unknown or contradictory."""


class CancelledError(CollError):
    """A posted receive was taken back before a message came."""


class PeerError(CollError, ConnectionError):
    """A peer is lost, and the communicators that it belongs to: `rank` and `host` say which."""


class PeerDead(PeerError):
    """It exited, was killed, or its link broke."""


class PeerSilent(PeerError):
    """Its process exists but does not answer."""


class PeerLate(PeerError, TimeoutError):
    """It answers but did not enter the call in time. `late` has all ranks that were found late."""


class Excluded(PeerError):
    """The other members go on without this rank: shrink() of theirs did not find it."""

    @property
    def lost(self) -> str:
        return "communicator"


class MismatchError(CollError):
    """Ranks made different calls."""


class CorruptError(CollError):
    """A frame failed its checks."""


class AbortedError(CollError):
    """The communicator was aborted, here or at another rank. `exit_status`: what abort() wants the job to end with."""


class SystemFailure(CollError, OSError):
    """A system call failed."""


class BootstrapError(CollError, ConnectionError):
    """The ranks could not connect to each other."""


class InternalError(CollError):
    """A defect in the library."""


_CLASSES: dict[int, type[CollError]] = {
    10: ArgumentError, 11: UnsupportedError, 12: CollMemoryError, 13: ConfigError, 14: CancelledError,
    20: PeerDead, 21: PeerSilent, 22: PeerLate, 23: Excluded,
    30: MismatchError, 31: CorruptError, 32: AbortedError,
    40: SystemFailure, 41: BootstrapError, 42: InternalError,
}
_STATUS_OF = {c: status for status, c in _CLASSES.items()}
_LOST = {1: "call", 2: "peer", 3: "communicator", 4: "process"}


# The library's names in its sentences, and Python's.
_NAMES = [(re.compile(pattern), name) for pattern, name in (
    (r"\b(send|recv)_tag\b", r"\1"),
    (r"coll_config\.id", "the id"), (r"coll_config\.(\w+)", r"\1"), (r"coll_config", "init()"), (r"coll_comm_create_all\(\)", "init_all()"),
    (r"coll_mem_alloc\(\)", "empty()"), (r"coll_comm_destroy\(\)", "close()"), (r"coll_(?:comm_)?(\w+)\(\)", r"\1()"),
    (r"left: it destroyed its communicator", "left: it closed its communicator, or its program ended"),
    # A message has the name of its call.
    (r"\bsend_recv: (?=.* in (send|recv|irecv)\()", r"\1: "),
    (r"comm_destroy", "close"), (r"comm_create_group|create_group", "group"))]


def in_python(message: str) -> str:
    """The sentence with Python's names."""
    for pattern, name in _NAMES if "coll_" in message or "comm_" in message or "_tag" in message or "send_recv" in message or "it destroyed" in message else ():
        message = pattern.sub(name, message)
    return message


def make(status: int, rank: int, host: str, operation: int, kind: str, step: int, link: str, elapsed: float,
         message: str, late: tuple[int, ...] = (), exit_status: int = 0) -> CollError:
    """The exception of a status and of the last error of a communicator."""
    return _CLASSES.get(status, InternalError)(in_python(message), status=status, rank=rank, host=host, operation=operation,
                                               kind=kind, step=step, link=link, elapsed=elapsed, late=late, exit_status=exit_status)
