"""Tells a supervisor that asks for it, systemd say, how the process is: sd_notify(3). Nothing happens without one."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress


def notify(state: str) -> None:
    """Sends `READY=1`, `STOPPING=1` or `WATCHDOG=1` to the socket NOTIFY_SOCKET; one that is gone is no error."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return
    abstract = path.startswith("@")
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
        datagrams.sendto(state.encode(), b"\0" + path[1:].encode() if abstract else path)


async def keep_watchdog_quiet() -> None:
    """Tells that the event loop runs, twice in each time the supervisor allows (WATCHDOG_USEC), until cancelled."""
    allowed_us = int(os.environ.get("WATCHDOG_USEC", 0))
    if not allowed_us or os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return
    while True:
        notify("WATCHDOG=1")
        await asyncio.sleep(allowed_us / 2e6)
