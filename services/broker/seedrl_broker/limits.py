"""What the broker accepts from clients: sizes that the learner's link can carry, and not too much of one host."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from seedrl_broker.session import Session
from seedrl_core.config import BrokerConfig
from seedrl_core.errors import BadRequest, Overloaded
from seedrl_core.wire import Buffer
from seedrl_proto.v1 import inference_pb2 as inference
from seedrl_proto.v1 import learner_pb2 as learner

# Most that a request to the learner adds around a tick or a Hello, bytes.
ENVELOPE_BYTES = 64
_UNKNOWN_BYTES = 1 << 62


@dataclass(frozen=True)
class Limits:
    """Sizes of a request to the learner.

    Attributes:
      max_rows: most environments in a batch, hence in a session.
      max_bytes: largest request; as good as unlimited while no learner is connected.
    """

    max_rows: int
    max_bytes: int = _UNKNOWN_BYTES

    def at(self, link: learner.LinkWelcome) -> Limits:
        """These limits and those of a link together."""
        return Limits(min(self.max_rows, link.max_batch_rows), min(self.max_bytes, link.max_message_bytes))

    def check_session(self, hello: inference.Hello, tick: Buffer | None = None) -> None:
        """BadRequest when a session, or the tick that it has outstanding, is too large."""
        if hello.num_envs > self.max_rows:
            raise BadRequest(f"num_envs: expected at most {self.max_rows} (max_batch_rows), got {hello.num_envs}")
        self._check_size("hello", hello.ByteSize())
        if tick is not None:
            self.check_tick(tick)

    def check_tick(self, tick: Buffer) -> None:
        """BadRequest when a serialized tick is too large."""
        self._check_size("tick", len(tick))

    def _check_size(self, name: str, num_bytes: int) -> None:
        allowed = self.max_bytes - ENVELOPE_BYTES
        if num_bytes > allowed:
            raise BadRequest(f"{name}: expected at most {allowed} bytes, got {num_bytes}")


def check_room(sessions: Collection[Session], new: Session, config: BrokerConfig) -> None:
    """Overloaded when there is no room beside `sessions` for a new one, or none for one more of its host."""
    if len(sessions) >= config.max_sessions:
        raise Overloaded(f"expected at most {config.max_sessions} sessions (max_sessions), got one more")
    if not new.host:
        return
    of_host = [session.rows for session in sessions if session.host == new.host]
    if len(of_host) >= config.max_sessions_per_host:
        raise Overloaded(
            f"expected at most {config.max_sessions_per_host} sessions of host {new.host} (max_sessions_per_host), "
            "got one more"
        )
    if (num_envs := sum(of_host) + new.rows) > config.max_envs_per_host:
        raise Overloaded(
            f"expected at most {config.max_envs_per_host} environments of host {new.host} (max_envs_per_host), "
            f"got {num_envs}"
        )
