"""A child process: started in a process group of its own, its output in a log file, ended in order or at once.

It knows nothing of what the process does. Starting is one step that cannot be cancelled halfway, and the end is polled
for, so that no child is ever left without an owner.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from seedrl_core.aio import PARENT_PID
from seedrl_core.errors import ServiceFailed, exit_in_words

_POLL_S = 0.1
_TAIL_LINES = 20
_TAIL_BYTES = 32_768
_ERROR_PREFIX = "error: "


class Process:
    """One service as a child process; it may be started again after its end."""

    def __init__(self, name: str, command: Sequence[str], log_file: Path) -> None:
        """`log_file` gets standard output and standard error of every start, one after the other."""
        self.name = name
        self.log_file = log_file
        self.command = list(command)
        self._popen: subprocess.Popen[bytes] | None = None
        self._group: int | None = None  # the process group, while it may have members
        self._log_offset = 0

    @property
    def alive(self) -> bool:
        """True from a start to the end of the process."""
        return self._popen is not None and self._popen.poll() is None

    @property
    def pid(self) -> int | None:
        """Process number of the last start."""
        return self._popen.pid if self._popen else None

    def start(self) -> None:
        """Starts the process; it ends itself when this process is gone (see `aio.run_service`)."""
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as log:
            self._log_offset = log.tell()
            self._popen = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C at the terminal reaches the launcher alone, which stops all in order
                env={**os.environ, PARENT_PID: str(os.getpid())},
            )
        self._group = self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """What `wait` gave; None before."""
        return self._popen.poll() if self._popen else None

    async def wait(self) -> int:
        """The exit code, once the process has ended; minus the signal's number when one ended it."""
        assert self._popen is not None
        while (code := self._popen.poll()) is None:  # noqa: ASYNC110 - the kernel sets no asyncio.Event
            await asyncio.sleep(_POLL_S)
        self.kill()  # what it has left behind in its group
        self._group = None
        return code

    async def stop(self, patience_s: float, grace_s: float) -> None:
        """Waits `patience_s` seconds for the process to end, asks it to, and kills it `grace_s` seconds later."""
        if self._popen is None or await self._ended_within(patience_s):
            return
        self._popen.send_signal(signal.SIGTERM)
        if not await self._ended_within(grace_s):
            self.kill()
            await self.wait()

    def kill(self) -> None:
        """Ends the whole process group at once."""
        if self._group is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._group, signal.SIGKILL)

    def failure(self, code: int) -> ServiceFailed:
        """The error for an unwanted end with exit code `code`: the process's own error line, or else its last lines."""
        how = exit_in_words(code)
        lines = self._last_lines()
        told = [line.removeprefix(_ERROR_PREFIX) for line in lines if line.startswith(_ERROR_PREFIX)]
        if told:
            return ServiceFailed(f"{self.name} {how}: {told[-1]}", max(code, 1))
        tail = "".join(f"\n  | {line}" for line in lines)
        return ServiceFailed(f"{self.name} {how} (log: {self.log_file}){tail}", max(code, 1))

    async def _ended_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self.wait()
        except TimeoutError:
            return False
        return True

    def _last_lines(self) -> list[str]:
        with self.log_file.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_offset, size - _TAIL_BYTES))
            return log.read().decode(errors="replace").splitlines()[-_TAIL_LINES:]
