"""The layout of usual fetches agrees with the general codec, byte for byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.replication.fetch_layout import (
    MAX_PARTITIONS,
    SessionLayout,
    UsualFetch,
    encode_answer,
    layout_of,
    read_answer,
)
from barnabas.kafka.protocol.framing import (
    RequestHeader,
    encode_response,
    parse_request,
    parse_response,
)
from barnabas.kafka.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
COUNT = st.integers(0, 2**31 - 1)
IDS = st.sampled_from([bytes(range(16)), bytes(range(1, 17)), bytes([5]) * 16])
HEADER = RequestHeader(1, 17, 77, "broker-2")


def grouped(items):
    """Return items by their topic, as the codec has them, from a list that is in their order."""
    topics = []
    for topic_id, *rest in items:
        if not topics or topics[-1][0] != topic_id:
            topics.append((topic_id, []))
        topics[-1][1].append(rest)
    return topics


@given(
    st.lists(st.tuples(IDS, INT32, INT32, INT64, INT32, INT64, INT32), max_size=5),
    st.tuples(COUNT, COUNT, COUNT),
    st.tuples(st.integers(0, 2**31 - 1), INT64, COUNT, COUNT),
    st.binary(max_size=20),
)
def test_requests_are_those_of_the_codec(positions, limits, numbers, client_id):
    replica, broker_epoch, session_id, epoch = numbers
    layout = SessionLayout(client_id, replica, broker_epoch, session_id, limits)
    frame = UsualFetch(layout, epoch, positions).encode(77)
    max_wait_ms, min_bytes, max_bytes = limits
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=replica, replica_epoch=broker_epoch),
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchTopic(
                topic_id=topic_id,
                partitions=[
                    FetchPartition(
                        partition=index,
                        current_leader_epoch=leader_epoch,
                        fetch_offset=offset,
                        last_fetched_epoch=last_epoch,
                        log_start_offset=start,
                        partition_max_bytes=max_bytes,
                    )
                    for index, leader_epoch, offset, last_epoch, start, max_bytes in partitions
                ],
            )
            for topic_id, partitions in grouped(positions)
        ],
    )
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    assert parse_request(frame[4:])[1] == request
    found = layout_of(frame[4:])
    assert found.fits(frame[4:])
    assert found.read(frame[4:]) == (epoch, positions)
    assert (found.replica, found.broker_epoch, found.session_id) == (replica, broker_epoch, session_id)
    assert (found.max_wait_ms, found.min_bytes, found.max_bytes) == limits


@given(
    st.lists(st.tuples(IDS, INT32, INT64, INT64, INT64, st.sampled_from([0, 1, 130, 20_000])), max_size=5),
    COUNT,
)
def test_responses_are_those_of_the_codec(items, session_id):
    results = [(*fields, [bytes(size)] if size else [], size) for *fields, size in items]
    response = FetchResponse(
        session_id=session_id,
        responses=[
            FetchableTopicResponse(
                topic_id=topic_id,
                partitions=[
                    PartitionData(
                        partition_index=index,
                        high_watermark=high_watermark,
                        last_stable_offset=stable,
                        log_start_offset=start,
                        aborted_transactions=None,
                        records=[bytes(size)] if size else b"",
                    )
                    for index, high_watermark, stable, start, size in partitions
                ],
            )
            for topic_id, partitions in grouped(items)
        ],
    )
    frame = b"".join(map(bytes, encode_answer(77, session_id, results)))
    assert frame == b"".join(map(bytes, encode_response(HEADER, response)))
    found = read_answer(frame[4:])
    assert found.session_id == session_id
    assert [
        (*key, data.high_watermark, data.log_start_offset, data.records) for key, data in found.results
    ] == [(topic, index, mark, start, bytes(size)) for topic, index, mark, _, start, size in items]


def frame_of(**changes):
    data = {"aborted_transactions": None, "records": b"abc", "high_watermark": 1} | changes
    topics = [FetchableTopicResponse(topic_id=bytes(16), partitions=[PartitionData(**data)])]
    return b"".join(map(bytes, encode_response(HEADER, FetchResponse(responses=topics))))[4:]


def decode(frame):
    return UsualFetch(SessionLayout(b"", 2, 1, 1, (1, 1, 1)), 1, []).decode(frame)


def test_unusual_responses_are_left_to_the_codec():
    assert decode(frame_of()) is not None
    for changes in (
        {"error_code": 6},
        {"diverging_epoch": EpochEndOffset(epoch=1, end_offset=2)},
        {"aborted_transactions": []},
        {"records": None},
    ):
        assert decode(frame_of(**changes)) is None
    assert decode(b"".join(map(bytes, encode_response(HEADER, FetchResponse(error_code=70))))[4:]) is None
    many = [FetchableTopicResponse(topic_id=bytes(16), partitions=[PartitionData()] * MAX_PARTITIONS)]
    assert decode(b"".join(map(bytes, encode_response(HEADER, FetchResponse(responses=many))))[4:]) is None


@given(st.data())
def test_damaged_responses_are_read_as_the_codec_reads_them(data):
    frame = frame_of()
    place = data.draw(st.integers(4, len(frame) - 1))
    damaged = frame[:place] + bytes([data.draw(st.integers(0, 255))]) + frame[place + 1 :]
    damaged = damaged[: data.draw(st.sampled_from([len(frame)] * 3 + list(range(4, len(frame)))))]
    found = decode(damaged)
    if found is not None:
        response = parse_response(HEADER, damaged)
        (topic,) = response.responses or [FetchableTopicResponse()]
        assert [(topic.topic_id, each.partition_index) for each in topic.partitions] == [
            key for key, _ in found.results
        ]
        for each, (_, read) in zip(topic.partitions, found.results, strict=True):
            assert (each.high_watermark, each.log_start_offset, bytes(each.records)) == read[:3]


@pytest.mark.parametrize(("partitions", "is_usual"), [(64, True), (65, False)])
def test_a_usual_request_has_few_partitions_in_all_of_its_topics_together(partitions, is_usual):
    layout = SessionLayout(b"", 1, 1, 1, (500, 1, 1000))
    positions = [(bytes([index % 5]) * 16, index, 1, 5, 1, 0, 1000) for index in range(partitions)]
    positions.sort(key=lambda position: position[0])
    frame = UsualFetch(layout, 1, positions).encode(77)[4:]
    assert (layout.read(frame) is not None) == is_usual
