"""Fills what the configuration leaves open by the spaces of the environment: training works without any setting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel

from seedrl_core.config import LearnerConfig
from seedrl_core.spec import EnvironmentSpec
from seedrl_learner.networks.encoder import is_image

M = TypeVar("M", bound=BaseModel)

_QUEUE_UNROLLS = 8

# Values of the fields that are None in LearnerConfig, for each agent: where an observation is an image, and elsewhere.
#
# V-trace uses each sample once, so what an environment step yields grows with the number of updates: small batches. Its
# second set was tuned on CartPole-v1 (batches of 16 unrolls learn more slowly, a rate of 2e-3 is not reliable), the
# first on a game of catching a falling ball (lambda 0.95 and batches of 4 learn faster than 1 and 8; with baseline 0.1
# and entropy 0.003 the policy jumps and falls back).
_DEFAULTS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "vtrace": (
        {
            "network": {"torso": "nature_cnn"},
            "optimizer": {"learning_rate": 6e-4, "max_gradient_norm": 0.5},
            "vtrace": {"trace_lambda": 0.95, "baseline_cost": 0.5, "entropy_cost": 0.01, "reward_clip": 1.0},
            "unroll_length": 20,
            "batch_unrolls": 4,
        },
        {
            "network": {"torso": "mlp"},
            "optimizer": {"learning_rate": 1e-3, "max_gradient_norm": 0.5},
            "vtrace": {"trace_lambda": 1.0, "baseline_cost": 0.5, "entropy_cost": 0.01, "reward_clip": 0.0},
            "unroll_length": 20,
            "batch_unrolls": 8,
        },
    )
}
# Wherever an action is continuous, in place of what stands above: observations then are measurements of all sizes.
# Tried on InvertedPendulum-v5 and HalfCheetah-v5.
_CONTINUOUS: Mapping[str, Any] = {"network": {"normalize_observations": True}, "vtrace": {"entropy_cost": 0.0}}


def resolve(config: LearnerConfig, spec: EnvironmentSpec) -> LearnerConfig:
    """`config` with every None replaced that its agent uses; what is set stays."""
    if not all(leaf.is_integer for leaf in spec.action):
        config = _fill(config, _CONTINUOUS)
    image, vector = _DEFAULTS[config.agent]
    config = _fill(config, image if any(map(is_image, spec.observation)) else vector)
    return _fill(
        config,
        {
            "network": {"separate_baseline": config.network.torso == "mlp", "normalize_observations": False},
            "queue_unrolls": max(_QUEUE_UNROLLS, config.batch_unrolls or 0),
            "frame_stack": spec.frame_stack,
        },
    )


def _fill(model: M, defaults: Mapping[str, Any]) -> M:
    """A model with those of `defaults` that are None in it; a mapping is for the section of its name."""
    filled = {}
    for name, default in defaults.items():
        value = getattr(model, name)
        if isinstance(default, Mapping):
            filled[name] = _fill(value, default)
        elif value is None:
            filled[name] = default
    return model.model_copy(update=filled)
