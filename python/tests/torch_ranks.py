"""What the test programs of coll.torch share. They run on all ranks under collrun, which sets no variable of torch."""

import os
import sys

from ranks import check, equal, needs, raises

(torch, np) = needs("torch", "numpy")
import torch.distributed as dist

from torch._C import _distributed_c10d as c10d

import coll.torch


def size():
    return dist.get_world_size()


def rank():
    return dist.get_rank()


def as_bytes(x):
    flat = torch.empty(x.numel(), dtype=x.dtype)
    flat.copy_(x.detach().resolve_conj().resolve_neg().reshape(-1))
    return bytes(flat.view(torch.uint8).numpy())


def same(got, wanted, *facts):
    """Equal type, shape and bytes: torch has no comparison for some types."""
    check(got.dtype == wanted.dtype and got.shape == wanted.shape, *facts, got.dtype, tuple(got.shape), wanted.dtype, tuple(wanted.shape))
    if as_bytes(got) != as_bytes(wanted):
        raise AssertionError(f"{' '.join(str(f) for f in facts)}: got {got}, wanted {wanted}")
    check(True)


def main(*tests):
    dist.init_process_group("coll")
    only = os.environ.get("COLL_TEST_ONLY", "")
    for test in tests:
        if only in test.__name__:
            test()
            dist.barrier()
    last = rank() == 0
    dist.destroy_process_group()
    if last:
        print(f"{len(tests)} passed, 0 failed, 0 skipped")
    sys.stdout.flush()


__all__ = ["as_bytes", "c10d", "check", "dist", "equal", "main", "np", "raises", "rank", "same", "size", "torch"]
