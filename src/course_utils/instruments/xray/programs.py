"""Small programs whose kernels are worth counting on every card.

Tests hold their counts on record, and they are what X-rays are compared with a real GPU on.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

Program = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function and its arguments."""


def struct(*shape: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    """Return the shape and type of an array, which stands for it."""
    return jax.ShapeDtypeStruct(shape, dtype)


def chain(x: Array) -> Array:
    """Twelve elementwise operations: x, then four times sine, times two, plus one."""
    for _ in range(4):
        x = jnp.sin(x) * 2 + 1
    return x


def softmax(x: Array) -> Array:
    """Softmax along the last axis."""
    return jax.nn.softmax(x)


def dense(x: Array, weights: Array, bias: Array) -> Array:
    """One layer of a network: matmul, bias, relu."""
    return jax.nn.relu(x @ weights + bias[None])


def convolution(images: Array, filters: Array) -> Array:
    """A convolution that keeps the images' size."""
    return jax.lax.conv_general_dilated(images, filters, (1, 1), "SAME")


def full_sum(x: Array) -> Array:
    """Sum of every element."""
    return x.sum()


def attention(queries: Array, keys: Array, values: Array) -> Array:
    """Attention of `(batch, time, heads, features)`."""
    return jax.nn.dot_product_attention(queries, keys, values)


def loop(x: Array, *, length: int = 100) -> tuple[Array, Array]:
    """A loop that multiplies a matrix by itself, and keeps a sum of each round."""
    return jax.lax.scan(lambda carry, _: (jnp.tanh(carry @ carry), carry.sum()), x, length=length)


def add(x: Array, y: Array) -> Array:
    """Sum of two arrays."""
    return x + y


PROGRAMS: dict[str, Program] = {
    "elementwise chain": (chain, (struct(128, 128),)),
    "softmax": (softmax, (struct(128, 128),)),
    "matmul + bias + relu": (dense, (struct(256, 512), struct(512, 512), struct(512))),
    "convolution": (convolution, (struct(8, 3, 32, 32), struct(16, 3, 3, 3))),
    "full sum": (full_sum, (struct(1024, 1024),)),
    "scan of 100": (loop, (struct(128, 128),)),
    "float32 attention": (attention, (struct(2, 128, 4, 64),) * 3),
    "bfloat16 attention": (attention, (struct(2, 128, 4, 64, dtype="bfloat16"),) * 3),
}
"""The programs by name."""
