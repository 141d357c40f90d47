"""coll.torch with CUDA tensors, on the stand-in driver: every collective against a reference; streams, errors, groups, graphs.

The calls, values and references are those of torch_matrix.py, with tensors of cuda_tensors.py: what that program places in host memory
is placed on the device here. usage: TEST_CUDA_LIBRARY=FILE collrun -n N python torch_device.py
"""

import contextlib
import gc
import os
import threading
import time

import cuda_driver as driver
import cuda_tensors as on
import torch_matrix as matrix
import torch_ranks
from torch_ranks import check, dist, equal, raises, rank, same, size, torch

import coll
import coll.torch
from coll.torch import _devices

_devices.cuda = on.cuda
R = dist.ReduceOp
DistBackendError = dist.DistBackendError


# ---- Every collective ----


class Moved:
    """torch.distributed, with host tensors that a test did not place put on the device."""

    def __getattr__(self, name):
        return getattr(dist, name)

    def all_to_all_single(self, out, x, *args, **words):
        return dist.all_to_all_single(out, placed(x), *args, **words)


_place, _same, _untouched = matrix.place, matrix.same, matrix.untouched
_hosts = {}


def placed(x, layout="flat"):
    return x if isinstance(x, on.Tensor) else on.laid_out(_place(x, layout))


def same_there(got, wanted, *facts):
    _same(on.host(got), on.host(wanted), *facts)


def finish(work):
    """The host does not wait: what reads the result is put behind it."""
    if work is not None:
        check(work.wait() is True)


def untouched_there(view, layout, *facts):
    if layout == "strided" and view.numel():
        home = on.Tensor(view.memory, torch.uint8, (3 * view.numel() * view.element_size(),), (1,))
        raw = on.host(home).view(view.numel(), 3, view.element_size())
        check(int(raw[:, [0, 2]].to(torch.int64).sum()) == 0, *facts, "wrote beside the elements")


def on_device(test, **names):
    """A test of torch_matrix.py, with its tensors on the device."""
    def run():
        kept = {name: getattr(matrix, name) for name in ("place", "same", "untouched", "dist", "finish", *names)}
        for name, value in {"place": placed, "same": same_there, "untouched": untouched_there, "dist": Moved(), "finish": finish, **names}.items():
            setattr(matrix, name, value)
        try:
            test()
        finally:
            for name, value in kept.items():
                setattr(matrix, name, value)
    run.__name__ = test.__name__
    return run


test_reductions = on_device(matrix.test_reductions, INTS=[torch.uint8, torch.int64], COUNTS=[0, 1, 24],
                            FLOATS=[torch.bfloat16, torch.float32, torch.float8_e4m3fn, torch.float8_e5m2], COMPLEX=[torch.complex64],
                            LAYOUTS=["flat", "strided", "transposed"])
test_moves = on_device(matrix.test_moves, ALL=[torch.int8, torch.bfloat16, torch.float64, torch.complex128, torch.bool, torch.float8_e4m3fnuz],
                       COUNTS=[0, 7, 24])


def each_uneven():
    for dtype in (torch.int16, torch.float8_e4m3fn, torch.float64):
        for layout in ("flat", "strided"):
            matrix.uneven(dtype, layout)


test_uneven = on_device(each_uneven)


def full(count, value, dtype=torch.float32):
    return on.device(torch.full((count,), value, dtype=dtype))


def wanted(count):
    return torch.full((count,), size() * (size() + 1) / 2)


def test_rows_and_views():
    """Splits by rows, views with other values than their memory, premultiplied sums, averages."""
    n, me = size(), rank()
    sent, got = [me + 2 * d for d in range(n)], [r + 2 * me for r in range(n)]
    x = torch.cat([matrix.values(torch.float32, 3 * (me + 2 * d), me, d) for d in range(n)]).view(-1, 3)
    out = on.empty((sum(got), 3))
    dist.all_to_all_single(out, on.device(x), got, sent)
    same(on.host(out).reshape(-1), torch.cat([matrix.values(torch.float32, 3 * (r + 2 * me), r, me) for r in range(n)]), "rows")
    for factor in (0.5, torch.tensor(0.5)):
        x = full(5, 2.0 * (me + 1))
        dist.all_reduce(x, dist._make_nccl_premul_sum(factor))
        same(on.host(x), wanted(5), "premultiplied")
    x = full(4, float(n * me))
    dist.all_reduce(x, R.AVG)
    same(on.host(x), torch.full((4,), n * (n - 1) / 2), "average")
    whole = on.empty((n, 7))
    dist.all_gather(list(whole.unbind(0)), full(7, me + 1.0))
    same(on.host(whole), torch.arange(1.0, n + 1).view(n, 1).expand(n, 7).contiguous(), "outputs that are one piece of memory")
    x, result = torch.arange(70001.0) % 1000 + me, (torch.arange(70001.0) % 1000) * n + n * (n - 1) / 2
    on_it = on.device(x)
    dist.all_reduce(on_it)
    same(on.host(on_it), result, "large")


def test_together():
    """Coalesced calls, also beside calls with host memory, and under the names before torch 2.13."""
    n, me, g = size(), rank(), dist.group.WORLD
    for later in (False, True):
        xs = [full(3 + i, me + 1.0) for i in range(4)]
        with dist._coalescing_manager(async_ops=later) as cm:
            for x in xs:
                dist.all_reduce(x)
        if later:
            cm.wait()
        for i, x in enumerate(xs):
            same(on.host(x), wanted(3 + i), "coalesced all_reduce")
        outs, ins = [on.empty(n), on.empty(2 * n)], [full(1, float(me)), full(2, float(me))]
        with dist._coalescing_manager(async_ops=later) as cm:
            for out, x in zip(outs, ins):
                dist.all_gather_into_tensor(out, x)
        if later:
            cm.wait()
        same(on.host(outs[0]), torch.arange(float(n)))
        same(on.host(outs[1]), torch.arange(float(n)).repeat_interleave(2))
        x, y = full(3, me + 1.0), torch.full((3,), me + 1.0)
        with dist._coalescing_manager(device=on.DEVICE, async_ops=later) as cm:
            g.allreduce([x])
            g.allreduce([y])
        if later:
            cm.wait()
        same(on.host(x), wanted(3))
        same(y, wanted(3))
    out = on.empty(n)
    g._allgather_base(out, full(1, float(me))).wait()
    same(on.host(out), torch.arange(float(n)))
    out = on.empty(1)
    g.reduce_scatter(out, [full(1, float(r)) for r in range(n)]).wait()
    same(on.host(out), torch.tensor([float(me * n)]))


# ---- Streams ----


def ready():
    """The group has its device: nothing can be made while a stream is held."""
    dist.all_reduce(full(1, 1.0))
    on.cuda.current().synchronize()


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        check(time.monotonic() < end, "nothing happens")
        time.sleep(0.001)


def test_order():
    """A call begins when the caller's stream has made its tensors; what waits for it reads its result; the host waits for neither."""
    ready()
    n, me = size(), rank()
    mine, other = on.cuda.stream(), on.cuda.stream()
    values, strided = full(6, me + 1.0), on.laid_out(torch.zeros(13)[1::2])
    x, out, gathered = full(6, -1.0), full(6, -1.0), on.laid_out(torch.zeros(2 * 6 * n)[::2])
    with on.cuda.inside(mine):
        mine.hold()
        on._copy(x, values)
        on._copy(strided, values)
        work = dist.all_reduce(x, async_op=True)
        second = dist.all_reduce(strided, async_op=True)
        third = dist.all_gather_into_tensor(gathered, strided, async_op=True)
        check(not work.is_completed() and not work.is_success() and work.exception() is None, "complete before its tensor was made")
        raises(DistBackendError, work.wait, coll_limit(0.05), says="Timed out")
        check(work.wait() is True and not work.is_completed(), "wait() waited on the host")
        on._copy(out, x)
        with on.cuda.inside(other):
            third.wait()
            check(not other.idle(), "the stream that waits does not")
            copied = on._clone(gathered)
        mine.let_go()
        same(on.host(out), wanted(6), "read behind wait()")
        second.wait()
        same(on.host(strided), wanted(6), "strided")
    with on.cuda.inside(other):
        same(on.host(copied), wanted(6 * n), "in another stream")
    until(work.is_completed)
    check(work.is_success() and work.exception() is None and work.wait(coll_limit(5)) is True)


def coll_limit(seconds):
    return torch.distributed.distributed_c10d.timedelta(seconds=seconds)


def test_beside():
    """While a call waits for a rank the caller's stream goes on."""
    ready()
    last = rank() == size() - 1
    mine = on.cuda.stream()
    x, y, copied = full(5, rank() + 1.0), full(5, 7.0), full(5, 0.0)
    with on.cuda.inside(mine):
        if last:
            mine.hold()
        work = dist.all_reduce(x, async_op=True)
        if not last:
            on._copy(copied, y)
            same(on.host(copied), torch.full((5,), 7.0), "beside a call")
            check(not work.is_completed(), "the call did not wait for the other rank")
        dist.all_reduce(torch.zeros(1))  # of the host
        mine.let_go()
        work.wait()
        same(on.host(x), wanted(5))


def test_calls_of_the_caller_in_turn():
    """Blocking and asynchronous calls on the same tensor, in one stream, with delays of the queues."""
    for turn in range(20):
        x = full(64, rank() + 1.0)
        works = []
        for step in range(4):
            work = dist.all_reduce(x, R.AVG if step else R.SUM, async_op=bool(step % 2))
            if work is not None:
                work.wait()
            on._copy(x, on._clone(x))
        same(on.host(x), wanted(64), "turn", turn)
        works = [(y, dist.all_reduce(y, async_op=True)) for y in (full(33 + i, rank() + 1.0) for i in range(6))]
        for y, work in reversed(works):
            work.wait()
            same(on.host(y), wanted(y.numel()), "many in flight")


def test_memory():
    """Tensors of a call are not used for others before it has ended, dropped or not."""
    ready()
    mine = on.cuda.stream()
    junk = full(700, -5.0)
    for n in range(2):
        with on.cuda.inside(mine):
            x, out = on.laid_out(torch.full((1400,), rank() + 1.0)[::2]), on.empty(700 * size())
            used = [x.memory.address, out.memory.address]
            mine.hold()
            work = dist.all_gather_into_tensor(out, x, async_op=True)
            if n:
                work = None
            del x
            if n:
                del out
            gc.collect()
            others = [on.empty(700) for _ in range(4)] + [on.empty(1400) for _ in range(4)] + [on.empty(700 * size()) for _ in range(4)]
            check(not set(used) & {y.memory.address for y in others}, "memory of a call in progress was given away")
            for y in others[:4]:
                on._copy(y, junk)
            mine.let_go()
            if not n:
                work.wait()
                same(on.host(out), torch.arange(1.0, size() + 1).repeat_interleave(700))
            dist.barrier()
            work = out = None
            dist.all_reduce(torch.zeros(1))
            dist.all_reduce(full(1, 1.0))
            gc.collect()
            check(used[0] in on.Memory.free[8192], "memory is not given back")


def test_futures():
    ready()
    mine, other = on.cuda.stream(), on.cuda.stream()
    x, seen = full(6, rank() + 1.0), []
    with on.cuda.inside(mine):
        mine.hold()
        future = dist.all_reduce(x, async_op=True).get_future()
        check(future.done(), "a future of the device has ended when its call is enqueued")
        after = future.then(lambda f: seen.append(f.wait()) or on._clone(x))
        with on.cuda.inside(other):
            check(future.wait()[0] is x)
            check(not other.idle(), "wait() of a future does not make the stream wait")
        mine.let_go()
    with on.cuda.inside(other):
        same(on.host(x), wanted(6))
        same(on.host(after.wait()), wanted(6))


def test_barrier():
    """A barrier, which is a call of the host, ends behind what was done on the device."""
    ready()
    mine, seen = on.cuda.stream(), []
    x = full(6, rank() + 1.0)
    with on.cuda.inside(mine):
        mine.hold()
        work = dist.all_reduce(x, async_op=True)

    def wait():
        with on.cuda.inside(mine):
            dist.barrier()
            seen.append(work.is_completed())

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join(0.2)
    mine.let_go()
    thread.join(60)
    equal(seen, [True], "the barrier did not wait")


# ---- Messages ----


def test_messages():
    """From and to the device, by streams; one side may use host memory; strided tensors; any source."""
    ready()
    n, me = size(), rank()
    right, left = (me + 1) % n, (me - 1) % n
    mine = on.cuda.stream()
    values = torch.arange(50.0)
    with on.cuda.inside(mine):
        source, x, into = on.device(values + me), full(50, 0.0), on.laid_out(torch.zeros(100)[::2])
        on._copy(x, source)
        host_in, host_out = torch.zeros(50), values + 100 + me
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, x, right, tag=1), dist.P2POp(dist.irecv, into, left, tag=1),
                                        dist.P2POp(dist.isend, x, right, tag=2), dist.P2POp(dist.isend, host_out, right, tag=3)])
        for work in works:
            work.wait()
        same(on.host(into), values + left, "device to device")
        dist.recv(host_in, left, tag=2)
        same(host_in, values + left, "device to host")
        dist.recv(x, left, tag=3)
        same(on.host(x), values + 100 + left, "host to device")
    # What the caller has put into its stream before reads the old values.
    x, copied = full(8, 1.0), full(8, 0.0)
    with on.cuda.inside(mine):
        mine.hold()
        on._copy(copied, x)
        receive = dist.irecv(x, left, tag=4)
        check(not receive.is_completed(), "complete before its place is free")
        future = receive.get_future()
        dist.send(torch.full((8,), 2.0), right, tag=4)
        mine.let_go()
        receive.wait()
        future.wait()
        same(on.host(copied), torch.ones(8), "a receive overtook what reads its tensor")
        same(on.host(x), torch.full((8,), 2.0))
    if me == 0:
        for _ in range(n - 1):
            source = dist.recv(x)
            same(on.host(x), torch.full((8,), float(source)), "any source")
    else:
        dist.send(full(8, float(me)), 0)
    dist.barrier()


# ---- Groups, errors ----


@contextlib.contextmanager
def jobs_made():
    """The communicators that were made as jobs of their own, with threads and connections."""
    made, init = [], coll._comm.init
    coll._comm.init = lambda *args, **words: made.append(words) or init(*args, **words)
    try:
        yield made
    finally:
        coll._comm.init = init


def test_groups():
    """Groups of a group with a device get theirs from it; those of others make it."""
    n, me = size(), rank()
    dist.all_reduce(full(5, 1.0))
    with jobs_made() as made:
        for i in range(4):
            g = dist.new_group()
            equal(g.device_communicator, None)
            x = full(5, me + 1.0)
            dist.all_reduce(x, group=g)
            same(on.host(x), wanted(5), "group")
            check(g.device_communicator.device == "cuda:0" and g.communicator.device == "host")
    equal(made, [], "groups are jobs")
    pair = dist.new_group([0, 1])
    if me < 2:
        x = full(5, me + 1.0)
        dist.all_reduce(x, group=pair)
        same(on.host(x), torch.full((5,), 3.0), "some ranks")
        inner = pair.split_group([1, 0], group_name="turned")
        x = full(2, float(inner.rank()))
        inner.broadcast(x, root=0).wait()
        same(on.host(x), torch.zeros(2), "a group of a group")
        inner.shutdown()
    late = dist.new_group(timeout=coll_limit(100))
    late.open_device(on.DEVICE)  # as init_process_group(device_id=) does
    check(late.device_communicator is not None)
    dist.destroy_process_group(late)
    dist.barrier()


def test_refused():
    n, g = size(), dist.group.WORLD
    x, y = full(4, 1.0), torch.ones(4)
    elsewhere = on.Tensor(x.memory, torch.float32, (4,), (1,), device=torch.device("cuda", 1))
    out = on.empty(4 * n)
    for call, says in ((lambda: dist.all_gather_into_tensor(out, y), "output is on cuda:0 and input on cpu"),
                       (lambda: dist.all_gather_into_tensor(torch.zeros(4 * n), x), "output is on cpu and input on cuda:0"),
                       (lambda: dist.all_gather([x] * (n - 1) + [y], x), "outputs is on cuda:0 and outputs on cpu"),
                       (lambda: dist.reduce_scatter(x, [y] * n), "outputs is on cuda:0 and inputs on cpu"),
                       (lambda: dist.all_to_all_single(torch.zeros(n), full(n, 1.0)), "input on cuda:0"),
                       (lambda: dist.all_gather_into_tensor(out, elsewhere), "cuda:1")):
        raises(coll.ArgumentError, call, says=says)
    raises(coll.UnsupportedError, dist.all_reduce, elsewhere, says="the device of this group is cuda:0")
    raises(coll.ArgumentError, dist.all_reduce, on.empty(2, torch.float8_e4m3fnuz), says="moved but not reduced")
    raises(coll.ArgumentError, dist.all_gather_into_tensor, on.empty(4 * n + 1), x, says="elements")
    dist.all_reduce(x)
    same(on.host(x), torch.full((4,), float(n)), "after refusals")


def test_capture():
    """Captured calls, one after the other and side by side, run at each launch with its data; nothing ends the capture."""
    ready()
    n, me = size(), rank()
    mine, group = on.cuda.stream(), dist.new_group()
    x, out, strided = full(6, 0.0), full(6, 0.0), on.laid_out(torch.zeros(12)[::2])
    graph = on.Graph(mine)
    with on.cuda.inside(mine):
        with graph:
            on._copy(out, x)
            dist.all_reduce(out)
            on._copy(strided, out)
            work = dist.all_reduce(strided, R.AVG, async_op=True)
            raises(coll.UnsupportedError, dist.all_reduce, x, group=group, says="captured")
            check(work.is_completed() and work.wait())
            on._copy(out, strided)
        for turn in range(3):
            on._copy(x, full(6, me + 1.0 + turn))
            graph.launch()
            same(on.host(out), wanted(6) + turn * n, "launch", turn)
    x = full(6, me + 1.0)
    dist.all_reduce(x)
    same(on.host(x), wanted(6), "after a capture")
    dist.barrier()


def test_exception():
    """abort() of a group ends its calls; other groups go on."""
    g = dist.new_group()
    x = full(4, 1.0)
    dist.all_reduce(x, group=g)
    dist.barrier()
    if rank() == 0:
        g.abort("enough of it")
    else:
        raises(DistBackendError, lambda: dist.all_reduce(x, group=g, async_op=True).wait(coll_limit(60)), says="enough of it")
        raises(DistBackendError, dist.all_reduce, x, group=g, says="enough of it")
        raises(DistBackendError, lambda: dist.all_reduce(x, group=g, async_op=True).wait(), says="enough of it")
    dist.all_reduce(x)
    dist.barrier()


def test_no_driver():
    """A job without CUDA tensors makes no call of the driver."""
    before = driver.calls()
    dist.all_reduce(torch.ones(3))
    dist.barrier()
    equal(driver.calls(), before, "calls of the driver")


def test_group_first():
    """A group whose parent has no device makes its own."""
    g = dist.new_group()
    x = full(5, rank() + 1.0)
    dist.all_reduce(x, group=g)
    same(on.host(x), wanted(5), "group")
    equal((dist.group.WORLD.device_communicator, g.device_communicator.device), (None, "cuda:0"))
    dist.destroy_process_group(g)


TESTS = [test_group_first, test_reductions, test_moves, test_uneven, test_rows_and_views, test_together, test_order, test_beside,
         test_calls_of_the_caller_in_turn, test_memory, test_futures, test_barrier, test_messages, test_groups, test_refused, test_capture,
         test_exception]


def main():
    os.environ["COLL_DEVICE"] = "cuda:1"  # is that of coll.init(), and not read here
    on.reserve(40, 512, 1024, 2048, 4096, 8192, 16384)
    try:
        torch_ranks.main(test_no_driver, *TESTS)
    finally:  # a stream that is held would keep the process from its end
        for stream in on.cuda.pool:
            stream.let_go()


if __name__ == "__main__":
    main()
