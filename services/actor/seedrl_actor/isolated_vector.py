"""N environments in processes of their own: whatever one does to its process, the others go on."""

from __future__ import annotations

import time
from dataclasses import replace
from multiprocessing import connection

import numpy as np

from seedrl_actor.environment_group import EnvironmentGroup
from seedrl_actor.environments import Step, envs_per_process
from seedrl_core.codec import LAST, Episode
from seedrl_core.config import ActorConfig
from seedrl_core.spec import Array, EnvironmentSpec, check_same_spec

_CLOSE_S = 1.0
_LOOK_S = 1.0  # longest wait before a step without environments


class IsolatedVector:
    """See `VectorEnvironment`. Each process has `envs_per_process` of the environments, and all step at the same time.

    When a process ends, or does not answer for env_timeout_s, another one takes its place, with back-off and within a
    budget. Until that is up the ticks of its environments repeat the last observation, marked RESTARTED, and the others
    go on. With env_recycle_episodes a process is replaced too once it has played so many episodes an environment; that
    happens at an episode's end, when the next process is already up.
    """

    def __init__(self, config: ActorConfig, first_env: int, num_envs: int, num_sessions: int) -> None:
        """Builds environments `first_env` to `first_env + num_envs - 1` of the actor, in all processes at a time."""
        size = envs_per_process(config)
        begins = range(0, num_envs, size)
        self._groups: list[EnvironmentGroup] = []
        try:
            for begin in begins:
                envs = range(begin, min(begin + size, num_envs))
                self._groups.append(EnvironmentGroup(config, first_env, envs, num_sessions * len(begins)))
            specs = [group.spec for group in self._groups]
            for spec in specs[1:]:
                check_same_spec(specs[0], spec)
        except BaseException:
            self.close()
            raise
        self._spec = specs[0]
        self._current = self._groups[0]
        self._observation = tuple(np.zeros((num_envs, *leaf.shape), leaf.dtype) for leaf in self._spec.observation)
        self._reward = np.zeros(num_envs, np.float32)
        # Whatever is built first begins an episode, as after an ending.
        self._flags = np.full(num_envs, LAST, np.uint8)

    @property
    def spec(self) -> EnvironmentSpec:
        """The same in every process."""
        return self._spec

    @property
    def num_envs(self) -> int:
        """N."""
        return len(self._flags)

    @property
    def busy_with(self) -> str:
        """Names the environments that are being waited for."""
        return self._current.name

    @property
    def pids(self) -> list[int]:
        """Numbers of the processes that step now."""
        return [group.process.pid for group in self._groups if group.process is not None]

    def reset(self) -> Step:
        """What the environments began with when they were built."""
        return self._observe(wait=True)

    def step(self, action: tuple[Array, ...]) -> Step:
        """Steps the environments whose process is up; the others stand still."""
        if not any(group.serves for group in self._groups):
            self._wait_for_one()
        for group in self._groups:
            group.act(tuple(leaf[group.rows] for leaf in action))
        return self._observe(wait=False)

    def close(self) -> None:
        """Ends all processes, those that hang after a second."""
        processes = [process for group in self._groups for process in group.processes]
        for process in processes:
            process.close()
        deadline = time.monotonic() + _CLOSE_S
        for process in processes:
            process.kill(max(0.0, deadline - time.monotonic()))

    def _observe(self, *, wait: bool) -> Step:
        episodes: list[Episode] = []
        replaced = 0
        for group in self._groups:
            self._current = group
            rows = group.rows
            observation = tuple(leaf[rows] for leaf in self._observation)
            new, count = group.observe(observation, self._reward[rows], self._flags[rows], wait=wait)
            episodes += (replace(episode, env=episode.env + rows.start) for episode in new)
            replaced += count
        return Step(self._observation, self._reward, self._flags, tuple(episodes), replaced)

    def _wait_for_one(self) -> None:
        """So that a session whose environments are all away does not send ticks for nothing."""
        starting = [group.process.connection for group in self._groups if group.process is not None]
        due_in_s = [group.restarts.due_in_s for group in self._groups if group.process is None]
        connection.wait(starting, min([_LOOK_S, *due_in_s]))
