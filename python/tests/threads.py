"""Threads that work side by side in one process. usage: threads.py

In a free-threaded Python nothing keeps them apart but the package itself.
"""

import array
import gc
import sys
import sysconfig
import threading

import coll
from ranks import check, equal, floats, main, raises

THREADS, ROUNDS = 8, 200


def side_by_side(functions):
    """Run them in threads; what they raise is raised here."""
    errors = []

    def run(f):
        try:
            f()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(f,)) for f in functions]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]


def test_without_gil(comm):
    """Importing the package leaves a free-threaded Python free."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        check(not sys._is_gil_enabled())
    check(True)


def test_one_each(comm):
    ranks = coll.init_all(THREADS)

    def work(c):
        stream, x = c.stream(), floats(0)
        for k in range(ROUNDS):
            equal(c.all_reduce(floats(c.rank, k)).tolist(), [28, 8 * k])
            equal(c.all_gather(array.array("i", [c.rank * k])).tolist(), [[r * k] for r in range(THREADS)])
            work = c.all_reduce(floats(c.rank + k), stream=stream)
            c.all_reduce(x, out=x, stream=stream)  # dropped
            equal(work.result().tolist(), [28 + 8 * k])
            if k % 50 == 0:
                with c.duplicate() as child:
                    equal(child.all_reduce(floats(1)).tolist(), [8])
                stream = c.stream()
        c.close()

    side_by_side([lambda c=c: work(c) for c in ranks])


def test_two_in_one(comm):
    """Both threads call; one that comes while the other is in a call is refused, and sends nothing."""
    one, other = coll.init_all(2)
    made, refused, lock = [], [], threading.Lock()
    last = array.array("f", [-1])

    def call(tag):
        while not refused or len(made) < ROUNDS:
            x = floats(tag, 5)
            try:
                one.all_reduce(x, out=x)
            except coll.ArgumentError as error:
                assert "another thread is in all_reduce" in str(error), error
                refused.append(tag)
                assert x.tolist() == [tag, 5]
            else:
                with lock:
                    made.append(x.tolist())
                assert x.tolist() == [tag + 100, 7], x

    def answer():
        x = floats(100, 2)
        while True:
            got = other.all_reduce(x)
            if got[1] != 7:
                last[0] = got[1]
                return

    def both():
        side_by_side([lambda: call(1), lambda: call(2)])
        one.all_reduce(floats(0, 0))

    side_by_side([both, answer])
    equal(last.tolist(), [2])
    check(len(made) >= ROUNDS and refused)
    one.close(), other.close()


def test_objects_shared(comm):
    """Streams, works and arrays that several threads make, look at and drop."""
    c = coll.init_all(1)[0]
    works, stop = [], threading.Event()

    def make():
        stream = c.stream()
        try:
            for k in range(ROUNDS * 5):
                works.append(c.barrier(stream=stream) if k % 2 else c.all_reduce(floats(k), stream=stream))
                if k % 20 == 0:
                    stream = c.stream()
                    c.empty(16)
        finally:
            stop.set()

    def look():
        while not stop.is_set() or works:
            try:
                work = works.pop()
            except IndexError:
                continue
            work.add_done_callback(lambda w: w.result())
            work.done(), work.result()

    side_by_side([make, look, look, look])
    gc.collect()
    children = [c.duplicate() for _ in range(50)]
    side_by_side([lambda: [d.close() for d in children], lambda: [d.abort("enough") for d in children]])
    c.close()
    raises(coll.ArgumentError, c.barrier)


main(test_without_gil, test_one_each, test_two_in_one, test_objects_shared)
