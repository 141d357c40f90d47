"""A group of two halves: coll for host memory, PyTorch's own backends for the tensors of other devices ("cpu:gloo,cuda:nccl").

PyTorch takes a group written in Python for all devices. So this one holds the group that PyTorch has made for the rest, and hands it the
calls whose first tensor is on one of its devices. Calls without a tensor are coll's, but for a barrier that names a device of the rest.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from ._group import ProcessGroup

# What takes tensors, by the names that any version of PyTorch calls.
_CALLS = ("allreduce", "allreduce_coalesced", "reduce", "reduce_scatter", "reduce_scatter_single", "_reduce_scatter_base",
          "reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced", "broadcast", "allgather", "all_gather_single",
          "_allgather_base", "allgather_coalesced", "all_gather_single_coalesced", "allgather_into_tensor_coalesced", "gather", "scatter",
          "all_to_all_single", "alltoall_base", "alltoall", "all_to_all", "send", "recv", "recv_anysource")


def _first(what: Any) -> Tensor | None:
    if isinstance(what, Tensor):
        return what
    if isinstance(what, (list, tuple)):
        return next((t for t in map(_first, what) if t is not None), None)
    return None


class Halves(ProcessGroup):
    """ProcessGroup, and `rest`, which PyTorch made."""

    def __init__(self, rest: Any, others: list[str], *args: Any) -> None:
        super().__init__(*args)
        self._rest = rest
        self._others = [torch.device(d) for d in others]
        if rest.bound_device_id is not None:
            self.bound_device_id = rest.bound_device_id

    def _has(self, device: Any) -> bool:
        return device is not None and torch.device(torch.device(device).type) in self._others

    def barrier(self, opts: Any = None, timeout: Any = None) -> Any:
        if self._has(getattr(opts, "device", None)):
            return self._rest.barrier(opts)
        return super().barrier(opts, timeout)

    def _start_coalescing(self, device: Any = None) -> Any:
        return self._rest._start_coalescing(device) if self._has(device) else super()._start_coalescing(device)

    def _end_coalescing(self, device: Any = None) -> Any:
        return self._rest._end_coalescing(device) if self._has(device) else super()._end_coalescing(device)

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu"), *self._others]

    def _get_backend(self, device: Any) -> Any:
        return self._rest._get_backend(torch.device(device)) if self._has(device) else super()._get_backend(device)

    get_backend = _get_backend

    def setGroupName(self, name: str) -> None:
        super().setGroupName(name)
        self._rest._set_group_name(name)

    _set_group_name = setGroupName

    def setGroupDesc(self, description: str) -> None:
        super().setGroupDesc(description)
        self._rest._set_group_desc(description)

    _set_group_desc = setGroupDesc

    def split_group(self, *args: Any, **words: Any) -> Any:
        raise NotImplementedError("coll: a group of two halves cannot be split; dist.new_group() makes one")

    splitGroup = split_group

    def abort(self, reason: str = "torch.distributed aborted the group") -> None:
        super().abort(reason)
        self._rest.abort()

    def shutdown(self) -> None:
        super().shutdown()
        self._rest.shutdown()


def _routed(name: str) -> Any:
    @functools.wraps(getattr(ProcessGroup, name))
    def call(self: Any, *args: Any, **words: Any) -> Any:
        tensor = _first([*args, *words.values()])
        if tensor is not None and self._has(tensor.device):
            return getattr(self._rest, name)(*args, **words)
        return getattr(ProcessGroup, name)(self, *args, **words)  # as it is now: a profiler replaces it

    return call


for _name in _CALLS:
    setattr(Halves, _name, _routed(_name))

__all__ = ["Halves"]
