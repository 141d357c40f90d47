"""What the test programs share: they run on all ranks under collrun, and any exception ends them all (coll aborts)."""

import array
import os
import sys

import coll

_passed = 0


def check(condition, *facts):
    """One thing that must hold."""
    global _passed
    if not condition:
        raise AssertionError(" ".join(str(f) for f in facts) or "a check failed")
    _passed += 1


def equal(got, wanted, *facts):
    check(got == wanted, *facts, f"got {got!r}, wanted {wanted!r}")


def raises(kind, function, *args, says="", **words):
    """function(...) raises; the text contains `says`."""
    try:
        function(*args, **words)
    except kind as error:
        check(says in str(error), f"{error!r} does not say {says!r}")
        return error
    raise AssertionError(f"no {kind.__name__} from {function}")


def floats(*values):
    return array.array("f", values)


def needs(*modules):
    """End with meson's code for a skipped test if one is missing."""
    import importlib
    found = []
    for name in modules:
        try:
            found.append(importlib.import_module(name))
        except ImportError:
            print(f"skipped: {name} is not installed")
            sys.exit(77)
    return found


def main(*tests):
    """Run them; COLL_TEST_ONLY chooses those whose names contain it."""
    tests = [t for t in tests if os.environ.get("COLL_TEST_ONLY", "") in t.__name__]
    with coll.init() as comm:
        for test in tests:
            before = _passed
            test(comm)
            check(_passed > before or comm.rank > 0, test.__name__, "checked nothing")
            comm.barrier()
        rank = comm.rank
    if rank == 0:
        print(f"{len(tests)} passed, 0 failed, 0 skipped")
