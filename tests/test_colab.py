"""A published lab, opened where Colab opens it: installed from its address, JAX kept, graded.

The stamped tree is served from this machine in place of the repository's host, as the zip archive
that pip would fetch there.
"""

import http.server
import importlib.metadata
import io
import json
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import colab
import nbformat
import publish
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from notebook_form import read, tagged

pytestmark = pytest.mark.colab

ROOT = Path(__file__).resolve().parent.parent
LAB = "underfused_tracks"
VERSION = "v9"
PAGES = "https://someone.example/course/"
#: Runs in the kernel: what is installed, and from where the course came.
WHAT_IS_INSTALLED = """
import importlib.metadata, json
_all = {d.name.lower(): d.version for d in reversed(list(importlib.metadata.distributions()))}
_from = None
if "jax-jit-course" in _all:
    _text = importlib.metadata.distribution("jax-jit-course").read_text("direct_url.json")
    _from = json.loads(_text)["url"]
print(json.dumps([_all, _from]))
"""


@dataclass
class Host:
    """A web server on this machine, with one file, and the paths it was asked for."""

    address: str
    path: str
    asked: list[str]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of a new environment like Colab's."""
    try:
        return colab.layer(tmp_path_factory.mktemp("colab") / "layer")
    except colab.NotPossibleError as error:
        pytest.skip(f"the set-up cell was not tried on a machine like Colab: {error}")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, Path]]:
    """Serve the archive of the stamped tree; return where, and the tree."""
    into = tmp_path_factory.mktemp("published") / "tree"
    path = f"/someone/course/archive/refs/tags/published-{VERSION}.zip"
    asked: list[str] = []

    class Archive(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            content = zipped(into / publish.PUSHED) if self.path == path else b""
            self.send_response(200 if content else 404)
            self.send_header("Content-Type", "application/zip")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_request(self, code: object = "-", size: object = "-") -> None:
            pass  # one line each on stderr

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Archive)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}{path}"
    stamped = ["stamp", "--uncommitted", "--repository", "someone/course", "--version", VERSION]
    stamped += ["--archive", address, "--pages", PAGES, "--into", str(into)]
    assert publish.main(stamped) == 0
    yield Host(address, path, asked), into / publish.PUSHED
    server.shutdown()
    server.server_close()


def zipped(tree: Path) -> bytes:
    """Return a tree as a host's archive of a tag: all in one folder named after both."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(tree.rglob("*")):
            archive.write(path, Path(f"course-published-{VERSION}", path.relative_to(tree)))
    return buffer.getvalue()


Run = Callable[[NotebookNode], None]


@pytest.fixture
def run(machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return what runs a notebook's cells in a kernel of that machine, far from any clone."""
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    kernel = colab.add_kernel(machine, tmp_path)
    content = tmp_path / "content"
    content.mkdir()

    def execute(notebook: NotebookNode) -> None:
        resources = {"metadata": {"path": str(content)}}
        client = NotebookClient(notebook, kernel_name=kernel, timeout=300, resources=resources)
        client.execute(env=dict(colab.environment(tmp_path / "state")))

    return execute


def said(cell: NotebookNode) -> str:
    return "".join(output.get("text", "") for output in cell.outputs)


def installed(cell: NotebookNode) -> tuple[dict[str, str], str | None]:
    packages, source = json.loads(said(cell).splitlines()[-1])
    return packages, source


def probe() -> NotebookNode:
    return nbformat.v4.new_code_cell(WHAT_IS_INSTALLED)


def test_an_unstamped_notebook_explains_and_installs_nothing(machine: Path, run: Run):
    notebook = read(ROOT / "labs" / f"{LAB}.ipynb")
    notebook.cells = [tagged(notebook, "bootstrap")[0]]
    with pytest.raises(CellExecutionError, match="it was not published with an address"):
        run(notebook)
    assert not list(machine.parent.parent.rglob("jax_jit_course*"))


def test_a_stamped_lab_installs_the_course_keeps_jax_and_is_graded(
    run: Run, host: tuple[Host, Path]
):
    server, tree = host
    notebook = read(tree / "labs" / f"{LAB}.ipynb")
    notebook.cells = [probe(), *notebook.cells, probe()]
    run(notebook)

    (before, nothing), (after, source) = installed(notebook.cells[0]), installed(notebook.cells[-1])
    assert nothing is None
    assert source == server.address
    assert set(server.asked) == {server.path}
    assert before["jax"] == before["jaxlib"] == colab.JAX != importlib.metadata.version("jax")
    assert {name: after[name] for name in before} == before

    set_up = said(tagged(notebook, "bootstrap")[0])
    assert f"jax {colab.JAX}" in set_up
    assert "device cpu" in set_up
    assert "Change runtime type, T4 GPU" in set_up

    (output,) = [
        o for o in tagged(notebook, "grade")[0].outputs if "text/html" in o.get("data", {})
    ]
    card = output.data["text/html"]
    assert "launches" in card
    assert f'href="{PAGES}book/chapters/' in card
    assert "fail" in card
