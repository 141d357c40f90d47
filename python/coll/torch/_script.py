"""Runs the program that `python -m coll.torch` is given, as `python PROGRAM` would: in the module __main__, which it has to itself."""

from __future__ import annotations

import builtins
import importlib.machinery
import os
import runpy
import sys

from . import _alias

USAGE = """usage: python -m coll.torch [-m MODULE | SCRIPT] [ARGUMENT]...
       torchrun ... -m coll.torch [-m MODULE | SCRIPT] [ARGUMENT]...

Run a PyTorch program whose backend is "gloo" on coll, unchanged. Processes that it starts do the same. PyTorch's own backend is then called
"torch_gloo"."""


def main() -> None:
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help"):
        print(USAGE, file=sys.stdout if words else sys.stderr)
        sys.exit(0 if words else 2)
    module = words[0] == "-m"
    if (module and len(words) < 2) or (not module and words[0].startswith("-")):
        print(USAGE, file=sys.stderr)
        sys.exit(2)
    _alias.activate(_alias.GLOO)
    sys.argv[:] = words[1:] if module else words
    if module:
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        _run_file(words[0])


def _run_file(path: str) -> None:
    try:
        with open(path, "rb") as f:
            code = compile(f.read(), path, "exec", dont_inherit=True)
    except OSError as error:
        sys.exit(f"coll: {path}: {error.strerror}")
    # Python has put the current directory there for -m; a script has its own.
    sys.path[0] = os.path.dirname(os.path.abspath(path))
    space = vars(sys.modules["__main__"])
    space.clear()
    space.update(__name__="__main__", __file__=path, __builtins__=builtins, __doc__=None, __package__=None, __spec__=None, __cached__=None,
                 __loader__=importlib.machinery.SourceFileLoader("__main__", path))
    exec(code, space)


__all__ = ["main"]
