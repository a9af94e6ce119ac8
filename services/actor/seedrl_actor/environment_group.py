"""Some environments that share a process: what happens to them when it is lost, and when it has played enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from seedrl_actor.environment_process import EnvironmentProcess, Job, ProcessLost
from seedrl_actor.restarts import Restarts
from seedrl_actor.seeds import environment_seed
from seedrl_core.codec import FIRST, LAST, RESTARTED, Episode
from seedrl_core.config import ActorConfig
from seedrl_core.errors import ExpectedError
from seedrl_core.spec import Array, EnvironmentSpec, check_same_spec


class EnvironmentGroup:
    """Environments `envs` of a vector.

    Attributes:
      name: of the environments, for people.
      rows: theirs in the vector.
      process: steps them; None between a loss and the next start.
      serves: the process has sent its first tick, and is owed actions.
      restarts: losses of processes.
    """

    def __init__(self, config: ActorConfig, first_env: int, envs: range, num_sessions: int) -> None:
        """Starts the first process; `first_env` is the number that the vector's first environment has in the actor."""
        first, last = first_env + envs.start, first_env + envs.stop - 1
        numbers = f"environment {first}" if first == last else f"environments {first} to {last}"
        self.name = f"{numbers} ({config.env_id})"
        self.rows = slice(envs.start, envs.stop)
        self.serves = False
        self.restarts = Restarts(self.name, config.env_restarts)
        self._job = Job(self.name, config, first, len(envs), num_sessions)
        self._spec: EnvironmentSpec | None = None
        self._lives = 0
        self._played = 0  # episodes, by this process
        self._is_between_episodes = False  # one of the environments
        self._successor: EnvironmentProcess | None = None
        self._retired: EnvironmentProcess | None = None
        self.process: EnvironmentProcess | None = self._start()

    @property
    def spec(self) -> EnvironmentSpec:
        """What the environments emit and accept; waits for the first process. Raises what building them raised."""
        if self._spec is None:
            assert self.process is not None
            self._spec = self.process.spec
        return self._spec

    @property
    def processes(self) -> list[EnvironmentProcess]:
        """All that may be running."""
        return [process for process in (self.process, self._successor, self._retired) if process is not None]

    def act(self, action: Sequence[Array]) -> None:
        """Sends the actions, unless there is nobody to send them to; `observe` must follow."""
        if self._successor is not None and self._is_between_episodes and self._successor.has_news:
            self._retire()
        elif self.process is None:
            if not self.restarts.due_in_s:
                self.process = self._start()
        elif self.serves:
            self.process.act(action)

    def observe(
        self, observation: Sequence[Array], reward: Array, flags: Array, *, wait: bool
    ) -> tuple[tuple[Episode, ...], int]:
        """Writes the next tick into the rows of the group, whose flags are still those of the last one.

        Args:
          observation: a leaf's rows each.
          reward: the rows of rewards.
          flags: the rows of flags.
          wait: also for a process that is still building.

        Returns:
          The episodes that ended, and how many environments were lost.

        Raises:
          EnvironmentFailed: the budget is spent, the group's or that of one of its environments.
        """
        had_ended = flags & LAST != 0
        reward[:], flags[:] = 0.0, FIRST | RESTARTED
        self._is_between_episodes = False
        if self.process is None or not (self.serves or wait or self.process.has_news):
            return (), 0
        try:
            if not self.serves:
                check_same_spec(self.spec, self.process.spec)
            tick, lost = self.process.tick()
        except ExpectedError as error:
            if self.serves and not isinstance(error, ProcessLost):
                raise
            self._lose(error)
            return (), len(flags)
        for rows, leaf in zip(observation, tick.observation, strict=True):
            rows[...] = leaf
        reward[:] = tick.reward
        flags[:] = tick.flags if self.serves else tick.flags | np.where(had_ended, 0, RESTARTED).astype(np.uint8)
        self.serves = True
        self._count(tick.episodes)
        return tick.episodes, lost

    def _start(self) -> EnvironmentProcess:
        """A new process; each has seeds of its own, and the first those of environments that are not apart."""
        config = self._job.config
        if self._lives:
            seed = environment_seed(config, self._job.first_env, restart=self._lives)
            config = config.model_copy(update={"seed": seed})
        self._lives += 1
        return EnvironmentProcess(replace(self._job, config=config))

    def _lose(self, error: ExpectedError) -> None:
        assert self.process is not None
        self.process.kill()
        self._go_on_with_successor()
        self.restarts.spend(str(error), error)

    def _count(self, episodes: tuple[Episode, ...]) -> None:
        """Has a successor built once the process has played enough."""
        self._is_between_episodes = bool(episodes)
        self._played += len(episodes)
        if 0 < self._job.config.env_recycle_episodes * self._job.num_envs <= self._played and self._successor is None:
            self._successor = self._start()

    def _retire(self) -> None:
        """Hands over to the successor; the process closes its environments meanwhile."""
        if self._retired is not None:
            self._retired.kill()
        self._retired = self.process
        assert self._retired is not None
        self._retired.close()
        self._go_on_with_successor()

    def _go_on_with_successor(self) -> None:
        self.process, self._successor = self._successor, None
        self.serves = False
        self._played = 0
