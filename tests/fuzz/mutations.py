"""Wrong messages, made from right ones: bytes changed anywhere, fields given values that nobody expects, bombs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message import DecodeError, Message

from seedrl_core import wire

_UNSIGNED = (0, 1, 2, 127, 128, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)
_FLOATS = (0.0, -1.0, 1e308, -1e308, 5e-324, float("nan"), float("inf"), float("-inf"))
_TEXTS = ("", "x", "\0", "observation", "action", "é" * 300, "x" * 100_000)
_BYTES = (b"", b"\0", b"\xff" * 4, b"\x00\x00\xc0\x7f" * 2, b"\x91" * 4000, b"\xdf\xff\xff\xff\xff", bytes(1 << 16))
_MOST_COPIES = 20_000
MAX_MESSAGE_BYTES = 1 << 20


class Mutator:
    """Draws messages from a corpus of serialized ones of a type, and changes them."""

    def __init__(self, kind: type[Message], corpus: Sequence[bytes], rng: random.Random) -> None:
        """All that it does follows from `rng`."""
        self._kind = kind
        self._corpus = list(corpus)
        self._rng = rng
        self._ways: list[Callable[[bytes], bytes]] = [
            self._flip,
            self._cut,
            self._insert,
            self._splice,
            self._change_field,
            self._change_field,
            self._change_field,
            self._repeat_field,
        ]

    def next(self, in_order: bytes | None = None) -> bytes:
        """A message that is as recorded, changed in one way, or in several; half of the time made from `in_order`."""
        message = self._rng.choice(self._corpus)
        if in_order is not None and self._rng.random() < 0.5:
            message = in_order
        for _ in range(self._rng.choice((0, 1, 1, 1, 1, 2, 3))):
            message = self._rng.choice(self._ways)(message)
        return message[:MAX_MESSAGE_BYTES]

    # Of bytes.

    def _flip(self, message: bytes) -> bytes:
        changed = bytearray(message)
        for _ in range(self._rng.randint(1, 4)):
            if changed:
                changed[self._rng.randrange(len(changed))] = self._rng.randrange(256)
        return bytes(changed)

    def _cut(self, message: bytes) -> bytes:
        begin, end = sorted(self._rng.randint(0, len(message)) for _ in range(2))
        return self._rng.choice((message[:begin], message[begin:], message[:begin] + message[end:]))

    def _insert(self, message: bytes) -> bytes:
        at = self._rng.randint(0, len(message))
        number = wire.field(self._rng.randint(1, 20), b"")[0][:-1] + wire._encoded(self._rng.choice(_UNSIGNED))
        return message[:at] + self._rng.choice((number, self._rng.randbytes(self._rng.randint(1, 16)))) + message[at:]

    def _splice(self, message: bytes) -> bytes:
        other = self._rng.choice(self._corpus)
        return message[: self._rng.randint(0, len(message))] + other[self._rng.randint(0, len(other)) :]

    def _repeat_field(self, message: bytes) -> bytes:
        """A field of next to no bytes, again and again."""
        tag = self._rng.randint(1, 7) << 3 | self._rng.choice((0, 2))
        return message + bytes((tag, 0)) * self._rng.choice((2, 100, _MOST_COPIES))

    # Of fields.

    def _change_field(self, message: bytes) -> bytes:
        try:
            parsed = self._kind.FromString(message)
        except DecodeError:
            return self._flip(message)
        places = list(_places(parsed))
        owner, field = self._rng.choice(places)
        if field.is_repeated:
            self._change_list(getattr(owner, field.name), field)
        elif field.message_type is not None:
            self._toggle(owner, field)
        else:
            setattr(owner, field.name, self._value(field))
        return parsed.SerializeToString()

    def _change_list(self, values: Any, field: Field) -> None:
        if field.message_type is not None:
            for _ in range(self._rng.choice((1, 2, 300))):
                copy = self._rng.choice(values) if values and self._rng.random() < 0.5 else None
                added = values.add()
                if copy is not None:
                    added.CopyFrom(copy)
        elif self._rng.random() < 0.3 and len(values):
            del values[self._rng.randrange(len(values)) :]
        elif self._rng.random() < 0.5 and len(values):
            values[self._rng.randrange(len(values))] = self._value(field)
        else:
            value = self._value(field)
            copies = self._rng.choice((1, 2, 9, 1000))
            values.extend([value] * (copies if not isinstance(value, bytes | str) or len(value) < 1000 else 2))

    def _toggle(self, owner: Message, field: Field) -> None:
        if owner.HasField(field.name):
            owner.ClearField(field.name)
        else:
            getattr(owner, field.name).SetInParent()

    def _value(self, field: Field) -> Any:
        match field.cpp_type:
            case Field.CPPTYPE_FLOAT | Field.CPPTYPE_DOUBLE:
                return self._rng.choice(_FLOATS)
            case Field.CPPTYPE_STRING:
                return self._rng.choice(_TEXTS if field.type == Field.TYPE_STRING else _BYTES)
            case Field.CPPTYPE_BOOL:
                return self._rng.random() < 0.5
            case Field.CPPTYPE_UINT64:
                return self._rng.choice(_UNSIGNED)
            case Field.CPPTYPE_UINT32:
                return self._rng.choice(_UNSIGNED) % 2**32
            case Field.CPPTYPE_ENUM:
                return self._rng.choice((0, 1, 2, 3, 99, 2**31 - 1, -1))
        raise NotImplementedError(f"a field of type {field.cpp_type}")


def _places(message: Message) -> Iterator[tuple[Message, Field]]:
    """All fields that the message or one inside it could have, each with its owner."""
    for field in message.DESCRIPTOR.fields:
        yield message, field
        if field.message_type is None:
            continue
        if field.is_repeated:
            inner = list(getattr(message, field.name))[:20]
        else:
            inner = [getattr(message, field.name)] if message.HasField(field.name) else []
        for each in inner:
            yield from _places(each)
