"""Makes what learners hand in."""

import json
from pathlib import Path

IMPORTS = "import jax\nimport jax.numpy as jnp"
RIGHT = "@jax.jit\ndef double(x):\n    return 2 * x"
WRONG = "def double(x):\n    return x"


def notebook(path: Path, *cells: str, student: str = RIGHT, lab: str | None = "double") -> Path:
    """Write a notebook: the imports, the cells, and the student's cell."""
    plain = [_code(text) for text in (IMPORTS, *cells)]
    plain += [_code(student, "student"), _code("raise RuntimeError('after the student cell')")]
    metadata = {} if lab is None else {"course": {"lab": lab}}
    text = json.dumps({"cells": plain, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5})
    path.write_text(text, encoding="utf-8")
    return path


def _code(text: str, *tags: str) -> dict[str, object]:
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {"tags": list(tags)},
        "outputs": [],
        "source": text.splitlines(keepends=True),
    }
