"""X-rays made for real: counts known by reasoning, on every card, and counts on record."""

import importlib
import json
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from course_utils.instruments.xray import CARDS, XrayError, client, xray
from course_utils.instruments.xray.programs import PROGRAMS, add, attention, chain, loop, struct

COUNTS_FILE = Path(__file__).parent / "data" / "xray_counts.json"
pytest_plugins = ["xray_fixtures"]
pytestmark = [pytest.mark.xray, pytest.mark.usefixtures("compiler")]

on_every_card = pytest.mark.parametrize("gpu", CARDS)
SQUARE = struct(128, 128)


@on_every_card
def test_an_elementwise_chain_is_one_kernel(gpu):
    found = xray(chain, SQUARE, gpu=gpu)
    assert (found.kernels, found.fusions, found.library_calls) == (1, 1, {})
    assert found.program[0].ops == ("sin", "mul", "add") * 4
    assert (found.argument_bytes, found.output_bytes, found.temp_bytes) == (65536, 65536, 0)


@on_every_card
def test_a_scan_of_100_launches_its_body_100_times(gpu):
    found = xray(loop, SQUARE, gpu=gpu)
    body = [kernel for kernel in found.program if kernel.loops]
    outside = [kernel for kernel in found.program if not kernel.loops]
    assert body
    assert all(kernel.launches == 100 and kernel.known for kernel in body)
    assert found.kernels == 100 * len(body) + len(outside)
    assert found.exact


@on_every_card
def test_nested_loops_multiply(gpu):
    def nested(x):
        return jax.lax.fori_loop(0, 7, lambda _, y: jax.lax.fori_loop(0, 9, _step, y), x)

    def _step(_, y):
        return jnp.tanh(y @ y)

    launches = {kernel.launches for kernel in xray(nested, SQUARE, gpu=gpu).program}
    assert 63 in launches
    assert launches <= {1, 7, 63}


@on_every_card
def test_a_donated_argument_lends_its_bytes_to_the_result(gpu):
    kept, donated = (
        xray(add, SQUARE, SQUARE, gpu=gpu),
        xray(add, SQUARE, SQUARE, gpu=gpu, donate=[0]),
    )
    assert (kept.donated_bytes, donated.donated_bytes) == (0, 128 * 128 * 4)
    assert donated.needed_bytes == kept.needed_bytes - 128 * 128 * 4


@on_every_card
def test_another_program_has_another_count(gpu):
    def sorted_chain(x):
        return chain(jnp.sort(chain(x), axis=0)) @ x

    assert xray(sorted_chain, SQUARE, gpu=gpu).kernels > xray(chain, SQUARE, gpu=gpu).kernels


def test_bfloat16_attention_is_refused_for_the_t4_and_runs_on_the_others():
    arguments = (struct(2, 128, 4, 64, dtype="bfloat16"),) * 3
    refused = xray(attention, *arguments, gpu="t4")
    assert refused.refused is not None
    assert "bfloat16" in refused.refused
    assert "8.0 or newer" in refused.refused
    assert "ALG_DOT_BF16" not in refused.refused
    assert "ALG_DOT_BF16" in refused.compiler_text
    with pytest.raises(XrayError, match="bfloat16"):
        _ = refused.kernels
    for gpu in ("l4", "a100", "h100"):
        found = xray(attention, *arguments, gpu=gpu)
        assert found.refused is None
        assert found.kernels >= 1


@pytest.mark.parametrize("name", PROGRAMS)
def test_counts_on_record_hold_on_the_version_they_were_recorded_with(name):
    record = json.loads(COUNTS_FILE.read_text())
    fn, args = PROGRAMS[name]
    for gpu in CARDS:
        found = xray(fn, *args, gpu=gpu)
        count = "refused" if found.refused else found.kernels
        if record["jax"] == jax.__version__:
            assert count == record["kernels"][name][gpu]
        else:  # another compiler may fuse otherwise; the facts that hold anywhere are tests above
            assert (count == "refused") == (record["kernels"][name][gpu] == "refused")


def test_libraries_are_named():
    def everything(x, images, filters):
        convolved = jax.lax.conv_general_dilated(images, filters, (1, 1), "SAME")
        return x @ x, jnp.linalg.eigh(x), jnp.fft.fft(x), convolved

    calls = xray(everything, SQUARE, struct(4, 3, 32, 32), struct(8, 3, 3, 3), gpu="t4")
    assert set(calls.library_calls) == {"cuBLAS", "cuSOLVER", "cuFFT", "cuDNN"}


def test_memory_decides_what_fits():
    large = struct(1_800_000_000)  # 7.2 GB in, as much out
    for gpu, fits in (("t4", True), ("h100", True)):
        assert xray(chain, large, gpu=gpu).fits is fits
    assert not xray(chain, large, gpu="t4").fits_pool
    larger = struct(3_000_000_000)
    small, big = xray(chain, larger, gpu="t4"), xray(chain, larger, gpu="h100")
    assert small.fits is False or small.refused
    assert big.fits


def test_temporary_memory_grows_with_what_is_mapped_at_once():
    def block(x):
        return jax.nn.softmax(x @ x.T, axis=-1).sum()

    few = xray(jax.vmap(block), struct(8, 64, 64), gpu="t4").temp_bytes
    many = xray(jax.vmap(block), struct(64, 64, 64), gpu="t4").temp_bytes
    assert many - few >= 56 * 64 * 64 * 4


def test_a_loop_of_unknown_length_is_marked():
    def until(x):
        return jax.lax.while_loop(lambda y: y.sum() < 10, lambda y: jnp.sin(y) @ y, x)

    found = xray(until, SQUARE)
    assert not found.exact
    assert "unknown length" in found.notes[0]


class Pair(NamedTuple):
    twice: jax.Array
    more: jax.Array


def pair(x):
    return Pair(x * 2, x + 1)


def test_functions_and_results_of_every_kind_are_taken():
    expected = xray(pair, SQUARE)
    for fn in (jax.jit(pair), eqx.filter_jit(pair), lambda x: pair(x)):
        found = xray(fn, SQUARE)
        assert (found.kernels, found.output_bytes) == (expected.kernels, expected.output_bytes)
    assert expected.function == "pair"
    assert expected.output_bytes == 2 * 65536 + 2 * 8  # two arrays, and a pointer to each


def test_arguments_of_every_kind_are_taken():
    key = jax.random.key(0)
    model = eqx.nn.MLP(8, 4, 16, 1, key=key)
    shapes = eqx.filter_eval_shape(lambda: model)

    def call(model, x, key, mode, factor):
        assert mode == "train"
        return model(x + jax.random.normal(key, x.shape)) * factor

    x = jnp.ones(8)
    weights = sum(leaf.nbytes for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_array)))
    real, shaped = xray(call, model, x, key, "train", 2.0), xray(call, shapes, x, key, "train", 2.0)
    assert real.kernels == shaped.kernels
    assert real.argument_bytes == shaped.argument_bytes == weights + x.nbytes + 8
    assert xray(model, x).argument_bytes == weights + x.nbytes
    assert xray(eqx.filter_jit(model), x).argument_bytes == weights + x.nbytes


def test_numbers_are_arguments_under_jit_unless_static():
    def scaled(x, factor):
        return x * factor

    assert xray(jax.jit(scaled), SQUARE, 3.0).argument_bytes == 65536 + 4
    assert xray(jax.jit(scaled, static_argnums=1), SQUARE, 3.0).argument_bytes == 65536
    assert xray(scaled, SQUARE, 3.0).argument_bytes == 65536


def two(x, y):
    return x + 1, y * 2


@pytest.mark.parametrize(
    ("fn", "donated"),
    [
        (jax.jit(two, donate_argnums=1), 1),
        (eqx.filter_jit(two, donate="all"), 2),
        (eqx.filter_jit(two, donate="all-except-first"), 1),
        (eqx.filter_jit(two), 0),
    ],
)
def test_what_a_jit_donates_by_itself_is_donated_here(fn, donated):
    assert xray(fn, SQUARE, SQUARE).donated_bytes == donated * 65536


def x64():
    """Return a context with 64-bit types; newer JAX has it under another name."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    return importlib.import_module("jax.experimental").enable_x64()


def test_double_precision_and_no_arguments_compile():
    with x64():
        found = xray(chain, struct(64, dtype="float64"))
    assert (found.kernels, found.argument_bytes) == (1, 512)
    assert xray(lambda: jnp.arange(8.0)).kernels >= 1


def test_each_kernel_points_at_the_line_it_comes_from():
    def lines(x):
        y = jnp.sort(x, axis=0)
        return y @ x

    first = lines.__code__.co_firstlineno
    by_source = xray(lines, SQUARE).by_source()
    places = {source.line - first for source in by_source if source and source.file == __file__}
    assert places == {1, 2}


def test_a_line_is_this_programs_own_even_if_jax_traced_the_operation_elsewhere():
    def elsewhere(x):
        return jax.nn.softmax(x)

    def here(x):
        return jax.nn.softmax(x)

    for fn in (elsewhere, here):
        (source,) = xray(fn, SQUARE, gpu="h100").by_source()
        assert source is not None
        assert source.line == fn.__code__.co_firstlineno + 1


def test_here_reads_the_real_executable_of_this_machine():
    found = xray(loop, SQUARE, gpu="here")
    assert "cpu" in found.title.lower()
    assert found.kernels >= 100
    assert found.argument_bytes == 65536
    assert found.fits is None
    assert "autotuning" not in str(found)
    assert xray(add, SQUARE, SQUARE, gpu="here", donate=[1]).donated_bytes == 65536


def test_here_starts_no_worker():
    client.stop()
    xray(chain, SQUARE, gpu="here")
    assert client.worker_pid() is None


def test_wrong_requests_are_explained():
    with pytest.raises(ValueError, match="`gpu` is 'v100'; expected one of \"t4\""):
        xray(chain, SQUARE, gpu="v100")
    with pytest.raises(
        ValueError, match="`donate` names argument 1; expected positions from 0 to 0"
    ):
        xray(chain, SQUARE, donate=[1])
    with pytest.raises(TypeError, match="expected a function"):
        xray(jnp.ones(3), SQUARE)
    with pytest.raises(TypeError, match="incompatible shapes"):
        xray(add, SQUARE, struct(3, 128))
    with pytest.raises(XrayError, match="calls back to Python"):
        xray(lambda x: jax.pure_callback(abs, x, x), SQUARE)
    with pytest.raises(XrayError, match="calls back to Python"):
        xray(lambda x: jax.debug.print("{}", x), SQUARE)
