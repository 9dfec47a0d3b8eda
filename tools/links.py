"""Looks up every address that the course's prose links to. Run by `make links`; needs the network.

Reads the pages of the book, the prose of the notebooks, README.md and CONTRIBUTING.md. A link is
broken when its page cannot be had, or has no such heading. What may be out of reach for a machine
stands with its reason in tools/links_allowed.txt. Knows nothing of links between the course's own
files: the book's build and the tests hold those.
"""

import argparse
import concurrent.futures
import json
import re
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

ROOT = Path(__file__).resolve().parent.parent
ALLOWED = Path(__file__).with_name("links_allowed.txt")
WORKERS = 8
TIMEOUT_SECONDS = 20
TRIES = 3
_ADDRESS = re.compile(r"https?://[^\s<>\"'`\\{}|^]+")
#: What a sentence or a Markdown link puts after an address.
_AFTER = ".,;:!?*_"
_BROWSER = "Mozilla/5.0 (link check of a course)"
#: Pages whose headings are made by scripts in the browser: the text that is served has none.
_DRAWN_BY_SCRIPTS = ("github.com", "colab.research.google.com")


@dataclass(frozen=True)
class Outcome:
    """What came of looking up one address.

    Attributes:
        problem: what is wrong, in a few words; empty when nothing is.
        unreachable: whether the host gave no answer at all.
    """

    problem: str = ""
    unreachable: bool = False


def sources(root: Path) -> list[Path]:
    """The files whose links are looked up."""
    pages = [path for path in (root / "book").rglob("*") if path.suffix in (".md", ".bib")]
    notebooks = [*(root / "book").rglob("*.ipynb"), *(root / "labs").rglob("*.ipynb")]
    found = [root / "README.md", root / "CONTRIBUTING.md", *pages, *notebooks]
    return sorted(path for path in found if ".ipynb_checkpoints" not in path.parts)


def texts(path: Path) -> Iterator[tuple[str, str]]:
    """The pieces of a file that hold prose, each with where it stands."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        for number, line in enumerate(text.splitlines(), start=1):
            yield f"line {number}", line
        return
    for number, cell in enumerate(json.loads(text)["cells"], start=1):
        if cell["cell_type"] == "markdown":
            yield f"cell {number}", "".join(cell["source"])


def addresses(text: str) -> list[str]:
    """The addresses in a piece of prose, without what the prose puts around them."""
    found = []
    for match in _ADDRESS.findall(text):
        address = match.split("](")[0]
        while address and (
            address[-1] in _AFTER
            or (address[-1] == ")" and address.count(")") > address.count("("))
            or (address[-1] == "]" and address.count("]") > address.count("["))
        ):
            address = address[:-1]
        host = urlsplit(address).hostname or ""
        if host not in ("localhost", "127.0.0.1") and not host.endswith(
            (".example", "example.org")
        ):
            found.append(address)
    return found


def collect(root: Path) -> dict[str, list[str]]:
    """Every address with the places that link to it."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in sources(root):
        for place, text in texts(path):
            for address in addresses(text):
                found[address].append(f"{path.relative_to(root).as_posix()}, {place}")
    return dict(sorted(found.items()))


def allowed(path: Path) -> dict[str, str]:
    """What an allowed address begins with, and the reason.

    Raises:
        ValueError: when a line has no reason.
    """
    found = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        start, _, reason = line.partition(" ")
        if not start.startswith(("http://", "https://")) or not reason.strip():
            raise ValueError(
                f"{path.name}, line {number}: expected what the address begins with, a blank, and "
                f"why it may be out of reach; found {line!r}."
            )
        found[start] = reason.strip()
    return found


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.update(value for name, value in attrs if name in ("id", "name") and value)


def look_up(address: str) -> Outcome:
    """Fetch a page, a few times if need be, and look for the heading that the address names."""
    page, heading = urldefrag(address)
    outcome = Outcome()
    for wait in range(TRIES):
        time.sleep(2 * wait)
        outcome = _fetch(page, unquote(heading))
        if not outcome.problem.startswith(("HTTP 429", "HTTP 5")) and not outcome.unreachable:
            break
    return outcome


def _fetch(page: str, heading: str) -> Outcome:
    request = urllib.request.Request(page, headers={"User-Agent": _BROWSER})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            if not heading or "html" not in answer.headers.get("Content-Type", ""):
                return Outcome()
            text = answer.read().decode("utf-8", errors="replace")
    except urllib.error.HTTPError as error:
        error.close()
        return Outcome(f"HTTP {error.code} {error.reason}")
    except (OSError, ValueError, ssl.SSLError) as error:
        reason = getattr(error, "reason", error)
        return Outcome(f"no answer: {reason}", unreachable=not isinstance(error, ValueError))
    if urlsplit(page).hostname in _DRAWN_BY_SCRIPTS:
        return Outcome()
    anchors = _Anchors()
    anchors.feed(text)
    return Outcome() if heading in anchors.found else Outcome(f"the page has no #{heading}")


def outcomes_of(links: Sequence[str], fetch: Callable[[str], Outcome]) -> dict[str, Outcome]:
    """Look up many addresses: hosts side by side, one host's pages one after the other."""
    hosts: defaultdict[str, list[str]] = defaultdict(list)
    for link in links:
        hosts[urlsplit(link).netloc].append(link)
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        parts = pool.map(lambda pages: [(page, fetch(page)) for page in pages], hosts.values())
        return {page: outcome for part in parts for page, outcome in part}


def report(
    links: Mapping[str, Sequence[str]],
    outcomes: Mapping[str, Outcome],
    allowances: Mapping[str, str],
) -> tuple[list[str], int]:
    """What to print, and the exit code.

    Args:
        links: every address with the places that link to it.
        outcomes: what came of each.
        allowances: what an allowed address begins with, and the reason.

    Returns:
        Lines, and 0 when every link works or may be out of reach; 1 when one is broken, or nothing
        has the beginning that an allowance names; 2 when no host at all could be reached.
    """
    if links and all(outcome.unreachable for outcome in outcomes.values()):
        return [f"None of {len(links)} addresses gave an answer: is this machine offline?"], 2
    lines, broken, excused = [], 0, 0
    for address, places in links.items():
        problem = outcomes[address].problem
        if not problem:
            continue
        reason = next((why for start, why in allowances.items() if address.startswith(start)), "")
        broken, excused = broken + (not reason), excused + bool(reason)
        lines.append(f"{'allowed' if reason else 'BROKEN '}  {address}")
        lines.append(f"         {problem}" + (f" (allowed: {reason})" if reason else ""))
        lines += [f"         in {place}" for place in places]
    unused = [start for start in allowances if not any(each.startswith(start) for each in links)]
    lines += [f"UNUSED   {ALLOWED.name} allows {start}, which nothing links to" for start in unused]
    lines.append(
        f"{len(links)} addresses: {len(links) - broken - excused} work, {excused} are out of reach "
        f"and may be, {broken} are broken."
    )
    return lines, int(bool(broken or unused))


def main(
    arguments: Sequence[str] | None = None, *, fetch: Callable[[str], Outcome] = look_up
) -> int:
    """Look everything up and say what does not work."""
    parser = argparse.ArgumentParser(description="Look up every address that the course links to.")
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout than this one")
    parser.add_argument("--allowed", type=Path, default=ALLOWED, help="what may be out of reach")
    parser.add_argument("--list", action="store_true", help="name the addresses, look none up")
    options = parser.parse_args(arguments)
    try:
        allowances = allowed(options.allowed)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    links = collect(options.root)
    if options.list:
        for address, places in links.items():
            print(address, *places, sep="\n    ")
        return 0
    lines, code = report(links, outcomes_of(list(links), fetch), allowances)
    print(*lines, sep="\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
