"""A PyTorch backend for tensors in host memory and on CUDA devices.

    import torch.distributed as dist
    import coll.torch
    dist.init_process_group("coll")

Importing this registers the backend "coll". Started by torchrun, the group is made of torch's rank, size and store; started by
mpirun, srun or collrun it needs nothing else. The guide is docs/guide/torch.md of the source.
"""

import torch  # noqa: F401  # to its end: it may call _alias.activate(), which imports the rest of this package

from . import _alias
from ._compiled import keep_out
from ._create import register
from ._group import ProcessGroup
from ._profile import watch
from ._work import Work

register()
_alias.from_environment()
watch()
keep_out()

__all__ = ["ProcessGroup", "Work", "register"]
