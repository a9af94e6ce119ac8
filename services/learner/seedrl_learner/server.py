"""The life of the learner's process: listen, serve and train, finish in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from grpc_health.v1 import health, health_pb2

from seedrl_core import logs
from seedrl_core.access import NO_CREDENTIALS, AccessConfig, Role, check_listening, check_metrics
from seedrl_core.address import Address
from seedrl_core.config import LearnerConfig
from seedrl_core.errors import CheckpointError
from seedrl_core.exporter import Readings, ServiceCollector, exported
from seedrl_grpc.server import listening
from seedrl_learner.reporter import Reporter
from seedrl_learner.run import Run
from seedrl_learner.service import LearnerService
from seedrl_learner.servicer import CALLERS, SERVICE_NAME, LearnerServicer
from seedrl_proto.v1 import inference_pb2 as inference

_STOP_GRACE_S = 1.0
_log = logs.get(__name__)


async def serve(
    config: LearnerConfig,
    stop: asyncio.Event,
    make_run: Callable[[LearnerConfig], Run] = Run,
    access: AccessConfig = NO_CREDENTIALS,
) -> int:
    """Runs the learner until it has made its env steps or `stop` is set; returns the exit code.

    Raises:
      AddressInUse, CheckpointError, ConfigError: before anything is served.
    """
    check_listening("learner.listen", config.listen, access, (Role.BROKER, Role.OPERATOR))
    check_metrics("learner.metrics_listen", config.metrics_listen, access)
    Address.parse(config.listen).ensure_free()
    config.run_dir.mkdir(parents=True, exist_ok=True)
    run = make_run(config)
    service = LearnerService(run)
    reporter = Reporter(run)
    servicer = LearnerServicer(service, reporter, stop.set)
    checks = health.aio.HealthServicer()
    await checks.set(SERVICE_NAME, health_pb2.HealthCheckResponse.SERVING)
    collector = ServiceCollector("learner", run.metrics.totals, lambda: _readings(run, service, reporter, servicer))
    try:
        with exported(config.metrics_listen, collector):
            async with listening(
                config.listen,
                SERVICE_NAME,
                servicer.handler(),
                checks,
                callers=CALLERS,
                access=access,
                max_message_bytes=config.max_message_bytes,
                grace_s=_STOP_GRACE_S,
            ):
                _log.info("learner_ready", listen=config.listen, mode=config.mode)
                complete = await _live(run, service, reporter, servicer, stop)
                await _finish(run, service, reporter, servicer, complete)
    finally:
        service.close()
    return 0


async def _live(
    run: Run, service: LearnerService, reporter: Reporter, servicer: LearnerServicer, stop: asyncio.Event
) -> bool:
    """Serves until the run is complete (True) or `stop` is set (False); any part's error ends it with that error."""
    async with asyncio.TaskGroup() as group:
        background = [
            group.create_task(_report(run, service, reporter)),
            group.create_task(_save_checkpoints(run)),
            group.create_task(_until_failure(servicer)),
        ]
        training = group.create_task(_train(run, service))
        stopping = group.create_task(stop.wait())
        await asyncio.wait((training, stopping), return_when=asyncio.FIRST_COMPLETED)
        complete = training.done()
        stopping.cancel()
        if run.machinery is not None:
            run.machinery.trainer.stop()
        if run.serves_only or not service.built.is_set():
            training.cancel()
        await asyncio.wait((training,))
        for task in background:
            task.cancel()
    return complete


async def _train(run: Run, service: LearnerService) -> None:
    """Trains in a thread, once the network exists; returns at the end of the run. Cancellation ends the thread, too."""
    await service.built.wait()
    assert run.machinery is not None
    if run.serves_only:
        await asyncio.Event().wait()  # until cancelled
    try:
        await asyncio.to_thread(run.machinery.trainer.run)
    finally:
        run.machinery.trainer.stop()


async def _report(run: Run, service: LearnerService, reporter: Reporter) -> None:
    while True:
        await asyncio.sleep(run.config.log_every_s)
        values = await asyncio.to_thread(reporter.report, service.num_envs)
        _log.info(
            "progress",
            env_steps=run.progress.env_steps,
            env_steps_per_s=round(values.get("env_steps_per_s", 0.0)),
            mean_return=round(run.progress.mean_return, 2) if run.progress.returns else None,
            policy_version=run.progress.policy_version,
            bottleneck=reporter.bottleneck,
        )


async def _save_checkpoints(run: Run) -> None:
    """Saves every period; a full disk is an error line, not the end of the run."""
    saved_version = -1
    while True:
        await asyncio.sleep(run.config.checkpoint_every_s)
        if run.machinery is None or run.serves_only or run.progress.policy_version == saved_version:
            continue
        try:
            await asyncio.to_thread(run.save_checkpoint)
            saved_version = run.progress.policy_version
        except CheckpointError as error:
            _log.error("checkpoint_failed", error=str(error))


def _readings(run: Run, service: LearnerService, reporter: Reporter, servicer: LearnerServicer) -> Readings:
    progress = run.progress
    state = {
        "sessions": service.num_sessions,
        "run_env_steps": progress.env_steps,
        "run_goal_env_steps": run.config.total_env_steps,
        "run_episodes": progress.episodes,
        "policy_version": progress.policy_version,
    }
    words = {
        "run": run.run_id,
        "environment": run.spec.environment_id if run.spec else "",
        "state": servicer.state,
        "bottleneck": reporter.bottleneck,
    }
    return Readings(run.metrics.known | reporter.latest | state, words)


async def _until_failure(servicer: LearnerServicer) -> None:
    await servicer.streams.failure


async def _finish(
    run: Run, service: LearnerService, reporter: Reporter, servicer: LearnerServicer, complete: bool
) -> None:
    """Answers what is in flight, saves, writes the summary; tells the brokers, whatever has failed."""
    service.stop_waiting()
    try:
        try:
            if run.machinery is not None and not run.serves_only:
                await asyncio.to_thread(run.save_checkpoint)
        finally:
            await asyncio.to_thread(reporter.report, service.num_envs)
            await asyncio.to_thread(reporter.write_summary)
    finally:
        code = inference.Drain.FINISHED if complete else inference.Drain.RESTARTING
        reason = "training is complete" if complete else "the learner is stopping"
        await servicer.drain(code, reason, run.config.drain_grace_s)
    _log.info("learner_done", complete=complete, env_steps=run.progress.env_steps)
