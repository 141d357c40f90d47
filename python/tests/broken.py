"""Whether a test program would notice a mistake: it is run over the package with one planted, and must fail because a value is wrong.

usage: broken.py host|torch|device [NAME...]; device: on the stand-in driver, TEST_CUDA_LIBRARY=FILE
"""

import os
import sys
import time

import forked

FOUND = ("AssertionError", "MismatchError", "DistBackendError")
# Signs that the mistake is no program.
BROKEN = ("NameError", "SyntaxError", "AttributeError", "TypeError")
LIMIT_S = 200

# ---- The package: matrix.py. name -> (tests that see it, the mistake, another program) ----

# `change(self, args, words)` alters the arguments of the methods named.
HOST_HEAD = ("import numpy as np, coll\nC = coll.Communicator\n"
        "def plant(change, *names):\n"
        "  for name in names:\n"
        "    def method(self, *args, old=getattr(C, name), **words):\n"
        "      args, words = change(self, list(args), words)\n"
        "      return old(self, *args, **words)\n"
        "    setattr(C, name, method)\n")
REDUCING = "'all_reduce', 'reduce', 'reduce_scatter', 'scan', 'exclusive_scan'"


def host_changed(names, *lines):
    body = "".join(f"  {line}\n" for line in lines)
    return HOST_HEAD + f"def change(self, args, words):\n{body}  return args, words\nplant(change, {names})\n"


def host_replaced(one, other):
    return host_changed(REDUCING, f"args[1:2] = ['{other}' if a == '{one}' else a for a in args[1:2]]")


HOST = {f"{a} as {b}": ("reductions", host_replaced(a, b)) for a, b in (
    ("sum", "max"), ("prod", "sum"), ("min", "max"), ("max", "min"), ("avg", "sum"), ("band", "bor"), ("bor", "band"), ("bxor", "bor"),
    ("land", "lor"), ("lor", "land"), ("lxor", "lor"))}
HOST |= {
    "scan: the reduction of all ranks": ("reductions", HOST_HEAD + "C.scan = C.all_reduce\n"),
    "exclusive_scan: with the own part": ("reductions", HOST_HEAD + "C.exclusive_scan = lambda self, *a, **w: C.scan(self, *a, **w) if self.rank else None\n"),
    "all_reduce: the input is written": ("reductions", host_changed("'all_reduce'", "words.setdefault('out', args[0])")),
    "reduce: the next root": ("reductions", host_changed("'reduce'", "args[2] = (args[2] + 1) % self.size")),
    "reduce_scatter: blocks swapped": ("reductions", host_changed("'reduce_scatter'", "args[0] = np.roll(args[0], 1, 0)")),
    "strided results not written back": ("reductions", host_changed(
        "'all_reduce'", "if isinstance(words.get('out'), np.ndarray) and not words['out'].flags.c_contiguous: words['out'] = words['out'].copy()")),
    "strided inputs read as if they were not": ("reductions", host_changed(
        "'all_reduce'", "x = args[0]", "if not x.flags.c_contiguous and x.ndim == 1 and x.strides[0] > 0:",
        "  args[0] = np.lib.stride_tricks.as_strided(x, x.shape, (x.itemsize,))")),
    "all_gather: blocks swapped": ("moves", host_changed("'all_gather'", "args[0] = np.roll(args[0], 1, 0)")),
    "gather: blocks swapped": ("moves", host_changed("'gather'", "args[0] = np.roll(args[0], 1, 0)")),
    "all_to_all: blocks swapped": ("moves", host_changed("'all_to_all'", "args[0] = np.roll(args[0], 1, 0)")),
    "scatter: blocks swapped": ("moves", host_changed("'scatter'", "args[0] = None if args[0] is None else np.roll(args[0], 1, 0)")),
    "broadcast: root 0": ("moves", host_changed("'broadcast'", "args[1] = 0")),
    "send_recv: the other way round": ("moves", host_changed("'send_recv'", "args[1], args[3] = args[3], args[1]")),
    "send: zeros": ("moves", host_changed("'send'", "args[0] = np.zeros_like(args[0])")),
    "tags ignored": ("tags", host_changed("'send', 'recv', 'irecv'", "if words.get('tag', -1) >= 0: words['tag'] = 0",
                                     "args[2:] = [0 for _ in args[2:]]"), "basics.py"),
    "iprobe: takes the message": ("tags", HOST_HEAD + "old = C.iprobe\ndef take(self, *args):\n  e = old(self, *args)\n"
                                  "  if e: self.recv(self.empty(e.elements, e.dtype), e.source, tag=e.tag)\n  return e\nC.iprobe = take\n", "basics.py"),
    "objects: those of the rank before": ("objects", HOST_HEAD + "old = C.all_gather_object\n"
                                          "C.all_gather_object = lambda self, x: (lambda g: g[-1:] + g[:-1])(old(self, x))\n"),
}

# ---- coll.torch: torch_matrix.py ----

TORCH_HEAD = ("import torch, coll.torch\nimport coll.torch._collectives as c, coll.torch._pairs as p, coll.torch._tensors as t\n"
        "import coll.torch._group as g, coll.torch._work as w\nG = g.ProcessGroup\n")
# Changes one call of the group: `change(method, args, words)` returns other arguments.
CALL = ("old = G._call\ndef call(self, opts, method, args, words, value, after=None):\n"
        "  args, words = change(self, method, list(args), dict(words))\n  return old(self, opts, method, tuple(args), words, value, after)\n"
        "G._call = call\n")


def replaced(name, other):
    return f"h = next(k for k, v in c.OPS.items() if v == '{name}')\nc.OPS[h] = '{other}'\n"


def changed(body):
    return f"def change(self, method, args, words):\n  {body}\n  return args, words\n" + CALL


TORCH = {f"{a} as {b}": ("reduc" if a != "avg" else "averag", replaced(a, b)) for a, b in (
    ("sum", "max"), ("prod", "sum"), ("min", "max"), ("max", "min"), ("avg", "sum"), ("band", "bor"), ("bor", "band"), ("bxor", "bor"))}
TORCH |= {
    "reduce_scatter: blocks swapped": ("reduc", changed("if method == 'reduce_scatter': args[0] = args[0].view(-1).roll(words['out'].numel())")),
    "all_to_all: blocks swapped": ("moves", changed("if method == 'all_to_all': args[0] = args[0].roll(words['in_counts'][0])")),
    "scatter: blocks swapped": ("moves", changed("if method == 'scatter' and args[0] is not None: args[0] = args[0].roll(words['counts'][0])")),
    "all_gather: the input of the rank before": ("moves", changed("if method == 'all_gather': args[0] = args[0].roll(1)")),
    "gather: root 0": ("moves", changed("if method == 'gather': args[1] = 0")),
    "broadcast: root 0": ("moves", changed("if method == 'broadcast': args[1] = 0")),
    "reduce: not at the root": ("reduc", changed("if method == 'reduce': words = {'out': args[0].clone()} if words else words")),
    "tags ignored": ("moves", "p._check_tag = lambda tag: 0\n"),
    "strided results not written back": ("moves", "t._write = lambda tensor, made: None\n"),
    "lists not written back": ("moves", "t._scatter = lambda places, made: None\n"),
    "strided inputs read as if they were not": ("moves", "t.source = lambda x: x.as_strided((x.numel(),), (1,))\n"),
    "wait() without the last step": ("moves", "w.Work.wait = lambda self, timeout=None: True\nw.Work.is_completed = lambda self: True\n"
                                               "w.Work.is_success = lambda self: True\n"),
    "premultiplied sums without the factor": ("averag", "old = G._op\nG._op = lambda self, op, xs: (lambda n, s: (n, [x.clone() for x in xs] "
                                                          "if s else s))(*old(self, op, xs))\n"),
}

# ---- coll.torch with tensors of a device: torch_device.py ----

DEVICE_HEAD = ("import torch, coll.torch\nimport coll.torch._devices as d, coll.torch._tensors as t, coll.torch._group as g, coll.torch._work as w\n"
        "import cuda_tensors as on\n")

DEVICE = {
    "calls in another stream": ("rows_and_views", "d.Lane.call = lambda self, m, a, k: getattr(self.comm, m)(*a, **k, "
                                                       "stream=on.cuda.pool[0].cuda_stream)\n"),
    "no event before": ("order", "import contextlib\n@contextlib.contextmanager\ndef entered(self):\n  with d.cuda.inside(self.stream): yield\n"
                                 "d.Lane.entered = entered\n"),
    "no event after": ("order", "w.OnDevice.wait = lambda self, timeout=None: True\n"),
    "the event before the call": ("order", "old = w.on_device\n"
                                           "call = d.Lane.call\ndef early(self, *a):\n  self.early = d.cuda.event(self.stream)\n"
                                           "  return call(self, *a)\nd.Lane.call = early\n"
                                           "def made(lane, *a):\n  work = old(lane, *a)\n  work._event = lane.early\n  return work\n"
                                           "g.on_device = made\n"),
    "an offset of one element": ("rows_and_views", "old = t.target\ndef target(x):\n  flat, after = old(x)\n  return (flat.as_strided((flat.numel(),), "
                                                   "(1,), flat.storage_offset() + 1) if flat.is_cuda else flat), after\nt.target = target\n"),
    "strided results not written back": ("moves", "t._write = lambda tensor, made: None\n"),
    "strided inputs not copied": ("moves", "old = t.source\nt.source = lambda x: old(x) if not x.is_cuda else x.detach().as_strided("
                                           "(x.numel(),), (1,), x.storage_offset())\n"),
    "tensors not held": ("memory", "old = w.on_device\ndef made(lane, parts, value, held): return old(lane, parts, None, None)\n"
                                   "g.on_device = made\n"),
    "a barrier that does not wait": ("barrier", "g.ProcessGroup._settle_device = lambda self: None\n"),
    "a receive that follows nothing": ("messages", "def land(self):\n  with d.cuda.inside(self.stream): self.place.copy_(self.made)\n"
                                                   "  d.cuda.finish(self.stream)\nd.Landing.__call__ = land\n"
                                                   "d.Landing.ready = lambda self: True\n"),
    "a capture that is asked": ("capture", "d.Cuda.capturing = lambda self: False\non.Cuda.capturing = lambda self: False\n"),
    "futures that nothing follows": ("futures", "w.OnDevice.get_future = lambda self: self.done_future()\n"
                                         "def done_future(self):\n  f = d.cuda.future(None)\n  f.set_result(self._value)\n  return f\n"
                                         "w.OnDevice.done_future = done_future\n"),
    "calls of the driver without CUDA tensors": ("no_driver", "old = g.ProcessGroup.__init__\ndef init(self, *a):\n  old(self, *a)\n"
                                              "  on.driver.call('cuInit', 0)\ng.ProcessGroup.__init__ = init\n"
                                              "g.ProcessGroup.barrier, rest = (lambda self, *a, **k: (on.driver.call('cuInit', 0), "
                                              "rest(self, *a, **k))[1]), g.ProcessGroup.barrier\n"),
}

# of what -> (modules, program, head, mistakes)
KINDS = {"host": (["numpy"], "matrix.py", "", HOST), "torch": (["numpy", "coll.torch"], "torch_matrix.py", TORCH_HEAD, TORCH),
         "device": (["numpy", "coll.torch"], "torch_device.py", DEVICE_HEAD, DEVICE)}


def found(program, only, mistake):
    text = mistake + f"import runpy\nrunpy.run_path({os.path.join(forked.HERE, program)!r}, run_name='__main__')\n"
    status, out, err = forked.run(3, forked.program(text), LIMIT_S, capture=True, COLL_TEST_ONLY=only, COLL_ARRIVAL_TIMEOUT_MS="20000")
    seen = status != 0 and any(f in err for f in FOUND) and not any(b in err for b in BROKEN)
    return seen, "" if seen else out[-2000:] + err[-4000:]


def main():
    kind, names = sys.argv[1], sys.argv[2:]
    modules, program, head, mistakes = KINDS[kind]
    if kind == "device" and not os.path.exists(os.environ.get("TEST_CUDA_LIBRARY", "")) or not forked.preload(*modules):
        print("skipped: no stand-in driver, or not all of", ", ".join(modules))
        return forked.SKIPPED
    missed = 0
    for name in names or mistakes:
        (only, mistake, *other), began = mistakes[name], time.monotonic()
        seen, text = found((other or [program])[0], only, head + mistake)
        missed += not seen
        print(f"{'found' if seen else 'MISSED'}: {name} ({time.monotonic() - began:.1f} s) {text}", flush=True)
    print(f"{len(names or mistakes) - missed} passed, {missed} failed, 0 skipped")
    return 1 if missed else 0


forked.top(main)
