"""One client's session as the broker sees it: what it waits for, and what is to be written to it. Knows no gRPC."""

from __future__ import annotations

import asyncio

from seedrl_core.errors import BadRequest, SeedrlError
from seedrl_core.wire import Buffer
from seedrl_proto.v1 import inference_pb2 as inference
from seedrl_proto.v1.learner_pb2 import OpaqueServerMessage

# An answer, a Waiting, a Drain and the end: no more can be there at a time.
_OUTBOX_MESSAGES = 4


class Session:
    """State of a session, from its Hello to the end of its stream.

    Back-pressure: a client has at most one unanswered message, which is all that is ever stored for it. It counts as
    unanswered until the answer is taken to be written, so a client that sends without reading is refused, not buffered.

    Attributes:
      number: the broker's own, never used twice.
      hello: the client's first message.
      host: the client's; empty where it is this one.
      tick: the serialized tick that the learner has not answered; kept to be sent again over a new link.
      greeted: the client has its Welcome; a later one, of a new link, is not for it.
      drained: the client was asked to leave.
      asked_at: when the unanswered message came, in the service's clock; None while the client owes the next message.
    """

    def __init__(self, number: int, hello: inference.Hello, host: str, now: float) -> None:
        """A session that has just said `hello`, and is owed a Welcome."""
        self.number = number
        self.hello = hello
        self.host = host
        self.tick: Buffer | None = None
        self.greeted = False
        self.drained = False
        self.asked_at: float | None = now
        self._outbox: asyncio.Queue[OpaqueServerMessage | None] = asyncio.Queue(_OUTBOX_MESSAGES)
        self._error: SeedrlError | None = None
        self._ended = False

    @property
    def rows(self) -> int:
        """Environments, hence rows in a batch."""
        return self.hello.num_envs

    def ask(self, tick: Buffer, now: float) -> None:
        """Takes in a tick; BadRequest when the last message is unanswered."""
        if self.asked_at is not None:
            raise BadRequest("expected one unanswered message at a time: got a tick before the answer to the last one")
        self.tick = tick
        self.asked_at = now

    def answer(self, message: OpaqueServerMessage) -> None:
        """The Welcome or the Actions that the client waits for."""
        self.tick = None
        self._put(message)

    def tell_waiting(self, reason: str, waited_s: float) -> None:
        """A sign of life, unless the client has something to read already."""
        if self._outbox.empty():
            self._put(OpaqueServerMessage(waiting=inference.Waiting(reason=reason, waited_s=waited_s)))

    def drain(self, drain: inference.Drain) -> None:
        """Parts with the client in order; it is the client that leaves."""
        self.drained = True
        self._put(OpaqueServerMessage(drain=drain))
        self.end()

    def end(self, error: SeedrlError | None = None) -> None:
        """Ends the stream after what is already to be written; only the first call counts."""
        if not self._ended:
            self._error = error
            self._put(None)
            self._ended = True

    async def next_message(self) -> OpaqueServerMessage | None:
        """What is to be written next, None at the end of the session. Waits until there is something.

        Raises:
          SeedrlError: the session ended with it.
        """
        message = await self._outbox.get()
        if message is None:
            if self._error is not None:
                raise self._error
        elif message.WhichOneof("kind") != "waiting":
            self.asked_at = None
        return message

    def _put(self, message: OpaqueServerMessage | None) -> None:
        if not self._ended:
            self._outbox.put_nowait(message)
