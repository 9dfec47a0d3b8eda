"""Publishes the course: stamps its addresses into a copy, and pushes the copy to a branch.

    tools/publish.py stamp --repository owner/name --version v1.0 --into FOLDER
    tools/publish.py push --from FOLDER

`stamp` writes FOLDER/book, to build the HTML from, and FOLDER/branch, which `push` commits to the
published branch under a tag of its own. The clone that is published stays as it is. Knows the
command line and git; see `publish_target` and `publish_stamp`.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from publish_stamp import BOOK, PUSHED, publish, uncommitted
from publish_target import BRANCH, Target, make

ROOT = Path(__file__).resolve().parent.parent
RECORD = "target.json"
_AUTHOR = {"NAME": "tools/publish.py", "EMAIL": "publish@localhost"}


def cmd_stamp(source: Path, into: Path, target: Target, *, allow_uncommitted: bool) -> int:
    """Write the stamped copies."""
    changes = [] if allow_uncommitted else uncommitted(source)
    if changes:
        raise ValueError(
            f"{source}: has changes that no commit holds, so it is not {target.version}: "
            f"{'; '.join(change.strip() for change in changes[:3])}"
            f"{' …' if len(changes) > 3 else ''}. Commit them, or say --uncommitted."
        )
    book, pushed = publish(source, into, target)
    record = json.dumps(dataclasses.asdict(target), indent=1) + "\n"
    (into / RECORD).write_text(record, encoding="utf-8")
    print(f"stamped {target.version} for {target.repository}")
    print(f"  pip installs  {target.requirement}")
    print(f"  Colab opens   {target.colab or 'nothing: it opens github.com alone'}")
    print(f"  cards link to {target.pages}")
    print(f"build the book from {book}; push {pushed}")
    return 0


def cmd_push(source: Path, stamped: Path, remote: str) -> int:
    """Commit the stamped tree on top of the published branch, tag it, and push both."""
    try:
        target = Target(**json.loads((stamped / RECORD).read_text(encoding="utf-8")))
    except (OSError, TypeError, ValueError) as error:
        raise ValueError(f"{stamped}: expected a folder that `stamp` wrote ({error}).") from error
    commit = _commit(source, stamped / PUSHED, remote, target)
    branch, tag = f"refs/heads/{target.branch}", f"refs/tags/{target.tag}"
    # A tag is moved only when its version is published again, to other addresses.
    _git(source, "push", "--quiet", remote, f"{commit}:{branch}", f"+{commit}:{tag}")
    print(f"pushed {commit[:12]} to the branch {target.branch} and the tag {target.tag}")
    return 0


def _commit(source: Path, tree: Path, remote: str, target: Target) -> str:
    """Make the commit without touching the clone's files, its index or its branches."""
    with tempfile.TemporaryDirectory() as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
        _git(
            source,
            "--work-tree",
            str(tree),
            "add",
            "--all",
            "--force",
            ".",
            cwd=tree,
            variables=index,
        )
        contents = _git(source, "write-tree", variables=index)
    parents: list[str] = []
    if _git(source, "ls-remote", remote, f"refs/heads/{target.branch}"):
        _git(source, "fetch", "--quiet", remote, f"refs/heads/{target.branch}")
        last = _git(source, "rev-parse", "FETCH_HEAD")
        if _git(source, "rev-parse", f"{last}^{{tree}}") == contents:
            return last
        parents = ["-p", last]
    who = {f"GIT_{role}_{key}": _AUTHOR[key] for role in ("AUTHOR", "COMMITTER") for key in _AUTHOR}
    return _git(
        source, "commit-tree", contents, *parents, "-m", f"Version {target.version}", variables=who
    )


def _git(
    source: Path,
    *arguments: str,
    cwd: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> str:
    done = subprocess.run(
        ["git", "--git-dir", str(_git_dir(source)), *arguments],
        cwd=cwd or source,
        env=os.environ | dict(variables or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ValueError(f"git {arguments[0]} failed:\n{done.stderr.strip()}")
    return done.stdout.strip()


def _git_dir(source: Path) -> Path:
    done = subprocess.run(
        ["git", "-C", source, "rev-parse", "--absolute-git-dir"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ValueError(f"{source}: expected the root of a git clone of the course.")
    return Path(done.stdout.strip())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; bad input is said in one sentence, with exit code 2."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="another clone than this one")
    commands = parser.add_subparsers(dest="command", required=True)
    stamp = commands.add_parser("stamp", help=cmd_stamp.__doc__)
    stamp.add_argument("--repository", required=True, help="owner/name, or https://host/owner/name")
    stamp.add_argument("--version", required=True, help="the tag or commit that is published")
    stamp.add_argument("--into", required=True, type=Path, help="an empty folder")
    stamp.add_argument("--branch", default=BRANCH, help="what Colab opens notebooks from")
    stamp.add_argument("--archive", default="", help="where the tag's zip archive will be")
    stamp.add_argument("--pages", default="", help="where the book will be")
    stamp.add_argument("--uncommitted", action="store_true", help="take changed files as they are")
    push = commands.add_parser("push", help=cmd_push.__doc__)
    push.add_argument("--from", dest="stamped", required=True, type=Path, help="what stamp wrote")
    push.add_argument("--remote", default="origin", help="a remote of this clone, or an address")
    options = parser.parse_args(arguments)
    try:
        if options.command == "push":
            return cmd_push(options.root, options.stamped, options.remote)
        target = make(
            options.repository,
            options.version,
            branch=options.branch,
            archive=options.archive,
            pages=options.pages,
        )
        return cmd_stamp(options.root, options.into, target, allow_uncommitted=options.uncommitted)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2


__all__ = ["BOOK", "PUSHED", "main"]

if __name__ == "__main__":
    sys.exit(main())
