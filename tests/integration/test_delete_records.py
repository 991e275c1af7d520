"""DeleteRecords: a new log start."""

import pytest

from barnabas.errors import ErrorCode
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)


@pytest.fixture
def delete(wire):
    def send(topic, offset, *, partition=0, version=2):
        wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
        request = DeleteRecordsRequest(
            timeout_ms=5000, topics=[DeleteRecordsTopic(name=topic.name, partitions=[wanted])]
        )
        (result,) = wire(request, version).topics[0].partitions
        return result.error_code, result.low_watermark

    return send


@pytest.fixture
def filled(topic, produce, batch):
    for n in range(5):
        produce(topic, batch(b"%d" % n))
    return topic


@pytest.mark.parametrize("version", range(3))
def test_records_below_the_offset_are_gone(filled, delete, wire, fetch_request, read_values, version):
    assert delete(filled, 3, version=version) == (0, 3)
    gone = wire(fetch_request(filled, {0: 2})).responses[0].partitions[0]
    assert gone.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    kept = wire(fetch_request(filled, {0: 3})).responses[0].partitions[0]
    assert read_values(kept) == [b"3", b"4"]
    assert kept.log_start_offset == 3


def test_minus_one_deletes_all_there_is(filled, delete, produce, batch):
    assert delete(filled, -1) == (0, 5)
    assert produce(filled, batch(b"next")).base_offset == 5


def test_deleting_less_than_is_gone_already_changes_nothing(filled, delete):
    assert delete(filled, 3) == (0, 3)
    assert delete(filled, 1) == (0, 3)


@pytest.mark.parametrize("offset", [6, -2])
def test_an_offset_that_cannot_be_is_out_of_range(filled, delete, offset):
    assert delete(filled, offset)[0] == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_compacted_topic_keeps_its_records(make_topic, produce, batch, delete):
    topic = make_topic(**{"cleanup.policy": "compact"})
    produce(topic, batch(b"a", key=b"k"))
    assert delete(topic, 1)[0] == ErrorCode.POLICY_VIOLATION


def test_a_partition_that_does_not_exist_is_an_error(topic, delete):
    assert delete(topic, 0, partition=2)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
