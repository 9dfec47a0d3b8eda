"""Settings every test shares: the CPU, no silent broadcasting between ranks, timed tests alone."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import pytest

# An accidental (n,) against (n, 1) is an error. Strict dtype promotion would be welcome too, but
# optax's bias correction and schedules need the implicit int32-to-float step that it forbids.
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep a file's tests on one worker, in their order, but for those that name another group."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse to time anything while another worker may be using the machine."""
    if item.get_closest_marker("timed") is not None and hasattr(item.config, "workerinput"):
        pytest.fail(
            "a timed test was started by pytest-xdist, beside other tests; "
            "run the timed tests alone: pytest -m timed -n 0",
            pytrace=False,
        )


@pytest.fixture(autouse=True, scope="session")
def _verdicts_of_tests_are_not_the_users(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COURSE_STATE", str(tmp_path_factory.mktemp("state")))
        yield
