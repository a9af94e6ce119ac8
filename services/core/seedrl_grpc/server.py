"""A grpc.aio server as our services run it: options, who may call, health checks, reflection, and where it listens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from seedrl_core import supervisor
from seedrl_core.access import AccessConfig, TokenCheck
from seedrl_core.address import Address
from seedrl_core.errors import AddressInUse
from seedrl_grpc.authorization import Authorization, Callers
from seedrl_grpc.credentials import server_credentials

# A peer that is cut off is noticed within 20 s, also while nothing is sent.
KEEPALIVE: tuple[tuple[str, Any], ...] = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # Of any ping: one that measures bandwidth is often under way when a peer is cut off, and keep-alive's waits for it.
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
)
_OPTIONS: tuple[tuple[str, Any], ...] = (
    *KEEPALIVE,
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.so_reuseport", 0),
    ("grpc.max_send_message_length", -1),
)


@asynccontextmanager
async def listening(
    address: str,
    service: str,
    handler: grpc.GenericRpcHandler,
    checks: health.aio.HealthServicer,
    *,
    callers: Callers,
    access: AccessConfig,
    max_message_bytes: int,
    grace_s: float,
) -> AsyncIterator[None]:
    """Serves inside, and tells a supervisor so; at the end, calls that are still open get `grace_s` seconds.

    Args:
      address: `host:port` or `unix:PATH`, of which `Address.ensure_free` has made sure.
      service: full name of the service, for reflection.
      handler: of the service.
      checks: answers health checks; how the service does is the caller's to say.
      callers: name of a method -> the roles that may call it, once any of them has a token; others are the operator's.
      access: certificates and tokens.
      max_message_bytes: largest message accepted.
      grace_s: seconds.

    Raises:
      AddressInUse: somebody else has taken the address meanwhile, or it is none of this machine's.
      ConfigError: a certificate, a key or a token is not usable.
    """
    credentials = server_credentials(Address.parse(address), access)
    check = TokenCheck(access, {role for roles in callers.values() for role in roles})
    methods = {f"/{service}/{method}": roles for method, roles in callers.items()}
    server = grpc.aio.server(
        interceptors=[Authorization(check, methods)] if check else (),
        options=(*_OPTIONS, ("grpc.max_receive_message_length", max_message_bytes)),
    )
    server.add_generic_rpc_handlers((handler,))
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    reflection.enable_server_reflection((service, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    try:
        if credentials is None:
            server.add_insecure_port(address)
        else:
            server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise AddressInUse(f"cannot listen on {address}: {error}") from error
    await server.start()
    supervisor.notify("READY=1")
    try:
        yield
    finally:
        await server.stop(grace_s)
