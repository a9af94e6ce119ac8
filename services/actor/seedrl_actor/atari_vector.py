"""N Atari games through ale_py's vector environment: one grey frame an observation, stacking is the learner's.

That class's own options for clipping rewards and for episodic life stay off: the first would hide raw rewards, the
second starts a whole new game at every lost life.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import ale_py
import numpy as np
from ale_py.vector_env import AtariVectorEnv

from seedrl_actor.environments import Step
from seedrl_actor.episodes import EpisodeCounter
from seedrl_actor.pictures import image_among
from seedrl_actor.seeds import environment_seed
from seedrl_core.codec import FIRST, RESTARTED, TERMINATED, TRUNCATED, Episode
from seedrl_core.config import ActorConfig
from seedrl_core.errors import ConfigError
from seedrl_core.spec import Array, EnvironmentSpec, TensorSpec

ADVISED_FRAME_STACK = 4
# What an id's registration, or actor.env_kwargs, may say about a game; all else is in actor.atari.
_GAME_SETTINGS = ("game", "repeat_action_probability", "full_action_space")
_REPLACED_SETTINGS = ("frameskip", "max_num_frames_per_episode")


class AtariVector:
    """See `VectorEnvironment`. Episodes in the metrics are whole games, also with episodic life."""

    def __init__(
        self, config: ActorConfig, registered: Mapping[str, Any], first_env: int, num_envs: int, num_sessions: int
    ) -> None:
        """Loads the game.

        Args:
          config: of the actor.
          registered: keyword arguments of the id's registration: the game, its sticky actions and action space.
          first_env: number of the first environment within the actor.
          num_envs: N.
          num_sessions: sessions that share the cores.

        Raises:
          ConfigError: a setting that is not supported for these.
        """
        atari = config.atari
        if config.env_recycle_episodes:
            raise ConfigError(
                "actor.env_recycle_episodes: expected 0 for Atari, whose games share one emulator library, or "
                "actor.envs_per_process"
            )
        for key in config.env_kwargs:
            if key not in _GAME_SETTINGS:
                raise ConfigError(f"actor.env_kwargs.{key}: expected one of {_GAME_SETTINGS}; see also actor.atari")
        game = {key: value for key, value in registered.items() if key not in _REPLACED_SETTINGS} | config.env_kwargs
        self._name = f"environments {first_env} to {first_env + num_envs - 1} ({config.env_id})"
        self._episodic_life = atari.episodic_life
        self._records = config.recording is not None
        self._seeds = np.array([environment_seed(config, first_env + env) for env in range(num_envs)])
        self._vector = AtariVectorEnv(
            num_envs=num_envs,
            num_threads=atari.threads or max(1, _num_cores() // num_sessions),
            max_num_frames_per_episode=atari.max_episode_frames,
            img_height=atari.frame_size,
            img_width=atari.frame_size,
            stack_num=1,
            frameskip=atari.frame_skip,
            maxpool=atari.frame_skip > 1,
            noop_max=atari.noop_max,
            reward_clipping=False,
            use_fire_reset=atari.fire_reset,
            **game,
        )
        game_actions = list(self._vector.ale.get_action_set())
        self._action_names = tuple(action.name for action in game_actions)
        self._frame_shape = (atari.frame_size, atari.frame_size, 1)
        self._spec = EnvironmentSpec(
            config.env_id,
            (TensorSpec("observation", np.dtype(np.uint8), self._frame_shape, (0.0,), (255.0,)),),
            (TensorSpec("action", np.dtype(np.int64), (), (0.0,), (len(game_actions) - 1.0,)),),
            action_repeat=atari.frame_skip,
            frame_stack=ADVISED_FRAME_STACK,
        )
        presses_fire = atari.fire_reset and ale_py.Action.FIRE in game_actions
        self._idle_action = game_actions.index(ale_py.Action.FIRE if presses_fire else ale_py.Action.NOOP)
        self._counter = EpisodeCounter(num_envs)
        nobody = np.zeros(num_envs, np.bool_)
        self._game_over, self._lost_life, self._overlooked = nobody, nobody, nobody
        self._lives = np.zeros(num_envs, np.int32)

    @property
    def spec(self) -> EnvironmentSpec:
        """One grey frame, channel last; actions of the game."""
        return self._spec

    @property
    def num_envs(self) -> int:
        """N."""
        return len(self._seeds)

    @property
    def busy_with(self) -> str:
        """Names the environments, which step in parallel."""
        return self._name

    def reset(self) -> Step:
        """Starts all games, each with a seed of its own."""
        frames, info = self._vector.reset(seed=self._seeds)
        nobody = np.zeros(self.num_envs, np.bool_)
        self._game_over, self._lost_life, self._overlooked = nobody, nobody, nobody
        self._lives = info["lives"].copy()
        self._counter.restart(~nobody)
        flags = np.full(self.num_envs, FIRST, np.uint8)
        return self._made(frames, np.zeros(self.num_envs, np.float32), flags, ())

    def step(self, action: tuple[Array, ...]) -> Step:
        """Steps all games; those that were over start anew."""
        resets, lost_life, restarted = self._game_over, self._lost_life, self._overlooked
        chosen = np.where(lost_life, self._idle_action, action[0]) if self._episodic_life else action[0]
        frames, raw_reward, terminated, truncated, info = self._vector.step(chosen)
        first = resets | lost_life
        over = terminated | truncated
        self._game_over = over
        self._lost_life = self._find_lost_lives(info["lives"], over, first)
        # A game that ends with the very frame that is the FIRST after a lost life: an episode without a step, which the
        # next game replaces.
        self._overlooked = over & first
        flags = (
            np.where(first, FIRST, np.where(terminated | self._lost_life, TERMINATED, 0))
            | np.where(truncated & ~first, TRUNCATED, 0)
            | np.where(restarted, RESTARTED, 0)
        ).astype(np.uint8)
        reward = np.where(first, 0, raw_reward).astype(np.float32)
        episodes = self._counter.count(np.where(resets, 0, raw_reward), ~resets, over)
        return self._made(frames, reward, flags, episodes)

    def close(self) -> None:
        """Frees the emulators."""
        self._vector.close()

    def _find_lost_lives(self, lives: Array, over: Array, first: Array) -> Array:
        """[N] bool: with episodic life, where a life was lost and the game goes on."""
        lost = (lives < self._lives) & ~over & ~first & self._episodic_life
        self._lives = lives.copy()
        return lost

    def _made(self, frames: Array, reward: Array, flags: Array, episodes: tuple[Episode, ...]) -> Step:
        """Of frames [N, 1, height, width], which become [N, height, width, 1] without a copy."""
        observation = (frames.reshape(self.num_envs, *self._frame_shape),)
        if not self._records:
            return Step(observation, reward, flags, episodes)
        picture = image_among((observation[0][0],))
        return Step(observation, reward, flags, episodes, picture=picture, action_names=self._action_names)


def _num_cores() -> int:
    """Those that this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
