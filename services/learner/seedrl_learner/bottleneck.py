"""Names what limits the speed of a run, from the times that its parts were busy or blocked."""

from __future__ import annotations

from collections.abc import Mapping

STARTING = "starting"
TRAINING = "training"
INFERENCE = "inference"
ENVIRONMENTS = "environments"
MESSAGES = "messages"

_BLOCKED_SHARE = 0.15
_BUSY_SHARE = 0.75
# What is known of a tick's time.
_PARTS_MS = ("environment/step_ms", "inference/queue_wait_ms", "inference/step_ms")


def name_bottleneck(metrics: Mapping[str, float]) -> str:
    """The part to speed up first.

    Training, when inference is held back by a full queue of unrolls; else inference, when it is busy nearly all the
    time; else what a tick takes longest with: the environments' step, or the messages between the services, which is
    what its other parts leave (a tick of few cheap environments). On a machine where all services share the cores,
    this tells which part the others wait for, not which uses most of the processor.
    """
    env_steps_per_s = metrics.get("env_steps_per_s", 0.0)
    if env_steps_per_s == 0.0:
        return STARTING
    blocked_share = metrics.get("inference/blocked_share", 0.0)
    if blocked_share > _BLOCKED_SHARE:
        return TRAINING
    if metrics.get("inference/busy_share", 0.0) > _BUSY_SHARE:
        return INFERENCE
    tick_ms = 1000.0 * metrics.get("learner/num_envs", 0.0) / env_steps_per_s
    messages_ms = tick_ms * (1.0 - blocked_share) - sum(metrics.get(part, 0.0) for part in _PARTS_MS)
    return MESSAGES if messages_ms > metrics.get("environment/step_ms", 0.0) else ENVIRONMENTS
