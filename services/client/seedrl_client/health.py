"""`seedrl-health`: asks a server's standard health service whether it serves, for probes of containers.

It runs where there is no shell, and next to a server, so it must stay small.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

import grpclib.exceptions
import typer
from grpclib.client import Channel
from grpclib.health.v1.health_grpc import HealthStub
from grpclib.health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from seedrl_core.address import Address
from seedrl_core.command_line import run_command
from seedrl_core.errors import PeerLost

_TIMEOUT_S = 4.0


async def check(address: Address, service: str) -> None:
    """Returns when the server serves `service`, or anything at all where that is empty.

    Raises:
      PeerLost: it does not, or nobody answers within 4 s.
    """
    channel = Channel(path=address.path) if address.path else Channel(address.host, address.port)
    try:
        reply = await HealthStub(channel).Check(HealthCheckRequest(service=service), timeout=_TIMEOUT_S)
    except (OSError, TimeoutError, grpclib.exceptions.GRPCError, grpclib.exceptions.StreamTerminatedError) as error:
        raise PeerLost(f"{address}: {error or 'no answer in time'}") from error
    finally:
        channel.close()
    if reply.status != HealthCheckResponse.SERVING:
        status = HealthCheckResponse.ServingStatus.Name(reply.status)
        raise PeerLost(f"{address}: expected SERVING, got {status}")


def run(
    address: Annotated[str, typer.Argument(help="a broker or a learner: host:port or unix:PATH")],
    service: Annotated[
        str, typer.Option(help="full name of one of its services, e.g. seedrl_proto.v1.Inference; empty: the server")
    ] = "",
) -> None:
    """Exits with 0 when the server serves, else with 1 and one line that says why."""
    asyncio.run(check(Address.parse(address), service))


def main() -> None:
    """Console entry point."""
    run_command(run)


if __name__ == "__main__":
    main()
