"""Tensors of torch: types and layouts, without coll.torch. usage: collrun -n N python tensors.py"""

import sys
import warnings

import coll
from ranks import check, main, needs, raises

(torch,) = needs("torch")

SUMS = [torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64,
        torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2]
LAYOUTS = ["flat", "strided", "transposed", "expanded", "empty", "one"]


def make(dtype, layout, rank):
    x = torch.arange(1, 13).add(rank).to(dtype)
    if layout == "strided":
        return x[::3]
    if layout == "transposed":
        return x.reshape(3, 4).t()
    if layout == "expanded":
        return x[:1].expand(4)
    return x[:{"empty": 0, "one": 1}.get(layout, 12)]


def equal(got, wanted, *facts):
    check(got.dtype == wanted.dtype and got.shape == wanted.shape, *facts, got, wanted)
    # Compared as bytes: torch has no comparison for some types.
    check(bytes(got.contiguous().reshape(-1).view(torch.uint8).numpy()) ==
          bytes(wanted.contiguous().reshape(-1).view(torch.uint8).numpy()), *facts, got, wanted)


def test_sums(comm):
    n = comm.size
    for dtype in SUMS:
        for layout in LAYOUTS:
            wide = torch.complex128 if dtype.is_complex else torch.float64
            parts = [make(dtype, layout, r).to(wide) for r in range(n)]
            wanted = sum(parts).to(dtype)
            x = make(dtype, layout, comm.rank)
            got = comm.all_reduce(x)
            check(isinstance(got, torch.Tensor))
            equal(got, wanted, "all_reduce", dtype, layout)
            if layout != "expanded":
                check(comm.all_reduce(x, out=x) is x)
                equal(x, wanted, "in place", dtype, layout)


def test_moves(comm):
    kinds = [*SUMS, torch.bool]
    for dtype in kinds:
        for layout in LAYOUTS:
            x = make(dtype, layout, comm.rank)
            equal(comm.all_gather(x), torch.stack([make(dtype, layout, r) for r in range(comm.size)]), dtype, layout)
            if layout != "expanded":
                equal(comm.broadcast(x, comm.size - 1), make(dtype, layout, comm.size - 1), "broadcast", dtype, layout)


def test_refused(comm):
    raises(coll.ArgumentError, comm.all_reduce, torch.ones(2).to_sparse())
    raises((coll.ArgumentError, coll.UnsupportedError), comm.all_reduce, torch.empty(2, device="meta"))
    raises(coll.ArgumentError, comm.all_reduce, torch.ones(2), out=torch.ones(2, dtype=torch.float64), says="type")
    check(comm.all_reduce(torch.ones(2, requires_grad=True)).tolist() == [comm.size] * 2)
    check(comm.all_reduce(torch.nn.Parameter(torch.ones(2))).tolist() == [comm.size] * 2)
    view = torch.from_dlpack(comm.empty((2, 2)))
    view += 1
    comm.all_reduce(view, out=view)
    check(view.tolist() == [[comm.size] * 2] * 2)


class Local(torch.Tensor):
    """Stands for another tensor, as DTensor does: its own storage has no address."""

    @staticmethod
    def __new__(cls, of):
        return torch.Tensor._make_wrapper_subclass(cls, of.shape, dtype=of.dtype, strides=of.stride())

    def __init__(self, of):
        self.of = of

    def to_local(self):
        return self.of

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), words=None):
        return cls(function(*(a.of if isinstance(a, cls) else a for a in args), **(words or {})))


def test_without_memory(comm):
    """Tensors that have shapes and no memory: fake ones, wrappers, those whose storage was freed; and parts of them."""
    fake_tensor = __import__("torch._subclasses.fake_tensor", fromlist=["x"])
    with warnings.catch_warnings(), fake_tensor.FakeTensorMode():
        warnings.simplefilter("ignore")
        x, out = torch.ones(4, 4), torch.ones(1 << 20, 1 << 14)[-4:, :4]
        for kind in (x, x.t(), x[1:], x[1:].t(), out):
            raises(coll.ArgumentError, comm.all_reduce, kind, says="no memory")
            raises(coll.ArgumentError, comm.broadcast, kind, says="FakeTensor")
        raises(coll.ArgumentError, comm.all_reduce, x.t(), out=out, says="no memory")
        raises(coll.ArgumentError, comm.irecv, x.t(), says="no memory")
    wrapped = Local(torch.ones(4, 6))
    for kind in (wrapped, wrapped.t(), wrapped[:, 1:]):
        raises(coll.ArgumentError, comm.all_reduce, kind, says="pass its local tensor, of to_local()")
        with coll.group():
            raises(coll.ArgumentError, comm.all_reduce, kind, says="Local")
    check(comm.all_reduce(wrapped.t().to_local()).shape == (6, 4))
    freed = torch.ones(6, 6)
    parts = [freed, freed.t(), freed[1:], freed[1:].t()]
    freed.untyped_storage().resize_(0)
    for kind in parts:
        raises(coll.ArgumentError, comm.all_reduce, kind, says="no memory")
    check(comm.all_reduce(torch.ones(2)).tolist() == [comm.size] * 2)


def test_tolist(comm):
    """Numbers of a Buffer, beside those of torch for the same bits: all of 8 bits, and all of 16."""
    for name, dtype, bits in (("f8e4m3", torch.float8_e4m3fn, 8), ("f8e5m2", torch.float8_e5m2, 8), ("f16", torch.float16, 16),
                              ("bf16", torch.bfloat16, 16)):
        x = comm.empty(1 << bits, name)
        raw = torch.arange(1 << bits, dtype=torch.int32).to(torch.uint8 if bits == 8 else torch.uint16)
        torch.from_dlpack(x).view(raw.dtype).copy_(raw)
        wanted = torch.from_dlpack(x).to(torch.float64).tolist()
        got = x.tolist()
        if repr(got) != repr(wanted):  # -0.0 is not 0.0, and NaN is NaN
            check(False, name, *next((hex(i), a, b) for i, (a, b) in enumerate(zip(got, wanted)) if repr(a) != repr(b)))
        check(len(got) == 1 << bits and type(got[1]) is float, name)
    for name, dtype in (("c64", torch.complex64), ("c128", torch.complex128)):
        x = comm.empty((2, 3), name)
        torch.from_dlpack(x).copy_(torch.randn(2, 3, dtype=dtype))
        check(x.tolist() == torch.from_dlpack(x).tolist(), name)


def test_conjugated(comm):
    """A view that stands for other values than its memory has must not be read as it lies."""
    z = torch.tensor([1 + 2j, 3 - 1j])
    for lazy in (z.conj(), z.conj().imag, z[:1].conj().imag, z[0].conj().imag):
        raises(coll.ArgumentError, comm.all_reduce, lazy, says="resolve_conj")
    for plain in (z, z.imag, z[0].imag, z.conj().resolve_conj()):
        check(torch.equal(comm.all_reduce(plain), plain * comm.size))


def test_work(comm):
    stream, x = comm.stream(), torch.ones(1000)
    works = [comm.all_reduce(x, stream=stream) for _ in range(20)]
    check(all(w.result().sum().item() == 1000 * comm.size for w in works))


def test_other_memory(comm):
    """The program gives a tensor other memory while a call is at the old one: that stays mapped."""
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size

    def big():
        return torch.ones(8 << 20)

    def swap(x):
        x.data = torch.zeros(1)

    x, y, stream = big(), big(), comm.stream()
    go = comm.irecv(torch.zeros(1), left, 1)
    work, receive = comm.all_reduce(x, out=x, stream=stream), comm.irecv(y, left, 2)
    swap(x), swap(y)
    comm.send(torch.ones(1), right, tag=1)
    comm.send(big(), right, tag=2)
    go.wait(), work.wait()
    check(receive.wait().elements == 8 << 20 and x.tolist() == y.tolist() == [0])
    x, y = big(), big()
    operation = comm.prepare("all_reduce", x, out=x)
    swap(x)
    operation()
    with coll.group():
        comm.all_reduce(y, out=y)
        swap(y)
    check(y.tolist() == [0])


if __name__ == "__main__":
    sys.exit(main(test_sums, test_moves, test_refused, test_without_memory, test_tolist, test_conjugated, test_work, test_other_memory))
