"""Leaves of bits in the network: unpacked as NumPy does it, and from then on like images and vectors of bytes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from seedrl_core.config import LearnerConfig, NetworkConfig
from seedrl_core.spec import Array, EnvironmentSpec, TensorSpec
from seedrl_learner.batch import UnrollBatch
from seedrl_learner.batch_pictures import batch_pictures
from seedrl_learner.defaults import resolve
from seedrl_learner.networks.bits import unpack
from seedrl_learner.networks.encoder import Encoder, is_image, stacked_leaves

ACTION = TensorSpec("action", np.dtype(np.int64), (), (0,), (3,))
PLANES, VECTOR = (37, 41, 3), (1100,)
B, STEPS, STACK = 2, 3, 4


def bits(shape: tuple[int, ...], *leading: int) -> tuple[Array, Array]:
    """Random bits packed [*leading, bytes], and as the bytes [*leading, *shape] that they stand for."""
    values = np.random.default_rng(0).integers(0, 2, (*leading, math.prod(shape)), np.uint8)
    return np.packbits(values, axis=-1), (values * 255).reshape(*leading, *shape)


@pytest.mark.parametrize("shape", [(1,), (8,), (9,), (2, 5), PLANES, (72, 96, 4)])
def test_bits_come_out_as_they_went_in(shape: tuple[int, ...]) -> None:
    """0 or 255 each, also where they do not fill their last byte, with any number of rows."""
    leaf = TensorSpec.of_bits("x", shape)
    packed, plain = bits(shape, 2, 3)
    np.testing.assert_array_equal(unpack(tf.constant(packed), leaf), plain)

    @tf.function(input_signature=[tf.TensorSpec([None, 3, *leaf.shape], tf.uint8)])
    def traced(values: tf.Tensor) -> tf.Tensor:
        unpacked = unpack(values, leaf)
        assert unpacked.shape.as_list() == [None, 3, *shape]
        return unpacked

    np.testing.assert_array_equal(traced(tf.constant(packed)), plain)


def test_every_byte_is_eight_bits() -> None:
    """All 256 of them."""
    every = np.arange(256, dtype=np.uint8)
    unpacked = unpack(tf.constant(every[np.newaxis]), TensorSpec.of_bits("x", (2048,)))
    np.testing.assert_array_equal(unpacked[0], np.unpackbits(every) * 255)


def test_other_leaves_pass() -> None:
    """Bytes without bits are what they are."""
    values = tf.constant([[1, 2]], tf.uint8)
    assert unpack(values, TensorSpec("x", np.dtype(np.uint8), (2,))) is values


def test_bits_of_the_shape_of_an_image_are_one() -> None:
    """It is stacked, and chooses the defaults; bits of another shape are no image."""
    planes, vector = TensorSpec.of_bits("planes", PLANES), TensorSpec.of_bits("vector", VECTOR)
    assert (is_image(planes), is_image(vector)) == (True, False)
    spec = EnvironmentSpec("test", (planes, vector), (ACTION,), frame_stack=STACK)
    assert stacked_leaves(spec, STACK) == (True, False)
    resolved = resolve(LearnerConfig(), spec)
    assert (resolved.network.torso, resolved.frame_stack) == ("nature_cnn", STACK)
    assert resolve(LearnerConfig(), EnvironmentSpec("test", (vector,), (ACTION,))).network.torso == "mlp"


@pytest.mark.parametrize("torso", ["nature_cnn", "impala_resnet", "mlp"])
def test_features_are_those_of_the_bytes(torso: str) -> None:
    """Of stacked planes beside a vector: bits and the bytes that they stand for give the same, means included."""
    config = NetworkConfig(torso=torso, mlp_sizes=(8,), normalize_observations=True)
    packed, plain, observed = [], [], []
    for name, shape in (("planes", PLANES), ("vector", VECTOR)):
        leaf = TensorSpec.of_bits(name, shape)
        packed.append(leaf)
        plain.append(leaf.unpacked)
        frames = STEPS + (STACK - 1 if shape == PLANES else 0)
        observed.append(bits(shape, B, frames))
    first, age = tf.constant([[False, True, False], [False] * 3]), tf.constant([1, STACK - 1])

    def features(leaves: list[TensorSpec], values: list[Array]) -> Any:
        spec, rng = EnvironmentSpec("test", tuple(leaves), (ACTION,)), np.random.default_rng(0)
        encoder = Encoder(config, spec, STACK, rng, tf.float32)
        observation = tuple(map(tf.constant, values))
        before = encoder(observation, first, age)
        encoder.observe(tuple(leaf[:, -STEPS:] for leaf in observation))
        return before, encoder(observation, first, age)

    (before, after), expected = (
        features(leaves, [each[index] for each in observed]) for index, leaves in enumerate((packed, plain))
    )
    assert np.ptp(before) > 0
    np.testing.assert_array_equal(before, expected[0])
    np.testing.assert_array_equal(after, expected[1])
    assert torso == "mlp" or (before != after).numpy().any()


def test_pictures_of_planes_of_bits() -> None:
    """Stacked or not they are shown as the network gets them, side by side."""
    leaf = TensorSpec.of_bits("observation", (36, 40, 4))
    packed, plain = bits((36, 40, 4), B, STEPS)
    nothing = np.zeros((B, STEPS), np.float32)
    flags, age = np.zeros((B, STEPS), np.uint8), np.zeros(B, np.int32)
    batch = UnrollBatch((packed,), nothing, flags, (), (), (), age, (), nothing, nothing[:, 0])
    picture = batch_pictures(batch, EnvironmentSpec("e", (leaf,), (ACTION,)), (False,))["observation"].numpy()
    assert picture.shape == (B, 36, 4 * 40, 1)
    np.testing.assert_array_equal(picture[..., 0], np.concatenate(np.moveaxis(plain[:, -1], -1, 0), axis=2))
