"""What torch.compile sees of this package: nothing.

torch calls the methods of process groups and Works from C++, also while a compiled function runs (DDP broadcasts its buckets there).
Dynamo would then trace them like the user's code, which it cannot. So the code of all functions of the package is marked as not to be
traced, and what they call is not traced either. The mark is in the code object: calls cost nothing more.
"""

from __future__ import annotations

import inspect
import sys
from types import CodeType, ModuleType
from typing import Any, Iterator


def _functions(module: ModuleType) -> Iterator[Any]:
    """The functions that the module and its classes define."""
    for value in vars(module).values():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        for member in vars(value).values() if inspect.isclass(value) else (value,):
            for function in (member.fget, member.fset) if isinstance(member, property) else (getattr(member, "__func__", member),):
                function = inspect.unwrap(function) if callable(function) else None
                if inspect.isfunction(function):
                    yield function


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a function and of those that it defines."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def keep_out() -> None:
    """Mark the modules of coll that are loaded."""
    try:
        from torch._C._dynamo import eval_frame
        strategy = eval_frame._FrameExecStrategy(eval_frame._FrameAction.SKIP, eval_frame._FrameAction.SKIP)
        mark = eval_frame.set_code_exec_strategy
    except (ImportError, AttributeError):  # a PyTorch that names them otherwise: its own words cost some time in each call
        import torch._dynamo

        def mark(code: CodeType, _: Any) -> None:
            torch._dynamo.eval_frame.skip_code(code)
        strategy = None
    package = __name__.partition(".")[0]
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == package:
            for function in _functions(module):
                function._torchdynamo_disable = True  # called by what is traced: there, and not in the graph
                for code in _codes(function.__code__):
                    mark(code, strategy)


__all__ = ["keep_out"]
