"""Ranks that die beside calls with CUDA tensors, on the stand-in driver: who raises, when, and what the text says.

usage: TEST_CUDA_LIBRARY=FILE torch_device_life.py BUILD-DIRECTORY PYTHON [CASE...]
"""

import os
import re
import sys

import torch_life as life
from torch_life import INIT, check, run

HERE = os.path.dirname(os.path.abspath(__file__))
# The second call of all ranks but one finds that one dead. x is on the device.
HEAD = (f"sys.path.insert(0, {HERE!r})\nimport cuda_tensors as on\nfrom coll.torch import _devices\n_devices.cuda = on.cuda\n" + INIT +
        "x = on.device(torch.full((5,), rank + 1.0))\ndist.all_reduce(x)\nassert on.host(x)[0] == size * (size + 1) / 2\ndist.barrier()\n"
        "def told(f):\n  try: f()\n  except dist.DistBackendError as e: print('told:', ' '.join(str(e).split()), flush=True)\n"
        "  else: print('NOT told', flush=True)\n")
KILL = "if rank == 1: os.kill(os.getpid(), signal.SIGKILL)\n"


def all_told(out, err, ranks=(0, 2)):
    for r in ranks:
        check(re.search(rf"\[{r}\] told: .*rank 1 on host", out) and f"[{r}] NOT" not in out, out, err)


def next_call():
    """The call itself may be enqueued; one of those after it raises, and wait() with a limit does."""
    code, out, err = run(HEAD + KILL + "def calls():\n  for i in range(1000): dist.all_reduce(x); on.cuda.current().synchronize()\n"
                         "told(calls)\ntold(lambda: dist.all_reduce(x))", ranks=3)
    all_told(out, err)


def wait_with_limit():
    code, out, err = run(HEAD + KILL + "told(lambda: dist.all_reduce(x, async_op=True).wait(dist.distributed_c10d.timedelta(seconds=60)))",
                         ranks=3)
    all_told(out, err)


def is_completed():
    code, out, err = run(HEAD + KILL +
                         "def f():\n  w = dist.all_reduce(x, async_op=True)\n  while not w.is_completed(): time.sleep(0.01)\n"
                         "  assert not w.is_success()\n  raise w.exception()\ntold(f)", ranks=3)
    all_told(out, err)


def barrier():
    """The stream is let go, with what it would have written unwritten; the barrier says so."""
    code, out, err = run(HEAD + KILL + "def f():\n  dist.all_reduce(x, async_op=True).wait()\n  dist.barrier()\ntold(f)", ranks=3)
    all_told(out, err)


def end():
    """Who never asks is told by the end of the group."""
    code, out, err = run(HEAD + KILL + "def f():\n  dist.all_reduce(x, async_op=True).wait()\n  dist.destroy_process_group()\ntold(f)", ranks=3)
    all_told(out, err)


def end_after_all():
    """Who was told is not told again."""
    code, out, err = run(HEAD + KILL + "told(lambda: (dist.all_reduce(x), dist.barrier()))\ndist.destroy_process_group()\nprint('ended')", ranks=3)
    all_told(out, err)
    check(out.count("ended") == 2 and out.count("told:") == 2, out, err)


def exception():
    """An uncaught exception on one rank ends the calls of the others."""
    code, out, err = run(HEAD + "if rank == 1: raise ValueError('no such weight')\n"
                         "def calls():\n  for i in range(1000): dist.all_reduce(x); on.cuda.current().synchronize()\ncalls()", ranks=2)
    check(code != 0 and re.search(r"\[0\] .*DistBackendError: .*rank 1 aborted the communicator: ValueError: no such weight", err), out, err)


CASES = [next_call, wait_with_limit, is_completed, barrier, end, end_after_all, exception]


if __name__ == "__main__":
    if not os.path.exists(os.environ.get("TEST_CUDA_LIBRARY", "")):
        print("skipped: no stand-in driver")
        sys.exit(77)
    life.CASES = CASES
    sys.exit(life.main())
