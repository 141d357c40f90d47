"""Entry points of the programs of the wheel: collrun, coll-info, allreduce_perf ... They are replaced by the real ones."""

from __future__ import annotations

import os
import sys


def main() -> None:
    name = os.path.basename(sys.argv[0])
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", name)
    try:
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{name}: {program}: {error.strerror}")
