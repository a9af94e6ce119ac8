"""A greedy evaluation of a run's newest checkpoint: a serving learner, a broker and one actor, nothing trained."""

from __future__ import annotations

import asyncio
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seedrl_core.config import Settings, write_settings
from seedrl_core.errors import PeerLost, ServiceFailed
from seedrl_core.reference_scores import reference_score
from seedrl_launcher.actor_fleet import ActorFleet
from seedrl_launcher.kept_process import KeptProcess, RestartBudget
from seedrl_launcher.processes import Process
from seedrl_launcher.services import Addresses, LocalServices, actor_process, broker_process, learner_process
from seedrl_launcher.status import StatusClient, connect
from seedrl_proto.v1 import learner_pb2 as learner

_POLL_S = 0.5


@dataclass(frozen=True)
class Evaluation:
    """Returns of whole episodes, raw rewards, and the policy that earned them.

    `human_normalized_score` is None where no reference scores are known for the environment.
    """

    episodes: int
    mean_return: float
    std_return: float
    min_return: float
    max_return: float
    human_normalized_score: float | None
    mean_length: float
    policy_version: int
    env_steps: int
    checkpoint: str


class Evaluator:
    """Runs one evaluation. Everything it writes goes into `directory`; the run's own files are only read."""

    def __init__(self, settings: Settings, directory: Path) -> None:
        """`settings` are those of `run_settings.eval_settings`; `directory` is private and short-lived."""
        assert settings.actor.results is not None
        self._results = settings.actor.results
        self._env_id = settings.actor.env_id
        self._episodes = settings.actor.episodes
        self._status: learner.StatusReply | None = None
        config_file = directory / "config.toml"
        write_settings(settings, config_file)
        addresses = Addresses(f"unix:{directory / 'learner.sock'}", f"unix:{directory / 'broker.sock'}")
        self._address = addresses.learner
        self._access = settings.access

        def once(process: Process, *, may_end: bool = True) -> KeptProcess:
            """A restarted actor would play episodes twice, so the first failure is the evaluation's."""
            return KeptProcess(process, lambda: False, _tell_nobody, RestartBudget(limit=0), may_end=may_end)

        self._services = LocalServices(
            once(learner_process(config_file, addresses, directory)),
            once(broker_process(config_file, addresses, directory), may_end=False),
            ActorFleet([once(actor_process(config_file, addresses, directory, settings.actor, 0))], _tell_nobody),
            settings.learner.drain_grace_s,
        )

    async def run(self, stop: asyncio.Event) -> Evaluation | None:
        """Plays the episodes; None when `stop` was set before the end.

        Raises:
          ServiceFailed: a service failed, or fewer episodes came back than asked for.
        """
        async with connect(self._address, self._access) as client, asyncio.TaskGroup() as group:
            watching = group.create_task(self._watch(client))
            try:
                complete = await self._services.run(stop)
            finally:
                watching.cancel()
        return self._summary() if complete else None

    def kill(self) -> None:
        """Ends every process at once."""
        self._services.kill()

    async def _watch(self, client: StatusClient) -> None:
        """Learns which policy plays; ends with the first answer, since a serving learner's does not change."""
        while self._status is None:
            try:
                self._status = await client.learner()
            except PeerLost:
                await asyncio.sleep(_POLL_S)

    def _summary(self) -> Evaluation:
        episodes = [json.loads(line) for line in self._results.read_text().splitlines()]
        if len(episodes) != self._episodes or self._status is None:
            raise ServiceFailed(f"expected {self._episodes} episodes from the actor, got {len(episodes)}")
        return evaluate(self._env_id, episodes, self._status)


def evaluate(env_id: str, episodes: Sequence[Mapping[str, Any]], status: learner.StatusReply) -> Evaluation:
    """What at least one episode of the environment, as the actor writes them, says of the policy that `status` has."""
    returns = [float(episode["return"]) for episode in episodes]
    mean_return = statistics.fmean(returns)
    reference = reference_score(env_id)
    return Evaluation(
        episodes=len(episodes),
        mean_return=mean_return,
        std_return=statistics.pstdev(returns),
        min_return=min(returns),
        max_return=max(returns),
        human_normalized_score=reference.normalized(mean_return) if reference else None,
        mean_length=statistics.fmean(episode["length"] for episode in episodes),
        policy_version=status.policy_version,
        env_steps=status.env_steps,
        checkpoint=status.last_checkpoint,
    )


def _tell_nobody(line: str) -> None:
    """The failure itself is what is told."""
