"""How long X-rays take: the worker's start, compiles for each card, and what the cache saves.

Run it alone on the machine: `python benchmarks/xray.py`. It uses a cache of its own, empty at the
start, and prints one small table. The toolchain must be installed (`course xray --install`).
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import equinox as eqx
import jax
import jax.numpy as jnp

from course_utils.instruments.xray import CARDS, XrayUnavailable, cache, client, xray, xray_eager
from course_utils.instruments.xray.programs import attention, chain, softmax, struct
from course_utils.quantities import seconds


def perceptron(model: eqx.nn.MLP, images: jax.Array) -> jax.Array:
    """Mean of a wide MLP's outputs over a batch."""
    return jax.vmap(model)(images).mean()


def step(model: eqx.nn.MLP, images: jax.Array) -> Any:
    """Take the gradient of `perceptron`: a program of some size."""
    return eqx.filter_value_and_grad(perceptron)(model, images)


def timed(call: Callable[[], Any]) -> float:
    """Return the seconds that one call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure(repeats: int) -> list[tuple[str, float]]:
    """Time everything, the first X-ray with the worker's start apart."""
    model = eqx.nn.MLP(64, 10, 256, 8, key=jax.random.key(0))
    programs: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "softmax": (softmax, (struct(512, 512),)),
        "attention": (attention, (struct(2, 128, 4, 64),) * 3),
        "gradient of a 9-layer MLP": (step, (model, jnp.zeros((32, 64)))),
    }
    warm_up = struct(8)
    rows = [("first X-ray, worker started", timed(lambda: xray(chain, warm_up)))]
    client.stop()
    rows.append(("the same from the cache, no worker", timed(lambda: xray(chain, warm_up))))
    xray(chain, struct(9))  # the worker runs again
    for name, (fn, args) in programs.items():
        for gpu in CARDS:
            call = lambda: xray(fn, *args, gpu=gpu)  # noqa: B023, E731  (called at once)
            rows.append((f"{name}, {gpu}, compiled", timed(call)))
        cached = min(timed(lambda: xray(fn, *args)) for _ in range(repeats))  # noqa: B023
        rows.append((f"{name}, t4, from the cache", cached))
    eager = lambda: xray_eager(perceptron, model, jnp.zeros((32, 64)))  # noqa: E731
    rows.append(("the MLP eager, first time", timed(eager)))
    rows.append(("the MLP eager, from the cache", timed(eager)))
    return rows


def main() -> int:
    """Print the table; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, add_help=True)
    parser.add_argument("--repeats", type=int, default=5, help="cached calls; the fastest counts")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ[cache.FOLDER_VARIABLE] = folder
        try:
            rows = measure(arguments.repeats)
        except XrayUnavailable as error:
            print(error.reason, file=sys.stderr)
            return 1
        finally:
            client.stop()
    width = max(len(name) for name, _ in rows)
    print(f"jax {jax.__version__}, {os.cpu_count()} CPU cores")
    for name, value in rows:
        print(f"{name:<{width}}  {seconds(value):>8}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
