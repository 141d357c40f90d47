"""Python objects as messages: pickle protocol 5, with the contents of arrays beside it.

A message is: number of parts, length of each (u64, little-endian), then the parts, each at a multiple of 16 bytes. The
first part is the pickle, the others are its buffers. Arrays that come back lie in the message and are writable.
"""

from __future__ import annotations

import pickle
from array import array
from typing import Any, Callable, Iterable

Loads = Callable[..., Any]
_ALIGN = 16


def _padded(n: int) -> int:
    return -(-n // _ALIGN) * _ALIGN


def pack(value: Any) -> bytearray:
    beside: list[pickle.PickleBuffer] = []
    first = pickle.dumps(value, protocol=5, buffer_callback=beside.append)
    parts = [memoryview(first)] + [b.raw() for b in beside]
    head = array("Q", [len(parts), *(len(p) for p in parts)]).tobytes()
    at = _padded(len(head))
    message = bytearray(at + sum(_padded(len(p)) for p in parts))
    message[:len(head)] = head
    for p in parts:
        message[at:at + len(p)] = p
        at += _padded(len(p))
    return message


def unpack(message: Any, loads: Loads | None = None) -> Any:
    view = memoryview(message)
    count = int.from_bytes(view[:8], "little")
    lengths = view[8:8 + 8 * count].cast("Q").tolist() if count else []
    at, parts = _padded(8 + 8 * count), []
    for n in lengths:
        parts.append(view[at:at + n])
        at += _padded(n)
    return (loads or pickle.loads)(parts[0], buffers=parts[1:])


def lengths_of(messages: Iterable[Any]) -> array[int]:
    return array("Q", [len(m) for m in messages])
