"""The script that compares X-rays with a real GPU is ready for one, and says when there is none."""

import subprocess
import sys
from pathlib import Path

import pytest

from course_utils.instruments.xray.programs import PROGRAMS

pytest_plugins = ["xray_fixtures"]
SCRIPT = Path(__file__).parent.parent / "tools" / "compare_xray_with_gpu.py"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *words],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_without_a_gpu_it_says_so_and_writes_nothing(tmp_path):
    done = run("--out", str(tmp_path / "table.md"))
    assert done.returncode == 1
    assert "not on a GPU" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.xray
@pytest.mark.usefixtures("compiler")
def test_a_rehearsal_fills_the_table_and_calls_itself_one(tmp_path):
    done = run("--rehearse", "--card", "h100", "--out", str(tmp_path / "table.md"))
    assert (done.returncode, done.stderr) == (0, "")
    text = (tmp_path / "table.md").read_text()
    assert text.startswith("**A rehearsal without a GPU")
    assert "NVIDIA H100" in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows[2:]] == list(PROGRAMS)
    assert len({row.count("|") for row in rows}) == 1
