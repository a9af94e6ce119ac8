"""The actor: its environments, split over sessions that take turns in stepping and waiting for actions."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from seedrl_actor import environments
from seedrl_actor.environment_thread import EnvironmentThread
from seedrl_actor.episodes import EpisodeQuota
from seedrl_actor.identity import actor_id
from seedrl_actor.output_files import OutputFiles
from seedrl_actor.stepping_metrics import SteppingMetrics
from seedrl_client import Session
from seedrl_core import logs, supervisor
from seedrl_core.access import NO_CREDENTIALS, AccessConfig, check_metrics
from seedrl_core.config import ActorConfig
from seedrl_core.errors import ConfigError, RunFinished
from seedrl_core.exporter import ServiceCollector, exported

_log = logs.get(__name__)


@dataclass(frozen=True)
class Share:
    """The environments of one session: `first_env` to `first_env + num_envs - 1` of the actor."""

    index: int
    first_env: int
    num_envs: int


def split(num_envs: int, sessions: int) -> list[Share]:
    """At most `sessions` shares of nearly equal size."""
    sessions = min(sessions, num_envs)
    begins = [num_envs * index // sessions for index in range(sessions + 1)]
    return [Share(index, begins[index], begins[index + 1] - begins[index]) for index in range(sessions)]


async def run(config: ActorConfig, stop: asyncio.Event, access: AccessConfig = NO_CREDENTIALS) -> int:
    """Steps environments until the run is finished, the episodes are played or `stop` is set; the exit code is 0 then.

    Raises:
      ConfigError: the settings name no usable environment, certificate or token.
      AccessDenied: the broker does not take the actor's token, or has a certificate that is not trusted.
      BadRequest, SpecMismatch: the learner refuses the environment.
      EnvironmentFailed: an environment failed too often.
      PeerLost: broker or learner were away for too long.
    """
    if not config.env_id:
        raise ConfigError("actor.env_id: expected a Gymnasium id, e.g. --env-id CartPole-v1")
    if config.recording is not None and config.role != "eval":
        raise ConfigError(f"actor.recording: expected actor.role=eval, got {config.role}")
    check_metrics("actor.metrics_listen", config.metrics_listen, access)
    metrics = SteppingMetrics({"actor_id": actor_id(config), "environment": config.env_id, "role": config.role})
    with exported(config.metrics_listen, ServiceCollector("actor", metrics.totals, metrics.readings)):
        work = asyncio.create_task(_run_sessions(config, access, metrics))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((work, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            work.cancel()  # without effect when it has ended
            await asyncio.wait((work, stopping))
    if not work.cancelled():
        work.result()
    return 0


async def _run_sessions(config: ActorConfig, access: AccessConfig, metrics: SteppingMetrics) -> None:
    # An environment without an episode to play would only step for nothing.
    num_envs = min(config.num_envs, config.episodes) if config.episodes else config.num_envs
    shares = split(num_envs, config.sessions)
    with OutputFiles.open(config) as files:
        try:
            async with asyncio.TaskGroup() as group:
                for share in shares:
                    group.create_task(_run_session(config, access, share, len(shares), num_envs, files, metrics))
        except* RunFinished as finished:
            _log.info("run_finished", reason=str(finished.exceptions[0]))


async def _run_session(
    config: ActorConfig,
    access: AccessConfig,
    share: Share,
    num_sessions: int,
    num_all_envs: int,
    files: OutputFiles,
    metrics: SteppingMetrics,
) -> None:
    # Environments in processes of their own are watched over by themselves.
    timeout_s = config.env_timeout_s * (2 if environments.envs_per_process(config) else 1)
    thread = EnvironmentThread(
        lambda: environments.make(config, share.first_env, share.num_envs, num_sessions),
        timeout_s,
        f"environments-{share.index}",
    )
    quota = EpisodeQuota(config.episodes, share.num_envs, share.first_env, num_all_envs)
    try:
        spec = await thread.build()
        supervisor.notify("READY=1")
        async with Session(
            config.broker,
            spec,
            share.num_envs,
            role=config.role,
            actor_id=actor_id(config),
            peer_timeout_s=config.peer_timeout_s,
            shared_memory=config.shared_memory,
            explain=config.recording is not None and not share.index,
            access=access,
        ) as session:
            logs.bind(run=session.run_id)
            with metrics.session(share.num_envs, session.run_id):
                await _step_until_done(thread, session, quota, share, files, metrics)
    finally:
        await thread.close()


async def _step_until_done(
    thread: EnvironmentThread,
    session: Session,
    quota: EpisodeQuota,
    share: Share,
    files: OutputFiles,
    metrics: SteppingMetrics,
) -> None:
    step, env_ms = await thread.reset()
    while True:
        metrics.stepped(step, env_ms)
        episodes = quota.take(step.episodes)
        files.add_episodes(share.first_env, episodes)
        with metrics.waiting():
            action = await session.tick(step.observation, step.reward, step.flags, episodes, env_ms)
        if not share.index:
            files.add_step(step, action, session.explanation)
        if quota.done:
            return
        step, env_ms = await thread.step(action)
