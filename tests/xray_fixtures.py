"""Fixtures of the X-ray tests: the toolchain, installed if missing, and an empty cache."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from course_utils.instruments.xray import cache, client, toolchain


@pytest.fixture(scope="session")
def toolchain_folder() -> Path:
    """The toolchain, installed where `course xray --install` puts it, if it was not there yet."""
    return toolchain.install(quiet=True).folder


@pytest.fixture(scope="session")
def _empty_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One cache for the session, empty at its start and apart from the user's own."""
    folder = tmp_path_factory.mktemp("xray-cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(cache.FOLDER_VARIABLE, str(folder))
        yield folder
    client.stop()


@pytest.fixture
def compiler(toolchain_folder: Path, _empty_cache: Path) -> Path:
    """Everything an X-ray needs; returns the toolchain's folder."""
    return toolchain_folder
