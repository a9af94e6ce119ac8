"""Defaults by the spaces of the environment."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import BaseModel

from seedrl_core.config import LearnerConfig
from seedrl_core.spec import INSTRUCTION, EnvironmentSpec, TensorSpec
from seedrl_learner.agents import make_agent
from seedrl_learner.defaults import resolve

ACTION = TensorSpec("action", np.dtype(np.int64), (), (0,), (3,))
ATARI = EnvironmentSpec("atari", (TensorSpec("observation", np.dtype(np.uint8), (84, 84)),), (ACTION,), 4, 4)
CHEETAH = EnvironmentSpec(
    "cheetah",
    (TensorSpec("observation", np.dtype(np.float32), (17,)),),
    (TensorSpec("action", np.dtype(np.float32), (6,), (-1.0,), (1.0,)),),
)
LAB = EnvironmentSpec(
    "lab",
    (
        TensorSpec("observation/pixels", np.dtype(np.uint8), (72, 96, 3)),
        TensorSpec(INSTRUCTION, np.dtype(np.int64), (16,), (0,), (999,)),
    ),
    (ACTION,),
    4,
)
CARTPOLE = EnvironmentSpec("cartpole", (TensorSpec("observation", np.dtype(np.float32), (4,)),), (ACTION,))


def open_fields(model: BaseModel, prefix: str = "") -> list[str]:
    """Dotted names of fields that are still None."""
    names = []
    for name, value in model:
        if value is None:
            names.append(prefix + name)
        elif isinstance(value, BaseModel):
            names += open_fields(value, f"{prefix}{name}.")
    return names


@pytest.mark.parametrize("spec", [ATARI, CARTPOLE])
@pytest.mark.parametrize("agent", ["vtrace", "r2d2"])
def test_an_agent_finds_nothing_open(agent: str, spec: EnvironmentSpec) -> None:
    """Only where to start from and what other agents read stay None, and the agent can be made of the result."""
    resolved = resolve(LearnerConfig.model_validate({"agent": agent}), spec)
    others = {
        "vtrace": {
            "network.head_size",
            "r2d2.burn_in",
            "r2d2.target_update_period",
            "replay.min_unrolls",
            "replay.ratio",
        },
        "r2d2": {f"vtrace.{name}" for name in open_fields(LearnerConfig().vtrace)},
    }
    assert set(open_fields(resolved)) == {"checkpoint"} | others[agent]
    assert LearnerConfig.model_validate(resolved.model_dump()) == resolved
    make_agent(resolved, spec)


def test_images_and_continuous_actions_normalize_observations() -> None:
    """Atari and HalfCheetah; CartPole sees what the environment gives."""
    assert resolve(LearnerConfig(), ATARI).network.normalize_observations
    assert resolve(LearnerConfig(), CHEETAH).network.normalize_observations
    assert resolve(LearnerConfig(), CHEETAH).vtrace.entropy_cost == 0.0
    assert resolve(LearnerConfig(), CHEETAH).vtrace.normalize_values
    assert not resolve(LearnerConfig(), CARTPOLE).vtrace.normalize_values
    assert not resolve(LearnerConfig(), CARTPOLE).network.normalize_observations


def test_r2d2_gets_the_settings_of_its_paper() -> None:
    """Atari: tables 2 and 3 of the paper."""
    resolved = resolve(LearnerConfig(agent="r2d2"), ATARI)
    assert (resolved.r2d2.burn_in, resolved.unroll_length, resolved.r2d2.n_step) == (40, 80, 5)
    assert (resolved.r2d2.discount, resolved.r2d2.target_update_period) == (0.997, 2500)
    assert (resolved.network.core, resolved.network.core_size, resolved.network.head_size) == ("lstm", 512, 512)
    assert (resolved.network.previous_action, resolved.network.previous_reward) == (True, True)
    assert (resolved.optimizer.learning_rate, resolved.optimizer.epsilon) == (1e-4, 1e-3)
    assert (resolved.replay.priority_exponent, resolved.replay.importance_exponent) == (0.9, 0.6)
    assert (resolved.r2d2.priority_max_weight, resolved.r2d2.rescaling_epsilon) == (0.9, 1e-3)
    assert (resolved.r2d2.epsilon_base, resolved.r2d2.epsilon_exponent, resolved.r2d2.eval_epsilon) == (0.4, 7.0, 1e-3)


def test_images_get_a_convolutional_torso_and_clipped_rewards() -> None:
    """Atari: nature_cnn, four frames as the environment advises, rewards clipped to +-1."""
    resolved = resolve(LearnerConfig(), ATARI)
    assert (resolved.network.torso, resolved.frame_stack, resolved.vtrace.reward_clip) == ("nature_cnn", 4, 1.0)
    assert not resolved.network.separate_baseline


@pytest.mark.parametrize(("agent", "core_size"), [("vtrace", 256), ("r2d2", 512)])
def test_an_image_with_an_instruction_gets_the_network_of_impala(agent: str, core_size: int) -> None:
    """DeepMind Lab: the residual network, an LSTM, previous action and reward; all else as for other images."""
    network = resolve(LearnerConfig.model_validate({"agent": agent}), LAB).network
    assert (network.torso, network.core, network.core_size) == ("impala_resnet", "lstm", core_size)
    assert (network.previous_action, network.previous_reward) == (True, True)
    plain = EnvironmentSpec("lab", LAB.observation[:1], LAB.action, 4)
    assert resolve(LearnerConfig(), plain).network.torso == "nature_cnn"
    assert resolve(LearnerConfig(), EnvironmentSpec("text", LAB.observation[1:], LAB.action)).network.torso == "mlp"


def test_vectors_get_an_mlp_and_raw_rewards() -> None:
    """CartPole: mlp with a torso of its own for the baseline, no stack, no clipping."""
    resolved = resolve(LearnerConfig(), CARTPOLE)
    assert (resolved.network.torso, resolved.frame_stack, resolved.vtrace.reward_clip) == ("mlp", 1, 0.0)
    assert resolved.network.separate_baseline


@pytest.mark.parametrize("spec", [ATARI, CARTPOLE])
def test_what_is_set_stays(spec: EnvironmentSpec) -> None:
    """Values of the user win, also those that count as false."""
    settings = LearnerConfig.model_validate(
        {
            "network": {
                "torso": "impala_resnet",
                "separate_baseline": False,
                "core": "none",
                "core_size": 3,
                "previous_action": True,
                "previous_reward": True,
                "normalize_observations": False,
            },
            "optimizer": {
                "learning_rate": 0.5,
                "max_gradient_norm": 9.0,
                "decay": False,
                "decay_power": 3.0,
                "epsilon": 0.25,
            },
            "vtrace": {
                "normalize_values": False,
                "normalize_advantages": True,
                "trace_lambda": 0.0,
                "baseline_cost": 0.0,
                "entropy_cost": 0.0,
                "entropy_decay": False,
                "reward_clip": 0.0,
            },
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
