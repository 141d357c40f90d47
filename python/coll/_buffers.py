"""Arrays of other libraries, where C code cannot tell: results like an input, and element types without a format."""

from __future__ import annotations

import sys
from typing import Any

# Names of element types in numpy (ml_dtypes) whose arrays refuse the buffer protocol.
_NAMES = {"bfloat16": "bf16", "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2"}


def like(x: Any, shape: tuple[int, ...]) -> Any:
    """A new array of this shape, of the library and element type of x; None: the library is not known."""
    module = type(x).__module__.partition(".")[0]
    numpy = sys.modules.get("numpy")
    torch = sys.modules.get("torch")
    if numpy is not None and isinstance(x, (numpy.ndarray, numpy.generic)):
        return numpy.empty(shape, x.dtype)
    if torch is not None and isinstance(x, torch.Tensor):
        return torch.empty(shape, dtype=x.dtype, device=x.device)
    if numpy is not None and module in ("jax", "jaxlib") and not _on_device(x):
        return numpy.empty(shape, x.dtype)
    return None


def _on_device(x: Any) -> bool:
    """Whether an array that cannot be written is in the memory of a device."""
    kind: int = x.__dlpack_device__()[0] if hasattr(x, "__dlpack_device__") else 1
    return kind != 1


def describe(x: Any, what: str) -> tuple[Any, str | None]:
    """An object with a buffer over the elements of x, and their type if the library can reduce it.

    For element types that the buffer protocol has no letter for: bfloat16 of ml_dtypes, dates, records.
    """
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(x, numpy.ndarray) or x.dtype.hasobject:
        kind = "objects" if numpy is not None and isinstance(x, numpy.ndarray) else "a buffer that cannot be read"
        raise TypeError(f"{what} holds {kind}; for Python objects there are send_object, broadcast_object ...")
    if x.dtype.itemsize in (1, 2, 4, 8):
        flat = x.view(f"u{x.dtype.itemsize}")
    else:
        flat = x.view(f"V{x.dtype.itemsize}")
    return flat, _NAMES.get(x.dtype.name)
