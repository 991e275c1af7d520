"""GetReplicaLogInfo: the log end offsets of a broker's replicas."""

from __future__ import annotations

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.get_replica_log_info import (
    EpochStart,
    GetReplicaLogInfoRequest,
    TopicPartitions,
)


def test_a_replica_tells_its_end_and_one_that_is_not_there_an_error(wire, topic, barnabas_broker):
    barnabas_broker.produce(topic.name, "a", "b", "c")
    asked = [TopicPartitions(topic_id=topic.id, partitions=[0, 7])]
    asked.append(TopicPartitions(topic_id=b"\x01" * 16, partitions=[0]))
    response = wire(GetReplicaLogInfoRequest(broker_id=1, topic_partitions=asked))
    [there, missing], [strange] = (each.partition_log_info for each in response.topic_partition_log_info_list)
    assert (there.error_code, there.log_end_offset, there.last_written_leader_epoch) == (0, 3, 0)
    assert (there.current_leader_epoch, there.epoch_starts) == (0, [])
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert strange.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_replica_tells_its_leader_epochs_if_it_is_asked_for_them(wire, topic, barnabas_broker):
    barnabas_broker.produce(topic.name, "a")
    asked = [TopicPartitions(topic_id=topic.id, partitions=[0])]
    request = GetReplicaLogInfoRequest(broker_id=1, topic_partitions=asked, include_epoch_starts=True)
    [info] = wire(request).topic_partition_log_info_list[0].partition_log_info
    assert info.epoch_starts == [EpochStart(leader_epoch=0, start_offset=0)]
