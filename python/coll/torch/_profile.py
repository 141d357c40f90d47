"""Events for PyTorch's profiler: "coll:all_reduce 400 B" for each call, from its start to its end.

While a profiler is on, the methods of ProcessGroup are replaced by ones that record; when it stops they are put back. So calls cost nothing
more without a profiler. An asynchronous call ends in the thread that runs what is chained to its future; a receive, when its end is seen.
"""

from __future__ import annotations

import functools
from typing import Any

import torch.autograd.profiler as _profiler

from ._devices import tensors_in
from ._group import ProcessGroup
from ._work import Receive

# The methods that PyTorch calls, and what a user of torch.distributed calls.
_CALLS = {
    "allreduce": "all_reduce", "allreduce_coalesced": "all_reduce", "reduce": "reduce", "reduce_scatter": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter", "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_single_coalesced": "reduce_scatter", "reduce_scatter_tensor_coalesced": "reduce_scatter", "broadcast": "broadcast",
    "allgather": "all_gather", "all_gather_single": "all_gather", "_allgather_base": "all_gather", "allgather_coalesced": "all_gather",
    "all_gather_single_coalesced": "all_gather", "allgather_into_tensor_coalesced": "all_gather", "gather": "gather", "scatter": "scatter",
    "all_to_all_single": "all_to_all", "alltoall_base": "all_to_all", "alltoall": "all_to_all", "all_to_all": "all_to_all",
    "barrier": "barrier", "send": "send", "recv": "recv", "recv_anysource": "recv"}
_plain: dict[str, Any] = {}  # what was in the class, while a profiler is on


def _label(name: str, arguments: Any) -> str:
    """With the bytes of the largest argument, such as the list of outputs of a gather."""
    sizes = [sum(t.numel() * t.element_size() for t in tensors_in(a)) for a in arguments]
    return f"coll:{_CALLS[name]}" + (f" {max(sizes)} B" if any(sizes) else "")


def _recorded(name: str) -> Any:
    plain = getattr(ProcessGroup, name)

    @functools.wraps(plain)
    def call(self: Any, *args: Any, **words: Any) -> Any:
        record = _profiler.record_function(_label(name, [*args, *words.values()]))
        with record:
            work = plain(self, *args, **words)
            if not work.is_completed():
                if isinstance(work, Receive):
                    record.run_callbacks_on_exit = False
                    work._record = record
                else:
                    record._call_end_callbacks_on_future(work.get_future())
        return work

    return call


def _finish(self: Any, limit: float | None) -> None:
    try:
        _plain_finish(self, limit)
    finally:
        record, self._record = getattr(self, "_record", None), None
        if record is not None and self._ended:
            record.run_callbacks_on_exit = True
            record.__exit__(None, None, None)
        else:
            self._record = record


_plain_finish = Receive._finish


def _begin() -> None:
    for name in _CALLS if not _plain else ():
        _plain[name] = vars(ProcessGroup).get(name)
        setattr(ProcessGroup, name, _recorded(name))
    Receive._finish = _finish  # type: ignore[method-assign]


def _end() -> None:
    for name, function in _plain.items():
        if function is None:
            delattr(ProcessGroup, name)
        else:
            setattr(ProcessGroup, name, function)
    _plain.clear()
    Receive._finish = _plain_finish  # type: ignore[method-assign]


def watch() -> None:
    """Hear of PyTorch's profilers. A PyTorch that does not tell of them has no events."""
    for name, ours in (("_run_on_profiler_start", _begin), ("_run_on_profiler_stop", _end)):
        theirs = getattr(_profiler, name, None)
        if theirs is not None:
            setattr(_profiler, name, functools.partial(_both, theirs, ours))


def _both(theirs: Any, ours: Any) -> None:
    theirs()
    ours()


__all__ = ["watch"]
