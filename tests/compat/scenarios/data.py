"""Produce, Fetch, and requests for a log's start, end, and offset at a time."""

from __future__ import annotations

import struct
import time

from tests.compat.wire import Wire

from barnabas.kafka.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.kafka.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas.kafka.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from barnabas.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.kafka.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.records.batch import parse_header
from barnabas.kafka.records.builder import assemble_batch, encode_batch
from barnabas.kafka.records.compression import Compression
from barnabas.kafka.records.record import Record

UNKNOWN_ID = b"no such topic id"
# One moment for both brokers: what they store must be the same bytes.
NOW = int(time.time() * 1000)


def batch(
    count: int = 1, first: int = 0, *, size: int = 10, key: bytes | None = b"k", at: int = NOW, **more
) -> bytes:
    records = [Record(key, b"%d" % (first + index) + b"." * size, at + index) for index in range(count)]
    return encode_batch(records, **more)


def produce(
    wire: Wire, topic: str, records: object, partition: int = 0, acks: int = -1, **more
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=records)
    topic_id = wire.topic_id(topic) if topic else UNKNOWN_ID
    topics = [TopicProduceData(name=topic or "nowhere", topic_id=topic_id, partition_data=[data])]
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=topics, **more)


def fetch(
    wire: Wire, topic: str, offset: int, partition: int = 0, *, epoch: int = -1, limit: int = 1 << 20, **more
):
    wanted = FetchPartition(
        partition=partition, fetch_offset=offset, current_leader_epoch=epoch, partition_max_bytes=limit
    )
    topic_id = wire.topic_id(topic) if topic else UNKNOWN_ID
    topics = [FetchTopic(topic=topic or "nowhere", topic_id=topic_id, partitions=[wanted])]
    return FetchRequest(**{"max_wait_ms": 1, "min_bytes": 1, "topics": topics, **more})


def offsets(topic: str, timestamp: int, partition: int = 0, epoch: int = -1, **more) -> ListOffsetsRequest:
    wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
    topics = [ListOffsetsTopic(name=topic, partitions=[wanted])]
    return ListOffsetsRequest(replica_id=-1, topics=topics, timeout_ms=1000, **more)


def records_go_in_and_come_out(wire):
    topic = wire.topic("t")
    for codec in Compression:
        yield produce(wire, topic, batch(3, compression=codec))
    yield produce(wire, topic, batch(2), acks=1)
    yield fetch(wire, topic, 0)
    yield fetch(wire, topic, 4)  # inside a batch
    yield fetch(wire, topic, 17)  # at the end
    yield fetch(wire, topic, 0, limit=1)  # the first batch however small the limit
    yield fetch(wire, topic, 0, max_bytes=1)


def refused_produce(wire):
    topic, compacted = wire.topic("t"), wire.topic("c", cleanup_policy="compact")
    good = batch(2)
    yield produce(wire, "", good)
    yield produce(wire, topic, good, partition=7)
    yield produce(wire, topic, good, partition=-1)
    yield produce(wire, topic, good, acks=2)
    yield produce(wire, topic, good[:-1] + b"?")  # the CRC does not match
    yield produce(wire, topic, good[:-5])  # cut short
    yield produce(wire, topic, good[:40])  # less than a header
    yield produce(wire, topic, good + good)  # one batch a request
    yield produce(wire, topic, good[:16] + b"\x01" + good[17:])  # magic 1
    yield produce(wire, topic, batch(1, size=2_000_000))
    yield produce(wire, compacted, batch(1, key=None))
    yield produce(wire, compacted, batch(1))
    yield produce(wire, topic, batch(1, control=True))
    yield produce(wire, topic, b"")
    header = parse_header(good)
    body = good[61:]
    yield produce(wire, topic, assemble_batch(header._replace(record_count=3), body))
    yield produce(wire, topic, assemble_batch(header._replace(last_offset_delta=5), body))
    yield produce(wire, topic, assemble_batch(header._replace(record_count=-1), body))
    yield produce(wire, topic, struct.pack(">q", 77) + good[8:])  # a base offset is the broker's to give
    yield fetch(wire, topic, 0)


def timestamps_out_of_range(wire):
    day = 24 * 3_600_000
    topic = wire.topic("t", message_timestamp_before_max_ms=str(day), message_timestamp_after_max_ms=str(day))
    for at in (NOW, NOW - 2 * day, NOW + 2 * day, -1):
        yield produce(wire, topic, batch(1, at=at))
    yield offsets(topic, -1)


def idempotent_producer(wire):
    topic = wire.topic("t")

    def sent(sequence: int, count: int = 2, epoch: int = 0, producer: int = 4711):
        records = batch(count, sequence, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        return produce(wire, topic, records)

    yield sent(0)
    yield sent(2)
    yield sent(0)  # again: its first offset
    yield sent(6)  # a gap
    yield sent(2, count=1)  # half of a batch seen
    for sequence in (4, 6, 8, 10, 12):
        yield sent(sequence)
    yield sent(0)  # again, but older than the last five
    yield sent(4)
    yield sent(0, epoch=1)
    yield sent(14, epoch=0)  # fenced
    yield sent(5, epoch=2)  # a new epoch begins at 0
    yield sent(3, producer=815)  # unknown, and not at 0
    yield sent(-1, producer=816)
    yield DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0, 9])])
    yield DescribeProducersRequest(topics=[TopicRequest(name="nowhere", partition_indexes=[0])])
    yield fetch(wire, topic, 0)


def producer_ids_are_given_out(wire):
    yield InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    yield InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)


def refused_fetch(wire):
    topic = wire.topic("t", 2)
    yield produce(wire, topic, batch(5))
    yield fetch(wire, topic, 6)
    yield fetch(wire, topic, -1)
    yield fetch(wire, topic, 0, partition=2)
    yield fetch(wire, "", 0)
    yield fetch(wire, topic, 0, epoch=0)
    yield fetch(wire, topic, 0, epoch=3)
    yield fetch(wire, topic, 0, isolation_level=1)
    yield fetch(wire, topic, 0, session_id=12345, session_epoch=2)
    yield fetch(wire, topic, 0, session_id=12345, session_epoch=-1)
    both = FetchTopic(
        topic=topic,
        topic_id=wire.topic_id(topic),
        partitions=[FetchPartition(partition=part, partition_max_bytes=1 << 20) for part in (0, 1)],
    )
    yield FetchRequest(max_wait_ms=1, min_bytes=1, topics=[both])


def fetch_session(wire):
    topic = wire.topic("t", 3)
    for partition in range(3):
        yield produce(wire, topic, batch(2), partition)
    wanted = [FetchPartition(partition=part, partition_max_bytes=1 << 20) for part in range(3)]
    topics = [FetchTopic(topic=topic, topic_id=wire.topic_id(topic), partitions=wanted)]
    opened = yield FetchRequest(max_wait_ms=1, min_bytes=1, topics=topics, session_id=0, session_epoch=0)
    session = opened.session_id
    yield FetchRequest(max_wait_ms=1, min_bytes=0, session_id=session, session_epoch=1)
    yield produce(wire, topic, batch(1), 1)
    yield FetchRequest(max_wait_ms=1, min_bytes=1, session_id=session, session_epoch=2)
    forgotten = [ForgottenTopic(topic=topic, topic_id=wire.topic_id(topic), partitions=[0, 1])]
    yield FetchRequest(
        max_wait_ms=1, min_bytes=1, session_id=session, session_epoch=3, forgotten_topics_data=forgotten
    )
    yield FetchRequest(max_wait_ms=1, session_id=session, session_epoch=9)  # not the next epoch
    yield FetchRequest(max_wait_ms=1, session_id=session, session_epoch=-1)  # close it
    yield FetchRequest(max_wait_ms=1, session_id=session, session_epoch=4)  # gone


def offsets_by_time(wire):
    topic = wire.topic("t")
    yield offsets(topic, -1)
    yield offsets(topic, -3)
    for index in range(4):
        yield produce(wire, topic, batch(2, at=NOW + 100 * index))
    for special in (-1, -2, -3, -4, -5, -6, -7):
        yield offsets(topic, special)
    for delta in (-5, 0, 1, 2, 100, 150, 301, 302, 100_000):
        yield offsets(topic, NOW + delta)
    yield offsets(topic, -1, partition=4)
    yield offsets("nowhere", -1)
    yield offsets(topic, -1, isolation_level=1)
    yield offsets(topic, -1, epoch=0)
    yield offsets(topic, -1, epoch=5)


def epochs_end_where_they_end(wire):
    topic = wire.topic("t")
    yield produce(wire, topic, batch(3))
    for name, partition, epoch, current in (
        (topic, 0, 0, -1),
        (topic, 0, 1, -1),
        (topic, 0, -1, -1),
        (topic, 0, 0, 0),
        (topic, 0, 0, 4),
        (topic, 3, 0, -1),
        ("nowhere", 0, 0, -1),
    ):
        wanted = OffsetForLeaderPartition(
            partition=partition, leader_epoch=epoch, current_leader_epoch=current
        )
        topics = [OffsetForLeaderTopic(topic=name, partitions=[wanted])]
        yield OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)


def records_are_deleted(wire):
    topic, compacted = wire.topic("t"), wire.topic("c", cleanup_policy="compact")
    yield produce(wire, topic, batch(6))
    for name, partition, offset in (
        (topic, 0, 2),
        (topic, 0, 1),  # already gone
        (topic, 0, 7),  # beyond the end
        (topic, 0, -2),
        (topic, 5, 1),
        (compacted, 0, 0),
        ("nowhere", 0, 1),
        (topic, 0, -1),  # everything
    ):
        wanted = [DeleteRecordsPartition(partition_index=partition, offset=offset)]
        topics = [DeleteRecordsTopic(name=name, partitions=wanted)]
        yield DeleteRecordsRequest(topics=topics, timeout_ms=10_000)
    yield offsets(topic, -2)
    yield fetch(wire, topic, 1)
    yield produce(wire, topic, batch(1))
    yield fetch(wire, topic, 6)


def log_directories_tell_sizes(wire):
    topic = wire.topic("t", 2)
    yield produce(wire, topic, batch(10))
    for name, partitions in ((topic, [0, 1]), (topic, [5]), ("nowhere", [0])):
        yield DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=name, partitions=partitions)])
    yield DescribeLogDirsRequest(topics=[])
