"""Encodes and decodes followers' Fetch requests with few partitions, and their responses (v17), fast.

A follower that has a fetch session sends a request with few partitions for each batch (ADR 25). This module
encodes and decodes only these *usual* requests and their responses. `barnabas.kafka.protocol`, the general
codec, encodes and decodes all others.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from barnabas.base.types import BrokerId, Chunk, LeaderEpoch, Offset, TopicId
from barnabas.kafka.protocol.messages.fetch import EpochEndOffset, FetchRequest
from barnabas.kafka.protocol.wire import Readable, read_uvarint, uvarint

#: the version with the follower's epoch. The next one adds its high watermark, which the leader does not use
VERSION = 17
#: largest number of partitions in a usual request or response: their lengths take one byte
MAX_PARTITIONS = 64

_KEY_VERSION = struct.Struct(">hh").pack(FetchRequest.api_key, VERSION)
_ID_LENGTH = struct.Struct(">h")
#: no tags; max_wait_ms, min_bytes, max_bytes, isolation_level, session_id
_LIMITS = struct.Struct(">xiiibi")
_EPOCH = struct.Struct(">iB")
_TOPIC = struct.Struct(">16sB")
#: index, leader epoch, offset, last fetched epoch, log start, max_bytes, no tags
_POSITION = struct.Struct(">iiqiqiB")
#: no forgotten topics, no rack; the tag of the replica's state, with its id and its epoch
_REPLICA = struct.Struct(">5siqx")
_BEFORE_REPLICA = b"\1\1\1\1\x0d"

#: the topic id of a `Position` or a `Result`
_topic_of = itemgetter(0)

#: size, correlation id, no tags; throttle time, error code, session id
_RESPONSE = struct.Struct(">iixihiB")
#: the same as the follower reads it, after the correlation id
_ANSWER = struct.Struct(">BihiB")
#: index, error code, high watermark, last stable offset, log start, no aborted transactions, no other replica
_RESULT = struct.Struct(">ihqqqBi")
_NONE_ABORTED, _NO_REPLICA = 0, -1

#: a requested partition: topic id, index and leader epoch; of the follower's log the end offset, the epoch of
#: its last record and the start offset; and the most bytes to receive
Position: TypeAlias = tuple[TopicId, int, LeaderEpoch, Offset, LeaderEpoch, Offset, int]


class SessionLayout:
    """The bytes that all usual requests of one fetch session have in common.

    A usual request has at most `MAX_PARTITIONS` partitions, and removes none from the session. The follower
    encodes requests with the layout. The leader recognises them with it, and keeps it with the connection.
    """

    __slots__ = (
        "_end",
        "_opening",
        "broker_epoch",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "replica",
        "session_id",
    )

    def __init__(
        self,
        client_id: bytes,
        replica: BrokerId,
        broker_epoch: int,
        session_id: int,
        limits: tuple[int, int, int],
    ) -> None:
        """Create the layout.

        Args:
            client_id: client id in the header of the requests, in UTF-8.
            replica: broker id of the follower.
            broker_epoch: broker epoch of the follower.
            session_id: id of the fetch session.
            limits: max_wait_ms, min_bytes and max_bytes of the requests.
        """
        self.replica = replica
        self.broker_epoch = broker_epoch
        self.session_id = session_id
        self.max_wait_ms, self.min_bytes, self.max_bytes = limits
        self._opening = _ID_LENGTH.pack(len(client_id)) + client_id + _LIMITS.pack(*limits, 0, session_id)
        self._end = _REPLICA.pack(_BEFORE_REPLICA, replica, broker_epoch)

    def close(self) -> None:
        """Do nothing: a layout holds no resources."""

    def fits(self, frame: Readable) -> bool:
        """Whether `frame`, an encoded request without its size, belongs to this session.

        The session epoch and the partitions can be any.
        """
        return (
            frame.startswith(self._opening, 8)
            and frame.startswith(_KEY_VERSION)
            and frame.endswith(self._end)
        )

    def encode(self, correlation_id: int, session_epoch: int, positions: Sequence[Position]) -> bytes:
        """Return an encoded request for these partitions, with its size in front.

        Args:
            correlation_id: correlation id of the request.
            session_epoch: epoch of the fetch session in the request.
            positions: each partition to request, and the offset from which the follower needs records
                (`Position`). The items of a topic must be next to each other.
        """
        parts = [self._opening, b""]
        topics = 0
        for topic_id, group in groupby(positions, _topic_of):
            of_topic = list(group)
            topics += 1
            parts.append(_TOPIC.pack(topic_id, len(of_topic) + 1))
            parts += [_POSITION.pack(*position[1:], 0) for position in of_topic]
            parts.append(b"\0")
        parts[1] = _EPOCH.pack(session_epoch, topics + 1)
        parts.append(self._end)
        content = b"".join(parts)
        return b"".join(((len(content) + 8).to_bytes(4), _KEY_VERSION, correlation_id.to_bytes(4), content))

    def read(self, frame: Readable) -> tuple[int, list[Position]] | None:
        """Return the session epoch and the partitions of a request for which `fits` is True.

        Return None if the request has more than `MAX_PARTITIONS` partitions or topics, removes partitions
        from the session, or has unknown tagged fields.

        Raises:
            struct.error, IndexError: the frame is too short.
        """
        position = 8 + len(self._opening)
        epoch, topics = _EPOCH.unpack_from(frame, position)
        position += _EPOCH.size
        found: list[Position] = []
        if not 0 < topics <= MAX_PARTITIONS:
            return None
        for _ in range(topics - 1):
            topic_id, count = _TOPIC.unpack_from(frame, position)
            position += _TOPIC.size
            if not 1 < count <= MAX_PARTITIONS or len(found) + count - 1 > MAX_PARTITIONS:
                return None
            for _ in range(count - 1):
                *wanted, tags = _POSITION.unpack_from(frame, position)
                if tags:
                    return None
                found.append((topic_id, *wanted))
                position += _POSITION.size
            if frame[position]:
                return None
            position += 1
        return (epoch, found) if position == len(frame) - len(self._end) else None


def layout_of(frame: Readable) -> SessionLayout | None:
    """Return the layout of the session to which the request in `frame` belongs.

    Return None if the request is not a follower's Fetch v17, removes partitions from the session, names a
    rack, or requires read_committed.

    Raises:
        struct.error: the frame is too short.
    """
    if not frame.startswith(_KEY_VERSION) or frame[-_REPLICA.size : 5 - _REPLICA.size] != _BEFORE_REPLICA:
        return None
    (length,) = _ID_LENGTH.unpack_from(frame, 8)
    if length < 0:
        return None
    start = 8 + _ID_LENGTH.size
    max_wait_ms, min_bytes, max_bytes, _, session_id = _LIMITS.unpack_from(frame, start + length)
    _, replica, broker_epoch = _REPLICA.unpack_from(frame, len(frame) - _REPLICA.size)
    layout = SessionLayout(
        bytes(frame[start : start + length]),
        replica,
        broker_epoch,
        session_id,
        (max_wait_ms, min_bytes, max_bytes),
    )
    return layout if layout.fits(frame) else None


#: the result of a partition: topic id, index, high watermark, last stable offset, log start offset, record
#: batches, and their size in bytes
Result: TypeAlias = tuple[TopicId, int, Offset, Offset, Offset, Sequence[Chunk], int]


def encode_answer(correlation_id: int, session_id: int, results: Sequence[Result]) -> list[Chunk]:
    """Return an encoded response to a follower's fetch, in chunks, with its size in front.

    Args:
        correlation_id: correlation id of the request.
        session_id: id of the fetch session.
        results: the offsets and the records of each partition (`Result`). The items of a topic must be next
            to each other.
    """
    chunks: list[Chunk] = []
    head = b""
    size = 0
    topics = 0
    for topic_id, group in groupby(results, _topic_of):
        of_topic = list(group)
        topics += 1
        head += _TOPIC.pack(topic_id, len(of_topic) + 1)
        for _, index, high_watermark, stable, start, records, length in of_topic:
            head += _RESULT.pack(index, 0, high_watermark, stable, start, _NONE_ABORTED, _NO_REPLICA)
            head += uvarint(length + 1)
            if length:
                chunks.append(head)
                chunks += records
                size += len(head) + length
                head = b""
            head += b"\0"
        head += b"\0"
    head += b"\0"
    chunks.append(head)
    size += len(head) + _RESPONSE.size - 4
    chunks[0] = _RESPONSE.pack(size, correlation_id, 0, 0, session_id, topics + 1) + chunks[0]  # type: ignore[operator]
    return chunks


_NO_DIVERGENCE = EpochEndOffset()


class ReceivedData(NamedTuple):
    """The result of one partition in a response to a follower's fetch, without an error.

    Attributes:
        high_watermark: the leader's high watermark.
        log_start_offset: the start of the leader's log.
        records: new record batches as bytes; empty if there are none.
        error_code: always 0, as in a `PartitionData` without an error.
        diverging_epoch: always the default value: the logs do not diverge.
    """

    high_watermark: Offset
    log_start_offset: Offset
    records: Readable
    error_code: int = 0
    diverging_epoch: EpochEndOffset = _NO_DIVERGENCE


class UsualResponse(NamedTuple):
    """A response to a follower's fetch without any error. The follower uses it like a `FetchResponse`.

    Attributes:
        session_id: id of the fetch session.
        results: for each partition, its topic id and index, and its result.
        error_code: always 0.
    """

    session_id: int
    results: list[tuple[tuple[TopicId, int], ReceivedData]]
    error_code: int = 0


class UsualFetch:
    """A follower's Fetch request that continues a fetch session, with a faster codec than other requests.

    It implements `barnabas.broker.interbroker.connection.EncodedRequest`: it encodes itself, and decodes its
    usual response.

    Args:
        layout: the fields that all requests of the session have in common.
        session_epoch: epoch of the session in this request.
        positions: the partitions in this request, at most `MAX_PARTITIONS`. Each is a tuple with the topic id
            and the offset from which the follower needs records (`Position`). The items of a topic must be
            next to each other.
    """

    __slots__ = ("_epoch", "_layout", "_positions", "max_wait_ms")

    api_key = FetchRequest.api_key
    versions = VERSION, VERSION

    def __init__(self, layout: SessionLayout, session_epoch: int, positions: Sequence[Position]) -> None:
        self.max_wait_ms = layout.max_wait_ms
        self._layout = layout
        self._epoch = session_epoch
        self._positions = positions

    def encode(self, correlation_id: int) -> bytes:
        """Return the frame, with its size in front."""
        return self._layout.encode(correlation_id, self._epoch, self._positions)

    def decode(self, frame: Readable) -> UsualResponse | None:
        """Return the response in `frame`; None if only the general codec can decode it."""
        try:
            return read_answer(frame)
        except (struct.error, IndexError):
            return None


def read_answer(frame: Readable) -> UsualResponse | None:
    """Decode a response to a follower's fetch. `frame` begins with the correlation id.

    Return None if the response has an error, a divergence, aborted transactions or unknown tagged fields, or
    more than `MAX_PARTITIONS` partitions.

    Raises:
        struct.error, IndexError: the frame is too short.
    """
    tags, _, error_code, session_id, topics = _ANSWER.unpack_from(frame, 4)
    if tags or error_code or not 0 < topics <= MAX_PARTITIONS:
        return None
    position = 4 + _ANSWER.size
    results: list[tuple[tuple[TopicId, int], ReceivedData]] = []
    for _ in range(topics - 1):
        topic_id, count = _TOPIC.unpack_from(frame, position)
        position += _TOPIC.size
        if not 0 < count <= MAX_PARTITIONS or len(results) + count - 1 > MAX_PARTITIONS:
            return None
        for _ in range(count - 1):
            index, code, high_watermark, _, start, aborted, _ = _RESULT.unpack_from(frame, position)
            length, position = read_uvarint(frame, position + _RESULT.size)
            end = position + length - 1
            if code or aborted or not length or frame[end]:
                return None
            data = ReceivedData(high_watermark, start, frame[position:end])
            results.append(((topic_id, index), data))
            position = end + 1
        if frame[position]:
            return None
        position += 1
    return UsualResponse(session_id, results) if frame[position:] == b"\0" else None
