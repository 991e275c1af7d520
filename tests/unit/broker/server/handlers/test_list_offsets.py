"""ListOffsets on a leader that does not know yet which records are committed (KIP-207)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.broker.server.handlers import list_offsets as handler
from barnabas.broker.storage import OffsetAtTimestamp
from barnabas.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)


class FakePartition:
    """A partition with ten records, of which five are committed."""

    has_committed_former_epochs = False
    leader_epoch = 6

    def __init__(self):
        self.log = SimpleNamespace(
            high_watermark=5,
            last_stable_offset=5,
            log_end_offset=10,
            log_start_offset=0,
            epochs=SimpleNamespace(epoch_at=lambda offset: 1),
            offset_for_timestamp=lambda timestamp, start=0, may_wait=True: OffsetAtTimestamp(
                timestamp, timestamp, 1
            ),
        )

    def check_leader(self, epoch):
        pass


def answer(partition, timestamp, *, version=11, replica_id=-1, isolation_level=0):
    replicas = SimpleNamespace(find=lambda topic, index: partition)
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name="t", partitions=[wanted])],
    )
    response = handler.list_offsets.handle(
        replicas, None, None, SimpleNamespace(api_version=version), request
    )
    (result,) = response.topics[0].partitions
    return result


def ask(partition, timestamp, **request):
    result = answer(partition, timestamp, **request)
    return result.error_code or result.offset


@pytest.fixture
def partition():
    return FakePartition()


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_the_latest_offset_is_not_available_before_the_watermark_passes_the_epochs_start(
    partition, isolation_level
):
    latest = {"timestamp": handler.LATEST, "isolation_level": isolation_level}
    assert ask(partition, **latest) == ErrorCode.OFFSET_NOT_AVAILABLE
    assert ask(partition, **latest, version=4) == ErrorCode.LEADER_NOT_AVAILABLE
    partition.has_committed_former_epochs = True
    assert ask(partition, **latest) == 5


def test_what_is_below_the_watermark_is_told_all_the_same(partition):
    assert ask(partition, handler.EARLIEST) == 0
    assert ask(partition, 3) == 3
    assert ask(partition, 7) == ErrorCode.OFFSET_NOT_AVAILABLE
    partition.has_committed_former_epochs = True
    assert ask(partition, 7) == -1


def test_an_empty_log_begins_in_the_epoch_of_its_leader(partition):
    partition.leader_epoch = 7
    assert answer(partition, handler.EARLIEST).leader_epoch == 1
    partition.log.log_start_offset = 10
    assert answer(partition, handler.EARLIEST).leader_epoch == 7


def test_a_broker_is_told_where_the_log_ends(partition):
    assert ask(partition, handler.LATEST, replica_id=2) == 10
