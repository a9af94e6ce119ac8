"""Streams at a server: reads and writes, the errors that end them, and how many are open.

The one place that translates between grpc.aio's errors and ours.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from seedrl_core import logs
from seedrl_core.errors import BadRequest, Overloaded, PeerLost, SeedrlError, words_of

Context = grpc.aio.ServicerContext[Any, Any]

_STATUS = {code.value[0]: code for code in grpc.StatusCode}
# What a read or a write raises on a stream that has ended.
_ENDED = (grpc.aio.UsageError, grpc.aio.InternalError)
_log = logs.get(__name__)


async def read(context: Context) -> Any:
    """The next message; None when the peer has said all.

    Without a deadline of its own: keep-alive ends the stream of a peer that is cut off.

    Raises:
      BadRequest: the peer sent bytes that are no message of the method.
      PeerLost: the stream has ended.
    """
    try:
        message = await context.read()
    except DecodeError as error:
        raise BadRequest("expected a message of this method, got bytes that are none") from error
    except _ENDED as error:
        raise PeerLost("the stream has ended") from error
    return None if message is grpc.aio.EOF else message


async def write(context: Context, message: Any) -> None:
    """Sends; waits while the transport's window is full, at most until keep-alive finds the peer gone: PeerLost."""
    try:
        await context.write(message)
    except _ENDED as error:
        raise PeerLost("the stream has ended") from error


async def abort(context: Context, error: SeedrlError) -> None:
    """Ends a call with the status and the words of an error, by raising; returns when the peer has gone."""
    if not context.done():
        await context.abort(_STATUS.get(error.status, grpc.StatusCode.UNKNOWN), words_of(error))


def host_of(context: Context) -> str:
    """The address of the caller's host; empty for one on a Unix socket, who is on this host."""
    kind, _, address = str(context.peer()).partition(":")
    return address.rpartition(":")[0] if kind in ("ipv4", "ipv6") else ""


class HostLimit:
    """How many streams the callers of one host may have open."""

    def __init__(self, max_streams: int) -> None:
        """None is open."""
        self._max_streams = max_streams
        self._open: Counter[str] = Counter()

    @contextmanager
    def one(self, host: str) -> Iterator[None]:
        """A stream of `host`, or of nobody's where that is empty; Overloaded when it has too many."""
        if host and self._open[host] >= self._max_streams:
            raise Overloaded(f"expected at most {self._max_streams} streams of host {host}, got one more")
        self._open[host] += 1
        try:
            yield
        finally:
            self._open[host] -= 1
            if not self._open[host]:
                del self._open[host]


class OpenStreams:
    """The streams that a servicer serves now.

    Attributes:
      failure: resolved with the first bug met while serving; the process ends with it.
    """

    def __init__(self) -> None:
        """None is open."""
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count = 0
        self._none_left = asyncio.Event()
        self._none_left.set()

    @contextmanager
    def one(self) -> Iterator[None]:
        """A stream is served inside; an error that leaves it is a bug."""
        self._count += 1
        self._none_left.clear()
        try:
            yield
        except Exception as error:
            self.fail(error)
            raise
        finally:
            self._count -= 1
            if not self._count:
                self._none_left.set()

    def fail(self, error: BaseException) -> None:
        """Reports a bug."""
        if not self.failure.done():
            self.failure.set_exception(error)

    async def all_parted(self, grace_s: float) -> None:
        """Waits up to `grace_s` seconds until no stream is left."""
        try:
            async with asyncio.timeout(grace_s):
                await self._none_left.wait()
        except TimeoutError:
            _log.warning("peers_still_connected", count=self._count, waited_s=grace_s)
