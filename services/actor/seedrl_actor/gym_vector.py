"""N Gymnasium environments, stepped one after the other; one that raises is built anew, within a budget."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np

from seedrl_actor.environments import Step
from seedrl_actor.episodes import EpisodeCounter
from seedrl_actor.pictures import action_names_of, make_rendering, picture_of
from seedrl_actor.restarts import Restarts
from seedrl_actor.seeds import environment_seed
from seedrl_actor.spaces import ActionSpace, ObservationSpace
from seedrl_core import logs
from seedrl_core.codec import FIRST, LAST, RESTARTED, TERMINATED, TRUNCATED
from seedrl_core.config import ActorConfig
from seedrl_core.errors import ConfigError, EnvironmentFailed
from seedrl_core.spec import Array, EnvironmentSpec

# An environment that calls exit() fails like one that raises.
_FAILURES = (Exception, SystemExit)
_log = logs.get(__name__)


class GymVector:
    """See `VectorEnvironment`.

    An environment that raises is closed and built anew: at once the first time, after a growing delay from then on.
    Until it is back its ticks repeat the last observation, marked RESTARTED, and the others go on. With
    env_recycle_episodes one is built anew at the end of an episode, too.
    """

    def __init__(
        self,
        config: ActorConfig,
        first_env: int,
        num_envs: int,
        clock: Callable[[], float] = time.monotonic,
        make: Callable[[ActorConfig], Any] | None = None,
    ) -> None:
        """Makes environments `first_env` to `first_env + num_envs - 1` of the actor.

        `clock` returns seconds; `make` makes one of the environments, that of the Gymnasium id if it is None.
        """
        self._config = config
        self._make_one = make or _make_registered
        self._first_env = first_env
        self._envs: list[Any] = []
        try:
            for _ in range(num_envs):
                self._envs.append(self._make())
            self._observations = ObservationSpace(self._envs[0].observation_space)
            self._actions = ActionSpace(self._envs[0].action_space)
        except BaseException:
            self.close()
            raise
        self._spec = EnvironmentSpec(
            config.env_id,
            self._observations.specs,
            self._actions.specs,
            action_repeat=getattr(self._envs[0].unwrapped, "action_repeat", 1),
            frame_stack=self._envs[0].unwrapped.metadata.get("frame_stack", 1),
        )
        self._observation = tuple(np.zeros((num_envs, *leaf.shape), leaf.dtype) for leaf in self._spec.observation)
        self._reward = np.zeros(num_envs, np.float64)
        self._flags = np.zeros(num_envs, np.uint8)
        self._ended = [True] * num_envs
        self._counter = EpisodeCounter(num_envs)
        self._restarts = [Restarts(self._name(env), config.env_restarts, clock) for env in range(num_envs)]
        self._replaced = 0  # in the step that is being made
        self._episodes = [0] * num_envs  # since it was built
        self._recycled = [0] * num_envs
        self._current = 0

    @property
    def spec(self) -> EnvironmentSpec:
        """Of the first environment: its spaces, its attribute `action_repeat`, `frame_stack` in its metadata."""
        return self._spec

    @property
    def num_envs(self) -> int:
        """N."""
        return len(self._envs)

    @property
    def busy_with(self) -> str:
        """Names the environment being stepped."""
        return self._name(self._current)

    def reset(self) -> Step:
        """Resets every environment with a seed of its own."""
        for env in range(self.num_envs):
            self._flags[env] = self._guarded(env, self._begin, self._seed(env))
        return self._finish()

    def step(self, action: tuple[Array, ...]) -> Step:
        """Steps or resets each environment."""
        for env, value in enumerate(self._actions.values(action)):
            if self._ended[env]:
                self._flags[env] = self._guarded(env, self._begin, None)
            else:
                self._flags[env] = self._guarded(env, self._advance, value)
        return self._finish()

    def close(self) -> None:
        """Closes every environment."""
        for env in self._envs:
            _close_quietly(env)

    def _guarded(self, env: int, act: Callable[[int, Any], int], argument: Any) -> int:
        """Flags of an act on one environment; an environment that raises in it is replaced."""
        self._current = env
        try:
            return act(env, argument)
        except EnvironmentFailed as broken_spec:
            raise EnvironmentFailed(f"{self._name(env)}: {broken_spec}") from broken_spec
        except _FAILURES as failure:
            return self._replace(env, failure)

    def _begin(self, env: int, seed: int | None) -> int:
        """Starts an episode, in an environment that may have to be built first."""
        self._reward[env] = 0.0
        if self._envs[env] is None:
            return self._rebuild(env, None)
        if 0 < self._config.env_recycle_episodes <= self._episodes[env]:
            seed = self._recycle(env)
        observation, _ = self._envs[env].reset(seed=seed)
        self._observations.write(observation, self._observation, env)
        self._ended[env] = False
        return FIRST

    def _advance(self, env: int, action: Any) -> int:
        observation, reward, terminated, truncated, _ = self._envs[env].step(action)
        self._observations.write(observation, self._observation, env)
        if not isinstance(reward, float | int) and np.ndim(reward) != 0:
            raise EnvironmentFailed(f"reward: expected a number, got shape {np.shape(reward)}")
        self._reward[env] = reward
        if not (terminated or truncated):
            return 0
        self._ended[env] = True
        self._episodes[env] += 1
        return (TERMINATED if terminated else 0) | (TRUNCATED if truncated else 0)

    def _finish(self) -> Step:
        reward = self._reward.astype(np.float32)
        if not np.isfinite(reward).all():
            env = int(np.argmin(np.isfinite(reward)))
            raise EnvironmentFailed(f"{self._name(env)}: reward: expected a finite float32, got {self._reward[env]}")
        first = self._flags & FIRST != 0
        # A running episode is lost with its environment; any other FIRST follows an ending, where the count began anew.
        self._counter.restart(first)
        episodes = self._counter.count(self._reward, ~first, self._flags & LAST != 0)
        replaced, self._replaced = self._replaced, 0
        made = Step(self._observation, reward, self._flags, episodes, replaced)
        return made if self._config.recording is None else self._shown(made)

    def _shown(self, step: Step) -> Step:
        """With what a recording has of the first environment, while there is one."""
        if self._envs[0] is None:
            return step
        picture = picture_of(self._envs[0], tuple(leaf[0] for leaf in step.observation))
        return replace(step, picture=picture, action_names=action_names_of(self._envs[0]))

    def _replace(self, env: int, failure: BaseException) -> int:
        """Closes an environment that raised and builds it anew as soon as its delay allows."""
        self._restarts[env].spend(f"{type(failure).__name__}: {failure}", failure)
        self._replaced += 1
        broken, self._envs[env] = self._envs[env], None
        self._ended[env] = True
        self._reward[env] = 0.0
        _close_quietly(broken)
        return self._guarded(env, self._rebuild, None)

    def _rebuild(self, env: int, _: None) -> int:
        if not self._restarts[env].due_in_s:
            self._build(env)
            self._begin(env, self._seed(env))
        return FIRST | RESTARTED

    def _recycle(self, env: int) -> int:
        """Builds an environment anew that is well; returns the seed of its new life."""
        old, self._envs[env] = self._envs[env], None
        old.close()
        self._recycled[env] += 1
        self._build(env)
        return self._seed(env)

    def _build(self, env: int) -> None:
        self._envs[env] = self._make()
        self._episodes[env] = 0

    def _make(self) -> Any:
        try:
            return self._make_one(self._config)
        except _FAILURES as error:
            raise ConfigError(f"actor.env_id: making {self._config.env_id} failed: {error}") from error

    def _seed(self, env: int) -> int:
        lives = self._restarts[env].count + self._recycled[env]
        return environment_seed(self._config, self._first_env + env, restart=lives)

    def _name(self, env: int) -> str:
        return f"environment {self._first_env + env} ({self._config.env_id})"


def _make_registered(config: ActorConfig) -> Any:
    make = gymnasium.make if config.recording is None else make_rendering
    return make(config.env_id, disable_env_checker=True, **config.env_kwargs)


def _close_quietly(env: Any) -> None:
    """Closes an environment that is broken or of no more use, so its errors are nobody's concern."""
    try:
        if env is not None:
            env.close()
    except _FAILURES as error:
        _log.info("environment_close_failed", error=str(error))
