"""Writes book/status.md: what was run, when and with what, and what nobody has measured yet.

Reads book/execution.json, which `make execute` keeps, and book/submissions.md, which `make matrix`
keeps; both call this. Runs nothing itself.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

HEAD = """\
# Status

What this book was made with, and what has not been measured. Written by `tools/status.py` from the
records of `make execute` and `make matrix`; the tests fail when it is out of date.

## When the outputs were made

Every output in a chapter, lab or solution was stored by a run of that notebook. Times are for the
whole notebook. The tests run every notebook again: chapters must give the stored outputs, but for
times and figures; in labs and solutions no cell may raise.
"""

SUBMISSIONS = """\
## What the grader says of known submissions

Each is right only if the check decided it that should. [The whole table](submissions.md).
"""

NOT_MEASURED = """\
## Not measured

On a GPU
: The stored outputs were made on: {devices}. Whatever the book says of a GPU beyond that was read
  from the program compiled for it ([The GPU program, without a GPU](chapters/xray.ipynb)), or is
  attributed to its source. The sizes that labs use on a GPU, and the speedups reached there, were
  not measured. Nor was the X-ray's count of kernels compared with a card's:
  `tools/compare_xray_with_gpu.py` does it where there is one.

TF32
: A CPU has none. What is said of it is from JAX's own documents and threads.

macOS and Windows
: The tests ran on Linux, on x86-64.

More than one device
: The course stops at one.
"""


def _versions(record: dict[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(record["versions"].items()))


def executions(records: dict[str, dict[str, Any]]) -> str:
    """Return the table of executions.

    Args:
        records: by notebook, as in book/execution.json.
    """
    rows = [
        f"| {name} | {record['date']} | {record['device']} | Python {record['python']}, "
        f"{_versions(record)} | {record['seconds']:.0f} s |"
        for name, record in sorted(records.items())
    ]
    head = "| notebook | date | device | versions | time |\n| --- | --- | --- | --- | --- |"
    return "\n".join([head, *rows]) + "\n"


def submissions(page: str) -> str:
    """Return how many submissions each lab has, and how many of them were judged rightly.

    Args:
        page: the text of book/submissions.md.
    """
    rows = []
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        lab, *lines = section.splitlines()
        judged = [line.rstrip(" |").rsplit("| ", 1)[1] for line in lines if line.startswith("| ")]
        judged = judged[2:]  # less the head of the table
        rows.append(f"| {lab} | {len(judged)} | {judged.count('yes')} |")
    return (
        "\n".join(["| lab | submissions | judged rightly |", "| --- | --- | --- |", *rows]) + "\n"
    )


def page(root: Path = ROOT) -> str:
    """Return the text of the page."""
    records = json.loads((root / "book/execution.json").read_text(encoding="utf-8"))
    known = (root / "book/submissions.md").read_text(encoding="utf-8")
    devices = ", ".join(sorted({record["device"] for record in records.values()}))
    gaps = NOT_MEASURED.format(devices=devices)
    parts = [HEAD, executions(records), SUBMISSIONS, submissions(known), gaps]
    return "\n".join(parts)


def main() -> int:
    target = ROOT / "book/status.md"
    text = page()
    if not target.is_file() or target.read_text(encoding="utf-8") != text:
        target.write_text(text, encoding="utf-8")
        print(f"wrote {target.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
