"""The life of the broker's process: listen, serve, part with the clients in order."""

from __future__ import annotations

import asyncio

from grpc_health.v1 import health, health_pb2

from seedrl_broker.link import LearnerLink, open_channel
from seedrl_broker.service import BrokerService
from seedrl_broker.servicer import CALLERS, SERVICE_NAME, InferenceServicer
from seedrl_core import logs
from seedrl_core.access import NO_CREDENTIALS, AccessConfig, Role, check_listening, check_metrics
from seedrl_core.address import Address
from seedrl_core.aio import SLOW_WAIT_S
from seedrl_core.config import BrokerConfig
from seedrl_core.exporter import Readings, ServiceCollector, exported
from seedrl_grpc.server import listening
from seedrl_proto.v1 import inference_pb2 as inference

_REPORT_EVERY_S = 10.0
_STOP_GRACE_S = 0.5
_log = logs.get(__name__)


async def serve(config: BrokerConfig, stop: asyncio.Event, access: AccessConfig = NO_CREDENTIALS) -> int:
    """Runs the broker until `stop` is set; returns the exit code.

    Raises:
      AddressInUse, ConfigError: before anything is served.
    """
    check_listening("broker.listen", config.listen, access, (Role.ACTOR, Role.OPERATOR))
    check_metrics("broker.metrics_listen", config.metrics_listen, access)
    Address.parse(config.listen).ensure_free()
    async with open_channel(Address.parse(config.learner), access) as channel:
        service = BrokerService(config)
        checks = health.aio.HealthServicer()

        async def tell_health() -> None:
            serving = health_pb2.HealthCheckResponse.SERVING
            status = serving if service.learner_ready else health_pb2.HealthCheckResponse.NOT_SERVING
            await checks.set(SERVICE_NAME, status)

        link = LearnerLink(service, channel, Address.parse(config.learner), access, tell_health)
        servicer = InferenceServicer(config, service, link)
        await tell_health()
        collector = ServiceCollector("broker", service.metrics.totals, lambda: _readings(service))
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
                _log.info("broker_ready", listen=config.listen, learner=config.learner)
                await _live(config, service, link, servicer, stop)
    return 0


async def _live(
    config: BrokerConfig, service: BrokerService, link: LearnerLink, servicer: InferenceServicer, stop: asyncio.Event
) -> None:
    """Serves until `stop` is set, then parts with the clients; any part's error ends it with that error."""
    async with asyncio.TaskGroup() as group:
        background = [
            group.create_task(link.run()),
            group.create_task(_tell_waiting(service, config.waiting_interval_s)),
            group.create_task(_report(service)),
            group.create_task(_until_failure(servicer)),
        ]
        await stop.wait()
        service.drain(inference.Drain(code=inference.Drain.RESTARTING, reason="the broker is stopping"))
        await servicer.streams.all_parted(config.drain_grace_s)
        for task in background:
            task.cancel()
    _log.info("broker_done")


async def _tell_waiting(service: BrokerService, every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        service.tell_waiting()


async def _report(service: BrokerService) -> None:
    while True:
        await asyncio.sleep(_REPORT_EVERY_S)
        values = {name: round(value, 3) for name, value in service.metrics.close_window().items()}
        _log.info("batching", sessions=service.num_sessions, num_envs=service.num_envs, **values)
        if (waited_s := service.longest_wait_s()) > SLOW_WAIT_S:
            _log.info("still_waiting", waiting_for=service.waits_for(waited_s), waited_s=round(waited_s, 1))


def _readings(service: BrokerService) -> Readings:
    state = {
        "sessions": service.num_sessions,
        "num_envs": service.num_envs,
        "longest_wait_ms": 1000.0 * service.longest_wait_s(),
        "learner_connected": service.learner_ready,
    }
    return Readings(service.metrics.known | state, {"run": service.run_id})


async def _until_failure(servicer: InferenceServicer) -> None:
    await servicer.streams.failure
