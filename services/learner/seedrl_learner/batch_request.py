"""A broker's request as the learner takes it in: the ticks stay where they arrived, everything else is decoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from google.protobuf.message import DecodeError

from seedrl_core import codec, wire
from seedrl_core.errors import BadRequest
from seedrl_proto.v1 import learner_pb2 as learner

# Sessions have one environment at least. What else stands in a request or beside a session's is a number or two.
_MOST_REQUESTS = 1 << 16
_MOST_FIELDS = 64


class SerializedTick(NamedTuple):
    """The broker's number for a session, and a Tick of it."""

    session: int
    tick: memoryview


@dataclass(frozen=True)
class BatchRequest:
    """`BatchRequest` of the proto, with its requests in two parts.

    Attributes:
      batch_id, queue_wait_ms: as there.
      others: requests to open and to close sessions.
      ticks: the requests with ticks.
    """

    batch_id: int
    queue_wait_ms: float
    others: list[learner.SessionRequest]
    ticks: list[SerializedTick]

    @classmethod
    def parse(cls, serialized: bytes) -> BatchRequest:
        """The request in a message of the link; BadRequest when there is none in it."""
        items, rest = wire.cut(serialized, learner.BatchRequest.REQUESTS_FIELD_NUMBER, _MOST_REQUESTS)
        others, ticks = [], []
        try:
            head = learner.BatchRequest.FromString(rest)
            for item in items:
                values, rest = wire.cut(item, learner.SessionRequest.TICK_FIELD_NUMBER, _MOST_FIELDS)
                if len(rest) > codec.MAX_HELLO_BYTES + _MOST_FIELDS:
                    raise BadRequest(f"open: expected at most {codec.MAX_HELLO_BYTES} bytes, got {len(rest)}")
                request = learner.SessionRequest.FromString(rest)
                if values:
                    ticks.append(SerializedTick(request.session, values[-1]))
                else:
                    others.append(request)
        except DecodeError as error:
            raise BadRequest(f"expected a BatchRequest, got {len(serialized)} bytes that are none") from error
        return cls(head.batch_id, head.queue_wait_ms, others, ticks)
