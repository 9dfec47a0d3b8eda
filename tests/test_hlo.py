"""The parser of HLO text, and the facts read from a compiled program."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from course_utils.instruments._hlo_text import HloSyntaxError, SourceLine, parse, shape_bytes
from course_utils.instruments.hlo import program_of, read_program
from course_utils.instruments.memory import memory_of

VECTOR = jax.ShapeDtypeStruct((256,), jnp.float32)
SQUARE = jax.ShapeDtypeStruct((16, 16), jnp.float32)

# Written in the forms that XLA prints: a tuple with index comments, brackets and escaped quotes in
# strings, typed operands, names without a percent sign, a layout with tiles, a source table.
HAND_MADE = (Path(__file__).parent / "data" / "hand_made.hlo").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def hand_made():
    return parse(HAND_MADE)


def test_computations_and_the_entry_are_found(hand_made):
    assert hand_made.name == "jit_f"
    assert list(hand_made.computations) == ["adder", "body.2", "condition.3", "main.9"]
    assert hand_made.entry.name == "main.9"
    assert hand_made.instruction_count == 3 + 6 + 4 + 8


def test_aliases_say_which_argument_is_written_over(hand_made):
    assert [(a.output, a.parameter, a.index, a.kind) for a in hand_made.aliases] == [
        ((0,), 1, (), "may-alias"),
        ((1, 0), 2, (3,), "must-alias"),
    ]


def test_instructions_are_taken_apart(hand_made):
    body = hand_made.computations["body.2"].by_name
    assert body["state"].shape == "(s32[], f32[8]{0:T(128)})"
    assert body["count"].operands == ("state",)
    assert body["called"].custom_call_target == "__cublas$gemm"
    assert body["called"].backend_config.endswith(r"\"alpha\": 1}" + '"')
    assert body["called"].bytes == 8 * 4
    assert hand_made.computations["body.2"].root.name == "out"
    entry = hand_made.entry.by_name
    assert entry["total"].operands == ("final", "zero")
    assert entry["total"].called() == ("adder",)
    assert entry["loop"].called("body") == ("body.2",)
    assert entry["loop"].trip_count == 5
    assert entry["table"].literal == "{ { 1, 2 },\n    { 3, 4 } }"
    assert entry["zero"].trip_count is None


def test_source_lines_are_read_from_metadata_and_from_the_tables(hand_made):
    added = hand_made.computations["adder"].root
    assert added.source == SourceLine("/home/someone/a, b.py", 7)
    assert added.op_name == "jit(f)/reduce_sum[axes=(0,)]"
    assert str(hand_made.entry.root.source) == "/home/someone/step (1).py:12"
    assert hand_made.entry.by_name["x"].source is None


def test_steps_go_through_loops_and_not_into_reducers(hand_made):
    reached = {step.instruction.name: step for step in hand_made.steps()}
    assert reached["called"].times == 5
    assert reached["called"].loops == ("loop",)
    assert reached["total"].times == 1
    assert "sum.1" not in reached


def test_facts_of_the_hand_made_program():
    program = read_program(HAND_MADE)
    assert program.ops == {"custom-call": 1, "compare": 1, "reduce": 1, "broadcast": 1}
    assert program.custom_calls == {"__cublas$gemm": 1}
    assert (program.kernels, program.runs) == (4, 5 + 5 + 1 + 1)
    (loop,) = program.loops
    assert (loop.name, loop.trip_count, loop.kernels, loop.depth) == ("loop", 5, 2, 0)


@pytest.mark.parametrize("text", ["", "HloModule jit_f\n", "module @jit_f {\n}\n"])
def test_other_text_is_refused(text):
    with pytest.raises(HloSyntaxError, match="no ENTRY computation"):
        parse(text)


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ("f32[]", 4),
        ("f32[8,8]{1,0}", 256),
        ("bf16[3]{0:T(1024)(128)}", 6),
        ("pred[5]", 5),
        ("c64[2]", 16),
        ("f8e4m3fn[7]", 7),
        ("s4[3]{0:E(4)}", 2),
        ("f32[<=10]", 40),
        ("(s32[], /*index=1*/f32[7]{0})", 32),
        ("token[]", 0),
        ("f32[0]", 0),
    ],
)
def test_sizes_of_shapes(shape, size):
    assert shape_bytes(shape) == size


# -- programs that the XLA at hand compiled --------------------------------------------------------


def test_an_elementwise_chain_is_one_kernel():
    def chain(x):
        for _ in range(10):
            x = jnp.sin(x) * 1.1 + 0.3
        return x

    for function in (chain, jax.jit(chain), eqx.filter_jit(chain)):
        assert program_of(function, VECTOR).kernels == 1


def test_a_scan_is_a_loop_with_its_length():
    def scanned(x, steps):
        return jax.lax.scan(lambda c, _: (jnp.tanh(c @ c), None), x, None, length=steps)[0]

    program = program_of(scanned, SQUARE, 7)
    (loop,) = program.loops
    assert loop.trip_count == 7
    assert loop.kernels > 0
    assert program.runs is not None
    assert program.runs >= 7 * 2  # a product and a tanh each time
    assert program_of(scanned, SQUARE, 9).kernels == program.kernels


def test_loops_in_loops_are_multiplied():
    def inner(c, _):
        return jax.lax.scan(lambda c, _: (jnp.tanh(c @ c), None), c, None, length=5)[0], None

    program = program_of(lambda x: jax.lax.scan(inner, x, None, length=3)[0], SQUARE)
    assert sorted((each.depth, each.trip_count) for each in program.loops) == [(0, 3), (1, 5)]
    assert max(step.times or 0 for step in program.module.steps()) == 15


def test_a_loop_of_unknown_length_says_so():
    program = program_of(
        lambda x: jax.lax.while_loop(lambda x: x.sum() < 100.0, lambda x: x @ x, x), SQUARE
    )
    assert [each.trip_count for each in program.loops] == [None]
    assert program.runs is None


def test_both_branches_of_a_cond_are_counted():
    program = program_of(
        lambda x: jax.lax.cond(x[0, 0] > 0, lambda x: x @ x, lambda x: jnp.sort(x, 0), x), SQUARE
    )
    assert "sort" in program.ops
    assert {step.branches != () for step in program.module.steps()} == {True, False}


def test_an_unrolled_loop_is_a_larger_program():
    def unrolled(x, steps):
        for _ in range(steps):
            x = jnp.tanh(x @ x)
        return x

    short, long = program_of(unrolled, SQUARE, 5), program_of(unrolled, SQUARE, 50)
    assert long.instructions > 5 * short.instructions
    assert long.lines > long.instructions


def test_the_line_of_a_product_is_this_file():
    program = program_of(
        lambda x: jax.lax.scan(lambda c, _: (c @ c, None), x, None, length=3), SQUARE
    )
    (loop,) = program.loops
    assert loop.source is not None
    assert loop.source.file.endswith("test_hlo.py")


def test_the_parser_agrees_with_the_memory_plan():
    def update(params, grads):
        return params - 0.1 * grads, (grads.sum(), grads * 2)

    jitted = jax.jit(update, donate_argnums=0)
    module = program_of(jitted, SQUARE, SQUARE).module
    plan = memory_of(jitted, SQUARE, SQUARE)
    parameters = [each for each in module.entry.instructions if each.opcode == "parameter"]
    assert sum(each.bytes for each in parameters) == plan.argument_bytes
    assert [(alias.output, alias.parameter) for alias in module.aliases] == [((0,), 0)]
    # The plan counts the pointers of the result's tuple too.
    assert module.entry.root.bytes <= plan.output_bytes


def test_every_line_of_a_large_program_is_read():
    model = eqx.nn.MLP(16, 16, 32, 3, key=jax.random.key(0))

    def loss(model, x):
        return jnp.sum(jax.vmap(model)(x) ** 2) + jnp.linalg.svd(x, compute_uv=False).sum()

    step: Any = eqx.filter_jit(eqx.filter_value_and_grad(loss))
    text = step.lower(model, jnp.ones((16, 16))).compile().compiled.as_text()
    module = parse(text)
    assert module.instruction_count == sum(" = " in line for line in text.splitlines())
    known = set(module.computations)
    for computation in module.computations.values():
        for each in computation.instructions:
            assert set(each.called()) <= known
            assert set(each.operands) <= set(computation.by_name)


@pytest.mark.parametrize("jit", [jax.jit, eqx.filter_jit])
def test_a_compiled_program_is_read_as_it_is(jit):
    x = jnp.ones(256)
    compiled = jit(lambda x: jnp.sin(x) + 1).lower(x).compile()
    assert program_of(compiled).ops["fusion"] == 1
