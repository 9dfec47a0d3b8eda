"""Every difference that compiles again is named, and nothing else is.

Each case calls one jitted function twice: what `explain` says has to agree with what XLA did.
"""

import functools
import gc
import inspect
import itertools
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from course_utils.instruments import _private_calls
from course_utils.instruments.compiles import count_compiles
from course_utils.instruments.jit_calls import JitCalls, record_jit_calls
from course_utils.instruments.retrace import (
    Change,
    call_signature,
    explain,
    explain_recompiles,
)

X = np.linspace(-1, 1, 4, dtype=np.float32)


class Net(eqx.Module):
    weight: jax.Array
    activation: Callable[..., jax.Array]
    rate: float = eqx.field(static=True)

    def __call__(self, x):
        return self.activation(x * self.weight) * self.rate


class TwoParts(eqx.Module):
    first: Net
    second: dict[str, Any]


@dataclass(frozen=True)
class Config:
    width: int


class Owner:
    def method(self, x):
        return x


def net(rate: float = 0.1, activation: Callable[..., jax.Array] = jax.nn.relu) -> Net:
    return Net(jnp.ones(4), activation, rate)


def step(state, x=1.0, threshold=0.5):
    """Takes anything: uses the arrays of its arguments."""
    arrays = jax.tree.leaves(eqx.filter((state, x, threshold), eqx.is_inexact_array))
    return sum((jnp.sum(each) for each in arrays), jnp.zeros(()))


def new_step() -> Callable[..., Any]:
    """The same code as `step`, in a function that no cache has seen."""

    def fresh(state, x=1.0, threshold=0.5):
        return step(state, x, threshold)

    return fresh


def new_rest() -> Callable[..., Any]:
    def fresh(first, *rest, **options):
        return step((first, rest, options))

    return fresh


@dataclass
class Call:
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def call(*args: Any, **kwargs: Any) -> Call:
    return Call(args, kwargs)


def ones(*shape: int, dtype: Any = jnp.float32) -> jax.Array:
    return jnp.ones(shape, dtype)


def committed() -> jax.Array:
    return jax.device_put(jnp.ones(4), jax.devices()[0])


def weak() -> jax.Array:
    return jnp.asarray(0.0)


def compare(
    jitted: Callable[..., Any], before: Call, after: Call
) -> tuple[tuple[Change, ...], int]:
    """Call twice; return what `explain` says and how many programs the second call compiled."""
    signatures = []
    count = 0
    for each in (before, after):
        signatures.append(call_signature(each.args, each.kwargs, function=jitted))
        with count_compiles() as compiles:
            jax.block_until_ready(jitted(*each.args, **each.kwargs))
        count = compiles().count
    return explain(*signatures), count


BOTH = [
    pytest.param(call(ones(4)), call(ones(3)), Change("state", "shape", "f32[4]", "f32[3]")),
    pytest.param(
        call({"w": ones(4)}),
        call({"w": ones(4, 1)}),
        Change("state['w']", "shape", "f32[4]", "f32[4,1]"),
    ),
    pytest.param(
        call([ones(4), {"rate": ones(2)}]),
        call([ones(4), {"rate": ones(2, dtype=jnp.bfloat16)}]),
        Change("state[1]['rate']", "dtype", "float32", "bfloat16"),
    ),
    pytest.param(
        call(weak()),
        call(jnp.zeros(())),
        Change("state", "weak type", "weak float32", "strong float32"),
    ),
    pytest.param(
        call([ones(4), ones(4)]),
        call((ones(4), ones(4))),
        Change("state", "tree structure", "a list of 2", "a tuple of 2"),
    ),
    pytest.param(
        call({"a": ones(4)}),
        call({"a": ones(4), "b": ones(4)}),
        Change("state", "tree structure", "a dict with keys {'a'}", "a dict with keys {'a', 'b'}"),
    ),
    pytest.param(
        call((ones(4), None)),
        call((ones(4), ones(4))),
        Change("state[1]", "tree structure", "None", "an array f32[4]"),
    ),
    pytest.param(
        call(ones(4)),
        call(committed()),
        Change("state", "placement", "uncommitted", "committed to cpu:0"),
    ),
    pytest.param(
        call((committed(), ones(4))),
        call((committed(), committed())),
        Change("state[1]", "placement", "uncommitted", "committed to cpu:0"),
    ),
    pytest.param(
        call(X),
        call(committed()),
        Change("state", "placement", "uncommitted", "committed to cpu:0"),
    ),
    pytest.param(
        call(ones(4)),
        call(ones(4), 1.0),
        Change("x", "call spelling", "left to its default 1.0", "passed"),
    ),
    pytest.param(
        call(jax.random.key(0)),
        call(jax.random.key(0, impl="rbg")),
        Change("state", "dtype", "key<fry>", "key<rbg>"),
    ),
    pytest.param(
        call(jax.random.key(0)),
        call(jax.random.split(jax.random.key(0), 2)),
        Change("state", "shape", "key<fry>[]", "key<fry>[2]"),
    ),
]

SAME_IN_BOTH = [
    pytest.param(call(ones(4)), call(ones(4) + 1), id="values"),
    pytest.param(call(ones(4)), call(X), id="jax then numpy"),
    pytest.param(call(np.ones(4)), call(X), id="float64 of numpy is float32 in jax"),
    pytest.param(call(np.float32(1)), call(jnp.zeros(())), id="a numpy scalar is an array"),
    pytest.param(
        call({"a": ones(4), "b": ones(3)}), call({"b": ones(3), "a": ones(4)}), id="order of keys"
    ),
    pytest.param(
        call(ones(4), x=ones(2), threshold=ones(2)),
        call(ones(4), threshold=ones(2), x=ones(2)),
        id="order of keywords",
    ),
    pytest.param(call(committed()), call(committed()), id="placed both times"),
    pytest.param(call(jax.random.key(0)), call(jax.random.key(1)), id="another key"),
]


@pytest.mark.parametrize("jit", [jax.jit, eqx.filter_jit])
@pytest.mark.parametrize(("before", "after", "change"), BOTH)
def test_a_change_is_named_and_compiles_again(jit, before, after, change):
    assert compare(jit(new_step()), before, after) == ((change,), 1)


@pytest.mark.parametrize("jit", [jax.jit, eqx.filter_jit])
@pytest.mark.parametrize(("before", "after"), SAME_IN_BOTH)
def test_equal_calls_neither_differ_nor_compile(jit, before, after):
    assert compare(jit(new_step()), before, after) == ((), 0)


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        pytest.param(
            call(ones(4), 1.0), call(ones(4), 1), Change("x", "dtype", "float32", "int32")
        ),
        pytest.param(
            call(ones(4), 1.0),
            call(ones(4), jnp.zeros(())),
            Change("x", "weak type", "weak float32", "strong float32"),
        ),
        pytest.param(
            call(ones(4), ones(4)),
            call(ones(4), x=ones(4)),
            Change("x", "call spelling", "passed by position", "passed by keyword"),
        ),
    ],
)
def test_jax_jit_keys_on_python_types_and_spelling(before, after, change):
    assert compare(jax.jit(new_step()), before, after) == ((change,), 1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(call(ones(4), 1.0), call(ones(4), 2.0), id="a Python number is traced"),
        pytest.param(call(ones(4), 1.0), call(ones(4), weak()), id="and is weakly typed"),
        pytest.param(call(ones(4), True), call(ones(4), jnp.array(False)), id="but a bool is not"),
    ],
)
def test_jax_jit_traces_python_numbers(before, after):
    assert compare(jax.jit(new_step()), before, after) == ((), 0)


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        pytest.param(
            call(ones(4), ones(4), 0.1),
            call(ones(4), ones(4), 0.2),
            Change("threshold", "static value", "0.1", "0.2"),
        ),
        pytest.param(
            call(ones(4), "mean"),
            call(ones(4), "sum"),
            Change("x", "static value", "'mean'", "'sum'"),
        ),
        pytest.param(
            call(ones(4), 0.1),
            call(ones(4), weak()),
            Change("x", "static value", "the static 0.1", "an array f32[]"),
        ),
        pytest.param(
            call([ones(4), {"rate": 0.1}]),
            call([ones(4), {"rate": 0.2}]),
            Change("state[1]['rate']", "static value", "0.1", "0.2"),
        ),
        pytest.param(
            call(net(0.1)), call(net(0.2)), Change("state.rate", "static value", "0.1", "0.2")
        ),
        pytest.param(
            call(TwoParts(net(0.1), {"a": [1, 2]})),
            call(TwoParts(net(0.1), {"a": [1, 3]})),
            Change("state.second['a'][1]", "static value", "2", "3"),
        ),
        pytest.param(
            call(TwoParts(net(0.1), {})),
            call(TwoParts(net(0.3), {})),
            Change("state.first.rate", "static value", "0.1", "0.3"),
        ),
        pytest.param(
            call(ones(4), Config(3)),
            call(ones(4), Config(4)),
            Change("x", "static value", "Config(width=3)", "Config(width=4)"),
        ),
        pytest.param(
            call(ones(4), float("nan")),
            call(ones(4), float("nan")),
            Change("x", "static value", "nan", "another float object, not equal to the first"),
        ),
    ],
)
def test_filter_jit_keys_on_static_values(before, after, change):
    assert compare(eqx.filter_jit(new_step()), before, after) == ((change,), 1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(call(ones(4), ones(4)), call(ones(4), x=ones(4)), id="spelling"),
        pytest.param(call(ones(4), 1), call(ones(4), 1.0), id="numbers that are equal"),
        pytest.param(
            call(ones(4), Config(3)), call(ones(4), Config(3)), id="objects that are equal"
        ),
        pytest.param(call(net()), call(net()), id="modules built alike"),
        pytest.param(call(ones(4), np.nan), call(ones(4), np.nan), id="one NaN object"),
    ],
)
def test_filter_jit_takes_equal_static_values_for_one(before, after):
    assert compare(eqx.filter_jit(new_step()), before, after) == ((), 0)


def test_a_bound_method_of_one_object_stays_itself_in_filter_jit():
    owner = Owner()
    before, after = call(ones(4), owner.method), call(ones(4), owner.method)
    assert compare(eqx.filter_jit(new_step()), before, after) == ((), 0)
    after = call(ones(4), Owner().method)
    (change,), count = compare(eqx.filter_jit(new_step()), before, after)
    assert (change.path, change.kind, count) == ("x", "function identity", 1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(lambda: lambda v: v, lambda: lambda v: v, id="lambda"),
        pytest.param(
            lambda: functools.partial(jnp.maximum, 0.0),
            lambda: functools.partial(jnp.maximum, 0.0),
            id="partial",
        ),
        pytest.param(lambda: jax.jit(new_step()), lambda: jax.jit(new_step()), id="jitted"),
        pytest.param(lambda: jax.nn.relu, lambda: jax.nn.gelu, id="another function"),
    ],
)
def test_a_function_in_a_module_is_named_by_its_field(before, after):
    (change,), count = compare(
        eqx.filter_jit(new_step()),
        call(net(activation=before())),
        call(net(activation=after())),
    )
    assert (change.path, change.kind, count) == ("state.activation", "function identity", 1)


def test_a_function_of_jax_goes_by_its_name_alone():
    before, after = (call_signature((net(activation=f),)) for f in (jax.nn.relu, jax.nn.gelu))
    assert explain(before, after) == (
        Change("args[0].activation", "function identity", "`relu`", "`gelu`"),
    )


def test_a_function_identity_says_where_both_stand():
    def first(v):
        return v

    def second(v):
        return v

    lines = [inspect.getsourcelines(each)[1] for each in (first, second)]
    (change,), _ = compare(
        eqx.filter_jit(new_step()), call(net(activation=first)), call(net(activation=second))
    )
    assert change.before == f"`first` (line {lines[0]} of test_retrace.py)"
    assert change.after == f"`second` (line {lines[1]} of test_retrace.py)"


@pytest.mark.parametrize(
    ("options", "before", "after", "change"),
    [
        (
            {"static_argnums": 2},
            call(ones(4), ones(4), 1),
            call(ones(4), ones(4), 2),
            Change("threshold", "static value", "1", "2"),
        ),
        (
            {"static_argnums": 2},
            call(ones(4), ones(4), 1),
            call(ones(4), ones(4), 1.0),
            Change("threshold", "static value", "1", "1.0"),
        ),
        (
            {"static_argnames": "threshold"},
            call(ones(4), threshold=1),
            call(ones(4), threshold=2),
            Change("threshold", "static value", "1", "2"),
        ),
        (
            {"static_argnames": "threshold"},
            call(ones(4), ones(4), 1),
            call(ones(4), ones(4), threshold=1),
            Change("threshold", "call spelling", "passed by position", "passed by keyword"),
        ),
    ],
)
def test_static_arguments_of_jax_jit(options, before, after, change):
    assert compare(jax.jit(new_step(), **options), before, after) == ((change,), 1)


def test_what_differs_inside_a_static_field_is_named():
    class Table(eqx.Module):
        weight: jax.Array
        options: Any = eqx.field(static=True)

    def table(*options: Any) -> Table:
        return Table(jnp.ones(4), options)

    before, after = call(table("a", 1, jax.nn.relu)), call(table("a", 2, jax.nn.gelu))
    changes, count = compare(eqx.filter_jit(new_step()), before, after)
    assert [(each.path, each.kind) for each in changes] == [
        ("state.options[1]", "static value"),
        ("state.options[2]", "function identity"),
    ]
    assert count == 1


def test_static_data_of_other_containers_is_named():
    before, after = (jax.tree_util.Partial(new_step(), 1.0) for _ in range(2))
    (change,), count = compare(eqx.filter_jit(new_step()), call(before), call(after))
    assert (change.path, change.kind, count) == ("state.func", "function identity", 1)


def test_a_filter_jit_function_as_an_argument_is_one_function():
    inner = new_step()
    same = call(ones(4), eqx.filter_jit(inner)), call(ones(4), eqx.filter_jit(inner))
    assert compare(eqx.filter_jit(new_step()), *same) == ((), 0)
    other = call(ones(4), eqx.filter_jit(new_step()))
    (change,), count = compare(eqx.filter_jit(new_step()), same[0], other)
    assert (change.path, change.kind, count) == ("x", "function identity", 1)


def test_objects_that_refuse_to_be_looked_at_are_taken_in_stride():
    class Stubborn:
        def __eq__(self, other):
            raise RuntimeError("no comparison")

        def __hash__(self):
            return 1

        def __repr__(self):
            raise RuntimeError("no text")

    signature = call_signature((Stubborn(), np.array(["text"]), 2**70), function=step)
    assert "a Stubborn" in str(signature.entries["state"])
    assert explain(signature, signature) == ()
    donated = ones(4)
    donated.delete()
    assert explain(call_signature((donated,)), call_signature((ones(4),))) == ()


def test_rest_arguments_are_named_as_they_are_used():
    before = call(ones(4), ones(4), ones(3), scale=ones(2))
    after = call(ones(4), ones(4), ones(5), scale=ones(1))
    changes, count = compare(jax.jit(new_rest()), before, after)
    assert [each.path for each in changes] == ["rest[1]", "scale"]
    assert count == 1


def test_a_module_that_is_called_is_self():
    changes = explain(
        call_signature((ones(4),), function=eqx.filter_jit(net(0.1))),
        call_signature((ones(4),), function=eqx.filter_jit(net(0.2))),
    )
    assert changes == (Change("self.rate", "static value", "0.1", "0.2"),)


@pytest.mark.parametrize("jit", [jax.jit, eqx.filter_jit])
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: lambda x: x * 2, id="lambda"),
        pytest.param(lambda: functools.partial(jnp.add, 2.0), id="partial"),
        pytest.param(lambda: functools.partial(jnp.multiply, 3.0), id="partial of another"),
    ],
)
def test_a_function_made_anew_for_each_jit_is_named(jit, make):
    signatures, counts = [], []
    x = ones(4)
    for _ in range(3):
        jitted = jit(make())
        signatures.append(call_signature((x,), function=jitted))
        with count_compiles() as compiles:
            jitted(x)
        counts.append(compiles().count)
        del jitted
        gc.collect()  # the next function may get the same address
    assert counts == [1, 1, 1]
    for before, after in itertools.pairwise(signatures):
        (change,) = explain(before, after)
        assert change.kind == "function identity"
        assert change.after == "a new object of the same code"


def test_jit_again_of_one_function_is_no_change():
    function, x = new_step(), ones(4)
    jax.jit(function)(x)
    with count_compiles() as compiles:
        jax.jit(function)(x)
    assert compiles().count == 0
    before = call_signature((x,), function=jax.jit(function))
    assert explain(before, call_signature((x,), function=jax.jit(function))) == ()


def test_jit_of_a_bound_method_is_another_function_each_time():
    owner, x = Owner(), ones(4)
    before = call_signature((x,), function=jax.jit(owner.method))
    jax.jit(owner.method)(x)
    with count_compiles() as compiles:
        jax.jit(owner.method)(x)
    (change,) = explain(before, call_signature((x,), function=jax.jit(owner.method)))
    assert (change.path, change.kind, compiles().count) == ("method", "function identity", 1)


def test_shape_structs_stand_for_arrays():
    struct = jax.ShapeDtypeStruct((4,), jnp.float32)
    assert explain(call_signature((struct,)), call_signature((ones(4),))) == ()
    (change,) = explain(call_signature((struct,)), call_signature((ones(5),)))
    assert change == Change("args[0]", "shape", "f32[4]", "f32[5]")


def test_several_changes_come_in_the_order_of_the_arguments():
    before = call_signature((net(0.1), ones(4)), {"threshold": 1}, function=step)
    after = call_signature((net(0.2), ones(5)), {"threshold": 2}, function=step)
    assert [(each.path, each.kind) for each in explain(before, after)] == [
        ("state.rate", "static value"),
        ("x", "shape"),
        ("threshold", "static value"),
    ]


def test_an_argument_that_vanishes_says_so_once():
    before = call_signature((), {"state": {"a": ones(4), "b": ones(4)}})
    after = call_signature((), {"statement": ones(4)})
    assert [(each.path, each.kind) for each in explain(before, after)] == [
        ("state", "tree structure"),
        ("statement", "tree structure"),
    ]


def test_a_signature_keeps_nothing_alive():
    def activation(v):
        return v

    array, model, config = ones(4), net(activation=activation), Config(3)
    kept = [weakref.ref(each) for each in (array, model.weight, activation, config)]
    signature = call_signature((array, model, config), function=jax.jit(activation))
    del array, model, activation, config
    gc.collect()
    assert [each() for each in kept] == [None] * len(kept)
    assert signature.entries


def test_an_equal_object_that_is_gone_still_compares_equal():
    before = call_signature((Config(3),))
    gc.collect()
    assert explain(before, call_signature((Config(3),))) == ()
    assert len(explain(before, call_signature((Config(4),)))) == 1


def test_sentences_are_plain():
    assert (
        Change("threshold", "static value", "0.1", "0.2").sentence()
        == "argument `threshold` is a static value: it was 0.1 and is now 0.2"
    )
    assert (
        Change(
            "<lambda>", "function identity", "`<lambda>`", "a new object of the same code"
        ).sentence()
        == "`<lambda>` is another function object: it was `<lambda>` and is now a new object of "
        "the same code"
    )


def test_a_stream_is_explained_by_the_nearest_earlier_call():
    calls = [(ones(4), 0.1), (ones(5), 0.1), (ones(4), 0.1), (ones(5), 0.2)]
    signatures = [call_signature((ones(2), *each), function=step) for each in calls]
    first, second = explain_recompiles(signatures, [0, 1, 3])
    assert (first.call, first.nearest) == (1, 0)
    assert [each.path for each in first.changes] == ["x"]
    assert (second.call, second.nearest) == (3, 1)
    assert second.sentence() == (
        "`step` compiled again: argument `threshold` is a static value: it was 0.1 and is now 0.2"
    )


def test_a_compile_without_a_change_is_owned_up_to():
    signatures = [call_signature((ones(4),), function=step)] * 2
    (again,) = explain_recompiles(signatures, [0, 1])
    assert again.changes == ()
    assert "nothing in the call changed" in again.sentence()


# -- calls inside somebody else's code -----------------------------------------------------------


def record(function: Callable[[int], Any], times: int = 3) -> JitCalls:
    with record_jit_calls() as recorder:
        for number in range(times):
            function(number)
    return recorder()


def test_this_jax_lets_misses_be_watched():
    assert _private_calls.can_watch_misses()


def test_an_inner_filter_jit_is_named_with_its_argument_and_line():
    @eqx.filter_jit
    def inner(x, threshold):
        return x * threshold

    x = ones(4)

    def outer(number):
        return inner(x, 0.5 + number)  # this line

    calls = record(outer)
    recompiles = calls.recompiles()
    assert [each.sentence() for each in recompiles] == [
        "`inner` compiled again: argument `threshold` is a static value: it was 0.5 and is now 1.5",
        "`inner` compiled again: argument `threshold` is a static value: it was 1.5 and is now 2.5",
    ]
    assert all(each.line and each.line.text.endswith("# this line") for each in recompiles)


def test_an_inner_jit_is_named_with_its_argument():
    @jax.jit
    def inner(x, y):
        return x.sum() + y.sum()

    x, ys = ones(4), [ones(n + 1) for n in range(3)]
    recompiles = record(lambda number: inner(x, ys[number])).recompiles()
    assert [change.sentence() for each in recompiles for change in each.changes] == [
        "argument `y` changed its shape: it was f32[1] and is now f32[2]",
        "argument `y` changed its shape: it was f32[2] and is now f32[3]",
    ]


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: jax.jit(lambda v: v - 1), id="lambda"),
        pytest.param(lambda: jax.jit(functools.partial(step, x=2.0)), id="partial"),
        pytest.param(lambda: jax.jit(jax.grad(lambda v: jnp.sum(v**2))), id="grad"),
        pytest.param(lambda: jax.jit(jax.vmap(lambda v: v * 3)), id="vmap"),
        pytest.param(lambda: eqx.filter_jit(lambda v: v - 1), id="filter_jit lambda"),
        pytest.param(
            lambda: eqx.filter_jit(eqx.filter_grad(lambda v: jnp.sum(v**2))), id="filter_grad"
        ),
    ],
)
def test_a_jit_made_at_the_call_site_is_a_function_identity(make):
    x = ones(4)
    recompiles = record(lambda _: make()(x)).recompiles()
    assert len(recompiles) == 2
    for each in recompiles:
        (change,) = each.changes
        assert change.kind == "function identity"
        assert change.path in ("<lambda>", "partial(step)")
        assert "test_retrace.py" in change.before


def over_rows(function):
    return jax.jit(lambda image: jax.vmap(function)(image))


def over_rows_filtered(function):
    return eqx.filter_jit(lambda image: jax.vmap(function)(image))


@pytest.mark.parametrize("make", [over_rows, over_rows_filtered])
def test_two_functions_of_one_factory_made_before_are_two(make):
    double, square = make(lambda row: row * 2), make(lambda row: row**2)
    images = [jnp.ones((n + 2, 3)) for n in range(3)]
    calls = record(lambda _: square(double(images[0])))
    assert [each.compiled for each in calls.calls if not each.is_library] == [True, True]
    assert calls.recompiles() == ()
    shapes = record(lambda number: square(double(images[number + 1])), times=2).recompiles()
    assert [change.kind for each in shapes for change in each.changes] == ["shape", "shape"]


def test_two_lambdas_of_one_line_are_two():
    x = ones(4)

    def outer(_):
        kept = jax.jit(lambda v: v * 2), jax.jit(lambda v: v * 5)
        return kept[1](kept[0](x))

    assert record(outer, times=1).recompiles() == ()
    assert len(record(outer).recompiles()) == 4


def test_functions_kept_in_a_cache_count_as_one_the_next_time_as_well():
    cache, x = {}, ones(4)

    def outer(number):
        if number not in cache:
            cache[number] = jax.jit(functools.partial(step, x=float(number)))
        cache[number].clear_cache()
        return cache[number](x)

    assert [len(record(outer).recompiles()) for _ in range(2)] == [2, 2]


def test_calls_that_the_cache_serves_are_not_recorded():
    inner, x = jax.jit(new_step()), ones(4)
    calls = record(lambda _: inner(x))
    assert [(each.name, each.compiled) for each in calls.calls] == [("fresh", True)]
    assert calls.recompiles() == ()


def test_a_jit_inside_a_jit_counts_as_part_of_it():
    inner = jax.jit(new_step())
    outer = jax.jit(lambda x: inner(x) + 1)
    calls = record(lambda number: outer(ones(number + 1)))
    assert {each.name for each in calls.calls if not each.is_library} == {"<lambda>"}


def test_a_miss_that_compiles_nothing_is_told_apart():
    @jax.jit
    def printing(x):
        jax.debug.callback(lambda _: None, x)  # leaves the fast path at each call
        return x + 1

    x = ones(4)
    calls = record(lambda _: printing(x))
    assert [each.compiled for each in calls.calls if each.name == "printing"] == [
        True,
        False,
        False,
    ]
    assert calls.recompiles() == ()


def test_eager_operations_are_left_out_unless_asked_for():
    xs = [ones(11 + n) for n in range(3)]
    calls = record(lambda number: jnp.flip(xs[number]))
    assert calls.recompiles() == ()
    assert len(calls.recompiles(library=True)) == len(calls.compiled_names) - 1


def test_without_a_place_to_watch_names_are_still_reported(monkeypatch):
    monkeypatch.setattr(_private_calls, "can_watch_misses", lambda: False)
    inner = jax.jit(new_step())
    xs = [ones(n + 1) for n in range(2)]
    calls = record(lambda number: inner(xs[number]), times=2)
    (again,) = calls.recompiles()
    assert not calls.can_explain
    assert again.name == "fresh"
    assert "no earlier call of it was seen" in again.sentence()


def test_jax_is_left_as_it_was():
    from equinox import _jit as equinox_jit
    from jax._src import pjit

    before = (pjit._infer_params, equinox_jit._call)
    with pytest.raises(ZeroDivisionError), record_jit_calls():
        raise ZeroDivisionError
    assert (pjit._infer_params, equinox_jit._call) == before


def test_an_error_in_the_learners_function_comes_through_unchanged():
    @eqx.filter_jit
    def broken(x):
        raise RuntimeError("the learner's own")

    with record_jit_calls() as recorder, pytest.raises(RuntimeError, match="the learner's own"):
        broken(ones(4))
    assert [each.compiled for each in recorder().calls if each.name == "broken"] == [False]
