"""`python -m seedrl_actor.environment_worker`: environments in a process of their own, for the actor that started it.

On the connection between them the actor sends the job as JSON, and then serialized Actions, step by step. Each message
from here begins with a byte that says what follows:

    SPEC   a serialized EnvironmentSpec, once the environments are built and reset
    TICK   how many environments were replaced, 4 bytes, and a serialized Tick: of the reset, then of each step
    ERROR  the error's class and its sentence; the process ends

Nothing is pickled. The process ends when the actor closes the connection, and is killed by the kernel when the actor
dies.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import signal
import struct
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from seedrl_actor import environments
from seedrl_actor.environments import Step
from seedrl_actor.identity import actor_id
from seedrl_core import codec, logs
from seedrl_core.config import ActorConfig
from seedrl_core.errors import ExpectedError
from seedrl_core.spec import Array, EnvironmentSpec
from seedrl_proto.v1 import inference_pb2 as inference

SPEC, TICK, ERROR = b"S", b"T", b"E"
REPLACED = struct.Struct("<I")
STACK_SIGNAL = signal.SIGUSR1
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Takes the numbers of two open files: the connection, and where the stack goes when the actor asks for it."""
    connection: Connection[bytes, bytes] = Connection(int(sys.argv[1]))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the actor, which stops in order
    faulthandler.register(STACK_SIGNAL, file=int(sys.argv[2]))
    with suppress(EOFError, OSError):  # the actor has closed the connection
        job: dict[str, Any] = json.loads(connection.recv_bytes())
        config = ActorConfig.model_validate(job.pop("config"))
        logs.configure("actor", actor_id=actor_id(config))
        try:
            serve(connection, config, **job)
        except ExpectedError as error:
            connection.send_bytes(ERROR + f"{type(error).__name__} {error}".encode())


def serve(
    connection: Connection[bytes, bytes], config: ActorConfig, first_env: int, num_envs: int, num_sessions: int
) -> None:
    """Steps the environments until the other end closes, which is an EOFError. Raises what they and `make` raise."""
    vector = environments.make_here(config, first_env, num_envs, num_sessions)
    try:
        step = vector.reset()
        connection.send_bytes(SPEC + codec.spec_to_proto(vector.spec).SerializeToString())
        while True:
            connection.send_bytes(_serialized(step))
            step = vector.step(_action(connection.recv_bytes(), vector.spec, num_envs))
    finally:
        vector.close()


def _serialized(step: Step) -> bytes:
    tick = codec.TickArrays(0, step.observation, step.reward, step.flags, step.episodes)
    return b"".join((TICK, REPLACED.pack(step.restarts), *codec.encode_tick(tick)))


def _action(serialized: bytes, spec: EnvironmentSpec, num_envs: int) -> tuple[Array, ...]:
    leaves = codec.decode_leaves(inference.Actions.FromString(serialized).action, spec.action, num_envs)
    return tuple(leaf.copy() for leaf in leaves)


if __name__ == "__main__":
    main()
