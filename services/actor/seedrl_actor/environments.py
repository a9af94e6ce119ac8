"""What the actor steps: N environments as one, and the choice of their implementation by environment id.

Importing this module imports no simulator.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Protocol

from seedrl_core.codec import Episode
from seedrl_core.config import ActorConfig
from seedrl_core.errors import ConfigError
from seedrl_core.spec import Array, EnvironmentSpec

# What ids begin with: of environments on such a server, of levels of DeepMind Lab, of scenarios of Google Research
# Football.
DM_ENV_RPC = "dm_env_rpc://"
DMLAB = "dmlab/"
FOOTBALL = "football/"
# Those of DeepMind Lab, which ends its process where others raise, and of the package dmlab_gym, which drives it too.
_LABS = (DMLAB, "dmlab_gym/")


@dataclass(frozen=True)
class Step:
    """Step t of N environments; the arrays are valid until the next call of the environments.

    Attributes:
      observation: obs_t, an array [N, *shape] a leaf.
      reward: [N] float32, raw, earned by action t-1; 0 at FIRST.
      flags: [N] uint8, bitwise or of FIRST, TERMINATED, TRUNCATED, RESTARTED.
      episodes: whole games that ended with this step.
      restarts: environments that failed in this step and are replaced.
      picture: what the first environment shows, [height, width, 3] uint8; None unless actor.recording asks for it.
      action_names: with a picture, what the environment calls the values of its one action; () where it does not.
    """

    observation: tuple[Array, ...]
    reward: Array
    flags: Array
    episodes: tuple[Episode, ...] = ()
    restarts: int = 0
    picture: Array | None = None
    action_names: tuple[str, ...] = ()


class VectorEnvironment(Protocol):
    """N environments that step together, with next-step autoreset.

    An environment whose last flags have an ending ignores its next action and returns the first observation of a new
    episode, marked FIRST. All methods are called from one thread.
    """

    @property
    def spec(self) -> EnvironmentSpec:
        """What they emit and accept."""
        ...

    @property
    def num_envs(self) -> int:
        """N."""
        ...

    @property
    def busy_with(self) -> str:
        """For people: what is being stepped now. May be read from another thread."""
        ...

    def reset(self) -> Step:
        """Starts every environment: all are FIRST."""
        ...

    def step(self, action: tuple[Array, ...]) -> Step:
        """Steps every environment by its row of each action leaf [N, *shape].

        Raises:
          EnvironmentFailed: an environment broke its spec, or failed too often.
        """
        ...

    def close(self) -> None:
        """Frees what they hold."""
        ...


def make(config: ActorConfig, first_env: int, num_envs: int, num_sessions: int) -> VectorEnvironment:
    """Environments `first_env` to `first_env + num_envs - 1` of an actor, which splits its cores over `num_sessions`.

    Raises:
      ConfigError: no such environment, or it cannot be made from these settings.
      BadRequest: a space that is not supported.
      EnvironmentFailed: a process of its own, where there is one, ended or hung before it had built them.
    """
    if envs_per_process(config):
        if config.recording is not None:
            raise ConfigError("actor.recording: expected actor.envs_per_process=0, or no recording")
        from seedrl_actor.isolated_vector import IsolatedVector

        return IsolatedVector(config, first_env, num_envs, num_sessions)
    return make_here(config, first_env, num_envs, num_sessions)


def make_here(config: ActorConfig, first_env: int, num_envs: int, num_sessions: int) -> VectorEnvironment:
    """`make`, in this process."""
    from seedrl_actor.gym_vector import GymVector

    if config.env_id.startswith(DM_ENV_RPC):
        return GymVector(config, first_env, num_envs, make=_remote)
    if config.env_id.startswith(DMLAB):
        return GymVector(config, first_env, num_envs, make=_lab)
    if config.env_id.startswith(FOOTBALL):
        return GymVector(config, first_env, num_envs, make=_football)
    registered = find_registration(config.env_id, config.env_import)
    if registered.entry_point == "ale_py.env:AtariEnv":
        from seedrl_actor.atari_vector import AtariVector

        return AtariVector(config, registered.kwargs, first_env, num_envs, num_sessions)
    return GymVector(config, first_env, num_envs)


def envs_per_process(config: ActorConfig) -> int:
    """How many environments share a process of their own; 0: they are in the actor's."""
    if config.envs_per_process is None:
        return 1 if config.env_id.startswith(_LABS) else 0
    return config.envs_per_process


def meaning_of_exit(config: ActorConfig, code: int) -> str:
    """What an exit code of the environments' process most likely means, to be said after it; empty: nothing known."""
    if code == 1 and config.env_id.startswith(_LABS):
        return f", as DeepMind Lab does where it has no map of the level: check the name in {config.env_id}"
    return ""


def _lab(config: ActorConfig) -> Any:
    """A level of DeepMind Lab."""
    from seedrl_actor.dmlab_environment import LabEnvironment

    return LabEnvironment(config.env_id.removeprefix(DMLAB), evaluates=config.role == "eval", **config.env_kwargs)


def _football(config: ActorConfig) -> Any:
    """A scenario of Google Research Football."""
    from seedrl_actor.football_environment import FootballEnvironment

    scenario = config.env_id.removeprefix(FOOTBALL)
    return FootballEnvironment(scenario, evaluates=config.role == "eval", **config.env_kwargs)


def _remote(config: ActorConfig) -> Any:
    """An environment behind a server that speaks dm_env_rpc."""
    try:
        from seedrl_actor.dm_env_rpc_environment import DmEnvRpcEnvironment, parse_id
    except ImportError as error:
        raise ConfigError(
            f"{DM_ENV_RPC} needs packages that are not installed (pip install 'seedrl[dm-env-rpc]'): {error}"
        ) from error
    address, settings = parse_id(config.env_id)
    return DmEnvRpcEnvironment(address, settings, **config.env_kwargs)


def find_registration(env_id: str, env_import: str = "") -> Any:
    """Gymnasium's registration of `Name-v0`, `ALE/Name-v5` or `module:Name-v0`; ConfigError when there is none."""
    import gymnasium

    module, _, name = env_id.rpartition(":")
    for wanted in (env_import, module):
        if wanted:
            _import("actor.env_import", wanted)
    if name not in gymnasium.registry:
        _register_atari()
    try:
        return gymnasium.spec(name)
    except gymnasium.error.Error as error:
        raise ConfigError(f"actor.env_id: {str(error).splitlines()[0]}") from error


def _import(setting: str, module: str) -> None:
    try:
        importlib.import_module(module)
    except Exception as error:
        raise ConfigError(f"{setting}: importing {module} failed: {type(error).__name__}: {error}") from error


def _register_atari() -> None:
    try:
        import ale_py
        import gymnasium
    except ImportError:
        return
    gymnasium.register_envs(ale_py)
