"""A TCP link that can be disturbed: everything that a network does to connections, short of changing their bytes."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress

_CHUNK_BYTES = 1 << 16
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with RST


class _Pair:
    """A client's connection, and the one that was made to the server for it."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server
        self.is_forgotten = False
        self.ended: set[asyncio.StreamWriter] = set()  # what they are sent is lost

    def end(self, writer: asyncio.StreamWriter) -> None:
        """FIN towards one of the two."""
        self.ended.add(writer)
        with suppress(OSError, RuntimeError):
            writer.write_eof()

    def abort(self) -> None:
        """RST towards both."""
        for writer in (self.client, self.server):
            with suppress(OSError):
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()


class Proxy:
    """Forwards TCP connections to a port of this host.

    Attributes:
      delay_s: each chunk of bytes is forwarded this much later.
      bytes_per_s: most bytes a second in each direction of each connection; None for no limit.
    """

    def __init__(self, port: int) -> None:
        """To 127.0.0.1:`port`."""
        self.delay_s = 0.0
        self.bytes_per_s: float | None = None
        self._port = port
        self._flows = asyncio.Event()
        self._flows.set()
        self._pairs: set[_Pair] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        """Listens; gives its address."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    def close(self) -> None:
        """Ends it with all its connections."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()

    @property
    def num_connections(self) -> int:
        """Connections that are being forwarded."""
        return len(self._pairs)

    def cut(self) -> None:
        """Nothing passes any more, and new connections get no further than to this host: a cable is pulled."""
        self._flows.clear()

    def mend(self) -> None:
        """What was held back arrives, as TCP sends again what was lost."""
        self._flows.set()

    def forget(self) -> None:
        """Connections that exist now are dead without a word, and stay so: a router has lost its table."""
        for pair in self._pairs:
            pair.is_forgotten = True

    def reset(self) -> None:
        """Connections that exist now end with RST in both directions."""
        for pair in self._pairs:
            pair.abort()

    def half_close(self, towards: str) -> None:
        """Only one direction ends: the `client` or the `server` is told that its peer has said all."""
        for pair in self._pairs:
            pair.end(pair.client if towards == "client" else pair.server)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._flows.wait()
            upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self._port)
            pair = _Pair(writer, upstream_writer)
            self._pairs.add(pair)
            await self._forward(pair, reader, upstream_reader)
            self._pairs.discard(pair)
        except OSError:
            pass  # nobody listens there, and so nobody listens here
        finally:
            writer.transport.abort()

    async def _forward(self, pair: _Pair, from_client: asyncio.StreamReader, from_server: asyncio.StreamReader) -> None:
        """Both directions, each until its end; an error in one ends both."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(pair, from_client, pair.server))
                group.create_task(self._pump(pair, from_server, pair.client))
        except* OSError:
            pair.abort()
        finally:
            pair.server.close()
            pair.client.close()

    async def _pump(self, pair: _Pair, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while chunk := await source.read(_CHUNK_BYTES):
            await self._hold_back(pair, len(chunk))
            if sink not in pair.ended:
                sink.write(chunk)
                await sink.drain()
        await self._hold_back(pair, 0)
        pair.end(sink)

    async def _hold_back(self, pair: _Pair, num_bytes: int) -> None:
        await self._flows.wait()
        if pair.is_forgotten:
            await asyncio.Event().wait()
        if self.bytes_per_s is not None:
            await asyncio.sleep(num_bytes / self.bytes_per_s)
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
