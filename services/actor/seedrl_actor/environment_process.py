"""A process of environments as the actor sees it: started, given actions, waited for with a deadline, ended.

It knows nothing of what becomes of the environments when their process is lost.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import connection
from typing import Literal

from seedrl_actor.environment_worker import ERROR, REPLACED, SPEC, STACK_SIGNAL, TICK
from seedrl_actor.environments import meaning_of_exit
from seedrl_core import codec, logs
from seedrl_core.codec import TickArrays
from seedrl_core.config import ActorConfig
from seedrl_core.errors import BadRequest, ConfigError, EnvironmentFailed, exit_in_words
from seedrl_core.spec import Array, EnvironmentSpec
from seedrl_proto.v1 import spec_pb2

# That a worker may tell of itself.
_ERRORS = {cls.__name__: cls for cls in (BadRequest, ConfigError, EnvironmentFailed)}

_STACK_S = 5.0  # time to begin to write its stack
_STACK_PART_S = 0.2  # time to go on with it
_PART_BYTES = 1 << 16
_END_S = 1.0  # time to end by itself
_log = logs.get(__name__)


class ProcessLost(EnvironmentFailed):
    """The process ended or hung; nothing of it is left."""


@dataclass(frozen=True)
class Job:
    """What a process steps: environments `first_env`, ... of the actor that `config` is of."""

    name: str  # of the environments, for people
    config: ActorConfig
    first_env: int
    num_envs: int
    num_sessions: int  # that share the cores


class EnvironmentProcess:
    """One process, from its start to its end. After an error only `kill` and `close` may follow."""

    def __init__(self, job: Job) -> None:
        """Starts it, and does not wait: to build and to reset its environments it has env_start_timeout_s.

        Raises:
          EnvironmentFailed: the system starts no more processes.
        """
        self._job = job
        self._spec: EnvironmentSpec | None = None
        self.connection, theirs = multiprocessing.Pipe()
        self._stack, their_stack = os.pipe()
        files = (theirs.fileno(), their_stack)
        try:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "seedrl_actor.environment_worker", *map(str, files)],
                stdin=subprocess.DEVNULL,
                pass_fds=files,
            )
        except OSError as error:
            self._close_files()
            raise EnvironmentFailed(f"{job.name}: its process cannot be started: {error.strerror}") from error
        finally:
            theirs.close()
            os.close(their_stack)
        self._begin_to_wait("env_start_timeout_s")
        # Within the process its environments are not apart.
        config = job.config.model_copy(update={"envs_per_process": 0, "env_recycle_episodes": 0})
        order = {"first_env": job.first_env, "num_envs": job.num_envs, "num_sessions": job.num_sessions}
        self._send(json.dumps({"config": config.model_dump(mode="json"), **order}).encode())

    @property
    def pid(self) -> int:
        """Process number."""
        return self._popen.pid

    @property
    def has_news(self) -> bool:
        """True when there is something to receive, be it an error: that it is gone, or that it has taken too long."""
        return self.connection.poll() or time.monotonic() >= self._deadline

    @property
    def spec(self) -> EnvironmentSpec:
        """What its environments emit and accept; waits until they are built and reset. Raises as `tick` does."""
        if self._spec is None:
            message = spec_pb2.EnvironmentSpec.FromString(self._receive(SPEC))
            self._spec = codec.spec_from_proto(message)
        return self._spec

    def act(self, action: Sequence[Array]) -> None:
        """Sends the actions for the next step."""
        self._begin_to_wait("env_timeout_s")
        self._send(codec.encode_actions(0, action, 0).SerializeToString())

    def tick(self) -> tuple[TickArrays, int]:
        """The tick of the reset, then of each step, and how many environments the process has replaced in it.

        Raises:
          ProcessLost: the process ended, or did not answer in time.
          ExpectedError: the one that its environments ended with.
        """
        spec = self.spec
        message = self._receive(TICK)
        tick = codec.decode_tick(memoryview(message)[REPLACED.size :], spec, self._job.num_envs)
        return tick, REPLACED.unpack_from(message)[0]

    def close(self) -> None:
        """Lets it end by itself, once the environments are closed; `kill` must follow."""
        self.connection.close()

    def kill(self, patience_s: float = 0.0) -> None:
        """Waits `patience_s` seconds for its end, and ends it."""
        try:
            self._popen.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self._close_files()

    def _close_files(self) -> None:
        if self._stack >= 0:
            os.close(self._stack)
            self._stack = -1
        self.connection.close()

    def _begin_to_wait(self, setting: Literal["env_start_timeout_s", "env_timeout_s"]) -> None:
        self._limit = f"actor.{setting}"
        self._timeout_s: float = getattr(self._job.config, setting)
        self._deadline = time.monotonic() + self._timeout_s

    def _send(self, message: bytes) -> None:
        try:
            self.connection.send_bytes(message)
        except OSError:
            return  # it is gone, and `tick` will tell how

    def _receive(self, kind: bytes) -> bytes:
        """What follows in the next message, which is of this kind. Raises as `tick` does."""
        try:
            if not self.connection.poll(max(0.0, self._deadline - time.monotonic())):
                raise ProcessLost(self._after_hang())
            message = self.connection.recv_bytes()
        except (EOFError, OSError):
            raise ProcessLost(self._after_end()) from None
        if message[:1] == ERROR:
            name, _, sentence = message[1:].decode().partition(" ")
            raise _ERRORS.get(name, EnvironmentFailed)(sentence)
        assert message[:1] == kind, f"expected {kind!r}, got {message[:1]!r}"
        return message[1:]

    def _after_hang(self) -> str:
        """Tells where it hangs, ends it and says what happened."""
        _log.warning(
            "environment_hangs", environment=self._job.name, elapsed_s=self._timeout_s, stack=self._ask_for_stack()
        )
        self.kill()
        return f"no answer for {self._timeout_s:g} s ({self._limit})"

    def _ask_for_stack(self) -> str:
        """Where it is, or nothing where it cannot tell any more: stopped, or not yet set up to."""
        os.kill(self.pid, STACK_SIGNAL)
        parts, patience_s = [], _STACK_S
        while connection.wait([self._stack], patience_s) and (part := os.read(self._stack, _PART_BYTES)):
            parts.append(part)
            patience_s = _STACK_PART_S
        return b"".join(parts).decode(errors="replace")

    def _after_end(self) -> str:
        """Says how it ended."""
        self.kill(_END_S)
        code = self._popen.returncode
        return f"its process {exit_in_words(code)}{meaning_of_exit(self._job.config, code)}"
