"""Processes that are forked from this one, which has imported once what they need: importing torch takes seconds.

Each ends as a program does: it leaves all frames of this one, and the interpreter after that. So whoever starts some does it below top(),
and catches no BaseException in between. Settings of the library in the environment of the tests are not those of the ranks.
"""

import functools
import gc
import importlib
import os
import secrets
import signal
import sys
import tempfile
import time
import types

SKIPPED = 77
HERE = os.path.dirname(os.path.abspath(__file__))
for _name in [n for n in os.environ if n.startswith("COLL_") and n != "COLL_TEST_ONLY"]:
    del os.environ[_name]
os.environ["OMP_NUM_THREADS"] = "1"


class _Child(BaseException):
    def __init__(self, body):
        self.body = body


def top(body):
    """The program: body() in this process; in each that it starts, the body of that one."""
    while True:
        try:
            sys.exit(body())
        except _Child as child:
            body = child.body


def preload(*modules):
    """For all; what is not there they will miss themselves. Whether all are there."""
    there = True
    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError:
            there = False
    # Else each process would look through all these objects at its end, and copy their pages: a second.
    gc.collect()
    gc.freeze()
    return there


def _start(body, files, env):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.environ.update(env)
        for number, file in enumerate(files, 1):
            os.dup2(file.fileno(), number)
        raise _Child(body)
    return pid


def run(ranks, body, limit_s, capture=False, **env):
    """The statuses of the ranks of a job (None: it did not end in time, and was killed). With capture: the first that is not 0, output and
    errors, each line with its rank."""
    job = {"COLL_ROOT": f"unix:forked-{secrets.token_hex(8)}", "COLL_JOB_KEY": secrets.token_hex(16), "COLL_SIZE": str(ranks),
           "COLL_LOCAL_SIZE": str(ranks), **env}
    files = [[tempfile.TemporaryFile(), tempfile.TemporaryFile()] if capture else [] for _ in range(ranks)]
    pids = [_start(body, files[r], {**job, "COLL_RANK": str(r), "COLL_LOCAL_RANK": str(r)}) for r in range(ranks)]
    statuses = _ended(pids, time.monotonic() + limit_s)
    if not capture:
        return statuses
    out, err = ("".join(f"[{r}] {line}\n" for r in range(ranks) for line in _said(files[r][i]).splitlines()) for i in (0, 1))
    if None in statuses:
        raise AssertionError(f"it did not end:\n{out}\n{err}")
    return next((s for s in statuses if s), 0), out, err


def _ended(pids, until):
    statuses = {}
    while len(statuses) < len(pids):
        for pid in [p for p in pids if p not in statuses]:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                statuses[pid] = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > until:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                statuses[pid] = None
        time.sleep(0.005)
    return [statuses[pid] for pid in pids]


def _said(file):
    file.seek(0)
    return file.read().decode(errors="replace")


def program(text):
    """A body that runs the text as `python -c` does."""
    def body():
        made = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(text, "<program>", "exec"), made.__dict__)
    return body


def file(path):
    """A body that runs a file as a program."""
    def body():
        import runpy
        sys.argv[:] = [path]
        runpy.run_path(path, run_name="__main__")
    return body


def check(condition, *facts):
    if not condition:
        raise AssertionError("\n".join(str(f) for f in facts))


def _alone(case):
    case()
    sys.stdout.flush()
    os._exit(0)


def cases(functions, names, beside=3, talk=False):
    """Run those named, or all: each in a process of its own, some beside each other; talk: with what they print. The status of the program."""
    waiting, running, failed = [f for f in functions if not names or f.__name__ in names], {}, 0
    count = len(waiting)
    while waiting or running:
        while waiting and len(running) < beside:
            case, file = waiting.pop(0), tempfile.TemporaryFile()
            running[_start(functools.partial(_alone, case), [file, file], {})] = case, file, time.monotonic()
        pid, status = os.wait()
        case, file, began = running.pop(pid)
        failed += status != 0
        print(f"{case.__name__} {time.monotonic() - began:.1f} s{' FAILED' if status else ''}", flush=True)
        print(_said(file) if status or talk else "", end="", flush=True)
    print(f"{count - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed or not count else 0
