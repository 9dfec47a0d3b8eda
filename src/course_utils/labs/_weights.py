"""Random weights for the labs' models, drawn with NumPy.

Drawing them with JAX compiles a program for each shape, which takes longer than a whole grade. It
knows how Equinox names a layer's arrays, and no lab.
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

_Model = TypeVar("_Model", bound=eqx.Module)


def draw_weights(build: Callable[..., _Model], *args: Any, rng: np.random.Generator) -> _Model:
    """Return `build(*args, key=…)` with its arrays drawn anew.

    Biases are zero, other vectors (the scales of norms) one, everything else uniform within
    `1/sqrt(n)` for a layer that sums over `n` inputs.

    Args:
        build: a module's class.
        *args: what it takes besides its key.
        rng: where the numbers come from.
    """
    shapes = eqx.filter_eval_shape(build, *args, key=jax.random.key(0))

    def draw(path: tuple[Any, ...], leaf: Any) -> Any:
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            return leaf
        if getattr(path[-1], "name", "") == "bias":
            values = np.zeros(leaf.shape)
        elif len(leaf.shape) == 1:
            values = np.ones(leaf.shape)
        else:
            values = rng.uniform(-1, 1, leaf.shape) / math.sqrt(math.prod(leaf.shape[1:]))
        return jnp.asarray(values, dtype=leaf.dtype)

    return jax.tree_util.tree_map_with_path(draw, shapes)
