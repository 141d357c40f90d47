"""all_reduce of sparse tensors: the indices and values of all ranks, added up by torch."""

from __future__ import annotations

from typing import Callable

import torch
from torch import Tensor

from .._errors import UnsupportedError


def all_reduce(all_gather: Callable[..., Tensor], size: int, tensor: Tensor, op: str) -> Tensor:
    """A sum of sparse tensors (COO), coalesced."""
    if tensor.device.type != "cpu" or tensor.layout is not torch.sparse_coo or op not in ("sum", "avg"):
        raise UnsupportedError(f"coll: all_reduce of sparse tensors: sums and averages of COO tensors in host memory, not "
                               f"'{op}' of layout {tensor.layout} on {tensor.device}")
    mine = tensor.detach().coalesce()
    indices, values = mine._indices(), mine._values()
    head = torch.tensor([tensor.sparse_dim(), tensor.dense_dim(), *tensor.shape], dtype=torch.int64)
    lengths = all_gather(torch.tensor([head.numel(), values.shape[0]], dtype=torch.int64))
    heads = all_gather(head, counts=lengths[:, 0].tolist())
    if any(not torch.equal(h, head) for h in heads.split(lengths[:, 0].tolist())):
        raise UnsupportedError(f"coll: all_reduce of sparse tensors: the ranks have different shapes; this one has "
                               f"{tuple(tensor.shape)} of {tensor.sparse_dim()} sparse axes")
    counts = lengths[:, 1].tolist()
    all_indices = all_gather(indices.t().contiguous(), counts=counts)
    all_values = all_gather(values.contiguous(), counts=counts)
    result = torch.sparse_coo_tensor(all_indices.t(), all_values, tensor.shape, dtype=tensor.dtype).coalesce()
    return result / size if op == "avg" else result
