"""Tensors as the library wants them: flat and contiguous; lists of tensors as one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any, Callable, Iterable, Sequence

import torch
from torch import Tensor

from .._errors import ArgumentError, UnsupportedError

# Types that hold several numbers in an element: moved as bytes.
_PACKED = {getattr(torch, name) for name in ("float4_e2m1fn_x2",) if hasattr(torch, name)}


def check(tensor: Tensor) -> Tensor:
    """Refuse what calls do not take, with a sentence that says what to do."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"coll: a tensor is needed, not {type(tensor).__name__}")
    if tensor.device.type not in ("cpu", "cuda"):
        raise UnsupportedError(f"coll: this tensor is on {tensor.device}; the backend coll moves tensors in host memory and on CUDA devices. "
                               "Move it with .cpu(), or make a group with a backend for that device")
    if tensor.layout is not torch.strided:
        raise UnsupportedError(f"coll: a tensor of layout {tensor.layout} is not supported here: pass x.to_dense()")
    if tensor.is_quantized:
        raise UnsupportedError(f"coll: a quantised tensor ({tensor.dtype}) has a scale and a zero point, which calls do not move: pass "
                               "x.int_repr() and these beside it, or x.dequantize()")
    if hasattr(type(tensor), "get_mask"):
        raise UnsupportedError("coll: a masked tensor has numbers behind its mask, which would be used: pass one with these filled in, "
                               "x.to_tensor(0), and x.get_mask() beside it")
    return tensor


def source(tensor: Tensor) -> Tensor:
    """What is read, as one axis; a copy unless it is contiguous."""
    tensor = check(tensor).detach()
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    # The package copies host memory that is not contiguous, and no memory of devices.
    tensor = (tensor.contiguous() if tensor.is_cuda else tensor).reshape(-1)
    return tensor.view(torch.uint8) if tensor.dtype in _PACKED else tensor


def target(tensor: Tensor) -> tuple[Tensor, Callable[[], None] | None]:
    """What is written, as one axis, and what copies it to its place, if it does not lie there."""
    tensor = check(tensor).detach()
    if is_plain(tensor):
        flat = tensor.view(-1)
        return flat.view(torch.uint8) if tensor.dtype in _PACKED else flat, None
    made = tensor.new_empty(tensor.shape)
    flat = made.view(-1)
    return flat.view(torch.uint8) if tensor.dtype in _PACKED else flat, lambda: _write(tensor, made)


def both(tensor: Tensor) -> tuple[Tensor, Callable[[], None] | None]:
    """The same for what is read and written."""
    flat, after = target(tensor)
    if after is not None:
        flat.copy_(source(tensor))
    return flat, after


def is_plain(tensor: Tensor) -> bool:
    """Whether calls read and write it where it lies."""
    return tensor.layout is torch.strided and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def memory_of(tensors: Sequence[Tensor]) -> list[tuple[int, int]]:
    """The addresses of the storages that they lie in: the first, and that behind the last."""
    found: list[tuple[int, int]] = []
    for t in tensors:
        if t.layout is torch.strided:
            storage = t.untyped_storage()
            first, length = storage.data_ptr(), storage.nbytes()
            if length and (first, first + length) not in found[-1:]:
                found.append((first, first + length))
    return found


class Ranges:
    """Pieces of memory. Storages that begin at different addresses may overlap, such as those of arrays of numpy. What touches is
    one piece, so the pieces are in order and apart."""

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.ends: list[int] = []

    def add(self, pieces: Iterable[tuple[int, int]]) -> None:
        for first, end in pieces:
            i, j = bisect_left(self.ends, first), bisect_right(self.firsts, end)
            if i < j:
                first, end = min(first, self.firsts[i]), max(end, self.ends[j - 1])
            self.firsts[i:j] = [first]
            self.ends[i:j] = [end]

    def meet(self, pieces: Iterable[tuple[int, int]]) -> bool:
        for first, end in pieces:
            before = bisect_left(self.firsts, end)
            if before and self.ends[before - 1] > first:
                return True
        return False


def overlap(x: Tensor, out: Tensor) -> bool:
    """Whether flat tensors share memory. Of those that are not contiguous the package makes copies."""
    first, begin = x.data_ptr(), out.data_ptr()
    return bool(x.is_contiguous() and first < begin + out.numel() * out.element_size() and begin < first + x.numel() * x.element_size()
                and x.device == out.device)


def scaled(tensor: Tensor, factor: Any) -> Tensor:
    """The tensor times the factor of a premultiplied sum, in the type of the tensor."""
    t = check(tensor).detach()
    if not t.is_floating_point() and not t.is_complex():
        return _scaled_integers(t, factor.item() if isinstance(factor, Tensor) else factor)
    if isinstance(factor, Tensor):
        factor = factor.detach().reshape(())
    wide = t.to(torch.float32) if t.element_size() == 1 else t  # torch does not multiply types of one byte
    return (wide * (factor.to(wide.dtype) if isinstance(factor, Tensor) else factor)).to(t.dtype)


def _scaled_integers(t: Tensor, factor: Any) -> Tensor:
    if t.dtype == torch.bool:
        raise UnsupportedError("coll: there is no premultiplied sum of tensors of type bool")
    limits = torch.iinfo(t.dtype)
    if not limits.min <= factor <= limits.max or factor != int(factor):
        raise ArgumentError(f"coll: a premultiplied sum of tensors of type {t.dtype} needs a factor of that type, not {factor}")
    factor = int(factor)
    signed = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}.get(t.dtype)
    if signed is None:
        return t * factor
    # torch does not multiply these. The bits of the product are those of the signed type.
    return (t.contiguous().view(signed) * (factor if factor <= torch.iinfo(signed).max else factor - limits.max - 1)).view(t.dtype)


def _write(tensor: Tensor, made: Tensor) -> None:
    tensor.copy_(made)


def same_type(what: str, tensors: Sequence[Tensor]) -> None:
    first = tensors[0].dtype
    for t in tensors:
        if t.dtype != first:
            raise ArgumentError(f"coll: {what}: tensors of types {first} and {t.dtype}; all must be of one type")


def _adjacent(tensors: Sequence[Tensor]) -> bool:
    """Whether contiguous tensors follow each other in one storage, as those of chunk() or unbind() do."""
    first = tensors[0]
    if first.numel() == 0 or first.is_conj() or first.is_neg():
        return False
    at, storage = first.data_ptr(), first.untyped_storage().data_ptr()
    for t in tensors:
        if (t.data_ptr() != at or not t.is_contiguous() or t.untyped_storage().data_ptr() != storage or t.is_conj() or t.is_neg()):
            return False
        at += t.numel() * t.element_size()
    return True


def joined_source(tensors: Sequence[Tensor]) -> Tensor:
    """All of them, one after the other."""
    for t in tensors:
        check(t)
    if _adjacent(tensors):
        return _span(tensors)
    parts = [source(t) for t in tensors]
    return torch.cat(parts) if parts[0].element_size() > 1 or parts[0].dtype == torch.uint8 else _cat_bytes(parts)


def _cat_bytes(parts: list[Tensor]) -> Tensor:
    """torch.cat() refuses some types of one byte."""
    return torch.cat([p.view(torch.uint8) for p in parts]).view(parts[0].dtype)


def joined_target(tensors: Sequence[Tensor]) -> tuple[Tensor, Callable[[], None] | None]:
    """Memory for all of them, one after the other, and what copies it to their places."""
    for t in tensors:
        check(t)
    if _adjacent(tensors):
        return _span(tensors), None
    dtype = torch.uint8 if tensors[0].dtype in _PACKED else tensors[0].dtype
    made = tensors[0].detach().new_empty((sum(t.numel() for t in tensors),), dtype=dtype)
    places = [t.detach() for t in tensors]
    return made, lambda: _scatter(places, made)


def _span(tensors: Sequence[Tensor]) -> Tensor:
    first = tensors[0].detach()
    flat = first.as_strided((sum(t.numel() for t in tensors),), (1,), first.storage_offset())
    return flat.view(torch.uint8) if flat.dtype in _PACKED else flat


def _scatter(places: Sequence[Tensor], made: Tensor) -> None:
    at = 0
    for place in places:
        part = made.narrow(0, at, place.numel())
        place.copy_((part if part.dtype == place.dtype else part.view(place.dtype)).view(place.shape))
        at += place.numel()


def chain(*steps: Any) -> Callable[[], None] | None:
    """One step of several, of which some may be None."""
    real = [s for s in steps if s is not None]
    if len(real) < 2:
        return real[0] if real else None

    def run() -> None:
        for step in real:
            step()

    return run
