"""Whether torch_matrix.py would notice: see planted.py. usage: torch_broken.py BUILD-DIRECTORY PYTHON [NAME...]"""

import sys

import planted

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


if __name__ == "__main__":
    sys.exit(planted.main("torch.distributed, numpy", "torch_matrix.py", {n: (t, HEAD + m) for n, (t, m) in MISTAKES.items()}))
