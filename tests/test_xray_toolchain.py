"""What stands between a reader and an X-ray is said in one sentence that says what to do."""

import argparse
import json
import platform
import shutil
import subprocess
from collections import namedtuple

import pytest

from course_utils.instruments.xray import XrayUnavailable, cli, toolchain, xray, xray_eager

Usage = namedtuple("Usage", "total used free")


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv(toolchain.ROOT_VARIABLE, str(tmp_path / "tools"))
    return tmp_path / "tools"


def put_a_toolchain(*, without: str = "") -> None:
    folder = toolchain.folder()
    for part in toolchain._PARTS:
        if part != without:
            (folder / part).parent.mkdir(parents=True, exist_ok=True)
            (folder / part).write_text("x")
    (folder / "toolchain.json").write_text(json.dumps({"packages": ["a==1"]}))


def one_sentence(text: str) -> bool:
    return "\n" not in text and text.endswith(".") and len(text) < 300


def pip_says(monkeypatch, text: str, code: int = 1) -> None:
    def run(command, *, stderr, **_):
        stderr.write(text)
        return subprocess.CompletedProcess(command, code)

    monkeypatch.setattr(toolchain.subprocess, "run", run)


@pytest.mark.parametrize("make", [xray, xray_eager])
def test_without_a_toolchain_the_command_is_named(make):
    with pytest.raises(XrayUnavailable, match="course xray --install") as caught:
        make(lambda x: x, 1.0)
    assert one_sentence(caught.value.reason)
    assert not toolchain.status().ready


@pytest.mark.parametrize(
    ("system", "machine", "words"),
    [
        ("Darwin", "arm64", "not possible on macOS"),
        ("Windows", "AMD64", "not possible on Windows"),
        ("Linux", "riscv64", "not possible on a riscv64 processor"),
    ],
)
def test_where_it_cannot_work_that_is_said(monkeypatch, system, machine, words):
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    for attempt in (toolchain.install, toolchain.require):
        with pytest.raises(XrayUnavailable, match=words) as caught:
            attempt()
        assert one_sentence(caught.value.reason)
    assert words in toolchain.status().reason


def test_an_old_jax_is_named_with_what_is_needed(monkeypatch):
    monkeypatch.setattr(toolchain, "jax_version", lambda: "0.6.2")
    with pytest.raises(XrayUnavailable, match=r"jax 0\.6\.2.*0\.7\.2 or newer"):
        toolchain.install()


def test_a_full_disk_is_said_before_anything_is_fetched(monkeypatch, root):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**12, 10**12, 10**8))
    monkeypatch.setattr(toolchain.subprocess, "run", lambda *_, **__: pytest.fail("pip was run"))
    with pytest.raises(XrayUnavailable, match=r"needs 1 GB.*0\.10 GB are free") as caught:
        toolchain.install()
    assert toolchain.ROOT_VARIABLE in caught.value.reason
    assert str(root) in caught.value.reason


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("ERROR: No matching distribution found for jax-cuda12-plugin==9", "no CUDA compiler for"),
        ("WARNING: Retrying … Failed to establish a new connection", "check the network"),
        ("ERROR: [Errno 28] No space left on device", "did not fit"),
        ("ERROR: something else", "pip says: ERROR: something else"),
    ],
)
def test_a_failed_download_is_explained_and_leaves_nothing(monkeypatch, root, said, words):
    pip_says(monkeypatch, said)
    with pytest.raises(XrayUnavailable, match=words):
        toolchain.install()
    assert [each.name for each in root.iterdir()] == [".lock"]
    assert not toolchain.status().ready


def test_an_incomplete_package_is_not_taken_for_a_toolchain(monkeypatch, root):
    pip_says(monkeypatch, "", code=0)
    with pytest.raises(XrayUnavailable, match="not supported yet"):
        toolchain.install()
    assert [each.name for each in root.iterdir()] == [".lock"]


def test_without_pip_the_way_to_get_it_is_named(monkeypatch):
    monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(XrayUnavailable, match="ensurepip"):
        toolchain.install()


def test_a_folder_that_cannot_be_written_is_named(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv(toolchain.ROOT_VARIABLE, str(tmp_path / "file"))
    with pytest.raises(XrayUnavailable, match="cannot be written"):
        toolchain.install()


def test_a_whole_toolchain_is_ready_and_is_not_installed_twice(monkeypatch):
    put_a_toolchain()
    monkeypatch.setattr(toolchain.subprocess, "run", lambda *_, **__: pytest.fail("pip was run"))
    assert toolchain.status().ready
    assert toolchain.install().packages == ("a==1",)
    assert toolchain.require() == toolchain.folder()


def test_a_damaged_toolchain_is_not_used():
    put_a_toolchain(without="nvidia/cuda_nvcc/bin/ptxas")
    with pytest.raises(XrayUnavailable, match=r"damaged.*ptxas.*course xray --install"):
        toolchain.require()


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers())
    return parser.parse_args(["xray", *words])


def test_the_command_reports_removes_and_says_why_it_cannot_install(monkeypatch, capsys, root):
    status = parse("--status")
    assert status.run(status) == 1
    assert "course xray --install" in capsys.readouterr().out
    put_a_toolchain()
    assert status.run(status) == 0
    assert "a==1" in capsys.readouterr().out
    remove = parse("--remove")
    assert remove.run(remove) == 0
    assert not toolchain.folder().exists()
    pip_says(monkeypatch, "No matching distribution")
    install = parse("--install")
    assert install.run(install) == 1
    assert one_sentence(capsys.readouterr().err.strip())


def test_the_command_does_one_thing_at_a_time():
    with pytest.raises(SystemExit):
        parse("--install", "--remove")
