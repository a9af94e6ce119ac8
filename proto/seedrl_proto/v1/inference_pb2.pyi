from seedrl_proto.v1 import spec_pb2 as _spec_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROLE_UNSPECIFIED: _ClassVar[Role]
    ROLE_TRAIN: _ClassVar[Role]
    ROLE_EVAL: _ClassVar[Role]

class Flag(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FLAG_NONE: _ClassVar[Flag]
    FLAG_FIRST: _ClassVar[Flag]
    FLAG_TERMINATED: _ClassVar[Flag]
    FLAG_TRUNCATED: _ClassVar[Flag]
    FLAG_RESTARTED: _ClassVar[Flag]
ROLE_UNSPECIFIED: Role
ROLE_TRAIN: Role
ROLE_EVAL: Role
FLAG_NONE: Flag
FLAG_FIRST: Flag
FLAG_TERMINATED: Flag
FLAG_TRUNCATED: Flag
FLAG_RESTARTED: Flag

class ClientMessage(_message.Message):
    __slots__ = ("hello", "tick", "goodbye")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    TICK_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    tick: Tick
    goodbye: Goodbye
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., tick: _Optional[_Union[Tick, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ...) -> None: ...

class ServerMessage(_message.Message):
    __slots__ = ("welcome", "actions", "drain", "waiting")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    actions: Actions
    drain: Drain
    waiting: Waiting
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., actions: _Optional[_Union[Actions, _Mapping]] = ..., drain: _Optional[_Union[Drain, _Mapping]] = ..., waiting: _Optional[_Union[Waiting, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol_version", "session_id", "actor_id", "role", "num_envs", "spec", "shared_memory", "explain")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    ACTOR_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    NUM_ENVS_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    SHARED_MEMORY_FIELD_NUMBER: _ClassVar[int]
    EXPLAIN_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    session_id: bytes
    actor_id: str
    role: Role
    num_envs: int
    spec: _spec_pb2.EnvironmentSpec
    shared_memory: SharedMemory
    explain: bool
    def __init__(self, protocol_version: _Optional[int] = ..., session_id: _Optional[bytes] = ..., actor_id: _Optional[str] = ..., role: _Optional[_Union[Role, str]] = ..., num_envs: _Optional[int] = ..., spec: _Optional[_Union[_spec_pb2.EnvironmentSpec, _Mapping]] = ..., shared_memory: _Optional[_Union[SharedMemory, _Mapping]] = ..., explain: bool = ...) -> None: ...

class SharedMemory(_message.Message):
    __slots__ = ("pid", "fd", "num_bytes")
    PID_FIELD_NUMBER: _ClassVar[int]
    FD_FIELD_NUMBER: _ClassVar[int]
    NUM_BYTES_FIELD_NUMBER: _ClassVar[int]
    pid: int
    fd: int
    num_bytes: int
    def __init__(self, pid: _Optional[int] = ..., fd: _Optional[int] = ..., num_bytes: _Optional[int] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("run_id", "policy_version", "shared_memory")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    SHARED_MEMORY_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    policy_version: int
    shared_memory: bool
    def __init__(self, run_id: _Optional[str] = ..., policy_version: _Optional[int] = ..., shared_memory: bool = ...) -> None: ...

class Tick(_message.Message):
    __slots__ = ("sequence", "observation", "reward", "flags", "episodes", "env_ms", "shared")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    EPISODES_FIELD_NUMBER: _ClassVar[int]
    ENV_MS_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    observation: _containers.RepeatedScalarFieldContainer[bytes]
    reward: bytes
    flags: bytes
    episodes: _containers.RepeatedCompositeFieldContainer[Episode]
    env_ms: float
    shared: SharedObservation
    def __init__(self, sequence: _Optional[int] = ..., observation: _Optional[_Iterable[bytes]] = ..., reward: _Optional[bytes] = ..., flags: _Optional[bytes] = ..., episodes: _Optional[_Iterable[_Union[Episode, _Mapping]]] = ..., env_ms: _Optional[float] = ..., shared: _Optional[_Union[SharedObservation, _Mapping]] = ...) -> None: ...

class SharedObservation(_message.Message):
    __slots__ = ("offset", "generation")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    offset: _containers.RepeatedScalarFieldContainer[int]
    generation: int
    def __init__(self, offset: _Optional[_Iterable[int]] = ..., generation: _Optional[int] = ...) -> None: ...

class Episode(_message.Message):
    __slots__ = ("env", "episode_return", "length", "info")
    ENV_FIELD_NUMBER: _ClassVar[int]
    EPISODE_RETURN_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    INFO_FIELD_NUMBER: _ClassVar[int]
    env: int
    episode_return: float
    length: int
    info: bytes
    def __init__(self, env: _Optional[int] = ..., episode_return: _Optional[float] = ..., length: _Optional[int] = ..., info: _Optional[bytes] = ...) -> None: ...

class Actions(_message.Message):
    __slots__ = ("sequence", "action", "policy_version", "explanation")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    action: _containers.RepeatedScalarFieldContainer[bytes]
    policy_version: int
    explanation: Explanation
    def __init__(self, sequence: _Optional[int] = ..., action: _Optional[_Iterable[bytes]] = ..., policy_version: _Optional[int] = ..., explanation: _Optional[_Union[Explanation, _Mapping]] = ...) -> None: ...

class Explanation(_message.Message):
    __slots__ = ("value", "preference")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    PREFERENCE_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    preference: bytes
    def __init__(self, value: _Optional[bytes] = ..., preference: _Optional[bytes] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Drain(_message.Message):
    __slots__ = ("code", "reason")
    class Code(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CODE_UNSPECIFIED: _ClassVar[Drain.Code]
        FINISHED: _ClassVar[Drain.Code]
        RESTARTING: _ClassVar[Drain.Code]
    CODE_UNSPECIFIED: Drain.Code
    FINISHED: Drain.Code
    RESTARTING: Drain.Code
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    code: Drain.Code
    reason: str
    def __init__(self, code: _Optional[_Union[Drain.Code, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class Waiting(_message.Message):
    __slots__ = ("reason", "waited_s")
    REASON_FIELD_NUMBER: _ClassVar[int]
    WAITED_S_FIELD_NUMBER: _ClassVar[int]
    reason: str
    waited_s: float
    def __init__(self, reason: _Optional[str] = ..., waited_s: _Optional[float] = ...) -> None: ...

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeReply(_message.Message):
    __slots__ = ("protocol_version", "spec", "learner_ready", "sessions", "num_envs", "max_message_bytes", "metrics")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    LEARNER_READY_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    NUM_ENVS_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    spec: _spec_pb2.EnvironmentSpec
    learner_ready: bool
    sessions: int
    num_envs: int
    max_message_bytes: int
    metrics: _containers.ScalarMap[str, float]
    def __init__(self, protocol_version: _Optional[int] = ..., spec: _Optional[_Union[_spec_pb2.EnvironmentSpec, _Mapping]] = ..., learner_ready: bool = ..., sessions: _Optional[int] = ..., num_envs: _Optional[int] = ..., max_message_bytes: _Optional[int] = ..., metrics: _Optional[_Mapping[str, float]] = ...) -> None: ...
