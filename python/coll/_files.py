"""Where the parts of this installation are, and what they are set to."""

from __future__ import annotations

import os
import shutil
import subprocess

from . import _coll

_HERE = os.path.dirname(os.path.abspath(__file__))

_number = _coll.version()
version = f"{_number // 10000}.{_number // 100 % 100}.{_number % 100}"


def get_library() -> str:
    """The file of libcoll that this process uses."""
    return os.path.realpath(_coll.library())


def get_include() -> str:
    """The directory of coll/coll.h: that of the wheel, else the system's."""
    inside = os.path.join(_HERE, "include")
    if os.path.exists(os.path.join(inside, "coll", "coll.h")):
        return inside
    prefix = os.path.dirname(get_library())
    while os.path.dirname(prefix) != prefix:
        prefix = os.path.dirname(prefix)
        if os.path.exists(os.path.join(prefix, "include", "coll", "coll.h")):
            return os.path.join(prefix, "include")
    raise FileNotFoundError("coll/coll.h is not installed beside " + get_library())


def get_program(name: str) -> str:
    """The file of collrun, coll-info, allreduce_perf ...: that of the wheel, else that found in PATH."""
    inside = os.path.join(_HERE, "bin", name)
    found = inside if os.access(inside, os.X_OK) else shutil.which(name)
    if not found:
        raise FileNotFoundError(f"{name} is neither in {os.path.dirname(inside)} nor in PATH")
    return found


def settings() -> dict[str, str]:
    """All settings and the values that they have here, without the prefix and in lower case, as init() takes them."""
    text = subprocess.run([get_program("coll-info"), "--settings"], capture_output=True, text=True, check=True,
                          env={k: v for k, v in os.environ.items() if k not in _JOB}).stdout
    found = {}
    for line in text.splitlines():
        name, equals, rest = line.partition("=")
        if equals and name.strip().startswith("COLL_"):
            value = rest.partition(" [")[0].strip()
            found[name.strip()[5:].lower()] = "" if value == '""' else value
    return found


# What a launcher sets: coll-info would try to join the job.
_JOB = ("COLL_RANK", "COLL_SIZE", "COLL_ROOT", "COLL_LOCAL_RANK", "COLL_LOCAL_SIZE", "RANK", "WORLD_SIZE", "PMI_RANK",
        "PMI_SIZE", "PMI_FD", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_PROCID",
        "SLURM_NTASKS")
