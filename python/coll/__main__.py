"""python -m coll: which library this is, where its files are, and what it sees (coll-info)."""

from __future__ import annotations

import signal
import subprocess
import sys

import coll


def main() -> int:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader that has gone, as `head` does, is no error
    print(f"libcoll {coll.version}")
    print(f"library  {coll.get_library()}")
    print(f"package  {coll.__path__[0]}")
    print(f"python   {sys.version.split()[0]} {sys.executable}")
    try:
        print(f"headers  {coll.get_include()}")
    except FileNotFoundError:
        print("headers  not installed")
    try:
        program = coll.get_program("coll-info")
    except FileNotFoundError as error:
        print(f"programs {error}")
        return 0
    print(f"programs {program}", flush=True)
    return subprocess.run([program, *(sys.argv[1:] or ["--brief"])]).returncode


if __name__ == "__main__":
    sys.exit(main())
