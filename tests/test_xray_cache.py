"""The X-ray cache gives back what was put in, from any process, or nothing."""

import gzip
import subprocess
import sys
import textwrap

import pytest

from course_utils.instruments.xray import cache


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def only_file(folder):
    (path,) = (each for each in folder.rglob("*") if each.is_file())
    return path


def test_an_entry_comes_back_as_it_was_stored():
    name = cache.key("program", "card")
    assert cache.load(name) is None
    cache.store(name, {"seconds": 1.5}, "HloModule …")
    assert cache.load(name) == ({"seconds": 1.5}, "HloModule …")


def test_another_part_is_another_name():
    assert len({cache.key("a", "b"), cache.key("a", "c"), cache.key("ab", ""), cache.key("a")}) == 4


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: b"not gzip",
        lambda data: gzip.compress(b"[1, 2]"),
        lambda data: gzip.compress(b'{"name": "another", "header": {}, "text": ""}'),
    ],
)
def test_a_damaged_entry_counts_as_absent_and_is_written_anew(folder, damage):
    name = cache.key("x")
    cache.store(name, {}, "text" * 100)
    path = only_file(folder)
    path.write_bytes(damage(path.read_bytes()))
    assert cache.load(name) is None
    cache.store(name, {}, "again")
    assert cache.load(name) == ({}, "again")


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(tmp_path / "file"))
    cache.store(cache.key("x"), {}, "text")
    assert cache.load(cache.key("x")) is None


def test_several_processes_write_and_nobody_reads_half_an_entry(folder):
    script = textwrap.dedent(
        """
        import sys
        from course_utils.instruments.xray import cache
        for round in range(40):
            for key in "abc":
                name = cache.key(key)
                cache.store(name, {"by": sys.argv[1]}, key * 20_000)
                found = cache.load(name)
                assert found is not None and found[1] == key * 20_000, (round, key)
        """
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", script, str(number)], stderr=subprocess.PIPE)
        for number in range(3)
    ]
    ends = [(writer.communicate(timeout=60)[1].decode(), writer.returncode) for writer in writers]
    assert ends == [("", 0)] * 3
    assert not list(folder.rglob(".new-*"))
    assert cache.load(cache.key("b")) in [({"by": str(n)}, "b" * 20_000) for n in range(3)]
