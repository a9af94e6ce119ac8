"""An environment behind a server that speaks dm_env_rpc, as a Gymnasium environment.

The only module of the actor that knows grpcio, which the package dm-env-rpc brings along: an extra of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl

import dm_env
import grpc
import gymnasium
import numpy as np
from dm_env.specs import Array as Spec
from dm_env.specs import BoundedArray
from dm_env_rpc.v1 import dm_env_adaptor, dm_env_rpc_pb2
from dm_env_rpc.v1.connection import Connection
from dm_env_rpc.v1.error import DmEnvRpcError
from gymnasium import spaces

from seedrl_actor.environments import DM_ENV_RPC
from seedrl_core.address import Address
from seedrl_core.errors import ConfigError

_CONNECT_S = 10.0
_CHANNEL_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_http_proxy", 0),
    # Environments of one process would share a connection, and its flow control, otherwise.
    ("grpc.use_local_subchannel_pool", 1),
)


def parse_id(env_id: str) -> tuple[Address, dict[str, Any]]:
    """Address and settings of the world in `dm_env_rpc://ADDRESS?name=value&...`; ConfigError where there are none.

    A value is a number, true, false or a text; quotes make a text of anything.
    """
    address, _, query = env_id.removeprefix(DM_ENV_RPC).partition("?")
    try:
        settings = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError as error:
        raise ConfigError(f"actor.env_id: expected {DM_ENV_RPC}ADDRESS?name=value&..., got {env_id}") from error
    return Address.parse(address), {name: _setting(value) for name, value in settings}


class DmEnvRpcEnvironment(gymnasium.Env[Any, Any]):
    """A world of its own on a connection of its own. A call waits for the server as long as it takes."""

    def __init__(
        self,
        address: Address,
        create: Mapping[str, Any],
        join: Mapping[str, Any] | None = None,
        observations: Sequence[str] | None = None,
        action_bounds: Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        """Connects, creates a world and joins it.

        Args:
          address: of the server.
          create: settings for creating the world.
          join: settings for joining it.
          observations: names of those to use; None: all but `reward` and `discount`.
          action_bounds: least and largest value of actions for which the server tells none.

        Raises:
          ConfigError: nobody answers, the server refuses, or a tensor cannot be used.
        """
        self._joined = False
        self._channel = grpc.insecure_channel(str(address), _CHANNEL_OPTIONS)
        self._connection = Connection(self._channel)
        try:
            grpc.channel_ready_future(self._channel).result(timeout=_CONNECT_S)
            self._env, self._world = dm_env_adaptor.create_and_join_world(
                self._connection, create, join or {}, requested_observations=observations
            )
            self._joined = True
            self.observation_space = _space(self._env.observation_spec(), "observation")
            self.action_space = _space(_bounded(self._env.action_spec(), dict(action_bounds or {})), "action")
        except grpc.FutureTimeoutError as error:
            raise self._unusable(f"nobody answers at {address} within {_CONNECT_S:g} s") from error
        except DmEnvRpcError as error:
            raise self._unusable(f"{address}: {error.message}") from error
        except (ValueError, grpc.RpcError) as error:
            raise self._unusable(f"{address}: {error}") from error

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """A new sequence. The protocol has no seeds; a world's settings may."""
        return self._called(self._env.reset).observation, {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step. A sequence that ends is truncated where its discount is not 0 then: it was interrupted."""
        step = self._called(self._env.step, action)
        ended = step.last()
        terminated = ended and not step.discount
        return step.observation, step.reward, terminated, ended and not terminated, {}

    def close(self) -> None:
        """Leaves and destroys the world, if there is one and the connection works, and closes the connection."""
        if self._joined:
            with suppress(DmEnvRpcError, grpc.RpcError):  # a world that is gone need not be left
                self._env.close()
                self._connection.send(dm_env_rpc_pb2.DestroyWorldRequest(world_name=self._world))
        self._channel.close()

    def _called(self, call: Any, *arguments: Any) -> dm_env.TimeStep:
        try:
            return call(*arguments)
        except BaseException:
            self._joined = False
            raise

    def _unusable(self, reason: str) -> ConfigError:
        self.close()
        return ConfigError(reason)


def _setting(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, int | float | str) else text


def _bounded(spec: Any, bounds: dict[str, Sequence[float]], path: str = "") -> Any:
    """Action specs, nested as they are, with bounds from `bounds` where they have none."""
    if isinstance(spec, Mapping):
        return {name: _bounded(one, bounds, f"{path}.{name}".strip(".")) for name, one in spec.items()}
    if path in bounds:
        low, high = bounds[path]
        return BoundedArray(spec.shape, spec.dtype, low, high, spec.name)
    if not isinstance(spec, BoundedArray):
        raise ValueError(f"action {path}: expected bounds; set actor.env_kwargs.action_bounds.{path}=[LOW,HIGH]")
    return spec


def _space(spec: Any, path: str) -> spaces.Space[Any]:
    """The space of a tensor, or of a nest of them."""
    if isinstance(spec, Mapping):
        return spaces.Dict({name: _space(one, f"{path}/{name}") for name, one in spec.items()})
    dtype = np.dtype(spec.dtype)
    if dtype.kind not in "biuf" or any(size < 0 for size in spec.shape):
        raise ValueError(
            f"{path}: expected numbers of a fixed shape, got {dtype.name} {tuple(spec.shape)}; "
            "actor.env_kwargs.observations chooses others"
        )
    if dtype.kind == "b":
        return spaces.MultiBinary(spec.shape) if spec.shape else spaces.Discrete(2)
    low, high = _limits(spec, dtype)
    if dtype.kind in "iu" and not spec.shape and isinstance(spec, BoundedArray):
        return spaces.Discrete(int(high) - int(low) + 1, start=int(low))
    return spaces.Box(low, high, tuple(spec.shape), dtype.type)


def _limits(spec: Spec, dtype: np.dtype[Any]) -> tuple[Any, Any]:
    if isinstance(spec, BoundedArray):
        return spec.minimum, spec.maximum
    if dtype.kind == "f":
        return -np.inf, np.inf
    return np.iinfo(dtype).min, np.iinfo(dtype).max
