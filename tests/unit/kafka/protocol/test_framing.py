"""Frames and headers: any division of a stream gives the same frames, and only protocol errors are raised."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples
from tests.unit.kafka.protocol.each_version import each_version
from tests.unit.kafka.protocol.examples import INSTANCES

from barnabas.base.errors import ProtocolError
from barnabas.kafka.protocol.framing import (
    FrameDecoder,
    RequestHeader,
    encode_request,
    encode_response,
    parse_request,
    parse_response,
)
from barnabas.kafka.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from barnabas.kafka.protocol.messages.describe_acls import DescribeAclsRequest
from barnabas.kafka.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.kafka.protocol.messages.metadata import MetadataRequest
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.protocol.registry import request_class, request_classes, response_class
from barnabas.kafka.protocol.schema import Request

KEYS = [request.api_key for request in request_classes()]


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4) + payload


@settings(max_examples=examples(100 * INSTANCES, 1000 * INSTANCES), deadline=None)
@given(payloads=st.lists(st.binary(max_size=40), max_size=6), cuts=st.lists(st.integers(0, 300)))
def test_any_split_of_a_stream_gives_the_same_frames(payloads: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(framed, payloads))
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    decoder = FrameDecoder(max_size=40)
    frames = [f for a, b in pairwise(edges) for f in decoder.feed(stream[a:b])]
    assert frames == payloads
    assert decoder.pending == 0


@each_version
def test_requests_fed_byte_by_byte_are_the_same_as_whole(
    request_type: type[Request], version: int, examples: Callable[..., list[Any]]
) -> None:
    header = RequestHeader(request_type.api_key, version, 77, "me")
    for request in examples(request_type, version):
        stream = b"".join(encode_request(header, request))
        decoder = FrameDecoder(max_size=1 << 20)
        (whole,) = FrameDecoder(max_size=1 << 20).feed(stream)
        # A long request is mostly records, which are bytes like any other: its ends will do.
        step = 1 if len(stream) < 2000 else 997
        frames = [f for i in range(0, len(stream), step) for f in decoder.feed(stream[i : i + step])]
        assert [parse_request(frame) for frame in frames] == [parse_request(whole)] == [(header, request)]


def test_a_partial_frame_holds_only_what_was_received() -> None:
    decoder = FrameDecoder(max_size=1 << 30)
    assert decoder.feed((1 << 30).to_bytes(4) + b"abc") == []
    assert decoder.pending == 3


@pytest.mark.parametrize("size", [-1, -(2**31), 101, 2**31 - 1])
@pytest.mark.parametrize("step", [1, 4, 100])
def test_a_frame_of_negative_or_excessive_size_is_refused(size: int, step: int) -> None:
    decoder = FrameDecoder(max_size=100)
    stream = framed(b"good") + size.to_bytes(4, signed=True) + bytes(10)
    frames = [frame for i in range(0, len(stream), step) for frame in decoder.feed(stream[i : i + step])]
    assert frames == [b"good", b""]
    assert decoder.refused == f"a frame of {size} bytes; 0 to 100 are allowed"
    assert decoder.feed(framed(b"the rest")) == []


@pytest.mark.parametrize("end", [(-1).to_bytes(4, signed=True), (101).to_bytes(4) + bytes(10)])
def test_frames_before_one_that_is_refused_are_not_lost(end: bytes) -> None:
    decoder = FrameDecoder(max_size=100)
    assert decoder.feed(framed(b"one") + framed(b"two") + end) == [b"one", b"two", b""]


def test_the_first_bytes_of_another_protocol_are_named() -> None:
    decoder = FrameDecoder(max_size=100)
    assert decoder.feed(b"GET / HTTP/1.1") == [b""]
    assert decoder.refused == "it sent an HTTP request, and this port speaks the Kafka protocol"


def test_a_frame_of_the_greatest_size_is_accepted() -> None:
    assert FrameDecoder(max_size=100).feed(framed(bytes(100))) == [bytes(100)]


@pytest.mark.parametrize("client_id", [None, "", "kcat", "é"])
@pytest.mark.parametrize("version", [3, 4])  # request header 1 and 2
def test_a_request_comes_back_with_its_header(version: int, client_id: str | None) -> None:
    header = RequestHeader(HeartbeatRequest.api_key, version, 2**31 - 1, client_id)
    request = HeartbeatRequest(group_id="g", member_id="m", generation_id=3)
    (frame,) = FrameDecoder(1000).feed(b"".join(encode_request(header, request)))
    assert parse_request(frame) == (header, request)


@pytest.mark.parametrize("version", [3, 4])  # response header 0 and 1
def test_a_response_comes_back_to_its_request(version: int) -> None:
    header = RequestHeader(HeartbeatRequest.api_key, version, -5, "me")
    response = HeartbeatResponse(error_code=27)
    stream = b"".join(encode_response(header, response))
    assert stream == bytes.fromhex(
        {3: "0000000a fffffffb 00000000 001b", 4: "0000000c fffffffb 00 00000000 001b 00"}[version]
    )
    assert parse_response(header, stream[4:]) == response


def test_a_response_to_another_request_is_refused() -> None:
    header = RequestHeader(HeartbeatRequest.api_key, 4, 5, "me")
    stream = b"".join(encode_response(header._replace(correlation_id=6), HeartbeatResponse()))
    with pytest.raises(ProtocolError, match="a response to request 6 instead of 5"):
        parse_response(header, stream[4:])


def test_api_versions_answers_with_response_header_0_in_every_version() -> None:
    response = ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, max_version=4)])
    for version in range(5):
        header = RequestHeader(ApiVersionsRequest.api_key, version, 1, "me")
        stream = b"".join(encode_response(header, response))
        assert stream[4:10] == bytes.fromhex("00000001 0000")  # correlation id, then the error code at once
        assert parse_response(header, stream[4:]) == response


def test_the_size_of_a_frame_counts_chunks_that_are_not_copied() -> None:
    records = bytes(100_000)
    partition = PartitionProduceData(records=records)
    request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[partition] * 3)])
    chunks = encode_request(RequestHeader(0, 9, 1, "me"), request)
    assert sum(chunk is records for chunk in chunks) == 3
    stream = b"".join(chunks)
    assert int.from_bytes(stream[:4]) == len(stream) - 4


@pytest.mark.parametrize(
    ("frame", "problem"),
    [
        ("", "has no whole header"),
        ("0012 0003 000000", "has no whole header"),
        ("0012 0003 00000001 0001 61", "has no whole header"),  # the tagged fields are missing
        ("0012 0003 00000001 7fff 61", "has no whole header"),  # a client id longer than the frame
        ("03e7 0000 00000001 ffff", "unknown API key 999"),
        ("ffff 0000 00000001 ffff", "unknown API key -1"),
        ("0000 0002 00000001 ffff", "Produce has no version 2"),
        ("0001 ffff 00000001 ffff", "Fetch has no version -1"),
        ("0012 0000 00000001 ffff 00", "ended at byte 10 of 11"),
    ],
)
def test_a_frame_that_is_no_request_is_refused(frame: str, problem: str) -> None:
    with pytest.raises(ProtocolError, match=problem):
        parse_request(bytes.fromhex(frame))


def test_librdkafkas_overlong_request_for_all_topics_is_read() -> None:
    frame = bytes.fromhex("0003 000d 00000003 0007 72646b61666b61 00 00000000 01 00 00")  # as 2.16 sends it
    _, request = parse_request(frame)
    assert request == MetadataRequest(topics=None, allow_auto_topic_creation=False)


@settings(max_examples=examples(100 * INSTANCES, 1000 * INSTANCES), deadline=None)
@given(frame=st.binary(max_size=60), key=st.sampled_from([*KEYS, 999]), version=st.integers(-1, 20))
def test_any_frame_gives_a_request_or_the_protocol_error(frame: bytes, key: int, version: int) -> None:
    with suppress(ProtocolError):
        parse_request(key.to_bytes(2) + version.to_bytes(2, signed=True) + frame)


@settings(max_examples=examples(100 * INSTANCES, 1000 * INSTANCES), deadline=None)
@given(frame=st.binary(max_size=60), key=st.sampled_from(KEYS), data=st.data())
def test_any_answer_gives_a_response_or_the_protocol_error(
    frame: bytes, key: int, data: st.DataObject
) -> None:
    version = data.draw(st.integers(*request_class(key).versions))
    with suppress(ProtocolError):
        parse_response(RequestHeader(key, version, 1, None), bytes.fromhex("00000001") + frame)


def test_the_registry_finds_both_messages_of_every_api() -> None:
    assert len(set(KEYS)) == len(KEYS)
    for request in request_classes():
        response = response_class(request.api_key)
        assert request_class(request.api_key) is request
        assert (response.__module__, response.__name__) == (request.__module__, request.api_name + "Response")
    assert request_class(18) is ApiVersionsRequest
    with pytest.raises(ProtocolError, match="unknown API key 999"):
        request_class(999)


_OF_A_CLIENT = """
import sys
from barnabas.kafka.protocol.framing import RequestHeader, encode_response, parse_response
from barnabas.kafka.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
header = RequestHeader(HeartbeatRequest.api_key, 4, 1, "me")
parse_response(header, b"".join(encode_response(header, HeartbeatResponse()))[4:])
assert "barnabas.kafka.protocol.messages.create_topics" not in sys.modules
"""


def test_a_client_imports_only_the_messages_that_it_sends() -> None:
    subprocess.run([sys.executable, "-c", _OF_A_CLIENT], check=True)


def test_librdkafkas_bytes_too_many_are_let_pass_where_it_sends_them() -> None:
    sent = bytes.fromhex("0003000d00000003000772646b61666b61" + "00" * 8)  # librdkafka 2.16, all topics
    header, request = parse_request(sent)
    assert (header.client_id, request) == (
        "rdkafka",
        MetadataRequest(topics=None, allow_auto_topic_creation=False),
    )
    with pytest.raises(ProtocolError, match="ended at byte"):
        parse_request(sent + b"\0")
    slack = {request.api_name: request.slack for request in request_classes() if request.slack}
    assert slack == {"Metadata": 3, "AlterUserScramCredentials": 1, "DescribeAcls": 1}


def test_the_byte_that_kafka_go_leaves_behind_describe_acls_is_excused():
    """Its filter is a separate struct with tagged fields. A second extra byte is an error."""
    request = DescribeAclsRequest(resource_type_filter=2, resource_name_filter=None, operation=1)
    header = RequestHeader(DescribeAclsRequest.api_key, 3, 1, "kafka-go")
    sent = b"".join(map(bytes, encode_request(header, request)))[4:]
    assert parse_request(sent + b"\0") == parse_request(sent)
    with pytest.raises(ProtocolError, match="ended at byte"):
        parse_request(sent + b"\0\0")
