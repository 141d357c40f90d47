"""Streams, events, Work, groups and persistent operations. usage: collrun -n N python later.py"""

import array
import asyncio
import gc
import threading
import time
import weakref

import coll
from ranks import check, equal, floats, main, raises


def test_work(comm):
    n, stream = comm.size, comm.stream()
    x = floats(1, 2)
    work = comm.all_reduce(x, out=x, stream=stream)
    check(isinstance(work, coll.Work) and work.result() is x and work.done() and work.exception() is None)
    equal(x.tolist(), [n, 2 * n])
    work.wait()
    equal(comm.all_reduce(floats(1), stream=stream).result().tolist(), [n])
    check(comm.barrier(stream=stream).result(5) is None)
    view = memoryview(array.array("i", range(6)))[::2]
    comm.all_reduce(view, out=view, stream=stream).wait(timeout=5)
    equal(view.tolist(), [0, 2 * n, 4 * n], "written back")
    stream.wait()
    check(stream.query() is True)
    raises(coll.ArgumentError, work.wait, -1)
    raises(coll.ArgumentError, comm.all_reduce, x, "summ", stream=stream)
    stream.close()
    raises(coll.ArgumentError, comm.all_reduce, x, stream=stream, says="closed")


def test_time_limit(comm):
    if comm.size == 1:
        check(True)
        return
    stream, x = comm.stream(), floats(0)
    if comm.rank == 1:
        work = comm.recv(x, 0, stream=stream)
        raises(TimeoutError, work.wait, 0.02, says="recv")
        raises(TimeoutError, work.result, timeout=0)
        raises(TimeoutError, work.exception, 0)
        raises(TimeoutError, stream.wait, 0.02)
        check(not work.done() and stream.query() is False)
        event = stream.record()
        check(event.query() is False)
        raises(TimeoutError, event.wait, 0.02)
        comm.send(floats(1), 0)  # now the other may send
        work.wait()
        event.wait()
        check(event.query() and x.tolist() == [7])
    elif comm.rank == 0:
        comm.recv(x, 1)
        comm.send(floats(7), 1)
        check(True)


def test_dropped(comm):
    """Works that nobody waits for: their arrays live until the call is complete, and not longer."""
    class Array(array.array):
        pass

    stream, alive = comm.stream(), []
    for i in range(2000):
        x = Array("f", [i] * 4)
        alive.append(weakref.ref(x))
        comm.all_reduce(x, out=x, stream=stream)
        del x
    stream.wait()
    gc.collect()
    check(not [r for r in alive if r() is not None], "arrays that are still alive")
    # The stream itself is dropped, too.
    last = floats(1)
    comm.all_reduce(last, out=last, stream=comm.stream())
    comm.barrier()


def test_streams(comm):
    one, two, x = comm.stream(), comm.stream(), floats(1)
    comm.all_reduce(x, out=x, stream=one)
    two.wait_event(one.record())
    comm.all_reduce(x, out=x, stream=two)
    two.wait()
    equal(x.tolist(), [comm.size ** 2])
    raises(TypeError, two.wait_event, one)


def test_order_of_copies(comm):
    """Arrays that are not contiguous are copied and written back, in the order of the stream."""
    n, stream, late = comm.size, comm.stream(), []

    def hold_up(left, inout):
        time.sleep(0.1)
        for i, v in enumerate(left):
            inout[i] += v

    slow = comm.op(hold_up)

    def column(data, k):
        return memoryview(data)[k::2]

    data = array.array("i", [1] * 8)
    first, second, whole = column(data, 0), column(data, 1), memoryview(data)
    late.append(comm.all_reduce(first, slow, out=first, stream=stream))
    late.append(comm.all_reduce(first, out=first, stream=stream))  # what the last one wrote
    late.append(comm.all_reduce(whole, out=whole, stream=stream))  # contiguous, over what a copy is written back to
    late.append(comm.all_reduce(second, out=second, stream=stream))  # a copy of what the last one wrote
    result = comm.all_reduce(whole, stream=stream)
    stream.wait()
    equal(data.tolist(), [n ** 3, n ** 2] * 4)
    equal(result.result().tolist(), [n ** 4, n ** 3] * 4)
    # Columns beside each other do not meet: the second call waits for nothing.
    if n > 1:
        got, sent = array.array("i", bytes(32)), array.array("i", [comm.rank] * 4)
        left, right = (comm.rank - 1) % n, (comm.rank + 1) % n
        one = comm.recv(column(got, 0), left, stream=stream)
        two = comm.recv(column(got, 1), left, stream=stream)
        comm.send(sent, right), comm.send(sent, right)
        one.wait(20), two.wait(20)
        equal(got.tolist(), [left] * 8)


def test_callbacks(comm):
    stream, done, seen = comm.stream(), threading.Event(), []
    work = comm.all_reduce(floats(1, 2), stream=stream)
    work.add_done_callback(lambda w: (seen.append(w.result().tolist()), done.set()))
    check(done.wait(20), "no callback")
    equal(seen, [[comm.size, 2 * comm.size]])
    work.add_done_callback(lambda w: seen.append(w))
    check(seen[1] is work)

    # Callbacks that wait for those of later works, all of which may end at once.
    ended = [threading.Event() for _ in range(6)]
    works = [comm.all_reduce(floats(i), stream=stream) for i in range(6)]
    for i in reversed(range(6)):
        works[i].add_done_callback(lambda w, i=i: (i == 5 or ended[i + 1].wait(20), ended[i].set()))
    check(ended[0].wait(20), "callbacks wait for each other")

    async def both():
        a = comm.all_reduce(floats(1), stream=stream)
        b = comm.all_gather(floats(comm.rank), stream=stream)
        return [r.tolist() for r in await asyncio.gather(wrap(a), wrap(b))]

    async def wrap(w):
        return await w

    equal(asyncio.run(both()), [[comm.size], [[r] for r in range(comm.size)]])


def test_function_while_looking(comm):
    """The progress thread may be in an operation in Python, for which it needs the GIL, while this thread looks at a work."""
    def add(left, inout):
        for i, v in enumerate(left):
            inout[i] += v

    op, stream = comm.op(add), comm.stream()
    for k in range(30):
        x = array.array("f", [k] * 5000)
        work = comm.all_reduce(x, op, out=x, stream=stream)
        while not work.done():
            stream.query()
        equal([x[0], x[-1]], [comm.size * k] * 2)


def test_groups(comm):
    n, rank = comm.size, comm.rank
    arrays = [floats(i, rank) for i in range(5)]
    with coll.group():
        for a in arrays:
            comm.all_reduce(a, out=a)
    equal([a.tolist() for a in arrays], [[n * i, n * (n - 1) / 2] for i in range(5)])
    if n > 1:
        got = floats(-1)
        with coll.group():
            comm.recv(got, (rank - 1) % n)
            comm.send(floats(rank), (rank + 1) % n)
        equal(got.tolist(), [(rank - 1) % n])
    stream = comm.stream()
    with coll.group():
        with coll.group():
            work = comm.all_reduce(arrays[1], stream=stream)
        raises(coll.ArgumentError, work.wait, says="group")
        raises(coll.ArgumentError, comm.all_reduce, arrays[1], "summ")
    equal(work.result().tolist()[0], n * n)
    other = comm.duplicate()
    raises((ZeroDivisionError, coll.AbortedError), broken_group, other)
    raises(coll.AbortedError, other.all_reduce, floats(1), says="ZeroDivisionError")
    other.close()
    equal(comm.all_reduce(floats(1)).tolist(), [n], "after a group that was given up")


def broken_group(comm):
    with coll.group():
        comm.all_reduce(floats(1))
        1 / 0


def test_prepared(comm):
    n, x = comm.size, floats(1, 2)
    operation = comm.prepare("all_reduce", x, out=x)
    for i in range(3):
        check(operation() is x)
    equal(x.tolist(), [n ** 3, 2 * n ** 3])
    operation.start()
    raises(coll.ArgumentError, operation.start, says="wait for it first")
    check(operation.wait(timeout=20) is x)
    stream = comm.stream()
    operation.start(stream=stream)
    operation.wait()
    equal(x.tolist(), [n ** 5, 2 * n ** 5])
    every = memoryview(array.array("i", range(8)))[::2]
    gathered = comm.prepare("all_gather", every, counts=[4] * n)
    equal(gathered().tolist(), [0, 2, 4, 6] * n)
    every[0] = 9
    equal(gathered().tolist(), [9, 2, 4, 6] * n, "copied again at each start")
    comm.prepare("barrier")()
    raises(coll.ArgumentError, comm.prepare, "all_reduces", x, says="name of a collective")
    raises(coll.ArgumentError, comm.prepare, "send", x, 0)
    raises(coll.ArgumentError, comm.prepare, "all_reduce", x, stream=stream, says="start()")
    operation.close()
    raises(coll.ArgumentError, operation.start)


def test_other_thread(comm):
    """A second thread that enters is refused; it does not mix calls."""
    if comm.size == 1:
        check(True)
        return
    errors, inside = [], threading.Event()

    def second():
        inside.wait()
        while not comm._busy:
            pass
        try:
            comm.barrier()
        except coll.ArgumentError as error:
            errors.append(str(error))

    if comm.rank == 0:
        thread = threading.Thread(target=second)
        thread.start()
        inside.set()
        comm.recv(floats(0), 1)
        thread.join()
        equal(len(errors), 1)
        check("barrier" in errors[0] and "recv" in errors[0], errors[0])
    elif comm.rank == 1:
        # Late enough that the other thread has looked; if not, the test checks less.
        time.sleep(0.3)
        comm.send(floats(0), 0)
        check(True)


def test_many_threads(comm):
    """A communicator for each of 8 threads of this process."""
    ranks, sums = coll.init_all(8), [None] * 8

    def work(i):
        c = ranks[i]
        for k in range(50):
            sums[i] = c.all_reduce(floats(i, k)).tolist()
            assert sums[i] == [28, 8 * k], sums[i]
        c.close()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    equal(sums, [[28, 8 * 49]] * 8)


main(test_work, test_time_limit, test_dropped, test_streams, test_order_of_copies, test_callbacks, test_function_while_looking, test_groups, test_prepared, test_other_thread,
     test_many_threads)
