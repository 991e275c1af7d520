"""Any broker of a cluster accepts requests for the controller, and shows their results at once."""

from __future__ import annotations

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from barnabas.kafka.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.kafka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.kafka.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.kafka.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

TOPIC = 2


@pytest.fixture
def cluster(barnabas_cluster):
    return barnabas_cluster(brokers=3)


def described(wire, name, *, make=False):
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=make)
    return wire(request).topics[0]


def test_topics_are_made_changed_and_deleted_by_every_broker(cluster, connect):
    for broker in cluster.brokers:
        wire = connect(cluster.address_of(broker))
        name = f"by-{broker}"
        wanted = CreatableTopic(name=name, num_partitions=2, replication_factor=3)
        (made,) = wire(CreateTopicsRequest(topics=[wanted])).topics
        assert (made.error_code, made.num_partitions) == (0, 2)
        topic = described(wire, name)
        assert topic.topic_id == made.topic_id
        assert all(partition.leader_id in cluster.brokers for partition in topic.partitions)
        (again,) = wire(CreateTopicsRequest(topics=[wanted])).topics
        assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS

        grown = CreatePartitionsTopic(name=name, count=4, assignments=None)
        assert wire(CreatePartitionsRequest(topics=[grown])).results[0].error_code == 0
        assert len(described(wire, name).partitions) == 4

        change = AlterableConfig(name="retention.ms", config_operation=0, value="1234567")
        resource = AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[change])
        assert wire(IncrementalAlterConfigsRequest(resources=[resource])).responses[0].error_code == 0
        asked = DescribeConfigsResource(
            resource_type=TOPIC, resource_name=name, configuration_keys=["retention.ms"]
        )
        (answer,) = wire(DescribeConfigsRequest(resources=[asked])).results
        assert [config.value for config in answer.configs] == ["1234567"]

        gone = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
        assert wire(gone).responses[0].error_code == 0
        assert described(wire, name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_missing_topics_are_made_by_every_broker(cluster, connect):
    for broker in cluster.brokers:
        wire = connect(cluster.address_of(broker))
        topic = described(wire, f"missing-{broker}", make=True)
        assert topic.error_code == 0
        assert [len(partition.replica_nodes) for partition in topic.partitions] == [3]


def test_every_broker_names_the_same_coordinators_and_controller(cluster, connect):
    wires = [connect(cluster.address_of(broker)) for broker in cluster.brokers]
    keys = [f"key-{number}" for number in range(20)]
    for key_type in (0, 1):
        # The first of them makes the internal topic.
        named = [
            {
                found.key: (found.error_code, found.node_id)
                for found in wire(
                    FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)
                ).coordinators
            }
            for wire in wires
        ]
        assert named[0] == named[1] == named[2]
        assert {broker for error, broker in named[0].values() if not error} == set(cluster.brokers)
    controllers = {wire(DescribeClusterRequest()).controller_id for wire in wires}
    assert controllers == {cluster.controller()}


def test_no_two_brokers_give_out_one_producer_id(cluster, connect):
    given = [
        wire(InitProducerIdRequest(transactional_id=None)).producer_id
        for wire in (connect(cluster.address_of(broker)) for broker in cluster.brokers)
        for _ in range(3)
    ]
    assert len(set(given)) == len(given)
    assert -1 not in given


def test_only_brokers_as_they_are_registered_get_blocks_of_producer_ids(cluster, connect):
    wire = connect(cluster.address_of(cluster.controller()))
    stale = wire(AllocateProducerIdsRequest(broker_id=1, broker_epoch=0))
    assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH
    unknown = wire(AllocateProducerIdsRequest(broker_id=9, broker_epoch=0))
    assert unknown.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_a_request_waits_for_the_next_controller(cluster, connect):
    killed = cluster.controller()
    asked = next(broker for broker in cluster.brokers if broker != killed)
    wire = connect(cluster.address_of(asked))
    cluster.kill(killed)
    wanted = CreatableTopic(name="patient", num_partitions=1, replication_factor=2)
    # The session of the killed one lives on for two seconds.
    (made,) = wire(CreateTopicsRequest(topics=[wanted], timeout_ms=15_000)).topics
    assert made.error_code == 0
    assert described(wire, "patient").error_code == 0
