"""What an evaluation comes to, from the episodes that were played."""

from __future__ import annotations

import pytest

from seedrl_launcher.evaluation import evaluate
from seedrl_proto.v1 import learner_pb2 as learner

EPISODES = [{"return": -20.7, "length": 800}, {"return": 14.6, "length": 1200}]
STATUS = learner.StatusReply(policy_version=7, env_steps=5000, last_checkpoint="checkpoints/7")


def test_returns_are_summed_up_with_the_policy_that_earned_them() -> None:
    """Mean, spread and extremes of the raw returns; version, steps and checkpoint of the learner that played."""
    result = evaluate("ALE/Pong-v5", EPISODES, STATUS)
    assert (result.episodes, result.mean_length) == (2, 1000)
    assert result.mean_return == pytest.approx(-3.05)
    assert result.std_return == pytest.approx(17.65)
    assert (result.min_return, result.max_return) == (-20.7, 14.6)
    assert (result.policy_version, result.env_steps, result.checkpoint) == (7, 5000, "checkpoints/7")


def test_the_mean_return_is_human_normalized_where_a_reference_is_known() -> None:
    """Half way from a random policy to a person in Pong; elsewhere there is none, which is not 0."""
    assert evaluate("ALE/Pong-v5", EPISODES, STATUS).human_normalized_score == pytest.approx(0.5)
    assert evaluate("CartPole-v1", EPISODES, STATUS).human_normalized_score is None
