"""Fills what the configuration leaves open by agent and spaces: training works without any setting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel

from seedrl_core.config import LearnerConfig
from seedrl_core.spec import EnvironmentSpec
from seedrl_learner.networks.encoder import is_image

M = TypeVar("M", bound=BaseModel)

# Of V-trace: each sample is used once, so what an environment step yields grows with the number of updates: small
# batches. VECTOR was tuned on CartPole-v1 (batches of 16 unrolls learn more slowly, a rate of 2e-3 is not reliable),
# IMAGE on Pong, where an entropy cost of 0.001 took twice as many steps to a return of 0 and ended lower. With the mean
# image in them, features are nearly constant, and values are learned five times slower.
_VTRACE: Mapping[str, Any] = {
    "network.core": "none",
    "network.core_size": 256,
    "network.previous_action": False,
    "network.previous_reward": False,
    "optimizer.decay": True,
    "optimizer.decay_power": 1.0,
    "optimizer.epsilon": 1e-5,
    "optimizer.max_gradient_norm": 0.5,
    "vtrace.normalize_values": False,
    "vtrace.normalize_advantages": False,
    "unroll_length": 20,
    "batch_unrolls": 8,
    "queue_unrolls": 8,
}
VTRACE_IMAGE: Mapping[str, Any] = {
    **_VTRACE,
    "network.torso": "nature_cnn",
    "optimizer.learning_rate": 6e-4,
    "network.normalize_observations": True,
    "vtrace.trace_lambda": 0.95,
    "vtrace.baseline_cost": 0.25,
    "vtrace.entropy_cost": 0.006,
    "vtrace.entropy_decay": True,
    "vtrace.reward_clip": 1.0,
}
VTRACE_VECTOR: Mapping[str, Any] = {
    **_VTRACE,
    "network.torso": "mlp",
    "optimizer.learning_rate": 1e-3,
    "network.normalize_observations": False,
    "vtrace.trace_lambda": 1.0,
    "vtrace.baseline_cost": 0.5,
    "vtrace.entropy_cost": 0.01,
    "vtrace.entropy_decay": False,
    "vtrace.reward_clip": 0.0,
}
# Of R2D2: tables 2 and 3 of its paper where they say something.
_R2D2: Mapping[str, Any] = {
    "network.core": "lstm",
    "network.previous_action": True,
    "network.previous_reward": True,
    "optimizer.decay": False,
    "optimizer.decay_power": 1.0,
    "optimizer.epsilon": 1e-3,
    "optimizer.max_gradient_norm": 40.0,
}
R2D2_IMAGE: Mapping[str, Any] = {
    **_R2D2,
    "network.torso": "nature_cnn",
    "network.core_size": 512,
    "network.normalize_observations": True,
    "network.head_size": 512,
    "optimizer.learning_rate": 1e-4,
    "r2d2.burn_in": 40,
    "r2d2.target_update_period": 2500,
    "replay.min_unrolls": 200,
    "replay.ratio": 1.5,
    "unroll_length": 80,
    "batch_unrolls": 32,
    "queue_unrolls": 16,
}
R2D2_VECTOR: Mapping[str, Any] = {
    **_R2D2,
    "network.torso": "mlp",
    "network.core_size": 64,
    "network.normalize_observations": False,
    "network.head_size": 64,
    "optimizer.learning_rate": 1e-3,
    "r2d2.burn_in": 10,
    "r2d2.target_update_period": 200,
    "replay.min_unrolls": 500,
    "replay.ratio": 4.0,
    "unroll_length": 20,
    "batch_unrolls": 32,
    "queue_unrolls": 32,
}
# Where an action is continuous: observations and rewards then are measurements of all sizes. Tried on
# InvertedPendulum-v5 and HalfCheetah-v5.
_CONTINUOUS: Mapping[str, Any] = {
    "network.normalize_observations": True,
    "vtrace.entropy_cost": 0.0,
    "vtrace.normalize_values": True,
    "vtrace.normalize_advantages": True,
}
# Where an image comes with an instruction, as in DeepMind Lab: the network of IMPALA's experiments there.
_INSTRUCTED: Mapping[str, Any] = {
    "network.torso": "impala_resnet",
    "network.core": "lstm",
    "network.previous_action": True,
    "network.previous_reward": True,
}
_DEFAULTS = {
    ("vtrace", True): VTRACE_IMAGE,
    ("vtrace", False): VTRACE_VECTOR,
    ("r2d2", True): R2D2_IMAGE,
    ("r2d2", False): R2D2_VECTOR,
}


def resolve(config: LearnerConfig, spec: EnvironmentSpec) -> LearnerConfig:
    """`config` with every None that its agent reads replaced; what is set stays."""
    has_image = any(map(is_image, spec.observation))
    defaults = dict(_DEFAULTS[config.agent, has_image])
    if has_image and any(leaf.is_instruction for leaf in spec.observation):
        defaults |= _INSTRUCTED
    if not all(leaf.is_integer for leaf in spec.action):
        defaults |= _CONTINUOUS
    defaults |= {
        "network.separate_baseline": (config.network.torso or defaults["network.torso"]) == "mlp",
        "queue_unrolls": max(defaults["queue_unrolls"], config.batch_unrolls or 0),
        "frame_stack": spec.frame_stack,
    }
    return _fill(config, defaults)


def _fill(model: M, defaults: Mapping[str, Any], prefix: str = "") -> M:
    """`model` with those of `defaults` (by dotted key) that are None in it, in its sections too."""
    update = {}
    for name, value in model:
        key = prefix + name
        if isinstance(value, BaseModel):
            update[name] = _fill(value, defaults, f"{key}.")
        elif value is None and key in defaults:
            update[name] = defaults[key]
    return model.model_copy(update=update)
