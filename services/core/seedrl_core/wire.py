"""Byte strings inside serialized protobuf messages, read and written where they are.

The protobuf library copies a byte string when it parses it, when it hands it out, when it puts it into another message
and when it serializes that. So the large fields of ticks go through here, as views; everything else is the library's.
"""

from __future__ import annotations

from typing import Any

from seedrl_core.errors import BadRequest

# Anything that exports its bytes in C order: bytes, memoryview, a contiguous NumPy array.
Buffer = Any

_BYTES = 2
_MOST_VARINT_BITS = 70


def whole(message: bytes, number: int) -> memoryview | None:
    """The value of the bytes field `number` where the message consists of that field alone; None otherwise."""
    view = memoryview(message)
    if not message or message[0] != number << 3 | _BYTES:
        return None
    size, begin = _varint(view, 1)
    return view[begin:] if len(view) - begin == size else None


def cut(message: Buffer, number: int, most_fields: int) -> tuple[list[memoryview], bytes]:
    """The values of the bytes field `number`, and the message without them.

    Raises:
      BadRequest: it is no message, or has more fields than `most_fields`: two bytes are enough for one, and each costs
        a hundred times that.
    """
    view = memoryview(message)
    end, wanted = len(view), number << 3 | _BYTES
    values: list[memoryview] = []
    rest: list[memoryview] = []
    position = kept_from = num_fields = 0
    while position < end:
        num_fields += 1
        if num_fields > most_fields:
            raise BadRequest(f"expected a protobuf message of at most {most_fields} fields, got more")
        begin = position
        tag, position = _varint(view, position)
        kind = tag & 7
        if kind == _BYTES:
            size, value_from = _varint(view, position)
            position = value_from + size
        elif kind == 0:
            _, position = _varint(view, position)
        elif kind == 5:
            position += 4
        elif kind == 1:
            position += 8
        else:
            raise BadRequest(f"expected a protobuf message, got wire type {kind} at byte {begin}")
        if position > end:
            raise BadRequest(f"expected a protobuf message, got one that is cut off in the field at byte {begin}")
        if tag == wanted:
            values.append(view[value_from:position])
            rest.append(view[kept_from:begin])
            kept_from = position
    rest.append(view[kept_from:])
    return values, b"".join(rest)


def field(number: int, *parts: Buffer) -> list[Buffer]:
    """The bytes field `number` whose value is `parts` one after the other, as parts of a serialized message."""
    return [_encoded(number << 3 | _BYTES) + _encoded(sum(map(num_bytes, parts))), *parts]


def num_bytes(part: Buffer) -> int:
    """Size of a part."""
    return len(part) if isinstance(part, bytes) else memoryview(part).nbytes


def _varint(view: memoryview, position: int) -> tuple[int, int]:
    """The number at `position` and the position after it."""
    value = shift = 0
    try:
        while shift < _MOST_VARINT_BITS:
            byte = view[position]
            position += 1
            if byte < 0x80:
                return value | byte << shift, position
            value |= (byte & 0x7F) << shift
            shift += 7
    except IndexError:
        pass
    raise BadRequest(f"expected a protobuf message, got no number that ends at byte {position}")


def _encoded(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
