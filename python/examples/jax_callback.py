"""An all_reduce inside jax.jit, by a callback on the host. collrun -n 2 python jax_callback.py"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

import coll

comm = coll.init()


like: Any = jax.ShapeDtypeStruct


def all_reduce(x: Any) -> Any:
    """ordered=True: all ranks make the calls in one order."""
    return io_callback(lambda a: comm.all_reduce(np.asarray(a)), like(x.shape, x.dtype), x, ordered=True)


@jax.jit
def step(x: Any) -> Any:
    return all_reduce(x * 2) / comm.size


print(comm.rank, step(jnp.arange(4.0) + comm.rank))
