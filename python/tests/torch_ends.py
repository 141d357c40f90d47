"""How things end: what goes wrong on rank 1, and the last line on the screen of rank 0, which is the sentence that helps.

Each row is a small program. Names are those of Python and PyTorch; a line on stderr that an exception says too is a mistake.
usage: torch_ends.py [quick | slow | ROW...]
"""

import contextlib
import os
import re
import sys
import tempfile

import forked
from forked import check

HEAD = ("import os, sys, time, signal, threading\nfrom datetime import timedelta\nimport torch, torch.distributed as dist\nimport coll.torch\n"
        "def late(s): return timedelta(seconds=s)\n"
        "dist.init_process_group('coll', timeout=late(LIMIT))\nrank = dist.get_rank()\nx = torch.ones(2)\ndist.all_reduce(x)\n")
DDP = ("model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(3)]))\n"
       "def step(): model.zero_grad(); model(torch.ones(2, 8)).sum().backward()\nstep()\n")
LIMIT_S = 120
# C names; an error in the library's own log; lines of this package below the sentence, as C++ prints them. In the last line, also Python's
# names where PyTorch has others.
NEVER = re.compile(r"coll_\w+|comm_destroy|send_tag|recv_tag|^coll\[[^]]*\] error|coll/torch/.*\.py\(", re.M)
NEVER_LAST = re.compile(r"irecv|the id\b|closed its communicator")

# name, limit of the group in s, program of rank 1, program of rank 0, pattern of its last line
QUICK = [
    ("raises", 60, "raise ValueError('no such file')", "dist.all_reduce(x)", r"rank 1 aborted the communicator: ValueError: no such file"),
    ("raises in a thread", 60, "def f(): dist.all_reduce(x); raise ValueError('disk')\nt = threading.Thread(target=f); t.start(); t.join()",
     "dist.all_reduce(x); dist.all_reduce(x)", r"rank 1 aborted the communicator: ValueError: disk"),
    ("raises in a loop of DDP", 60, DDP + "raise KeyError('lost')", DDP + "for i in range(100): step()", r"rank 1 aborted the communicator: KeyError: 'lost'"),
    ("raises a long text", 60, "raise MemoryError('begin ' + 'x' * 2000 + ' the end')", "dist.all_reduce(x)",
     r"MemoryError: begin x+ \.\.\. x+ the end \(reported by rank 1\)"),
    ("sys.exit(1)", 60, "sys.exit(1)", "dist.all_reduce(x)", r"rank 1 aborted the communicator with exit status 1: its program ended with exit status 1"),
    ("exit(3)", 60, "exit(3)", "dist.all_reduce(x)", r"with exit status 3: its program ended with exit status 3"),
    ("sys.exit(text)", 60, "sys.exit('loss is nan')", "dist.all_reduce(x)", r"with exit status 1: SystemExit: loss is nan"),
    ("sys.exit(0)", 60, "sys.exit(0)", "dist.all_reduce(x)",
     r"rank 1 (on host \S+ )?(has )?left: it called destroy_process_group\(\), or its program ended"),
    ("os._exit", 60, "os._exit(0)", "dist.all_reduce(x)", r"rank 1 on host .* is dead or unreachable"),
    ("SIGKILL", 60, "os.kill(os.getpid(), signal.SIGKILL)", "dist.all_reduce(x)", r"rank 1 on host .* is dead or unreachable"),
    ("SIGSEGV", 60, "os.kill(os.getpid(), signal.SIGSEGV)", "dist.all_reduce(x)", r"rank 1 on host .* is dead or unreachable"),
    ("SIGTERM", 60, "os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", "dist.all_reduce(x)", r"rank 1 on host .* is dead or unreachable"),
    ("another call", 60, "dist.barrier()", "dist.all_reduce(x)", r"calls differ: (?=.*rank 0 calls all_reduce)(?=.*rank 1 calls barrier)"),
    ("another shape", 60, "dist.all_reduce(torch.ones(3))", "dist.all_reduce(x)", r"calls differ: (?=.*rank 0 calls all_reduce\(count=2)(?=.*rank 1 calls all_reduce\(count=3)"),
    ("another type", 60, "dist.all_reduce(torch.ones(2, dtype=torch.int64))", "dist.all_reduce(x)", r"calls differ: (?=.*rank 0 calls .*f32)(?=.*rank 1 calls .*i64)"),
    ("abort", 60, "dist.group.WORLD.abort()", "dist.all_reduce(x)", r"rank 1 aborted the communicator: torch.distributed aborted the group"),
    ("destroy behind a stuck call", 600, "dist.barrier()",
     "t = threading.Thread(target=lambda: dist.recv(torch.ones(1), 1), daemon=True)\n"
     "u = threading.Thread(target=lambda: dist.all_reduce(x), daemon=True)\nt.start(); u.start(); time.sleep(.3)\nbegan = time.monotonic()\n"
     "sys.excepthook = threading.excepthook = lambda *a: None\ndist.destroy_process_group()\nprint('ended', time.monotonic() - began < 30, file=sys.stderr)",
     r"ended True"),
    ("caught", 60, "os.kill(os.getpid(), signal.SIGKILL)",
     "try: dist.all_reduce(x)\nexcept dist.DistBackendError as e: print('caught', e.__cause__.rank, file=sys.stderr)", r"^\[0\] caught 1$"),
]
SLOW = [
    ("sleeps", 2, "time.sleep(8)", "dist.all_reduce(x)", r"rank 1 on host .* is late: alive but last seen after all_reduce.* number .* Timed out waiting 2000ms for it"),
    ("is stopped", 3, "dist.send(torch.tensor(os.getpid()), 0); os.kill(os.getpid(), signal.SIGSTOP)",
     "p = torch.tensor(0)\ndist.recv(p, 1)\ntry: dist.all_reduce(x)\nfinally: os.kill(int(p), signal.SIGKILL)", r"rank 1 on host .* is silent: no answer"),
    ("does not send", 2, "time.sleep(8)", "dist.recv(x, 1)", r"recv: rank 1 on host .* is late"),
    ("does not receive", 2, "time.sleep(8)", "dist.send(torch.ones(1 << 20), 1)", r"send: rank 1 on host .* is late"),
    ("two are rank 0", 3, None, None, r"two processes say that they are rank 0: process \d+ on host \S+ and process \d+ on host"),
    ("does not connect", 2, None, None, r"rank 1 of 2 did not connect: rendezvous at PyTorch's store"),
    ("two groups in opposite orders", 3, "g, h = dist.new_group(timeout=late(3)), dist.new_group(timeout=late(3))\ndist.all_reduce(x, group=h); dist.all_reduce(x, group=g)",
     "g, h = dist.new_group(timeout=late(3)), dist.new_group(timeout=late(3))\ndist.all_reduce(x, group=g); dist.all_reduce(x, group=h)",
     r"waits for this rank on another communicator|rank 0 on host \S+ is late"),
]

# Ranks that meet by a store, each with the rank that it takes itself for.
BY_STORE = ("import os, sys, time\nfrom datetime import timedelta\nimport torch, torch.distributed as dist\nimport coll.torch\n"
            "dist.init_process_group('coll', store=dist.FileStore(os.environ['STORE'], 2), rank=0, world_size=2, timeout=timedelta(seconds=LIMIT))\n")


def end(name, limit, other, mine, pattern):
    if other is None:
        # No `with`: the ranks would leave it, too.
        store = f"{tempfile.gettempdir()}/coll-ends-{os.getpid()}"
        _, out, err = forked.run(2 if name.startswith("two") else 1, forked.program(BY_STORE.replace("LIMIT", str(limit))), LIMIT_S, capture=True, STORE=store)
        with contextlib.suppress(OSError):
            os.unlink(store)
    else:
        indented = ["  " + part.replace("\n", "\n  ") for part in (other, mine)]
        program = HEAD.replace("LIMIT", str(limit)) + f"if rank == 1:\n{indented[0]}\nelse:\n{indented[1]}\n"
        _, out, err = forked.run(2, forked.program(program), LIMIT_S, capture=True)
    lines = [line for line in err.splitlines() if line.startswith("[0]") and line != "[0] "]
    check(lines, "nothing on stderr", out, err)
    check(re.search(pattern, lines[-1]), f"wanted: {pattern}", f"last:   {lines[-1]}", err)
    bad = NEVER.search("\n".join(line[4:] for line in lines)) or NEVER_LAST.search(lines[-1])
    check(not bad, f"{bad and bad[0]!r} on the screen", err)
    print(f"{name}: {lines[-1][4:]}")


def case(row):
    def run():
        end(*row)

    run.__name__ = row[0]
    return run


def main():
    if not forked.preload("coll.torch", "torch._dynamo"):
        print(f"skipped: {sys.executable} has no torch")
        return forked.SKIPPED
    rows = {"quick": QUICK, "slow": SLOW}.get(" ".join(sys.argv[1:]))
    return forked.cases([case(row) for row in rows or QUICK + SLOW], [] if rows else sys.argv[1:], talk=True)


forked.top(main)
