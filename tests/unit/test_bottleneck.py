"""The bottleneck's name, for figures that runs on two cores had."""

from __future__ import annotations

from seedrl_learner.bottleneck import name_bottleneck

BREAKOUT = {
    "env_steps_per_s": 1169.4,
    "learner/num_envs": 64.0,
    "environment/step_ms": 19.6,
    "inference/step_ms": 14.4,
    "inference/queue_wait_ms": 1.5,
    "inference/blocked_share": 0.118,
    "inference/busy_share": 0.297,
}
CARTPOLE = {
    "env_steps_per_s": 10_600.0,
    "learner/num_envs": 64.0,
    "environment/step_ms": 0.4,
    "inference/step_ms": 0.9,
    "inference/queue_wait_ms": 1.0,
    "inference/blocked_share": 0.05,
    "inference/busy_share": 0.15,
}


def test_before_the_first_step_a_run_is_starting() -> None:
    """Not yet anything to be slow."""
    assert name_bottleneck({}) == "starting"
    assert name_bottleneck(BREAKOUT | {"env_steps_per_s": 0.0}) == "starting"


def test_emulators_are_what_breakout_waits_for() -> None:
    """Their step is the longest part of a tick of 55 ms, none of which is the messages' alone for as long."""
    assert name_bottleneck(BREAKOUT) == "environments"


def test_a_tick_of_few_cheap_environments_is_spent_on_messages() -> None:
    """6 ms, of which the environments take 0.4 and inference 0.9; with 32 times as many environments it is theirs."""
    assert name_bottleneck(CARTPOLE) == "messages"
    many = {"env_steps_per_s": 62_000.0, "learner/num_envs": 2048.0, "inference/queue_wait_ms": 4.0}
    assert name_bottleneck(CARTPOLE | many | {"environment/step_ms": 13.0, "inference/step_ms": 6.0}) == "environments"


def test_training_and_inference_come_first() -> None:
    """A full queue of unrolls is training's doing; inference without a pause is the limit whatever ticks wait for."""
    assert name_bottleneck(CARTPOLE | {"inference/blocked_share": 0.178}) == "training"
    assert name_bottleneck(CARTPOLE | {"inference/busy_share": 0.9}) == "inference"
    assert name_bottleneck(BREAKOUT | {"inference/busy_share": 0.9, "inference/blocked_share": 0.2}) == "training"


def test_what_is_not_known_does_not_count() -> None:
    """A window in which no episode and no tick was told of has the environments for its bottleneck."""
    assert name_bottleneck({"env_steps_per_s": 100.0}) == "environments"
