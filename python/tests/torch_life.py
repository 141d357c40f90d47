"""How programs with coll.torch end and start: kills, exceptions, forks, many groups, launchers, calls of which a rank dies. Each case is a small
program.

Those with CUDA tensors are on the stand-in driver. usage: [TEST_CUDA_LIBRARY=FILE] torch_life.py [CASE...]
"""

import os
import re
import subprocess
import sys
import tempfile

import forked
from forked import check

HEAD = "import os, sys, time, signal, threading\nimport torch, torch.distributed as dist\nimport coll.torch\n"
INIT = "dist.init_process_group('coll')\nrank, size = dist.get_rank(), dist.get_world_size()\n"
DDP = ("from torch.nn.parallel import DistributedDataParallel as DDP\n"
       "model = DDP(torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)]))\n"
       "def step():\n  model.zero_grad()\n  model(torch.ones(4, 64) * (rank + 1)).sum().backward()\n")
# Longer than anything here takes, and shorter than the library's own limits.
LIMIT_S = 300


def run(program, ranks=2, **env):
    return forked.run(ranks, forked.program(HEAD + program), LIMIT_S, capture=True, **env)


def killed():
    """SIGKILL of a rank in the middle of DDP: the others raise at once, and name it."""
    code, out, err = run(INIT + DDP + "step()\n"
                         "if rank == 1: model.module[1].weight.register_hook(lambda g: os.kill(os.getpid(), signal.SIGKILL))\n"
                         "began = time.monotonic()\n"
                         "try:\n  for i in range(1000): step()\n"
                         # torch raises the error of a future as a RuntimeError that has its text.
                         "except RuntimeError as e: print(f'{time.monotonic() - began:.2f} s', ' '.join(str(e).split()))", ranks=3)
    for r in (0, 2):
        check(re.search(rf"\[{r}\] [\d.]+ s .*DistBackendError: .*rank 1 on host", out), out, err)


def survivors():
    """A death does not take the living with it: their messages go on, asynchronous ones and from any source too, and groups of them."""
    code, out, err = run(INIT + "dist.barrier()\nif rank == 1: os.kill(os.getpid(), signal.SIGKILL)\nx = torch.ones(2)\n"
                         "def told(f):\n  try: f()\n  except dist.DistBackendError as e: print('told', e.__cause__.rank, e.__cause__.lost)\n  else: print('NOT told')\n"
                         "told(dist.barrier)\nfor i in range(3): told(lambda: dist.send(x, 1))\ntold(lambda: dist.recv(x, 1))\ntold(lambda: dist.recv(x, tag=9))\n"
                         "to, of = {0: (2, 3), 2: (3, 0), 3: (0, 2)}[rank]\n"
                         "for i in range(4):\n"  # on the streams of the sends that have failed, too
                         "  y, z = torch.full((3,), float(rank)), torch.zeros(3)\n  w = dist.isend(y, to)\n"
                         "  source = dist.recv(z, of if i % 2 else None)\n  w.wait()\n  assert z[0] == of == source, (z, of, source)\n"
                         "for op in dist.batch_isend_irecv([dist.P2POp(dist.isend, y, to), dist.P2POp(dist.irecv, z, of)]): op.wait()\n"
                         "g = dist.new_group([0, 2, 3], use_local_synchronization=True)\ndist.all_reduce(x, group=g)\nprint('group', x.tolist())\n"
                         "objects = [None] * 3\ndist.all_gather_object(objects, rank, group=g)\nassert objects == [0, 2, 3]\ntold(lambda: dist.all_reduce(x))\n"
                         "dist.destroy_process_group()\nprint('end')", ranks=4)
    for r in (0, 2, 3):
        check(out.count(f"[{r}] told 1 peer") == 7 and f"[{r}] group [3.0, 3.0]" in out and f"[{r}] end" in out, r, out, err)
    check("NOT" not in out, out, err)


def exception():
    """An uncaught exception on one rank shows on the others, with its text."""
    code, out, err = run(INIT + "dist.barrier()\nif rank == 1: raise ValueError('no such weight')\ndist.all_reduce(torch.ones(2))")
    check(code != 0 and re.search(r"\[0\] .*DistBackendError: .*rank 1 aborted the communicator: ValueError: no such weight", err), code, err)


# Parts that leave the group as it was share one start: name, what holds, the program, what its output tells.
TOGETHER = [
    # 200 groups of one job cost neither threads nor descriptors.
    ("many_groups", "def cost():\n  fds = []\n  for f in os.listdir('/proc/self/fd'):\n"
      "    try: fds.append(os.readlink('/proc/self/fd/' + f))\n    except OSError: pass\n"
      # Memory of groups on one host has descriptors; connections and threads are what runs out.
      "  return len(os.listdir('/proc/self/task')), len([f for f in fds if 'memfd' not in f])\n"
      "x = torch.ones(2)\ndist.all_reduce(x, group=dist.new_group())\nbefore = cost()\n"
      "groups = [dist.new_group([0, 1] if i % 2 else [1, 0]) for i in range(200)]\n"
      "for g in groups: y = torch.ones(2); dist.all_reduce(y, group=g); assert y[0] == 2\n"
      "after = cost()\nassert before == after, (before, after)\nprint('same', after)\n"
      "dist.barrier()\n",
      lambda out, err: out.count("same") == 2),
    # Works that nobody keeps: their buffers live until the calls have ended.
    ("dropped", "x = torch.zeros(3)\n"
      "for i in range(10000): dist.all_reduce(torch.ones(257), async_op=True)\n"
      "for i in range(200):\n  dist.all_gather([torch.zeros(64)[::2] for _ in range(size)], torch.ones(32), async_op=True)\n"
      "for i in range(200): dist.all_reduce(x, async_op=True).get_future().then(lambda f: None)\n"
      "dist.barrier()\ny = torch.full((3,), rank + 1.0)\ndist.all_reduce(y)\nprint(y.tolist())\n",
      lambda out, err: out.count("[3.0, 3.0, 3.0]") == 2),
    # A receive whose Work is dropped still takes its message.
    ("dropped_receive", "x = torch.zeros(3)\nif rank == 0: dist.irecv(x, 1, tag=5)\ndist.barrier()\n"
      "if rank == 1: dist.send(torch.arange(3.0), 0, tag=5)\ndist.barrier()\n"
      "if rank == 0:\n  y = torch.zeros(1)\n  dist.recv(y, 1); assert x.tolist() == [0, 1, 2], x\nelse: dist.send(torch.ones(1), 0)\n",
      lambda out, err: True),
    # A function chained to a future waits for another future, for a new call's, and runs although the main thread sleeps.
    ("chained_futures", "a, b, c = torch.ones(2), torch.full((2,), 2.0), torch.full((2,), 5.0)\n"
      "fa = dist.all_reduce(a, async_op=True).get_future()\nfb = dist.all_reduce(b, async_op=True).get_future()\n"
      "def more(f):\n  fb.wait()\n  g = dist.all_reduce(c, async_op=True).get_future()\n  return f.value()[0] + g.wait()[0] + b\n"
      "print(fa.then(more).then(lambda f: f.value() * 2).wait().tolist())\n"
      "works = [dist.all_reduce(torch.ones(3), async_op=True) for _ in range(20)]\n"
      "futures = [w.get_future().then(lambda f, w=w: w.result()[0][0].item()) for w in works]\n"
      "print(sum(torch.futures.wait_all(futures)))\n",
      lambda out, err: out.count("[32.0, 32.0]") == 2 and out.count(" 40.0") == 2),
    # A pending receive keeps no tensors of later calls; those of calls that nobody keeps go with them.
    ("let_go", "import weakref\npending = dist.irecv(torch.zeros(1), 1 - rank, tag=7)\n"
      "def memory():\n  x, y = torch.ones(9), torch.ones(9, 2)[:, 0]\n"
      "  dist.all_reduce(x, async_op=True).wait()\n  dist.all_reduce(y, async_op=True).wait()\n"
      "  return weakref.ref(x), weakref.ref(y)\n"
      "refs = [r for _ in range(20) for r in memory()]\nleft = sum(r() is not None for r in refs)\n"
      "assert left <= 2, left\ndist.send(torch.ones(1), 1 - rank, tag=7)\npending.wait()\n",
      lambda out, err: True),
    # A send does not look at each of those that wait for their receives.
    ("sends", "looks, plain = [], coll.Work.done\ncoll.Work.done = lambda w: looks.append(w) or plain(w)\n"
      "sent = [dist.isend(torch.ones(1 << 16), 1 - rank, tag=i) for i in range(40)]\ncoll.Work.done = plain\n"
      "y = torch.zeros(1 << 16)\nfor i in range(40): dist.recv(y, 1 - rank, tag=i)\n"
      "for w in sent: w.wait()\nassert len(looks) <= 40, len(looks)\n",
      lambda out, err: True),
    # Results for tensors of inference mode are copied by another thread.
    ("inference", "with torch.inference_mode():\n  x, parts = torch.ones(4, 2)[:, 0], [torch.zeros(2) for _ in range(size)]\n"
      "  dist.all_reduce(x, async_op=True).get_future().wait()\n"
      "  dist.all_gather(parts, torch.ones(2), async_op=True).get_future().wait()\n"
      "  print(x.tolist(), parts[1].tolist())\n",
      lambda out, err: out.count("[2.0, 2.0, 2.0, 2.0] [1.0, 1.0]") == 2),
    # Messages of other threads go on while one is in a blocking collective, and while that waits for an earlier call.
    ("messages_beside", "x = torch.ones(2)\n"
      "def beside(collective):\n"
      "  if rank == 0: t = threading.Timer(.2, lambda: dist.send(x, 1)); t.start(); collective(); t.join()\n"
      "  else: dist.recv(x, 0); collective()\n"
      "beside(dist.barrier)\n"
      "a, b, c = torch.ones(2), torch.ones(4), torch.sparse_coo_tensor(torch.tensor([[rank]]), torch.ones(1), (2,))\n"
      "def two():\n  dist.all_reduce(a, async_op=True)\n  dist.all_reduce(b[::2])\n"
      "beside(two)\nbeside(lambda: dist.all_reduce(c))\n"
      # In a function that is chained to a future.
      "w = dist.all_reduce(a, async_op=True)\n"
      "if rank == 0:\n  f = w.get_future().then(lambda f: (time.sleep(.2), dist.send(x, 1)))\n  dist.barrier()\n  f.wait()\n"
      "else: dist.recv(x, 0); dist.barrier(); w.wait()\n"
      "print(a.tolist(), b.tolist(), c.to_dense().tolist())\n",
      lambda out, err: out.count("[4.0, 4.0] [2.0, 1.0, 2.0, 1.0] [1.0, 1.0]") == 2),
    # Two threads: calls of one are not collected by the other.
    ("coalescing", "g, done = dist.group.WORLD, []\ng._start_coalescing()\ndist.all_reduce(torch.ones(2), async_op=True)\n"
      "def other():\n  x = torch.ones(3)\n  dist.all_reduce(x)\n  done.append(x.tolist())\n"
      "t = threading.Thread(target=other); t.start(); t.join()\nprint(done, len(g._collected()))\ng._end_coalescing().wait()\n",
      lambda out, err: out.count("[[2.0, 2.0, 2.0]] 1") == 2),
    # Calls are events of the profiler, with their sizes and in what they are made in; asynchronous ones from start to end.
    ("profiler", "import json, tempfile\nfrom coll.torch import ProcessGroup\nbefore = dict(vars(ProcessGroup))\nx, y, z = torch.ones(25), torch.ones(50), torch.zeros(50)\n"
      "with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as p, torch.profiler.record_function('step'):\n"
      "  dist.all_reduce(x)\n  w = dist.all_reduce(y, async_op=True)\n  w.get_future().wait(); time.sleep(.05)\n"
      "  r = dist.irecv(z, 1 - rank)\n  time.sleep(.1)\n  dist.send(y, 1 - rank)\n  r.wait()\n  dist.barrier()\n"
      "assert dict(vars(ProcessGroup)) == before\ndist.all_reduce(x)\n"
      "with tempfile.NamedTemporaryFile(suffix='.json') as f:\n  p.export_chrome_trace(f.name)\n  events = json.load(open(f.name))['traceEvents']\n"
      "spans = {e['name']: (e['ts'], e['ts'] + e['dur']) for e in events if e.get('cat') == 'user_annotation'}\n"
      "step = spans.pop('step')\nprint('events', sorted(n for n, s in spans.items() if step[0] <= s[0] <= s[1] <= step[1]))\n"
      "print('long', spans['coll:recv 200 B'][1] - spans['coll:recv 200 B'][0] > 90000)\n",
      lambda out, err: out.count("events ['coll:all_reduce 100 B', 'coll:all_reduce 200 B', 'coll:barrier', 'coll:recv 200 B', 'coll:send 200 B']") == 2
      and out.count("long True") == 2),
    # What has a meaning beside its memory is refused by name.
    ("meaning", "from torch.masked import masked_tensor\nq = torch.quantize_per_tensor(torch.ones(2), .1, 0, torch.qint8)\n"
      "for t in (q, masked_tensor(torch.ones(2), torch.tensor([True, False]))):\n"
      "  for f in (dist.all_reduce, lambda t: dist.broadcast(t, 0)):\n"
      "    try: f(t)\n    except NotImplementedError as e: print(e)\n",
      lambda out, err: out.count("a quantised tensor (torch.qint8)") == 4 and out.count("a masked tensor has numbers") == 4),
    # Workers of a DataLoader are forked, and end; the groups of their parent go on.
    ("forks", DDP + "class D(torch.utils.data.Dataset):\n  def __len__(self): return 32\n"
      "  def __getitem__(self, i): return torch.full((64,), float(i))\n"
      "works = [dist.all_reduce(torch.ones(9), async_op=True) for _ in range(3)]\n"
      "for epoch in range(2):\n  for x in torch.utils.data.DataLoader(D(), batch_size=8, num_workers=2):\n"
      "    model.zero_grad(); model(x).sum().backward()\n"
      "for w in works: w.wait()\ny = torch.ones(2)\ndist.all_reduce(y)\nprint(y.tolist())\n",
      lambda out, err: out.count("[2.0, 2.0]") == 2 and "coll" not in err),
]


def together():
    """What works in one group, one part after the other. A part that fails says its name."""
    program = INIT
    for name, part, _ in TOGETHER:
        program += f"part = '{name}'\n" + part.rstrip("\n") + "\ndist.barrier()\nprint('end of', part)\n"
    code, out, err = run(program + "dist.destroy_process_group()")
    for name, _, holds in TOGETHER:
        check(out.count(f"end of {name}\n") == 2 and holds(out, err), name, code, out, err)
    check(code == 0, code, out, err)


def interrupted():
    """What a signal handler raises reaches the caller, of whichever type it is."""
    code, out, err = run(INIT + "class Preempted(ValueError): pass\ndef stop(*a): raise Preempted('preempted')\ndist.barrier()\n"
                         "signal.signal(signal.SIGALRM, stop)\nif rank == 0:\n  signal.setitimer(signal.ITIMER_REAL, .3)\n"
                         "  try: dist.all_reduce(torch.ones(2))\n  except Preempted as e: print('stopped', e)\nelse: time.sleep(1)")
    check("[0] stopped preempted" in out, out, err)


def absent():
    """Messages of a monitored_barrier() that failed let nobody through a later one."""
    code, out, err = run("from datetime import timedelta\n" + INIT + "def meet(s):\n"
                         "  try: dist.group.WORLD.monitored_barrier(timedelta(seconds=s)); print('passed')\n"
                         "  except dist.DistBackendError as e: print('missing')\n"
                         "dist.barrier()\nif rank == 0:\n  meet(.1)\n  dist.barrier()\n  meet(.3)\nelse:\n  time.sleep(.3)\n  meet(.1)\n  dist.barrier()\n"
                         "dist.barrier()\nif rank == 1: dist.group.WORLD._barriers = 2\nmeet(20)\n")
    check(code == 0 and out.count("[0] missing") == 2 and out.count("[1] missing") == 1 and out.count("passed") == 2, out, err)


def long_limit():
    """Longer than the library can count."""
    code, out, err = run(INIT.replace("('coll')", "('coll', timeout=__import__('datetime').timedelta(days=3000))") +
                         "x = torch.ones(2)\ndist.all_reduce(x)\nprint(x.tolist())")
    check(code == 0 and out.count("[2.0, 2.0]") == 2, out, err)


def failed_future():
    """A call that fails sets its future to the error."""
    code, out, err = run(INIT + "dist.barrier()\nif rank == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
                         "f = dist.all_reduce(torch.ones(2), async_op=True).get_future()\n"
                         "try: f.wait()\nexcept Exception as e: print(type(e).__name__, e)")
    check(re.search(r"\[0\] RuntimeError .*DistBackendError: .*rank 1", " ".join(out.split())), code, out, err)


def late():
    """A rank that does not come: an error after the limit of the group, which names it."""
    code, out, err = run("from datetime import timedelta\n" + INIT + "dist.barrier()\ng, h = (dist.new_group(timeout=timedelta(seconds=1)) for _ in range(2))\n"
                         "if rank == 0:\n"
                         "  try: dist.recv(torch.ones(1), 1, group=h)\n"
                         "  except dist.DistBackendError as e: print('recv', e)\n"
                         "  try: dist.all_reduce(torch.ones(2), group=g)\n"
                         "  except dist.DistBackendError as e: print(e)\n"
                         "  try: dist.recv(torch.ones(1), group=g)\n"
                         "  except dist.DistBackendError as e: print('any', e)\n"
                         "dist.monitored = None\n"
                         "try: dist.group.WORLD.monitored_barrier(timedelta(seconds=60))\nexcept Exception as e: print('barrier', e)\n", ranks=2)
    check(re.search(r"\[0\] rank 0 of 2: .*rank 1.* Timed out waiting 1000ms", out), code, out, err)
    check(re.search(r"\[0\] recv rank 0 of 2: .*rank 1.* Timed out waiting 1000ms", out), code, out, err)
    check("barrier" not in out, out)


def receive_taken_back():
    """A receive whose limit has passed leaves the next message to the next receive, whether it names a rank or not."""
    code, out, err = run("from datetime import timedelta\n" + INIT + "g = dist.new_group(timeout=timedelta(seconds=1))\n"
                         "x, y = torch.zeros(1), torch.zeros(1)\nif rank == 0:\n"
                         "  for wait in (lambda: dist.recv(x, group=g), lambda: dist.irecv(x, 1, group=g).wait(timedelta(seconds=.2))):\n"
                         "    try: wait()\n    except dist.DistBackendError as e: print(e)\n"
                         "dist.barrier()\nif rank == 1:\n  for i in (1, 2): dist.send(torch.full((1,), float(i)), 0, group=g)\nelse:\n"
                         "  for source in (None, 1): dist.recv(y, source, group=g); print('next', x.item(), y.item())\ndist.barrier()")
    check(code == 0 and "next 0.0 1.0" in out and "next 0.0 2.0" in out and "Timed out waiting 1000ms" in out, code, out, err)


def exit_with_receive():
    """A normal exit takes receives back for which threads wait: of the program, and of a future."""
    code, out, err = run(INIT + "threading.Thread(target=lambda: dist.recv(torch.zeros(2), 1 - rank), daemon=True).start()\n"
                         "f = dist.irecv(torch.zeros(2)).get_future()\n"
                         "while len(dist.group.WORLD._receives) < 2: time.sleep(.01)\ntime.sleep(.1)\ndist.barrier()\nprint('exit')")
    check(code == 0 and out.count("exit") == 2 and "abort" not in err and "Traceback" not in err, code, out, err)


def patient_barrier():
    """monitored_barrier() with a longer limit than that of its group."""
    code, out, err = run("from datetime import timedelta\n" + INIT + "dist.barrier()\ng = dist.new_group(timeout=timedelta(seconds=.5))\n"
                         "if rank == 1: time.sleep(1.5)\ng.monitored_barrier(timedelta(seconds=60))\nprint('passed')\ndist.barrier()")
    check(code == 0 and out.count("passed") == 2, code, out, err)


def missing():
    """monitored_barrier() says who did not come, one or all."""
    code, out, err = run("from datetime import timedelta\n" + INIT + "g = dist.group.WORLD\ng.monitored_barrier()\n"
                         "for everybody in (False, True):\n"
                         "  try:\n    if rank in (0, 3): g.monitored_barrier(timedelta(seconds=0.5), wait_all_ranks=everybody)\n"
                         "  except dist.DistBackendError as e: print(e)\n  dist.barrier()\ndist.destroy_process_group()", ranks=4)
    for text in ("Rank 1 failed to pass monitoredBarrier in 500 ms", "Ranks 1, 2 failed to pass monitoredBarrier"):
        check(text in out, text, code, out, err)
    check(out.count("Rank 3 successfully reached monitoredBarrier, but received errors") == 2 and code == 0, code, out, err)


def other_devices():
    """A list with other devices is refused with what to do, not taken over."""
    code, out, err = run("for asked in ('cpu:coll,cuda:nccl', 'xpu:coll', 'cuda:gloo,cpu:coll', 'cpu:gloo,cuda:coll'):\n"
                         "  try: dist.init_process_group(asked)\n  except Exception as e: print(type(e).__name__, e)", ranks=1)
    check(code == 0 and len(re.findall(r"ValueError coll: backend .*(torch would drop the rest.*new_group|not xpu)", out)) == 4, code, out, err)


def abort_and_shutdown():
    """abort() ends the calls of others; a job that is destroyed may be made again."""
    code, out, err = run("for i in range(3):\n  " + INIT.replace("\n", "\n  ").strip() +
                         "\n  x = torch.ones(2)\n  dist.all_reduce(x)\n  dist.destroy_process_group()\n  print(x.tolist())\n" + INIT +
                         "dist.barrier()\nif rank == 1: dist.group.WORLD.abort()\nelse:\n"
                         "  try: dist.all_reduce(torch.ones(2))\n  except dist.DistBackendError as e: print(e)\n", ranks=2)
    check(out.count("[2.0, 2.0]") == 6 and "torch.distributed aborted the group" in out, code, out, err)


def split():
    """split_group() of the group itself, and of a part."""
    code, out, err = run(INIT + "g = dist.group.WORLD\na = g.split_group([0, 2], group_name='even')\nb = g.splitGroup([1, 2])\n"
                         "x = torch.full((2,), float(rank + 1))\n"
                         "assert (a is None) == (rank == 1) and (b is None) == (rank == 0)\n"
                         "if a is not None: a.allreduce([x]).wait(); print('a', x.tolist(), a.group_name)\n"
                         "if b is not None: b.allreduce([x]).wait(); print('b', x.tolist())\n"
                         # torch has them among its groups: ranks are those of the job, also in a part of a part.
                         "if a is not None:\n  y = torch.tensor(rank); dist.broadcast(y, 2, group=a); dist.barrier(group=a)\n"
                         "  parts = [None, None]; dist.all_gather_object(parts, rank, group=a)\n"
                         "  print('known', y.item(), dist.get_rank(a) * 2 == rank, dist.get_world_size(a), dist.get_process_group_ranks(a),\n"
                         "        dist.get_backend(a), parts)\n"
                         "  c = a.split_group([1])\n"
                         "  if c is not None: print('inner', dist.get_process_group_ranks(c)); dist.broadcast(x, 2, group=c)\n"
                         "  dist.destroy_process_group(a)\n"
                         "  try: dist.get_rank(a)\n  except ValueError: print('destroyed')\n"
                         # Without a name, and only by their ranks, twice the same ones.
                         "for ranks in ([0, 2], [1, 2], [1, 2]):\n"
                         "  if rank in ranks: x = torch.ones(1); g.split_group(ranks).allreduce([x]).wait(); print('unnamed', x.item())\n"
                         "dist.barrier()\ndist.destroy_process_group()", ranks=3)
    check(code == 0 and out.count("a [4.0, 4.0] even") == 2 and out.count("b [6.0, 6.0]") == 2, code, out, err)
    check(out.count("known 2 True 2 [0, 2] coll [0, 2]") == 2 and "[2] inner [2]" in out and out.count("destroyed") == 2
          and out.count("unnamed 2.0") == 6, out, err)


def torchrun():
    """Rank, size and store of torchrun."""
    # Its directory comes first on the path of its imports.
    with tempfile.TemporaryDirectory() as place, open(os.path.join(place, "program.py"), "w") as f:
        # The store outlives the group, of which another is made.
        f.write(HEAD + INIT + "dist.all_reduce(torch.ones(1))\ndist.destroy_process_group()\nif rank == 0: time.sleep(.5)\n" + INIT + "x = torch.ones(2)\ndist.all_reduce(x)\n"
                # In one piece: both processes write to one pipe.
                "os.write(1, f'{x.tolist()} {size}\\n'.encode())\ndist.destroy_process_group()\n")
        f.flush()
        done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", f.name],
                              capture_output=True, text=True, timeout=LIMIT_S)
    check(done.returncode == 0 and done.stdout.count("[2.0, 2.0] 2") == 2, done.stdout, done.stderr)


# How many TCP sockets of this process listen.
LISTEN = ("def listening():\n  found = set()\n  for table in ('tcp', 'tcp6'):\n"
          "    with open('/proc/self/net/' + table) as f: found |= {row.split()[9] for row in f.readlines()[1:] if row.split()[3] == '0A'}\n"
          "  links = []\n  for fd in os.listdir('/proc/self/fd'):\n    try: links.append(os.readlink('/proc/self/fd/' + fd))\n    except OSError: pass\n"
          "  return len([i for i in found if f'socket:[{i}]' in links])\n")


def launcher():
    """A job of one host that a launcher has started: torch's store is there, and no TCP socket listens."""
    code, out, err = run(LISTEN + "for i in range(2):\n  " + INIT.replace("\n", "\n  ").strip() +
                         "\n  store = dist.distributed_c10d._get_default_store()\n  if rank == 0: store.set('word', f'said {i}')\n"
                         "  print(store.get('word').decode(), store.add('count', 1) > 0, 'listens:', listening())\n"
                         "  x = torch.ones(2)\n  dist.all_reduce(x)\n  dist.destroy_process_group()\n")
    check(code == 0 and all(out.count(f"said {i} True listens: 0") == 2 for i in range(2)), code, out, err)


def beside_gloo():
    """A group of coll beside a default group of another backend, which a launcher has started: no key of it is in the store."""
    code, out, err = run(INIT.replace("'coll'", "'gloo'") + "coll.torch._create._meet = None\n"
                         "for g in (dist.new_group(backend='coll'), dist.new_group([2, 0], backend='coll')):\n"
                         "  x = torch.full((2,), rank + 1.0)\n  if dist.get_rank(g) >= 0: dist.all_reduce(x, group=g); print(x.tolist())\n"
                         "dist.barrier()\ndist.destroy_process_group()", ranks=3, GLOO_SOCKET_IFNAME="lo")
    check(code == 0 and out.count("[6.0, 6.0]") == 3 and out.count("[4.0, 4.0]") == 2, code, out, err)


# ---- With CUDA tensors ----

# The second call of all ranks but one finds that one dead. x is on the device.
ON_DEVICE = ("import cuda_tensors as on\nfrom coll.torch import _devices\n_devices.cuda = on.cuda\n" + INIT +
             "x = on.device(torch.full((5,), rank + 1.0))\ndist.all_reduce(x)\nassert on.host(x)[0] == size * (size + 1) / 2\ndist.barrier()\n"
             "def told(f):\n  try: f()\n  except dist.DistBackendError as e: print('told:', ' '.join(str(e).split()), flush=True)\n"
             "  else: print('NOT told', flush=True)\n")
KILL = "if rank == 1: os.kill(os.getpid(), signal.SIGKILL)\n"


def all_told(out, err, ranks=(0, 2)):
    for r in ranks:
        check(re.search(rf"\[{r}\] told: .*rank 1 on host", out) and f"[{r}] NOT" not in out, out, err)


def device_next_call():
    """The call itself may be enqueued; one of those after it raises, and wait() with a limit does."""
    code, out, err = run(ON_DEVICE + KILL + "def calls():\n  for i in range(1000): dist.all_reduce(x); on.cuda.current().synchronize()\n"
                         "told(calls)\ntold(lambda: dist.all_reduce(x))", ranks=3)
    all_told(out, err)


def device_wait_with_limit():
    code, out, err = run(ON_DEVICE + KILL + "told(lambda: dist.all_reduce(x, async_op=True).wait(dist.distributed_c10d.timedelta(seconds=60)))",
                         ranks=3)
    all_told(out, err)


def device_is_completed():
    code, out, err = run(ON_DEVICE + KILL +
                         "def f():\n  w = dist.all_reduce(x, async_op=True)\n  while not w.is_completed(): time.sleep(0.01)\n"
                         "  assert not w.is_success()\n  raise w.exception()\ntold(f)", ranks=3)
    all_told(out, err)


def device_barrier():
    """The stream is let go, with what it would have written unwritten; the barrier says so."""
    code, out, err = run(ON_DEVICE + KILL + "def f():\n  dist.all_reduce(x, async_op=True).wait()\n  dist.barrier()\ntold(f)", ranks=3)
    all_told(out, err)


def device_end():
    """Who never asks is told by the end of the group."""
    code, out, err = run(ON_DEVICE + KILL + "def f():\n  dist.all_reduce(x, async_op=True).wait()\n  dist.destroy_process_group()\ntold(f)", ranks=3)
    all_told(out, err)


def device_end_after_all():
    """Who was told is not told again."""
    code, out, err = run(ON_DEVICE + KILL + "told(lambda: (dist.all_reduce(x), dist.barrier()))\ndist.destroy_process_group()\nprint('ended')", ranks=3)
    all_told(out, err)
    check(out.count("ended") == 2 and out.count("told:") == 2, out, err)


def device_exception():
    """An uncaught exception on one rank ends the calls of the others."""
    code, out, err = run(ON_DEVICE + "if rank == 1: raise ValueError('no such weight')\n"
                         "def calls():\n  for i in range(1000): dist.all_reduce(x); on.cuda.current().synchronize()\ncalls()", ranks=2)
    check(code != 0 and re.search(r"\[0\] .*DistBackendError: .*rank 1 aborted the communicator: ValueError: no such weight", err), out, err)


CASES = [killed, survivors, exception, together, interrupted, absent, long_limit, failed_future, late, receive_taken_back, exit_with_receive, patient_barrier, missing, other_devices, abort_and_shutdown, split, torchrun, launcher, beside_gloo]
DEVICE_CASES = [device_next_call, device_wait_with_limit, device_is_completed, device_barrier, device_end, device_end_after_all, device_exception]


def main():
    if not forked.preload("coll.torch", "torch._dynamo"):
        print(f"skipped: {sys.executable} has no torch")
        return forked.SKIPPED
    return forked.cases(CASES + (DEVICE_CASES if os.path.exists(os.environ.get("TEST_CUDA_LIBRARY", "")) else []), sys.argv[1:])


forked.top(main)
