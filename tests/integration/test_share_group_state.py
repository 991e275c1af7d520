"""The APIs of the share coordinator: 83 to 87, and FindCoordinator for share partitions."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from tests.integration.conftest import use_share_groups

from barnabas.base.errors import ErrorCode
from barnabas.base.types import SHARE_GROUP_STATE_TOPIC
from barnabas.broker.coordinator import SharePartitionKey
from barnabas.kafka.protocol.messages import (
    delete_share_group_state as deleting,
)
from barnabas.kafka.protocol.messages import (
    initialize_share_group_state as initializing,
)
from barnabas.kafka.protocol.messages import (
    read_share_group_state as reading,
)
from barnabas.kafka.protocol.messages import (
    read_share_group_state_summary as summing,
)
from barnabas.kafka.protocol.messages import (
    write_share_group_state as writing,
)
from barnabas.kafka.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.kafka.protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from barnabas.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.kafka.protocol.messages.read_share_group_state import ReadShareGroupStateRequest
from barnabas.kafka.protocol.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from barnabas.kafka.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.kafka.protocol.messages.write_share_group_state import WriteShareGroupStateRequest
from barnabas.testing import BarnabasBroker

APIS = {83, 84, 85, 86, 87}
EARLIEST = -2


@pytest.fixture
def broker(tmp_path):
    with BarnabasBroker(
        {"share.coordinator.state.topic.num.partitions": "2"}, data=tmp_path / "data"
    ) as broker:
        broker.create_topic("t", 3)
        yield broker


@pytest.fixture
def wire(broker, connect):
    wire = connect(broker)
    use_share_groups(wire)
    return wire


def topic_id(wire) -> bytes:
    (topic,) = wire(MetadataRequest(topics=[MetadataRequestTopic(name="t")])).topics
    return topic.topic_id


def find(wire, *keys: str, version: int = 6) -> list[tuple[int, int]]:
    found = wire(FindCoordinatorRequest(key_type=2, coordinator_keys=list(keys)), version)
    return [(each.error_code, each.node_id) for each in found.coordinators]


def ask(
    wire, module: ModuleType, request: type, topic: type, version: int | None = None, **fields: Any
) -> Any:
    """Return the part of the answer for partition t-0 of the group g."""
    data = module.PartitionData(partition=fields.pop("partition", 0), **fields)
    wanted = topic(topic_id=topic_id(wire), partitions=[data])
    (result,) = wire(request(group_id="g", topics=[wanted]), version).results
    (partition,) = result.partitions
    assert result.topic_id == wanted.topic_id and partition.partition == data.partition
    return partition


def initialize(wire, **fields):
    return ask(
        wire, initializing, InitializeShareGroupStateRequest, initializing.InitializeStateData, **fields
    )


def read(wire, **fields):
    return ask(wire, reading, ReadShareGroupStateRequest, reading.ReadStateData, **fields)


def write(wire, *batches, **fields):
    fields["state_batches"] = [
        writing.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in batches
    ]
    return ask(wire, writing, WriteShareGroupStateRequest, writing.WriteStateData, **fields)


def delete(wire, **fields):
    return ask(wire, deleting, DeleteShareGroupStateRequest, deleting.DeleteStateData, **fields)


def summary(wire, **fields):
    return ask(wire, summing, ReadShareGroupStateSummaryRequest, summing.ReadStateSummaryData, **fields)


def find_share_coordinator(wire) -> None:
    """Create the internal topic, and wait for a leader of its partition."""
    key = str(SharePartitionKey("g", topic_id(wire), 0))
    while find(wire, key)[0][0]:
        pass


def ready(wire) -> None:
    """Create the internal topic, and wait until its shards are loaded."""
    find_share_coordinator(wire)
    while summary(wire).error_code:
        pass


def log_start(wire) -> int:
    """Return the log start of the first partition of the internal topic."""
    partition = ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)
    topic = ListOffsetsTopic(name=SHARE_GROUP_STATE_TOPIC, partitions=[partition])
    (found,) = wire(ListOffsetsRequest(topics=[topic]), 7).topics
    return found.partitions[0].offset


def test_a_state_is_initialized_written_read_and_deleted(wire):
    ready(wire)
    assert read(wire, leader_epoch=0).error_code == ErrorCode.INVALID_REQUEST
    assert initialize(wire, state_epoch=2, start_offset=5).error_code == 0
    assert write(wire, (5, 9, 0, 1), (12, 14, 2, 3), state_epoch=2, delivery_complete_count=3).error_code == 0
    found = read(wire, leader_epoch=1)
    assert (found.error_code, found.state_epoch, found.start_offset) == (0, 2, 5)
    assert [
        (each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in found.state_batches
    ] == [(5, 9, 0, 1), (12, 14, 2, 3)]
    assert write(wire, state_epoch=2, leader_epoch=0).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert initialize(wire, state_epoch=1).error_code == ErrorCode.FENCED_STATE_EPOCH
    known = summary(wire)
    assert (known.state_epoch, known.leader_epoch, known.start_offset) == (2, 1, 5)
    assert known.delivery_complete_count == 3
    assert summary(wire, version=0).delivery_complete_count == -1
    assert delete(wire).error_code == delete(wire).error_code == 0
    assert summary(wire).start_offset == -1


def test_a_write_without_the_number_of_finished_records_makes_it_unknown(wire):
    ready(wire)
    initialize(wire)
    write(wire, delivery_complete_count=3)
    assert write(wire, version=0, start_offset=7).error_code == 0
    known = summary(wire)
    assert (known.start_offset, known.delivery_complete_count) == (7, -1)


def test_a_restart_reads_the_states_again(broker, wire, connect):
    ready(wire)
    initialize(wire)
    for offset in range(10):
        write(wire, (offset, offset, 2, 1), delivery_complete_count=offset + 1)
    broker.restart()
    again = connect(broker)
    ready(again)
    (batch,) = read(again).state_batches
    assert (batch.first_offset, batch.last_offset, summary(again).delivery_complete_count) == (0, 9, 10)


def test_superseded_records_are_deleted_from_the_log(tmp_path, connect):
    settings = {
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.snapshot.update.records.per.snapshot": "2",
        "share.coordinator.state.topic.prune.interval.ms": "20",
    }
    with BarnabasBroker(settings, data=tmp_path / "data") as broker:
        broker.create_topic("t", 3)
        wire = connect(broker)
        use_share_groups(wire)
        ready(wire)
        initialize(wire)
        written = 0
        while log_start(wire) == 0:
            write(wire, (written, written, 2, 1))
            written += 1
        broker.restart()
        wire = connect(broker)
        ready(wire)
        (batch,) = read(wire).state_batches
        assert (batch.first_offset, batch.last_offset) == (0, written - 1)


def test_share_partitions_that_do_not_exist_are_refused(wire):
    ready(wire)
    assert initialize(wire, partition=3).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert initialize(wire, partition=-1).error_code == ErrorCode.INVALID_REQUEST


def test_a_key_that_names_no_share_partition_is_refused(wire):
    ready(wire)
    identifier = "a" * 22
    wrong = ["", "g", f"g:{identifier}", f"g:{identifier}:x", f"g:{identifier[1:]}:0", f":{identifier}:0"]
    assert find(wire, *wrong) == [(ErrorCode.INVALID_REQUEST, -1)] * len(wrong)
    assert find(wire, f"a:b\n:{identifier}:0") == [(0, 1)]
    assert find(wire, f"g:{identifier}:0", version=5) == [(ErrorCode.INVALID_REQUEST, -1)]


def advertised(wire) -> set[int]:
    answer = wire(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
    return {each.api_key for each in answer.api_keys}


def test_without_the_feature_the_apis_are_unknown(broker, connect):
    wire = connect(broker)
    use_share_groups(wire, level=0)
    assert APIS.isdisjoint(advertised(wire))
    assert find(wire, "g:" + "a" * 22 + ":0") == [(ErrorCode.INVALID_REQUEST, -1)]
    use_share_groups(wire)
    assert advertised(wire) >= APIS
    ready(wire)
    downgrade = FeatureUpdateKey(feature="share.version", max_version_level=0, upgrade_type=2)
    assert wire(UpdateFeaturesRequest(feature_updates=[downgrade])).error_code == 0
    assert APIS.isdisjoint(advertised(wire))
    other = connect(broker)
    other.send(ReadShareGroupStateRequest(group_id="g"))
    assert other.is_closed()
