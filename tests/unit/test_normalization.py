"""Running statistics of observations against NumPy over all that was seen."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from seedrl_core.config import NetworkConfig
from seedrl_core.spec import EnvironmentSpec, TensorSpec
from seedrl_learner.networks.encoder import Encoder
from seedrl_learner.networks.normalization import ImageMean, Normalizer

ACTION = TensorSpec("action", np.dtype(np.int64), (), (0,), (3,))

LEAVES = (
    TensorSpec("a", np.dtype(np.float32), (3,)),
    TensorSpec("b", np.dtype(np.uint8), (2,)),
    TensorSpec("c", np.dtype(np.float64), ()),
)


def observe(batches: int) -> tuple[Normalizer, list[np.ndarray]]:
    """A normalizer after some batches [2, 5], and all that it has seen of the first leaf."""
    rng = np.random.default_rng(0)
    normalizer, seen = Normalizer(LEAVES), []
    for i in range(batches):
        vector = (rng.normal(size=(2, 5, 3)) * [1, 10, 0.01] + [1000, i, 0]).astype(np.float32)
        seen.append(vector.reshape(-1, 3))
        normalizer.update(
            (tf.constant(vector), tf.zeros([2, 5, 2], tf.uint8), tf.fill([2, 5], tf.constant(7.0, tf.float64)))
        )
    return normalizer, seen


def test_statistics_are_those_of_everything_seen() -> None:
    """After several batches of different means the result is (x - mean) / deviation over all of them."""
    normalizer, seen = observe(20)
    everything = np.concatenate(seen).astype(np.float64)
    x = everything[:4].astype(np.float32)
    got = normalizer((tf.constant(x), tf.zeros([4, 2], tf.uint8), tf.zeros([4], tf.float64)))
    np.testing.assert_allclose(got[0], (x - everything.mean(0)) / everything.std(0), rtol=1e-3, atol=1e-3)


def test_only_floats_are_normalized() -> None:
    """Integer leaves pass as they are; a float leaf of any size comes back as float32."""
    normalizer, _ = observe(1)
    x = (tf.zeros([1, 3]), tf.constant([[7, 200]], tf.uint8), tf.constant([7.0], tf.float64))
    got = normalizer(x)
    np.testing.assert_array_equal(got[1], x[1])
    assert [leaf.dtype for leaf in got] == [tf.float32, tf.uint8, tf.float32]


def test_outliers_and_constants_are_bounded() -> None:
    """What lies far out, also of an element that never varied, is cut at +-10; the constant itself is 0."""
    normalizer, _ = observe(3)
    _, _, got = normalizer((tf.zeros([2, 3]), tf.zeros([2, 2], tf.uint8), tf.constant([7.0, -1e30], tf.float64)))
    np.testing.assert_allclose(got, [0.0, -10.0])


def test_before_anything_was_seen_observations_pass() -> None:
    """The first policy acts on raw values."""
    x = tf.constant([[1.0, -2.0, 3.0]])
    got = Normalizer(LEAVES)((x, tf.zeros([1, 2], tf.uint8), tf.zeros([1], tf.float64)))
    np.testing.assert_allclose(got[0], x, rtol=1e-6)


def test_statistics_are_variables_that_are_not_trained() -> None:
    """So checkpoints keep them and no gradient changes them."""
    normalizer, _ = observe(1)
    assert len(normalizer.variables) == 6
    assert not normalizer.trainable_variables


def test_the_mean_image_is_that_of_all_frames_for_each_frame_of_a_stack() -> None:
    """Over updates of one size; both frames of a stack get the same mean."""
    rng = np.random.default_rng(0)
    batches = [rng.integers(0, 256, (3, 8, 5, 4, 2), np.uint8) for _ in range(3)]
    image_mean = ImageMean((5, 4, 4))
    np.testing.assert_array_equal(image_mean(), np.zeros((5, 4, 4)))
    for batch in batches:
        image_mean.update(tf.constant(batch))
    expected = np.concatenate(batches).astype(np.float64).mean(axis=(0, 1))
    np.testing.assert_allclose(image_mean(), np.concatenate([expected, expected], axis=-1), rtol=1e-5)


@pytest.mark.parametrize("torso", ["nature_cnn", "impala_resnet"])
def test_networks_see_images_without_their_mean(torso: str) -> None:
    """Adding one picture to all images changes nothing once it has entered the mean; before, it does."""
    spec = EnvironmentSpec("test", (TensorSpec("camera", np.dtype(np.uint8), (36, 40)),), (ACTION,))
    config = NetworkConfig.model_validate({"torso": torso, "core_size": 8, "normalize_observations": True})
    rng = np.random.default_rng(0)
    images = rng.integers(0, 100, (4, 8, 36, 40), np.uint8)
    picture = rng.integers(0, 100, (36, 40), np.uint8)
    outputs = []
    for observed in (images, images + picture):
        encoder = Encoder(config, spec, 1, np.random.default_rng(1), tf.float32)
        first, age = tf.zeros([4, 8], tf.bool), tf.zeros([4], tf.int32)
        before = encoder((tf.constant(observed),), first, age)
        encoder.observe((tf.constant(observed),))
        outputs.append((before, encoder((tf.constant(observed),), first, age)))
    (before, after), (before_with_picture, after_with_picture) = outputs
    np.testing.assert_allclose(after_with_picture, after, rtol=1e-3, atol=1e-3)
    assert np.abs(before_with_picture - before).max() > 0.05


def test_the_mean_image_takes_in_every_fourth_step() -> None:
    """Successive frames are alike, and taking in all would cost an update a tenth of its time."""
    spec = EnvironmentSpec("test", (TensorSpec("camera", np.dtype(np.uint8), (36, 40)),), (ACTION,))
    config = NetworkConfig.model_validate({"torso": "nature_cnn", "core_size": 8, "normalize_observations": True})
    images = np.random.default_rng(0).integers(0, 256, (2, 8, 36, 40), np.uint8)
    others = images.copy()
    others[:, [1, 2, 3, 5, 6, 7]] = 0
    encoders = [Encoder(config, spec, 1, np.random.default_rng(1), tf.float32) for _ in range(2)]
    for encoder, observed in zip(encoders, (images, others), strict=True):
        encoder.observe((tf.constant(observed),))
    means, means_of_others = ([variable.numpy() for variable in encoder.variables] for encoder in encoders)
    assert all(np.array_equal(*pair) for pair in zip(means, means_of_others, strict=True))
    encoders[1].observe((tf.constant(others[:, 1:]),))
    assert not all(np.array_equal(a, b.numpy()) for a, b in zip(means, encoders[1].variables, strict=True))
