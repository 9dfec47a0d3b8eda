"""The command `course xray`: install, look at or remove the compiler that X-rays need."""

import argparse
import sys

from course_utils.instruments.xray import toolchain
from course_utils.instruments.xray.errors import XrayUnavailable
from course_utils.quantities import data


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `xray` to the commands of `course`.

    The parsed arguments get `run`, a function of them that returns the exit code.

    Args:
        subparsers: what `ArgumentParser.add_subparsers()` returned.
    """
    parser = subparsers.add_parser(
        "xray",
        help="install the compiler that shows what a GPU would run",
        description="X-rays compile for a T4, L4, A100 or H100 on a machine without a GPU. The "
        "compiler lives in a folder of its own; this environment stays as it is.",
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--install", action="store_true", help="install it for the running JAX")
    action.add_argument("--status", action="store_true", help="say whether it is there (default)")
    action.add_argument("--remove", action="store_true", help="delete it, for every JAX version")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Do what the command line asks for; return the exit code."""
    try:
        if arguments.install:
            now = toolchain.install()
            print(f"The X-ray toolchain is ready: {now.folder} ({data(now.size_bytes)}).")
            return 0
        if arguments.remove:
            gone = toolchain.remove()
            print("\n".join(f"Removed {each}" for each in gone) or "There was nothing to remove.")
            return 0
    except XrayUnavailable as error:
        print(error.reason, file=sys.stderr)
        return 1
    now = toolchain.status()
    if not now.ready:
        print(now.reason)
        return 1
    print(f"The X-ray toolchain is ready: {now.folder} ({data(now.size_bytes)}).")
    print("\n".join(now.packages))
    return 0
