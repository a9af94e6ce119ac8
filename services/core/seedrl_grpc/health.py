"""`seedrl-health`: asks a server's standard health service whether it serves, for probes of containers.

It runs where there is no shell, and next to a server, so it must stay small.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import grpc
import typer
from grpc_health.v1 import health_pb2, health_pb2_grpc

from seedrl_core.access import AccessConfig
from seedrl_core.address import Address
from seedrl_core.command_line import run_command
from seedrl_core.config import load_settings, parse_assignments
from seedrl_core.errors import PeerLost
from seedrl_grpc.credentials import channel_credentials, channel_options, explained

_TIMEOUT_S = 4.0


def check(address: Address, service: str, access: AccessConfig) -> None:
    """Returns when the server serves `service`, or anything at all where that is empty.

    Raises:
      ConfigError: a certificate or a key is not usable.
      PeerLost: it does not, or nobody answers within 4 s.
    """
    with _channel(address, access) as channel:
        try:
            reply = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(service=service), timeout=_TIMEOUT_S
            )
        except grpc.RpcError as error:
            call: Any = error  # which every error of a call is, too
            why = explained(call.details(), address, access)
            raise PeerLost(f"{address}: {call.code().name}: {why}") from error
    if reply.status != health_pb2.HealthCheckResponse.SERVING:
        status = health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status)
        raise PeerLost(f"{address}: expected SERVING, got {status}")


def _channel(address: Address, access: AccessConfig) -> grpc.Channel:
    credentials = channel_credentials(address, access)
    options = (("grpc.enable_http_proxy", 0), *channel_options(access))
    if credentials is None:
        return grpc.insecure_channel(str(address), options)
    return grpc.secure_channel(str(address), credentials, options)


def run(
    address: Annotated[str, typer.Argument(help="a broker or a learner: host:port or unix:PATH")],
    service: Annotated[
        str, typer.Option(help="full name of one of its services, e.g. seedrl_proto.v1.Inference; empty: the server")
    ] = "",
    config: Annotated[Path | None, typer.Option(help="TOML file with a section access, for TLS")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="access.key=value; repeatable")] = None,
) -> None:
    """Exits with 0 when the server serves, else with 1 and one line that says why. It needs no token."""
    access = load_settings(config, parse_assignments(set_ or [])).access
    check(Address.parse(address), service, access)


def main() -> None:
    """Console entry point."""
    run_command(run)


if __name__ == "__main__":
    main()
