"""A grpclib channel with TLS and a token, as `AccessConfig` says, and what the end of one has to do with those."""

from __future__ import annotations

import ssl
from typing import Any

import grpclib.exceptions
import h2.exceptions
from google.protobuf.message import DecodeError
from grpclib.client import Channel
from grpclib.config import Configuration
from grpclib.encoding.base import CodecBase
from grpclib.events import SendRequest, listen

from seedrl_core import tls
from seedrl_core.access import AccessConfig, Role, metadata_of
from seedrl_core.address import Address
from seedrl_core.errors import AccessDenied, PeerLost

# Actions are small, but a frame of them must never wait for a window update.
_WINDOW_BYTES = 16 << 20

# What grpclib and h2 raise when a connection ends at one moment or another, or the peer speaks no proper gRPC: a closed
# connection loses its transport (AttributeError), a message cut short or missing fails an assertion, one may be
# compressed (NotImplementedError), or be no message at all.
CONNECTION_ERRORS = (
    OSError,
    grpclib.exceptions.StreamTerminatedError,
    grpclib.exceptions.ProtocolError,
    h2.exceptions.ProtocolError,
    AssertionError,
    AttributeError,
    NotImplementedError,
    DecodeError,
)


def open_channel(address: Address, access: AccessConfig, role: Role, codec: CodecBase | None = None) -> Channel:
    """A channel that connects at its first call; certificates and the role's token are read now.

    Raises:
      ConfigError: one of them is not usable.
    """
    metadata = metadata_of(role, address, access)
    secure = tls.speaks_tls(address, access)
    channel = Channel(
        **({"path": address.path} if address.path else {"host": address.host, "port": address.port}),
        ssl=tls.client_context(access) if secure else None,
        config=Configuration(
            http2_connection_window_size=_WINDOW_BYTES,
            http2_stream_window_size=_WINDOW_BYTES,
            ssl_target_name_override=(access.server_name or address.host) if secure else None,
        ),
        codec=codec,
    )

    async def add_token(event: SendRequest) -> None:
        event.metadata.extend(metadata)

    if metadata:
        listen(channel, SendRequest, add_token)
    return channel


def drop(channel: Any) -> None:
    """Closes a channel at once. By TLS, grpclib would leave the connection open until the peer has parted, too."""
    transport = getattr(channel._protocol and channel._protocol.connection, "_transport", None)
    if transport is not None and channel._ssl:
        transport.abort()
    channel.close()


def refusal(
    error: BaseException, address: Address, access: AccessConfig, channel: Channel
) -> AccessDenied | PeerLost | None:
    """What the end of a connection has to do with credentials; None: nothing.

    `error` is what grpclib, h2 or the system raised.
    """
    if isinstance(error, ssl.SSLError):
        return tls.failure(address, error)
    if _heard_nothing(channel):
        return PeerLost(f"{address} ended the connection without a word ({tls.meaning_of_silence(access)})")
    return None


def _heard_nothing(channel: Any) -> bool:
    """Whether a TCP connection was made on which nothing came, not even a server's settings."""
    protocol = channel._protocol
    return protocol is not None and channel._path is None and protocol.connection.last_data_received is None
