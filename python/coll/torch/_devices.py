"""Tensors in memory of CUDA devices: all that coll.torch knows of torch.cuda, and the lane of a group.

A lane is what a group has for its device: a communicator that has the device, and a stream of its own, as PyTorch's backend nccl
has. A call goes into that stream behind the caller's current stream. Its Work makes the stream that waits for it wait, not the
host; so a call goes on beside what the program computes. Copies of strided tensors are made in the stream of the lane, too.

Nothing here runs before a group sees a CUDA tensor: a job without one makes no call of the driver.
"""

from __future__ import annotations

import contextlib
from typing import Any, Iterable, Iterator

import torch
from torch import Tensor

from .._errors import ArgumentError, CollError


class Cuda:
    """Streams and events of torch. The tests put another one into `cuda`, for the stand-in driver."""

    def current(self, device: torch.device) -> Any:
        return torch.cuda.current_stream(device)

    def stream(self, device: torch.device) -> Any:
        return torch.cuda.Stream(device)

    def inside(self, stream: Any) -> Any:
        """A `with` in which that stream is the current one."""
        return torch.cuda.stream(stream)

    def event(self, stream: Any) -> Any:
        """What the stream has been given until now; it has query() and synchronize()."""
        event = torch.cuda.Event()
        event.record(stream)
        return event

    def follow(self, stream: Any, event: Any) -> None:
        """What the stream is given from now on begins behind the event."""
        stream.wait_event(event)

    def finish(self, stream: Any) -> None:
        """The host waits for the stream."""
        stream.synchronize()

    def capturing(self) -> bool:
        return bool(torch.cuda.is_current_stream_capturing())

    def future(self, device: torch.device) -> Any:
        """For tensors there. Its wait() follows the stream in which the value was set."""
        return torch.futures.Future(devices=[device])


cuda = Cuda()


def built() -> bool:
    """Whether this torch can have CUDA tensors. Asks no driver."""
    return bool(torch.backends.cuda.is_built())


class Lane:
    """The device of a group."""

    def __init__(self, comm: Any, device: torch.device) -> None:
        self.comm = comm
        self.device = device
        self.stream = cuda.stream(device)
        self.last: Any = None  # the last call
        self.failure: CollError | None = None  # of an earlier one
        self.told = False  # a caller has seen an error of this lane

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """What is enqueued inside goes into the lane, behind what the caller has enqueued."""
        cuda.follow(self.stream, cuda.event(cuda.current(self.device)))
        with cuda.inside(self.stream):
            yield

    def call(self, method: str, args: tuple[Any, ...], words: dict[str, Any]) -> Any:
        work = getattr(self.comm, method)(*args, **words, stream=self.stream.cuda_stream)
        if not cuda.capturing():  # what is captured runs later, and is not waited for
            self.last = work
        return work

    def settle(self) -> CollError | None:
        """The host waits for all calls, and for what the caller has enqueued. The error of one of them."""
        error = self.last.exception() if self.last is not None else None
        cuda.finish(self.stream)
        cuda.finish(cuda.current(self.device))
        return self.failure or error


class Landing:
    """What copies a message from host memory to its place, behind what the caller had enqueued when it posted the receive."""

    def __init__(self, place: Tensor, made: Tensor, stream: Any) -> None:
        self.place, self.made, self.stream = place, made, stream
        self.before = cuda.event(cuda.current(place.device))

    def ready(self) -> bool:
        """The copy would not wait long."""
        return bool(self.before.query())

    def __call__(self) -> None:
        cuda.follow(self.stream, self.before)
        with cuda.inside(self.stream):
            self.place.copy_(self.made)
        cuda.finish(self.stream)


# ---- Where the tensors of a call are ----


def tensors_in(x: Any) -> Iterable[Tensor]:
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, (list, tuple)):
        for y in x:
            yield from tensors_in(y)


def place_of(what: str, arguments: Iterable[tuple[str, Any]]) -> tuple[torch.device | None, list[Tensor]]:
    """The device of the tensors, and they; None: host memory. All are on one device."""
    first: tuple[str, Tensor] | None = None
    on_device, tensors = False, []
    for name, argument in arguments:
        for tensor in tensors_in(argument):
            tensors.append(tensor)
            if first is None:
                first, on_device = (name, tensor), tensor.is_cuda
            elif (tensor.is_cuda or on_device) and tensor.device != first[1].device:
                raise ArgumentError(f"coll: {what}: {first[0]} is on {first[1].device} and {name} on {tensor.device}. The tensors of a "
                                    "call are all in host memory or all on one device: move them with .to()")
    return (first[1].device if first is not None and on_device else None), tensors


__all__ = ["Cuda", "Landing", "Lane", "built", "cuda", "place_of"]
