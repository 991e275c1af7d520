"""A list that the broker makes in slices is equal to one that it makes at once."""

from __future__ import annotations

import pytest

from barnabas.broker.server.requests import long_work
from barnabas.kafka.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.kafka.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.kafka.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.kafka.protocol.messages.list_config_resources import ListConfigResourcesRequest
from barnabas.kafka.protocol.messages.list_groups import ListGroupsRequest
from barnabas.kafka.protocol.messages.list_transactions import ListTransactionsRequest
from barnabas.kafka.protocol.messages.metadata import MetadataRequest
from barnabas.kafka.protocol.messages.offset_commit import OffsetCommitRequest

LISTINGS = [
    (ListGroupsRequest(), 5),
    (ListGroupsRequest(states_filter=["empty"]), 4),
    (ListTransactionsRequest(), 2),
    (ListTransactionsRequest(transactional_id_pattern="t[12]"), 2),
    (ListTransactionsRequest(state_filters=["Ongoing", "Odd"]), 2),
    (DescribeLogDirsRequest(topics=None), 4),
    (DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="two", partitions=[1, 7])]), 4),
    (MetadataRequest(topics=None), 13),
    (MetadataRequest(topics=[]), 0),
    (ListConfigResourcesRequest(), 1),
]


@pytest.fixture
def filled(wire):
    wire(
        CreateTopicsRequest(
            topics=[
                CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in ("one", "two")
            ],
            timeout_ms=10_000,
        )
    )
    wire(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    wire(FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]))
    for number in range(4):
        wire(OffsetCommitRequest(group_id=f"g{number}"), 8)
        wire(InitProducerIdRequest(transactional_id=f"t{number}", transaction_timeout_ms=1000))


@pytest.mark.parametrize("request_, version", LISTINGS)
def test_slices_make_the_same_listing(wire, filled, monkeypatch, request_, version):
    expected = told(wire(request_, version))
    monkeypatch.setattr(long_work, "LISTED_AT_ONCE", 0)
    assert told(wire(request_, version)) == expected


def test_listing_of_many_topics_follows_their_changes(wire, monkeypatch):
    def check():
        for operations in (False, True):
            request_ = MetadataRequest(topics=None, include_topic_authorized_operations=operations)
            with monkeypatch.context() as patch:
                patch.setattr(long_work, "LISTED_AT_ONCE", 0)
                found = [wire(request_, 12) for _ in range(2)]
            assert found == [wire(request_, 12)] * 2
        listed = {topic.name: len(topic.partitions) for topic in found[0].topics}
        return [listed.get(name) for name in ("listed-growing", "listed-leaving", "listed-coming")]

    topics = [
        CreatableTopic(name=name, num_partitions=2, replication_factor=1)
        for name in ("listed-growing", "listed-leaving")
    ]
    wire(CreateTopicsRequest(topics=topics, timeout_ms=10_000))
    assert check() == [2, 2, None]
    more = CreatePartitionsTopic(name="listed-growing", count=5, assignments=None)
    (grown,) = wire(CreatePartitionsRequest(topics=[more], timeout_ms=10_000)).results
    assert not grown.error_code, grown
    new = CreatableTopic(name="listed-coming", num_partitions=1, replication_factor=1)
    wire(CreateTopicsRequest(topics=[new], timeout_ms=10_000))
    wire(DeleteTopicsRequest(topic_names=["listed-leaving"], timeout_ms=10_000), 5)
    assert check() == [5, None, 1]


def told(answer):
    for result in getattr(answer, "results", ()):
        result.usable_bytes = 0  # others write to that volume
    return answer
