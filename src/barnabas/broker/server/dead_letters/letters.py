"""Makes the records of a dead-letter queue, and finds their source records (KIP-1191).

A dead letter has six headers, with Apache Kafka's names and values. The headers contain the topic, the
partition and the offset of the source record, the share group, the number of deliveries, and the reason. If
the group copies records, a dead letter also has the key, the value and the headers of the source record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from operator import attrgetter
from typing import NamedTuple

from barnabas.base.types import FIRST_BROKER_PRODUCER_ID, Buffer, Offset, ProducerId
from barnabas.broker.coordinator import SharePartitionKey
from barnabas.broker.sharing.in_flight import DeadLetters
from barnabas.kafka.records import Record
from barnabas.kafka.records.batch import HEADER_SIZE
from barnabas.kafka.records.builder import all_records, encode_batch
from barnabas.kafka.records.record import Header, encode_record

TOPIC_HEADER = "__dlq.errors.topic"
PARTITION_HEADER = "__dlq.errors.partition"
OFFSET_HEADER = "__dlq.errors.offset"
GROUP_HEADER = "__dlq.errors.group"
DELIVERIES_HEADER = "__dlq.errors.delivery.count"
MESSAGE_HEADER = "__dlq.errors.message"

_REJECTED = b"Offset rejected by client."
_DELIVERED_TOO_OFTEN = b"Offset delivery count exceeded the threshold."

#: the limits of one batch of dead letters, which the event loop appends in one turn
MAX_RECORDS = 500
MAX_BYTES = 64 * 1024
#: the only producer epoch of these producers
EPOCH = 0
#: the first and the last offset of contiguous source records
Span = tuple[Offset, Offset]


class Source(NamedTuple):
    """The source of dead letters: a share partition, and the name of its topic."""

    key: SharePartitionKey
    topic: str

    @property
    def producer_id(self) -> ProducerId:
        """The id of the idempotent producer that writes the dead letters of this share partition.

        Every leader of the partition computes the same id. So the log of the dead-letter queue recognizes
        the repetition of a batch, and remembers the last batch.
        """
        digest = blake2b(str(self.key).encode(), digest_size=8).digest()
        return FIRST_BROKER_PRODUCER_ID | (int.from_bytes(digest) >> 2)


class LetterBatch(NamedTuple):
    """A batch of dead letters, and the source records that are finished when the queue has the batch.

    `letters` is the number of dead letters. `spans` has the offsets of the source records. It also has
    offsets of records that the log no longer has, and that get no dead letter.
    """

    #: the encoded batch; empty if the log has none of the source records any more
    records: bytes
    letters: int
    spans: tuple[Span, ...]


def make_batch(
    source: Source,
    due: Iterable[DeadLetters],
    found: Mapping[Offset, Record],
    end: Offset,
    *,
    is_copy: bool,
    max_bytes: int,
    sequence: int,
    now_ms: int,
) -> LetterBatch:
    """Make a batch of dead letters for the first records that are due, as many as one batch may have.

    If `found` does not have an offset of `due`, the log no longer has the record. The record gets no dead
    letter, but `LetterBatch.spans` contains its offset.

    Args:
        source: the share partition.
        due: ranges of offsets whose records the group has given up, in ascending order.
        found: the source records in these ranges, by offset.
        end: the offset before which `found` is complete. The batch does not go beyond it.
        is_copy: whether the dead letters have the contents of their records. If a record is too large for
            `max_bytes`, its dead letter has only headers.
        max_bytes: the size of the largest batch that the dead-letter queue accepts.
        sequence: the producer's next sequence number.
        now_ms: the timestamp of the dead letters, in milliseconds since 1970.
    """
    letters: list[Record] = []
    spans: list[Span] = []
    room = min(MAX_BYTES, max_bytes) - HEADER_SIZE
    for run in due:
        for offset in range(run.first, min(run.last + 1, end)):
            record = found.get(offset)
            if record is not None:
                letter = _letter(source, run, offset, record if is_copy else None, now_ms)
                size = _size(letter)
                if is_copy and size > max_bytes - HEADER_SIZE:
                    letter = _letter(source, run, offset, None, now_ms)
                    size = _size(letter)
                if letters and (size > room or len(letters) >= MAX_RECORDS):
                    return _batch(source, letters, spans, sequence)
                room -= size
                letters.append(letter)
            _extend(spans, offset)
    return _batch(source, letters, spans, sequence)


def offsets_of(source: Source, batch: Buffer) -> list[Offset]:
    """Return the source offsets of the dead letters in `batch`, in ascending order.

    Ignore the dead letters of other source partitions and of other share groups.
    """
    key = source.key
    wanted = {
        TOPIC_HEADER: source.topic.encode(),
        PARTITION_HEADER: b"%d" % key.partition,
        GROUP_HEADER: key.group.encode(),
    }
    offsets = []
    for record in all_records(batch):
        named = dict(record.headers)
        if wanted.items() <= named.items() and named.get(OFFSET_HEADER):
            offsets.append(int(named[OFFSET_HEADER] or b""))
    return sorted(offsets)


def settled(due: Sequence[DeadLetters], offsets: Iterable[Offset]) -> list[Span]:
    """Return the offsets that are in `offsets` and in one of the ranges of `due`, as spans.

    Both arguments must be sorted.
    """
    spans: list[Span] = []
    for offset in offsets:
        if has_offset(due, offset):
            _extend(spans, offset)
    return spans


def has_offset(due: Sequence[DeadLetters], offset: Offset) -> bool:
    """Whether one of the ranges of offsets in `due` contains `offset`. The ranges must be sorted."""
    index = bisect_right(due, offset, key=attrgetter("first")) - 1
    return index >= 0 and offset <= due[index].last


def _letter(source: Source, run: DeadLetters, offset: Offset, record: Record | None, now_ms: int) -> Record:
    key = source.key
    headers: tuple[Header, ...] = (
        (TOPIC_HEADER, source.topic.encode()),
        (PARTITION_HEADER, b"%d" % key.partition),
        (OFFSET_HEADER, b"%d" % offset),
        (GROUP_HEADER, key.group.encode()),
        (DELIVERIES_HEADER, b"%d" % run.deliveries),
        (MESSAGE_HEADER, _REJECTED if run.is_rejected else _DELIVERED_TOO_OFTEN),
    )
    if record is None:
        return Record(None, None, now_ms, headers)
    return Record(record.key, record.value, now_ms, record.headers + headers)


def _size(letter: Record) -> int:
    return len(encode_record(letter, MAX_RECORDS, 0))


def _extend(spans: list[Span], offset: Offset) -> None:
    if spans and spans[-1][1] + 1 == offset:
        spans[-1] = spans[-1][0], offset
    else:
        spans.append((offset, offset))


def _batch(source: Source, letters: list[Record], spans: list[Span], sequence: int) -> LetterBatch:
    records = b""
    if letters:
        records = encode_batch(
            letters, producer_id=source.producer_id, producer_epoch=EPOCH, base_sequence=sequence
        )
    return LetterBatch(records, len(letters), tuple(spans))
