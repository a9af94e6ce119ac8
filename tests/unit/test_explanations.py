"""Explanations of actions: they say what stands behind them and change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from policies import DISCRETE, POLICIES, N, trained_run

from seedrl_core.codec import FIRST, TERMINATED, TickArrays
from seedrl_learner.agents.vtrace import VTraceAgent
from seedrl_learner.inference import Answer
from seedrl_learner.run import Machinery

STEPS = 6


def play(machinery: Machinery, sessions: list[Any]) -> list[list[Answer]]:
    """The answers to some steps of whole episodes, the same observations in every session."""
    rng = np.random.default_rng(1)
    leaf = machinery.spec.observation[0]
    answers = []
    for step in range(STEPS):
        observation = (rng.normal(size=(N, *leaf.shape)) * 50 + 50).astype(leaf.dtype)
        flags = np.array([FIRST if step % 4 == 0 else TERMINATED if step % 4 == 3 else 0] * N, np.uint8)
        tick = TickArrays(step, (observation,), rng.normal(size=N).astype(np.float32), flags)
        answers.append(machinery.inference.run([(slots, tick) for slots in sessions]))
    return answers


@pytest.mark.parametrize("name", POLICIES)
def test_who_asks_for_explanations_gets_them_and_the_same_actions(name: str, tmp_path: Path) -> None:
    """Core state and frame stack do not notice the second run of the network."""
    spec, settings = POLICIES[name]
    machinery = trained_run(tmp_path, spec, settings).machinery
    assert machinery is not None
    inference = machinery.inference
    plain, explained = inference.open(N, greedy=True), inference.open(N, greedy=True, explain=True)
    for plain_answer, answer in play(machinery, [plain, explained]):
        assert plain_answer.explanation is None
        for expected, got in zip(plain_answer.action, answer.action, strict=True):
            np.testing.assert_array_equal(got, expected)
        assert answer.explanation is not None
        value, preference = answer.explanation.value, answer.explanation.preference
        assert value.shape == (N,)
        if spec.action != (DISCRETE,):
            assert preference.shape == (N, 0)
            continue
        np.testing.assert_array_equal(preference.argmax(axis=1) + DISCRETE.low[0], answer.action[0])
        if isinstance(machinery.agent, VTraceAgent):
            np.testing.assert_allclose(preference.sum(axis=1), 1.0, rtol=1e-5)
        else:
            np.testing.assert_allclose(preference.max(axis=1), value, rtol=1e-5)


def test_the_value_is_the_baseline(tmp_path: Path) -> None:
    """It rises as the baseline does, whose last variable is a bias."""
    machinery = trained_run(tmp_path, *POLICIES["vector"]).machinery
    assert machinery is not None
    slots = machinery.inference.open(N, greedy=True, explain=True)
    (before,) = play(machinery, [slots])[0]
    machinery.agent.network._baseline.bias.assign_add([1.5])
    machinery.inference.close(slots)
    (after,) = play(machinery, [machinery.inference.open(N, greedy=True, explain=True)])[0]
    assert before.explanation is not None and after.explanation is not None
    np.testing.assert_allclose(after.explanation.value, before.explanation.value + 1.5, rtol=1e-5)
