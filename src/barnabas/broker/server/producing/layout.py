"""Finds the batches in the bytes of a Produce request of the usual shape, and encodes the response.

A request of the usual shape has one topic, no transaction, acks 1 or all, and no tagged fields. The usual
handler executes all other requests, after `barnabas.kafka.protocol` has decoded them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from barnabas.base.types import TopicKey
from barnabas.broker.server.requests.api import DIRECT_ELEMENTS
from barnabas.kafka.protocol.messages.produce import ProduceRequest
from barnabas.kafka.protocol.wire import Readable, read_uvarint
from barnabas.kafka.records.batch import COMPRESSION_MASK, HEADER_SIZE

if TYPE_CHECKING:
    from barnabas.broker.storage import AppendInfo

#: the versions whose layouts are known here
FIRST_VERSION, LAST_VERSION = 5, 13
_ZSTD_SINCE = 7
_ERRORS_SINCE = 8
_TOPIC_IDS_SINCE = 13
_ID_BYTES = 16
_ACKS = (1, -1)
#: largest opening that is remembered for a connection, in bytes
_MAX_OPENING = 1024

_VERSION = struct.Struct(">2xh4xh")
_SETTINGS = struct.Struct(">hi")
_unpack_count = struct.Struct(">i").unpack_from
_NAME_LENGTH = struct.Struct(">h")
_unpack_place = struct.Struct(">ii").unpack_from
#: index, and two bytes of the varint with the size
_unpack_flexible_place = struct.Struct(">iBB").unpack_from
#: index, no error, base offset, log append time, log start offset
_pack_result = struct.Struct(">ixxqqq").pack
_NO_THROTTLE = bytes(4)


#: a batch in a frame: (partition index, position of its first byte, position after its last byte)
BatchRange: TypeAlias = tuple[int, int, int]


class Layout:
    """Layout of Produce requests and responses in versions 5 to 8.

    Lengths have a fixed size, and there are no tagged fields.
    """

    #: the bytes before the number of topics in an answer, after the correlation id
    reply_start = b""

    def __init__(self, version: int) -> None:
        #: the bits of a batch's attributes that need no check of the request
        self.flags = COMPRESSION_MASK if version >= _ZSTD_SINCE else 0
        #: the bytes between two results: no record errors, and no error message
        self.result_end = b"\0\0\0\0\xff\xff" if version >= _ERRORS_SINCE else b""
        #: the bytes after the last result's fields
        self.reply_end = self.result_end + _NO_THROTTLE

    def settings_at(self, frame: Readable, position: int) -> int | None:
        """Return the position of the field acks; None if the request is transactional or has header tags.

        Args:
            frame: bytes of the request.
            position: position after the client id.
        """
        return position + 2 if frame[position : position + 2] == b"\xff\xff" else None

    def topic_at(self, frame: Readable, position: int) -> tuple[TopicKey, int] | None:
        """Return the only topic and the position after it; None if the request has no or several topics.

        Args:
            frame: bytes of the request.
            position: position of the number of topics.
        """
        if frame[position : position + 4] != b"\0\0\0\1":
            return None
        (length,) = _NAME_LENGTH.unpack_from(frame, position + 4)
        position += 6
        if length <= 0:
            return None
        return bytes(frame[position : position + length]).decode("utf-8", "replace"), position + length

    def batches(self, frame: Readable, position: int) -> list[BatchRange] | None:
        """Return (partition index, start, end) of each batch in `frame`, in the order of the request.

        Start and end are byte positions in `frame`. Return None if there is no batch, or if there are
        `DIRECT_ELEMENTS` or more. Also return None in these cases:

        - A batch is shorter than a batch header.
        - The topic or a partition has tagged fields.
        - The frame does not end after the last batch.

        Args:
            frame: bytes of the request.
            position: byte position, in `frame`, of the field with the number of partitions.

        Raises:
            struct.error, IndexError: the frame is too short.
        """
        (count,) = _unpack_count(frame, position)
        if not 0 < count < DIRECT_ELEMENTS:
            return None
        position += 4
        found = []
        for _ in range(count):
            index, size = _unpack_place(frame, position)
            if size < HEADER_SIZE:
                return None
            position += 8
            found.append((index, position, position + size))
            position += size
        return found if position == len(frame) else None

    def number(self, count: int) -> bytes:
        """Return the encoded length of an array with `count` items, for a response."""
        return count.to_bytes(4)


class FlexibleLayout(Layout):
    """Layout of Produce requests and responses in versions 9 to 13 (KIP-482).

    A length is a varint of the length plus one, and each struct ends with tagged fields.
    """

    reply_start = b"\0"

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self.result_end = b"\1\0\0"
        self.reply_end = self.result_end + b"\0" + _NO_THROTTLE + b"\0"
        self._has_ids = version >= _TOPIC_IDS_SINCE

    def settings_at(self, frame: Readable, position: int) -> int | None:
        return position + 2 if frame[position : position + 2] == b"\0\0" else None

    def topic_at(self, frame: Readable, position: int) -> tuple[TopicKey, int] | None:
        if frame[position] != 2:
            return None
        position += 1
        if self._has_ids:
            return bytes(frame[position : position + _ID_BYTES]), position + _ID_BYTES
        length = frame[position]
        position += 1
        if not 1 < length < 128:
            return None
        stop = position + length - 1
        return bytes(frame[position:stop]).decode("utf-8", "replace"), stop

    def batches(self, frame: Readable, position: int) -> list[BatchRange] | None:
        count, position = read_uvarint(frame, position)
        if not 1 < count <= DIRECT_ELEMENTS:
            return None
        found = []
        for _ in range(count - 1):
            index, low, high = _unpack_flexible_place(frame, position)
            if high < 128 <= low:  # a size of two bytes, as of most batches: without a call
                size = (high << 7) + low - 128
                position += 6
            else:
                size, position = read_uvarint(frame, position + 4)
            if size <= HEADER_SIZE:
                return None
            stop = position + size - 1
            if frame[stop]:
                return None
            found.append((index, position, stop))
            position = stop + 1
        return found if frame[position:] == b"\0\0" else None

    def number(self, count: int) -> bytes:
        count += 1
        return bytes((count,)) if count < 128 else bytes((count & 127 | 128, count >> 7))


LAYOUTS: dict[int, Layout] = {
    version: (FlexibleLayout if version >= ProduceRequest.flexible_from else Layout)(version)
    for version in range(FIRST_VERSION, LAST_VERSION + 1)
}


class Opening:
    """The parsed first part of a Produce request: the bytes before its partitions, but no correlation id.

    Most requests of a connection have the same first part. So the broker parses it only once, and keeps this
    object for the connection (`ConnectionCache`).
    """

    __slots__ = (
        "_bytes",
        "_of_one",
        "_reply",
        "_version",
        "acks",
        "at_once",
        "end",
        "layout",
        "name",
        "timeout_ms",
        "topic",
    )

    def __init__(
        self,
        frame: Readable,
        layout: Layout,
        settings: tuple[int, int],
        topic: TopicKey,
        topic_at: int,
        end: int,
    ) -> None:
        self.layout = layout
        self.acks, self.timeout_ms = settings
        self.topic = topic
        #: the topic's name; the request may have only the id
        self.name = ""
        #: position of the number of partitions
        self.end = end
        self._version = bytes(frame[:4])
        self._bytes = bytes(frame[8:end])
        self._reply = layout.reply_start + bytes(frame[topic_at:end])
        self._of_one = self._reply + layout.number(1)

    def close(self) -> None:
        """Do nothing: an opening holds no resources."""

    def opens(self, frame: Readable) -> bool:
        """Whether the request in `frame` has this opening."""
        return frame.startswith(self._bytes, 8) and frame.startswith(self._version)

    def reply(self, frame: Readable, batches: Sequence[BatchRange], appended: Sequence[AppendInfo]) -> bytes:
        """Return the encoded response to the request in `frame`, with its size in front.

        Args:
            frame: bytes of the request, which has this opening.
            batches: (partition index, start, end) of each batch in `frame`.
            appended: result of the append of each batch, in the order of `batches`.
        """
        layout = self.layout
        count = len(batches)
        opening = self._of_one if count == 1 else self._reply + layout.number(count)
        # By index: to unpack a named tuple takes three times as long.
        results = layout.result_end.join(
            [
                _pack_result(batch[0], info[0], info[2], info[3])
                for batch, info in zip(batches, appended, strict=True)
            ]
        )
        size = 4 + len(opening) + len(results) + len(layout.reply_end)
        return b"".join((size.to_bytes(4), frame[4:8], opening, results, layout.reply_end))


def opening_of(frame: Readable) -> Opening | None:
    """Return the opening of the Produce request in `frame`: the parsed bytes before its partitions.

    Return None if the request does not have exactly one topic, is transactional, or has acks 0. Also return
    None if its header has tagged fields, if its version has no `Layout`, or if the opening is longer than
    `_MAX_OPENING` bytes.

    Raises:
        struct.error, IndexError: the frame is too short.
    """
    version, length = _VERSION.unpack_from(frame)
    layout = LAYOUTS.get(version)
    if layout is None:
        return None
    position = layout.settings_at(frame, _VERSION.size + max(length, 0))
    if position is None:
        return None
    settings = acks, _ = _SETTINGS.unpack_from(frame, position)
    topic_at = position + _SETTINGS.size
    found = layout.topic_at(frame, topic_at)
    if found is None or acks not in _ACKS or found[1] > _MAX_OPENING:
        return None
    return Opening(frame, layout, settings, found[0], topic_at, found[1])
