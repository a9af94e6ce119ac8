"""Training: takes batches of unrolls, updates the variables, again and again, in a thread of its own."""

from __future__ import annotations

import threading

import tensorflow as tf

from seedrl_core.metrics import Metrics
from seedrl_learner.agents.base import Agent
from seedrl_learner.batch import UnrollBatch
from seedrl_learner.optimization import Optimization
from seedrl_learner.progress import Progress
from seedrl_learner.traced import Traced
from seedrl_learner.training_data import TrainingBatch, TrainingData

_POLL_S = 0.2


class Trainer:
    """One update after another while there are unrolls; the only writer of the variables and of the policy version.

    Attributes:
      newest: the unrolls that the last update was made of, to look at; None before the first.
    """

    def __init__(
        self,
        agent: Agent,
        optimization: Optimization,
        data: TrainingData,
        progress: Progress,
        metrics: Metrics,
        *,
        total_env_steps: int,
    ) -> None:
        """`total_env_steps` of 0 means no end."""
        self._agent = agent
        self._optimization = optimization
        self._data = data
        self._progress = progress
        self._metrics = metrics
        self._total_env_steps = total_env_steps
        self.newest: UnrollBatch | None = None
        self._stop = threading.Event()
        self._enabled = threading.Event()
        self._enabled.set()
        self._update = Traced(self._update_variables)
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
        """Trains in the calling thread until `stop`, or until all env steps are made and no whole batch waits."""
        self._metrics.count("train/updates_per_s", 0)  # no update is seen as none, not as nothing
        while not self._stop.is_set():
            complete = self.is_complete  # asked first: what is the last step's is waiting then
            batch = self._next_batch()
            if batch is not None:
                with (
                    self._metrics.busy("train/busy_share", "train/update_ms"),
                    self._metrics.busy("learner/busy_share"),
                ):
                    self.train_on(batch)
            elif complete:
                return

    def _next_batch(self) -> TrainingBatch | None:
        if not self._enabled.wait(_POLL_S):
            return None
        with self._metrics.busy("train/wait_share"):
            return self._data.next(_POLL_S)

    def train_on(self, batch: TrainingBatch) -> None:
        """One update."""
        versions = batch.unrolls.policy_version
        lag = self._progress.policy_version - versions.mean()
        fraction = self._progress.env_steps / self._total_env_steps if self._total_env_steps else 0.0
        with self.between_updates:
            scalars, priority = self._update(batch.unrolls, tf.constant(min(1.0, fraction), tf.float32))
            values = {name: float(value) for name, value in scalars.items()}
            self._progress.policy_version += 1
        self.newest = batch.unrolls
        self._data.trained(batch, None if priority is None else priority.numpy())
        self._metrics.observe_all(values)
        self._metrics.observe("train/policy_lag_updates", float(lag))
        self._metrics.count("train/updates_per_s")
        self._metrics.count("train/env_steps_per_s", versions.shape[0] * (versions.shape[1] - self._agent.overlap))

    def _update_variables(
        self, batch: UnrollBatch, fraction: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor | None]:
        variables = self._agent.network.trainable_variables
        with tf.GradientTape() as tape:
            loss = self._agent.loss(batch, fraction)
        gradients = tape.gradient(loss.total, variables)
        metrics = loss.metrics | self._optimization.apply(gradients, fraction)
        # The updates that `apply` lays out come first: a tf.function keeps the order of changes to variables.
        metrics |= self._agent.after_update(batch, loss, self._optimization.updates.read_value())
        return metrics, loss.priority
