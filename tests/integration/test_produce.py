"""Produce: accepted records, rejected records, and answers."""

import struct
import uuid

import pytest
from tests.integration.conftest import Topic, _await_leaders

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.records import Compression


@pytest.fixture
def stored(wire, fetch_request):
    """Return the bytes in a topic's first partition."""

    def read(topic, partition=0):
        response = wire(fetch_request(topic, {partition: 0}))
        (data,) = response.responses[0].partitions
        return bytes(data.records or b"")

    return read


def test_batches_get_the_offsets_that_follow(topic, produce, batch):
    assert produce(topic, batch(b"a", b"b")).base_offset == 0
    assert produce(topic, batch(b"c")).base_offset == 2
    result = produce(topic, batch(b"d"), acks=1)
    assert (result.base_offset, result.log_start_offset, result.log_append_time_ms) == (3, 0, -1)


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_is_served(topic, produce, batch, version):
    assert produce(topic, batch(b"a"), version=version).error_code == 0


@pytest.mark.parametrize("version", range(3))
def test_versions_before_3_are_advertised_but_refused(connect, version):
    wire = connect()
    wire.socket.sendall(struct.pack(">ihhihhih", 18, 0, version, 1, -1, -1, 1000, 0) + bytes(2))
    assert wire.is_closed()


def test_acks_0_gets_no_reply(topic, produce, batch, wire, stored):
    request = ProduceRequest(
        acks=0,
        topic_data=[
            TopicProduceData(
                topic_id=topic.id, partition_data=[PartitionProduceData(index=0, records=batch(b"quiet"))]
            )
        ],
    )
    wire.send(request)
    assert produce(topic, batch(b"loud")).base_offset == 1


def test_an_error_with_acks_0_closes_the_connection(topic, connect, batch):
    wire = connect()
    wire.send(
        ProduceRequest(
            acks=0,
            topic_data=[
                TopicProduceData(
                    topic_id=topic.id, partition_data=[PartitionProduceData(index=7, records=batch(b"x"))]
                )
            ],
        )
    )
    assert wire.is_closed()


@pytest.mark.parametrize("acks", [2, -2, 300])
def test_other_acks_are_refused(topic, produce, batch, stored, acks):
    assert produce(topic, batch(b"a"), acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert stored(topic) == b""


def test_what_does_not_exist_is_told_apart(topic, produce, batch):
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produce(topic, batch(b"a"), partition=1).error_code == unknown
    assert produce(topic, batch(b"a"), partition=-1).error_code == unknown
    nowhere = topic._replace(name="nowhere", id=b"\x07" * 16)
    assert produce(nowhere, batch(b"a"), version=12).error_code == unknown
    assert produce(nowhere, batch(b"a")).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_one_bad_partition_does_not_fail_the_others(make_topic, wire, batch):
    topic = make_topic(3)
    damaged = bytearray(batch(b"x"))
    damaged[-1] ^= 1
    partitions = [
        PartitionProduceData(index=0, records=batch(b"a")),
        PartitionProduceData(index=9, records=batch(b"b")),
        PartitionProduceData(index=1, records=bytes(damaged)),
        PartitionProduceData(index=2, records=batch(b"c")),
    ]
    response = wire(
        ProduceRequest(acks=-1, topic_data=[TopicProduceData(topic_id=topic.id, partition_data=partitions)])
    )
    results = {result.index: result for result in response.responses[0].partition_responses}
    assert {index: result.error_code for index, result in results.items()} == {
        0: 0,
        9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        1: ErrorCode.CORRUPT_MESSAGE,
        2: 0,
    }
    assert [results[index].base_offset for index in (0, 9, 1, 2)] == [0, -1, -1, 0]


def test_a_damaged_batch_is_refused_whole(topic, produce, batch, stored):
    damaged = bytearray(batch(b"abc"))
    damaged[-1] ^= 1
    assert produce(topic, bytes(damaged)).error_code == ErrorCode.CORRUPT_MESSAGE
    assert stored(topic) == b""


@pytest.mark.parametrize("records", [b"", b"rubbish" * 20, bytes(61)])
def test_what_is_no_batch_is_refused(topic, produce, records):
    result = produce(topic, records)
    assert result.error_code != 0
    assert result.base_offset == -1


def test_a_batch_above_max_message_bytes_is_refused(make_topic, produce, batch, stored):
    topic = make_topic(**{"max.message.bytes": "200"})
    assert produce(topic, batch(bytes(300))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert stored(topic) == b""
    assert produce(topic, batch(bytes(100))).error_code == 0


def test_a_record_without_a_key_is_refused_on_a_compacted_topic(make_topic, produce, batch):
    topic = make_topic(**{"cleanup.policy": "compact"})
    refused = produce(topic, batch(b"a", b"b"))
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in refused.record_errors] == [0, 1]
    assert produce(topic, batch(b"a", key=b"k")).error_code == 0


def test_the_brokers_time_replaces_the_producers_when_the_topic_says_so(
    make_topic, produce, batch, wire, fetch_request
):
    topic = make_topic(**{"message.timestamp.type": "LogAppendTime"})
    appended = produce(topic, batch(b"a", b"b", timestamp=5)).log_append_time_ms
    assert appended > 1_700_000_000_000
    response = wire(fetch_request(topic, {0: 0}))
    from barnabas.kafka.records import all_records

    records = all_records(response.responses[0].partitions[0].records)
    assert [record.timestamp for record in records] == [appended, appended]


def test_a_timestamp_from_the_far_future_is_refused(topic, produce, batch):
    assert produce(topic, batch(b"a", timestamp=2**42)).error_code == ErrorCode.INVALID_TIMESTAMP


def test_bytes_are_kept_as_the_producer_made_them(topic, produce, batch, stored):
    sent = batch(b"x" * 2000, compression=Compression.ZSTD)
    produce(topic, sent)
    # Base offset and leader epoch are the broker's; all that the CRC covers is the producer's.
    assert stored(topic)[16:] == sent[16:]


def test_clients_may_not_write_to_internal_topics(wire, produce, batch, topic):
    offsets = topic._replace(name="__consumer_offsets")
    result = produce(offsets, batch(b"a", key=b"k"), version=12)
    assert result.error_code in (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_min_insync_replicas_asks_for_no_more_than_there_are(make_topic, produce, batch):
    topic = make_topic(**{"min.insync.replicas": "2"})
    assert produce(topic, batch(b"a")).error_code == 0


def test_a_transactional_batch_is_refused_and_holds_nothing_back(topic, produce, batch, wire, fetch_request):
    data = batch(b"a", producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    # Apache Kafka looks at the request's transactional id first, of which there is none.
    refusals = (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    assert produce(topic, data).error_code in refusals
    produce(topic, batch(b"b"))
    (answer,) = wire(fetch_request(topic, {0: 0}, isolation_level=1)).responses[0].partitions
    assert (answer.last_stable_offset, answer.high_watermark) == (1, 1)


# --- idempotent producers ---


def test_a_duplicate_within_five_batches_returns_its_original_offset(topic, produce, batch):
    batches = [batch(b"a", b"b", producer_id=9, producer_epoch=0, base_sequence=2 * n) for n in range(5)]
    offsets = [produce(topic, data).base_offset for data in batches]
    assert offsets == [0, 2, 4, 6, 8]
    again = [produce(topic, data) for data in batches]
    assert [(result.error_code, result.base_offset) for result in again] == [(0, n) for n in offsets]
    assert produce(topic, batch(b"c")).base_offset == 10


def test_a_gap_in_sequences_is_refused(topic, produce, batch):
    assert produce(topic, batch(b"a", producer_id=9, producer_epoch=0, base_sequence=0)).error_code == 0
    gap = produce(topic, batch(b"c", producer_id=9, producer_epoch=0, base_sequence=2))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_older_epoch_is_fenced(topic, produce, batch):
    assert produce(topic, batch(b"a", producer_id=9, producer_epoch=3, base_sequence=0)).error_code == 0
    old = produce(topic, batch(b"b", producer_id=9, producer_epoch=2, base_sequence=0))
    assert old.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert produce(topic, batch(b"c", producer_id=9, producer_epoch=4, base_sequence=0)).error_code == 0


def test_a_batch_that_came_before_its_partition_is_not_overtaken_by_the_next_one(
    make_topic, produce, batch, wire
):
    """The new log has no state of the producer, and would accept any first sequence (KAFKA-15591)."""
    topic = make_topic()
    first, second = (
        batch(b"v", producer_id=70_000, producer_epoch=0, base_sequence=sequence) for sequence in (0, 1)
    )
    early = produce(topic, first, partition=1)
    assert early.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    grown = wire(
        CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic.name, count=2, assignments=None)], timeout_ms=60_000
        )
    )
    assert grown.results[0].error_code == 0
    _await_leaders(wire, topic.name, 2)
    assert produce(topic, second, partition=1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert produce(topic, first, partition=1).base_offset == 0
    assert produce(topic, second, partition=1).base_offset == 1


def test_a_batch_that_came_before_its_topic_is_not_overtaken_by_the_next_one(produce, batch, wire):
    topic = Topic(f"topic-{uuid.uuid4().hex[:12]}", bytes(16))
    first, second = (
        batch(b"v", producer_id=70_001, producer_epoch=0, base_sequence=sequence) for sequence in (0, 1)
    )
    assert produce(topic, first, version=12).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    made = wire(
        CreateTopicsRequest(
            topics=[CreatableTopic(name=topic.name, num_partitions=1, replication_factor=1)],
            timeout_ms=60_000,
        )
    )
    assert made.topics[0].error_code == 0
    _await_leaders(wire, topic.name, 1)
    assert produce(topic, second, version=12).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert produce(topic, first, version=12).base_offset == 0
    assert produce(topic, second, version=12).base_offset == 1
