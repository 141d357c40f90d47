"""Whether torch_matrix.py would notice: it is run over coll.torch with one mistake planted, and must fail.

usage: torch_broken.py BUILD-DIRECTORY PYTHON [NAME...]
"""

import os
import subprocess
import sys
import time

BUILD, PYTHON = os.path.abspath(sys.argv[1]), sys.argv[2]
HERE = os.path.dirname(os.path.abspath(__file__))
HEAD = ("import torch, coll.torch\nimport coll.torch._collectives as c, coll.torch._pairs as p, coll.torch._tensors as t\n"
        "import coll.torch._group as g, coll.torch._work as w\nG = g.ProcessGroup\n")
# Changes one call of the group: `change(method, args, words)` returns other arguments.
CALL = ("old = G._call\ndef call(self, opts, method, args, words, value, after=None):\n"
        "  args, words = change(self, method, list(args), dict(words))\n  return old(self, opts, method, tuple(args), words, value, after)\n"
        "G._call = call\n")


def replaced(name, other):
    return f"h = next(k for k, v in c.OPS.items() if v == '{name}')\nc.OPS[h] = '{other}'\n"


def changed(body):
    return f"def change(self, method, args, words):\n  {body}\n  return args, words\n" + CALL


# name -> (tests that see it, the mistake)
MISTAKES = {f"{a} as {b}": ("reduc" if a != "avg" else "averag", replaced(a, b)) for a, b in (
    ("sum", "max"), ("prod", "sum"), ("min", "max"), ("max", "min"), ("avg", "sum"), ("band", "bor"), ("bor", "band"), ("bxor", "bor"))}
MISTAKES |= {
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


def outcome(name, tests, mistake, ranks="3"):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("COLL_")}
    kept.update(PYTHONPATH=os.pathsep.join([os.path.join(BUILD, "python"), HERE]), OMP_NUM_THREADS="1", COLL_TEST_ONLY=tests,
                COLL_ARRIVAL_TIMEOUT_MS="20000")
    program = HEAD + mistake + f"import runpy\nrunpy.run_path({os.path.join(HERE, 'torch_matrix.py')!r}, run_name='__main__')\n"
    return subprocess.run([os.path.join(BUILD, "tools", "collrun"), "-n", ranks, PYTHON, "-c", program], capture_output=True, text=True,
                          env=kept, timeout=200)


def main():
    if subprocess.run([PYTHON, "-c", "import torch.distributed, numpy"], capture_output=True).returncode != 0:
        print(f"skipped: {PYTHON} has no torch or no numpy")
        return 77
    missed = 0
    chosen = {n: m for n, m in MISTAKES.items() if not sys.argv[3:] or n in sys.argv[3:]}
    for name, (tests, mistake) in chosen.items():
        began = time.monotonic()
        done = outcome(name, tests, mistake)
        # It must fail because a value is wrong, not because the mistake is no program.
        found = done.returncode != 0 and ("AssertionError" in done.stderr or "MismatchError" in done.stderr or "DistBackendError" in done.stderr)
        found = found and "NameError" not in done.stderr and "SyntaxError" not in done.stderr and "AttributeError" not in done.stderr
        missed += not found
        print(f"{'found' if found else 'MISSED'}: {name} ({time.monotonic() - began:.1f} s)", flush=True)
        if not found:
            print(done.stdout[-2000:], done.stderr[-4000:])
    print(f"{len(chosen) - missed} passed, {missed} failed, 0 skipped")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
