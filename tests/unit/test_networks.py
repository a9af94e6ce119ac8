"""Networks: shapes, initial values, what their inputs do, and the core against a loop in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from seedrl_core.config import NetworkConfig
from seedrl_core.errors import ConfigError
from seedrl_core.spec import EnvironmentSpec, TensorSpec
from seedrl_learner.networks.actor_critic import ActorCriticNetwork, NetworkInput, NetworkOutput
from seedrl_learner.networks.cores import Lstm
from seedrl_learner.networks.dueling import DuelingNetwork
from seedrl_learner.networks.encoder import stacked_leaves
from seedrl_learner.networks.frame_stack import to_blocks
from seedrl_learner.networks.layers import Conv, Dense, orthogonal
from seedrl_learner.networks.torsos import ImpalaResnet, NatureCnn

VECTOR = TensorSpec("state", np.dtype(np.float64), (5,))
IMAGE = TensorSpec("camera", np.dtype(np.uint8), (40, 36))
COLOUR = TensorSpec("colour", np.dtype(np.uint8), (36, 40, 3))
RAM = TensorSpec("ram", np.dtype(np.uint8), (128,))
ACTION = TensorSpec("action", np.dtype(np.int64), (), (0,), (3,))
B, S, NUM_ACTIONS, NUM_FEATURES = 3, 2, 4, 5


def make(*leaves: TensorSpec, frame_stack: int = 1, seed: int = 0, dtype: tf.DType = tf.float32, **config: Any) -> Any:
    """A network for observations of `leaves`."""
    settings = NetworkConfig.model_validate({"torso": "mlp", "core_size": 8, "separate_baseline": False} | config)
    spec = EnvironmentSpec("test", leaves, (ACTION,))
    return ActorCriticNetwork(
        settings,
        spec,
        policy_size=NUM_ACTIONS,
        action_size=NUM_FEATURES,
        frame_stack=frame_stack,
        normalize_values=False,
        dtype=dtype,
        seed=seed,
    )


def run(network: Any, *leaves: TensorSpec, frame_stack: int = 1, **changes: Any) -> NetworkOutput:
    """Runs S steps on random observations."""
    rng = np.random.default_rng(0)
    observation = []
    for leaf, stacked in zip(leaves, network.stacked, strict=True):
        shape = (B, S + (frame_stack - 1 if stacked else 0), *leaf.shape)
        values = rng.integers(0, 256, shape) if leaf.is_integer else rng.normal(size=shape)
        observation.append(tf.constant(values.astype(leaf.dtype)))
    inputs = NetworkInput(
        observation=tuple(observation),
        stack_age=tf.fill([B], frame_stack - 1),
        first=tf.zeros([B, S], tf.bool),
        previous_action=tf.ones([B, S, NUM_FEATURES]),
        reward=tf.ones([B, S]),
    )
    state = tuple(tf.zeros([B, size]) for size in network.core_state_sizes)
    return network(inputs._replace(**changes), state)


@pytest.mark.parametrize("core", ["none", "lstm"])
@pytest.mark.parametrize("separate_baseline", [False, True])
@pytest.mark.parametrize(
    ("torso", "leaves", "frame_stack"),
    [
        ("mlp", (VECTOR,), 1),
        ("mlp", (VECTOR, RAM, IMAGE), 1),
        ("mlp", (VECTOR,), 3),
        ("nature_cnn", (IMAGE,), 4),
        ("nature_cnn", (VECTOR, IMAGE, COLOUR), 2),
        ("impala_resnet", (COLOUR,), 2),
    ],
)
def test_outputs_are_float32_of_the_right_shape(
    torso: str, leaves: tuple[TensorSpec, ...], frame_stack: int, core: str, separate_baseline: bool
) -> None:
    """For every torso and core, one or several leaves, stacked or not; every variable takes part."""
    network = make(
        *leaves,
        frame_stack=frame_stack,
        torso=torso,
        core=core,
        separate_baseline=separate_baseline,
        previous_action=True,
        previous_reward=True,
    )
    with tf.GradientTape() as tape:
        output = run(network, *leaves, frame_stack=frame_stack)
        total = tf.reduce_sum(output.policy**2) + tf.reduce_sum(output.baseline)
    assert (output.policy.shape, output.policy.dtype) == ((B, S, NUM_ACTIONS), tf.float32)
    assert (output.baseline.shape, output.baseline.dtype) == ((B, S), tf.float32)
    assert [state.shape for state in output.core_state] == [(B, size) for size in network.core_state_sizes]
    assert None not in tape.gradient(total, network.trainable_variables)


def test_first_policy_is_close_to_uniform() -> None:
    """Before training no action is preferred by more than a few percent."""
    probability = tf.nn.softmax(run(make(VECTOR), VECTOR).policy)
    np.testing.assert_allclose(probability, np.full((B, S, NUM_ACTIONS), 1 / NUM_ACTIONS), rtol=0.1)


def test_initial_variables_are_a_function_of_the_seed() -> None:
    """The same seed gives the same network, another seed another one."""
    one, same, other = (run(make(VECTOR, seed=seed), VECTOR).policy for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert (one != other).numpy().any()


def test_previous_action_and_reward_count_except_at_first() -> None:
    """They change the outputs where they are configured, and not at a FIRST."""
    network = make(VECTOR, previous_action=True, previous_reward=True)
    changes = {"previous_action": tf.fill([B, S, NUM_FEATURES], 2.0), "reward": tf.fill([B, S], 9.0)}
    first = tf.constant([[True, False]] * B)
    before, after = (run(network, VECTOR, first=first, **change).policy for change in ({}, changes))
    np.testing.assert_array_equal(before[:, 0], after[:, 0])
    assert (before[:, 1] != after[:, 1]).numpy().all()


def test_a_torso_for_images_needs_an_image() -> None:
    """The error names what is expected and the leaves there are."""
    with pytest.raises(ConfigError, match=r"nature_cnn expects a uint8 image .* got state: float32 \(5,\)"):
        make(VECTOR, torso="nature_cnn")


def test_images_are_stacked_and_vectors_only_without_images() -> None:
    """A vector beside a stacked image is not stacked, an action mask and an instruction never."""
    assert stacked_leaves(EnvironmentSpec("x", (VECTOR, IMAGE), (ACTION,)), 4) == (False, True)
    assert stacked_leaves(EnvironmentSpec("x", (VECTOR,), (ACTION,)), 4) == (True,)
    assert stacked_leaves(EnvironmentSpec("x", (IMAGE,), (ACTION,)), 1) == (False,)
    mask = TensorSpec("observation/action_mask", np.dtype(np.int8), (4,))
    assert stacked_leaves(EnvironmentSpec("x", (mask, VECTOR), (ACTION,)), 4) == (False, True)
    words = TensorSpec("observation/instruction", np.dtype(np.int64), (16,), (0,), (999,))
    assert stacked_leaves(EnvironmentSpec("x", (words, VECTOR), (ACTION,)), 4) == (False, True)


def test_nature_cnn_has_the_published_size() -> None:
    """32 8x8/4, 64 4x4/2, 64 3x3/1 and 512 units on 84 x 84 x 4: 1,684,128 numbers."""
    torso = NatureCnn((21, 21, 64), np.random.default_rng(0), tf.float32)
    assert sum(int(tf.size(v)) for v in torso.trainable_variables) == 1_684_128


def test_a_convolution_on_blocks_is_the_strided_one_on_the_image() -> None:
    """2 x 2, stride 1 on blocks of 4 x 4 equals 8 x 8, stride 4 on the image; the image need not divide evenly."""
    rng = np.random.default_rng(0)
    kernel = rng.normal(size=(8, 8, 3, 5)).astype(np.float32)
    image = rng.integers(0, 256, (2, 39, 41, 3), np.uint8)
    expected = tf.nn.conv2d(tf.cast(image, tf.float32), kernel, 4, "VALID")
    on_blocks = kernel.reshape(2, 4, 2, 4, 3, 5).transpose(0, 2, 1, 3, 4, 5).reshape(2, 2, 48, 5)
    got = tf.nn.conv2d(tf.cast(to_blocks(tf.constant(image), 4), tf.float32), on_blocks, 1, "VALID")
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-2)


def test_impala_resnet_has_fifteen_convolutions() -> None:
    """Three sections of one convolution and two blocks of two, then 256 units."""
    torso = ImpalaResnet((84, 84, 4), np.random.default_rng(0), tf.float32)
    assert sum(v.shape.rank == 4 for v in torso.trainable_variables) == 15
    assert torso(tf.zeros([2, 84, 84, 4], tf.uint8)).shape == (2, 256)


def test_pixels_are_scaled_by_the_kernel() -> None:
    """A convolution with input_scale 1/255 gives what scaled images give."""
    scaled, plain = (
        Conv(4, 8, 8, 4, "VALID", np.random.default_rng(0), tf.float32, input_scale=s) for s in (1 / 255, 1)
    )
    image = np.random.default_rng(1).integers(0, 256, (2, 36, 36, 4)).astype(np.uint8)
    np.testing.assert_allclose(scaled(tf.constant(image)), plain(tf.constant(image / 255.0)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("torso", ["nature_cnn", "impala_resnet"])
def test_bfloat16_agrees_with_float32_and_keeps_float32_variables(torso: str) -> None:
    """Outputs differ by no more than the rounding of bfloat16 allows."""
    networks = [make(IMAGE, torso=torso, core="lstm", dtype=dtype) for dtype in (tf.float32, tf.bfloat16)]
    exact, rounded = (run(network, IMAGE) for network in networks)
    assert {v.dtype for v in networks[1].trainable_variables} == {tf.float32}
    assert (exact.baseline != rounded.baseline).numpy().any()
    np.testing.assert_allclose(rounded.baseline, exact.baseline, atol=0.05 * np.abs(exact.baseline).max() + 0.01)


@pytest.mark.parametrize("shape", [(6, 3), (3, 6), (2, 2, 3, 5)])
def test_initial_kernels_are_orthogonal(shape: tuple[int, ...]) -> None:
    """The shorter side's vectors have the length `scale` and are orthogonal to each other."""
    matrix = orthogonal(np.random.default_rng(0), shape, 2.0).reshape(-1, shape[-1])
    gram = matrix.T @ matrix if matrix.shape[0] >= matrix.shape[1] else matrix @ matrix.T
    np.testing.assert_allclose(gram, 4.0 * np.eye(len(gram)), atol=1e-5)


def test_dense_works_on_the_last_axis_of_any_rank() -> None:
    """A rank 3 input gives what its rows give."""
    layer = Dense(5, 2, np.random.default_rng(0), tf.float32, 1.0)
    x = tf.random.stateless_normal([3, 4, 5], [0, 0])
    np.testing.assert_allclose(layer(x), tf.reshape(layer(tf.reshape(x, [12, 5])), [3, 4, 2]), rtol=1e-6)


def test_lstm_agrees_with_its_equations_and_resets() -> None:
    """Step by step in NumPy, the state set to zeros at each FIRST."""
    size, steps = 4, 6
    core = Lstm(3, size, np.random.default_rng(0), tf.float32)
    rng = np.random.default_rng(1)
    x = rng.normal(size=(B, steps, 3)).astype(np.float32)
    first = rng.random((B, steps)) < 0.3
    assert first[:, 1:].any()
    hidden, cell = rng.normal(size=(2, B, size)).astype(np.float32)
    output, state = core(tf.constant(x), tf.constant(first), (tf.constant(hidden), tf.constant(cell)))

    def sigmoid(value: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-value))

    by_shape = {v.shape.as_list()[0]: v.numpy() for v in core.trainable_variables}
    input_kernel, kernel, bias = by_shape[3], by_shape[size], by_shape[4 * size]
    for t in range(steps):
        hidden, cell = hidden * ~first[:, t, None], cell * ~first[:, t, None]
        i, f, o, g = np.split(x[:, t] @ input_kernel + hidden @ kernel + bias, 4, axis=-1)
        cell = sigmoid(f + 1) * cell + sigmoid(i) * np.tanh(g)
        hidden = sigmoid(o) * np.tanh(cell)
        np.testing.assert_allclose(output[:, t], hidden, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(state[0], hidden, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(state[1], cell, rtol=1e-4, atol=1e-6)


def make_dueling(core: str = "lstm") -> DuelingNetwork:
    """A Q network for VECTOR."""
    config = NetworkConfig.model_validate(
        {"torso": "mlp", "core": core, "core_size": 8, "head_size": 6, "previous_action": True, "previous_reward": True}
    )
    spec = EnvironmentSpec("test", (VECTOR,), (ACTION,))
    return DuelingNetwork(config, spec, num_actions=NUM_ACTIONS, frame_stack=1, dtype=tf.float32, seed=0)


@pytest.mark.parametrize("core", ["none", "lstm"])
def test_duelling_heads_give_a_value_and_centred_advantages(core: str) -> None:
    """Q = V + A - mean A: the same shift of all advantages changes nothing, one of the value shifts every action."""
    network = make_dueling(core)

    def values() -> tf.Tensor:
        return run(network, VECTOR, previous_action=tf.ones([B, S, NUM_ACTIONS])).q

    with tf.GradientTape() as tape:
        q = values()
    assert (q.shape, q.dtype) == ((B, S, NUM_ACTIONS), tf.float32)
    assert all(gradient is not None for gradient in tape.gradient(q, network.trainable_variables))
    (advantage_bias,) = [v for v in network.trainable_variables if v.shape == [NUM_ACTIONS]]
    (value_bias,) = [v for v in network.trainable_variables if v.shape == [1]]
    advantage_bias.assign_add(tf.fill([NUM_ACTIONS], 5.0))
    np.testing.assert_allclose(values(), q, atol=1e-5)
    advantage_bias.assign_add([4.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(values() - q, np.broadcast_to([3.0, -1, -1, -1], q.shape), atol=1e-5)
    value_bias.assign_add([2.0])
    np.testing.assert_allclose(values() - q, np.broadcast_to([5.0, 1, 1, 1], q.shape), atol=1e-5)
