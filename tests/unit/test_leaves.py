"""Leaves that are no images as features: numbers, categories, tokens, instructions, and all of them beside an image."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from seedrl_core.config import NetworkConfig
from seedrl_core.spec import INSTRUCTION, EnvironmentSpec, TensorSpec
from seedrl_learner.networks.encoder import Encoder
from seedrl_learner.networks.leaves import Embedding, Instruction, Numbers, OneHot, leaf_layer

ACTION = TensorSpec("action", np.dtype(np.int64), (), (0,), (3,))


def leaf(dtype: Any, shape: tuple[int, ...], low: tuple[float, ...] = (), high: tuple[float, ...] = ()) -> TensorSpec:
    """A leaf named x."""
    return TensorSpec("x", np.dtype(dtype), shape, low, high)


def instruction(
    dtype: Any = np.int64, shape: tuple[int, ...] = (5,), low: float = 0.0, high: float = 999.0
) -> TensorSpec:
    """The leaf of that name."""
    return TensorSpec(INSTRUCTION, np.dtype(dtype), shape, (low,), (high,))


def layer(spec: TensorSpec) -> Any:
    """The layer that is chosen for a leaf."""
    return leaf_layer(spec, np.random.default_rng(0), tf.float32)


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        (leaf(np.float32, (3,), (0.0,), (1.0,)), Numbers),
        (leaf(np.uint8, (128,), (0,), (255,)), Numbers),
        (leaf(np.bool_, (10, 10, 4), (0,), (1,)), Numbers),
        (leaf(np.int64, (3,)), Numbers),
        (leaf(np.int64, (), (0,), (499,)), OneHot),
        (leaf(np.int64, (2, 2), (0,), (1, 2, 3, 4)), OneHot),
        (leaf(np.int64, (16,), (0,), (999,)), Embedding),
        (leaf(np.int32, (), (0,), (60_000,)), Embedding),
        (leaf(np.int32, (4, 4), (0,), (999,)), Numbers),
        (leaf(np.int64, (2,), (0,), (1_000_000,)), Numbers),
        (instruction(), Instruction),
        (instruction(np.int32, (64,), high=65_535.0), Instruction),
        (instruction(high=3.0), Instruction),
        (instruction(shape=(65,)), Embedding),
        (instruction(low=1.0), Embedding),
        (instruction(shape=(2, 8)), Numbers),
        (instruction(high=1e6), Numbers),
        (instruction(np.uint8, high=9.0), Numbers),
    ],
)
def test_layer_by_leaf(spec: TensorSpec, kind: type) -> None:
    """Bounded int32 and int64 leaves are categories, one-hot or embedded by their number; all else is numbers.

    The leaf `instruction` is read as one where it can be: numbers of words from 1 on, not too many.
    """
    assert isinstance(layer(spec), kind)


def test_one_hot_of_several_elements() -> None:
    """One unit for each value between the bounds of each element; what is outside of them is zeros."""
    one_hot = layer(leaf(np.int64, (2,), (3, -1), (5, 0)))
    np.testing.assert_array_equal(one_hot(tf.constant([[3, 0], [5, 7]], tf.int64)), [[1, 0, 0, 0, 1], [0, 0, 1, 0, 0]])
    assert one_hot.output_size == 5


def test_integers_with_bounds_are_scaled_and_floats_are_not() -> None:
    """Bytes become 0..1 also without bounds, other bounded integers too; floats and unbounded integers stay."""
    for spec, x, expected in (
        (leaf(np.uint8, (2,)), [0, 255], [0, 1]),
        (leaf(np.uint8, (2,), (0,), (10,)), [5, 10], [0.5, 1]),
        (leaf(np.int8, (2,), (-4, 0), (4, 0)), [-2, 0], [0.25, 0]),
        (leaf(np.int16, (2,), (0,)), [7, 9], [7, 9]),
        (leaf(np.float32, (2,), (-4.0,), (4.0,)), [-2.0, 9.0], [-2, 9]),
    ):
        np.testing.assert_allclose(layer(spec)(tf.constant([x], spec.dtype)), [expected], rtol=1e-6)


def test_embedding_has_a_vector_for_each_token() -> None:
    """The same token has the same vector at every place; one outside of the bounds is the nearest one."""
    embedding = layer(leaf(np.int64, (3,), (1,), (5000,)))
    vectors = tf.reshape(embedding(tf.constant([[1, 7, 1], [5000, 9999, -3]], tf.int64)), [2, 3, -1]).numpy()
    np.testing.assert_array_equal(vectors[0, 0], vectors[0, 2])
    np.testing.assert_array_equal(vectors[0, 0], embedding.table[0])
    np.testing.assert_array_equal(vectors[1], embedding.table.numpy()[[4999, 4999, 0]])
    assert (vectors[0, 0] != vectors[0, 1]).any()
    np.testing.assert_allclose(np.linalg.norm(embedding.table, axis=1).mean(), 1.0, atol=0.05)


def test_an_instruction_is_read_up_to_its_last_word() -> None:
    """The length of the leaf does not count, the order of the words does; without a word it is zeros."""
    read = layer(instruction())
    texts = [[7, 8, 9, 0, 0], [7, 8, 0, 0, 0], [8, 7, 0, 0, 0], [0, 0, 0, 0, 0], [7, 8, 9, 4, 5], [7, 8, 2000, 0, 0]]
    features = read(tf.constant(texts, tf.int64)).numpy()
    assert features.shape == (6, read.output_size) == (6, 64)
    np.testing.assert_array_equal(features[3], np.zeros(64))
    for i in range(6):
        for j in range(i):
            assert np.abs(features[i] - features[j]).max() > 1e-3, (texts[i], texts[j])
    alone = read(tf.constant([[7, 8]], tf.int64))
    np.testing.assert_allclose(alone[0], features[1], rtol=1e-5, atol=1e-7)
    nearest = read(tf.constant([[7, 8, 999, 0, 0]], tf.int64))
    np.testing.assert_allclose(nearest[0], features[5], rtol=1e-5, atol=1e-7)


def test_an_instruction_has_the_sizes_of_impala() -> None:
    """1000 words of 20 numbers and an LSTM of 64 units."""
    shapes = sorted(tuple(variable.shape) for variable in layer(instruction()).trainable_variables)
    assert shapes == [(20, 256), (64, 256), (256,), (1000, 20)]


@pytest.mark.parametrize(("torso", "frame_stack"), [("nature_cnn", 1), ("impala_resnet", 2), ("mlp", 3)])
def test_every_leaf_of_a_mixed_observation_counts(torso: str, frame_stack: int) -> None:
    """Image, vector, category, tokens, instruction: a change of any changes the features; every variable takes part."""
    leaves = (
        TensorSpec("image", np.dtype(np.uint8), (36, 40), (0,), (255,)),
        TensorSpec("vector", np.dtype(np.float32), (2,)),
        TensorSpec("category", np.dtype(np.int64), (2,), (0, 1), (4, 3)),
        TensorSpec("tokens", np.dtype(np.int64), (6,), (0,), (999,)),
        instruction(),
    )
    config = NetworkConfig(torso=torso, mlp_sizes=(8,))
    rng = np.random.default_rng(0)
    encoder = Encoder(config, EnvironmentSpec("test", leaves, (ACTION,)), frame_stack, rng, tf.float32)
    observation = tuple(
        tf.constant(rng.integers(1, 3, (2, 3 + (frame_stack - 1) * stacked, *leaf.shape)).astype(leaf.dtype))
        for leaf, stacked in zip(leaves, encoder.stacked, strict=True)
    )
    first, age = tf.zeros([2, 3], tf.bool), tf.fill([2], frame_stack - 1)
    with tf.GradientTape() as tape:
        features = encoder(observation, first, age)
    assert features.shape == (2, 3, encoder.output_size)
    assert None not in tape.gradient(features, encoder.trainable_variables)
    for i in range(len(leaves)):
        changed = tuple(leaf + 1 if i == j else leaf for j, leaf in enumerate(observation))
        assert (encoder(changed, first, age) != features).numpy().any(), leaves[i].path


def test_stacked_categories_are_one_hot_by_frame() -> None:
    """Of a vector with different bounds, two frames stacked, oldest first: each value finds its own unit."""
    spec = EnvironmentSpec("test", (leaf(np.int64, (2,), (0, 5), (1, 7)),), (ACTION,))
    encoder = Encoder(NetworkConfig(torso="mlp", mlp_sizes=()), spec, 2, np.random.default_rng(0), tf.float32)
    frames = tf.constant([[[1, 5], [0, 7]]], tf.int64)
    features = encoder((frames,), tf.constant([[False]]), tf.constant([1]))
    np.testing.assert_array_equal(features[0, 0], [0, 1, 1, 0, 0, 1, 0, 0, 0, 1])
