"""Fixtures for tests against a running broker."""

from __future__ import annotations

import itertools
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.framing import RequestHeader, encode_request, parse_response
from barnabas.kafka.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.kafka.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.kafka.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.kafka.protocol.messages.offset_fetch import OffsetFetchRequest
from barnabas.kafka.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.kafka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.kafka.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.kafka.protocol.schema import Request
from barnabas.kafka.records import Record, all_records, encode_batch
from barnabas.testing.cluster import Cluster
from barnabas.testing.plugin import shared_broker

UPGRADE, SAFE_DOWNGRADE = 1, 2


@pytest.fixture(scope="session")
def barnabas_settings() -> Mapping[str, str]:
    """Settings with which members of consumer groups learn of a rebalance at once."""
    return {
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "100",
    }


@pytest.fixture(scope="module")
def barnabas_broker(pytestconfig: pytest.Config, barnabas_settings: Mapping[str, str]) -> Iterator[Cluster]:
    """A broker that the tests of one file share: two files can use the same names of topics and groups.

    One worker runs all tests of the file (`tests/conftest.py`). So two tests that create the same topic fail
    each time, and not only when they meet on a worker.
    """
    yield from shared_broker(pytestconfig, barnabas_settings)


class Wire:
    """A connection that sends any request in any version, and waits for each answer."""

    def __init__(self, bootstrap_servers: str) -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self._ids = itertools.count(1)

    def __call__(self, request: Request, version: int | None = None, *, client_id: str = "wire") -> Any:
        """Send `request`, by default in its latest version, and return the answer."""
        return self.receive(self.send(request, version, client_id=client_id))

    def send(self, request: Request, version: int | None = None, *, client_id: str = "wire") -> RequestHeader:
        version = request.versions[1] if version is None else version
        header = RequestHeader(request.api_key, version, next(self._ids), client_id)
        self.socket.sendall(b"".join(encode_request(header, request)))
        return header

    def receive(self, header: RequestHeader) -> Any:
        return parse_response(header, self.frame())

    def frame(self) -> bytes:
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def is_closed(self) -> bool:
        """Return whether the broker closes the connection without sending another byte."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.socket.close()

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError(f"closed by the broker after {len(data)} of {size} bytes")
            data += part
        return bytes(data)


def use_share_groups(wire: Wire, level: int | None = None) -> None:
    """Enable share groups in the cluster at a level, or disable them: 0.

    By default at the highest level that the broker supports. Apache Kafka 4.2 does not support level 2.
    """
    if level is None:
        offered = wire(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
        (level,) = [each.max_version for each in offered.supported_features if each.name == "share.version"]
    for kind in (UPGRADE, SAFE_DOWNGRADE):  # the one that applies
        update = FeatureUpdateKey(feature="share.version", max_version_level=level, upgrade_type=kind)
        wire(UpdateFeaturesRequest(feature_updates=[update]))
    answer = wire(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
    levels = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    assert levels.get("share.version", 0) == level


@pytest.fixture
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[..., Wire]]:
    """Open connections: to the shared broker, or to another broker or address."""
    opened: list[Wire] = []

    def open_connection(broker: Any = None) -> Wire:
        broker = broker or request.getfixturevalue("barnabas_broker")
        opened.append(Wire(broker if isinstance(broker, str) else broker.bootstrap_servers))
        return opened[-1]

    yield open_connection
    for wire in opened:
        wire.close()


@pytest.fixture
def wire(connect: Callable[[], Wire]) -> Wire:
    """Connect to the broker that tests share."""
    return connect()


@pytest.fixture
def batch() -> Callable[..., bytes]:
    """Make a record batch of values: ``batch(b"a", b"b", producer_id=1, ...)``."""

    def make(
        *values: bytes, key: bytes | None = None, timestamp: int = 1_700_000_000_000, **header: Any
    ) -> bytes:
        records = [
            Record(key=key, value=value, timestamp=timestamp + number) for number, value in enumerate(values)
        ]
        return encode_batch(records, **header)

    return make


class Begun:
    """The threads that one thread has started, and those that these have started."""

    def __init__(self) -> None:
        self._starters = {threading.current_thread()}

    def note(self, thread: threading.Thread) -> None:
        """Note a thread that the current thread is about to start."""
        if threading.current_thread() in self._starters:
            self._starters.add(thread)

    def alive(self) -> list[threading.Thread]:
        return [each for each in self._starters if each.is_alive() and each is not threading.current_thread()]

    def assert_ended(self) -> None:
        """Check that all threads have ended. The calls of an abandoned pool end by themselves."""
        for thread in self.alive():
            thread.join(60)
            assert not thread.is_alive(), thread.name


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Begun:
    """Collect the threads that the test starts, directly or not."""
    found, start = Begun(), threading.Thread.start

    def note_and_start(thread: threading.Thread) -> None:
        found.note(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", note_and_start)
    return found


class Topic(NamedTuple):
    """A topic that was created for one test."""

    name: str
    id: bytes


@pytest.fixture
def make_topic(request: pytest.FixtureRequest) -> Callable[..., Topic]:
    """Create a topic with a new name: ``make_topic(partitions=3, **{"retention.ms": "1000"})``."""

    def make(partitions: int = 1, *, by: Wire | None = None, **configs: str) -> Topic:
        name = f"topic-{uuid.uuid4().hex[:12]}"
        wire = by or request.getfixturevalue("wire")
        response = wire(
            CreateTopicsRequest(
                topics=[
                    CreatableTopic(
                        name=name,
                        num_partitions=partitions,
                        replication_factor=-1,
                        configs=[CreatableTopicConfig(name=n, value=v) for n, v in configs.items()],
                    )
                ],
                timeout_ms=10_000,
            )
        )
        (topic,) = response.topics
        assert topic.error_code == 0, topic
        _await_leaders(wire, name, partitions)
        return Topic(name, topic.topic_id)

    return make


def _await_leaders(wire: Wire, topic: str, partitions: int) -> None:
    """Wait for the leaders. Barnabas has them when it answers, Apache Kafka (``--barnabas-servers``) a moment
    later.
    """
    wanted = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=wanted)])
    deadline = time.monotonic() + 60
    while any(result.error_code for result in wire(request).topics[0].partitions):
        assert time.monotonic() < deadline, f"{topic} got no leaders"
        time.sleep(0.02)


@pytest.fixture
def topic(make_topic: Callable[..., Topic]) -> Topic:
    """Create a topic with one partition."""
    return make_topic()


@pytest.fixture
def produce(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Send batches to one topic: ``produce(topic, data, partition=1)``. Return the
    answer for the partition.
    """

    def send(
        topic: Topic,
        records: bytes,
        *,
        partition: int = 0,
        acks: int = -1,
        version: int = 13,
        client_id: str = "wire",
        by: Wire | None = None,
    ) -> PartitionProduceResponse:
        wire = by or request.getfixturevalue("wire")
        sent = ProduceRequest(
            acks=acks,
            timeout_ms=10_000,
            topic_data=[
                TopicProduceData(
                    name=topic.name,
                    topic_id=topic.id,
                    partition_data=[PartitionProduceData(index=partition, records=records)],
                )
            ],
        )
        response = wire(sent, version, client_id=client_id)
        (answered,) = response.responses
        assert (answered.topic_id if version >= 13 else answered.name) == (
            topic.id if version >= 13 else topic.name
        )
        (result,) = answered.partition_responses
        assert result.index == partition
        return result

    return send


@pytest.fixture
def fetch_request() -> Callable[..., FetchRequest]:
    """Make a fetch of one topic: ``fetch_request(topic, {partition: offset}, min_bytes=10)``."""

    def make(
        topic: Topic,
        offsets: Mapping[int, int],
        *,
        partition_max_bytes: int = 1 << 20,
        leader_epoch: int = -1,
        **fields: Any,
    ) -> FetchRequest:
        wanted = [
            FetchPartition(
                partition=partition,
                fetch_offset=offset,
                partition_max_bytes=partition_max_bytes,
                current_leader_epoch=leader_epoch,
            )
            for partition, offset in offsets.items()
        ]
        topics = [FetchTopic(topic=topic.name, topic_id=topic.id, partitions=wanted)] if wanted else []
        return FetchRequest(**{"max_wait_ms": 0, "min_bytes": 1, "topics": topics, **fields})

    return make


@pytest.fixture
def read_values() -> Callable[[Any], list[bytes | None]]:
    """Return the values of all records in a fetched partition."""

    def read(data: PartitionData) -> list[bytes | None]:
        return [record.value for record in all_records(data.records or b"")]

    return read


# --- groups ---


@pytest.fixture
def group_id(wire: Wire) -> str:
    """Return the id of a new group, when its coordinator answers. Apache Kafka's needs a moment."""
    name = f"group-{uuid.uuid4().hex[:12]}"
    deadline = time.monotonic() + 60
    while True:
        found = wire(FindCoordinatorRequest(key=name), 2).error_code
        if not found and not wire(DescribeGroupsRequest(groups=[name]), 5).groups[0].error_code:
            return name
        assert time.monotonic() < deadline, f"no coordinator for {name}"
        time.sleep(0.05)


class Member(NamedTuple):
    """A member of a stable group, and its connection."""

    member_id: str
    generation: int
    wire: Wire


def subscription(*topics: str) -> bytes:
    """Return a consumer's metadata in version 0: topics, and no user data."""
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


@pytest.fixture
def join_request(group_id: str) -> Callable[..., JoinGroupRequest]:
    """Make a correct JoinGroup request: ``join_request(member_id=..., protocols={"range": b""})``."""

    def make(*, protocols: Mapping[str, bytes] | None = None, **fields: Any) -> JoinGroupRequest:
        supported = {"range": subscription()} if protocols is None else protocols
        defaults = {
            "group_id": group_id,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol(name=n, metadata=m) for n, m in supported.items()],
        }
        return JoinGroupRequest(**{**defaults, **fields})

    return make


@pytest.fixture
def join(connect: Callable[[], Wire], join_request: Callable[..., JoinGroupRequest]) -> Callable[..., Member]:
    """Create a stable group with one member: ``join(group_instance_id="a", topics=["t"])``."""

    def make(*, topics: tuple[str, ...] = (), **fields: Any) -> Member:
        wire = connect()
        if topics:
            fields["protocols"] = {"range": subscription(*topics)}
        joined = wire(join_request(**fields))
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            joined = wire(join_request(member_id=joined.member_id, **fields))
        assert joined.error_code == 0, joined
        member = Member(joined.member_id, joined.generation_id, wire)
        synced = wire(
            SyncGroupRequest(
                group_id=fields.get("group_id", join_request().group_id),
                generation_id=member.generation,
                member_id=member.member_id,
                group_instance_id=fields.get("group_instance_id"),
                protocol_type=joined.protocol_type,
                protocol_name=joined.protocol_name,
                assignments=[SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"all")],
            )
        )
        assert (synced.error_code, synced.assignment) == (0, b"all")
        return member

    return make


@pytest.fixture
def commit_request(group_id: str) -> Callable[..., OffsetCommitRequest]:
    """Make a commit of offsets by partition: ``commit_request(topic, {0: 5},
    metadata="m", member_id=...)``.
    """

    def make(
        topic: Topic, offsets: Mapping[int, int], *, metadata: str | None = "", epoch: int = -1, **fields: Any
    ) -> OffsetCommitRequest:
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=epoch,
                committed_metadata=metadata,
            )
            for partition, offset in offsets.items()
        ]
        wanted = OffsetCommitRequestTopic(name=topic.name, topic_id=topic.id, partitions=partitions)
        return OffsetCommitRequest(**{"group_id": group_id, "topics": [wanted], **fields})

    return make


@pytest.fixture
def committed(wire: Wire, group_id: str) -> Callable[..., dict[int, int]]:
    """Return the committed offsets of a group for a topic, by partition."""

    def read(topic: Topic, group: str = group_id) -> dict[int, int]:
        response = wire(OffsetFetchRequest(group_id=group, topics=None), 7)
        assert response.error_code == 0
        return {
            partition.partition_index: partition.committed_offset
            for answered in response.topics
            if answered.name == topic.name
            for partition in answered.partitions
        }

    return read
