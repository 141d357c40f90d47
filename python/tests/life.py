"""How programs end: exceptions, exits, forks, kills, Ctrl-C. Each case is a small program under collrun.

usage: life.py BUILD-DIRECTORY [CASE...]
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time

import forked
from forked import check

BUILD, PYTHON = os.path.abspath(sys.argv[1]), sys.executable
os.environ["PYTHONPATH"] = os.path.join(BUILD, "python")
HEAD = "import array, os, sys, threading, time, signal, coll\nx = array.array('f', [1, 2])\n"
# Longer than anything here takes, and shorter than the library's own limits.
LIMIT_S = 60


def run(program, ranks=2, head=HEAD):
    process = subprocess.Popen([os.path.join(BUILD, "tools", "collrun"), "--prefix", "-n", str(ranks), PYTHON, "-c", head + program],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        out, err = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"it did not end:\n{out}\n{err}")
    return process.returncode, out, err


def exception():
    """An uncaught exception on one rank shows on the others, with its text, at once."""
    begun = time.monotonic()
    code, out, err = run("c = coll.init()\nc.barrier()\n"
                         "if c.rank == 1: raise ValueError('no such\\nweight')\nc.all_reduce(x)")
    check(code != 0 and time.monotonic() - begun < 30, code)
    check(re.search(r"\[0\] coll.AbortedError: .*rank 1 aborted the communicator: ValueError: no such weight", err), err)
    check("[1] ValueError: no such" in err, err)


def exception_in_with():
    """The same when somebody catches it outside of the `with`."""
    code, out, err = run("try:\n  with coll.init() as c:\n    c.barrier()\n    if c.rank == 1: raise KeyError('k')\n"
                         "    c.all_reduce(x)\nexcept Exception as e:\n  print(c.closed, type(e).__name__, e)")
    check(code == 0 and "[1] True KeyError 'k'" in out, out, err)
    check(re.search(r"\[0\] True AbortedError .*KeyError: 'k'", out), out)


def exception_in_thread():
    """It aborts the communicators that the thread used last, and no others."""
    code, out, err = run("a = coll.init()\nb = a.duplicate()\ndef f():\n  b.barrier()\n  if b.rank == 1: raise OSError('disk')\n"
                         "  try: b.all_reduce(x)\n  except coll.AbortedError as e: print(e)\n"
                         "t = threading.Thread(target=f)\na.barrier()\nt.start()\nt.join()\n"
                         "print('others', a.all_reduce(x).tolist())")
    check(code == 0 and out.count("others [2.0, 4.0]") == 2, out, err)
    check(re.search(r"\[0\] .*rank 1 aborted the communicator: OSError: disk", out), out)


def exception_in_other_thread():
    """Threads that come later have used nothing, though Python gives them the identifier of one that did."""
    code, out, err = run("c = coll.init()\ndef bad(): raise OSError('mine')\n"
                         "def after(f): t = threading.Thread(target=f); t.start(); t.join(); return t.ident\n"
                         "user = after(lambda: c.all_reduce(x))\n"
                         "if c.rank == 1: print('again', user in [after(bad) for _ in range(20)])\nprint(c.all_reduce(x).tolist())")
    check(code == 0 and out.count("[2.0, 4.0]") == 2 and "again True" in out, code, out, err)


def exception_handled():
    """A program that prints an error by the hook, or has a console do so, goes on, and so do the others."""
    for handled in ("  try: 1 / 0\n  except Exception: sys.excepthook(*sys.exc_info())\n",
                    "  import code; code.InteractiveInterpreter().runsource('1/0')\n",
                    "  import code; code.InteractiveInterpreter(globals()).runsource('1/0')\n",
                    "  def f():\n    try: 1 / 0\n    except Exception: sys.excepthook(*sys.exc_info())\n"
                    "  t = threading.Thread(target=f); t.start(); t.join()\n"):
        code, out, err = run("c = coll.init()\nif c.rank == 0:\n" + handled + "c.all_reduce(x)\nif c.rank:\n  time.sleep(.3)\n  c.close()\n")
        check(code == 0 and "ZeroDivisionError" in err and "abort" not in err, code, out, err)


def exception_in_hook_of_others():
    """A program with a hook of its own that does not call ours: the exit aborts."""
    code, out, err = run("sys.excepthook = lambda *a: print('hook')\nc = coll.init()\nc.barrier()\n"
                         "if c.rank == 1: sys.last_value = ValueError('mine'); raise sys.last_value\n"
                         "try: c.all_reduce(x)\nexcept coll.CollError as e: print(type(e).__name__)")
    check("[1] hook" in out and re.search(r"\[0\] (AbortedError|PeerDead)", out), out, err)


def exits():
    """A normal exit destroys: no complaints of the other ranks, children included; sys.exit() too."""
    for last in ("", "sys.exit(0)", "c.close()", "with c:\n  if c.rank == 0: c.send(x, 1); sys.exit(0)\n  time.sleep(.3); c.recv(x, 0)"):
        code, out, err = run("c = coll.init()\nd = c.split(0)\ne = d.duplicate()\nd.all_reduce(x)\n" + last)
        check(code == 0 and not err.strip(), last, code, out, err)
    # A posted receive that nobody answers is no reason to wait, nor an error.
    for end in ("if c.rank: r = c.irecv(x, 0, 3)\nelse: c.close()\n", "r = c.irecv(x, 0, 3)\nc.close()\n",
                "r = c.irecv(x, 0, 3)\n"):
        code, out, err = run("import atexit\natexit.register(lambda: print('quick', time.monotonic() - t < 2))\nimport coll\n"
                             "c = coll.init()\nc.barrier()\nt = time.monotonic()\n" + end, head="import array, time\nx = array.array('f', [1])\n")
        check(code == 0 and not err.strip() and out.count("quick True") == 2, end, code, out, err)


def exit_with_receive():
    """A normal exit takes a receive back also when another thread waits for it. That thread reads why, and its end is no failure."""
    for end, text in (("", ""), ("  try: r.wait()\n  except coll.CancelledError as e: print(e)\n", "the process is ending")):
        code, out, err = run("import atexit, array, threading\natexit.register(lambda: t.join(20))\nimport coll\nc = coll.init()\n"
                             "r = c.irecv(array.array('f', [1]), 1 - c.rank, 3)\nbegun = threading.Event()\n"
                             f"def f():\n  begun.set()\n{end}  r.wait()\nt = threading.Thread(target=f, daemon=True)\nt.start()\n"
                             "begun.wait()\nc.barrier()\n", head="")
        check(code == 0 and not err.strip() and (not text or out.count(text) == 2), code, out, err)


def exit_with_work():
    """Calls on a stream are completed by an exit; what cannot be completed ends with an abort."""
    code, out, err = run("c = coll.init()\ns = c.stream()\nfor i in range(100): c.all_reduce(x, stream=s)")
    check(code == 0 and not err.strip(), out, err)
    code, out, err = run("c = coll.init()\ns = c.stream()\ny = array.array('f', [0])\n"
                         "if c.rank == 0: c.recv(y, 1, stream=s)\nelse: time.sleep(6)")
    check(code == 0 and "before its calls on streams were complete" in err, code, out, err)


def forks():
    """Children of a fork, and of multiprocessing, that exit in the usual way leave the communicators alone."""
    for child in ("sys.exit(0)", "pass", "os._exit(0)", "raise ValueError('child')"):
        code, out, err = run("c = coll.init()\ns = c.stream()\nw = c.all_reduce(x, stream=s)\nop = c.prepare('barrier')\n"
                             "m = c.empty(4)\npid = os.fork()\nif pid == 0:\n  if not c.closed: os._exit(3)\n"
                             "  for f in (c.barrier, lambda: c.all_reduce(x), s.wait, op, lambda: w.wait() if not w.done() else c.barrier()):\n"
                             "    try: f()\n    except coll.ArgumentError: pass\n    else: os._exit(3)\n"
                             f"  {child}\nelse:\n  _, status = os.waitpid(pid, 0)\n"
                             "  assert os.WIFEXITED(status) and os.WEXITSTATUS(status) != 3, status\n"
                             "  w.wait(); op()\n  print(c.all_reduce(x).tolist())")
        check(out.count("[2.0, 4.0]") == 2 or child == "pass" and "[2.0, 4.0]" in out, child, code, out, err)
    code, out, err = run("import multiprocessing\nc = coll.init()\nwith multiprocessing.get_context('fork').Pool(2) as pool:\n"
                         "  assert pool.map(abs, range(10)) == list(range(10))\nprint(c.all_reduce(x).tolist())")
    check(code == 0 and out.count("[2.0, 4.0]") == 2, out, err)


def workers():
    """Ranks that are processes of multiprocessing: the id is handed over, a normal end destroys, an exception aborts."""
    # In a directory of its own, which comes first on the path of its imports.
    place = tempfile.TemporaryDirectory()
    with open(os.path.join(place.name, "program.py"), "w") as f:
        f.write("import array, multiprocessing, sys, coll\n"
                "def work(rank, key, fail):\n"
                "  c = coll.init(rank, 2, id=key)\n  y = array.array('f', [1])\n  c.all_reduce(y, out=y)\n"
                "  if rank == 1 and fail: raise ValueError('worker')\n"
                "  try: c.barrier()\n  except coll.AbortedError as e: sys.stdout.write(f'{e}\\n')\n  sys.stdout.write(f'{rank} {y[0]}\\n'); sys.stdout.flush()\n"
                "if __name__ == '__main__':\n"
                "  for fail in (0, 1):\n"
                "    with multiprocessing.get_context('spawn').Manager() as m:\n"
                "      q = m.Queue()\n"
                "      ps = [multiprocessing.get_context('spawn').Process(target=first, args=(q, fail)),\n"
                "            multiprocessing.get_context('spawn').Process(target=second, args=(q, fail))]\n"
                "      [p.start() for p in ps]; [p.join() for p in ps]\n")
        name = f.name
    text = open(name).read().replace("if __name__", "def first(q, fail):\n  key = coll.unique_id()\n  q.put(key)\n"
                                     "  work(0, key, fail)\ndef second(q, fail):\n  work(1, q.get(), fail)\nif __name__")
    open(name, "w").write(text)
    # Lines are written whole: both ranks write to one pipe.
    env = {k: v for k, v in os.environ.items() if not k.startswith("COLL_") and k != "PYTHONUNBUFFERED"}
    done = subprocess.run([PYTHON, name], capture_output=True, text=True, timeout=LIMIT_S,
                          env={**env, "PYTHONPATH": os.path.join(BUILD, "python")})
    place.cleanup()
    check(done.stdout.count("0 2.0") == 2 and done.stdout.count("1 2.0") == 1, done.stdout, done.stderr)
    check("ValueError: worker" in done.stdout, done.stdout, done.stderr)


def killed_together():
    """Of workers that die at once a receive from any source names one after the other: the example loses no request."""
    p = subprocess.run([sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../examples/fleet.py"), "6", "24", "8"],
                       capture_output=True, text=True, timeout=90)
    check(p.returncode == 0 and "answered 24 of 24" in p.stdout, p.returncode, p.stdout, p.stderr)


def killed():
    """The others raise PeerDead, and name the rank."""
    code, out, err = run("c = coll.init()\nc.barrier()\nif c.rank == 2: os.kill(os.getpid(), signal.SIGKILL)\n"
                         "t = time.monotonic()\ntry: c.all_reduce(x)\nexcept coll.PeerDead as e: "
                         "print('dead', e.rank, e.lost, bool(e.host), time.monotonic() - t < 10)", ranks=3)
    check(out.count("dead 2 peer True True") == 2, out, err)


def survivors():
    """A death does not take the living with it: their messages go on, a group of them has all calls; the dead one is named, always."""
    code, out, err = run("c = coll.init()\nc.barrier()\nif c.rank == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
                         "def told(f):\n  try: f()\n  except coll.PeerDead as e: print('told', e.rank, e.lost)\n  else: print('NOT told')\n"
                         "told(c.barrier)\ntold(lambda: c.send(x, 1, tag=1))\ntold(lambda: c.irecv(x, 1).wait())\ntold(lambda: c.recv(x, 1))\n"
                         "told(lambda: c.irecv(x).wait())\n"  # from any source: once
                         "r = [c.irecv(x, coll.ANY, 3)]\ng = c.group([r for r in range(4) if r != 1])\nprint('group', g.all_reduce(x, stream=None).tolist())\n"
                         "y = array.array('f', [c.rank])\ns = c.stream()\n"
                         "to, of = {0: (2, 3), 2: (3, 0), 3: (0, 2)}[c.rank]\n"
                         "w = c.send(y, to, tag=5, stream=s)\nz = array.array('f', [9])\nc.recv(z, of, tag=5)\nw.wait()\nprint('got', z[0] == of)\n"
                         "r[0].cancel()\ntold(c.barrier)\ng.close()\nc.close()\nprint('end')", ranks=4)
    for r in (0, 2, 3):
        check(out.count(f"[{r}] told 1 peer") == 6 and f"[{r}] group [3.0, 6.0]" in out and f"[{r}] got True" in out and f"[{r}] end" in out, r, out, err)
    check("NOT" not in out, out, err)


def stream_behind_a_death():
    """A send to a dead rank fails; the stream goes on with the living, and gives that error once."""
    code, out, err = run("c = coll.init()\ns = c.stream()\nc.barrier(stream=s).wait()\nif c.rank == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
                         "try: c.recv(x, 1, stream=s).wait()\nexcept coll.PeerDead as e: print('told', e.rank)\n"
                         "p, y = 2 - c.rank, array.array('f', [0, 0])\n"
                         "for i in range(3):\n  for f in (c.send, c.recv)[::1 - c.rank]: f(x if f == c.send else y, p, stream=s).wait()\n"
                         "print('living', y.tolist())\n"
                         "try: s.wait()\nexcept coll.PeerDead as e: print('of the stream', e.rank)\n"
                         "s.wait(); print('then', s.query())\n"
                         "w = c.send(x, 1, stream=s)\ntry: s.wait()\nexcept coll.PeerDead as e: print('again', e.rank)\n"
                         "g = c.group([0, 2])\nprint('group', g.all_reduce(x, stream=s).result().tolist())\n"
                         "try: c.barrier(stream=s).wait()\nexcept coll.PeerDead as e: print('collective', e.rank)", ranks=3)
    for line in ("told 1", "living [1.0, 2.0]", "of the stream 1", "then True", "again 1", "group [2.0, 4.0]", "collective 1"):
        check(out.count(line) == 2, line, out, err)


def shrinks():
    """After a death the living agree who is left, whatever they were in; one list on all, and calls on what they get."""
    code, out, err = run("c = coll.init()\nc.barrier()\nif c.rank == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
                         "try:\n  if c.rank: c.barrier()\n  else: time.sleep(0.5)\nexcept coll.CollError as e: pass\n"  # rank 0: until it has died
                         "d, lost = c.shrink()\nc.close()\nprint('shrunk', lost, d.rank, d.size, d.all_reduce(x).tolist())\n"
                         "e, lost = d.shrink()\nprint('whole', lost, e.size, isinstance(e, coll.Communicator))\n"
                         "try: d.barrier()\nexcept coll.AbortedError as a: print('ended', 'shrunk' in str(a))", ranks=4)
    for rank, place in ((0, 0), (2, 1), (3, 2)):
        for line in (f"shrunk [1] {place} 3 [3.0, 6.0]", "whole [] 3 True", "ended True"):
            check(f"[{rank}] {line}" in out, rank, line, out, err)


def logged():
    """An error that is raised is no line on stderr; one that nobody looks at is. With log_to() nothing goes to stderr."""
    kill = "c = coll.init()\nc.barrier()\nif c.rank == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
    code, out, err = run(kill + "try: c.barrier()\nexcept coll.PeerDead as e: print('caught')\ntime.sleep(3)")
    check("[0] caught" in out and "[0]" not in err, out, err)
    code, out, err = run(kill + "c.barrier(stream=c.stream())\ntime.sleep(.5)\nprint('over')")
    check("[0] over" in out and len(re.findall(r"\[0\] coll\[0/2\] error: .*COLL-2101", err)) == 1, out, err)
    code, out, err = run("import logging\nlines = []\nclass Handler(logging.Handler):\n"
                         "  def emit(self, r): lines.append(f'{r.levelname} {r.getMessage()}')\n"
                         "logger = logging.Logger('mine')\nlogger.addHandler(Handler())\ncoll.log_to(logger)\n" + kill +
                         "c.barrier(stream=c.stream())\nwhile not any('COLL-2101' in line for line in lines): time.sleep(.01)\n"
                         "print(threading.active_count(), [line for line in lines if 'COLL-2101' in line][0])")
    check(re.search(r"\[0\] \d ERROR coll\[0/2\]: .*rank 1 on host", out) and "[0]" not in err, out, err)


def leaves():
    """sys.exit() is told with its status, if it ended the program; nothing is when it was caught."""
    for call, told in (("sys.exit(3)", "with exit status 3: its program ended with exit status 3"), ("exit(1)", "its program ended with exit status 1"),
                       ("sys.exit('loss is nan')", "with exit status 1: SystemExit: loss is nan"),
                       ("sys.exit(0)", "left: it closed its communicator, or its program ended"), ("pass", "left: it closed its communicator, or its program ended"),
                       ("\n  try: sys.exit(5)\n  except SystemExit: pass", "left: it closed its communicator, or its program ended")):
        code, out, err = run(f"c = coll.init()\nc.barrier()\nif c.rank == 1: {call}\nelse:\n  try: c.all_reduce(x)\n  except coll.CollError as e: print(e, e.exit_status)")
        check(re.search(rf"\[0\] .*{told}", out) and "coll[" not in err, call, out, err)


def late():
    """A time limit of a job in its settings; the error is a TimeoutError and says who."""
    code, out, err = run("c = coll.init(arrival_timeout_ms=500)\nc.barrier()\nif c.rank == 0:\n"
                         "  try: c.all_reduce(x)\n  except TimeoutError as e: print('late', e.rank, e.late, type(e).__name__)\n"
                         "else: time.sleep(3)")
    check("[0] late 1 (1,) PeerLate" in out, out, err)


def receive_late():
    """The wait for a posted receive has the limits of a blocking receive. One that nobody waits for has none."""
    for wait in ("c.irecv(x, 1, 5).wait()", "c.recv_object(1, tag=5)"):
        code, out, err = run("c = coll.init(arrival_timeout_ms=500)\nc.barrier()\nif c.rank == 0:\n"
                             "  r = c.irecv(x, 1, 6)\n  time.sleep(.8)\n  print('posted', r.done())\n"
                             f"  try: {wait}\n  except TimeoutError as e: print('late', e.rank, e.late, type(e).__name__)\n"
                             "else:\n  try: c.irecv(x, coll.ANY, 5).wait(20)\n  except (coll.CollError, TimeoutError): pass")
        check("[0] posted False" in out and "[0] late 1 (1,) PeerLate" in out, wait, out, err)


def receive_silent():
    """The same for a rank that is stopped."""
    code, out, err = run("c = coll.init(timeout_ms=1000)\npids = c.all_gather_object(os.getpid())\n"
                         "if c.rank == 1: os.kill(os.getpid(), signal.SIGSTOP)\nelse:\n"
                         "  try: c.irecv(x, 1, 5).wait(30)\n  except coll.CollError as e: print('silent', e.rank, type(e).__name__)\n"
                         "  finally: os.kill(pids[1], signal.SIGKILL)")
    check("[0] silent 1 PeerSilent" in out, out, err)


def mismatch():
    code, out, err = run("c = coll.init()\ntry: c.all_reduce(x) if c.rank else c.all_reduce(array.array('f', [1]))\n"
                         "except coll.MismatchError as e: print('differs', e.kind, e.lost)")
    check(out.count("differs all_reduce communicator") == 2, out, err)


def function_raises():
    """An operation in Python that raises: its own exception here, an abort with its text there."""
    code, out, err = run("c = coll.init()\ndef f(a, b):\n  if c.rank == 1: raise ValueError('bad op')\n"
                         "  for i, v in enumerate(a): b[i] += v\nop = c.op(f)\n"
                         "try:\n  while True: c.all_reduce(x, op)\nexcept Exception as e: print(type(e).__name__, e)")
    check("[1] ValueError bad op" in out and re.search(r"\[0\] AbortedError .*ValueError: bad op", out), out, err)
    # One call of many parts: the others do not take it for complete.
    code, out, err = run("c = coll.init()\ndef f(a, b):\n  if c.rank == 1: raise ValueError('bad op')\n"
                         "op, y = c.op(f), array.array('d', bytes(8000000))\nc.barrier()\n"
                         "try: c.all_reduce(y, op); print('complete')\nexcept Exception as e: print(type(e).__name__, e)")
    check("[1] ValueError bad op" in out and re.search(r"\[0\] AbortedError .*ValueError: bad op", out), out, err)


def aborted():
    """From another thread, during a call that would wait for long."""
    code, out, err = run("c = coll.init()\nc.barrier()\nif c.rank == 0:\n"
                         "  threading.Timer(0.2, c.abort, ['enough']).start()\n  try: c.recv(x, 1)\n"
                         "  except coll.AbortedError as e: print('here', e)\nelse:\n  try: c.recv(x, 0)\n"
                         "  except coll.AbortedError as e: print('there', e)")
    check(re.search(r"\[0\] here .*enough", out) and re.search(r"\[1\] there .*enough", out), out, err)


def interrupted():
    """Ctrl-C in a call whose peer is absent: KeyboardInterrupt at once, and the peer is told. The signal goes to one rank."""
    for wait, told in (("c.all_reduce(x)", "interrupted"),
                       ("c.all_reduce(x, stream=c.stream()).wait()", "KeyboardInterrupt"),
                       ("s = c.stream(); c.all_reduce(x, stream=s); s.wait()", "KeyboardInterrupt"),
                       ("c.all_gather_object(1)", "interrupted"),
                       ("c.split(0)", "interrupted"),
                       ("c.group([0, 1])", "KeyboardInterrupt|interrupted")):
        code, out, err = run("c = coll.init()\nc.barrier()\nif c.rank == 0:\n"
                             "  def later(): time.sleep(0.3); t.append(time.monotonic()); os.kill(os.getpid(), signal.SIGINT)\n"
                             "  t = []\n  threading.Thread(target=later).start()\n"
                             f"  try:\n    {wait}\n  finally: print('after', time.monotonic() - t[0] < 5, flush=True)\n"
                             "else:\n  time.sleep(1)\n  try: c.recv(x, 0)\n"
                             "  except coll.AbortedError as e: print('told', e, flush=True)\n  time.sleep(0.5)")
        check("[0] after True" in out and "[0] KeyboardInterrupt" in err, wait, out, err)
        check(re.search(rf"\[1\] told .*({told})", out), wait, out, err)
    # A handler that does not raise ends nothing.
    code, out, err = run("c = coll.init()\nc.barrier()\nseen = []\nsignal.signal(signal.SIGUSR2, lambda *a: seen.append(1))\n"
                         "if c.rank == 0:\n  threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGUSR2]).start()\n"
                         "else: time.sleep(0.6)\nprint(c.all_reduce(x).tolist(), len(seen))")
    check("[0] [2.0, 4.0] 1" in out, out, err)


def receive_dropped():
    """A receive that is dropped while an exception is on its way leaves that exception alone."""
    code, out, err = run("c = coll.init()\nif c.rank == 0:\n"
                         "  try: c.irecv(x, 1, 5).wait(timeout=.1)\n  except TimeoutError: print('in time')\n"
                         "  try: [c.irecv(x, 1, 5), 1 / 0]\n  except ZeroDivisionError: print('zero')\n"
                         "  threading.Timer(.3, os.kill, [os.getpid(), signal.SIGINT]).start()\n"
                         "  try: c.recv_object(1, tag=4)\n  except KeyboardInterrupt: print('stopped')\nc.barrier()")
    check(code == 0 and all(f"[0] {word}" in out for word in ("in time", "zero", "stopped")), code, out, err)


def interrupted_creation():
    code, out, err = run("if os.environ['COLL_RANK'] == '0':\n"
                         "  threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()\n"
                         "  try: coll.init()\n  except KeyboardInterrupt: print('after', flush=True)\n"
                         "else: time.sleep(2)")
    check("[0] after" in out, out, err)


def groups_are_cheap():
    """200 children need no more threads and connections than one; all that they hold goes with them. Eventfds are
    left out: a thread keeps one from the first time it sleeps beside others."""
    code, out, err = run("c = coll.init()\nc.barrier()\ndef held(all=False):\n  fds = []\n  for f in os.listdir('/proc/self/fd'):\n"
                         "    try: fds.append(os.readlink('/proc/self/fd/' + f))\n    except OSError: pass\n"
                         "  fds = [f for f in fds if 'eventfd' not in f]\n"
                         "  return len([f for f in fds if all or 'memfd' not in f]), len(os.listdir('/proc/self/task'))\n"
                         "c.duplicate().all_reduce(x)\nbefore, full = held(), held(True)\n"
                         "children = [c.split(0) for _ in range(200)]\n"
                         "for d in children: d.all_reduce(x)\nprint(before == held(), before, held())\n"
                         "for d in children: d.close()\nc.barrier()\nprint('after', full == held(True), full, held(True))")
    check(code == 0 and out.count("] True") == 2 and out.count("after True") == 2, out, err)


def memory_outlives():
    """Arrays of empty() stay valid after close()."""
    code, out, err = run("with coll.init() as c:\n  m = c.empty(1000)\n  m[5] = 1\n  c.all_reduce(m, out=m)\n  d = c.split(0)\n"
                         "  v = memoryview(d.empty(4))\n  v[1] = 3\n  d.close()\n"
                         "print(m[5], v[1], c.closed, d.closed)\ndel m, v")
    check(code == 0 and out.count("2.0 3.0 True True") == 2 and not err.strip(), code, out, err)
    # And to the end of the interpreter; only one rank has some.
    code, out, err = run("import atexit\natexit.register(lambda: print('kept', kept and kept[0][5]))\n"
                         "class Last:\n  def __del__(self): print('last', kept and kept[0][5])\nimport coll\n"
                         "c = coll.init()\nd = c.split(0)\nkept = [memoryview(d.empty(1 << 20))] if c.rank else []\nlast = Last()\n"
                         "d.barrier()\n", head="")
    check(code == 0 and not err.strip() and "[1] kept 0.0" in out and "[1] last 0.0" in out and "[0] last []" in out, code, out, err)


def interactive():
    """At a prompt a mistake ends nothing."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("COLL_")}
    done = subprocess.run([PYTHON, "-i", "-q", "-c", HEAD + "c = coll.init()"], input="1/0\nprint(c.all_reduce(x).tolist())\n",
                          capture_output=True, text=True, timeout=LIMIT_S,
                          env={**env, "PYTHONPATH": os.path.join(BUILD, "python")})
    check("[1.0, 2.0]" in done.stdout and "ZeroDivisionError" in done.stderr, done.stdout, done.stderr)


def names_itself():
    env = {**os.environ, "PYTHONPATH": os.path.join(BUILD, "python"), "PATH": os.path.join(BUILD, "tools") + ":" + os.environ["PATH"]}
    done = subprocess.run([PYTHON, "-m", "coll"], capture_output=True, text=True, timeout=LIMIT_S, env=env)
    check(done.returncode == 0 and "libcoll.so" in done.stdout and "ranks: 1" in done.stdout, done.stdout, done.stderr)
    done = subprocess.run([PYTHON, "-c", "import coll; s = coll.settings(); print(s['timeout_ms'], s['log_file'] == ''); "
                           "import os; print(os.path.exists(coll.get_include() + '/coll/coll.h'), coll.version)"],
                          capture_output=True, text=True, timeout=LIMIT_S, env={**env, "COLL_TIMEOUT_MS": "1234"})
    check("1234 True" in done.stdout and "True 0." in done.stdout, done.stdout, done.stderr)


CASES = [exception, exception_in_with, exception_in_thread, exception_in_other_thread, exception_handled,
         exception_in_hook_of_others, exits, exit_with_receive, exit_with_work, forks, workers,
         killed, killed_together, survivors, stream_behind_a_death, shrinks, logged, leaves, late, receive_late, receive_silent, mismatch, function_raises, aborted, interrupted, receive_dropped, interrupted_creation, groups_are_cheap, memory_outlives, interactive, names_itself]


forked.top(lambda: forked.cases(CASES, sys.argv[2:]))
