"""Configuration of every service: one frozen model a process, and one loader.

A value comes from, in this order: flags and `--set`, environment variables (`SEEDRL_LEARNER__UNROLL_LENGTH=20`), the
TOML file, the default here. `None` means "chosen by the agent and the spaces of the environment" (see the learner's
`defaults.py`).
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from seedrl_core.access import AccessConfig
from seedrl_core.address import Address
from seedrl_core.errors import ConfigError
from seedrl_core.files import write_whole

ENV_PREFIX = "SEEDRL_"
ENV_DELIMITER = "__"

MiB = 1 << 20
GiB = 1 << 30
TORSOS = ("mlp", "nature_cnn", "impala_resnet")


def _address(value: Any) -> Any:
    try:
        return str(Address.parse(value))
    except ConfigError as error:
        raise ValueError(str(error)) from error


def _addresses(value: Any) -> Any:
    try:
        return ",".join(map(str, Address.parse_all(value)))
    except ConfigError as error:
        raise ValueError(str(error)) from error


def _torso(value: str) -> str:
    module, colon, function = value.partition(":")
    if value not in TORSOS and not (colon and module and function.isidentifier()):
        raise ValueError(f"expected {', '.join(TORSOS)} or package.module:function, got {value!r}")
    return value


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()  # and not resolved: an environment's interpreter is a link out of it


def _metrics_address(value: Any) -> Any:
    if not value:
        return ""
    text = _address(value)
    if Address.parse(text).path:
        raise ValueError(f"expected host:port or nothing, got {value!r}")
    return text


AddressText = Annotated[str, BeforeValidator(_address)]
AddressesText = Annotated[str, BeforeValidator(_addresses)]
MetricsAddressText = Annotated[str, BeforeValidator(_metrics_address)]
Interpreter = Annotated[Path, AfterValidator(_absolute)]
Torso = Annotated[str, AfterValidator(_torso)]
Positive = Annotated[int, Field(gt=0)]
Seconds = Annotated[float, Field(gt=0)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class AtariConfig(_Model):
    """The Atari protocol, for `ALE/...` ids."""

    frame_skip: Positive = Field(4, description="emulator frames a step, the last two max-pooled")
    frame_size: Positive = Field(84, description="height and width of the grey frame, pixels")
    noop_max: int = Field(30, ge=0, description="most no-op actions at the start of a game")
    fire_reset: bool = Field(False, description="press FIRE after a reset in games that wait for it")
    episodic_life: bool = Field(False, description="a lost life ends the episode for training")
    max_episode_frames: Positive = Field(108_000, description="emulator frames after which a game is truncated")
    threads: int = Field(0, ge=0, description="emulator threads a session; 0: cores divided by sessions")


class ActorConfig(_Model):
    """The actor process: environments and their sessions."""

    broker: AddressesText = Field(
        "127.0.0.1:50051", description="address of the broker; of several, with commas, the next when one is gone"
    )
    env_id: str = Field(
        "",
        description="Gymnasium id, e.g. CartPole-v1 or ALE/Pong-v5, or dm_env_rpc://host:port?name=value, or "
        "dmlab/LEVEL of DeepMind Lab, or football/SCENARIO of Google Research Football",
    )
    env_kwargs: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of the environment")
    env_import: str = Field("", description="module to import first, so that it registers its ids")
    python: Interpreter | None = Field(
        None,
        description="interpreter that `seedrl` starts actors with, that of another virtual environment say; None: its "
        "own",
    )
    num_envs: Positive = Field(32, description="environments in this process")
    sessions: Positive = Field(2, description="sessions they are split over; one steps while another waits")
    actor_id: str = Field("", description="name in logs and metrics; empty: host name and index")
    actor_index: int = Field(0, ge=0, description="number of this actor; separates its seeds from other actors'")
    seed_by_host: bool = Field(
        False, description="separate seeds by the host's name, not by actor_index; for replicas with the same settings"
    )
    seed: int = Field(0, ge=0, description="base of every environment's seed")
    role: Literal["train", "eval"] = Field("train", description="train, or eval: greedy and not trained on")
    episodes: int = Field(
        0, ge=0, description="stop after this many whole episodes, spread evenly over environments; 0: never"
    )
    results: Path | None = Field(None, description="file that gets one JSON line an episode")
    recording: Path | None = Field(
        None,
        description="file that gets every step of the first environment, with a picture, what the agent expected and "
        "what it preferred, as `seedrl watch` draws it; with role eval",
    )
    shared_memory: Literal["auto", "off"] = Field(
        "auto", description="auto: observations go through shared memory where the learner is on this host"
    )
    peer_timeout_s: Seconds = Field(300.0, description="give up when broker or learner are away this long, seconds")
    envs_per_process: int | None = Field(
        None,
        ge=0,
        description="environments that step in a process of their own, so that one that ends it, or hangs, costs no "
        "others; 0: all step in the actor's; None: 1 for DeepMind Lab, else 0",
    )
    env_timeout_s: Seconds = Field(
        60.0,
        description="a step that takes this long is told with its stack; a process of its own is replaced, seconds",
    )
    env_start_timeout_s: Seconds = Field(
        300.0, description="a process of its own that takes longer to build and reset environments is replaced, seconds"
    )
    env_restarts: int = Field(
        10, ge=0, description="times an environment that raises, or its process, is built anew before giving up"
    )
    env_recycle_episodes: int = Field(
        0, ge=0, description="episodes after which an environment, or its process, is built anew; 0: never"
    )
    metrics_listen: MetricsAddressText = Field("", description="host:port where Prometheus reads metrics; empty: off")
    atari: AtariConfig = AtariConfig()


class BrokerConfig(_Model):
    """The broker process: batching between sessions and the learner."""

    listen: AddressText = Field("127.0.0.1:50051", description="where actors connect")
    learner: AddressText = Field("127.0.0.1:50052", description="address of the learner")
    max_batch_rows: Positive = Field(512, description="most environments in one inference batch")
    max_delay_ms: float = Field(
        5.0, ge=0, description="longest a tick waits for others while the learner is free, milliseconds"
    )
    max_sessions: Positive = Field(1024, description="most sessions open at a time")
    max_sessions_per_host: Positive = Field(
        256, description="most of them of one host; those over a Unix socket count for none"
    )
    max_envs_per_host: Positive = Field(4096, description="most environments in the sessions of one host")
    max_message_bytes: Positive = Field(64 * MiB, description="largest message accepted, bytes")
    waiting_interval_s: Seconds = Field(3.0, description="period of signs of life to a waiting client, seconds")
    drain_grace_s: Seconds = Field(5.0, description="time for sessions to part when stopping, seconds")
    metrics_listen: MetricsAddressText = Field("", description="host:port where Prometheus reads metrics; empty: off")


class NetworkConfig(_Model):
    """Torso, core and optional inputs of the network."""

    torso: Torso | None = Field(
        None,
        description="mlp, nature_cnn, impala_resnet, or package.module:function for one of your own; None: by the "
        "observation space",
    )
    mlp_sizes: tuple[Positive, ...] = Field((64, 64), description="hidden units a layer of the mlp torso")
    separate_baseline: bool | None = Field(
        None, description="the baseline has a torso of its own; None: only with the mlp torso"
    )
    normalize_observations: bool | None = Field(
        None,
        description="subtract running means from images and float leaves, scale the latter to deviation 1; None: with "
        "images, and where an action is continuous",
    )
    core: Literal["none", "lstm"] | None = Field(None, description="recurrent core; None: lstm for r2d2")
    core_size: Positive | None = Field(None, description="units of the core; None: by agent and observation space")
    previous_action: bool | None = Field(None, description="feed the previous action, one-hot; None: for r2d2")
    previous_reward: bool | None = Field(None, description="feed the previous reward; None: for r2d2")
    head_size: Positive | None = Field(
        None, description="hidden units of each head of r2d2; None: by the observation space"
    )


class OptimizerConfig(_Model):
    """Optimizer and learning-rate schedule."""

    name: Literal["adam", "rmsprop"] = Field("adam", description="optimizer")
    learning_rate: float | None = Field(None, gt=0, description="initial learning rate; None: by the observation space")
    decay: bool | None = Field(
        None, description="decay to zero over total_env_steps, where that is set; None: for vtrace"
    )
    decay_power: float | None = Field(
        None, gt=0, description="the rate falls with (1 - share done) ** this, 1: linearly; None: by the space"
    )
    epsilon: float | None = Field(None, gt=0, description="the optimizer's epsilon; None: by the agent")
    rms_decay: float = Field(0.99, ge=0, lt=1, description="decay of RMSProp's mean square")
    momentum: float = Field(0.0, ge=0, lt=1, description="momentum of RMSProp; Adam's beta 1 is 0.9")
    max_gradient_norm: float | None = Field(
        None, gt=0, description="global norm to clip gradients to; None: by the observation space"
    )


class VTraceConfig(_Model):
    """IMPALA's V-trace actor-critic (arXiv 1802.01561)."""

    discount: float = Field(0.99, ge=0, le=1, description="gamma")
    trace_lambda: float | None = Field(
        None, ge=0, le=1, description="lambda of the traces (remark 2); None: by the observation space"
    )
    clip_rho: float = Field(1.0, gt=0, description="rho bar")
    clip_c: float = Field(1.0, gt=0, description="c bar")
    clip_pg_rho: float = Field(1.0, gt=0, description="clip of the policy gradient's importance weight")
    baseline_cost: float | None = Field(
        None, ge=0, description="weight of the value loss; None: by the observation space"
    )
    entropy_cost: float | None = Field(
        None, ge=0, description="weight of the entropy bonus; None: by the observation space"
    )
    entropy_decay: bool | None = Field(
        None, description="linear decay of entropy_cost to zero over total_env_steps; None: by the observation space"
    )
    kl_cost: float = Field(0.0, ge=0, description="weight of KL(behaviour || target)")
    normalize_values: bool | None = Field(
        None,
        description="scale baseline and advantages to the size of returns (PopArt); None: if an action is continuous",
    )
    reward_clip: float | None = Field(
        None, ge=0, description="clip rewards to +-this in training; 0: never; None: by the observation space"
    )


class R2D2Config(_Model):
    """Recurrent replay Q-learning (Kapturowski et al., ICLR 2019)."""

    discount: float = Field(0.997, ge=0, le=1, description="gamma")
    n_step: Positive = Field(5, description="transitions that a return looks ahead")
    burn_in: int | None = Field(
        None, ge=0, description="steps before an unroll that only bring the core state up to date; None: by the space"
    )
    rescaling_epsilon: float = Field(1e-3, gt=0, description="epsilon of the value rescaling")
    target_update_period: Positive | None = Field(
        None, description="updates after which the target network is renewed; None: by the observation space"
    )
    priority_max_weight: float = Field(0.9, ge=0, le=1, description="eta: weight of the largest TD error in a priority")
    epsilon_base: float = Field(0.4, ge=0, le=1, description="largest exploration rate of an environment")
    epsilon_exponent: float = Field(7.0, ge=0, description="the smallest is epsilon_base ** (1 + this)")
    epsilon_levels: int = Field(64, ge=1, description="different rates, shared out among environments; a power of two")
    eval_epsilon: float = Field(1e-3, ge=0, le=1, description="exploration rate in evaluation")
    reward_clip: float = Field(0.0, ge=0, description="clip rewards to +-this in training; 0: never")

    @field_validator("epsilon_levels")
    @classmethod
    def _power_of_two(cls, value: int) -> int:
        if value & (value - 1):
            raise ValueError(f"expected a power of two, got {value}")
        return value


class ReplayConfig(_Model):
    """Prioritized replay of unrolls, for agents that learn from one."""

    capacity_unrolls: Positive = Field(100_000, description="most unrolls kept; fewer where max_bytes is reached first")
    max_bytes: Positive = Field(4 * GiB, description="most memory for them, bytes")
    min_unrolls: Positive | None = Field(
        None, description="unrolls before learning begins; None: by the observation space"
    )
    ratio: float | None = Field(
        None, gt=0, description="times that a transition is trained on, on average; None: by the observation space"
    )
    priority_exponent: float = Field(0.9, ge=0, description="an unroll is sampled in proportion to priority ** this")
    importance_exponent: float = Field(0.6, ge=0, description="exponent of the importance weights")
    save: bool = Field(False, description="checkpoints hold the replay too, and become as large as it is")


class LearnerConfig(_Model):
    """The learner process: inference and training."""

    listen: AddressText = Field("127.0.0.1:50052", description="where brokers connect")
    run_dir: Path = Field(Path("runs/default"), description="checkpoints, TensorBoard and resolved configuration")
    mode: Literal["train", "serve"] = Field(
        "train", description="train, or serve: answer EVAL sessions from the newest checkpoint"
    )
    resume: bool = Field(
        False, description="continue from the newest checkpoint of run_dir; an error when there is none"
    )
    resume_or_start: bool = Field(
        False, description="continue from the newest checkpoint of run_dir, if any; for services that are restarted"
    )
    checkpoint: Path | None = Field(None, description="start from this checkpoint; an error when it is not one")
    seed: int = Field(0, ge=0, description="seed of initial variables and action sampling")
    deterministic: bool = Field(
        False,
        description="one seed gives the same variables bit for bit: inference and training take turns; needs a single "
        "session, so one actor with actor.sessions=1",
    )
    total_env_steps: int = Field(0, ge=0, description="finish after this many environment steps; 0: never")
    agent: Literal["vtrace", "r2d2"] = Field("vtrace", description="algorithm")
    vtrace: VTraceConfig = VTraceConfig()
    r2d2: R2D2Config = R2D2Config()
    replay: ReplayConfig = ReplayConfig()
    network: NetworkConfig = NetworkConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    unroll_length: Positive | None = Field(
        None, description="T: transitions that an unroll is trained on; None: by agent and observation space"
    )
    batch_unrolls: Positive | None = Field(
        None, description="unrolls in a training batch; None: by agent and observation space"
    )
    queue_unrolls: Positive | None = Field(
        None, description="finished unrolls that may wait for training; None: by agent and observation space"
    )
    frame_stack: Positive | None = Field(
        None, description="successive observations stacked; None: as the environment advises"
    )
    max_envs: Positive = Field(4096, description="slots: environments of all sessions together")
    compute_dtype: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="dtype of matrix work; variables stay float32"
    )
    inference_credits: Positive = Field(2, description="inference requests a broker may have unanswered")
    max_batch_rows: Positive = Field(4096, description="most environments in one inference request")
    max_links: Positive = Field(64, description="most brokers connected at a time")
    max_message_bytes: Positive = Field(256 * MiB, description="largest message accepted, bytes")
    shared_memory: Literal["auto", "off"] = Field(
        "auto", description="auto: observations are read from shared memory where an actor on this host offers it"
    )
    checkpoint_every_s: Seconds = Field(300.0, description="period of checkpoints, seconds")
    keep_checkpoints: Positive = Field(3, description="newest checkpoints kept")
    log_every_s: Seconds = Field(5.0, description="period of metrics, seconds")
    tensorboard: bool = Field(True, description="write TensorBoard events under run_dir")
    drain_grace_s: Seconds = Field(10.0, description="time to finish in-flight work when stopping, seconds")
    metrics_listen: MetricsAddressText = Field("", description="host:port where Prometheus reads metrics; empty: off")


class Settings(BaseSettings):
    """The whole file: one section a service, of which each process uses its own, and `access` for all."""

    actor: ActorConfig = ActorConfig()
    broker: BrokerConfig = BrokerConfig()
    learner: LearnerConfig = LearnerConfig()
    access: AccessConfig = AccessConfig()

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_nested_delimiter=ENV_DELIMITER,
        extra="forbid",
        frozen=True,
        nested_model_default_partial_update=True,
    )


def load_settings(
    file: Path | None = None, overrides: Mapping[str, Any] | None = None, defaults: Mapping[str, Any] | None = None
) -> Settings:
    """Settings from `defaults`, a TOML file, the environment and `overrides`, strongest last.

    `defaults` and `overrides` are dotted key -> value.

    Raises:
      ConfigError: one line for each unknown key (with what is allowed) or bad value (with why).
    """
    if file is not None and not file.is_file():
        raise ConfigError(f"config file {file} does not exist")

    class Loaded(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            weakest = InitSettingsSource(settings_cls, _nest(defaults or {}))
            return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, file), weakest

    _check_environment_variables()
    try:
        loaded = Loaded(**_nest(overrides or {}))
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(detail) for detail in error.errors())) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"config file {file}: {error}") from error
    return Settings.model_construct(
        actor=loaded.actor, broker=loaded.broker, learner=loaded.learner, access=loaded.access
    )


def parse_assignments(assignments: Sequence[str]) -> dict[str, Any]:
    """`["learner.unroll_length=20"]` -> `{"learner.unroll_length": 20}`; a value is a TOML value or else a string."""
    parsed: dict[str, Any] = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set: expected section.key=value, got {text!r}")
        try:
            parsed[key.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            parsed[key.strip()] = value.strip()
    return parsed


def write_settings(settings: Settings, file: Path) -> None:
    """Writes the resolved settings as TOML; values that are None are left out (TOML has no null). Raises OSError."""
    values = settings.model_dump(mode="json", exclude_none=True)
    write_whole(file, tomli_w.dumps(values))


def _nest(overrides: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for dotted, value in overrides.items():
        *parents, leaf = dotted.split(".")
        node = nested
        for parent in parents:
            node = node.setdefault(parent, {})
            if not isinstance(node, dict):
                raise ConfigError(f"{dotted}: {parent} has been given a value of its own")
        node[leaf] = value
    return nested


def _check_environment_variables() -> None:
    for name in os.environ:
        if not name.startswith(ENV_PREFIX) or ENV_DELIMITER not in name:
            continue
        keys = [key.lower() for key in name.removeprefix(ENV_PREFIX).split(ENV_DELIMITER)]
        fields = _fields(keys[:-1])
        if keys[-1] not in fields:
            raise ConfigError(f"environment variable {name}: {_unknown('.'.join(keys), fields)}")


def _fields(path: Sequence[str | int]) -> list[str]:
    """Keys allowed under a section; empty where there is no such section."""
    model: Any = Settings
    for key in path:
        field = getattr(model, "model_fields", {}).get(str(key))
        if field is None:
            return []
        model = field.annotation
    return list(getattr(model, "model_fields", {}))


def _explain(detail: Any) -> str:
    location = [str(part) for part in detail["loc"]]
    if detail["type"] == "extra_forbidden":
        return _unknown(".".join(location), _fields(location[:-1]))
    if detail["type"] == "value_error":
        return f"{'.'.join(location)}: {detail['msg'].removeprefix('Value error, ')}"
    return f"{'.'.join(location)}: {detail['msg'][0].lower()}{detail['msg'][1:]}, got {detail['input']!r}"


def _unknown(key: str, allowed: Sequence[str]) -> str:
    close = difflib.get_close_matches(key.rsplit(".", 1)[-1], allowed, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    return f"{key}: unknown key{hint}; allowed here: {', '.join(allowed) or 'nothing'}"
