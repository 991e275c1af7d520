"""AlterPartition, which only leaders send. The controller accepts it only with the broker's present epoch."""

from __future__ import annotations

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.alter_partition import AlterPartitionRequest, PartitionData, TopicData


@pytest.mark.parametrize(
    ("broker", "epoch"), [(1, 1 << 40), (1, -1), (7, 1)], ids=["another life", "no epoch", "no such broker"]
)
def test_a_stranger_cannot_change_an_isr(wire, topic, broker, epoch):
    asked = PartitionData(partition_index=0, new_isr=[7])
    topics = [TopicData(topic_id=topic.id, partitions=[asked])]
    request = AlterPartitionRequest(broker_id=broker, broker_epoch=epoch, topics=topics)
    response = wire(request, version=2)
    assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
