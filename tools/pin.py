"""Resolves `constraints.txt` anew: the versions that CI uses, for every supported Python.

Knows pip's installation report and environment markers. Knows no index and no host: pip finds
packages as the person who runs it has set it up. Run by `make pin`, with the network.

The oldest Python is resolved first and its choices are offered to the newer ones, so that one
version serves all wherever there is one. What exists for some Pythons only gets a marker.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.11", "3.12", "3.13")
EXTRAS = "book,dev"

Pins = Mapping[str, str]


def canonical(name: str) -> str:
    """The normal form of a package's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins_from_report(report: Mapping) -> dict[str, str]:
    """Name and version of everything pip would install, the project itself left out.

    Args:
        report: pip's installation report, as parsed JSON.

    Returns:
        Versions by canonical name.
    """
    pins: dict[str, str] = {}
    for item in report["install"]:
        if "dir_info" not in item["download_info"]:
            pins[canonical(item["metadata"]["name"])] = item["metadata"]["version"]
    return pins


def merge(by_python: Mapping[str, Pins]) -> list[str]:
    """The lines of the constraints file.

    Args:
        by_python: for each Python, such as `"3.11"`, versions by name.

    Returns:
        Sorted lines `name==version`, with a marker where not every Python has that version.
    """
    lines: list[str] = []
    for name in sorted({name for pins in by_python.values() for name in pins}):
        pythons_by_version: dict[str, list[str]] = {}
        for python, pins in by_python.items():
            if name in pins:
                pythons_by_version.setdefault(pins[name], []).append(python)
        for version, pythons in pythons_by_version.items():
            markers = [f'python_version == "{python}"' for python in pythons]
            everywhere = len(pythons) == len(by_python)
            lines.append(f"{name}=={version}" + ("" if everywhere else f"; {' or '.join(markers)}"))
    return lines


def find_python(version: str) -> str | None:
    """An interpreter of this version that starts, or None."""
    installed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [shutil.which(f"python{version}"), sys.executable]
    candidates += [str(path) for path in sorted(installed.glob(f"{version}.*/bin/python"))]
    code = "import sys, ensurepip; print('%d.%d' % sys.version_info[:2])"
    for candidate in candidates:
        if candidate is None:
            continue
        found = subprocess.run([candidate, "-c", code], capture_output=True, text=True, check=False)
        if found.returncode == 0 and found.stdout.strip() == version:
            return candidate
    return None


def resolve(python: str, constraints: Sequence[str]) -> dict[str, str]:
    """What pip would install for this interpreter; nothing is installed.

    Args:
        python: the interpreter.
        constraints: lines that the resolution must keep to.

    Returns:
        Versions by canonical name.

    Raises:
        RuntimeError: when pip finds no set of versions; the message is pip's.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder) / "venv"
        subprocess.run([python, "-m", "venv", environment], check=True)
        given = Path(folder) / "constraints.txt"
        given.write_text("".join(f"{line}\n" for line in constraints), encoding="utf-8")
        pip = [environment / "bin" / "python", "-m", "pip"]
        subprocess.run([*pip, "install", "--quiet", "--upgrade", "pip"], check=True)
        report = Path(folder) / "report.json"
        command = [*pip, "install", "--dry-run", "--ignore-installed", "--quiet"]
        command += ["--report", report, "--constraint", given, f".[{EXTRAS}]"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return pins_from_report(json.loads(report.read_text(encoding="utf-8")))


def main(arguments: Sequence[str] | None = None) -> int:
    """Resolve for every Python and write the file; nothing is written when one fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--keep",
        action="store_true",
        help="start from the present pins and change only what no longer fits",
    )
    parser.add_argument(
        "--hold",
        action="append",
        default=[],
        metavar="NAME==VERSION",
        help="a version to keep to, for example jax==0.10.2; may be repeated",
    )
    options = parser.parse_args(arguments)
    target = ROOT / "constraints.txt"
    kept = target.read_text(encoding="utf-8").splitlines() if options.keep else []
    by_python: dict[str, dict[str, str]] = {}
    for version in PYTHONS:
        python = find_python(version)
        if python is None:
            print(f"No Python {version} that starts was found; all of {PYTHONS} are needed.")
            return 1
        offered = {line.split("==")[0]: line for line in kept + options.hold}
        for pins in reversed(by_python.values()):  # the oldest Python's choice has the last word
            offered |= {name: f"{name}=={pin}" for name, pin in pins.items()}
        try:
            by_python[version] = resolve(python, sorted(offered.values()))
        except RuntimeError as error:
            print(f"Python {version} cannot keep to the pins offered:\n{error}", file=sys.stderr)
            if not by_python:
                return 1
            print(f"Resolving Python {version} on its own.", file=sys.stderr)
            by_python[version] = resolve(python, options.hold)
        print(f"Python {version}: {len(by_python[version])} packages")
    target.write_text("\n".join(merge(by_python)) + "\n", encoding="utf-8")
    print(f"wrote {target.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
