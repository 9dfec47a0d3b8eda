"""Runs the test suite on the oldest, the pinned and the newest supported JAX.

Each version gets an environment of its own under .versions/, kept between runs. What belongs to the
pinned version alone (stored outputs, recorded kernel counts) is marked `pinned` and left out on the
others. Needs the network the first time. Run by `make versions`.
"""

import argparse
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".versions"


@dataclass(frozen=True)
class Version:
    """One set of versions to test on.

    Attributes:
        name: what it is called here.
        python: which Python, as `3.13`.
        pins: what is fixed; everything else is pip's choice, or as in constraints.txt.
        constrained: whether constraints.txt holds.
    """

    name: str
    python: str
    pins: tuple[str, ...]
    constrained: bool = False


VERSIONS = (
    # Older than 0.7.2: Equinox 0.13 asks for it, and the launch hook stands elsewhere.
    Version("oldest", "3.11", ("jax==0.7.2", "jaxlib==0.7.2", "equinox==0.13.2")),
    Version("pinned", "3.13", (), constrained=True),
    # 0.11.1 is left out by pyproject.toml: a scan with stacked outputs is quadratic on a CPU there.
    Version("newest", "3.13", ("jax", "jaxlib", "equinox", "optax")),
)


def _runs(command: list[str]) -> bool:
    """Whether a command can be started and exits with 0."""
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except OSError:
        return False


def interpreter(python: str) -> str:
    """Return a Python of that version that runs.

    Raises:
        LookupError: if there is none.
    """
    shims = sorted(Path.home().glob(f".pyenv/versions/{python}*/bin/python"))
    for candidate in (*map(str, reversed(shims)), f"python{python}", sys.executable):
        code = (
            f"import sys; sys.exit(sys.version_info[:2] != tuple(map(int, '{python}'.split('.'))))"
        )
        if _runs([candidate, "-c", code]):
            return candidate
    raise LookupError(f"no Python {python} on this machine; install one and run this again")


def environment(version: Version) -> Path:
    """Make the version's environment, or bring it up to date; return its Python."""
    folder = HOME / version.name
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([interpreter(version.python), "-m", "venv", folder], check=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if version.constrained:
        options = ["--constraint", ROOT / "constraints.txt"]
    else:
        options = ["--upgrade", "--upgrade-strategy", "only-if-needed"]
    subprocess.run([*pip, *options, "--editable", f"{ROOT}[book,dev]", *version.pins], check=True)
    return python


def main() -> int:
    """Run the suite on the versions asked for; return 1 if it fails on any."""
    names = [version.name for version in VERSIONS]
    parser = argparse.ArgumentParser(description="Run the tests on several versions of JAX.")
    parser.add_argument("versions", nargs="*", metavar="VERSION", help=f"of {', '.join(names)}")
    options, rest = parser.parse_known_args()
    unknown = set(options.versions) - set(names)
    if unknown:
        parser.error(f"no version called {', '.join(sorted(unknown))}; there are {names}")
    rows = []
    for version in VERSIONS:
        if options.versions and version.name not in options.versions:
            continue
        python = environment(version)
        shown = subprocess.run(
            [python, "-c", "import jax, equinox; print(jax.__version__, equinox.__version__)"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()
        print(f"== {version.name}: Python {version.python}, jax {shown[0]}, equinox {shown[1]}")
        # Each version has an X-ray toolchain of its own; the X-ray alone decides one submission.
        subprocess.run([python, ROOT / "tools" / "stages.py", "xray"], check=False)
        marks = " and not colab and not book and not browser"
        marks += "" if version.constrained else " and not pinned"
        codes = []
        started = time.monotonic()
        for expression, workers in ((f"not timed{marks}", "2"), (f"timed{marks}", "0")):
            pytest = [python, "-m", "pytest", "-q", "-m", expression, "-n", workers]
            pytest += ["--dist", "loadgroup", *rest]
            codes.append(subprocess.run(pytest, cwd=ROOT, check=False).returncode)
        rows.append((version, shown, codes, time.monotonic() - started))
    for version, shown, codes, seconds in rows:
        said = "passed" if not any(codes) else f"FAILED ({codes})"
        print(
            f"{version.name:<8} Python {version.python} jax {shown[0]:<9} equinox {shown[1]:<8} "
            f"{said} in {seconds:.0f} s"
        )
    return int(any(any(codes) for _, _, codes, _ in rows))


if __name__ == "__main__":
    sys.exit(main())
