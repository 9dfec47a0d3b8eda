"""`make links` finds every address of the course's prose, and says which do not work and where."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import links
import pytest
from links import Outcome

from tests.copies import ROOT


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A course with one link of each kind of file."""
    for folder in ("book/chapters", "labs/solutions"):
        (tmp_path / folder).mkdir(parents=True)
    cells = [
        {"cell_type": "code", "source": "# https://in.code/"},
        {
            "cell_type": "markdown",
            "source": ["[a](https://lab.test/p#h)\n", "and <https://x.test>."],
        },
    ]
    for name in ("labs/a.ipynb", "book/chapters/b.ipynb"):
        (tmp_path / name).write_text(json.dumps({"cells": cells}), encoding="utf-8")
    (tmp_path / "README.md").write_text("See\nhttps://x.test, and (https://y.test/a_(b)).\n")
    (tmp_path / "CONTRIBUTING.md").write_text("Open http://127.0.0.1:8888/lab.\n")
    (tmp_path / "book" / "r.bib").write_text("url = {https://z.test/q?a=1},\n")
    return tmp_path


@pytest.fixture
def host() -> Iterator[str]:
    """A web server on this machine."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status = {"/gone": 404, "/old": 301}.get(self.path, 200)
            body = b'<h2 id="a-heading">A heading</h2>'
            self.send_response(status)
            if status == 301:
                self.send_header("Location", "/page")
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_request(self, code: object = "-", size: object = "-") -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_addresses_are_found_in_prose_with_their_places(tree: Path):
    found = links.collect(tree)
    assert sorted(found) == [
        "https://lab.test/p#h",
        "https://x.test",
        "https://y.test/a_(b)",
        "https://z.test/q?a=1",
    ]
    assert found["https://x.test"] == [
        "README.md, line 2",
        "book/chapters/b.ipynb, cell 2",
        "labs/a.ipynb, cell 2",
    ]


def test_the_course_links_to_others_pages():
    places = links.collect(ROOT)
    assert any(address.startswith("https://docs.jax.dev/") for address in places)
    files = {place.split(",")[0] for each in places.values() for place in each}
    assert any(name.startswith("book/chapters/") for name in files)


def test_what_may_be_out_of_reach_has_a_reason():
    for start, reason in links.allowed(links.ALLOWED).items():
        assert len(reason.split()) > 2, start


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/page", ""),
        ("/old", ""),
        ("/page#a-heading", ""),
        ("/page#another", "the page has no #another"),
        ("/gone", "HTTP 404 Not Found"),
    ],
)
def test_a_page_and_its_heading_are_looked_up(host: str, path: str, problem: str):
    assert links.look_up(host + path) == Outcome(problem)


def test_a_host_without_an_answer_is_tried_again(host: str, monkeypatch: pytest.MonkeyPatch):
    waits: list[float] = []
    monkeypatch.setattr(links.time, "sleep", waits.append)
    outcome = links.look_up("http://127.0.0.1:1/")
    assert outcome.unreachable
    assert outcome.problem.startswith("no answer: ")
    assert waits == [0, 2, 4]


def run(tree: Path, outcomes: dict[str, Outcome], tmp_path: Path, allowed: str) -> int:
    path = tmp_path / "allowed.txt"
    path.write_text(allowed, encoding="utf-8")
    return links.main(
        ["--root", str(tree), "--allowed", str(path)],
        fetch=lambda address: outcomes.get(address, Outcome()),
    )


def test_when_all_work_it_says_so(tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run(tree, {}, tmp_path, "") == 0
    assert capsys.readouterr().out == (
        "4 addresses: 4 work, 0 are out of reach and may be, 0 are broken.\n"
    )


def test_a_broken_link_is_named_with_its_places(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    gone = {"https://x.test": Outcome("HTTP 404 Not Found"), "https://z.test/q?a=1": Outcome("no")}
    assert run(tree, gone, tmp_path, "# for z\nhttps://z.test/ asks for a login\n") == 1
    said = capsys.readouterr().out
    assert (
        "BROKEN   https://x.test\n         HTTP 404 Not Found\n         in README.md, line 2"
        in said
    )
    assert "allowed  https://z.test/q?a=1\n         no (allowed: asks for a login)" in said
    assert "4 addresses: 2 work, 1 are out of reach and may be, 1 are broken." in said


def test_an_allowance_that_nothing_needs_is_named(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert run(tree, {}, tmp_path, "https://w.test/ was slow once\n") == 1
    assert "allows https://w.test/, which nothing links to" in capsys.readouterr().out


def test_an_allowance_without_a_reason_is_refused(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert run(tree, {}, tmp_path, "https://w.test/\n") == 1
    assert "line 1: expected what the address begins with" in capsys.readouterr().err


def test_a_machine_without_a_network_is_told_from_broken_links(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    nothing = {each: Outcome("no answer", unreachable=True) for each in links.collect(tree)}
    assert run(tree, nothing, tmp_path, "") == 2
    assert "is this machine offline?" in capsys.readouterr().out
