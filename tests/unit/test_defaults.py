"""Defaults by the spaces of the environment."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import BaseModel

from seedrl_core.config import LearnerConfig
from seedrl_core.spec import EnvironmentSpec, TensorSpec
from seedrl_learner.defaults import resolve

ACTION = TensorSpec("action", np.dtype(np.int64), (), (0,), (3,))
ATARI = EnvironmentSpec("atari", (TensorSpec("observation", np.dtype(np.uint8), (84, 84)),), (ACTION,), 4, 4)
CHEETAH = EnvironmentSpec(
    "cheetah",
    (TensorSpec("observation", np.dtype(np.float32), (17,)),),
    (TensorSpec("action", np.dtype(np.float32), (6,), (-1.0,), (1.0,)),),
)
CARTPOLE = EnvironmentSpec("cartpole", (TensorSpec("observation", np.dtype(np.float32), (4,)),), (ACTION,))


def open_fields(model: BaseModel) -> list[str]:
    """Names of fields that are still None."""
    names = []
    for name, value in model:
        if value is None:
            names.append(name)
        elif isinstance(value, BaseModel):
            names += open_fields(value)
    return names


@pytest.mark.parametrize("spec", [ATARI, CARTPOLE, CHEETAH])
def test_nothing_is_left_open(spec: EnvironmentSpec) -> None:
    """Only where to start from stays None, and the result is a valid configuration."""
    resolved = resolve(LearnerConfig(), spec)
    assert open_fields(resolved) == ["checkpoint"]
    assert LearnerConfig.model_validate(resolved.model_dump()) == resolved


def test_images_get_a_convolutional_torso_and_clipped_rewards() -> None:
    """Atari: nature_cnn, four frames as the environment advises, rewards clipped to +-1."""
    resolved = resolve(LearnerConfig(), ATARI)
    assert (resolved.network.torso, resolved.frame_stack, resolved.vtrace.reward_clip) == ("nature_cnn", 4, 1.0)
    assert not resolved.network.separate_baseline


def test_vectors_get_an_mlp_and_raw_rewards() -> None:
    """CartPole: mlp with a torso of its own for the baseline, no stack, no clipping."""
    resolved = resolve(LearnerConfig(), CARTPOLE)
    assert (resolved.network.torso, resolved.frame_stack, resolved.vtrace.reward_clip) == ("mlp", 1, 0.0)
    assert resolved.network.separate_baseline


def test_only_continuous_actions_normalize_observations() -> None:
    """HalfCheetah: an mlp on normalized observations; CartPole sees what the environment gives."""
    assert resolve(LearnerConfig(), CHEETAH).network.normalize_observations
    assert not resolve(LearnerConfig(), CARTPOLE).network.normalize_observations


@pytest.mark.parametrize("spec", [ATARI, CARTPOLE, CHEETAH])
def test_what_is_set_stays(spec: EnvironmentSpec) -> None:
    """Values of the user win, also those that count as false."""
    settings = LearnerConfig.model_validate(
        {
            "network": {"torso": "impala_resnet", "separate_baseline": False, "normalize_observations": False},
            "optimizer": {"learning_rate": 0.5, "max_gradient_norm": 9.0},
            "vtrace": {"trace_lambda": 0.0, "baseline_cost": 0.0, "entropy_cost": 0.0, "reward_clip": 0.0},
            "unroll_length": 3,
            "batch_unrolls": 5,
            "queue_unrolls": 7,
            "frame_stack": 2,
        }
    )
    assert resolve(settings, spec) == settings


def test_at_least_a_batch_of_unrolls_may_wait() -> None:
    """queue_unrolls grows with batch_unrolls, since training would wait for ever for more than may wait."""
    assert resolve(LearnerConfig(batch_unrolls=500), ATARI).queue_unrolls == 500
    assert (resolve(LearnerConfig(), ATARI).queue_unrolls or 0) >= (resolve(LearnerConfig(), ATARI).batch_unrolls or 0)
