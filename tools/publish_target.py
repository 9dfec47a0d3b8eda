"""Where a published course lies: its repository, its branch, its archive, its pages.

Knows how hosts build their addresses and what may stand in one. Knows nothing of the course's
files, and makes up no address: every one follows from what the caller names.
"""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

DISTRIBUTION = "jax-jit-course"
BRANCH = "published"
COLAB = "https://colab.research.google.com"
_OWNER_AND_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9_][A-Za-z0-9_.-]*")
_REF = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9_-])?")
#: What follows the repository's address in the address of a tag's zip archive.
_ARCHIVES = {
    "github.com": "archive/refs/tags/{tag}.zip",
    "gitlab.com": "-/archive/{tag}/{name}-{tag}.zip",
}
#: What follows the repository's address in the address of a file.
_FILES = {"github.com": "blob/{branch}", "gitlab.com": "-/blob/{branch}"}


@dataclass(frozen=True)
class Target:
    """Where a published course lies.

    Attributes:
        repository: address of the repository, such as `https://github.com/owner/name`.
        version: the tag or commit that is published.
        branch: the branch that holds the stamped tree; Colab opens notebooks from it.
        archive: address of the zip archive of that tree under `tag`; pip installs it.
        pages: address of the book, ending in `/`.
    """

    repository: str
    version: str
    branch: str
    archive: str
    pages: str

    @property
    def tag(self) -> str:
        """The tag that keeps this version's stamped tree, whatever the branch holds later."""
        return tag(self.version)

    @property
    def requirement(self) -> str:
        """What pip installs."""
        return f"{DISTRIBUTION} @ {self.archive}"

    @property
    def colab(self) -> str:
        """What the address of every notebook on Colab begins with; empty where it has none.

        Colab opens notebooks of public repositories on github.com and no other host's.
        """
        parts = urlsplit(self.repository)
        return f"{COLAB}/github{parts.path}/blob/{self.branch}" if _host(parts) in _COLAB else ""

    def page(self, path: str) -> str:
        """The address of a page of the book, from its path without ending."""
        return f"{self.pages}{path}.html"

    def file(self, path: str) -> str:
        """The address of a file of the stamped tree, for people to look at."""
        form = _FILES.get(_host(urlsplit(self.repository)), "src/branch/{branch}")
        return f"{self.repository}/{form.format(branch=self.branch)}/{path}"


_COLAB = ("github.com",)


def tag(version: str) -> str:
    """The tag under which a version's stamped tree is kept."""
    return f"published-{version}"


def make(
    repository: str,
    version: str,
    *,
    branch: str = BRANCH,
    archive: str = "",
    pages: str = "",
) -> Target:
    """Work out every address from what the caller names.

    Args:
        repository: `owner/name` on github.com, or another host's full address.
        version: the tag or commit that is published.
        branch: the branch that will hold the stamped tree.
        archive: address of the stamped tree's zip archive, where it does not follow from the
            repository's.
        pages: address of the book, where it does not follow from the repository's.

    Returns:
        The target.

    Raises:
        ValueError: when one of them cannot be what it should be, or an address is missing.
    """
    address = _repository(repository)
    for what, ref in (("version", version), ("branch", branch)):
        if not _REF.fullmatch(ref) or ".." in ref or ref.endswith(".lock"):
            raise ValueError(
                f"{what} {ref!r}: expected a name that git takes and an address can hold: letters, "
                "digits, '.', '_' and '-'."
            )
    parts = urlsplit(address)
    host, (*_, owner, name) = _host(parts), parts.path.split("/")
    if not archive:
        if host not in _ARCHIVES:
            raise ValueError(
                f"repository {repository!r}: how {parts.netloc} builds the address of an archive "
                f"is not known; name it with --archive: the zip of the tag {tag(version)}."
            )
        archive = f"{address}/{_ARCHIVES[host].format(tag=tag(version), name=name)}"
    if not pages:
        if host != "github.com":
            raise ValueError(
                f"repository {repository!r}: where {parts.netloc} serves the book is not known; "
                "name it with --pages."
            )
        site = f"{owner.lower()}.github.io"
        pages = f"https://{site}/" + ("" if name.lower() == site else f"{name}/")
    for what, value in (("archive", archive), ("pages", pages)):
        _check_address(what, value)
    return Target(address, version, branch, archive, pages.rstrip("/") + "/")


def _host(parts) -> str:
    return parts.netloc.lower().removeprefix("www.")


def _repository(given: str) -> str:
    """The repository's address in one form: no slash and no `.git` at its end."""
    if _OWNER_AND_NAME.fullmatch(given):
        given = f"https://github.com/{given}"
    address = given.rstrip("/").removesuffix(".git")
    parts = urlsplit(address)
    path = parts.path.strip("/")
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.username is not None
        or parts.query
        or parts.fragment
        or not re.fullmatch(rf"(?:[\w.-]+/)*{_OWNER_AND_NAME.pattern}", path)
        or any(part in (".", "..") for part in path.split("/"))
    ):
        raise ValueError(
            f"repository {given!r}: expected owner/name on github.com, or another host's full "
            "address, https://host/owner/name."
        )
    return address


def _check_address(what: str, value: str) -> None:
    parts = urlsplit(value)
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or re.search(r"[\s'\"\\<>`]", value)
    ):
        raise ValueError(f"{what} {value!r}: expected an address that begins with https://.")
