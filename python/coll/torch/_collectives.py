"""The collectives of a process group, under their old and new names, and with the short forms of their arguments.

Each method brings its tensors into one flat array for reading and one for writing, hands them to `_call` of the group, and says
what copies results to where they belong. All of it is done before anything is sent, so wrong arguments lose nothing.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C import _distributed_c10d as _c10d

from .._errors import ArgumentError, CollError
from . import _devices, _sparse, _tensors
from ._work import STARTED, STARTING, OnDevice, Several, Work, done, other_threads, together, translate

_R = dist.ReduceOp
_NAMES = {"SUM": "sum", "PRODUCT": "prod", "MIN": "min", "MAX": "max", "AVG": "avg", "BAND": "band", "BOR": "bor", "BXOR": "bxor"}
# Comparing two ReduceOps takes 2 us; their hashes are the numbers of the enumeration's members.
OPS: dict[int, str] = {hash(getattr(_R, _name)): _ours for _name, _ours in _NAMES.items()}
assert len(OPS) == len(_NAMES) and all(hash(_R(getattr(_R, n))) == hash(getattr(_R, n)) for n in _NAMES)
assert hash(_R.PREMUL_SUM) not in OPS
_DONE = done([])


def _is_sequence(x: Any) -> bool:
    return isinstance(x, (list, tuple))


def _placed(method: Any) -> Any:
    """A method whose tensors may be on a device: then it runs in the lane of the group, where _call() enqueues. Else those of
    unfinished calls are in order with them."""
    names = method.__code__.co_varnames[1:method.__code__.co_argcount]

    @functools.wraps(method)
    def call(self: Any, *args: Any, **words: Any) -> Any:
        device, tensors = _devices.place_of(method.__name__, [*zip(names, args), *words.items()])
        if device is None:
            with self._turn:
                self._order(tensors, False)
                work = method(self, *args, **words)
                if not work._ended:
                    self._remember(work, tensors)
            return work
        with self._on(device, tensors):
            return method(self, *args, **words)

    return call


class Collectives:
    """Mixed into ProcessGroup, which has _call(), _on(), _comm, _stream, _turn, _lock, _size and _rank."""

    # Of ProcessGroup.
    _comm: Any
    _call: Callable[..., Work]
    _turn: Any
    _lock: Any
    _run: Callable[..., Any]
    _size: int
    _rank: int
    _last: Any
    _collecting: Any
    _settle: Any
    _order: Callable[[list[Tensor], bool], None]
    _remember: Callable[[Work, list[Tensor]], None]

    # ---- Reductions ----

    def _op(self, op: Any, inputs: list[Tensor]) -> tuple[str, list[Tensor] | None]:
        """The library's name of an operation, and scaled copies of the inputs for a premultiplied sum."""
        name = OPS.get(hash(op))
        if name is not None:
            return name, None
        kind, factor = op.__getstate__() if hasattr(op, "__getstate__") else (op, None)
        if kind != _R.RedOpType.PREMUL_SUM or factor is None:
            raise ArgumentError(f"coll: there is no reduction {op}")
        self._order(inputs, True)
        return "sum", [_tensors.scaled(t, factor) for t in inputs]

    def _apart(self, x: Tensor, out: Tensor, tensors: list[Tensor], at: int | None = None) -> Tensor:
        """The input of a call, or a copy of it. Where it shares memory with the output, a call takes it only if it begins so many
        elements behind the output, and another rank may have no such call."""
        if not _tensors.overlap(x, out) or at is not None and x.data_ptr() == out.data_ptr() + at * out.element_size():
            return x
        self._order(tensors, True)
        return x.clone()

    def allreduce(self, tensors: Any, opts: Any = None, timeout: Any = None) -> Work:
        try:  # one tensor, blocking, no other call in progress, no other thread: the short way
            name = OPS[hash(opts.reduceOp)]
            (x,) = tensors
            short = (not opts.asyncOp and not self._collecting and not x.is_cuda
                     and (self._size == 1 or len(STARTING) + len(STARTED) < 2 or not other_threads()))
        except (AttributeError, KeyError, TypeError, ValueError):
            short = False
        if short:  # beyond that try: what a signal handler raises in the call is the caller's
            try:
                with self._lock:  # without a turn: whoever waits in one has a call that is not complete
                    last = self._last
                    if last is None or last.done():
                        if last is not None:
                            self._settle()
                        self._comm.all_reduce(x, name, out=x)
                        return _DONE
            except CollError as error:
                if error.lost != "call":
                    raise translate(error, self._limit) from error
                # Nothing was sent: sparse and lazily conjugated tensors go the long way, which also has the better sentences.
        work: Work = self._all_reduce(tensors, opts)
        return work

    @_placed
    def _all_reduce(self, tensors: Any, opts: Any = None) -> Work:
        if opts is None or not hasattr(opts, "reduceOp"):
            opts = _options(_c10d.AllreduceOptions, reduceOp=opts)
        many = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        if len(many) != 1:
            raise ArgumentError(f"coll: all_reduce takes one tensor, not {len(many)}; allreduce_coalesced takes several")
        return self._all_reduce_one(many, opts)

    def _all_reduce_one(self, tensors: list[Tensor], opts: Any) -> Work:
        (x,) = tensors
        if x.layout is not torch.strided:
            return self._all_reduce_sparse(x, tensors, opts)
        op, scaled = self._op(opts.reduceOp, tensors)
        if scaled is not None:
            flat = scaled[0].contiguous().view(-1)
            place = x.detach()
            after: Any = lambda: place.copy_(flat.view(place.shape))
        else:
            flat, after = _tensors.both(x)
        return self._call(opts, "all_reduce", (flat, op), {"out": flat}, tensors, after)

    def _all_reduce_sparse(self, x: Tensor, tensors: list[Tensor], opts: Any) -> Work:
        """Several calls, all made at once: the Work has ended when it is returned."""
        op, scaled = self._op(opts.reduceOp, tensors)
        try:
            with self._turn:
                self._settle()
                result = _sparse.all_reduce(functools.partial(self._run, "all_gather"), self._size, x if scaled is None else scaled[0], op)
                with torch.no_grad():  # a detached copy would get indices of its own
                    x.copy_(result)
        except CollError as error:
            raise translate(error, self._limit) from error
        return done(tensors)

    @_placed
    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Work:
        opts = opts if opts is not None else _c10d.AllreduceCoalescedOptions()
        _tensors.same_type("all_reduce_coalesced", tensors)
        return self._several(opts, list(tensors), [lambda o, t=t: self._all_reduce_one([t], o) for t in tensors])

    @_placed
    def reduce(self, tensors: Any, root: Any = None, op: Any = None, timeout: Any = None) -> Work:
        if isinstance(tensors, Tensor):
            opts = _options(_c10d.ReduceOptions, reduceOp=op, rootRank=root, timeout=timeout)
            tensors = [tensors]
        else:
            opts = root if root is not None else _c10d.ReduceOptions()
        x = _one("reduce", tensors)
        name, scaled = self._op(opts.reduceOp, [x])
        flat, after = _tensors.both(x) if scaled is None else (scaled[0].contiguous().view(-1), None)
        words = {}
        if opts.rootRank == self._rank:
            words["out"] = flat
            if scaled is not None:
                place = x.detach()
                after = lambda: place.copy_(flat.view(place.shape))
        else:
            after = None
        return self._call(opts, "reduce", (flat, name, opts.rootRank), words, [x], after)

    @_placed
    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None, timeout: Any = None) -> Work:
        if isinstance(outputs, Tensor):
            outputs, inputs = [outputs], [inputs]
        opts = _reducing(_c10d.ReduceScatterOptions, opts)
        out, parts = _one("reduce_scatter", outputs), _one("reduce_scatter", inputs)
        self._need_parts("reduce_scatter", parts)
        _tensors.same_type("reduce_scatter", [out, *parts])
        counts = [t.numel() for t in parts]
        if counts[self._rank] != out.numel():
            raise ArgumentError(f"coll: reduce_scatter: the output has {out.numel()} elements, input {self._rank} has {counts[self._rank]}")
        name, scaled = self._op(opts.reduceOp, parts)
        flat, after = _tensors.target(out)
        words = {"out": flat} if len(set(counts)) == 1 else {"out": flat, "counts": counts}
        x = self._apart(_tensors.joined_source(scaled or parts), flat, parts, -_before(counts, self._rank))
        return self._call(opts, "reduce_scatter", (x, name), words, list(outputs), after)

    @_placed
    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:
        opts = _reducing(_c10d.ReduceScatterOptions, opts)
        _tensors.same_type("reduce_scatter", [output, input])
        if input.numel() != output.numel() * self._size:
            raise ArgumentError(f"coll: reduce_scatter: the input has {input.numel()} elements, {self._size} times the "
                                f"{output.numel()} of the output are needed")
        name, scaled = self._op(opts.reduceOp, [input])
        flat, after = _tensors.target(output)
        x = self._apart(_tensors.source(scaled[0] if scaled else input), flat, [input], -self._rank * flat.numel())
        return self._call(opts, "reduce_scatter", (x, name), {"out": flat}, [output], after)

    _reduce_scatter_base = reduce_scatter_single

    @_placed
    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        opts = _reducing(_c10d.ReduceScatterOptions, opts)
        return self._several(opts, list(outputs),
                             [lambda o, a=a, b=b: self.reduce_scatter_single(a, b, o) for a, b in zip(outputs, inputs, strict=True)])

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # ---- Copies ----

    @_placed
    def broadcast(self, tensors: Any, root: Any = None, timeout: Any = None) -> Work:
        if isinstance(tensors, Tensor):
            opts = _options(_c10d.BroadcastOptions, rootRank=root, timeout=timeout)
            tensors = [tensors]
        else:
            opts = root if root is not None else _c10d.BroadcastOptions()
        x = _one("broadcast", tensors)
        flat, after = _tensors.both(x) if opts.rootRank == self._rank else _tensors.target(x)
        return self._call(opts, "broadcast", (flat, opts.rootRank), {}, list(tensors), None if opts.rootRank == self._rank else after)

    @_placed
    def allgather(self, outputs: Any, inputs: Any, opts: Any = None, timeout: Any = None) -> Work:
        if isinstance(inputs, Tensor):
            outputs, inputs = [outputs], [inputs]
        opts = opts if opts is not None and hasattr(opts, "asyncOp") else _c10d.AllgatherOptions()
        x, parts = _one("all_gather", inputs), _one("all_gather", outputs)
        self._need_parts("all_gather", parts)
        _tensors.same_type("all_gather", [x, *parts])
        counts = [t.numel() for t in parts]
        if counts[self._rank] != x.numel():
            raise ArgumentError(f"coll: all_gather: the input has {x.numel()} elements, output {self._rank} has {counts[self._rank]}")
        flat, after = _tensors.joined_target(parts)
        words = {"out": flat} if len(set(counts)) == 1 else {"out": flat, "counts": counts}
        x = self._apart(_tensors.source(x), flat, [x], _before(counts, self._rank))
        return self._call(opts, "all_gather", (x,), words, outputs, after)

    @_placed
    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:
        opts = opts if opts is not None else _c10d.AllgatherOptions()
        _tensors.same_type("all_gather", [output, input])
        if output.numel() != input.numel() * self._size:
            raise ArgumentError(f"coll: all_gather: the output has {output.numel()} elements, {self._size} times the "
                                f"{input.numel()} of the input are needed")
        flat, after = _tensors.target(output)
        x = _tensors.source(input)
        x = self._apart(x, flat, [input], self._rank * x.numel())
        return self._call(opts, "all_gather", (x,), {"out": flat}, [output], after)

    _allgather_base = all_gather_single

    @_placed
    def allgather_coalesced(self, output_lists: Any, inputs: Any, opts: Any = None) -> Work:
        opts = opts if opts is not None else _c10d.AllgatherOptions()
        calls = [lambda o, i=i, x=x: self.allgather([[row[i] for row in output_lists]], [x], o) for i, x in enumerate(inputs)]
        return self._several(opts, output_lists, calls)

    @_placed
    def all_gather_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        opts = opts if opts is not None else _c10d.AllgatherOptions()
        return self._several(opts, list(outputs),
                             [lambda o, a=a, b=b: self.all_gather_single(a, b, o) for a, b in zip(outputs, inputs, strict=True)])

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    @_placed
    def gather(self, outputs: Any, inputs: Any, root: Any = None, timeout: Any = None) -> Work:
        if isinstance(inputs, Tensor):
            opts = _options(_c10d.GatherOptions, rootRank=root, timeout=timeout)
            outputs, inputs = [outputs] if outputs else [], [inputs]
        else:
            opts = root if root is not None else _c10d.GatherOptions()
        x = _one("gather", inputs)
        words: dict[str, Any] = {"counts": [0] * self._size}
        mine, after = _tensors.source(x), None
        if opts.rootRank == self._rank:
            parts = _one("gather", outputs)
            self._need_parts("gather", parts)
            _tensors.same_type("gather", [x, *parts])
            flat, after = _tensors.joined_target(parts)
            counts = [t.numel() for t in parts]
            words = {"out": flat, "counts": counts}
            mine = self._apart(mine, flat, [x], _before(counts, self._rank))
        elif outputs and outputs[0]:
            raise ArgumentError("coll: gather: outputs are for the root alone")
        return self._call(opts, "gather", (mine, opts.rootRank), words, outputs, after)

    @_placed
    def scatter(self, outputs: Any, inputs: Any, root: Any = None, timeout: Any = None) -> Work:
        if isinstance(outputs, Tensor):
            opts = _options(_c10d.ScatterOptions, rootRank=root, timeout=timeout)
            outputs, inputs = [outputs], [inputs] if inputs else []
        else:
            opts = root if root is not None else _c10d.ScatterOptions()
        out = _one("scatter", outputs)
        x, counts = None, [0] * self._size
        if opts.rootRank == self._rank:
            parts = _one("scatter", inputs)
            self._need_parts("scatter", parts)
            _tensors.same_type("scatter", [out, *parts])
            x, counts = _tensors.joined_source(parts), [t.numel() for t in parts]
        elif inputs and inputs[0]:
            raise ArgumentError("coll: scatter: inputs are for the root alone")
        flat, after = _tensors.target(out)
        if x is not None:
            x = self._apart(x, flat, parts, -_before(counts, self._rank))
        return self._call(opts, "scatter", (x, opts.rootRank), {"out": flat, "counts": counts}, [out], after)

    # ---- All to all ----

    @_placed
    def all_to_all_single(self, output: Tensor, input: Tensor, output_split_sizes: Any = None, input_split_sizes: Any = None,
                          opts: Any = None, timeout: Any = None) -> Work:
        opts = opts if opts is not None and hasattr(opts, "asyncOp") else _c10d.AllToAllOptions()
        _tensors.same_type("all_to_all", [output, input])
        sent = self._splits("input", input, input_split_sizes)
        got = self._splits("output", output, output_split_sizes)
        flat, after = _tensors.target(output)
        # With counts always: a rank whose parts are equal may give no sizes while others do.
        words = {"out": flat, "in_counts": sent, "out_counts": got}
        return self._call(opts, "all_to_all", (self._apart(_tensors.source(input), flat, [input]),), words, [output], after)

    alltoall_base = all_to_all_single

    def _splits(self, what: str, tensor: Tensor, sizes: Any) -> list[int]:
        """Elements for each rank."""
        rows = tensor.shape[0] if tensor.dim() else 1
        row = tensor.numel() // rows if rows else 0
        if not sizes:
            if rows % self._size != 0:
                raise ArgumentError(f"coll: all_to_all: Tensor's dim 0 does not divide equally across group size: the {what} has "
                                    f"{rows} rows, and there are {self._size} ranks")
            return [tensor.numel() // self._size] * self._size
        if len(sizes) != self._size:
            raise ArgumentError(f"coll: all_to_all: Number of tensor splits not equal to group size: {len(sizes)} of the {what} for "
                                f"{self._size} ranks")
        if sum(sizes) != rows:
            raise ArgumentError(f"coll: all_to_all: Split sizes doesn't match total dim 0 size: {sum(sizes)} rows of the {what}, which "
                                f"has {rows}")
        return [n * row for n in sizes]

    @_placed
    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None, timeout: Any = None) -> Work:
        opts = opts if opts is not None and hasattr(opts, "asyncOp") else _c10d.AllToAllOptions()
        self._need_parts("all_to_all", outputs)
        self._need_parts("all_to_all", inputs)
        _tensors.same_type("all_to_all", [*outputs, *inputs])
        flat, after = _tensors.joined_target(outputs)
        words = {"out": flat, "in_counts": [t.numel() for t in inputs], "out_counts": [t.numel() for t in outputs]}
        x = self._apart(_tensors.joined_source(inputs), flat, list(inputs))
        return self._call(opts, "all_to_all", (x,), words, list(outputs), after)

    all_to_all = alltoall

    # ---- Helpers ----

    def _need_parts(self, what: str, parts: Any) -> None:
        if not _is_sequence(parts) or len(parts) != self._size:
            raise ArgumentError(f"coll: {what}: {len(parts) if _is_sequence(parts) else 'no'} tensors, one for each of "
                                f"{self._size} ranks is needed")

    def _several(self, opts: Any, value: Any, calls: list[Any]) -> Work:
        """Calls made together. Their own Works wait in one."""
        works = [call(opts) for call in calls]
        return self._together(works, value)

    def _together(self, works: list[Work], value: Any) -> Work:
        if any(isinstance(w, OnDevice) for w in works):
            return together(works, value)
        if all(w._ended and w._failure is None for w in works):
            return done(value)
        work = Several()
        work._parts = tuple(works)
        work._value = value
        self._begin(work)
        return work

    _begin: Any
    _limit: float


def _before(counts: list[int], rank: int) -> int:
    """Where the part of a rank begins."""
    return sum(counts[:rank])


def _one(what: str, tensors: Any) -> Any:
    if not _is_sequence(tensors) or len(tensors) != 1:
        raise ArgumentError(f"coll: {what} takes one tensor for each process, "
                            f"not {len(tensors) if _is_sequence(tensors) else type(tensors).__name__}")
    return tensors[0]


def _options(kind: Any, **values: Any) -> Any:
    """Options of torch from the short form of a call."""
    opts = kind()
    for name, value in values.items():
        if value is not None:
            setattr(opts, name, value)
    return opts


def _reducing(kind: Any, opts: Any) -> Any:
    if opts is None:
        return kind()
    return opts if hasattr(opts, "reduceOp") else _options(kind, reduceOp=opts)


__all__ = ["OPS", "Collectives"]
