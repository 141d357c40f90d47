"""Messages between two ranks, and the barrier that says who is missing.

Messages of CUDA tensors pass through host memory and the communicator of the host. So they need nothing that all ranks would have to
make together, and either side may use host memory. A send waits for the tensor on the host.

Every send has a stream of its own while it lasts: a long one waits for its receive, and others must not wait behind it. Sends leave
in the order of the calls, since an idle stream starts a call at once. Receives are posted in the order of the calls.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch.distributed import DistBackendError

from .._errors import ArgumentError, CollError
from . import _devices, _tensors
from ._work import Receive, Work, translate

# Tags of users are below; these are of monitored_barrier(), two for each: messages of one that failed are not taken for another's.
_TAGS = 0x7fff0000
_BARRIERS = 0x7fff


def _check_tag(tag: int) -> int:
    if not 0 <= tag < _TAGS:
        raise ArgumentError(f"coll: tag is {tag}; tags are 0 to {_TAGS - 1}")
    return tag


class Pairs:
    """Mixed into ProcessGroup."""

    _comm: Any
    _lock: Any
    _rank: int
    _size: int
    _limit: float
    _begin: Any
    _within: Any
    _idle: list[Any]
    _landing: Any
    _sending: list[tuple[Any, Any]]
    _barriers = 0

    def send(self, tensors: Any, dstRank: int, tag: int = 0) -> Work:
        x = _tensors.source(tensors if isinstance(tensors, Tensor) else tensors[0])
        if x.is_cuda:
            x = x.cpu()
        work = Work()
        try:
            with self._lock:
                work._parts = (self._send(x, dstRank, _check_tag(tag)),)
        except CollError as error:
            raise translate(error, self._limit) from error
        work._value = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        self._begin(work)
        return work

    def _send(self, x: Tensor, peer: int, tag: int) -> Any:
        """The work of a send on a stream that is idle, as far as the last send, or a wait, has looked."""
        still = []
        for stream, work in self._sending:
            if work._is_done:
                if not work._failed:  # a stream keeps its first error
                    self._idle.append(stream)
            else:
                still.append((stream, work))
        stream = self._idle.pop() if self._idle else self._comm.stream()
        try:
            work = self._comm.send(x, peer, tag=tag, stream=stream)
        except BaseException:
            self._idle.append(stream)
            self._sending = still
            raise
        still.append((stream, work))
        self._sending = still
        return work

    def recv(self, tensors: Any, srcRank: int, tag: int = 0) -> Work:
        return self._receive(tensors, srcRank, tag)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Work:
        return self._receive(tensors, -1, tag)

    def _receive(self, tensors: Any, peer: int, tag: int) -> Work:
        x = tensors if isinstance(tensors, Tensor) else tensors[0]
        work = Receive()
        if x.is_cuda:
            flat, after = self._to_device(x)
            work._device = x.device
        else:
            flat, after = _tensors.target(x)
        try:
            with self._lock:
                work._parts = (self._comm.irecv(flat, peer, _check_tag(tag)),)
        except CollError as error:
            raise translate(error, self._limit) from error
        work._elements = flat.numel()
        work._any = peer < 0
        work._after = after
        work._value = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        self._begin(work)
        return work

    def _to_device(self, x: Tensor) -> tuple[Tensor, Any]:
        """Host memory for a message, and what copies it to its place: in a stream of its own, since calls may wait in the lane."""
        place = _tensors.check(x).detach()
        made = torch.empty(place.shape, dtype=place.dtype)
        with self._lock:
            if self._landing is None or self._landing[0] != place.device:
                self._landing = place.device, _devices.cuda.stream(place.device)
        return _tensors.target(made)[0], _devices.Landing(place, made, self._landing[1])

    # ---- The barrier that says who is missing ----

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """All ranks arrive at rank 0, which says who did not; then it lets all go."""
        limit = self._limit if timeout is None else timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
        until = time.monotonic() + limit
        with self._lock:
            arrived = _TAGS + 2 * (self._barriers % _BARRIERS)
            self._barriers += 1
        try:
            with self._within(max(limit, self._limit)):
                if self._rank == 0:
                    self._await_arrivals(arrived, limit, until, wait_all_ranks)
                else:
                    self._arrive(arrived, limit, until)
        except CollError as error:
            raise translate(error, limit) from error

    def _await_arrivals(self, tag: int, limit: float, until: float, everybody: bool) -> None:
        with self._lock:
            posted = [(r, self._comm.irecv(torch.empty(1, dtype=torch.uint8), r, tag)) for r in range(1, self._size)]
        missing: list[int] = []
        ms = round(limit * 1000)
        for at, (rank, receive) in enumerate(posted):
            if limit <= 0 and not receive.done():
                _cancel(posted)
                raise DistBackendError(f"coll: Rank 0 timed out in monitoredBarrier after {ms} ms.")
            try:
                receive.wait(max(0.0, until - time.monotonic()))
            except TimeoutError:
                missing.append(rank)
            except CollError as error:
                if error.lost == "call":
                    raise
                missing.append(rank)
            if missing and not everybody:
                break
        if missing:
            _cancel(posted)
            names = ", ".join(str(r) for r in missing)
            raise DistBackendError(f"coll: {'Ranks' if everybody else 'Rank'} {names} failed to pass monitoredBarrier in {ms} ms "
                                   f"(hosts: {', '.join(sorted({self._comm.host(r) for r in missing}))})")
        token = torch.zeros(1, dtype=torch.uint8)
        with self._lock:
            for rank in range(1, self._size):
                self._comm.send(token, rank, tag=tag + 1)

    def _arrive(self, tag: int, limit: float, until: float) -> None:
        token = torch.zeros(1, dtype=torch.uint8)
        with self._lock:
            self._comm.send(token, 0, tag=tag)
            receive = self._comm.irecv(token, 0, tag + 1)
        try:
            receive.wait(max(0.0, until - time.monotonic()))
        except (TimeoutError, CollError) as error:
            _cancel([(0, receive)])
            raise DistBackendError(
                f"coll: Rank {self._rank} successfully reached monitoredBarrier, but received errors while waiting for send/recv from "
                f"rank 0: no answer in {round(limit * 1000)} ms. Please check rank 0 logs for the ranks that are missing") from error


def _cancel(posted: list[tuple[int, Any]]) -> None:
    for _, receive in posted:
        try:
            receive.cancel()
        except CollError:
            pass


__all__ = ["Pairs"]
