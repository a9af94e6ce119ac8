"""Names what limits the speed of a run, from the shares of time that its parts were busy or blocked."""

from __future__ import annotations

from collections.abc import Mapping

STARTING = "starting"
TRAINING = "training"
INFERENCE = "inference"
ENVIRONMENTS = "environments"

_BLOCKED_SHARE = 0.15
_BUSY_SHARE = 0.75


def name_bottleneck(metrics: Mapping[str, float]) -> str:
    """The part to speed up first.

    Training, when inference is held back by a full queue of unrolls; else inference, when it is busy nearly all the
    time; else the environments (or there are too few of them). On a machine where all services share the cores, this
    tells which part the others wait for, not which uses most of the processor.
    """
    if metrics.get("env_steps_per_s", 0.0) == 0.0:
        return STARTING
    if metrics.get("inference/blocked_share", 0.0) > _BLOCKED_SHARE:
        return TRAINING
    if metrics.get("inference/busy_share", 0.0) > _BUSY_SHARE:
        return INFERENCE
    return ENVIRONMENTS
