"""The cost of a request grows linearly with its elements, and with existing objects only for a stated reason.

``make hostile`` runs this test, for some minutes. With ``-rA``, pytest prints the costs. A cost is the CPU
time of the whole process. The client's part of it is linear in the bytes.
"""

from __future__ import annotations

import time

import pytest
from tests.hostile.generated import Shape, World, array_paths, frame
from tests.hostile.measured import MeasuredBroker, exchange
from tests.hostile.world import Wire, populate

from barnabas.broker.server.handlers import load
from barnabas.kafka.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

APIS = list(load().values())
#: costs below this are noise, in seconds
NOISE = 0.002
#: a tenfold cost for ten times the elements is linear; sorting and a busy machine may add this factor
TOLERANCE = 2.5

#: the requests whose cost grows with what exists in the broker
GROWS = {
    "ListGroups": "it lists every group",
    "ListTransactions": "it lists every transaction",
}

pytestmark = [pytest.mark.hostile, pytest.mark.timeout(3600)]


def spent(broker: MeasuredBroker, request: bytes, repeats: int = 3) -> float:
    """Return the smallest CPU time of the process for a request, in seconds."""
    costs = []
    for _ in range(repeats):
        with broker.connect() as client:
            start = time.process_time()
            exchange(broker, client, request)
            costs.append(time.process_time() - start)
    return min(costs)


@pytest.fixture(scope="module")
def populated(tmp_path_factory):
    with MeasuredBroker(tmp_path_factory.mktemp("growth")) as broker:
        yield broker, populate(broker)


def wide_requests():
    for api in APIS:
        latest = api.versions[1]
        for path in array_paths(api.request, latest):
            yield pytest.param(api, latest, path, id=f"{api.name}-{'.'.join(path)}")


@pytest.mark.parametrize(("api", "version", "path"), list(wide_requests()))
def test_cost_is_linear_in_the_elements_of_a_request(populated, api, version, path):
    broker, world = populated
    frames = [
        frame(api.request, version, Shape("", path, distinct=True, most_elements=count), world)
        for count in (2_000, 10_000)  # the dispatcher divides both
    ]
    few, many = (spent(broker, each) for each in frames)
    factor = len(frames[1]) / len(frames[0])
    where = f"{api.name} {'.'.join(path)}"
    print(f"{where}: {few * 1000:.1f} ms, {many * 1000:.1f} ms for {factor:.1f} times as much")
    assert many <= NOISE + max(few, NOISE) * factor * TOLERANCE


THINGS = (1_000, 10_000)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory):
    """Start two brokers. The second one has ten times as many topics, groups, ACLs and transactional ids."""
    opened = []
    try:
        for count in THINGS:
            broker = MeasuredBroker(
                tmp_path_factory.mktemp(f"things-{count}"),
                authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                super_users="User:ANONYMOUS",
            )
            broker.__enter__()
            opened.append(broker)
            fill(broker, count)
        yield opened
    finally:
        for broker in opened:
            broker.__exit__()


def fill(broker: MeasuredBroker, count: int) -> None:
    wire = Wire(broker)
    for first in range(0, count, 1_000):
        numbers = range(first, first + 1_000)
        topics = [CreatableTopic(name=f"d{n}", num_partitions=1, replication_factor=1) for n in numbers]
        answer = wire(CreateTopicsRequest(topics=topics, timeout_ms=60_000))
        assert not any(topic.error_code for topic in answer.topics)
        rules = [
            AclCreation(
                resource_type=2,
                resource_name=f"n{n}",
                resource_pattern_type=3,
                principal=f"User:other{n}",
                host="*",
                operation=3,
                permission_type=3,
            )
            for n in numbers
        ]
        assert not any(each.error_code for each in wire(CreateAclsRequest(creations=rules)).results)
    wire(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    wire(FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]))
    for number in range(count):
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        topic = OffsetCommitRequestTopic(name="d1", partitions=[partition])
        wire(OffsetCommitRequest(group_id=f"g{number}", topics=[topic]), 8)
        wire(InitProducerIdRequest(transactional_id=f"t{number}", transaction_timeout_ms=60_000))
    wire.close()


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_cost_grows_with_what_exists_only_for_a_stated_reason(brokers, api):
    """The request has ten elements in each array, with names of topics, groups and ids that exist or not."""
    costs = []
    for broker in brokers:
        wire = Wire(broker)
        (found,) = wire(MetadataRequest(topics=[MetadataRequestTopic(name="d1")])).topics
        wire.close()
        world = World(topic="d1", topic_id=found.topic_id)
        shape = Shape("", None, distinct=True, most_elements=10)
        costs.append(spent(broker, frame(api.request, api.versions[1], shape, world), repeats=5))
    few, many = costs
    grows = many > 3 * max(few, NOISE)
    print(f"{api.name}: {few * 1000:.2f} ms, {many * 1000:.2f} ms with ten times as much")
    assert grows == (api.name in GROWS), GROWS.get(api.name, "it must not grow")
