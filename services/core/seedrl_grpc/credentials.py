"""TLS of grpcio's servers and channels, as `AccessConfig` says."""

from __future__ import annotations

from typing import Any

import grpc

from seedrl_core import tls
from seedrl_core.access import AccessConfig
from seedrl_core.address import Address


def server_credentials(address: Address, access: AccessConfig) -> grpc.ServerCredentials | None:
    """Those of a server at `address`; None: it speaks plain HTTP/2, as it does on every Unix socket.

    Raises:
      ConfigError: a file is not usable.
    """
    if access.certificate is None or address.path:
        return None
    files = tls.load_files(access)
    assert files.key is not None and files.certificate is not None
    required = access.require_client_certificate
    return grpc.ssl_server_credentials(
        [(files.key, files.certificate)], files.authority if required else None, required
    )


def channel_credentials(address: Address, access: AccessConfig) -> grpc.ChannelCredentials | None:
    """Those of a client of `address`; None: it speaks plain HTTP/2. ConfigError when a file is not usable."""
    if not tls.speaks_tls(address, access):
        return None
    files = tls.load_files(access)
    return grpc.ssl_channel_credentials(files.authority, files.key, files.certificate)


def channel_options(access: AccessConfig) -> tuple[tuple[str, Any], ...]:
    """Options of a channel that go with its credentials."""
    return (("grpc.ssl_target_name_override", access.server_name),) if access.server_name else ()


def explained(details: str, address: Address, access: AccessConfig) -> str:
    """Why a channel cannot connect: gRPC's own words, and what they may mean."""
    if not address.path and ("Socket closed" in details or "reset by peer" in details):
        return f"{details} ({tls.meaning_of_silence(access)})"
    return details
