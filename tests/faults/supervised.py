"""A service's process under a supervisor that does what systemd does with our units: readiness, restarts on failure."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from seedrl_core.aio import PARENT_PID

# Of deploy/systemd, but sooner: exit code 2 is not tried again.
RESTART_S = 0.5
FATAL_EXIT_CODE = 2
PATIENCE_S = 120.0


class Supervised:
    """One service, over as many processes as it takes.

    Attributes:
      name: for people.
      log: file with all that the processes have said.
      exits: exit codes so far, negative for signals; the supervisor's own stops among them.
    """

    def __init__(
        self, name: str, module: str, flags: Sequence[str], directory: Path, environment: Mapping[str, str]
    ) -> None:
        """`python -m MODULE FLAGS`; nothing is started yet."""
        self.name = name
        self.log = directory / f"{name}.log"
        self.exits: list[int] = []
        self._command = [sys.executable, "-m", module, *flags]
        self._notify_path = directory / f"{name}.notify"
        # With the test everything ends, however that ends.
        own = {"NOTIFY_SOCKET": str(self._notify_path), PARENT_PID: str(os.getpid())}
        self._environment = {**os.environ, **environment, **own}
        self._process: asyncio.subprocess.Process | None = None
        self._ready = asyncio.Event()
        self._wanted = False
        self._task: asyncio.Task[None] | None = None
        self._notifications = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._notifications.bind(str(self._notify_path))
        asyncio.get_running_loop().add_reader(self._notifications, self._hear)

    @property
    def pid(self) -> int:
        """Of the process that runs now."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """False after an end that the supervisor leaves as it is."""
        return self._task is not None and not self._task.done()

    async def start(self) -> None:
        """Starts it and waits until it says that it is ready."""
        assert not self.is_running
        self._wanted = True
        self._ready.clear()
        self._task = asyncio.create_task(self._supervise())
        await self.until_ready()

    async def until_ready(self) -> None:
        """Waits for the process that was started last."""
        assert self._task is not None
        ready = asyncio.create_task(self._ready.wait())
        await asyncio.wait((ready, self._task), timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        assert self._ready.is_set(), f"{self.name} is not ready; exit codes {self.exits}; {self.last_words}"

    def send(self, number: signal.Signals) -> None:
        """Signals the process. After one that ends it, `until_ready` waits for the successor."""
        if number not in (signal.SIGSTOP, signal.SIGCONT):
            self._ready.clear()
        os.kill(self.pid, number)

    async def until_ended(self) -> int:
        """The exit code that the supervisor does not answer with a restart."""
        assert self._task is not None
        async with asyncio.timeout(PATIENCE_S):
            await self._task
        return self.exits[-1]

    async def stop(self) -> int:
        """SIGTERM, and its exit code."""
        self._wanted = False
        self.send(signal.SIGTERM)
        return await self.until_ended()

    async def abandon(self) -> None:
        """Kills what runs, and hears no more of it; may be called twice."""
        self._wanted = False
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
        if self._task is not None:
            await self._task
        if self._notifications.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._notifications)
            self._notifications.close()

    async def call(self) -> tuple[int, str]:
        """A second process of the same command, beside the supervised one: its exit code and what it says last."""
        environment = {name: value for name, value in self._environment.items() if name != "NOTIFY_SOCKET"}
        process = await asyncio.create_subprocess_exec(
            *self._command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        try:
            async with asyncio.timeout(PATIENCE_S):
                output, _ = await process.communicate()
        except BaseException:
            process.kill()
            raise
        assert process.returncode is not None
        return process.returncode, output.decode().strip().rpartition("\n")[2]

    @property
    def last_words(self) -> str:
        """The end of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-5:]) if self.log.exists() else ""

    async def _supervise(self) -> None:
        while True:
            with self.log.open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    *self._command, env=self._environment, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
                )
            self.exits.append(await self._process.wait())
            self._ready.clear()
            gives_up = self.exits[-1] in (0, FATAL_EXIT_CODE) or self.exits[-3:] == [1, 1, 1]
            if gives_up or not self._wanted:
                return
            await asyncio.sleep(RESTART_S)
            if not self._wanted:
                return

    def _hear(self) -> None:
        if b"READY=1" in self._notifications.recv(4096):
            self._ready.set()
