"""Compares X-rays with the programs that a real GPU runs, and writes the differences to a table.

For a machine with one NVIDIA GPU, `jax[cuda12]` and the X-ray toolchain. Each program is X-rayed
for the card at hand (where the course describes it) and compiled for the real device, which
autotunes. Counts of the two stand side by side. With `--rehearse` the script runs without a GPU,
against this machine's own device, to see that it works; that table says nothing about a GPU.
"""

import argparse
import datetime
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import jax

from course_utils.instruments.xray import CARDS, Card, Xray, XrayUnavailable, xray
from course_utils.instruments.xray.programs import PROGRAMS
from course_utils.quantities import data

HEAD = ("program", "X-ray", "real", "X-ray's libraries", "real libraries", "temporary", "real temp")


@dataclass(frozen=True)
class Row:
    """One program's X-ray beside the real executable."""

    name: str
    xrayed: Xray
    real: Xray

    @property
    def agrees(self) -> bool:
        """Whether both refuse the program, or both launch as many kernels."""
        if self.xrayed.refused or self.real.refused:
            return bool(self.xrayed.refused) == bool(self.real.refused)
        return self.xrayed.kernels == self.real.kernels

    def cells(self) -> tuple[str, ...]:
        """Return the row as the table shows it, in the order of `HEAD`."""
        both = (self.xrayed, self.real)
        counts = ["refused" if each.refused else f"{each.kernels:,}" for each in both]
        libraries = ["" if each.refused else _libraries(each) for each in both]
        sizes = ["" if each.refused else data(each.temp_bytes) for each in both]
        return (self.name, *counts, *libraries, *sizes)


def _libraries(found: Xray) -> str:
    return ", ".join(f"{count} {name}" for name, count in found.library_calls.items()) or "none"


def card_at_hand(device_kind: str) -> Card | None:
    """Return the card that a device is, going by the driver's name; None for another one."""
    for card in CARDS.values():
        model = card.title.removeprefix("NVIDIA ").removeprefix("Tesla ").split()[0].split("-")[0]
        if model in device_kind.replace("-", " ").split():
            return card
    return None


def compare(card: Card) -> list[Row]:
    """X-ray every program for the card and read its real executable."""
    return [
        Row(name, xray(fn, *args, gpu=card.name), xray(fn, *args, gpu="here"))
        for name, (fn, args) in PROGRAMS.items()
    ]


def table(rows: Iterable[Row], *, device: str, described: str, rehearsal: bool) -> str:
    """Write the rows as Markdown, with the date and both devices above them."""
    rows = list(rows)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    same = sum(row.agrees for row in rows)
    lines = [
        f"X-rays for {described} against the executables of {device}, jax {jax.__version__}, "
        f"{today}: {same} of {len(rows)} programs launch as many kernels.",
        "",
        "| " + " | ".join(HEAD) + " |",
        "| " + " | ".join("---" for _ in HEAD) + " |",
        *("| " + " | ".join(row.cells()) + " |" for row in rows),
    ]
    if rehearsal:
        lines.insert(0, "**A rehearsal without a GPU: this table says nothing about one.**\n")
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, help="write the table here instead of printing it")
    parser.add_argument("--card", choices=CARDS, help="compare with this card's X-ray")
    parser.add_argument("--rehearse", action="store_true", help="run without a GPU")
    chosen = parser.parse_args(arguments)
    device = jax.devices()[0]
    if device.platform != "gpu" and not chosen.rehearse:
        print(
            f"This machine's JAX runs on {device.platform}, not on a GPU, so there is nothing to "
            "compare with. Run this where `jax[cuda12]` sees an NVIDIA GPU; --rehearse tries the "
            "script without one.",
            file=sys.stderr,
        )
        return 1
    card = CARDS[chosen.card] if chosen.card else card_at_hand(device.device_kind)
    if card is None:
        if not chosen.rehearse:
            print(
                f"The course describes no card like {device.device_kind}. Name the nearest with "
                f"--card ({', '.join(CARDS)}); the table will say so.",
                file=sys.stderr,
            )
            return 1
        card = CARDS["t4"]
    try:
        rows = compare(card)
    except XrayUnavailable as error:
        print(error.reason, file=sys.stderr)
        return 1
    text = table(
        rows, device=device.device_kind, described=card.title, rehearsal=device.platform != "gpu"
    )
    if chosen.out:
        chosen.out.write_text(text)
        print(f"Wrote {chosen.out}.")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
