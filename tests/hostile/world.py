"""The objects in a broker to which hostile requests refer."""

from __future__ import annotations

import hashlib
import itertools
import socket
from typing import Any

from tests.hostile.generated import World
from tests.hostile.measured import PASSWORD, MeasuredBroker

from barnabas.base.types import topic_id_to_str
from barnabas.kafka.protocol.framing import RequestHeader, encode_request, parse_response
from barnabas.kafka.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from barnabas.kafka.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.kafka.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
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
from barnabas.kafka.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.protocol.messages.write_share_group_state import PartitionData as WrittenPartition
from barnabas.kafka.protocol.messages.write_share_group_state import (
    StateBatch,
    WriteShareGroupStateRequest,
    WriteStateData,
)
from barnabas.kafka.protocol.schema import Request
from barnabas.kafka.records import Record, encode_batch

TOPICS = 300
PARTITIONS = 300


class Wire:
    """A connection for normal requests."""

    def __init__(self, broker: MeasuredBroker) -> None:
        self._socket = socket.create_connection(broker.address, timeout=60)
        self._ids = itertools.count(1)

    def __call__(self, request: Request, version: int | None = None) -> Any:
        version = request.versions[1] if version is None else version
        header = RequestHeader(request.api_key, version, next(self._ids), "meant well")
        self._socket.sendall(b"".join(bytes(chunk) for chunk in encode_request(header, request)))
        return parse_response(header, self._exactly(int.from_bytes(self._exactly(4), "big")))

    def together(self, requests: list[Request], version: int) -> list[Any]:
        """Send requests in one write, and return their answers."""
        headers = [RequestHeader(r.api_key, version, next(self._ids), "meant well") for r in requests]
        frames = [encode_request(header, r) for header, r in zip(headers, requests, strict=True)]
        self._socket.sendall(b"".join(bytes(chunk) for frame in frames for chunk in frame))
        return [
            parse_response(header, self._exactly(int.from_bytes(self._exactly(4), "big")))
            for header in headers
        ]

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionError("closed by the broker")
            data += part
        return bytes(data)

    def close(self) -> None:
        self._socket.close()


#: settings of a broker that knows its clients: who comes by the first listener may do everything
WITH_AUTHORIZER = {
    "listeners": ("PLAINTEXT://127.0.0.1:0", "SASL_PLAINTEXT://127.0.0.1:0"),
    "sasl_enabled_mechanisms": ("PLAIN",),
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:ANONYMOUS",
}
#: rules of other users; about as many topics
RULES = 2000


def admit(broker: MeasuredBroker, user: str) -> None:
    """Create a user with some permissions on half of the topics. Later requests are from this user."""
    wire = Wire(broker)
    salted = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), b"salt for tests", 4096)
    upsertion = ScramCredentialUpsertion(
        name=user, mechanism=1, iterations=4096, salt=b"salt for tests", salted_password=salted
    )
    answer = wire(AlterUserScramCredentialsRequest(upsertions=[upsertion]))
    assert not any(result.error_code for result in answer.results)
    allowed = [
        (2, "here", 3, 2),
        (2, "d1", 4, 2),
        (2, "d2", 4, 7),
        (3, "g", 4, 2),
        (5, "t", 4, 2),
        (4, "kafka-cluster", 3, 8),
    ]
    creations = [
        AclCreation(
            resource_type=kind,
            resource_name=name,
            resource_pattern_type=pattern,
            principal=f"User:{user}",
            host="*",
            operation=operation,
            permission_type=3,
        )
        for kind, name, pattern, operation in allowed
    ]
    creations += [
        AclCreation(
            resource_type=2,
            resource_name=f"n{number}",
            resource_pattern_type=3 + number % 2,
            principal=f"User:other{number}",
            host="*",
            operation=3,
            permission_type=3,
        )
        for number in range(RULES)
    ]
    answer = wire(CreateAclsRequest(creations=creations))
    assert not any(result.error_code for result in answer.results)
    wire.close()
    broker.user = user


def populate(broker: MeasuredBroker) -> World:
    """Create topics, records, groups with offsets and members, and transactional ids."""
    wire = Wire(broker)
    compacted = [CreatableTopicConfig(name="cleanup.policy", value="compact")]
    topics = [
        CreatableTopic(name="here", num_partitions=PARTITIONS, replication_factor=1),
        CreatableTopic(name="compacted", num_partitions=1, replication_factor=1, configs=compacted),
        *(CreatableTopic(name=f"d{n}", num_partitions=1, replication_factor=1) for n in range(1, TOPICS)),
    ]
    answer = wire(CreateTopicsRequest(topics=topics, timeout_ms=30_000))
    assert not any(topic.error_code for topic in answer.topics)
    batch = encode_batch([Record(key=b"k", value=b"v" * 100, timestamp=1_700_000_000_000)] * 50)
    data = [PartitionProduceData(index=number, records=batch) for number in range(PARTITIONS)]
    wire(ProduceRequest(acks=1, topic_data=[TopicProduceData(name="here", partition_data=data)]), 9)
    wire(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    wire(FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]))
    offsets = [
        OffsetCommitRequestPartition(partition_index=number, committed_offset=1, committed_metadata="m" * 100)
        for number in range(PARTITIONS)
    ]
    for group in ("offsets only", "g"):
        topic = OffsetCommitRequestTopic(name="here", partitions=offsets)
        wire(OffsetCommitRequest(group_id=group, topics=[topic]), 8)
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"\0\0" + bytes(10))
    wire(
        JoinGroupRequest(
            group_id="g",
            session_timeout_ms=300_000,
            rebalance_timeout_ms=1000,
            protocol_type="consumer",
            protocols=[protocol],
        ),
        3,
    )
    wire(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000))
    for number in range(20):
        wire(InitProducerIdRequest(transactional_id="a" * 28 + str(number), transaction_timeout_ms=60_000))
    (found,) = wire(MetadataRequest(topics=[MetadataRequestTopic(name="here")])).topics
    _share(wire, found.topic_id)
    wire.close()
    return World(topic_id=found.topic_id, records=batch)


def _share(wire: Wire, topic_id: bytes) -> None:
    """Give the share group g a state in each partition, with many ranges in the first one."""
    key = f"g:{topic_id_to_str(topic_id)}:0"
    assert not wire(FindCoordinatorRequest(key_type=2, coordinator_keys=[key])).coordinators[0].error_code
    partitions = [InitializedPartition(partition=number) for number in range(PARTITIONS)]
    topics = [InitializeStateData(topic_id=topic_id, partitions=partitions)]
    (answer,) = wire(InitializeShareGroupStateRequest(group_id="g", topics=topics)).results
    assert not any(partition.error_code for partition in answer.partitions)
    ranges = [StateBatch(first_offset=first, last_offset=first) for first in range(0, 4000, 2)]
    written = [WriteStateData(topic_id=topic_id, partitions=[WrittenPartition(state_batches=ranges)])]
    (answer,) = wire(WriteShareGroupStateRequest(group_id="g", topics=written)).results
    assert not answer.partitions[0].error_code
