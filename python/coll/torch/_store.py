"""torch's store of a job whose ranks have met by the library: rank 0 keeps the values, and the others ask it by messages with tags of a
communicator. So nothing listens for it, and who is no member of the job reaches nothing of it.

Each request has a number, which is the tag of its one answer. Rank 0 answers in a thread. Nobody waits inside of the library: all look
again, ever later, so one thread of a rank that waits for a key holds up no other.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import struct
import sys
import threading
import time
from datetime import timedelta
from typing import Any, Iterable

import torch.distributed as dist

from .._errors import CollError

# Tags of the store's communicator: of requests, and, from there on, of answers, by the number of the request.
_REQUEST, _ANSWER, _ANSWERS = 1, 2, 1 << 20

# Pauses between looks, in seconds.
_FIRST_S, _MOST_S = 0.0002, 0.01
# A thread that looks for requests ends after so many errors in a row: each death is one.
_ERRORS = 100

# What rank 0 is asked for, by its place in a message. late: take the request back.
_KINDS = ("set", "get", "add", "check", "wait", "compare_set", "delete_key", "num_keys", "append", "queue_push", "queue_pop", "queue_len", "list_keys",
          "late")
# Answers: the values, or why there are none.
_OK, _TAKEN_BACK, _WRONG = range(3)


def _pack(kind: int, number: int, parts: Iterable[bytes]) -> bytearray:
    """kind and number, then the length of each part and the part."""
    message = bytearray(struct.pack("<IQ", kind, number))
    for part in parts:
        message += struct.pack("<Q", len(part)) + part
    return message


def _unpack(message: bytearray) -> tuple[int, int, list[bytes]]:
    kind, number = struct.unpack_from("<IQ", message)
    at, parts = 12, []
    while at < len(message):
        length, = struct.unpack_from("<Q", message, at)
        parts.append(bytes(message[at + 8:at + 8 + length]))
        at += 8 + length
    return kind, number, parts


class _Missing(Exception):
    """A key is not there yet: the answer waits for it."""


class _Table:
    """The values, and the queues, which are values of their own."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.values: dict[bytes, bytes] = {}
        self.queues: dict[bytes, list[bytes]] = {}

    def do(self, kind: str, parts: list[bytes]) -> list[bytes]:
        """What it answers; _Missing before a key is there. Locked."""
        made: list[bytes] = getattr(self, kind)(*parts)
        self.changed.notify_all()
        return made

    def _there(self, key: bytes) -> bool:
        return key in self.values or bool(self.queues.get(key))

    def set(self, *pairs: bytes) -> list[bytes]:
        self.values.update(zip(pairs[::2], pairs[1::2]))
        return []

    def get(self, *keys: bytes) -> list[bytes]:
        if not all(key in self.values for key in keys):
            raise _Missing
        return [self.values[key] for key in keys]

    def add(self, key: bytes, by: bytes) -> list[bytes]:
        self.values[key] = b"%d" % (int(self.values.get(key, b"0")) + int(by))
        return [self.values[key]]

    def check(self, *keys: bytes) -> list[bytes]:
        return [b"%d" % all(map(self._there, keys))]

    def wait(self, *keys: bytes) -> list[bytes]:
        if not all(map(self._there, keys)):
            raise _Missing
        return []

    def compare_set(self, key: bytes, old: bytes, new: bytes) -> list[bytes]:  # as torch's TCP store does it
        if key not in self.values and old:
            return [old]
        if self.values.get(key, b"") == old:
            self.values[key] = new
        return [self.values[key]]

    def delete_key(self, key: bytes) -> list[bytes]:
        return [b"%d" % (self.values.pop(key, None) is not None or self.queues.pop(key, None) is not None)]

    def num_keys(self) -> list[bytes]:
        return [b"%d" % (len(self.values) + len(self.queues))]

    def append(self, key: bytes, more: bytes) -> list[bytes]:
        self.values[key] = self.values.get(key, b"") + more
        return []

    def queue_push(self, key: bytes, value: bytes) -> list[bytes]:
        self.queues.setdefault(key, []).append(value)
        return []

    def queue_pop(self, key: bytes) -> list[bytes]:
        if not self.queues.get(key):
            raise _Missing
        value = self.queues[key].pop(0)
        if not self.queues[key]:
            del self.queues[key]
        return [value]

    def queue_len(self, key: bytes) -> list[bytes]:
        return [b"%d" % len(self.queues.get(key, ()))]

    def list_keys(self) -> list[bytes]:
        return [*self.values, *self.queues]


class _Server:
    """At rank 0: the table, and a thread that answers the others."""

    def __init__(self, comm: Any) -> None:
        self.comm, self.table, self.ended = comm, _Table(), threading.Event()
        self.waiting: dict[tuple[int, int], tuple[str, list[bytes]]] = {}
        self.thread = threading.Thread(target=self._serve, name="coll-store", daemon=True)
        self.thread.start()

    def ask(self, kind: str, parts: list[bytes], limit: float | None) -> list[bytes] | None:
        """Of rank 0 itself. None: not in time."""
        until = None if limit is None else time.monotonic() + limit
        with self.table.changed:
            while True:
                try:
                    return self.table.do(kind, parts)
                except _Missing:
                    left = None if until is None else until - time.monotonic()
                    if left is not None and left <= 0:
                        return None
                    self.table.changed.wait(left)

    def _answer(self, rank: int, number: int, kind: str, parts: list[bytes]) -> bool:
        try:
            with self.table.changed:
                made = self.table.do(kind, parts)
        except _Missing:
            return False
        except Exception as error:  # a number that is none, say
            self._say(rank, number, _WRONG, [f"{type(error).__name__}: {error}".encode()])
            return True
        self._say(rank, number, _OK, made)
        return True

    def _say(self, rank: int, number: int, kind: int, parts: list[bytes]) -> None:
        with contextlib.suppress(CollError):  # it has died
            self.comm.send(_pack(kind, number, parts), rank, tag=_ANSWER + number % _ANSWERS)

    def _take(self, rank: int, kind: str, number: int, parts: list[bytes]) -> None:
        if kind == "late":
            if self.waiting.pop((rank, number), None) is not None:
                self._say(rank, number, _TAKEN_BACK, [])
        elif not self._answer(rank, number, kind, parts):
            self.waiting[rank, number] = kind, parts

    def _look(self) -> bool:
        found = self.comm.iprobe(tag=_REQUEST)
        if found is None:
            return False
        message = bytearray(found.elements)
        self.comm.recv(message, found.source, tag=_REQUEST)
        kind, number, parts = _unpack(message)
        self._take(found.source, _KINDS[kind], number, parts)
        return True

    def _settle(self) -> None:
        for (rank, number), (kind, parts) in list(self.waiting.items()):
            if self._answer(rank, number, kind, parts):
                self.waiting.pop((rank, number), None)

    def _serve(self) -> None:
        errors, pause = 0, _FIRST_S
        while not self.ended.wait(pause):
            try:
                busy = self._look()
                self._settle()
                errors = 0
            except Exception:  # somebody has died, the communicator has ended, or a member has sent what is no request
                busy, errors = False, errors + 1
                if self.comm.closed or errors > _ERRORS:
                    return
            pause = _FIRST_S if busy else min(2 * pause, _MOST_S)

    def end(self) -> None:
        self.ended.set()
        self.thread.join(1.0)


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


class JobStore(dist.Store):
    """See above. Any thread may use it. What is not done within the store's timeout raises torch's DistStoreError."""

    def __init__(self, comm: Any, timeout: timedelta) -> None:
        super().__init__()
        self.set_timeout(timeout)
        self._comm, self._lock, self._numbers = comm, threading.Lock(), itertools.count()
        self._server = _Server(comm) if comm.rank == 0 else None

    def _ask(self, kind: str, *parts: str | bytes, timeout: timedelta | None = None) -> list[bytes]:
        limit = (self.timeout if timeout is None else timeout).total_seconds()
        sent = [_bytes(p) for p in parts]
        try:
            made = self._server.ask(kind, sent, limit) if self._server else self._ask_server(kind, sent, limit)
        except CollError as error:
            raise dist.DistStoreError(f"coll: the store of rank 0 cannot be reached: {error}") from error
        except (TypeError, ValueError) as error:  # at rank 0 itself
            raise dist.DistStoreError(f"coll: the store of rank 0: {type(error).__name__}: {error}") from error
        if made is None:
            keys = ", ".join(p.decode(errors="replace") for p in sent)
            raise dist.DistStoreError(f"coll: wait timeout after {limit * 1000:.0f} ms, keys: {keys}")
        return made

    def _ask_server(self, kind: str, parts: list[bytes], limit: float) -> list[bytes] | None:
        until = time.monotonic() + limit
        with self._lock:
            number = next(self._numbers)
            self._comm.send(_pack(_KINDS.index(kind), number, parts), 0, tag=_REQUEST)
        pause, late = _FIRST_S, False
        while True:
            with self._lock:
                found = self._comm.iprobe(0, _ANSWER + number % _ANSWERS)
                if found is not None:
                    message = bytearray(found.elements)
                    self._comm.recv(message, 0, tag=found.tag)
                    break
                if not late and time.monotonic() > until:
                    late = True  # it has one answer, which may be on its way
                    self._comm.send(_pack(_KINDS.index("late"), number, []), 0, tag=_REQUEST)
            time.sleep(pause)
            pause = min(2 * pause, _MOST_S)
        how, _, made = _unpack(message)
        if how == _WRONG:
            raise dist.DistStoreError(f"coll: the store of rank 0: {made[0].decode()}")
        return made if how == _OK else None

    def end(self) -> None:
        """The process ends: nothing is answered from here on."""
        if self._server:
            self._server.end()

    # ---- What torch calls ----

    def set(self, key: str, value: str | bytes) -> None:
        self._ask("set", key, value)

    def get(self, key: str) -> bytes:
        return self._ask("get", key)[0]

    def add(self, key: str, value: int) -> int:
        return int(self._ask("add", key, str(value))[0])

    def check(self, keys: list[str]) -> bool:
        return self._ask("check", *keys) == [b"1"]

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:  # type: ignore[override]
        self._ask("wait", *keys, timeout=timeout)

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        return self._ask("compare_set", key, expected_value, desired_value)[0]

    def delete_key(self, key: str) -> bool:
        return self._ask("delete_key", key) == [b"1"]

    def num_keys(self) -> int:
        return int(self._ask("num_keys")[0])

    def append(self, key: str, value: str | bytes) -> None:
        self._ask("append", key, value)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return self._ask("get", *keys)

    def multi_set(self, keys: list[str], values: list[str | bytes]) -> None:
        self._ask("set", *itertools.chain.from_iterable(zip(keys, values)))

    def queue_push(self, key: str, value: str | bytes) -> None:
        self._ask("queue_push", key, value)

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        try:
            return self._ask("queue_pop", key, timeout=None if block else timedelta(0))[0]
        except dist.DistStoreError as error:
            if block:
                raise
            raise dist.QueueEmptyError(f"coll: the queue {key} is empty") from error

    def queue_len(self, key: str) -> int:
        return int(self._ask("queue_len", key)[0])

    def list_keys(self) -> list[str]:
        return [key.decode() for key in self._ask("list_keys")]

    def has_extended_api(self) -> bool:
        return True

    def clone(self) -> JobStore:
        return self

    # torch's C++ asks by these names.
    deleteKey, getNumKeys = delete_key, num_keys


# torch holds them in C++, which does not hold what Python adds.
_stores: list[JobStore] = []


def of_job(comm: Any, timeout: timedelta) -> JobStore:
    """Called by all ranks of comm. It lasts as long as the process."""
    if not _stores:
        _watch_exit()
    child = comm.duplicate()
    child.name = "torch-store"
    _stores.append(JobStore(child, timeout))
    return _stores[-1]


def _watch_exit() -> None:
    """The threads end before the communicators do. Processes of multiprocessing end without atexit."""
    module = sys.modules.get("multiprocessing.process")
    if module is not None and module.parent_process() is not None:
        from multiprocessing import util
        util.Finalize(None, _end, exitpriority=200)
    atexit.register(_end)


def _end() -> None:
    for store in _stores:
        store.end()


__all__ = ["JobStore", "of_job"]
