"""A session: the same N environments on one stream at a time, which is opened anew whenever it breaks."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Literal, Self

from seedrl_client.connection import Connection
from seedrl_client.patience import GaveUp, Patience
from seedrl_client.validation import check_flags, check_observation, check_reward
from seedrl_core import codec, logs, wire
from seedrl_core.access import NO_CREDENTIALS, AccessConfig
from seedrl_core.address import Address
from seedrl_core.codec import Episode, Explanation, TickArrays
from seedrl_core.errors import BadRequest, InternalError, Overloaded, PeerLost, RunFinished, SeedrlError
from seedrl_core.shared_memory import SESSION_ID_BYTES, OwnRegion
from seedrl_core.spec import Array, EnvironmentSpec
from seedrl_proto.v1 import inference_pb2 as inference

# The broker sends a sign of life every 3 s while an answer is outstanding.
SILENCE_S = 15.0
# Begin of Waiting.reason when the broker itself is fine, but its learner is away.
LEARNER_AWAY = "learner is not there"
# Of several brokers, one that has had no learner when asked this long ago is left.
_LEARNER_AWAY_S = 10.0
_PARTING_S = 2.0
_ROLES = {"train": inference.ROLE_TRAIN, "eval": inference.ROLE_EVAL}
_log = logs.get(__name__)


class Session:
    """Exchanges observations for actions, one tick at a time. Use it as an async context manager, from one task.

    A lost connection is opened again, to the next broker where there are several, and the unanswered tick is sent again
    with its number, so that `tick` only takes longer.

    Attributes:
      run_id: the learner's run.
      policy_version: training updates behind the policy that answered last.
      explanation: what the agent made of the last tick; None unless the session asked for it.
    """

    def __init__(
        self,
        address: str,
        spec: EnvironmentSpec,
        num_envs: int,
        *,
        role: Literal["train", "eval"] = "train",
        actor_id: str = "",
        peer_timeout_s: float = 300.0,
        silence_s: float = SILENCE_S,
        shared_memory: Literal["auto", "off"] = "auto",
        explain: bool = False,
        access: AccessConfig = NO_CREDENTIALS,
    ) -> None:
        """Nothing is sent before `open`.

        Args:
          address: of the broker, `host:port` or `unix:PATH`; several with commas between them, tried in this order.
          spec: what the environments emit and accept.
          num_envs: environments of this session, N.
          role: train, or eval: greedy actions, nothing is trained on.
          actor_id: name in the logs and metrics of the servers.
          peer_timeout_s: give up when broker or learner are away this long.
          silence_s: a connection on which nothing comes for this long while an answer is due counts as dead.
          shared_memory: auto: observations go through memory that is shared with the learner, if it is on this host.
          explain: ask for explanations, in the role eval.
          access: certificates and the actor's token; `load_settings().access` has those of the environment.
        """
        if not 1 <= num_envs <= codec.MAX_NUM_ENVS:
            raise BadRequest(f"num_envs: expected 1..{codec.MAX_NUM_ENVS}, got {num_envs}")
        self.spec = spec
        self.num_envs = num_envs
        self.run_id = ""
        self.policy_version = 0
        self.explanation: Explanation | None = None
        self._addresses = Address.parse_all(address)
        self._turn = 0  # of the addresses
        self._access = access
        self._peer_timeout_s = peer_timeout_s
        self._silence_s = silence_s
        self._offers_memory = shared_memory == "auto"
        self._hello = inference.Hello(
            protocol_version=codec.PROTOCOL_VERSION,
            session_id=os.urandom(SESSION_ID_BYTES),
            actor_id=actor_id,
            role=_ROLES[role],
            num_envs=num_envs,
            spec=codec.spec_to_proto(spec),
            explain=explain,
        )
        self._rng = random.Random(self._hello.session_id)
        self._connection: Connection | None = None
        self._region: OwnRegion | None = None  # that the learner of this connection has mapped
        self._sequence = 0
        self._flags: Array | None = None
        self._unanswered = False
        self._log = _log.bind(**logs.session_keys(actor_id, self._hello.session_id))

    async def __aenter__(self) -> Self:
        """Opens the session."""
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Parts from the broker."""
        await self.aclose("done" if error is None else f"{type(error).__name__}: {error}")

    async def open(self) -> None:
        """Waits until the learner has taken the session.

        Raises:
          BadRequest, SpecMismatch: the learner refuses it.
          AccessDenied: the broker refuses the token, or its certificate is not trusted.
          PeerLost: broker or learner were away, or full, for `peer_timeout_s`.
          RunFinished: training is complete.
        """
        await self._until_answered(None)

    async def tick(
        self,
        observation: Array | Sequence[Array],
        reward: Array,
        flags: Array,
        episodes: Sequence[Episode] = (),
        env_ms: float = 0.0,
    ) -> tuple[Array, ...]:
        """Sends step t of all environments and returns their actions.

        Waits as long as the learner is busy: that is how it slows environments down. After a cancellation in here the
        session can only be closed.

        Args:
          observation: obs_t, an array [N, *shape] a leaf, in the spec's order; or the array of the only leaf.
          reward: [N], raw, earned by action t-1.
          flags: [N] uint8, bitwise or of codec.FIRST, TERMINATED, TRUNCATED, RESTARTED.
          episodes: that ended with this tick, for the metrics.
          env_ms: milliseconds that the environments took, for the metrics.

        Returns:
          a_t, a writable array [N, *shape] a leaf, in the spec's order and dtypes.

        Raises:
          BadRequest: an argument breaks the spec or the order of flags, or the learner refuses the tick.
          AccessDenied: after a reconnect, as for `open`.
          PeerLost: broker or learner were away for `peer_timeout_s`.
          RunFinished: training is complete.
        """
        if self._unanswered:
            raise BadRequest("tick: the session is over, because its last tick was cancelled or failed")
        arrays = TickArrays(
            sequence=self._sequence,
            observation=check_observation(observation, self.spec, self.num_envs),
            reward=check_reward(reward, self.num_envs),
            flags=check_flags(flags, self._flags, self.num_envs),
            episodes=tuple(episodes),
            env_ms=env_ms,
        )
        self._unanswered = True
        reply = await self._until_answered(arrays)
        assert reply is not None
        if reply.sequence != self._sequence:
            raise InternalError(f"actions: expected sequence {self._sequence}, got {reply.sequence}")
        actions = codec.decode_leaves(reply.action, self.spec.action, self.num_envs)
        self._unanswered = False
        self._sequence += 1
        self._flags = arrays.flags.copy()
        self.policy_version = reply.policy_version
        if reply.HasField("explanation"):
            self.explanation = codec.decode_explanation(reply.explanation, self.num_envs)
        return tuple(leaf.copy() for leaf in actions)

    async def aclose(self, reason: str = "done") -> None:
        """Says Goodbye, waits shortly for the server to end the stream, closes the connection. May be called twice."""
        connection = self._connection
        if connection is None:
            return
        goodbye = inference.ClientMessage(goodbye=inference.Goodbye(reason=reason[:500]))
        try:
            # However the server takes it, or if it is gone already: the session is over.
            with suppress(SeedrlError, TimeoutError):
                await connection.part(goodbye.SerializeToString(), _PARTING_S)
        finally:
            self._drop()

    @property
    def _address(self) -> Address:
        return self._addresses[self._turn % len(self._addresses)]

    async def _until_answered(self, tick: TickArrays | None) -> inference.Actions | None:
        """Opens the stream where needed and sends the tick, if any, as often as connections break."""
        patience = Patience(self._peer_timeout_s, asyncio.get_running_loop().time, self._rng)
        while True:
            try:
                connection = self._connection or await self._reopen(patience)
                return None if tick is None else await self._exchange(connection, tick, patience)
            except GaveUp:
                raise
            except PeerLost as lost:
                self._log.info("connection_lost", reason=str(lost))
                reason = str(lost)
            except Overloaded as full:
                if self._connection is not None:
                    raise
                reason = str(full)
            self._drop()
            self._turn += 1
            patience.hear(reason)
            await patience.pause()

    async def _reopen(self, patience: Patience) -> Connection:
        """Connects, says Hello and waits for the Welcome."""
        connection = self._connection = await Connection.open(self._address, self._access, self._silence_s)
        try:
            region = self._region = self._offered_region()
            hello = inference.ClientMessage(hello=self._hello)
            if region is not None:
                offer = inference.SharedMemory(pid=os.getpid(), fd=region.fd, num_bytes=region.num_bytes)
                hello.hello.shared_memory.CopyFrom(offer)
            await connection.send(hello.SerializeToString(), self._silence_s)
            reply = await self._receive(connection, "welcome", self._on_waiting(patience))
        except BaseException:
            self._drop()
            raise
        if region is not None and not reply.welcome.shared_memory:
            self._region = None
            region.close()
        patience.renew()
        self.run_id = reply.welcome.run_id
        self.policy_version = reply.welcome.policy_version
        self._log.info(
            "session_opened",
            run=self.run_id,
            policy_version=self.policy_version,
            num_envs=self.num_envs,
            shared_memory=self._region is not None,
        )
        return connection

    def _offered_region(self) -> OwnRegion | None:
        """New memory to share; None where that is not wanted or the system has none."""
        if not self._offers_memory:
            return None
        try:
            return OwnRegion(self._hello.session_id, self.spec.observation, self.num_envs)
        except OSError as error:
            self._log.info("no_shared_memory", reason=str(error))
            return None

    async def _exchange(self, connection: Connection, tick: TickArrays, patience: Patience) -> inference.Actions:
        """Sends a tick and waits for its actions; a busy learner may take as long as it likes."""
        shared = self._region.write(tick.observation, tick.sequence) if self._region else None
        message = wire.field(inference.ClientMessage.TICK_FIELD_NUMBER, *codec.encode_tick(tick, shared))
        await connection.send(b"".join(message), self._silence_s)
        return (await self._receive(connection, "actions", self._on_waiting(patience))).actions

    def _on_waiting(self, patience: Patience) -> Callable[[inference.Waiting], None]:
        """What to do about a sign of life: a busy learner is waited for without limit, one that is away is not.

        Where there is another broker, one whose learner is away is left.
        """

        def on_waiting(waiting: inference.Waiting) -> None:
            if not waiting.reason.startswith(LEARNER_AWAY):
                return patience.bear(waiting.reason)
            if len(self._addresses) > 1 and waiting.waited_s >= _LEARNER_AWAY_S:
                raise PeerLost(f"{self._address}: {waiting.reason}")
            return patience.hear(waiting.reason)

        return on_waiting

    async def _receive(
        self, connection: Connection, wanted: str, on_waiting: Callable[[inference.Waiting], None]
    ) -> inference.ServerMessage:
        """The next message of the kind `wanted`; tells `on_waiting` what the broker waits for meanwhile."""
        while True:
            message = await connection.receive(self._silence_s)
            kind = message.WhichOneof("kind")
            if kind == wanted:
                return message
            if kind == "waiting":
                on_waiting(message.waiting)
            elif kind == "drain":
                raise _error_of(message.drain)
            else:
                raise InternalError(f"{self._address}: expected {wanted}, waiting or drain, got {kind}")

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._region is not None:
            self._region.close()
            self._region = None


def _error_of(drain: inference.Drain) -> RunFinished | PeerLost:
    if drain.code == inference.Drain.FINISHED:
        return RunFinished(drain.reason or "training is complete")
    return PeerLost(f"the server restarts: {drain.reason}")
