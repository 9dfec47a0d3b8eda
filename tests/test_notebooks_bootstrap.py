"""The set-up cell installs only what it may, from where it may, and says what to do otherwise."""

import importlib.metadata
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from notebook_sync import BOOTSTRAP_SOURCE, region

ADDRESS = "jax-jit-course==9.9 @ a-stamped-address"


class Machine:
    """A kernel with or without the course, in or out of Colab; pip's calls are only noted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, installed: bool, colab: bool):
        self.pip_calls: list[list[str]] = []
        self.kept = ""
        find_spec = importlib.util.find_spec

        def find(name: str, package: str | None = None):
            if name == "course_utils":
                return object() if installed else None
            if name == "google.colab":
                if not colab:
                    raise ModuleNotFoundError("No module named 'google'")
                return object()
            return find_spec(name, package)

        monkeypatch.setattr(importlib.util, "find_spec", find)
        monkeypatch.setattr(subprocess, "check_call", self._pip)

    def _pip(self, command: list[str]) -> int:
        self.pip_calls.append(command)
        self.kept = Path(command[command.index("--constraint") + 1]).read_text(encoding="utf-8")
        return 0


def run_cell(*, address: str = "") -> None:
    """Run the cell as it is shipped, or as published with an address."""
    code = region(BOOTSTRAP_SOURCE, "bootstrap")
    assert code.count('COURSE_ADDRESS = ""') == 1
    exec(code.replace('COURSE_ADDRESS = ""', f"COURSE_ADDRESS = {address!r}"), {})


def test_nothing_is_installed_where_the_course_can_be_imported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    machine = Machine(monkeypatch, installed=True, colab=False)
    run_cell(address=ADDRESS)
    assert machine.pip_calls == []
    said = capsys.readouterr().out
    assert f"jax {importlib.metadata.version('jax')}" in said
    assert "device cpu" in said
    assert "Colab" not in said


@pytest.mark.parametrize("colab", [False, True])
def test_a_clone_is_installed_and_a_present_jax_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, colab: bool
):
    (tmp_path / "src" / "course_utils").mkdir(parents=True)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "labs").mkdir()
    monkeypatch.chdir(tmp_path / "labs")
    machine = Machine(monkeypatch, installed=False, colab=colab)
    run_cell()
    (command,) = machine.pip_calls
    assert command[:4] == [sys.executable, "-m", "pip", "install"]
    assert command[-1] == str(tmp_path)
    assert f"jax=={importlib.metadata.version('jax')}\n" in machine.kept


def test_on_colab_the_stamped_address_is_installed_and_a_cpu_runtime_explained(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    machine = Machine(monkeypatch, installed=False, colab=True)
    run_cell(address=ADDRESS)
    (command,) = machine.pip_calls
    assert command[-1] == ADDRESS
    assert f"jaxlib=={importlib.metadata.version('jaxlib')}\n" in machine.kept
    assert "Change runtime type" in capsys.readouterr().out


def test_on_colab_an_unstamped_copy_explains_and_stops(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.chdir(tmp_path)
    machine = Machine(monkeypatch, installed=False, colab=True)
    with pytest.raises(RuntimeError, match="it was not published with an address"):
        run_cell()
    assert machine.pip_calls == []


def test_on_an_own_machine_the_command_is_shown_and_not_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.chdir(tmp_path)
    machine = Machine(monkeypatch, installed=False, colab=False)
    with pytest.raises(RuntimeError, match=r"pip install 'jax-jit-course==9\.9"):
        run_cell(address=ADDRESS)
    assert machine.pip_calls == []
