"""The sync counter sees what waits for the device, and leaves Equinox's own wait out."""

import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from course_utils.instruments.syncs import count_syncs

Y = jnp.linspace(-1, 1, 8)
S = Y.sum()

WAITS = {
    "float(x)": lambda: float(S),
    "int(x)": lambda: int(S),
    "bool(x)": lambda: bool(S),
    "format(x)": lambda: f"{S}",
    "str(x)": lambda: str(S),
    "x.item()": lambda: S.item(),
    "x.tolist()": lambda: Y.tolist(),
    "x.block_until_ready()": lambda: Y.block_until_ready(),
    "x.tobytes()": lambda: Y.tobytes(),
    "pickle.dumps(x)": lambda: pickle.dumps(Y),
    "np.asarray(x)": lambda: np.asarray(Y),
    "np.array(x)": lambda: np.array(Y),
    "jax.device_get(x)": lambda: jax.device_get({"y": Y}),
    "jax.block_until_ready(x)": lambda: jax.block_until_ready([Y]),
}


@pytest.mark.parametrize("spelling", WAITS)
def test_each_way_to_wait_is_counted_once(spelling):
    with count_syncs() as syncs:
        WAITS[spelling]()
    (sync,) = syncs().syncs
    assert sync.how == spelling
    assert sync.line is not None
    assert sync.line.file == __file__


BY_NUMPY = {
    "np.float32": lambda: np.float32(S),
    "np.int64": lambda: np.int64(S),
    "np.bool_": lambda: np.bool_(S),
    "np.clip": lambda: np.clip(Y, 0, 1),
    "np.full": lambda: np.full(3, S),
    "np.linalg.norm": lambda: np.linalg.norm(Y),
    "np.fft.fft": lambda: np.fft.fft(Y),
    "np.roll": lambda: np.roll(Y, 1),
    "np.partition": lambda: np.partition(Y, 1),
    "np.copyto": lambda: np.copyto(np.ones(8), Y),
    "setting": lambda: np.ones(8).__setitem__(slice(None), Y),
}


@pytest.mark.parametrize("name", BY_NUMPY)
def test_what_numpy_reads_is_counted_with_its_line(name):
    with count_syncs() as syncs:
        BY_NUMPY[name]()
    assert {(sync.how, sync.line and sync.line.file) for sync in syncs().syncs} == {
        ("NumPy", __file__)
    }


def test_numpy_reads_as_before_afterwards():
    before = np.asarray(Y)
    with count_syncs():
        np.testing.assert_array_equal(np.float32(Y), before)
    assert memoryview(Y).nbytes == before.nbytes


def test_computing_is_no_wait():
    step = jax.jit(lambda y: y * 2)
    with count_syncs() as syncs:
        _ = jax.vmap(jnp.sin)(step(Y)[2:5]) + Y.shape[0]
        for row in Y:
            _ = row + 1
    assert syncs().count == 0


def test_filter_jits_own_wait_is_counted_apart():
    step = eqx.filter_jit(lambda y: y * 2)
    step(Y)
    with count_syncs() as syncs:
        step(Y)
    assert (syncs().count, syncs().filter_jit_blocks) == (0, 1)


def test_everything_is_as_before_afterwards():
    array = type(Y)
    before = {name: vars(array).get(name) for name in ("__float__", "item", "__array__")}
    functions = (np.asarray, np.array, jax.device_get, jax.block_until_ready)
    with pytest.raises(ZeroDivisionError), count_syncs():
        _ = float(S) / 0
    assert before == {name: vars(array).get(name) for name in before}
    assert functions == (np.asarray, np.array, jax.device_get, jax.block_until_ready)
