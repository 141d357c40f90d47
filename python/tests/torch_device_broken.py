"""Whether torch_device.py would notice: see planted.py. usage: TEST_CUDA_LIBRARY=FILE torch_device_broken.py BUILD-DIRECTORY PYTHON [NAME...]"""

import os
import sys

import planted

HEAD = ("import torch, coll.torch\nimport coll.torch._devices as d, coll.torch._tensors as t, coll.torch._group as g, coll.torch._work as w\n"
        "import cuda_tensors as on\n")

# name -> (tests that see it, the mistake)
MISTAKES = {
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
                                              "g.ProcessGroup.barrier, rest = (lambda self, *a: (on.driver.call('cuInit', 0), "
                                              "rest(self, *a))[1]), g.ProcessGroup.barrier\n"),
}


if __name__ == "__main__":
    if not os.path.exists(os.environ.get("TEST_CUDA_LIBRARY", "")):
        print("skipped: no stand-in driver")
        sys.exit(77)
    sys.exit(planted.main("torch.distributed, numpy", "torch_device.py", {n: (t, HEAD + m) for n, (t, m) in MISTAKES.items()}))
