"""Operation x type x layout for every collective, beside numpy. usage: collrun -n N python matrix.py

Layouts: contiguous, every second element, backwards, two axes transposed, empty, one element, a number that no ring divides.
Values are small integers, so that every order of additions gives the same bits.
"""

import sys

import coll
from ranks import check, main, needs, raises

(np,) = needs("numpy")

REDUCE = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum, "band": np.bitwise_and,
          "bor": np.bitwise_or, "bxor": np.bitwise_xor, "land": np.logical_and, "lor": np.logical_or,
          "lxor": np.logical_xor}
INTS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
FLOATS = [np.float16, np.float32, np.float64]
COMPLEX = [np.complex64, np.complex128]
LAYOUTS = ["flat", "strided", "backwards", "transposed", "empty", "one", "odd"]
OPAQUE = ["datetime64[s]", "S5", [("a", "i4"), ("b", "f8")], ">i4"]
BITS = ("band", "bor", "bxor")


def values(dtype, shape, seed):
    """The same on all ranks for the same seed: small, of both signs where there are any, exact in f16."""
    rng = np.random.default_rng(seed)
    low = 0 if np.dtype(dtype).kind in "ub?" else -3
    whole = rng.integers(low, 4, shape)
    if np.dtype(dtype).kind == "c":
        whole = whole + 1j * rng.integers(-3, 4, shape)
    if np.dtype(dtype).kind in "mMSV":
        raw = rng.integers(0, 100, (*shape, np.dtype(dtype).itemsize), np.uint8)
        return raw.view(dtype).reshape(shape)
    return whole.astype(dtype)


def place(data, layout):
    """The data in an array that lies so in memory."""
    if layout == "strided":
        home = np.zeros((2 * data.shape[0], *data.shape[1:]), data.dtype)
        view = home[::2]
    elif layout == "backwards":
        view = np.zeros(data.shape, data.dtype)[::-1]
    elif layout == "transposed":
        view = np.zeros(data.shape[::-1], data.dtype).T
    else:
        return data.copy()
    view[...] = data
    return view


def shape_of(layout, lead=1):
    rest = {"empty": (0,), "one": (1,), "odd": (7,), "transposed": (6, 3)}.get(layout, (12,))
    return (lead * rest[0], *rest[1:])


def same(got, wanted, *facts):
    """The library gives the input's type back; np.stack() and the like turn bytes into the order of the machine."""
    got = np.asarray(got)
    wanted = np.asarray(wanted).astype(got.dtype) if np.asarray(wanted).dtype.newbyteorder("=") == got.dtype.newbyteorder(
        "=") else np.asarray(wanted)
    check(got.shape == wanted.shape and got.dtype == wanted.dtype, *facts, got.shape, got.dtype, wanted.shape,
          wanted.dtype)
    check(got.tobytes() == wanted.tobytes(), *facts, got, wanted)


def ops_of(dtype):
    kind = np.dtype(dtype).kind
    if kind == "c":
        return ["sum"]
    if kind == "f":
        return ["sum", "prod", "min", "max", "land", "lor", "lxor"]
    return list(REDUCE)


def reference(op, parts):
    """As the library has it: logical operations give 0 or 1 of the type, true + true is true."""
    dtype = parts[0].dtype
    if op in ("land", "lor", "lxor"):
        parts = [p.astype(bool) for p in parts]
    total = parts[0].copy()
    for p in parts[1:]:
        with np.errstate(over="ignore"):
            total = REDUCE[op](total, p)
    return total.astype(dtype)


def reductions(comm, dtype, layout):
    n, rank = comm.size, comm.rank
    for op in ops_of(dtype):
        name = (np.dtype(dtype).name, layout, op)
        parts = [values(dtype, shape_of(layout), 10 * r) for r in range(n)]
        wanted, x = reference(op, parts), place(parts[rank], layout)
        same(comm.all_reduce(x, op), wanted, "all_reduce", *name)
        same(x, parts[rank], "the input of all_reduce", *name)
        out = place(np.zeros_like(wanted), layout)
        check(comm.all_reduce(x, op, out=out) is out)
        same(out, wanted, "all_reduce, out", *name)
        got = comm.reduce(x, op, n - 1)
        if rank == n - 1:
            same(got, wanted, "reduce", *name)
        same(comm.scan(x, op), reference(op, parts[:rank + 1]), "scan", *name)
        if rank > 0:
            same(comm.exclusive_scan(x, op), reference(op, parts[:rank]), "exclusive_scan", *name)
        else:
            out = place(np.ones_like(wanted), layout)
            check(comm.exclusive_scan(x, op, out=out) is None)
            same(out, np.ones_like(wanted), "exclusive_scan, out of rank 0", *name)
        same(comm.all_reduce(x, op, out=x), wanted, "all_reduce in place", *name)
        tall = [values(dtype, shape_of(layout, n), 10 * r + 1) for r in range(n)]
        rows = shape_of(layout)[0]
        wanted = reference(op, tall)
        same(comm.reduce_scatter(place(tall[rank], layout), op), wanted[rank * rows:(rank + 1) * rows],
             "reduce_scatter", *name)
        counts = [r % 3 for r in range(n)]
        tall = [values(dtype, (sum(counts), 2), 10 * r + 2) for r in range(n)]
        begin = sum(counts[:rank])
        same(comm.reduce_scatter(place(tall[rank], layout), op, counts=counts),
             reference(op, tall)[begin:begin + counts[rank]], "reduce_scatter, counts", *name)


def average(comm, dtype, layout):
    parts = [values(dtype, shape_of(layout), 10 * r) * comm.size for r in range(comm.size)]
    wanted = sum(p.astype(np.complex128 if np.dtype(dtype).kind == "c" else np.float64) for p in parts) / comm.size
    got = comm.all_reduce(place(parts[comm.rank], layout), "avg")
    check(got.dtype == np.dtype(dtype) and np.allclose(got, wanted, rtol=0.01), "avg", np.dtype(dtype).name, layout)


def moves(comm, dtype, layout):
    n, rank, name = comm.size, comm.rank, (str(np.dtype(dtype)), layout)
    parts = [values(dtype, shape_of(layout), 10 * r + 3) for r in range(n)]
    x = place(parts[rank], layout)
    same(comm.all_gather(x), np.stack(parts), "all_gather", *name)
    root = n // 2
    got = comm.gather(x, root)
    if rank == root:
        same(got, np.stack(parts), "gather", *name)
    y = place(parts[rank], layout)
    check(comm.broadcast(y, root) is y)
    same(y, parts[root], "broadcast", *name)
    tall = [values(dtype, shape_of(layout, n), 10 * r + 4) for r in range(n)]
    rows = shape_of(layout)[0]
    mine = slice(rank * rows, (rank + 1) * rows)
    same(comm.all_to_all(place(tall[rank], layout)), np.concatenate([t[mine] for t in tall]), "all_to_all", *name)
    out = place(np.zeros_like(parts[0]), layout)
    comm.scatter(place(tall[root], layout) if rank == root else None, root, out=out)
    same(out, tall[root][mine], "scatter", *name)
    pairs(comm, parts, layout, name)
    ragged(comm, dtype, layout, name)


def pairs(comm, parts, layout, name):
    n, rank = comm.size, comm.rank
    if n == 1:
        return
    y = place(np.zeros_like(parts[0]), layout)
    comm.send_recv(place(parts[rank], layout), (rank + 1) % n, y, (rank - 1) % n)
    same(y, parts[(rank - 1) % n], "send_recv", *name)
    if rank == 0:
        comm.send(place(parts[0], layout), 1)
    elif rank == 1:
        same(comm.recv(place(np.zeros_like(parts[0]), layout), 0), parts[0], "send, recv", *name)


def ragged(comm, dtype, layout, name):
    n, rank = comm.size, comm.rank
    counts = [(r + 1) % 3 for r in range(n)]
    parts = [values(dtype, (counts[r], 2), 10 * r + 5) for r in range(n)]
    x, joined = place(parts[rank], layout), np.concatenate(parts).astype(dtype)
    same(comm.all_gather(x, counts="any"), joined, "all_gather, counts", *name)
    got = comm.gather(x, 0, counts=counts)
    if rank == 0:
        same(got, joined, "gather, counts", *name)
    out = place(np.zeros_like(parts[rank]), layout)
    comm.scatter(place(joined, layout) if rank == 0 else None, 0, out=out, counts=counts)
    same(out, parts[rank], "scatter, counts", *name)
    # Rank s sends (s + 2 d) % 4 rows to rank d.
    tall = [values(dtype, (sum((s + 2 * d) % 4 for d in range(n)), 2), 10 * s + 6) for s in range(n)]
    blocks = [np.split(tall[s], np.cumsum([(s + 2 * d) % 4 for d in range(n - 1)])) for s in range(n)]
    sent, got = [(rank + 2 * d) % 4 for d in range(n)], [(s + 2 * rank) % 4 for s in range(n)]
    same(comm.all_to_all(place(tall[rank], layout), in_counts=sent, out_counts=got),
         np.concatenate([blocks[s][rank] for s in range(n)]), "all_to_all, counts", *name)


def test_reductions(comm):
    for dtype in [*INTS, *FLOATS, *COMPLEX, np.bool_]:
        for layout in LAYOUTS:
            reductions(comm, dtype, layout)
    for dtype in [*FLOATS, *COMPLEX]:
        for layout in LAYOUTS:
            average(comm, dtype, layout)


def test_moves(comm):
    for dtype in [*INTS, *FLOATS, *COMPLEX, np.bool_, *OPAQUE]:
        for layout in LAYOUTS:
            moves(comm, dtype, layout)


def test_scalars_and_large(comm):
    same(comm.all_reduce(np.float32(2)), np.asarray(2 * comm.size, np.float32), "a scalar")
    same(comm.all_gather(np.array(comm.rank)), np.arange(comm.size), "without axes")
    big = np.arange(300001, dtype=np.float64)
    same(comm.all_reduce(big), big * comm.size, "large")
    same(comm.all_reduce(big[::3], out=big[::3]), np.arange(0, 300001, 3, dtype=np.float64) * comm.size, "large, strided")
    view = np.asarray(comm.empty((3, 2), "f64"))
    view += comm.rank
    check(comm.all_reduce(view, out=view) is view and view[2, 1] == comm.size * (comm.size - 1) / 2)
    frozen = np.ones(3)
    frozen.flags.writeable = False
    same(comm.all_reduce(frozen), np.full(3, float(comm.size)), "read-only input")
    for x, out in ((frozen, frozen), (np.ones(3), frozen)):
        try:
            comm.all_reduce(x, out=out)
            check(False, "a read-only array was written")
        except coll.ArgumentError as error:
            check("read-only" in str(error))
    for x in (np.array([object()]), np.zeros(2, [("Other", "i4"), ("o", object)])):
        for call in (comm.all_reduce, comm.all_gather, comm.broadcast):
            raises(coll.ArgumentError, call, x, says="objects")
    same(comm.all_gather(np.zeros(2, [("Other", "i4")])), np.zeros((comm.size, 2), [("Other", "i4")]))


def test_objects(comm):
    got = comm.all_gather_object({"x": np.full(1000, comm.rank), "empty": np.zeros((0, 3))})
    for r, o in enumerate(got):
        same(o["x"], np.full(1000, r))
        check(o["x"].flags.writeable and o["empty"].shape == (0, 3))


if __name__ == "__main__":
    sys.exit(main(test_reductions, test_moves, test_scalars_and_large, test_objects))
