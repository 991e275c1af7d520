"""The cost of a request grows linearly with its elements, and with existing objects only for a stated reason.

``make hostile`` runs this test, for some minutes. A cost is the CPU time of the whole process. The client's
part of it is linear in the bytes. If BARNABAS_GROWTH is the name of a file, the tests write their costs to
it, as the tables of docs/development/growth.md.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from tests.hostile.generated import Shape, World, array_paths, frame
from tests.hostile.measured import MeasuredBroker, exchange
from tests.hostile.world import Wire, populate

from barnabas.base.types import topic_id_to_str
from barnabas.broker.server.handlers import load
from barnabas.kafka.protocol.framing import RequestHeader, encode_request
from barnabas.kafka.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from barnabas.kafka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.kafka.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.kafka.protocol.messages.describe_share_partitions import (
    DescribeSharePartitionsRequest,
    PartitionRequest,
    TopicRequest,
)
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.kafka.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
)
from barnabas.kafka.protocol.messages.initialize_share_group_state import (
    PartitionData as InitializedPartition,
)
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.protocol.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from barnabas.kafka.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
)
from barnabas.kafka.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.kafka.records import Record, encode_batch

APIS = list(load().values())
#: costs below this are noise, in seconds
NOISE = 0.002
#: a tenfold cost for ten times the elements is linear; sorting and a busy machine may add this factor
TOLERANCE = 2.5

#: elements of an array in a request; the dispatcher divides the last
ELEMENTS = (100, 1_000, 10_000)
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


@dataclass
class Costs:
    """The costs that the tests have measured, in seconds, by the first cell of their row."""

    of_elements: dict[str, list[float]] = field(default_factory=dict)
    of_things: dict[str, list[float]] = field(default_factory=dict)

    def tables(self) -> Iterator[str]:
        """The rows of both tables that are not noise, the most expensive first."""
        yield f"| request | {' | '.join(f'{count:,} elements' for count in ELEMENTS)} |"
        yield "|---|---:|---:|---:|"
        yield from _rows(self.of_elements, {})
        yield ""
        yield f"| request | {' | '.join(f'{count:,} of each' for count in THINGS)} | reason |"
        yield "|---|---:|---:|---|"
        yield from _rows(self.of_things, GROWS)


def _rows(costs: dict[str, list[float]], reasons: dict[str, str]) -> Iterator[str]:
    for name, spends in sorted(costs.items(), key=lambda item: -item[1][-1]):
        if spends[-1] > NOISE:
            cells = [
                *(f"{1000 * each:.1f} ms" for each in spends),
                *([reasons.get(name, "")] * bool(reasons)),
            ]
            yield f"| {name} | {' | '.join(cells)} |"


@pytest.fixture(scope="module")
def costs():
    measured = Costs()
    yield measured
    if file := os.environ.get("BARNABAS_GROWTH"):
        Path(file).write_text("\n".join([*measured.tables(), ""]))


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
def test_cost_is_linear_in_the_elements_of_a_request(populated, costs, api, version, path):
    broker, world = populated
    frames = [
        frame(api.request, version, Shape("", path, distinct=True, max_elements=count), world)
        for count in ELEMENTS
    ]
    spends = [spent(broker, each) for each in frames]
    costs.of_elements[f"{api.name} `{'.'.join(path)}`"] = spends
    for (few, few_bytes), (many, many_bytes) in pairwise(zip(spends, map(len, frames), strict=True)):
        assert many <= NOISE + max(few, NOISE) * many_bytes / few_bytes * TOLERANCE


THINGS = (1_000, 10_000)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory):
    """Start two brokers. The second one has ten times as many objects of each kind: see `fill`."""
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
    """Make topics, rules, quotas, groups of each kind, states of share groups and transactional ids."""
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
        quotas = [
            EntryData(
                entity=[EntityData(entity_type="user", entity_name=f"u{n}")],
                ops=[OpData(key="producer_byte_rate", value=1e9)],
            )
            for n in numbers
        ]
        assert not any(each.error_code for each in wire(AlterClientQuotasRequest(entries=quotas)).entries)
    (found,) = wire(MetadataRequest(topics=[MetadataRequestTopic(name="d1")])).topics
    wire(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    wire(FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]))
    wire(FindCoordinatorRequest(key_type=2, coordinator_keys=[f"g:{topic_id_to_str(found.topic_id)}:0"]))
    for number in range(count):
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        topic = OffsetCommitRequestTopic(name="d1", partitions=[partition])
        wire(OffsetCommitRequest(group_id=f"g{number}", topics=[topic]), 8)
        wire(InitProducerIdRequest(transactional_id=f"t{number}", transaction_timeout_ms=60_000))
        joins = {"member_id": f"m{number}", "rebalance_timeout_ms": 300_000, "topic_partitions": []}
        asked = wire(
            ConsumerGroupHeartbeatRequest(group_id=f"c{number}", subscribed_topic_names=["d1"], **joins)
        )
        assert not asked.error_code
        names = {"member_id": f"m{number}", "subscribed_topic_names": ["d1"]}
        assert not wire(ShareGroupHeartbeatRequest(group_id=f"s{number}", **names)).error_code
        states = [
            InitializeStateData(topic_id=found.topic_id, partitions=[InitializedPartition(partition=0)])
        ]
        (answer,) = wire(InitializeShareGroupStateRequest(group_id=f"g{number}", topics=states)).results
        assert not answer.partitions[0].error_code
    wire.close()


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_cost_grows_with_what_exists_only_for_a_stated_reason(brokers, costs, api):
    """The request has ten elements in each array, with names of topics, groups and ids that exist or not."""
    spends = []
    for broker in brokers:
        wire = Wire(broker)
        (found,) = wire(MetadataRequest(topics=[MetadataRequestTopic(name="d1")])).topics
        wire.close()
        world = World(topic="d1", topic_id=found.topic_id)
        shape = Shape("", None, distinct=True, max_elements=10)
        spends.append(spent(broker, frame(api.request, api.versions[1], shape, world), repeats=5))
    costs.of_things[api.name] = spends
    few, many = spends
    grows = many > 3 * max(few, NOISE)
    assert grows == (api.name in GROWS), GROWS.get(api.name, "it must not grow")


#: ranges of records in flight of a share partition: a page has 2,000
RANGES = (2_000, 10_000)


def test_the_cost_of_a_page_of_records_in_flight_does_not_grow_with_their_ranges(tmp_path):
    locks = {f"group_share_{name}partition_max_record_locks": RANGES[-1] for name in ("", "max_")}
    with MeasuredBroker(tmp_path, **locks) as broker:
        wire = Wire(broker)
        few, many = (spent(broker, page_of_ranges(wire, f"q{count}", count), 5) for count in RANGES)
        wire.close()
    assert many <= NOISE + TOLERANCE * few


def page_of_ranges(wire: Wire, topic: str, count: int) -> bytes:
    """Make a share partition with `count` ranges. Return the request for their first page."""
    creation = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
    wire(CreateTopicsRequest(topics=[creation], timeout_ms=60_000))
    (found,) = wire(MetadataRequest(topics=[MetadataRequestTopic(name=topic)])).topics
    batch = encode_batch([Record(key=None, value=b"v", timestamp=1_700_000_000_000)] * count)
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    wire(ProduceRequest(acks=1, topic_data=[data]), 9)
    wire(
        FindCoordinatorRequest(key_type=2, coordinator_keys=[f"{topic}:{topic_id_to_str(found.topic_id)}:0"])
    )
    initial = InitializedPartition(partition=0, state_epoch=1, start_offset=0)
    states = [InitializeStateData(topic_id=found.topic_id, partitions=[initial])]
    wire(InitializeShareGroupStateRequest(group_id=topic, topics=states))
    who = {"group_id": topic, "member_id": topic_id_to_str(found.topic_id)}
    fetched = FetchTopic(topic_id=found.topic_id, partitions=[FetchPartition(partition_index=0)])
    fetch = ShareFetchRequest(max_wait_ms=60_000, min_bytes=1, max_records=count, topics=[fetched], **who)
    (partition,) = wire(fetch).responses[0].partitions
    assert sum(each.last_offset - each.first_offset + 1 for each in partition.acquired_records) == count
    # released and accepted records in turn
    kinds = AcknowledgementBatch(
        first_offset=0, last_offset=count - 1, acknowledge_types=[2, 1] * (count // 2)
    )
    settled = AcknowledgePartition(partition_index=0, acknowledgement_batches=[kinds])
    topics = [AcknowledgeTopic(topic_id=found.topic_id, partitions=[settled])]
    (answer,) = wire(ShareAcknowledgeRequest(share_session_epoch=1, topics=topics, **who)).responses
    assert not answer.partitions[0].error_code
    asked = [TopicRequest(name=topic, partitions=[PartitionRequest(partition_index=0)])]
    request = DescribeSharePartitionsRequest(group_id=topic, topics=asked)
    (described,) = wire(request).topics[0].partitions
    assert len(described.state_batches) == min(2_000, count)
    assert described.next_offset == (2_000 if count > 2_000 else -1)
    header = RequestHeader(request.api_key, request.versions[1], 1, "meant well")
    return b"".join(map(bytes, encode_request(header, request)))
