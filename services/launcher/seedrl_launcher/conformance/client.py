"""The program under test, as far as the check can start it and see it end."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from seedrl_core.errors import ConfigError
from seedrl_launcher.processes import Process

_STOP_GRACE_S = 5.0


class Ending(NamedTuple):
    """How a client ended."""

    success: bool
    words: str


class Client(Protocol):
    """A client that is started again whenever a part of the check has ended it."""

    def start(self) -> asyncio.Task[Ending]:
        """Starts it; the task gives its ending."""

    async def stop(self) -> None:
        """Ends it, if it has not ended."""


class CommandClient:
    """A client that is a command of this machine."""

    def __init__(self, command: Sequence[str], log_file: Path) -> None:
        """`log_file` gets what it prints; ConfigError where there is no such command."""
        if shutil.which(command[0]) is None:
            raise ConfigError(f"COMMAND: expected a program that can be run, got {command[0]}")
        self._process = Process("the client", command, log_file)

    def start(self) -> asyncio.Task[Ending]:
        """Starts its process."""
        self._process.start()
        return asyncio.create_task(self._ending())

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL 5 s later."""
        await self._process.stop(0.0, _STOP_GRACE_S)

    def kill(self) -> None:
        """Ends it at once."""
        self._process.kill()

    async def _ending(self) -> Ending:
        code = await self._process.wait()
        return Ending(code == 0, "it ended with exit code 0" if code == 0 else str(self._process.failure(code)))
