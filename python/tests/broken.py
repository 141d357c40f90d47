"""Whether matrix.py would notice: see planted.py. usage: broken.py BUILD-DIRECTORY PYTHON [NAME...]"""

import sys

import planted

# `change(self, args, words)` alters the arguments of the methods named.
HEAD = ("import numpy as np, coll\nC = coll.Communicator\n"
        "def plant(change, *names):\n"
        "  for name in names:\n"
        "    def method(self, *args, old=getattr(C, name), **words):\n"
        "      args, words = change(self, list(args), words)\n"
        "      return old(self, *args, **words)\n"
        "    setattr(C, name, method)\n")
REDUCING = "'all_reduce', 'reduce', 'reduce_scatter', 'scan'"


def changed(names, *lines):
    body = "".join(f"  {line}\n" for line in lines)
    return HEAD + f"def change(self, args, words):\n{body}  return args, words\nplant(change, {names})\n"


def replaced(one, other):
    return changed(REDUCING, f"args[1:2] = ['{other}' if a == '{one}' else a for a in args[1:2]]")


MISTAKES = {f"{a} as {b}": ("reductions", replaced(a, b)) for a, b in (
    ("sum", "max"), ("prod", "sum"), ("min", "max"), ("max", "min"), ("avg", "sum"), ("band", "bor"), ("bor", "band"), ("bxor", "bor"),
    ("land", "lor"), ("lor", "land"), ("lxor", "lor"))}
MISTAKES |= {
    "scan: the reduction of all ranks": ("reductions", HEAD + "C.scan = C.all_reduce\n"),
    "all_reduce: the input is written": ("reductions", changed("'all_reduce'", "words.setdefault('out', args[0])")),
    "reduce: the next root": ("reductions", changed("'reduce'", "args[2] = (args[2] + 1) % self.size")),
    "reduce_scatter: blocks swapped": ("reductions", changed("'reduce_scatter'", "args[0] = np.roll(args[0], 1, 0)")),
    "strided results not written back": ("reductions", changed(
        "'all_reduce'", "if isinstance(words.get('out'), np.ndarray) and not words['out'].flags.c_contiguous: words['out'] = words['out'].copy()")),
    "strided inputs read as if they were not": ("reductions", changed(
        "'all_reduce'", "x = args[0]", "if not x.flags.c_contiguous and x.ndim == 1 and x.strides[0] > 0:",
        "  args[0] = np.lib.stride_tricks.as_strided(x, x.shape, (x.itemsize,))")),
    "all_gather: blocks swapped": ("moves", changed("'all_gather'", "args[0] = np.roll(args[0], 1, 0)")),
    "gather: blocks swapped": ("moves", changed("'gather'", "args[0] = np.roll(args[0], 1, 0)")),
    "all_to_all: blocks swapped": ("moves", changed("'all_to_all'", "args[0] = np.roll(args[0], 1, 0)")),
    "scatter: blocks swapped": ("moves", changed("'scatter'", "args[0] = None if args[0] is None else np.roll(args[0], 1, 0)")),
    "broadcast: root 0": ("moves", changed("'broadcast'", "args[1] = 0")),
    "send_recv: the other way round": ("moves", changed("'send_recv'", "args[1], args[3] = args[3], args[1]")),
    "send: zeros": ("moves", changed("'send'", "args[0] = np.zeros_like(args[0])")),
    "tags ignored": ("tags", changed("'send', 'recv', 'irecv'", "if words.get('tag', -1) >= 0: words['tag'] = 0",
                                     "args[2:] = [0 for _ in args[2:]]"), "basics.py"),
    "objects: those of the rank before": ("objects", HEAD + "old = C.all_gather_object\n"
                                          "C.all_gather_object = lambda self, x: (lambda g: g[-1:] + g[:-1])(old(self, x))\n"),
}

if __name__ == "__main__":
    sys.exit(planted.main("numpy", "matrix.py", MISTAKES))
