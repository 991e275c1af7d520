"""ListOffsets: by time, and at the special timestamps."""

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

T0 = 1_700_000_000_000


@pytest.fixture
def list_offset(wire):
    def ask(topic, timestamp, *, partition=0, version=11, leader_epoch=-1, **fields):
        wanted = ListOffsetsPartition(
            partition_index=partition, timestamp=timestamp, current_leader_epoch=leader_epoch
        )
        request = ListOffsetsRequest(
            topics=[ListOffsetsTopic(name=topic.name, partitions=[wanted])], **{"replica_id": -1, **fields}
        )
        (result,) = wire(request, version).topics[0].partitions
        return result

    return ask


@pytest.fixture
def filled(topic, produce, batch):
    """Create a topic with records of these timestamps: T0, T0+1, T0+2; T0+100, T0+101; T0+50."""
    produce(topic, batch(b"a", b"b", b"c", timestamp=T0))
    produce(topic, batch(b"d", b"e", timestamp=T0 + 100))
    produce(topic, batch(b"f", timestamp=T0 + 50))
    return topic


@pytest.mark.parametrize(
    ("timestamp", "found"),
    [
        pytest.param(-1, (-1, 6, 0), id="latest"),
        pytest.param(-2, (-1, 0, 0), id="earliest"),
        pytest.param(-3, (T0 + 101, 4, 0), id="max-timestamp"),
        pytest.param(-4, (-1, 0, 0), id="earliest-local"),
        pytest.param(-5, (-1, -1, -1), id="latest-tiered"),
        pytest.param(-6, (-1, -1, -1), id="earliest-pending-upload"),
        pytest.param(0, (T0, 0, 0), id="before-everything"),
        pytest.param(T0 + 1, (T0 + 1, 1, 0), id="inside-a-batch"),
        pytest.param(T0 + 3, (T0 + 100, 3, 0), id="between-batches"),
        pytest.param(T0 + 102, (-1, -1, -1), id="after-everything"),
    ],
)
def test_offsets_by_timestamp(filled, list_offset, timestamp, found):
    result = list_offset(filled, timestamp)
    assert result.error_code == 0
    assert (result.timestamp, result.offset, result.leader_epoch) == found


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_is_served(filled, list_offset, version):
    assert list_offset(filled, -1, version=version).offset == 6
    assert list_offset(filled, T0 + 50, version=version).offset == 3


@pytest.mark.parametrize(("timestamp", "since"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_special_timestamps_need_their_version(filled, list_offset, timestamp, since):
    assert list_offset(filled, timestamp, version=since).error_code == 0
    before = list_offset(filled, timestamp, version=since - 1)
    assert before.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_special_timestamp_that_means_nothing_is_refused(filled, list_offset):
    assert list_offset(filled, -7).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_an_empty_partition_has_bounds_and_no_times(topic, list_offset):
    assert [list_offset(topic, t).offset for t in (-1, -2, -3, T0)] == [0, 0, -1, -1]


def test_read_committed_is_bounded_by_the_last_stable_offset(filled, list_offset):
    assert list_offset(filled, -1, isolation_level=1).offset == 6


def test_deleted_records_are_found_no_more(filled, list_offset, wire):
    wire(
        DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=filled.name, partitions=[DeleteRecordsPartition(partition_index=0, offset=2)]
                )
            ]
        )
    )
    assert list_offset(filled, -2).offset == 2
    assert list_offset(filled, T0).offset == 2


def test_what_does_not_exist_and_wrong_epochs_are_errors(filled, list_offset):
    assert list_offset(filled, -1, partition=3).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list_offset(filled, -1, leader_epoch=5).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert list_offset(filled, -1, leader_epoch=0).error_code == 0


def test_a_partition_named_twice_is_refused(filled, wire):
    twice = [ListOffsetsPartition(partition_index=0, timestamp=-1)] * 2
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=filled.name, partitions=twice)])
    results = wire(request).topics[0].partitions
    assert {result.error_code for result in results} == {ErrorCode.INVALID_REQUEST}
