"""The backend "gloo" of PyTorch means coll, for programs that are not to be changed: COLL_TORCH_AS=gloo, or python -m coll.torch.

Groups for host memory and CUDA tensors that ask for "gloo" are made by coll, under that name: get_backend() says "gloo". Of
"cpu:gloo,cuda:nccl" coll serves the first half (_halves.py). PyTorch's own is the backend "torch_gloo" then. Without these two words this
module changes nothing.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch.distributed as dist
import torch.distributed.distributed_c10d as _c10d

from .. import _log
from .._files import version

VARIABLE = "COLL_TORCH_AS"
OWN = "coll"
GLOO = "gloo"
# PyTorch's own backend of that name.
REAL = "torch_gloo"
SERVED = ("cpu", "cuda")

_active = False
_told = False


def is_active() -> bool:
    return _active


def meant(devices: dict[str, str]) -> dict[str, str]:
    """The backends of devices, those of coll last: it takes over what the others have made by then."""
    if not _active:
        return devices
    named = {d: OWN if b == GLOO and d in SERVED else b for d, b in devices.items()}
    return {d: b for d, b in sorted(named.items(), key=lambda item: item[1] == OWN)}


def from_environment() -> None:
    if os.environ.get(VARIABLE):
        activate(os.environ[VARIABLE])


def activate(name: str) -> None:
    """From now on in this process; the environment tells its children."""
    global _active
    if name != GLOO:
        raise ValueError(f"coll: {VARIABLE}={name}: coll can stand for the backend 'gloo' alone")
    os.environ[VARIABLE] = name
    if _active:
        return
    from ._create import register
    register()
    dist.Backend.register_backend(REAL, _make_real, devices=list(SERVED))
    plain = _c10d.BackendConfig.get_device_backend_map

    def get_device_backend_map(self: Any) -> dict[str, Any]:
        return meant(plain(self))

    _c10d.BackendConfig.get_device_backend_map = get_device_backend_map
    _active = True


def _make_real(store: Any, rank: int, size: int, timeout: Any) -> Any:
    made = _c10d.ProcessGroupGloo(store, rank, size, timeout=timeout)
    made._set_sequence_number_for_group()
    return made


def tell(rank: int) -> None:
    """Once in a job: the first group says what it is."""
    global _told
    if _active and not _told and rank == 0:
        children = "" if "_coll_torch_as" in sys.modules else \
            ". The package is not installed by pip: processes that this one starts have PyTorch's own"
        _log.say(f"coll: backend 'gloo' is coll {version} ({VARIABLE}=gloo); PyTorch's own is backend '{REAL}'{children}")
    _told = True


__all__ = ["activate", "is_active", "meant", "tell"]
