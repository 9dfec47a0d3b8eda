"""Programs worth counting on every card, shared by tests and tools.

Run as a script it records how many kernels they are, for the installed JAX.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from course_utils.instruments.xray import CARDS, toolchain, xray

COUNTS_FILE = Path(__file__).parent / "data" / "xray_counts.json"
Program = tuple[Callable[..., Any], tuple[Any, ...]]


def struct(*shape: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def chain(x):
    for _ in range(4):
        x = jnp.sin(x) * 2 + 1
    return x


def softmax(x):
    return jax.nn.softmax(x)


def dense(x, weights, bias):
    return jax.nn.relu(x @ weights + bias[None])


def convolution(images, filters):
    return jax.lax.conv_general_dilated(images, filters, (1, 1), "SAME")


def full_sum(x):
    return x.sum()


def attention(queries, keys, values):
    return jax.nn.dot_product_attention(queries, keys, values)


def loop(x, *, length: int = 100):
    return jax.lax.scan(lambda carry, _: (jnp.tanh(carry @ carry), carry.sum()), x, length=length)


def add(x, y):
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


def count() -> dict[str, dict[str, int | str]]:
    """Count the kernels of every program on every card; a refusal is written as `refused`."""
    return {
        name: {
            card: "refused" if (found := xray(fn, *args, gpu=card)).refused else found.kernels
            for card in CARDS
        }
        for name, (fn, args) in PROGRAMS.items()
    }


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    toolchain.install()
    COUNTS_FILE.parent.mkdir(exist_ok=True)
    counts = {"jax": jax.__version__, "kernels": count()}
    COUNTS_FILE.write_text(json.dumps(counts, indent=2) + "\n")
    print(f"Recorded the counts of jax {jax.__version__} in {COUNTS_FILE.name}.")
