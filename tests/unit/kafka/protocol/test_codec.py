"""Further guarantees of the codecs: limits, one type of error, no copies of records."""

import random
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples
from tests.unit.kafka.protocol.each_version import each_version
from tests.unit.kafka.protocol.examples import INSTANCES

from barnabas.base.errors import ErrorCode, ProtocolError
from barnabas.kafka.protocol.codec import decode, encode, encode_chunks
from barnabas.kafka.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.kafka.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.kafka.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from barnabas.kafka.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    ForgottenTopic,
    PartitionData,
)
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.kafka.protocol.messages.offset_commit import OffsetCommitRequest
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.protocol.messages.sync_group import SyncGroupResponse
from barnabas.kafka.protocol.registry import request_classes
from barnabas.kafka.protocol.schema import Message, Struct


def produce(records: Any) -> ProduceRequest:
    partition = PartitionProduceData(index=1, records=records)
    return ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", partition_data=[partition])])


@each_version
def test_what_we_write_we_read_back(
    message: type[Message], version: int, examples: Callable[..., list[Struct]]
) -> None:
    for example in examples(message, version):
        assert decode(message, version, encode(example, version)) == example


@each_version
def test_every_cut_and_every_extra_byte_is_refused(
    message: type[Message], version: int, examples: Callable[..., list[Struct]]
) -> None:
    encoded = encode(
        min((message(), *examples(message, version)), key=lambda m: len(encode(m, version))), version
    )
    for end in range(len(encoded)):
        with pytest.raises(ProtocolError):
            decode(message, version, encoded[:end])
    for extra in range(1, min(message.slack, 3) + 1):
        assert decode(message, version, encoded + bytes(extra)) == decode(message, version, encoded)
    if message.slack <= 3:  # else whatever follows is of a later version
        with pytest.raises(ProtocolError):
            decode(message, version, encoded + bytes(message.slack + 1))


@settings(max_examples=examples(100 * INSTANCES, 1000 * INSTANCES), deadline=None)
@given(data=st.data())
def test_any_bytes_give_a_message_or_the_protocol_error(data: st.DataObject) -> None:
    cls = data.draw(st.sampled_from(request_classes()))
    version = data.draw(st.integers(*cls.versions))
    junk = data.draw(st.binary(max_size=200))
    with suppress(ProtocolError):
        decode(cls, version, junk)


@each_version
def test_damaged_messages_give_a_message_or_the_protocol_error(
    message: type[Message], version: int, examples: Callable[..., list[Struct]]
) -> None:
    rng = random.Random(f"damage {message.__name__} {version}")
    for example in examples(message, version):
        encoded = bytearray(encode(example, version)[:2000])
        for _ in range(20):
            damaged = bytearray(encoded)
            for _ in range(rng.randint(1, 3)):
                if damaged:
                    damaged[rng.randrange(len(damaged))] = rng.choice(
                        [0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)]
                    )
            with suppress(ProtocolError):
                decode(message, version, bytes(damaged))


@pytest.mark.parametrize(
    ("version", "length"), [(0, b"\x7f\xff\xff\xff"), (0, b"\x00\x0f\x42\x41"), (9, b"\xff\xff\xff\xff\x0f")]
)
def test_an_array_longer_than_the_frame_is_refused_at_once(version: int, length: bytes) -> None:
    began = time.process_time()
    with pytest.raises(ProtocolError):
        decode(MetadataRequest, version, length + bytes(100))
    assert time.process_time() - began < 20  # what the array claims would take minutes


@pytest.mark.parametrize("version", [0, 5])
def test_a_hostile_array_takes_memory_in_proportion_to_the_frame(version: int) -> None:
    empty = b"\x01" if version >= DescribeGroupsRequest.flexible_from else b"\0\0"
    length = b"\xa1\x8d\x06" if version >= DescribeGroupsRequest.flexible_from else (100_000).to_bytes(4)
    request = length + empty * 100_000 + b"\0" * (1 if version < 3 else 2)  # a hundred thousand empty names
    peaks = []
    for _ in range(3):  # brokers and clients of other tests may take memory in their threads meanwhile
        tracemalloc.start()
        with suppress(ProtocolError):
            decode(DescribeGroupsRequest, version, request)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert min(peaks) < 20 * len(request)


def test_an_array_of_more_than_a_million_elements_is_refused() -> None:
    request = bytes.fromhex("000f4241") + bytes(2 * 1_000_001)
    with pytest.raises(ProtocolError, match="an array of 1000001 elements"):
        decode(MetadataRequest, 0, request)


def test_null_is_refused_where_the_version_does_not_allow_it() -> None:
    assert decode(MetadataRequest, 1, b"\xff\xff\xff\xff").topics is None
    with pytest.raises(ProtocolError, match=r"MetadataRequest\.topics must not be null"):
        decode(MetadataRequest, 0, b"\xff\xff\xff\xff")
    with pytest.raises(ProtocolError, match=r"MetadataRequest\.topics must not be null"):
        encode(MetadataRequest(topics=None), 0)
    with pytest.raises(ProtocolError, match=r"OffsetCommitRequest\.group_id must not be null"):
        encode(OffsetCommitRequest(group_id=None), 8)  # type: ignore[arg-type]


def test_a_nullable_struct_is_marked() -> None:
    without = DescribeTopicPartitionsRequest(response_partition_limit=5)
    assert encode(without, 0) == bytes.fromhex("01 00000005 ff 00")
    with_cursor = DescribeTopicPartitionsRequest(cursor=Cursor(topic_name="t", partition_index=3))
    assert encode(with_cursor, 0) == bytes.fromhex("01 000007d0 01 02 74 00000003 00 00")


def test_records_are_views_of_the_frame_and_chunks_without_a_copy() -> None:
    records = bytes(10_000)
    frame = encode(produce(records), 9)
    view = decode(ProduceRequest, 9, frame).topic_data[0].partition_data[0].records
    assert isinstance(view, memoryview)
    assert view == records
    assert view.obj is frame
    assert any(chunk is records for chunk in encode_chunks(produce(records), 9))


def test_records_of_several_chunks_are_written_one_after_another() -> None:
    parts = [b"a" * 5000, memoryview(b"b" * 5000), bytearray(b"c" * 3)]
    partition = PartitionData(records=parts)
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
    chunks = encode_chunks(response, 12)
    assert all(any(chunk is part for chunk in chunks) for part in parts)
    (topic,) = decode(FetchResponse, 12, b"".join(chunks)).responses
    assert topic.partitions[0].records == b"".join(parts)


@pytest.mark.parametrize("version", [3, 9])
def test_null_records_and_empty_records_are_told_apart(version: int) -> None:
    for records in (None, b""):
        decoded = decode(ProduceRequest, version, encode(produce(records), version))
        assert decoded.topic_data[0].partition_data[0].records == records


def test_a_frame_may_be_a_bytearray_or_a_memoryview() -> None:
    request = FetchRequest(
        max_wait_ms=3, forgotten_topics_data=[ForgottenTopic(topic="t", partitions=[1, 2])]
    )
    encoded = encode(request, 12)
    assert decode(FetchRequest, 12, bytearray(encoded)) == request
    assert decode(FetchRequest, 12, memoryview(b"xx" + encoded), 2) == request


def test_bytes_do_not_alias_the_frame() -> None:
    encoded = bytearray(encode(SyncGroupResponse(assignment=b"abc"), 4))
    response = decode(SyncGroupResponse, 4, encoded)
    encoded[:] = bytes(len(encoded))
    assert response.assignment == b"abc"
    assert type(response.assignment) is bytes


def test_a_string_that_is_not_utf8_is_read_as_apache_kafka_reads_it() -> None:
    (topic,) = decode(MetadataRequest, 1, bytes.fromhex("00000001 0002 c3 28")).topics or []
    assert topic.name == "\ufffd("


@pytest.mark.parametrize("version", [1, 9])
def test_a_string_too_long_for_the_wire_is_refused(version: int) -> None:
    longest = MetadataRequest(topics=[MetadataRequestTopic(name="x" * 32767)])
    assert decode(MetadataRequest, version, encode(longest, version)) == longest
    with pytest.raises(ProtocolError):
        encode(MetadataRequest(topics=[MetadataRequestTopic(name="x" * 32768)]), version)


def test_a_long_string_on_the_wire_is_refused() -> None:
    with pytest.raises(ProtocolError, match="a string of 32768 bytes"):
        decode(MetadataRequest, 9, b"\x02\x81\x80\x02" + b"x" * 32768 + b"\0\0\0\0\0")


def test_an_integer_out_of_range_is_refused_with_the_message_it_is_in() -> None:
    with pytest.raises(ProtocolError, match="FetchRequest v12 cannot be encoded"):
        encode(FetchRequest(max_wait_ms=2**31), 12)


@pytest.mark.parametrize("version", [-1, 1, 8])
def test_a_version_that_does_not_exist_is_refused(version: int) -> None:
    with pytest.raises(ProtocolError, match=f"CreateTopicsRequest has versions 2 to 7, not {version}"):
        decode(CreateTopicsRequest, version, b"")
    with pytest.raises(ProtocolError, match=f"CreateTopicsRequest has versions 2 to 7, not {version}"):
        encode(CreateTopicsRequest(), version)


def test_an_error_code_may_be_the_enum() -> None:
    response = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    assert decode(SyncGroupResponse, 0, encode(response, 0)).error_code == 27


def test_fields_that_a_version_lacks_are_left_out_and_come_back_as_defaults() -> None:
    request = FetchRequest(max_wait_ms=3, rack_id="r", session_id=5)
    assert decode(FetchRequest, 4, encode(request, 4)) == FetchRequest(max_wait_ms=3)
