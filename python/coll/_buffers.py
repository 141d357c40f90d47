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


def advice(x: Any) -> str:
    """What to pass instead of an object that is no array."""
    if isinstance(x, (int, float, complex, list, tuple)):
        return ": pass numpy.asarray() of it"
    if _misses(x):
        return " and has missing values, which would be numbers: fill them in, x.fillna(0), and pass x.to_numpy(), and x.isna().to_numpy() beside it"
    if hasattr(x, "to_numpy"):
        return ": pass x.to_numpy()"
    return ": pass numpy.asarray() of it" if hasattr(x, "__array__") else " (for other objects: send_object, broadcast_object ...)"


def _misses(x: Any) -> bool:
    """Whether a column, a table or an array of pandas, polars or pyarrow lacks some of its values."""
    try:
        if hasattr(x, "isna"):
            return any(_flat(x.isna()))
        count = getattr(x, "null_count", 0)
        count = count() if callable(count) else count
        return any(_flat(count))
    except Exception:
        return False


def _flat(x: Any) -> Any:
    x = x.to_numpy() if hasattr(x, "to_numpy") else x
    return x.ravel() if hasattr(x, "ravel") else x if hasattr(x, "__iter__") else (x,)


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
