"""The authors' command for notebooks: sync, check, execute, new-lab.

Knows the command line only; see `notebook_form`, `notebook_sync` and `notebook_run`.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from lab_template import lab_notebook
from notebook_form import LAB_NAME, Tree, normalise, write
from notebook_run import NotebookError, execute
from notebook_sync import check, entry_points, region, sync

ROOT = Path(__file__).resolve().parent.parent
TEMPLATES = Path(__file__).with_name("templates")


def cmd_sync(tree: Tree) -> int:
    """Write the shared cells into the notebooks."""
    changed = sync(tree)
    for path in changed:
        print(f"wrote {tree.name(path)}")
    if not changed:
        print("The notebooks agree with their sources.")
    return 0


def cmd_check(tree: Tree, lab: str | None) -> int:
    """Name what is wrong with the notebooks, or one lab's; exit code 1 when there is anything."""
    paths = [path for path in tree.notebooks() if lab is None or path.stem == lab]
    if not paths:
        print(f"There is no notebook of {lab!r}.")
        return 1
    names = tuple(f"{tree.name(path)}: " for path in paths)
    found = [each for each in check(tree) if lab is None or each.startswith(names)]
    for sentence in found:
        print(sentence)
    if not found:
        print(f"{len(paths)} notebooks are as they should be.")
    return 1 if found else 0


def cmd_execute(tree: Tree, paths: Sequence[Path]) -> int:
    """Sync, then run notebooks and store their outputs; exit code 1 when one did not run."""
    sync(tree)
    failed = False
    for path in paths or tree.notebooks():
        try:
            done = execute(tree, path)
        except (NotebookError, ValueError, OSError) as error:
            print(f"{error}\nNothing was stored for it.", file=sys.stderr)
            failed = True
        else:
            print(f"{tree.name(path)}: {done.seconds:.1f} s", flush=True)
    return 1 if failed else 0


def cmd_new_lab(tree: Tree, name: str) -> int:
    """Write a lab from the template: what is missing of module, submissions and notebooks."""
    if not LAB_NAME.fullmatch(name):
        print(f"{name!r}: expected lower-case words joined by _, such as eager_crops.")
        return 1
    path, module = tree.lab(name), tree.module(name)
    if path.exists():
        print(f"{tree.name(path)} is there already.")
        return 1
    written = [path, tree.solution(name)]
    for target, template in ((module, "lab.py"), (tree.submissions(name), "submissions.py")):
        if not target.exists():
            text = (TEMPLATES / template).read_text(encoding="utf-8")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text.replace("my_lab", name), encoding="utf-8")
            written.append(target)
    notebook = lab_notebook(name, entry_points(region(module, "student-broken"), "broken"))
    normalise(notebook, "lab", name)
    write(path, notebook)
    sync(tree)
    for each in written:
        print(f"wrote {tree.name(each)}")
    print("CONTRIBUTING.md, 'Adding a lab', says what comes next.")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout than this one")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("sync", help=cmd_sync.__doc__)
    checked = commands.add_parser("check", help=cmd_check.__doc__)
    checked.add_argument("--lab", help="this lab's notebooks alone")
    run = commands.add_parser("execute", help=cmd_execute.__doc__)
    run.add_argument("paths", nargs="*", type=Path, help="notebooks; all when none is named")
    new = commands.add_parser("new-lab", help=cmd_new_lab.__doc__)
    new.add_argument("name", help="the lab's name, such as eager_crops")
    options = parser.parse_args(arguments)
    tree = Tree(options.root.resolve())
    match options.command:
        case "sync":
            return cmd_sync(tree)
        case "check":
            return cmd_check(tree, options.lab)
        case "execute":
            return cmd_execute(tree, options.paths)
        case _:
            return cmd_new_lab(tree, options.name)


if __name__ == "__main__":
    sys.exit(main())
