"""The life of the broker's process: listen, serve, part with the clients in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from seedrl_broker.link import CHANNEL_OPTIONS, LearnerLink
from seedrl_broker.service import BrokerService
from seedrl_broker.servicer import SERVICE_NAME, InferenceServicer
from seedrl_core import logs
from seedrl_core.address import Address
from seedrl_core.aio import SLOW_WAIT_S
from seedrl_core.config import BrokerConfig
from seedrl_core.errors import AddressInUse
from seedrl_proto.v1 import inference_pb2 as inference

_REPORT_EVERY_S = 10.0
_STOP_GRACE_S = 0.5
_log = logs.get(__name__)


async def serve(config: BrokerConfig, stop: asyncio.Event) -> int:
    """Runs the broker until `stop` is set; returns the exit code.

    Raises:
      AddressInUse: before anything is served.
    """
    Address.parse(config.listen).ensure_free()
    async with grpc.aio.insecure_channel(config.learner, CHANNEL_OPTIONS) as channel:
        service = BrokerService(config)
        checks = health.aio.HealthServicer()

        async def tell_health() -> None:
            serving = health_pb2.HealthCheckResponse.SERVING
            status = serving if service.learner_ready else health_pb2.HealthCheckResponse.NOT_SERVING
            await checks.set(SERVICE_NAME, status)

        link = LearnerLink(service, channel, config.learner, tell_health)
        servicer = InferenceServicer(config, service, link)
        await tell_health()
        async with _listening(config, servicer, checks):
            await _live(config, service, link, servicer, stop)
    return 0


@asynccontextmanager
async def _listening(
    config: BrokerConfig, servicer: InferenceServicer, checks: health.aio.HealthServicer
) -> AsyncIterator[None]:
    server = grpc.aio.server(
        options=[
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", config.max_message_bytes),
            ("grpc.max_send_message_length", -1),
            # A client that is cut off is noticed within 15 s.
            ("grpc.keepalive_time_ms", 10_000),
            ("grpc.keepalive_timeout_ms", 5_000),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
            ("grpc.http2.max_pings_without_data", 0),
        ]
    )
    server.add_generic_rpc_handlers((servicer.handler(),))
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    reflection.enable_server_reflection((SERVICE_NAME, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    try:
        server.add_insecure_port(config.listen)
    except RuntimeError as error:
        raise AddressInUse(f"cannot listen on {config.listen}: {error}") from error
    await server.start()
    _log.info("broker_ready", listen=config.listen, learner=config.learner)
    try:
        yield
    finally:
        await server.stop(_STOP_GRACE_S)


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
        await servicer.all_parted()
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
        _log.info("batching", sessions=service.num_sessions, envs=service.num_envs, **values)
        if (waited_s := service.longest_wait_s()) > SLOW_WAIT_S:
            _log.info("still_waiting", waiting_for=service.waits_for(waited_s), waited_s=round(waited_s, 1))


async def _until_failure(servicer: InferenceServicer) -> None:
    await servicer.failure
