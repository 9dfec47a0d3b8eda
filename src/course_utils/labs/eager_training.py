"""Second lab of the eager family: a training step in which only the loss is jitted.

The model is a residual network that lifts the joints of a body, seen in a picture, to depth; the
optimizer is AdamW behind a clip of the gradient's norm. The loss is one compiled program. Its
gradient, the optimizer and the update of the weights run outside any jit, one operation at a time
for each of the model's arrays, so a step's launches grow with the number of arrays.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from course_utils.checks import (
    CompilesAtMost,
    LaunchesAtMost,
    MetricWithin,
    RecompilesAtMost,
    SpeedupAtLeast,
    SyncsAtMost,
    TimeWithin,
)
from course_utils.findings import Link
from course_utils.instruments.parity import float64_enabled, to_float64
from course_utils.lab import Entry, Functions, Lab, Size
from course_utils.labs._weights import draw_weights

PARENTS = (0, 0, 1, 2, 0, 4, 5, 0, 7, 8, 8, 10, 11, 8, 13, 14)
"""For each joint, the joint that its bone begins at: pelvis, legs, spine and head, arms."""

BONES = np.array(
    [
        [0.0, 0.0, 0.0],  # pelvis
        [1.3, 0.0, 0.0],  # right leg: hip, knee, ankle
        [0.0, -4.4, 1.2],
        [0.0, -4.3, -1.2],
        [-1.3, 0.0, 0.0],  # left leg
        [0.0, -4.4, 1.2],
        [0.0, -4.3, -1.2],
        [0.0, 2.4, 0.3],  # spine, neck, head
        [0.0, 2.6, -0.3],
        [0.0, 1.9, 0.5],
        [-1.5, 0.3, 0.0],  # left arm: shoulder, elbow, wrist
        [-0.6, -2.6, 0.2],
        [-0.1, -1.8, 1.6],
        [1.5, 0.3, 0.0],  # right arm
        [0.6, -2.6, 0.2],
        [0.1, -1.8, 1.6],
    ]
)
"""Bones at rest, in decimetres: to the right, up, towards the camera."""

Joints = Float[Array, "batch joints 2"]
Depths = Float[Array, "batch joints"]
Batch = tuple[Joints, Depths]


class LifterConfig(NamedTuple):
    """Sizes of a lifter, and how many poses there are in a batch."""

    width: int
    depth: int
    batch: int


class ResidualBlock(eqx.Module):
    """Two linear layers whose result is added to what came in."""

    norm: eqx.nn.LayerNorm
    first: eqx.nn.Linear
    second: eqx.nn.Linear

    def __init__(self, width: int, *, key: PRNGKeyArray):
        first, second = jax.random.split(key)
        self.norm = eqx.nn.LayerNorm(width)
        self.first = eqx.nn.Linear(width, width, key=first)
        self.second = eqx.nn.Linear(width, width, key=second)

    def __call__(self, hidden: Float[Array, " width"]) -> Float[Array, " width"]:
        """Return the hidden vector after the block."""
        return hidden + self.second(jax.nn.gelu(self.first(self.norm(hidden))))


class Lifter(eqx.Module):
    """A residual network from the joints in the picture to each joint's depth."""

    embed: eqx.nn.Linear
    blocks: list[ResidualBlock]
    norm: eqx.nn.LayerNorm
    head: eqx.nn.Linear

    def __init__(self, config: LifterConfig, *, key: PRNGKeyArray):
        embed, head, *blocks = jax.random.split(key, 2 + config.depth)
        self.embed = eqx.nn.Linear(2 * len(PARENTS), config.width, key=embed)
        self.blocks = [ResidualBlock(config.width, key=block) for block in blocks]
        self.norm = eqx.nn.LayerNorm(config.width)
        self.head = eqx.nn.Linear(config.width, len(PARENTS), key=head)

    def __call__(self, joints: Float[Array, "joints 2"]) -> Float[Array, " joints"]:
        """Return each joint's depth in decimetres, from positions in decimetres."""
        hidden = self.embed(joints.reshape(-1))
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(self.norm(hidden))


optimizer = optax.chain(
    optax.clip_by_global_norm(1.0), optax.adamw(learning_rate=3e-3, weight_decay=1e-2)
)


def mean_squared_error(model: Lifter, batch: Batch) -> Float[Array, ""]:
    """Return the mean squared error of the depths, in square decimetres."""
    joints, depths = batch
    return jnp.mean((jax.vmap(model)(joints) - depths) ** 2)


# region student-broken
@eqx.filter_jit
def fast_loss(model, batch):
    """Return the loss of a batch, compiled."""
    return mean_squared_error(model, batch)


def broken_train_step(model, opt_state, batch):
    """Return the new model, the new state and the loss before the step."""
    loss, grads = eqx.filter_value_and_grad(fast_loss)(model, batch)
    weights = eqx.filter(model, eqx.is_array)
    updates, opt_state = optimizer.update(grads, opt_state, weights)
    model = eqx.apply_updates(model, updates)
    return model, opt_state, loss


# endregion


# region student-solution
@eqx.filter_jit
def solution_train_step(model, opt_state, batch):
    """Return the new model, the new state and the loss before the step."""
    loss, grads = eqx.filter_value_and_grad(mean_squared_error)(model, batch)
    weights = eqx.filter(model, eqx.is_array)
    updates, opt_state = optimizer.update(grads, opt_state, weights)
    model = eqx.apply_updates(model, updates)
    return model, opt_state, loss


# endregion


class Start(NamedTuple):
    """A model before training, with the optimizer's state."""

    model: Lifter
    opt_state: Any


class Trained(NamedTuple):
    """What a run of several steps leaves behind.

    Attributes:
        losses: the loss of each step.
        model: the model after the last step.
        opt_state: the optimizer's state after the last step.
        held_out: joints that no step has seen, as they were given.
    """

    losses: tuple[Float[Array, ""], ...]
    model: Lifter
    opt_state: Any
    held_out: Joints


def make_start(config: LifterConfig, seed: int) -> Start:
    """Return a lifter with random weights, and the optimizer's first state.

    The state is made with NumPy: JAX would compile a program for each of its arrays' shapes.
    """
    model = draw_weights(Lifter, config, rng=np.random.default_rng(seed))
    state = jax.eval_shape(optimizer.init, eqx.filter(model, eqx.is_array))
    zeros = jax.tree.map(lambda leaf: jnp.asarray(np.zeros(leaf.shape, leaf.dtype)), state)
    return Start(model, zeros)


def make_poses(rng: np.random.Generator, count: int) -> Batch:
    """Return the joints of random poses as a camera sees them, and their depths.

    Bones keep their length and point about where they point at rest; the body is turned about the
    upright axis. Both arrays are in decimetres, as seen from the pelvis.

    Returns:
        Joints (count, joints, 2), to the right and up, with some noise; depths (count, joints).
    """
    lengths = np.linalg.norm(BONES, axis=-1, keepdims=True)
    bones = BONES + 0.15 * lengths * rng.normal(size=(count, *BONES.shape))
    bones *= lengths / np.maximum(np.linalg.norm(bones, axis=-1, keepdims=True), 1e-9)
    joints = np.zeros_like(bones)
    for joint, parent in enumerate(PARENTS):
        joints[:, joint] = joints[:, parent] + bones[:, joint]
    turn = rng.uniform(-0.6, 0.6, count)[:, None]
    right, up, near = np.moveaxis(joints, -1, 0)
    seen = np.stack([right * np.cos(turn) + near * np.sin(turn), up], axis=-1)
    seen += rng.normal(0.0, 0.05, seen.shape)
    depths = near * np.cos(turn) - right * np.sin(turn)
    return jnp.asarray(seen, dtype=jnp.float32), jnp.asarray(depths, dtype=jnp.float32)


def make_run(
    config: LifterConfig, start: Start, rng: np.random.Generator, steps: int
) -> tuple[Lifter, Any, tuple[Batch, ...], Joints]:
    """Return what a run needs: model, optimizer's state, one batch a step, and held-out joints."""
    batches = tuple(make_poses(rng, config.batch) for _ in range(steps))
    return start.model, start.opt_state, batches, make_poses(rng, config.batch)[0]


def train(functions: Functions, args: tuple[Any, ...]) -> Trained:
    """Call `train_step` once for each batch."""
    model, opt_state, batches, held_out = args
    losses = []
    for batch in batches:
        model, opt_state, loss = functions["train_step"](model, opt_state, batch)
        losses.append(loss)
    return Trained(tuple(losses), model, opt_state, held_out)


@eqx.filter_jit
def _reference_step(model, opt_state, batch):
    loss, grads = eqx.filter_value_and_grad(mean_squared_error)(model, batch)
    updates, opt_state = optimizer.update(grads, opt_state, eqx.filter(model, eqx.is_array))
    return eqx.apply_updates(model, updates), opt_state, loss


def reference(*args: Any) -> Trained:
    """Return the run computed in float64."""
    with float64_enabled():
        trained = train({"train_step": _reference_step}, to_float64(args))
        return jax.tree.map(np.asarray, trained)


def loss_error(expected: Trained, got: Trained) -> float:
    """Return the largest difference between the losses of one step, in square decimetres."""
    apart = np.asarray(got.losses, dtype=np.float64) - np.asarray(expected.losses)
    return float(np.abs(apart).max())


def depth_error(expected: Trained, got: Trained) -> float:
    """Return how far the trained models' depths of held-out joints are apart, in millimetres."""
    with float64_enabled():
        models = to_float64((expected.model, got.model))
        depths = [_depths(model, to_float64(expected.held_out)) for model in models]
        return 100 * float(np.abs(np.subtract(*map(np.asarray, depths))).max())


@eqx.filter_jit
def _depths(model, joints):
    return jax.vmap(model)(joints)


_CHAPTER = "book/chapters/01_eager"
_STEP = Link(_CHAPTER, "a-training-step-of-which-only-the-gradient-is-compiled")

LAB = Lab(
    name="eager_training",
    title="A training step of which only the loss is jitted",
    family="eager",
    minutes=15,
    difficulty=1,
    goal="See what of a training step runs outside jit, and compile the whole step.",
    item="step",
    entries=(Entry("train_step", ("model", "opt_state", "batch")),),
    broken={"train_step": broken_train_step},
    solution={"train_step": solution_train_step},
    sizes={
        # 2 CPU cores, jax 0.10.2: see the measurements beside each check.
        "cpu": Size(LifterConfig(width=64, depth=2, batch=64), items=20, timed_items=1),
        # Not measured on a GPU.
        "gpu": Size(LifterConfig(width=256, depth=6, batch=256), items=20, timed_items=1),
    },
    prepare=make_start,
    arguments=lambda size, start, rng, steps: make_run(size.config, start, rng, steps),
    argument_names=("model", "opt_state", "batches", "held_out"),
    drive=train,
    consumes=True,
    oracle=reference,
    checks=(
        # The solution is off by up to 4.3e-6, bfloat16 by 0.0032; the losses of other batches are
        # 0.1 away at least.
        MetricWithin(
            "loss error", loss_error, tolerance=0.0003, unit="dm²", link=Link(_CHAPTER, "the-fix")
        ),
        # The solution is off by up to 0.0014, Adam with an epsilon of 1e-7 by 0.02 at least, no
        # weight decay by 0.067, bfloat16 by 0.68; a run without its last step by 7 at least.
        MetricWithin(
            "held-out depth error",
            depth_error,
            tolerance=0.01,
            unit="mm",
            link=Link(_CHAPTER, "the-fix"),
        ),
        # The solution: none. A Python number that takes three values: 2. One compile more is
        # allowed, since a first step's state may be of weaker types than what a step returns.
        RecompilesAtMost(1, link=Link(_CHAPTER, "keep-the-model-stable")),
        CompilesAtMost(0, link=Link(_CHAPTER, "keep-the-model-stable")),
        # The solution 1, three jitted parts 3, an eager update of the weights alone 20, only the
        # gradient jitted 480, broken 482.
        LaunchesAtMost(
            6,
            link=_STEP,
            hints={
                "eager": "Whatever is not inside the jitted function runs operation by operation: "
                "the gradient of a jitted loss, the optimizer and the update are outside. Put "
                "`eqx.filter_jit` on `train_step` itself.",
                "parts": "Only parts of the step are compiled. Put `eqx.filter_jit` on "
                "`train_step` itself, around gradient, optimizer and update together.",
            },
        ),
        # The solution: none. A test for NaN after each step: 20.
        SyncsAtMost(0, link=Link(_CHAPTER, "the-fix")),
        # The time against the solution comes first: two compiled programs are disturbed alike by a
        # busy machine. Three jitted parts 1.7 to 1.9, gradients of 64 whole batches 13.
        TimeWithin(4, link=_STEP),
        # The solution 11 to 14, three jitted parts 6 to 7, gradients of 64 whole batches 0.9 to 1.
        SpeedupAtLeast(3, link=_STEP),
    ),
)
