"""Training: takes whole unrolls from the queue, updates the variables, again and again, in a thread of its own."""

from __future__ import annotations

import threading

import tensorflow as tf

from seedrl_core.metrics import Metrics
from seedrl_learner.agents.base import Agent
from seedrl_learner.batch import UnrollBatch
from seedrl_learner.optimization import Optimization
from seedrl_learner.progress import Progress
from seedrl_learner.unroll_queue import UnrollQueue
from seedrl_learner.unrolls import UnrollStore

_POLL_S = 0.2


class Trainer:
    """One update after another while there are unrolls; the only writer of the variables and of the policy version."""

    def __init__(
        self,
        agent: Agent,
        optimization: Optimization,
        store: UnrollStore,
        queue: UnrollQueue,
        progress: Progress,
        metrics: Metrics,
        *,
        batch_unrolls: int,
        total_env_steps: int,
    ) -> None:
        """`total_env_steps` of 0 means no end."""
        self._agent = agent
        self._optimization = optimization
        self._store = store
        self._queue = queue
        self._progress = progress
        self._metrics = metrics
        self._batch_unrolls = batch_unrolls
        self._total_env_steps = total_env_steps
        self._stop = threading.Event()
        self._enabled = threading.Event()
        self._enabled.set()
        self._update = tf.function(self._update_variables, autograph=False)
        # Held during an update: whoever else holds it sees variables, optimizer and counters of one policy version.
        self.between_updates = threading.Lock()

    @property
    def enabled(self) -> bool:
        """False while paused."""
        return self._enabled.is_set()

    @property
    def is_complete(self) -> bool:
        """True when the run has made its env steps."""
        return 0 < self._total_env_steps <= self._progress.env_steps

    def set_enabled(self, enabled: bool) -> None:
        """Pauses after the current update, or resumes."""
        (self._enabled.set if enabled else self._enabled.clear)()

    def stop(self) -> None:
        """Makes `run` return after the current update."""
        self._stop.set()

    def run(self) -> None:
        """Trains until `stop` or completion, in the calling thread."""
        while not self._stop.is_set() and not self.is_complete:
            if not self._enabled.wait(_POLL_S):
                continue
            with self._metrics.busy("train/wait_share"):
                rows = self._queue.take(self._batch_unrolls, _POLL_S)
            if rows is None:
                continue
            with self._metrics.busy("train/busy_share", "train/update_ms"), self._metrics.busy("learner/busy_share"):
                self._train_on(rows)

    def _train_on(self, rows: list[int]) -> None:
        batch = self._store.gather(rows)
        self._store.release(rows)
        lag = self._progress.policy_version - batch.policy_version.mean()
        fraction = self._progress.env_steps / self._total_env_steps if self._total_env_steps else 0.0
        with self.between_updates:
            scalars = self._update(batch, tf.constant(min(1.0, fraction), tf.float32))
            values = {name: float(value) for name, value in scalars.items()}
            self._progress.policy_version += 1
        self._metrics.observe_all(values)
        self._metrics.observe("train/policy_lag_updates", float(lag))
        self._metrics.count("train/updates_per_s")
        self._metrics.count(
            "train/env_steps_per_s", batch.reward.shape[0] * (batch.reward.shape[1] - self._agent.overlap)
        )

    def _update_variables(self, batch: UnrollBatch, fraction: tf.Tensor) -> dict[str, tf.Tensor]:
        variables = self._agent.network.trainable_variables
        with tf.GradientTape() as tape:
            loss, scalars = self._agent.loss(batch)
        gradients = tape.gradient(loss, variables)
        scalars |= self._optimization.apply(gradients, fraction)
        self._agent.after_update(batch)
        return scalars
