"""The first form of a lab's notebook, for `tools/notebooks.py new-lab`.

Knows which cells every lab has and in which order. What an author must write stands in capitals.
"""

from collections.abc import Sequence

import nbformat
from nbformat import NotebookNode

TITLE = """\
# LAB TITLE

**Minutes:** NUMBER · **Difficulty:** EASY, MEDIUM OR HARD ·
**Chapter:** [CHAPTER TITLE](../book/chapters/NAME.ipynb)

You will learn:

- WHAT THE LEARNER CAN DO AFTERWARDS
"""
SYMPTOM = """\
## The symptom

WHAT THE USER OF THIS CODE SEES, AND CELLS THAT SHOW IT.
"""
MEASURED = """\
import jax
import jax.numpy as jnp
import numpy as np

from course_utils.instruments.launches import launches_of
from course_utils.labs import {name}

lab = {name}.LAB
size = lab.sizes.get(jax.default_backend(), lab.sizes["cpu"])
rng = np.random.default_rng(0)
inputs = lab.arguments(size, lab.prepare(size.config, 0), rng, size.items)
shapes = [jnp.shape(leaf) for leaf in jax.tree.leaves(inputs)]
print(f"inputs of shapes {{shapes}}")
launches = launches_of(lambda: lab.call(lab.broken, inputs))
print(f"{{launches.count / size.items:.0f}} launches per {{lab.item}}")
"""
TASK = """\
## Your turn

WHAT TO CHANGE AND WHAT MUST STAY. Edit the next cell only.
"""
GRADE = """\
## The verdict

Run the next cell after each change.
"""
HINTS = """\
## Hints

<details>
<summary>Hint 1: where to look</summary>

A QUESTION THAT POINTS AT THE MISTAKE.

</details>

<details>
<summary>Hint 2: what is wrong</summary>

THE MISTAKE, NAMED.

</details>

<details>
<summary>Hint 3: how to mend it</summary>

THE FIX IN WORDS.

</details>

Still stuck, or done and curious: [the solution](solutions/{name}.ipynb), which is the file
`labs/solutions/{name}.ipynb`.
"""


def lab_notebook(name: str, entry_points: Sequence[str]) -> NotebookNode:
    """A lab's notebook with every cell it needs; `sync` fills the set-up and student cells.

    Args:
        name: the lab's name.
        entry_points: the functions the learner repairs. One is passed to the grader as it is,
            several by name.

    Returns:
        The notebook, not yet in normal form.
    """
    match entry_points:
        case [only]:
            arguments = only
        case _:
            arguments = ", ".join(f"{entry}={entry}" for entry in entry_points)
    cells = [
        nbformat.v4.new_markdown_cell(TITLE.strip()),
        _code("", "bootstrap"),
        nbformat.v4.new_markdown_cell(SYMPTOM.strip()),
        nbformat.v4.new_code_cell(MEASURED.format(name=name).strip()),
        nbformat.v4.new_markdown_cell(TASK.strip()),
        _code("", "student"),
        nbformat.v4.new_markdown_cell(GRADE.strip()),
        _code(
            f'from course_utils import grade\n\nreport = grade("{name}", {arguments})\nreport',
            "grade",
        ),
        nbformat.v4.new_markdown_cell(HINTS.format(name=name).strip()),
    ]
    for index, cell in enumerate(cells):
        cell.id = f"cell-{index}"
    return nbformat.v4.new_notebook(cells=cells)


def _code(source: str, tag: str) -> NotebookNode:
    return nbformat.v4.new_code_cell(source, metadata={"tags": [tag]})
