"""A dm_env_rpc server whose every observation and reward is known beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import dm_env_rpc_pb2_grpc, tensor_spec_utils, tensor_utils
from dm_env_rpc.v1.spec_manager import SpecManager
from google.rpc.status_pb2 import Status

DEFAULTS = {"length": 3, "ends": "terminated", "fails_at": -1, "bounds": True, "title": False}


def _spec(name: str, dtype: Any, shape: tuple[int, ...] = (), low: Any = None, high: Any = None) -> rpc.TensorSpec:
    spec = rpc.TensorSpec(name=name, dtype=dtype, shape=shape)
    if low is not None:
        tensor_spec_utils.set_bounds(spec, low, high)
    return spec


class World:
    """Counts steps: the reward of step t is t, and the observation tells t, whether it is even, and the last action.

    Settings: `length` of a sequence, how it `ends`, the step that `fails_at`, whether actions have `bounds`, whether
    there is a text among the observations.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        unknown = settings.keys() - DEFAULTS.keys()
        if unknown:
            raise ValueError(f"no such setting: {', '.join(unknown)}")
        self._settings = DEFAULTS | settings
        low, high = (5, 7) if self._settings["bounds"] else (None, None)
        actions = [
            _spec("move", rpc.INT32, (), low, high),
            _spec("arm.force", rpc.FLOAT, (2,), [-1.0, 0.0], [1.0, 0.5]),
        ]
        observations = [
            _spec("clock.step", rpc.FLOAT, (1,)),
            _spec("clock.even", rpc.BOOL),
            _spec("last", rpc.FLOAT, (3,)),
            _spec("level", rpc.INT8, (), -2, 2),
            _spec("reward", rpc.DOUBLE),
        ]
        observations += [_spec("title", rpc.STRING)] if self._settings["title"] else []
        self.actions = SpecManager(dict(enumerate(actions, 1)))
        self.observations = SpecManager(dict(enumerate(observations, 1)))
        self.specs = rpc.ActionObservationSpecs(
            actions=self.actions.specs_by_uid, observations=self.observations.specs_by_uid
        )
        self.taken: list[dict[str, Any]] = []
        self._t = -1  # between two sequences

    def reset(self) -> None:
        """Interrupts the sequence."""
        self._t = -1

    def step(self, request: rpc.StepRequest) -> rpc.StepResponse:
        """The next step; the first of a sequence takes no action."""
        action = self.actions.unpack(request.actions)
        self._t += 1
        if self._t:
            self.taken.append(action)
        if self._t == self._settings["fails_at"]:
            raise RuntimeError("the world has broken down")
        values = self.observations.pack(self._observe(action if self._t else None))
        response = rpc.StepResponse(state=rpc.RUNNING)
        for uid in request.requested_observations:
            response.observations[uid].CopyFrom(values[uid])
        if self._t == self._settings["length"]:
            response.state = rpc.EnvironmentStateType.Value(self._settings["ends"].upper())
            self._t = -1
        return response

    def _observe(self, action: dict[str, Any] | None) -> dict[str, Any]:
        last = [action["move"], *action["arm.force"]] if action else [0, 0, 0]
        values = {
            "clock.step": np.array([self._t], np.float32),
            "clock.even": self._t % 2 == 0,
            "last": np.array(last, np.float32),
            "level": np.int8(self._t % 5 - 2),
            "reward": float(self._t),
        }
        return values | ({"title": "a world"} if self._settings["title"] else {})


class Worlds(dm_env_rpc_pb2_grpc.EnvironmentServicer):
    """Serves a world a connection.

    Attributes:
      worlds: all that were created.
      destroyed: how many were destroyed.
      most_worlds: how many may be created.
    """

    def __init__(self) -> None:
        self.worlds: list[World] = []
        self.destroyed = 0
        self.most_worlds = 1000

    def Process(self, requests: Iterator[rpc.EnvironmentRequest], context: Any) -> Iterator[rpc.EnvironmentResponse]:
        """One connection."""
        world: World | None = None
        for request in requests:
            kind = request.WhichOneof("payload")
            try:
                if kind == "create_world":
                    settings = {
                        name: tensor_utils.unpack_tensor(x) for name, x in request.create_world.settings.items()
                    }
                    if len(self.worlds) == self.most_worlds:
                        raise RuntimeError("no room for another world")
                    world = World(settings)
                    self.worlds.append(world)
                assert world is not None, f"{kind} before create_world"
                yield rpc.EnvironmentResponse(**{kind: self._answer(world, kind, request)})
            except Exception as error:
                yield rpc.EnvironmentResponse(error=Status(message=str(error)))

    def _answer(self, world: World, kind: str, request: rpc.EnvironmentRequest) -> Any:
        self.destroyed += kind == "destroy_world"
        if kind in ("reset", "reset_world"):
            world.reset()
        answers: dict[str, Callable[[], Any]] = {
            "create_world": lambda: rpc.CreateWorldResponse(world_name="counter"),
            "join_world": lambda: rpc.JoinWorldResponse(specs=world.specs),
            "step": lambda: world.step(request.step),
            "reset": lambda: rpc.ResetResponse(specs=world.specs),
            "leave_world": rpc.LeaveWorldResponse,
            "destroy_world": rpc.DestroyWorldResponse,
        }
        return answers[kind]()


@contextmanager
def serving(address: str) -> Iterator[Worlds]:
    """Serves worlds at `address`; connections that are open at the end are cut."""
    worlds = Worlds()
    server = grpc.server(ThreadPoolExecutor(8))
    dm_env_rpc_pb2_grpc.add_EnvironmentServicer_to_server(worlds, server)
    assert server.add_insecure_port(address)
    server.start()
    try:
        yield worlds
    finally:
        server.stop(None).wait()
