"""Fills what the configuration leaves open by the spaces of the environment: training works without any setting."""

from __future__ import annotations

from typing import Any, NamedTuple

from seedrl_core.config import LearnerConfig
from seedrl_core.spec import EnvironmentSpec
from seedrl_learner.networks.encoder import is_image


class Defaults(NamedTuple):
    """Values of the fields that are None in LearnerConfig, by the same names."""

    torso: str
    unroll_length: int
    batch_unrolls: int
    queue_unrolls: int
    learning_rate: float
    max_gradient_norm: float
    trace_lambda: float
    baseline_cost: float
    entropy_cost: float
    reward_clip: float


# Each sample is used once, so what an environment step yields grows with the number of updates: small batches. VECTOR
# was tuned on CartPole-v1 (batches of 16 unrolls learn more slowly, a rate of 2e-3 is not reliable), IMAGE on a game of
# catching a falling ball (lambda 0.95 and batches of 4 learn faster than 1 and 8; with baseline 0.1 and entropy 0.003
# the policy jumps and falls back).
IMAGE = Defaults(
    torso="nature_cnn",
    unroll_length=20,
    batch_unrolls=4,
    queue_unrolls=8,
    learning_rate=6e-4,
    max_gradient_norm=0.5,
    trace_lambda=0.95,
    baseline_cost=0.5,
    entropy_cost=0.01,
    reward_clip=1.0,
)
VECTOR = Defaults(
    torso="mlp",
    unroll_length=20,
    batch_unrolls=8,
    queue_unrolls=8,
    learning_rate=1e-3,
    max_gradient_norm=0.5,
    trace_lambda=1.0,
    baseline_cost=0.5,
    entropy_cost=0.01,
    reward_clip=0.0,
)


def resolve(config: LearnerConfig, spec: EnvironmentSpec) -> LearnerConfig:
    """`config` with every None replaced; what is set stays."""
    default = IMAGE if any(map(is_image, spec.observation)) else VECTOR
    torso = config.network.torso or default.torso
    batch_unrolls = config.batch_unrolls or default.batch_unrolls
    return config.model_copy(
        update={
            "network": _fill(config.network, torso=torso, separate_baseline=torso == "mlp"),
            "optimizer": _fill(
                config.optimizer, learning_rate=default.learning_rate, max_gradient_norm=default.max_gradient_norm
            ),
            "vtrace": _fill(
                config.vtrace,
                trace_lambda=default.trace_lambda,
                baseline_cost=default.baseline_cost,
                entropy_cost=default.entropy_cost,
                reward_clip=default.reward_clip,
            ),
            "unroll_length": config.unroll_length or default.unroll_length,
            "batch_unrolls": batch_unrolls,
            "queue_unrolls": config.queue_unrolls or max(default.queue_unrolls, batch_unrolls),
            "frame_stack": config.frame_stack or spec.frame_stack,
        }
    )


def _fill(section: Any, **defaults: Any) -> Any:
    """A section with those of `defaults` that are None in it."""
    return section.model_copy(update={k: v for k, v in defaults.items() if getattr(section, k) is None})
