"""An all_reduce inside jax.jit, and gradients through it: data-parallel training. collrun -n 2 python jax_callback.py"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

import coll

comm = coll.init()


@jax.custom_vjp
def all_reduce(x: Any) -> Any:
    """The sum over all ranks, on the host. ordered=True: all ranks make the calls in one order."""
    return io_callback(lambda a: comm.all_reduce(np.asarray(a)), jax.ShapeDtypeStruct(x.shape, x.dtype), x, ordered=True)


# Each rank's x is in the sum of every rank, so the cotangents of all ranks are added.
all_reduce.defvjp(lambda x: (all_reduce(x), None), lambda _, g: (all_reduce(g),))


def mean_loss(w: Any, x: Any, y: Any) -> Any:
    """Over the examples of all ranks."""
    return all_reduce(jnp.mean((x @ w - y) ** 2)) / comm.size


@jax.jit
def step(w: Any, x: Any, y: Any) -> Any:
    """One step: the gradient of this rank's examples, averaged over the ranks within the compiled function."""
    loss, gradient = jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(w)
    return w - 0.1 * all_reduce(gradient) / comm.size, all_reduce(loss) / comm.size


rng = np.random.default_rng(comm.rank)
x = jnp.asarray(rng.normal(size=(16, 4)), jnp.float32)
y = x @ jnp.arange(4.0)
w = jnp.zeros(4)
for _ in range(60):
    w, loss = step(w, x, y)
# Through the call: what this rank's examples add to the losses of all ranks, which are equal. Their average is the gradient.
through = jax.jit(jax.grad(lambda w: mean_loss(w, x, y)))(jnp.zeros(4))
own = jax.grad(lambda w: jnp.mean((x @ w - y) ** 2))(jnp.zeros(4))
assert np.allclose(through, own, rtol=1e-5), (through, own)
print(f"rank {comm.rank} of {comm.size}: loss {float(loss):.6f}, w {[round(float(v), 3) for v in w]}", flush=True)
