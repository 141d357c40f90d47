"""coll.torch against a reference: every collective, type and layout, blocking and not. usage: collrun -n N python torch_matrix.py

Values are small integers that every type holds exactly, and differ by rank and place: a swapped block or a lost tag is seen.
"""

import time

from torch_ranks import c10d, check, dist, equal, main, np, raises, rank, same, size, torch

INTS = [torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2]
COMPLEX = [torch.complex64, torch.complex128]
# Moved, not reduced.
OTHERS = [torch.bool, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
ALL = INTS + FLOATS + COMPLEX + OTHERS
LAYOUTS = ["flat", "strided", "transposed", "offset"]
COUNTS = [0, 1, 7, 24]
# How many different values a type can add up for four ranks without rounding.
RANGE = {torch.float8_e5m2: 3, torch.float8_e5m2fnuz: 3, torch.float8_e4m3fn: 5, torch.float8_e4m3fnuz: 5, torch.bool: 2}
R = dist.ReduceOp


def every_pair(types):
    """(type, layout, count): every two of them are together in one."""
    for i, dtype in enumerate(types):
        for j, layout in enumerate(LAYOUTS):
            yield dtype, layout, COUNTS[(i + j) % len(COUNTS)]


def wide(dtype):
    """The type in which the reference computes."""
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else torch.int64


def values(dtype, count, r, seed=0):
    n = (torch.arange(count) * 5 + r * 3 + seed * 7 + (torch.arange(count) // 3) * r) % RANGE.get(dtype, 11)
    if dtype.is_complex:
        return torch.complex(n.double(), (n.double() * 2 - r)).to(dtype)
    return n.to(dtype)


def place(x, layout):
    """The same values in other memory; what lies between is watched by untouched()."""
    if layout == "strided" or (layout == "transposed" and x.numel() % 2):
        home = torch.zeros(3 * x.numel() + 1, dtype=torch.uint8).repeat_interleave(x.element_size()).view(x.dtype)
        view = home[1::3][:x.numel()]
    elif layout == "transposed":
        home = torch.zeros(x.numel() * x.element_size(), dtype=torch.uint8).view(x.dtype)
        view = home.view(2, x.numel() // 2).t() if x.numel() else home.view(0, 2).t()
        x = x.view(view.shape)
    elif layout == "offset":
        home = torch.zeros((x.numel() + 3) * x.element_size(), dtype=torch.uint8).view(x.dtype)
        view = home[2:2 + x.numel()]
    else:
        view = torch.empty_like(x)
    view.copy_(x)
    return view


def untouched(view, layout, *facts):
    """Nothing was written between the elements of a strided tensor."""
    if layout == "strided" and view.numel():
        base = view._base if view._base is not None else view
        size = view.element_size()
        raw = torch.empty(0, dtype=torch.uint8).set_(base.untyped_storage())
        mask = torch.ones(raw.numel() // size, dtype=torch.bool)
        mask[1::3] = False
        check(int(raw.view(-1, size)[mask].to(torch.int64).sum()) == 0, *facts, "wrote beside the elements")


def finish(work):
    if work is not None:
        check(work.wait() is True and work.is_completed() and work.is_success())


def reference(op, parts):
    total = parts[0].clone()
    for p in parts[1:]:
        if op in (R.SUM, R.AVG):
            total = total + p
        elif op == R.PRODUCT:
            total = total * p
        elif op == R.MIN:
            total = torch.minimum(total, p)
        elif op == R.MAX:
            total = torch.maximum(total, p)
        elif op == R.BAND:
            total = total & p
        elif op == R.BOR:
            total = total | p
        else:
            total = total ^ p
    return total


def operations(dtype):
    if dtype == torch.bool:
        return [R.SUM, R.PRODUCT, R.MIN, R.MAX, R.BAND, R.BOR, R.BXOR]
    if dtype.is_complex:
        return [R.SUM]
    if dtype.is_floating_point:
        return [R.SUM, R.MIN, R.MAX] + ([R.PRODUCT] if dtype not in RANGE else [])
    return [R.SUM, R.PRODUCT, R.MIN, R.MAX, R.BAND, R.BOR, R.BXOR] if dtype.itemsize > 1 else [R.SUM, R.MIN, R.MAX, R.BAND, R.BOR, R.BXOR]


def reduced(op, dtype, parts):
    if dtype == torch.bool:
        return reference({R.SUM: R.BOR, R.MAX: R.BOR, R.PRODUCT: R.BAND, R.MIN: R.BAND}.get(op, op), parts)
    return reference(op, [p.to(wide(dtype)) for p in parts]).to(dtype)


def vectors(dtype, layout, count):
    n, me = size(), rank()
    parts = [values(dtype, count, r) for r in range(n)]
    for op in operations(dtype):
        facts = (dtype, layout, count, op)
        wanted = reduced(op, dtype, parts)
        for later in (False, True):
            x = place(parts[me], layout)
            finish(dist.all_reduce(x, op, async_op=later))
            same(x.reshape(-1), wanted, "all_reduce", *facts)
            untouched(x, layout, *facts)
            x = place(parts[me], layout)
            finish(dist.reduce(x, n - 1, op, async_op=later))
            if me == n - 1:
                same(x.reshape(-1), wanted, "reduce", *facts)
        if dtype.is_complex:  # torch hands complex numbers of these on as they are: no longer in pairs
            continue
        blocks = [[values(dtype, count, r, d + 1) for d in range(n)] for r in range(n)]
        mine = reduced(op, dtype, [blocks[r][me] for r in range(n)])
        for later in (False, True):
            out = place(torch.zeros_like(parts[0]), layout)
            finish(dist.reduce_scatter(out, [place(b, layout) for b in blocks[me]], op, async_op=later))
            same(out.reshape(-1), mine, "reduce_scatter", *facts)
            untouched(out, layout, *facts)
            out = place(torch.zeros_like(parts[0]), layout)
            finish(dist.reduce_scatter_single(out, place(torch.cat([as_type(b) for b in blocks[me]]).view(dtype), layout), op, async_op=later))
            same(out.reshape(-1), mine, "reduce_scatter_single", *facts)


def as_type(x):
    """torch.cat() lacks some types of one byte."""
    return x.view(torch.uint8) if x.element_size() == 1 else x


def test_reductions():
    for each in every_pair(INTS + FLOATS + COMPLEX + [torch.bool]):
        vectors(*each)


def test_averages():
    n, me = size(), rank()
    for dtype, layout, count in every_pair(FLOATS[:4] + COMPLEX):
        parts = [values(dtype, count, r) * n for r in range(n)]
        x = place(parts[me], layout)
        dist.all_reduce(x, R.AVG)
        same(x.reshape(-1), (sum(p.to(wide(dtype)) for p in parts) / n).to(dtype), "avg", dtype, layout, count)
    for factor in (0.5, torch.tensor(0.5)):
        op = dist._make_nccl_premul_sum(factor)
        x = torch.full((5,), 2.0 * (me + 1))
        dist.all_reduce(x, op)
        same(x, torch.full((5,), float(sum(range(1, n + 1)))), "premultiplied")
        out = torch.zeros(2)
        dist.reduce_scatter_single(out, torch.arange(2.0 * n) * 2, op)
        same(out, (torch.arange(2.0) + 2 * me) * n, "premultiplied reduce_scatter")
        x = torch.full((3,), 2.0 * (me + 1))[::2]
        dist.reduce(x, 0, op)
        if me == 0:
            same(x, torch.full((2,), float(sum(range(1, n + 1)))), "premultiplied reduce")


def test_premultiplied():
    """The factor multiplies in the type of the tensor, and the type stays."""
    import coll
    n, me = size(), rank()
    premul = dist._make_nccl_premul_sum
    for dtype in INTS:
        big = min(torch.iinfo(dtype).max, 1 << 62) // (2 * n)  # more than a float32 holds, where the type does
        x = torch.tensor([big, 3]).to(dtype)
        dist.all_reduce(x, premul(2.0))
        same(x, torch.tensor([big * 2 * n, 6 * n]).to(dtype), "premultiplied", dtype)
        out = torch.zeros(1, dtype=dtype)
        dist.reduce_scatter_single(out, (torch.arange(n) + 1).to(dtype), premul(torch.tensor([2])))
        same(out, torch.tensor([2 * n * (me + 1)]).to(dtype), "premultiplied reduce_scatter", dtype)
    for dtype in FLOATS + COMPLEX:
        for factor in (0.5, torch.tensor(0.5), torch.tensor([0.5])):
            x = torch.tensor([2.0, 4.0]).to(dtype)
            dist.group.WORLD.allreduce([x], premul(factor)).wait()
            same(x, torch.tensor([1.0 * n, 2.0 * n]).to(dtype), "premultiplied", dtype, factor)
            out = torch.zeros((), dtype=dtype)
            dist.reduce_scatter_single(out, torch.full((n,), 2.0).to(dtype), premul(factor))
            same(out, torch.tensor(1.0 * n).to(dtype), "premultiplied reduce_scatter", dtype, factor)
    for factor in (0.5, torch.tensor([0.5]), float("inf"), float("nan"), 1e30):
        raises(coll.ArgumentError, dist.all_reduce, torch.tensor([3]), premul(factor), says="needs a factor of that type")
    raises(coll.ArgumentError, dist.all_reduce, torch.tensor([3], dtype=torch.uint8), premul(-1.0), says="needs a factor of that type")
    raises(coll.UnsupportedError, dist.all_reduce, torch.tensor([True]), premul(1.0), says="bool")


def moves(dtype, layout, count):
    n, me = size(), rank()
    facts = (dtype, layout, count)
    parts = [values(dtype, count, r) for r in range(n)]
    empty = torch.zeros_like(parts[0])
    for later in (False, True):
        for root in range(n):
            x = place(parts[me], layout)
            finish(dist.broadcast(x, root, async_op=later))
            same(x.reshape(-1), parts[root], "broadcast", root, *facts)
            untouched(x, layout, *facts)
        outs = [place(empty, layout) for _ in range(n)]
        finish(dist.all_gather(outs, place(parts[me], layout), async_op=later))
        for r in range(n):
            same(outs[r].reshape(-1), parts[r], "all_gather", r, *facts)
            untouched(outs[r], layout, *facts)
        whole = place(torch.zeros(n * count * empty.element_size(), dtype=torch.uint8).view(dtype), layout)
        finish(dist.all_gather_single(whole, place(parts[me], layout), async_op=later))
        same(as_type(whole.reshape(-1)), torch.cat([as_type(p) for p in parts]), "all_gather_single", *facts)
        outs = [place(empty, layout) for _ in range(n)]
        finish(dist.gather(place(parts[me], layout), outs if me == n - 1 else None, n - 1, async_op=later))
        if me == n - 1:
            for r in range(n):
                same(outs[r].reshape(-1), parts[r], "gather", r, *facts)
        out = place(empty, layout)
        finish(dist.scatter(out, [place(values(dtype, count, r, 4), layout) for r in range(n)] if me == 0 else None, 0, async_op=later))
        same(out.reshape(-1), values(dtype, count, me, 4), "scatter", *facts)
        untouched(out, layout, *facts)
        outs = [place(empty, layout) for _ in range(n)]
        finish(dist.all_to_all(outs, [place(values(dtype, count, me, d), layout) for d in range(n)], async_op=later))
        for r in range(n):
            same(outs[r].reshape(-1), values(dtype, count, r, me), "all_to_all", r, *facts)
        x = torch.cat([as_type(values(dtype, count, me, d)) for d in range(n)]).view(dtype)
        out = place(torch.zeros_like(x), layout)
        finish(dist.all_to_all_single(out.reshape(-1) if layout == "transposed" else out, x, async_op=later))
        if layout != "transposed":
            same(as_type(out), torch.cat([as_type(values(dtype, count, r, me)) for r in range(n)]), "all_to_all_single", *facts)
        pairs(dtype, layout, count, parts)


def pairs(dtype, layout, count, parts):
    n, me = size(), rank()
    facts = (dtype, layout, count)
    right, left = (me + 1) % n, (me - 1) % n
    first, second = place(torch.zeros_like(parts[0]), layout), place(torch.zeros_like(parts[0]), layout)
    # Received in the other order than sent: the tags tell.
    works = [dist.isend(place(parts[me], layout), right, tag=1), dist.isend(place(values(dtype, count, me, 9), layout), right, tag=2),
             dist.irecv(second, left, tag=2), dist.irecv(first, left, tag=1)]
    for w in works:
        finish(w)
    same(first.reshape(-1), parts[left], "isend, irecv, tag 1", *facts)
    same(second.reshape(-1), values(dtype, count, left, 9), "isend, irecv, tag 2", *facts)
    untouched(first, layout, *facts)


def test_moves():
    for each in every_pair(ALL):
        moves(*each)


def uneven(dtype, layout):
    n, me = size(), rank()
    counts = [(r * 3) % 5 for r in range(n)]
    parts = [values(dtype, counts[r], r) for r in range(n)]
    for later in (False, True):
        outs = [place(torch.zeros_like(p), layout) for p in parts]
        finish(dist.all_gather(outs, place(parts[me], layout), async_op=later))
        for r in range(n):
            same(outs[r].reshape(-1), parts[r], "uneven all_gather", r, dtype, layout)
        outs = [place(torch.zeros_like(p), layout) for p in parts]
        finish(dist.gather(place(parts[me], layout), outs if me == 0 else None, 0, async_op=later))
        if me == 0:
            for r in range(n):
                same(outs[r].reshape(-1), parts[r], "uneven gather", r, dtype, layout)
        out = place(torch.zeros_like(parts[me]), layout)
        finish(dist.scatter(out, [place(p, layout) for p in parts] if me == 0 else None, 0, async_op=later))
        same(out.reshape(-1), parts[me], "uneven scatter", dtype, layout)
        if dtype in (torch.int16, torch.float64):
            out = place(torch.zeros_like(parts[me]), layout)
            finish(dist.reduce_scatter(out, [place(p, layout) for p in parts], async_op=later))
            same(out.reshape(-1), parts[me] * n, "uneven reduce_scatter", dtype, layout)
        outs = [place(torch.zeros(r + 2 * me, dtype=dtype), layout) for r in range(n)]
        finish(dist.all_to_all(outs, [place(values(dtype, me + 2 * d, me, d), layout) for d in range(n)], async_op=later))
        for r in range(n):
            same(outs[r].reshape(-1), values(dtype, r + 2 * me, r, me), "uneven all_to_all", r, dtype, layout)


def test_uneven():
    n, me = size(), rank()
    for dtype in (torch.int16, torch.bool, torch.float8_e4m3fn, torch.float64, torch.complex64):
        for layout in LAYOUTS:
            uneven(dtype, layout)
    # Rows of two axes. Only rank 0 gives sizes where they are equal anyway.
    sent, got = [me + 2 * d for d in range(n)], [r + 2 * me for r in range(n)]
    x = torch.cat([values(torch.float32, 3 * (me + 2 * d), me, d) for d in range(n)]).view(-1, 3)
    out = torch.zeros(sum(got), 3)
    dist.all_to_all_single(out, x, got, sent)
    same(out.reshape(-1), torch.cat([values(torch.float32, 3 * (r + 2 * me), r, me) for r in range(n)]), "all_to_all_single, sizes")
    x, out = torch.arange(2.0 * n).view(n, 2) + 100 * me, torch.zeros(n, 2)
    dist.all_to_all_single(out, x, [1] * n if me == 0 else None, [1] * n if me == 0 else None)
    same(out, torch.tensor([[2.0 * me + 100 * r, 2.0 * me + 1 + 100 * r] for r in range(n)]), "sizes of some ranks")


def test_both_spellings():
    """Methods of the group with the names of torch before and since 2.13, with options and in short."""
    n, me, g = size(), rank(), dist.group.WORLD
    x = torch.full((3,), me + 1.0)
    total = torch.full((3,), n * (n + 1) / 2)
    for call in (lambda y: g.allreduce(y), lambda y: g.allreduce([y]), lambda y: g.allreduce([y], c10d.AllreduceOptions()),
                 lambda y: g.allreduce(y, R.SUM), lambda y: g.allreduce([y], R.SUM),
                 lambda y: g.allreduce_coalesced([y]), lambda y: g.allreduce_coalesced([y], c10d.AllreduceCoalescedOptions())):
        y = x.clone()
        call(y).wait()
        same(y, total)
    y = torch.full((2,), float(me))
    g.broadcast(y, root=n - 1).wait()
    same(y, torch.full((2,), n - 1.0))
    y = x.clone()
    g.reduce(y, root=0).wait()
    same(y if me == 0 else total, total)
    for name in ("all_gather_single", "_allgather_base"):
        out = torch.zeros(n)
        getattr(g, name)(out, torch.tensor([float(me)])).wait()
        same(out, torch.arange(float(n)), name)
    for name in ("reduce_scatter_single", "_reduce_scatter_base"):
        out = torch.zeros(1)
        getattr(g, name)(out, torch.arange(float(n)), c10d.ReduceScatterOptions()).wait()
        same(out, torch.tensor([float(me * n)]), name)
    for name in ("all_to_all_single", "alltoall_base"):
        out = torch.zeros(n)
        getattr(g, name)(out, torch.arange(float(n)) + 10 * me, [], []).wait()
        same(out, torch.arange(float(n)) * 10 + me, name)
    for name in ("all_gather_single_coalesced", "allgather_into_tensor_coalesced"):
        outs = [torch.zeros(n), torch.zeros(2 * n)]
        getattr(g, name)(outs, [torch.tensor([float(me)]), torch.full((2,), float(me))]).wait()
        same(outs[0], torch.arange(float(n)))
        same(outs[1], torch.arange(float(n)).repeat_interleave(2))
    for name in ("reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced"):
        outs = [torch.zeros(1), torch.zeros(2)]
        getattr(g, name)(outs, [torch.arange(float(n)), torch.arange(2.0 * n)]).wait()
        same(outs[0], torch.tensor([float(me * n)]))
        same(outs[1], torch.tensor([2.0 * me * n, (2.0 * me + 1) * n]))
    outs = [torch.zeros(1) for _ in range(n)]
    g.allgather(outs, torch.tensor([float(me)])).wait()
    same(torch.cat(outs), torch.arange(float(n)))
    lists = [[torch.zeros(1), torch.zeros(2)] for _ in range(n)]
    g.allgather_coalesced(lists, [torch.tensor([float(me)]), torch.full((2,), 5.0 + me)]).wait()
    for r in range(n):
        same(lists[r][0], torch.tensor([float(r)]))
        same(lists[r][1], torch.full((2,), 5.0 + r))
    outs = [torch.zeros(1) for _ in range(n)]
    g.gather(outs if me == 0 else [], torch.tensor([float(me)]), 0).wait()
    if me == 0:
        same(torch.cat(outs), torch.arange(float(n)))
    out = torch.zeros(1)
    g.scatter(out, list(torch.arange(float(n)).split(1)) if me == 0 else [], 0).wait()
    same(out, torch.tensor([float(me)]))
    g.reduce_scatter(out, list(torch.arange(float(n)).split(1))).wait()
    same(out, torch.tensor([float(me * n)]))
    g.barrier().wait()
    equal((g.rank(), g.size(), g.name()), (me, n, "coll"))


def test_sparse():
    n, me = size(), rank()
    for dtype in (torch.float32, torch.float64, torch.int64):
        for later in (False, True):
            i = torch.tensor([[me, 0, 3], [1, me, 2]])
            x = torch.sparse_coo_tensor(i, torch.tensor([1, 2, 3]).to(dtype), (n + 4, n + 4))
            parts = [torch.sparse_coo_tensor(torch.tensor([[r, 0, 3], [1, r, 2]]), torch.tensor([1, 2, 3]).to(dtype), (n + 4, n + 4))
                     for r in range(n)]
            finish(dist.all_reduce(x, async_op=later))
            same(x.to_dense(), sum(p.to_dense() for p in parts), "sparse")
    x = torch.sparse_coo_tensor(torch.zeros(1, me, dtype=torch.int64), torch.ones(me, 2), (3, 2))
    dist.all_reduce(x)
    same(x.to_dense()[0], torch.full((2,), float(n * (n - 1) // 2)), "hybrid, different lengths")
    raises(coll_error(), dist.all_reduce, torch.sparse_coo_tensor(torch.zeros(1, 1, dtype=torch.int64), torch.ones(1), (3,)), R.MAX, says="sparse")


def coll_error():
    import coll
    return coll.UnsupportedError


def test_lazy_views():
    """Conjugated and negated views stand for other values than their memory holds."""
    n, g = size(), dist.group.WORLD
    x = torch.tensor([1 + 2j, 3 - 1j])
    y = x.conj()
    g.allreduce([y]).wait()
    same(y.resolve_conj(), torch.tensor([1 - 2j, 3 + 1j]) * n)
    z = torch.tensor([1 + 2j, 3 - 1j]).conj().imag
    dist.all_reduce(z)
    same(z.resolve_neg().contiguous(), torch.tensor([-2.0, 1.0]) * n)
    outs = [torch.zeros(2, dtype=torch.complex64) for _ in range(n)]
    g.allgather([outs], [torch.tensor([1 + 2j, 3 - 1j]).conj()]).wait()
    same(outs[-1], torch.tensor([1 - 2j, 3 + 1j]))


def test_large():
    n, me = size(), rank()
    for count in (100003, 1 << 20):
        x = torch.arange(count, dtype=torch.float32) % 1000 + me
        wanted = (torch.arange(count, dtype=torch.float32) % 1000) * n + n * (n - 1) / 2
        a = [x.clone(), x.clone()[::3], x.clone()]
        works = [dist.all_reduce(y, async_op=True) for y in a]
        for w in works:
            w.wait()
        same(a[0], wanted)
        same(a[1], wanted[::3].contiguous())
        same(a[2], wanted)
        outs = [torch.zeros(count) for _ in range(n)]
        dist.all_gather(outs, x)
        for r in range(n):
            same(outs[r], x - me + r)
        whole = torch.zeros(n, count)
        dist.all_gather(list(whole.unbind(0)), x)
        same(whole[n - 1], x - me + n - 1, "outputs that are one piece of memory")


def test_order_of_copies():
    """What is copied in a call, and written back after it, is in the order of the calls."""
    n, g = size(), dist.group.WORLD

    def gathered(x):
        outs = [torch.empty(x.numel()) for _ in range(n)]
        dist.all_gather(outs, x)
        return outs[-1]

    def single(x):
        out = torch.empty(n * x.numel())
        dist.all_gather_single(out, x)
        return out[-x.numel():]

    def shared(x):
        dist.broadcast(x, 0)
        return x

    def summed(x):
        dist.all_reduce(x, async_op=True)
        dist.all_reduce(x, async_op=True).wait()
        return x / n ** 2

    def scaled(x):
        dist.all_reduce(x, dist._make_nccl_premul_sum(0.5))
        return x / n * 2

    def scattered(x):
        out = torch.empty(x.numel())
        dist.reduce_scatter(out, [x] * n)
        return out / n

    for call in (gathered, single, shared, summed, scaled, scattered):
        for view in (torch.ones(8), torch.ones(8, 2)[:, 0], torch.ones(16)[::2]):
            dist.barrier()
            if rank() == n - 1:
                time.sleep(0.05)  # the first call of the others is not complete when the second is made
            base = view._base if view._base is not None else view
            # All of the memory, or the part that the second call has.
            work = dist.all_reduce(base if view.stride() == (2,) and base.dim() == 1 else view, async_op=True)
            same(call(view), torch.full((8,), float(n)), call.__name__, view.stride())
            work.wait()
    y = torch.zeros(())
    if rank() == 0:
        g.send(torch.tensor(3.0), 1, 0).wait()
    elif rank() == 1:
        g.recv(y, 0, 0).wait()
        check(y.item() == 3)
    check(True)


def test_order_of_other_names():
    """The same for memory that has several names: lazy views, and arrays of numpy that begin at different places of it."""
    n, me, g = size(), rank(), dist.group.WORLD

    def gathered(x):
        out = torch.empty(n * x.numel(), dtype=x.dtype)
        return g.all_gather_single(out, x), lambda: out[-x.numel():], lambda wanted: wanted

    def scattered(x):
        out = torch.empty(x.numel() // n, dtype=x.dtype)
        return g.reduce_scatter_single(out, x), lambda: out, lambda wanted: wanted.chunk(n)[me] * n

    values = torch.arange(4.0 * n) + 1
    shared = np.zeros(8 * n + 1, np.float32)
    whole, odd, middle = torch.from_numpy(shared), torch.from_numpy(shared[1::2]), torch.from_numpy(shared[2:4 * n + 2])
    turned = torch.from_numpy(shared[1:]).view(4 * n, 2).t()
    pairs = {"conj": lambda: (x := torch.complex(values, values), x.conj(), x.conj().resolve_conj() * n),
             "negative": lambda: (x := values.clone(), torch._neg_view(x), x * -n),
             "numpy, copied in": lambda: (whole, turned, torch.full((8 * n,), float(n))),
             "numpy, written back": lambda: (odd, middle, torch.tensor([1.0, float(n)] * (2 * n)))}
    for name, pair in pairs.items():
        for call in (gathered, scattered):
            shared.fill(1)
            first, second, wanted = pair()
            dist.barrier()
            if me == n - 1:
                time.sleep(0.05)  # as above
            before = g.allreduce([first])
            work, got, part = call(second)
            before.wait()
            work.wait()
            same(got(), part(wanted), call.__name__, name)


def test_shared_memory():
    """Inputs that are the outputs, or parts of them, at places that differ among the ranks."""
    n, me = size(), rank()
    parts = lambda x: list(x.chunk(n))
    at = torch.arange(4.0 * n)
    for later in (False, True):
        for alias in (lambda x: x, lambda x: x[:]):
            x = at + 100 * me
            finish(dist.all_to_all_single(x, alias(x), async_op=later))
            same(x, torch.cat([at[4 * me:4 * me + 4] + 100 * r for r in range(n)]), "all_to_all_single")
        x = at + 100 * me
        finish(dist.all_to_all_single(x, x, [4] * n if me == 0 else None, [4] * n if me == 0 else None, async_op=later))
        same(x, torch.cat([at[4 * me:4 * me + 4] + 100 * r for r in range(n)]), "all_to_all_single, sizes")
        x = at + 100 * me
        finish(dist.all_to_all(parts(x), parts(x), async_op=later))
        same(x, torch.cat([at[4 * me:4 * me + 4] + 100 * r for r in range(n)]), "all_to_all")
        for of in (lambda r: 0, lambda r: n - 1, lambda r: r):
            place = of(me)
            x = at.clone()
            finish(dist.reduce_scatter(parts(x)[place], parts(x), async_op=later))
            same(parts(x)[place], parts(at)[me] * n, "reduce_scatter", place)
            x = at.clone()
            finish(dist.reduce_scatter_single(x[4 * place:4 * place + 4], x, async_op=later))
            same(parts(x)[place], parts(at)[me] * n, "reduce_scatter_single", place)
            wanted = torch.cat([parts(at)[of(r)] + 100 * r for r in range(n)])
            x = at + 100 * me
            finish(dist.all_gather(parts(x), parts(x)[place], async_op=later))
            same(x, wanted, "all_gather", place)
            x = at + 100 * me
            finish(dist.all_gather_single(x, x[4 * place:4 * place + 4], async_op=later))
            same(x, wanted, "all_gather_single", place)
            x = at + 100 * me
            finish(dist.gather(parts(x)[place], parts(x) if me == 0 else None, 0, async_op=later))
            if me == 0:
                same(x, wanted, "gather", place)
            x = at.clone()
            finish(dist.scatter(parts(x)[place], parts(x) if me == 0 else None, 0, async_op=later))
            same(parts(x)[place], parts(at)[me], "scatter", place)
    # The copy of an input is in the order of the calls.
    x = at.clone()
    dist.barrier()
    if me == n - 1:
        time.sleep(0.05)
    works = [dist.all_reduce(x, async_op=True), dist.all_to_all_single(x, x, async_op=True)]
    for w in works:
        w.wait()
    same(x, torch.cat([parts(at)[me] * n] * n), "all_to_all_single after all_reduce")


def test_refused():
    """Wrong arguments are refused before anything is sent, by each rank."""
    import coll
    n, g = size(), dist.group.WORLD
    x = torch.ones(2)
    raises(coll.ArgumentError, dist.all_reduce, torch.ones(2, dtype=torch.float8_e4m3fnuz), says="moved but not reduced")
    raises(coll.ArgumentError, dist.all_reduce, torch.ones(2, dtype=torch.bool), R.AVG)
    raises(coll.ArgumentError, dist.all_reduce, x, R.BAND)
    raises(coll.UnsupportedError, dist.all_reduce, torch.empty(2, device="meta"), says="is on meta")
    raises(coll.UnsupportedError, dist.broadcast, torch.empty(2, device="meta"), 0, says="is on meta")
    raises(coll.ArgumentError, dist.all_gather, [torch.zeros(2)] * (n + 1), x, says="one for each")
    raises(coll.ArgumentError, dist.all_gather_single, torch.zeros(2 * n + 1), x, says="elements")
    raises(coll.ArgumentError, dist.reduce_scatter_single, x, torch.zeros(2 * n + 1), says="elements")
    raises(coll.ArgumentError, dist.all_to_all_single, torch.zeros(2 * n), torch.zeros(2 * n), [1] * n, [2] * n, says="dim 0")
    raises(coll.ArgumentError, g.allreduce, [x, x], says="one tensor")
    if n > 1:
        raises(coll.ArgumentError, dist.isend, x, (rank() + 1) % n, tag=2**31 - 1, says="tag")
    dist.all_reduce(x)
    same(x, torch.full((2,), float(n)), "after refusals")


if __name__ == "__main__":
    main(test_reductions, test_averages, test_moves, test_uneven, test_both_spellings, test_sparse, test_lazy_views, test_large, test_order_of_copies,
     test_premultiplied, test_order_of_other_names, test_shared_memory, test_refused)
