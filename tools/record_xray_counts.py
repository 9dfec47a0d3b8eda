"""Records how many kernels the X-ray's programs are on each card, for the installed JAX.

The tests compare with the record on the JAX version that it was made with. Run it, and read the
difference, when that version changes.
"""

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax

from course_utils.instruments.xray import CARDS, XrayUnavailable, toolchain, xray
from course_utils.instruments.xray.programs import PROGRAMS

COUNTS_FILE = Path(__file__).resolve().parent.parent / "tests" / "data" / "xray_counts.json"


def count() -> dict[str, dict[str, int | str]]:
    """Count every program on every card; a refusal is written as `refused`."""
    return {
        name: {
            card: "refused" if (found := xray(fn, *args, gpu=card)).refused else found.kernels
            for card in CARDS
        }
        for name, (fn, args) in PROGRAMS.items()
    }


def main() -> int:
    try:
        toolchain.install()
    except XrayUnavailable as error:
        print(error.reason, file=sys.stderr)
        return 1
    record = {"jax": jax.__version__, "kernels": count()}
    COUNTS_FILE.write_text(json.dumps(record, indent=2) + "\n")
    print(f"Recorded the counts of jax {jax.__version__} in {COUNTS_FILE.name}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
