"""The link that can be disturbed does to connections what it says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from faults.proxy import Proxy

DEADLINE_S = 20.0
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Link:
    """A proxy before a server that keeps its ends of connections."""

    def __init__(self) -> None:
        self.accepted: asyncio.Queue[Streams] = asyncio.Queue()
        self.proxy: Proxy

    async def connect(self) -> Streams:
        """The client's end of a new connection."""
        return await asyncio.open_connection("127.0.0.1", self._port)

    async def pair(self) -> tuple[Streams, Streams]:
        """Both ends of a new connection, over which something has passed."""
        client = await self.connect()
        server = await asyncio.wait_for(self.accepted.get(), DEADLINE_S)
        await say(client, b"hello")
        assert await heard(server) == b"hello"
        return client, server

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[Link]:
        """Runs server and proxy."""
        link = cls()
        server = await asyncio.start_server(lambda *streams: link.accepted.put_nowait(streams), "127.0.0.1", 0)
        link.proxy = Proxy(server.sockets[0].getsockname()[1])
        link._port = int((await link.proxy.start()).rpartition(":")[2])
        try:
            yield link
        finally:
            link.proxy.close()
            server.close()


async def say(end: Streams, text: bytes) -> None:
    """Sends."""
    end[1].write(text)
    await end[1].drain()


async def heard(end: Streams) -> bytes:
    """The next bytes; empty at the end of this direction."""
    return await asyncio.wait_for(end[0].read(100), DEADLINE_S)


async def test_nothing_passes_a_cut_until_it_is_mended() -> None:
    """Bytes and new connections wait; both arrive in the end."""
    async with Link.open() as link:
        client, server = await link.pair()
        link.proxy.cut()
        await say(client, b"late")
        other = await link.connect()
        await say(other, b"new")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(server[0].read(100), 0.2)
        assert link.accepted.empty()
        link.proxy.mend()
        assert await heard(server) == b"late"
        assert await heard(await link.accepted.get()) == b"new"


async def test_a_reset_reaches_both_ends() -> None:
    """Not as an orderly end."""
    async with Link.open() as link:
        for end in await link.pair():
            link.proxy.reset()
            with pytest.raises(ConnectionResetError):
                await heard(end)


@pytest.mark.parametrize("towards", ["client", "server"])
async def test_a_half_closed_connection_carries_the_other_direction(towards: str) -> None:
    """One end hears the end, and is still heard."""
    async with Link.open() as link:
        client, server = await link.pair()
        ended, other = (client, server) if towards == "client" else (server, client)
        link.proxy.half_close(towards)
        assert await heard(ended) == b""
        await say(ended, b"still here")
        assert await heard(other) == b"still here"


async def test_forgotten_connections_are_silent_and_new_ones_work() -> None:
    """Nothing more is heard of the old one, neither bytes nor an end."""
    async with Link.open() as link:
        client, server = await link.pair()
        link.proxy.forget()
        await link.pair()
        client[1].close()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(server[0].read(100), 0.2)


async def test_nobody_behind_it_is_nobody_there() -> None:
    """A client's connection ends at once where the server cannot be reached."""
    async with Link.open() as link:
        nobody = Proxy(1)
        link._port = int((await nobody.start()).rpartition(":")[2])
        with suppress(ConnectionResetError):  # or in order
            assert await heard(await link.connect()) == b""
        nobody.close()
