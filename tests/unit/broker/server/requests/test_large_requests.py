"""Requests with many elements: decoded in a thread, limited in total, one at a time on each connection."""

import asyncio
import threading

import pytest

from barnabas.base.errors import TooManyElements
from barnabas.kafka.protocol.framing import RequestHeader, encode_request, parse_counted, parse_request
from barnabas.kafka.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.kafka.protocol.messages.heartbeat import HeartbeatResponse
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.kafka.protocol.wire import MAX_ELEMENTS


def frame_of(request, version, client_id="test"):
    header = RequestHeader(request.api_key, version, 1, client_id)
    return b"".join(map(bytes, encode_request(header, request)))[4:]


def nested(groups, topics, partitions):
    topic = OffsetFetchRequestTopics(name="a" * 100, partition_indexes=list(range(partitions)))
    group = OffsetFetchRequestGroup(group_id="g", topics=[topic] * topics)
    return OffsetFetchRequest(groups=[group] * groups)


def test_elements_are_counted_over_all_arrays_of_a_message():
    frame = frame_of(nested(3, 4, 50), 8)
    header, request, count = parse_counted(frame, 1000)
    assert count == 3 + 3 * 4 + 3 * 4 * 50
    assert (header, request) == parse_request(frame)
    assert parse_counted(frame, count)[2] == count
    with pytest.raises(TooManyElements, match=f"OffsetFetch v8 has more than {count - 1} elements"):
        parse_counted(frame, count - 1)


def test_a_request_has_no_more_elements_than_allowed_though_each_array_has_few():
    with pytest.raises(TooManyElements):
        parse_request(frame_of(nested(80, 80, 80), 8))


@pytest.mark.parametrize("version", [1, 8, 12])
def test_a_request_of_ten_thousand_topics_is_read(version):
    topics = [MetadataRequestTopic(name=f"topic-{number}") for number in range(10_000)]
    _, request, count = parse_counted(frame_of(MetadataRequest(topics=topics), version), MAX_ELEMENTS)
    assert len(request.topics) == count == 10_000


def test_tagged_fields_count_too():
    frame = bytearray(frame_of(DescribeGroupsRequest(groups=["g" * 30] * 100), 5))
    assert frame[-1] == 0
    frame[-1:] = b"\xd0\x0f" + b"\x64\x00" * 2000
    assert parse_counted(frame, 2100)[2] == 2100
    with pytest.raises(TooManyElements):
        parse_counted(frame, 2099)


def test_nothing_else_of_a_connection_is_served_beside_one_in_turn(run):
    async def scenario(server):
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        served = []

        def heartbeat(request):
            served.append(request.group_id)
            return HeartbeatResponse()

        server.heartbeat = heartbeat
        client = await server.connect()
        client.send(client.heartbeat(1, "first"))
        await client.answer(1)
        (session,) = server.connections._open
        session.park(future, lambda done: [client.heartbeat(2)], False)
        client.send(client.heartbeat(3, "after") + client.heartbeat(4, "last"))
        other = await server.connect()
        other.send(other.heartbeat(1, "other"))
        await other.answer(1)
        assert served == ["first", "other"]
        future.set_result(None)
        await client.frame()
        await client.answer(3)
        await client.answer(4)
        assert served == ["first", "other", "after", "last"]

    run(scenario)


def test_too_many_elements_close_the_connection_and_say_so(run, caplog):
    threads = threading.active_count()  # clients and brokers of other tests have some

    async def scenario(server):
        client = await server.connect()
        frame = frame_of(DescribeGroupsRequest(groups=["g"] * (MAX_ELEMENTS + 1)), 5)
        # Heartbeat's own key: this server serves nothing else.
        client.send((len(frame)).to_bytes(4, "big") + frame)
        assert await client.is_closed()

    run(scenario)
    assert "closing connection" in caplog.text
    assert threading.active_count() < threads + 50
