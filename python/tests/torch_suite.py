"""PyTorch's own distributed tests over the backend coll. usage: torch_suite.py [--write | --only NAME | --fast] RANKS...

The tests are those of torch.testing._internal.distributed.distributed_test, which knows its backends by name. Their text is
changed where it asks for gloo, so that coll is let in wherever Gloo is. torch_suite.txt has a line for each test: run, or why
not; what runs must pass. --write makes that file anew from what is seen. --fast runs a part of it: the lines `run fast`.
"""

import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LIST = os.path.join(HERE, "torch_suite.txt")
# So long one test may take.
LIMIT_S = 240


def let_in(text):
    """The text of the tests, with coll beside gloo."""
    text = re.sub(r'BACKEND != "gloo"', 'BACKEND not in ("gloo", "coll")', text)
    text = re.sub(r'BACKEND != "mpi", "Only MPI', 'BACKEND not in ("mpi", "coll"), "Only MPI', text)
    text = re.sub(r'BACKEND == "gloo"', 'BACKEND in ("gloo", "coll")', text)
    text = re.sub(r'require_backend_is_available\(\{"gloo"\}\)', 'require_backend_is_available({"gloo", "coll"})', text)
    # Its file changes from test to test, and the name that the module read first is not good for long.
    text = text.replace('not INIT_METHOD.startswith("file://")', "False")
    text = text.replace("init_method=INIT_METHOD", 'init_method=os.environ["INIT_METHOD"]')
    # A barrier of torch that refuses all but gloo by name; the group has it as a method.
    text = re.sub(r"dist\.monitored_barrier\(subgroup, timeout\)", "(subgroup is not None and not isinstance(subgroup, int) and "
                  "subgroup.monitored_barrier(timeout))", text)
    return re.sub(r"dist\.monitored_barrier\(", "dist.group.WORLD.monitored_barrier(", text)


def load(ranks):
    """The class of tests. The number of ranks is fixed when the module is read."""
    os.environ.update(BACKEND="coll", WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", OMP_NUM_THREADS="1")
    import types

    import torch.testing._internal.common_distributed as common

    import coll.torch
    for feature in ("gpu", "cuda", "ddp", "subgroup", "plugin"):
        common.DistTestCases.backend_feature[feature].add("coll")
    if ranks >= 4:  # torch asks for 8 where 4 do
        common.skip_if_small_worldsize = lambda function: function
    path = os.path.join(os.path.dirname(common.__file__), "distributed", "distributed_test.py")
    module = types.ModuleType("torch_suite_tests")
    module.__file__ = path
    sys.modules["torch_suite_tests"] = module
    with open(path) as f:
        exec(compile(let_in(f.read()), path, "exec"), module.__dict__)

    class TestColl(module.TestDistBackend, module.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            import torch
            # Forked, not spawned: a second of imports per process less.
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return TestColl


def run_one(test):
    """What one test did: (verdict, reason or output)."""
    import unittest
    with tempfile.TemporaryFile("w+") as output:
        sys.stdout.flush()
        sys.stderr.flush()
        kept = os.dup(1), os.dup(2)
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        result = unittest.TestResult()
        try:
            test.run(result)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os.dup2(kept[0], 1)
            os.dup2(kept[1], 2)
            os.close(kept[0])
            os.close(kept[1])
        output.seek(0)
        said = output.read()
    if result.skipped:
        return "skip", " ".join(result.skipped[0][1].split()) or "no reason given"
    bad = result.errors + result.failures
    if bad:
        return "fail", bad[0][1] + said[-6000:]
    return "pass", ""


def listed():
    """name -> (run, fast, reason)"""
    rows = {}
    with open(LIST) as f:
        for line in f:
            words = line.split(None, 1)
            if words and not line.startswith("#"):
                rest = words[1].strip() if len(words) > 1 else ""
                rows[words[0]] = (rest.split()[:1] == ["run"], rest == "run fast", rest)
    return rows


def wanted(names, arguments):
    if arguments.only:
        return [n for n in names if re.search(arguments.only, n)]
    if arguments.write:
        return names
    rows = listed()
    missing = [n for n in names if n not in rows]
    if missing:
        print(f"{LIST} has no line for {', '.join(missing)}")
        sys.exit(1)
    return [n for n in names if rows[n][0] and (rows[n][1] or not arguments.fast)]


def run_all(ranks, arguments):
    """All tests with so many ranks. Returns the verdicts."""
    tests = load(ranks)
    names = wanted(sorted(n for n in dir(tests) if n.startswith("test_")), arguments)
    verdicts = {}
    for name in names:
        began = time.monotonic()
        verdict, text = run_one(tests(name))
        verdicts[name] = verdict, text, time.monotonic() - began
        if verdict == "fail" or arguments.only or arguments.verbose:
            print(f"{verdict} {name} {verdicts[name][2]:.1f} s {text if verdict != 'pass' else ''}", flush=True)
    return verdicts


def write(verdicts):
    with open(LIST, "w") as f:
        f.write("# Tests of torch 2.13, torch.testing._internal.distributed.distributed_test, over the backend coll: run, or why not.\n"
                "# Written by torch_suite.py --write 2; `run fast` marks those of ./run test.\n")
        spent = 0.0
        for name, (verdict, text, seconds) in sorted(verdicts.items()):
            # The cheap ones fill the part that the ordinary suite has time for.
            fast = verdict == "pass" and seconds < 2.5 and spent + seconds < 110
            spent += seconds if fast else 0
            if verdict == "skip" and re.search("world ?size", text):
                text = f"run with more ranks: {text}"
            first = {"pass": "run fast" if fast else "run", "skip": text}.get(verdict, "FAILS")
            f.write(f"{name} {first}\n")


def main():
    import argparse
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("ranks", nargs="+", type=int)
    arguments = parser.parse_args()
    try:
        import expecttest
        import torch
    except ImportError as error:
        print(f"skipped: {error}")
        return 77
    if not torch.__version__.startswith("2.13."):
        print(f"skipped: the list is of torch 2.13, this is {torch.__version__}")
        return 77
    if len(arguments.ranks) > 1:
        rest = [a for a in sys.argv[1:] if not a.isdigit()]
        return max([subprocess.run([sys.executable, __file__, *rest, str(r)]).returncode for r in arguments.ranks])
    verdicts = run_all(arguments.ranks[0], arguments)
    if arguments.write:
        write(verdicts)
    count = {v: sum(1 for x in verdicts.values() if x[0] == v) for v in ("pass", "fail", "skip")}
    print(f"torch {torch.__version__}, {arguments.ranks[0]} ranks:")
    print(f"{count['pass']} passed, {count['fail']} failed, {count['skip']} skipped", flush=True)
    # A test that needs more ranks skips itself; one that fails is ours.
    return 1 if count["fail"] or not count["pass"] else 0


if __name__ == "__main__":
    sys.exit(main())
