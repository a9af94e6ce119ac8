"""The trainer with the R2D2 agent: what each update does to the target network, and what goes back to the data."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import rollouts
import tensorflow as tf

from seedrl_core.codec import FIRST
from seedrl_core.config import LearnerConfig
from seedrl_core.metrics import Metrics
from seedrl_core.spec import Array, EnvironmentSpec, TensorSpec
from seedrl_learner.agents import make_agent
from seedrl_learner.agents.base import Agent
from seedrl_learner.batch import UnrollBatch
from seedrl_learner.defaults import resolve
from seedrl_learner.optimization import Optimization
from seedrl_learner.progress import Progress
from seedrl_learner.trainer import Trainer
from seedrl_learner.training_data import TrainingBatch

OBSERVATION = TensorSpec("observation", np.dtype(np.float32), (3,))
ACTION = TensorSpec("action", np.dtype(np.int64), (), (0,), (1,))
SPEC = EnvironmentSpec("test", (OBSERVATION,), (ACTION,))
PERIOD, UPDATES = 3, 8


class Repeated:
    """The same batch again and again; stops the trainer after `UPDATES` updates."""

    def __init__(self, unrolls: UnrollBatch, after_update: Callable[[], None]) -> None:
        self.batch = TrainingBatch(unrolls, np.arange(2))
        self.priorities: list[Array] = []
        self.stop: Callable[[], None] = lambda: None
        self._after_update = after_update

    def next(self, timeout_s: float) -> TrainingBatch:
        return self.batch

    def trained(self, batch: TrainingBatch, priority: Array | None) -> None:
        assert batch is self.batch
        assert priority is not None
        self.priorities.append(priority)
        self._after_update()
        if len(self.priorities) == UPDATES:
            self.stop()


def values(module: tf.Module) -> list[Array]:
    """Copies of all variables."""
    return [variable.numpy() for variable in module.variables]


def same(one: list[Array], other: list[Array]) -> bool:
    """True when two lists of values are equal to the bit."""
    return all(np.array_equal(x, y) for x, y in zip(one, other, strict=True))


def make_agent_and_unrolls() -> tuple[LearnerConfig, Agent, UnrollBatch]:
    """A small agent and two unrolls of it."""
    settings = {
        "agent": "r2d2",
        "unroll_length": 4,
        "network": {"mlp_sizes": [8], "core_size": 8, "head_size": 8},
        "r2d2": {"burn_in": 2, "target_update_period": PERIOD},
    }
    config = resolve(LearnerConfig.model_validate(settings), SPEC)
    agent = make_agent(config, SPEC)
    flags = np.zeros((2, 7), np.uint8)
    flags[:, 0] = FIRST
    unrolls = rollouts.rollout(agent, OBSERVATION, ACTION, flags)
    return config, agent, tf.nest.map_structure(lambda x: x.numpy(), unrolls)


def test_the_target_network_is_copied_every_period_and_never_between() -> None:
    """After updates 3 and 6 it is the network, to the bit; in between it stays what it was, while the network moves."""
    config, agent, unrolls = make_agent_and_unrolls()
    target = agent.training_state["target"]
    online, kept = [values(agent.network)], [values(target)]
    assert same(online[0], kept[0]), "both start as one"

    def look() -> None:
        online.append(values(agent.network))
        kept.append(values(target))

    data, progress, metrics = Repeated(unrolls, look), Progress(), Metrics()
    optimization = Optimization(config.optimizer, agent.network.trainable_variables)
    trainer = Trainer(agent, optimization, data, progress, metrics, total_env_steps=0)
    data.stop = trainer.stop
    trainer.run()
    assert len(online) == UPDATES + 1
    for update in range(1, UPDATES + 1):
        assert not same(online[update], online[update - 1])
        assert same(kept[update], online[update] if update % PERIOD == 0 else kept[update - 1]), update
    assert progress.policy_version == UPDATES == int(optimization.updates)
    collected = metrics.collect()
    assert collected["train/target_lag_updates"] == np.mean([n % PERIOD for n in range(1, UPDATES + 1)])
    for name in ("loss/total", "train/td_error", "train/q_mean", "train/q_max", "train/gradient_norm"):
        assert np.isfinite(collected[name])


def test_new_priorities_of_every_batch_go_back_to_the_data() -> None:
    """Those of the loss before the update: for the first batch, the initial priorities of its unrolls."""
    config, agent, unrolls = make_agent_and_unrolls()
    expected = agent.loss(tf.nest.map_structure(tf.constant, unrolls)).priority.numpy()
    data = Repeated(unrolls, lambda: None)
    optimization = Optimization(config.optimizer, agent.network.trainable_variables)
    trainer = Trainer(agent, optimization, data, Progress(), Metrics(), total_env_steps=0)
    data.stop = trainer.stop
    trainer.run()
    assert len(data.priorities) == UPDATES
    np.testing.assert_allclose(data.priorities[0], expected, rtol=1e-4)
    assert (data.priorities[-1] != data.priorities[0]).all()
    assert all(priority.shape == (2,) and priority.dtype == np.float32 for priority in data.priorities)


class Waiting(Repeated):
    """Some whole batches, and then no more."""

    def __init__(self, unrolls: UnrollBatch, count: int) -> None:
        super().__init__(unrolls, lambda: None)
        self._left = count

    def next(self, timeout_s: float) -> TrainingBatch | None:  # type: ignore[override]
        self._left -= 1
        return self.batch if self._left >= 0 else None


@pytest.mark.parametrize("paused", [False, True])
def test_a_complete_run_ends_with_the_batches_that_wait(paused: bool) -> None:
    """What was collected by the last env step is trained on, unless training is paused; then the run is over."""
    config, agent, unrolls = make_agent_and_unrolls()
    optimization = Optimization(config.optimizer, agent.network.trainable_variables)
    progress = Progress(env_steps=10)
    metrics = Metrics()
    trainer = Trainer(agent, optimization, Waiting(unrolls, 2), progress, metrics, total_env_steps=10)
    trainer.set_enabled(not paused)
    trainer.run()
    assert progress.policy_version == (0 if paused else 2)
    assert dict(metrics.totals().counts)["train/updates_per_s"] == progress.policy_version, "none is a number, too"
