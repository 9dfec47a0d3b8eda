"""Are two results the same kind of thing, and how far apart are their numbers?

`structure_difference` compares trees, types, shapes and dtypes and says in words what differs;
`largest_difference` compares values. Neither knows what difference is acceptable: that is the
task's own metric and a check's tolerance.
"""

import contextlib
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from course_utils.instruments import _private

_ARRAY = _private.array_class()


@dataclass(frozen=True)
class StructureDifference:
    """The first way in which a result is not the kind of thing that was expected.

    Attributes:
        kind: `"tree"`, `"type"`, `"shape"`, `"dtype"` or `"not finite"`.
        path: where in the result, in Python's spelling, e.g. `result[0]`.
        expected: what stands there in the reference.
        got: what came.
    """

    kind: str
    path: str
    expected: str
    got: str

    def sentence(self) -> str:
        """Say the difference in one plain sentence."""
        if self.kind == "not finite":
            return f"{self.path} contains {self.got}; every value should be finite."
        return f"{self.path}: expected {self.expected}, got {self.got}."


def describe(value: Any) -> str:
    """Return what a value is in a few words: `float32[4, 16, 2]`, `tuple of 2`, `None`."""
    if isinstance(value, Tracer):
        return f"a tracer of {value.dtype}[{', '.join(map(str, value.shape))}], leaked from a jit"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        text = f"{value.dtype}[{', '.join(map(str, value.shape))}]"
        plain = _is_array(value) or isinstance(value, jax.ShapeDtypeStruct)
        if plain:
            return text
        return (
            f"a NumPy array {text}"
            if type(value) is np.ndarray
            else f"{type(value).__name__} {text}"
        )
    if isinstance(value, tuple | list | dict):
        return f"{type(value).__name__} of {len(value)}"
    if value is None:
        return "None"
    return f"a Python {type(value).__name__}"


def structure_difference(
    expected: Any, got: Any, *, name: str = "result", finite: bool = True
) -> StructureDifference | None:
    """Return the first difference in tree, type, shape or dtype, or in being finite, or None.

    Args:
        expected: a result of the right structure; its leaves are JAX arrays or their shapes.
        got: the result to look at.
        name: what to call `got` in paths.
        finite: whether a value that is NaN or infinite is a difference too.
    """
    leaves, tree = jax.tree_util.tree_flatten_with_path(expected)
    if jax.tree_util.tree_structure(got) != tree:
        return _tree_difference(expected, got, name)
    for (path, want), have in zip(leaves, jax.tree_util.tree_leaves(got), strict=True):
        where = name + jax.tree_util.keystr(path)
        for kind, same in (
            ("type", _is_array(have)),
            ("shape", getattr(have, "shape", None) == want.shape),
            ("dtype", getattr(have, "dtype", None) == want.dtype),
        ):
            if not same:
                return StructureDifference(kind, where, describe(want), describe(have))
        bad = _not_finite(have) if finite else ""
        if bad:
            return StructureDifference("not finite", where, "finite values", bad)
    return None


def _is_array(value: Any) -> bool:
    """Whether this is a concrete JAX array; a class that claims to be one does not count."""
    return issubclass(type(value), _ARRAY)


def _is_leaf(expected: Any) -> bool:
    return _is_array(expected) or isinstance(expected, jax.ShapeDtypeStruct)


def _tree_difference(expected: Any, got: Any, name: str) -> StructureDifference:
    """Descend as long as the containers agree, and name the innermost difference."""
    same_container = type(expected) is type(got) and isinstance(expected, tuple | list | dict)
    if same_container and len(expected) == len(got):
        keys = expected.keys() if isinstance(expected, dict) else range(len(expected))
        for key in keys:
            if isinstance(got, dict) and key not in got:
                continue
            want, have = expected[key], got[key]
            if jax.tree_util.tree_structure(want) != jax.tree_util.tree_structure(have):
                return _tree_difference(want, have, f"{name}[{key!r}]")
    kind = "type" if _is_leaf(expected) and not isinstance(got, tuple | list | dict) else "tree"
    return StructureDifference(kind, name, describe(expected), describe(got))


def _not_finite(array: Any) -> str:
    values = np.asarray(array)
    if values.dtype.kind not in "fc" and "float" not in str(values.dtype):
        return ""
    values = values.astype(np.float64) if values.dtype.kind != "c" else values
    nans, infinities = int(np.isnan(values).sum()), int(np.isinf(values).sum())
    parts = [f"{nans} NaN"] * bool(nans) + [f"{infinities} infinite"] * bool(infinities)
    return f"{' and '.join(parts)} of {values.size} values" if parts else ""


def largest_difference(expected: Any, got: Any) -> float:
    """Return the largest absolute difference between two trees of equal structure, in float64."""
    pairs = zip(jax.tree_util.tree_leaves(expected), jax.tree_util.tree_leaves(got), strict=True)
    return max(
        (float(np.max(np.abs(_float64(a) - _float64(b)), initial=0.0)) for a, b in pairs),
        default=0.0,
    )


def relative_difference(expected: Any, got: Any) -> float:
    """Return the largest difference over the largest magnitude of `expected`."""
    scale = max(
        (float(np.max(np.abs(_float64(a)), initial=0.0)) for a in jax.tree.leaves(expected)),
        default=0.0,
    )
    return largest_difference(expected, got) / scale if scale else float("inf")


def _float64(array: Any) -> np.ndarray:
    return np.asarray(array).astype(np.float64)


@contextlib.contextmanager
def float64_enabled() -> Iterator[None]:
    """Let JAX compute in float64 in this thread while the block runs: for reference results."""
    enable: Any = getattr(jax, "enable_x64", None)  # public since 0.8
    if enable is None:
        enable = importlib.import_module("jax.experimental").enable_x64
    with enable(True):
        yield


def to_float64(tree: Any) -> Any:
    """Return the tree with every floating array leaf in float64 (inside `float64_enabled`)."""

    def widen(leaf: Any) -> Any:
        if isinstance(leaf, jax.Array | np.ndarray) and jnp.issubdtype(leaf.dtype, jnp.floating):
            return jax.numpy.asarray(leaf, dtype=np.float64)
        return leaf

    return jax.tree.map(widen, tree)
