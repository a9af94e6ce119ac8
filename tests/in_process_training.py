"""Trains and evaluates in this process: the real environments, inference and trainer, without services between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from seedrl_actor import environments
from seedrl_actor.environments import VectorEnvironment
from seedrl_core.codec import TickArrays
from seedrl_core.config import Settings, load_settings
from seedrl_core.metrics import Metrics
from seedrl_learner.progress import Progress
from seedrl_learner.run import Machinery


class InProcess:
    """A learner and its environments."""

    def __init__(self, env_id: str, env_steps: int, num_envs: int = 16, **settings: Any) -> None:
        """`settings` are keys of the configuration with `__` for dots."""
        keys = {key.replace("__", "."): value for key, value in settings.items()}
        self.settings: Settings = load_settings(
            None, {"actor.env_id": env_id, "learner.total_env_steps": env_steps, "learner.max_envs": 64} | keys
        )
        self._num_envs = num_envs
        self._environments = environments.make(self.settings.actor, 0, num_envs, 1)
        self.progress = Progress()
        self.machinery = Machinery(self.settings.learner, self._environments.spec, self.progress, Metrics())

    def train(self) -> None:
        """Until all steps are made, on each batch once it is whole: what is learned does not depend on the speed."""
        trainer, data = self.machinery.trainer, self.machinery.data

        def train_on_whole_batches() -> None:
            while (batch := data.next(0.0)) is not None:
                trainer.train_on(batch)

        self._play(self._environments, False, lambda: trainer.is_complete, train_on_whole_batches)

    def evaluate(self, episodes: int) -> float:
        """Mean return of whole episodes, played greedily."""
        returns: list[float] = []
        played = environments.make(self.settings.actor, 1000, self._num_envs, 1)
        self._play(played, True, lambda: len(returns) >= episodes, lambda: None, returns)
        return float(np.mean(returns))

    def _play(
        self,
        played: VectorEnvironment,
        greedy: bool,
        done: Callable[[], bool],
        after_tick: Callable[[], None],
        returns: list[float] | None = None,
    ) -> None:
        slots = self.machinery.inference.open(played.num_envs, greedy=greedy)
        step, sequence = played.reset(), 0
        while not done():
            tick = TickArrays(sequence, step.observation, step.reward, step.flags)
            ((action, _),) = self.machinery.inference.run([(slots, tick)])
            after_tick()
            step, sequence = played.step(action), sequence + 1
            if returns is not None:
                returns += [episode.episode_return for episode in step.episodes]
        self.machinery.inference.close(slots)
        played.close()
