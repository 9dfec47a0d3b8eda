"""Submissions of the lab underfused_rollout."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from course_utils.labs.underfused_rollout import BUCKET, DT, step
from tests.submissions import fails, packaged, passes

LAB = "underfused_rollout"


def padded(commands):
    """Return the commands padded to the bucket, on the host."""
    return np.pad(commands, ((0, BUCKET - len(commands)), (0, 0)))


def given(commands):
    """Return which of the padded commands were given."""
    return np.arange(BUCKET) < len(commands)


def masked_turn(drone):
    """Return the body of a scan that skips commands that were not given."""

    def turn(state, each):
        command, is_given = each
        return jnp.where(is_given, step(drone, state, command), state), None

    return turn


def masked_scan(drone, state, commands, mask, unroll=1):
    state, _ = jax.lax.scan(masked_turn(drone), state, (commands, mask), unroll=unroll)
    return state


# Right, in other idioms.


@eqx.filter_jit
def _counted(drone, state, commands, count):
    return jax.lax.fori_loop(0, count, lambda i, state: step(drone, state, commands[i]), state)


def fori_loop_to_the_length(drone, state, commands):
    return _counted(drone, state, padded(commands), np.int32(len(commands)))


@eqx.filter_jit
def _with_times(drone, state, commands, times):
    def turn(state, each):
        command, time = each
        middle = state + time / 2 * drone(state, command)
        return state + time * drone(middle, command), None

    return jax.lax.scan(turn, state, (commands, times))[0]


def padding_takes_no_time(drone, state, commands):
    times = np.where(given(commands), np.float32(DT), np.float32(0))
    return _with_times(drone, state, padded(commands), times)


class Simulator(eqx.Module):
    """A simulator whose jitted method unrolls four steps."""

    @eqx.filter_jit
    def run(self, drone, state, commands, mask):
        return masked_scan(drone, state, commands, mask, unroll=4)

    def __call__(self, drone, state, commands):
        return self.run(drone, state, padded(commands), given(commands))


_on_arrays: dict[Any, Any] = {}


def jitted_on_arrays(drone, state, commands):
    arrays, rest = eqx.partition(drone, eqx.is_array)
    leaves, tree = jax.tree.flatten(rest)
    if tree not in _on_arrays:
        _on_arrays[tree] = jax.jit(
            lambda arrays, *others: masked_scan(
                eqx.combine(arrays, jax.tree.unflatten(tree, leaves)), *others
            )
        )
    return _on_arrays[tree](arrays, state, padded(commands), given(commands))


_compiled: dict[str, Any] = {}


def ahead_of_time(drone, state, commands):
    args = (drone, state, jnp.asarray(padded(commands)), jnp.asarray(given(commands)))
    if "run" not in _compiled:
        jitted: Any = eqx.filter_jit(masked_scan)
        _compiled["run"] = jitted.lower(*args).compile()
    return _compiled["run"](*args)


# Wrong.


@eqx.filter_jit
def _unrolled(drone, state, commands, mask):
    turn = masked_turn(drone)
    for i in range(BUCKET):
        state, _ = turn(state, (commands[i], mask[i]))
    return state


def hoisted_but_unrolled(drone, state, commands):
    return _unrolled(drone, state, padded(commands), given(commands))


@eqx.filter_jit
def _all_at_once(drone, state, commands, mask):
    return masked_scan(drone, state, commands, mask, unroll=BUCKET)


def scan_that_unrolls_everything(drone, state, commands):
    return _all_at_once(drone, state, padded(commands), given(commands))


@eqx.filter_jit
def _any_length(drone, state, commands):
    return jax.lax.scan(lambda s, command: (step(drone, s, command), None), state, commands)[0]


def scan_without_padding(drone, state, commands):
    return _any_length(drone, state, commands)


def scan_with_the_body_in_the_call(drone, state, commands):
    @eqx.filter_jit
    def run(state, commands, mask):
        return masked_scan(drone, state, commands, mask)

    return run(state, padded(commands), given(commands))


def scan_outside_jit(drone, state, commands):
    return masked_scan(drone, state, padded(commands), given(commands))


@eqx.filter_jit
def _up_to(drone, state, commands, count):
    return masked_scan(drone, state, commands, jnp.arange(BUCKET) < count)


def length_as_a_python_number(drone, state, commands):
    return _up_to(drone, state, padded(commands), len(commands))


def mask_forgotten(drone, state, commands):
    return _any_length(drone, state, padded(commands))


@eqx.filter_jit
def _until_no_command(drone, state, commands):
    return masked_scan(drone, state, commands, jnp.any(commands != 0, axis=1))


def zeros_taken_for_padding(drone, state, commands):
    return _until_no_command(drone, state, padded(commands))


def mask_by_a_slice_from_the_end(drone, state, commands):
    """Nothing is left of a plan that fills the bucket: the slice is all of it."""
    mask = np.ones(BUCKET, bool)
    mask[-(BUCKET - len(commands)) :] = False
    return _masked(drone, state, padded(commands), mask)


@eqx.filter_jit
def _masked(drone, state, commands, mask):
    return masked_scan(drone, state, commands, mask)


def commands_clipped_in_place(drone, state, commands):
    np.clip(commands, -2.0, 2.0, out=commands)
    return _masked(drone, state, padded(commands), given(commands))


def commands_padded_in_place(drone, state, commands):
    mask = given(commands)
    commands.resize((BUCKET, 3), refcheck=False)
    return _masked(drone, state, commands, mask)


_step = eqx.filter_jit(step)


def jitted_step_in_a_loop(drone, state, commands):
    for command in commands:
        state = _step(drone, state, command)
    return state


@eqx.filter_jit
def _euler(drone, state, commands, mask):
    def turn(state, each):
        command, is_given = each
        return jnp.where(is_given, state + DT * drone(state, command), state), None

    return jax.lax.scan(turn, state, (commands, mask))[0]


def half_of_the_midpoint_rule(drone, state, commands):
    return _euler(drone, state, padded(commands), given(commands))


@eqx.filter_jit
def _half_precision(drone, state, commands, mask):
    def lower(leaf):
        return leaf.astype(jnp.bfloat16) if eqx.is_inexact_array(leaf) else leaf

    low = jax.tree.map(lower, drone)

    def turn(state, each):
        command, is_given = each
        change = low(lower(state), lower(command)).astype(jnp.float32)
        middle = low(lower(state + DT / 2 * change), lower(command)).astype(jnp.float32)
        return jnp.where(is_given, state + DT * middle, state), None

    return jax.lax.scan(turn, state, (commands, mask))[0]


def drone_in_bfloat16(drone, state, commands):
    return _half_precision(drone, state, padded(commands), given(commands))


RECOMPILES = "recompiles on the first pass"

SUBMISSIONS = [
    *packaged(LAB, broken_fails_by=RECOMPILES),
    passes(LAB, "fori loop to the length", rollout=fori_loop_to_the_length),
    passes(LAB, "padding takes no time", rollout=padding_takes_no_time),
    passes(LAB, "jitted method that unrolls four steps", rollout=Simulator()),
    passes(LAB, "jax jit on a partitioned drone", rollout=jitted_on_arrays),
    passes(LAB, "compiled ahead of time", rollout=ahead_of_time),
    fails(LAB, "hoisted but unrolled", "program size", rollout=hoisted_but_unrolled),
    fails(LAB, "everything unrolled", "program size", rollout=scan_that_unrolls_everything),
    fails(LAB, "no padding", RECOMPILES, rollout=scan_without_padding),
    fails(LAB, "body in the call", RECOMPILES, rollout=scan_with_the_body_in_the_call),
    fails(LAB, "scan outside jit", "compiles on a second pass", rollout=scan_outside_jit),
    fails(LAB, "length as a number", RECOMPILES, rollout=length_as_a_python_number),
    fails(LAB, "mask forgotten", "position error", rollout=mask_forgotten),
    fails(LAB, "zeros taken for padding", "position error", rollout=zeros_taken_for_padding),
    fails(
        LAB,
        "mask by a slice from the end",
        "position error",
        rollout=mask_by_a_slice_from_the_end,
    ),
    fails(LAB, "commands clipped in place", "runs", rollout=commands_clipped_in_place),
    fails(LAB, "commands padded in place", "runs", rollout=commands_padded_in_place),
    fails(LAB, "jitted step in a loop", "launches", rollout=jitted_step_in_a_loop),
    fails(LAB, "half of the midpoint rule", "position error", rollout=half_of_the_midpoint_rule),
    fails(LAB, "drone in bfloat16", "position error", rollout=drone_in_bfloat16),
]
