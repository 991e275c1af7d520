"""OffsetForLeaderEpoch: the end offsets of epochs, also after restarts of the leader."""

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


@pytest.fixture
def epoch_end(wire):
    def ask(topic, epoch, *, current=-1, partition=0, version=4, by=wire):
        wanted = OffsetForLeaderPartition(
            partition=partition, leader_epoch=epoch, current_leader_epoch=current
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic.name, partitions=[wanted])]
        )
        (result,) = by(request, version).topics[0].partitions
        return result.error_code, result.leader_epoch, result.end_offset

    return ask


@pytest.mark.parametrize("version", range(2, 5))
def test_the_current_epoch_ends_at_the_end_of_the_log(topic, produce, batch, epoch_end, version):
    assert epoch_end(topic, 0, version=version) == (0, 0, 0)
    produce(topic, batch(b"a", b"b"))
    assert epoch_end(topic, 0, version=version) == (0, 0, 2)


def test_an_epoch_that_has_not_come_is_unknown(topic, epoch_end):
    assert epoch_end(topic, 5) == (0, -1, -1)


def test_the_clients_idea_of_the_epoch_is_checked(topic, epoch_end):
    assert epoch_end(topic, 0, current=0)[0] == 0
    assert epoch_end(topic, 0, current=3)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert epoch_end(topic, 0, partition=1)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
