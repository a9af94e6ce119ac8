from seedrl_proto.v1 import inference_pb2 as _inference_pb2
from seedrl_proto.v1 import spec_pb2 as _spec_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OpaqueServerMessage(_message.Message):
    __slots__ = ("welcome", "actions", "drain", "waiting")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    welcome: _inference_pb2.Welcome
    actions: bytes
    drain: _inference_pb2.Drain
    waiting: _inference_pb2.Waiting
    def __init__(self, welcome: _Optional[_Union[_inference_pb2.Welcome, _Mapping]] = ..., actions: _Optional[bytes] = ..., drain: _Optional[_Union[_inference_pb2.Drain, _Mapping]] = ..., waiting: _Optional[_Union[_inference_pb2.Waiting, _Mapping]] = ...) -> None: ...

class BatchRequest(_message.Message):
    __slots__ = ("batch_id", "requests", "queue_wait_ms")
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    batch_id: int
    requests: _containers.RepeatedCompositeFieldContainer[SessionRequest]
    queue_wait_ms: float
    def __init__(self, batch_id: _Optional[int] = ..., requests: _Optional[_Iterable[_Union[SessionRequest, _Mapping]]] = ..., queue_wait_ms: _Optional[float] = ...) -> None: ...

class SessionRequest(_message.Message):
    __slots__ = ("session", "open", "tick", "close")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    TICK_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    session: int
    open: _inference_pb2.Hello
    tick: bytes
    close: _inference_pb2.Goodbye
    def __init__(self, session: _Optional[int] = ..., open: _Optional[_Union[_inference_pb2.Hello, _Mapping]] = ..., tick: _Optional[bytes] = ..., close: _Optional[_Union[_inference_pb2.Goodbye, _Mapping]] = ...) -> None: ...

class BatchReply(_message.Message):
    __slots__ = ("link_welcome", "replies", "drain")
    LINK_WELCOME_FIELD_NUMBER: _ClassVar[int]
    REPLIES_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    link_welcome: LinkWelcome
    replies: Replies
    drain: _inference_pb2.Drain
    def __init__(self, link_welcome: _Optional[_Union[LinkWelcome, _Mapping]] = ..., replies: _Optional[_Union[Replies, _Mapping]] = ..., drain: _Optional[_Union[_inference_pb2.Drain, _Mapping]] = ...) -> None: ...

class LinkWelcome(_message.Message):
    __slots__ = ("credits", "run_id", "max_batch_rows", "max_message_bytes")
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_ROWS_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    credits: int
    run_id: str
    max_batch_rows: int
    max_message_bytes: int
    def __init__(self, credits: _Optional[int] = ..., run_id: _Optional[str] = ..., max_batch_rows: _Optional[int] = ..., max_message_bytes: _Optional[int] = ...) -> None: ...

class Replies(_message.Message):
    __slots__ = ("batch_id", "replies", "returns_credit")
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    REPLIES_FIELD_NUMBER: _ClassVar[int]
    RETURNS_CREDIT_FIELD_NUMBER: _ClassVar[int]
    batch_id: int
    replies: _containers.RepeatedCompositeFieldContainer[SessionReply]
    returns_credit: bool
    def __init__(self, batch_id: _Optional[int] = ..., replies: _Optional[_Iterable[_Union[SessionReply, _Mapping]]] = ..., returns_credit: bool = ...) -> None: ...

class SessionReply(_message.Message):
    __slots__ = ("session", "welcome", "actions", "error")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    session: int
    welcome: _inference_pb2.Welcome
    actions: bytes
    error: SessionError
    def __init__(self, session: _Optional[int] = ..., welcome: _Optional[_Union[_inference_pb2.Welcome, _Mapping]] = ..., actions: _Optional[bytes] = ..., error: _Optional[_Union[SessionError, _Mapping]] = ...) -> None: ...

class SessionError(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("run_id", "state", "spec", "env_steps", "total_env_steps", "frames", "policy_version", "sessions", "num_envs", "episodes", "mean_return", "last_checkpoint", "bottleneck", "metrics")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    ENV_STEPS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_ENV_STEPS_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    NUM_ENVS_FIELD_NUMBER: _ClassVar[int]
    EPISODES_FIELD_NUMBER: _ClassVar[int]
    MEAN_RETURN_FIELD_NUMBER: _ClassVar[int]
    LAST_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    BOTTLENECK_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    state: str
    spec: _spec_pb2.EnvironmentSpec
    env_steps: int
    total_env_steps: int
    frames: int
    policy_version: int
    sessions: int
    num_envs: int
    episodes: int
    mean_return: float
    last_checkpoint: str
    bottleneck: str
    metrics: _containers.ScalarMap[str, float]
    def __init__(self, run_id: _Optional[str] = ..., state: _Optional[str] = ..., spec: _Optional[_Union[_spec_pb2.EnvironmentSpec, _Mapping]] = ..., env_steps: _Optional[int] = ..., total_env_steps: _Optional[int] = ..., frames: _Optional[int] = ..., policy_version: _Optional[int] = ..., sessions: _Optional[int] = ..., num_envs: _Optional[int] = ..., episodes: _Optional[int] = ..., mean_return: _Optional[float] = ..., last_checkpoint: _Optional[str] = ..., bottleneck: _Optional[str] = ..., metrics: _Optional[_Mapping[str, float]] = ...) -> None: ...

class CheckpointRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CheckpointReply(_message.Message):
    __slots__ = ("path",)
    PATH_FIELD_NUMBER: _ClassVar[int]
    path: str
    def __init__(self, path: _Optional[str] = ...) -> None: ...

class SetTrainingRequest(_message.Message):
    __slots__ = ("enabled",)
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    enabled: bool
    def __init__(self, enabled: bool = ...) -> None: ...

class SetTrainingReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ShutdownRequest(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class ShutdownReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
