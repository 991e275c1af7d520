"""The permissions that each API needs, for every operation and kind of resource.

The table comes from Apache Kafka's documentation, not from the declarations of Barnabas. `walk` sends
requests on two connections: one that may change rules, and one of the user whom the rules concern.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.integration.conftest import use_share_groups

from barnabas.base.types import topic_id_to_str
from barnabas.broker.server.handlers import load
from barnabas.kafka.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from barnabas.kafka.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.kafka.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.kafka.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.kafka.protocol.messages.describe_acls import DescribeAclsRequest
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.kafka.protocol.schema import Request, Struct
from barnabas.kafka.records import Record, encode_batch
from barnabas.kafka.security.acls import SUPPORTED_OPERATIONS, Operation, Permission, ResourceType

T, G, X, C = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.TRANSACTIONAL_ID,
    ResourceType.CLUSTER,
)
_ = Operation
#: an operation on a resource of a type
Grant = tuple[ResourceType, Operation]

NAMES = {T: "walked", G: "walkers", X: "walking", C: "kafka-cluster"}
TOPIC_ID = bytes(16)
REFUSALS = {29, 30, 31, 53}
#: Apache Kafka answers GROUP_ID_NOT_FOUND for another kind of group, whatever the topics' rules are
OF_SHARE_GROUPS = {"AlterShareGroupOffsets", "DeleteShareGroupOffsets"}
BETWEEN_BROKERS = [[(C, _.CLUSTER_ACTION)]]

#: by API: the sets of grants that each suffice, as far as they are asked for by `filled` and `FIELDS`
NEEDS: dict[str, list[list[Grant]]] = {
    "Produce": [[(T, _.WRITE), (X, _.WRITE)]],
    "Fetch": [[(T, _.READ)]],
    "ListOffsets": [[(T, _.DESCRIBE)]],
    "Metadata": [[(T, _.DESCRIBE)]],
    "OffsetCommit": [[(G, _.READ), (T, _.READ)]],
    "OffsetFetch": [[(G, _.DESCRIBE), (T, _.DESCRIBE)]],
    "FindCoordinator": [[(G, _.DESCRIBE)]],
    "JoinGroup": [[(G, _.READ)]],
    "Heartbeat": [[(G, _.READ)]],
    "LeaveGroup": [[(G, _.READ)]],
    "SyncGroup": [[(G, _.READ)]],
    "DescribeGroups": [[(G, _.DESCRIBE)]],
    "CreateTopics": [[(C, _.CREATE)], [(T, _.CREATE)]],
    "DeleteTopics": [[(T, _.DELETE)], [(C, _.DELETE)]],
    "DeleteRecords": [[(T, _.DELETE)]],
    "InitProducerId": [[(X, _.WRITE)]],
    "OffsetForLeaderEpoch": [[(T, _.DESCRIBE)], [(C, _.CLUSTER_ACTION)]],
    "AddPartitionsToTxn": BETWEEN_BROKERS,
    "AddOffsetsToTxn": [[(X, _.WRITE), (G, _.READ)]],
    "EndTxn": [[(X, _.WRITE)]],
    "WriteTxnMarkers": [[(C, _.CLUSTER_ACTION)], [(C, _.ALTER)]],
    "TxnOffsetCommit": [[(X, _.WRITE), (G, _.READ), (T, _.READ)]],
    "DescribeAcls": [[(C, _.DESCRIBE)]],
    "CreateAcls": [[(C, _.ALTER)]],
    "DeleteAcls": [[(C, _.ALTER)]],
    "DescribeConfigs": [[(T, _.DESCRIBE_CONFIGS)]],
    "AlterConfigs": [[(T, _.ALTER_CONFIGS)]],
    "AlterReplicaLogDirs": [[(C, _.ALTER)]],
    "DescribeLogDirs": [[(C, _.DESCRIBE)]],
    "CreatePartitions": [[(T, _.ALTER)]],
    "DeleteGroups": [[(G, _.DELETE)]],
    "ElectLeaders": [[(C, _.ALTER)]],
    "IncrementalAlterConfigs": [[(T, _.ALTER_CONFIGS)]],
    "AlterPartitionReassignments": [[(C, _.ALTER)]],
    "ListPartitionReassignments": [[(C, _.DESCRIBE)]],
    "OffsetDelete": [[(G, _.DELETE), (T, _.READ)]],
    "DescribeClientQuotas": [[(C, _.DESCRIBE_CONFIGS)]],
    "AlterClientQuotas": [[(C, _.ALTER_CONFIGS)]],
    "DescribeUserScramCredentials": [[(C, _.DESCRIBE)]],
    "AlterUserScramCredentials": [[(C, _.ALTER)]],
    "AlterPartition": BETWEEN_BROKERS,
    "UpdateFeatures": [[(C, _.ALTER)]],
    "Envelope": BETWEEN_BROKERS,
    "DescribeProducers": [[(T, _.READ)]],
    "UnregisterBroker": [[(C, _.ALTER)]],
    "DescribeTransactions": [[(X, _.DESCRIBE)]],
    "AllocateProducerIds": BETWEEN_BROKERS,
    "ConsumerGroupHeartbeat": [[(G, _.READ), (T, _.DESCRIBE)]],
    "ConsumerGroupDescribe": [[(G, _.DESCRIBE)]],
    "ListConfigResources": [[(C, _.DESCRIBE_CONFIGS)]],
    "DescribeTopicPartitions": [[(T, _.DESCRIBE)]],
    "ShareGroupHeartbeat": [[(G, _.READ), (T, _.DESCRIBE)]],
    "ShareGroupDescribe": [[(G, _.DESCRIBE)]],
    "DescribeShareGroupOffsets": [[(G, _.DESCRIBE), (T, _.DESCRIBE)]],
    "DescribeSharePartitions": [[(G, _.DESCRIBE), (T, _.DESCRIBE)]],
    "AlterShareGroupOffsets": [[(G, _.READ), (T, _.READ)]],
    "DeleteShareGroupOffsets": [[(G, _.DELETE), (T, _.READ)]],
    "GetReplicaLogInfo": BETWEEN_BROKERS,
    # topics are named by their ids only: `test_share_fetch` asks for READ of them
    "ShareFetch": [[(G, _.READ)]],
    "ShareAcknowledge": [[(G, _.READ)]],
    "InitializeShareGroupState": BETWEEN_BROKERS,
    "ReadShareGroupState": BETWEEN_BROKERS,
    "WriteShareGroupState": BETWEEN_BROKERS,
    "DeleteShareGroupState": BETWEEN_BROKERS,
    "ReadShareGroupStateSummary": BETWEEN_BROKERS,
}
#: what anybody may ask; some answer with as much as one may see
OPEN = {
    "ApiVersions",
    "SaslHandshake",
    "SaslAuthenticate",
    "DescribeCluster",
    "GetTelemetrySubscriptions",
    "PushTelemetry",
    "ListGroups",
    "ListTransactions",
    # one's own tokens; tests/unit/broker/server/handlers/admin/test_delegation_tokens.py has the rules for
    # others'
    "CreateDelegationToken",
    "RenewDelegationToken",
    "ExpireDelegationToken",
    "DescribeDelegationToken",
}
#: the operations that imply others
IMPLIED = {
    _.DESCRIBE: {_.READ, _.WRITE, _.DELETE, _.ALTER},
    _.DESCRIBE_CONFIGS: {_.ALTER_CONFIGS},
}

#: in which version to ask, where names become ids in the latest
VERSIONS = {"Produce": 12, "Fetch": 12, "OffsetCommit": 9, "OffsetFetch": 9}
#: what fields have where a name alone does not tell
FIELDS: dict[str, dict[str, Any]] = {
    "Produce": {
        "acks": 1,
        "timeout_ms": 1000,
        "records": encode_batch(
            [Record(None, b"v", 0)], transactional=True, producer_id=5, producer_epoch=0, base_sequence=0
        ),
    },
    "SyncGroup": {"protocol_type": "consumer", "protocol_name": "range"},
    "Fetch": {"session_epoch": -1, "replica_id": -1, "forgotten_topics_data": []},
    "OffsetFetch": {"member_epoch": -1, "member_id": None},
    "DescribeConfigs": {"resource_type": 2, "configuration_keys": None},
    "AlterConfigs": {"resource_type": 2, "configs": [], "validate_only": True},
    "IncrementalAlterConfigs": {"resource_type": 2, "configs": [], "validate_only": True},
    "CreateTopics": {"num_partitions": 0, "assignments": [], "configs": [], "validate_only": True},
    "CreateAcls": {
        "resource_type": 2,
        "principal": "User:nobody",
        "host": "*",
        "operation": _.READ,
        "permission_type": Permission.ALLOW,
    },
    "DeleteAcls": {"resource_type_filter": 2, "operation": _.READ, "permission_type": Permission.DENY},
    "DeleteTopics": {"topic_names": [], "timeout_ms": 5000},
    "ConsumerGroupHeartbeat": {"member_epoch": 7, "subscribed_topic_regex": None, "member_id": "none"},
    "ShareGroupHeartbeat": {"member_epoch": 7, "member_id": "none"},
    "DescribeAcls": {"operation": 1, "permission_type": 1, "resource_type_filter": 1},
    "DescribeTopicPartitions": {"cursor": None},
    "ElectLeaders": {"election_type": 0},
    "Metadata": {"allow_auto_topic_creation": False},
    "AddOffsetsToTxn": {"producer_id": 5},
}


def filled(cls: type[Struct], fields: dict[str, Any]) -> Any:
    """Return a message with one item in each array, whose names are those of the walk."""
    values: dict[str, Any] = {}
    for field in cls.__fields__:
        if field.name in fields:
            values[field.name] = fields[field.name]
        elif field.is_array:
            one = filled(field.type, fields) if isinstance(field.type, type) else None
            name = _name(field.name)
            numbers = [0] if "partition" in field.name else []
            values[field.name] = [one] if one is not None else [name] if name else numbers
        elif (name := _name(field.name)) is not None and isinstance(getattr(cls(), field.name), str | None):
            values[field.name] = name
    return cls(**values)


def _name(field: str) -> str | None:
    if "transactional_id" in field:
        return NAMES[X]
    if field in ("group_id", "group_ids", "groups", "groups_names", "key", "coordinator_keys"):
        return NAMES[G]
    if field in ("name", "topic", "topic_name", "resource_name", "subscribed_topic_names"):
        return NAMES[T]
    return None


def request_of(name: str, cls: type[Request]) -> tuple[Request, int]:
    """Return the request of an API about the resources of the walk, and its version."""
    return filled(cls, FIELDS.get(name, {})), VERSIONS.get(name, cls.versions[1])


def codes(message: Any) -> set[int]:
    """Return all error codes of a response."""
    found: set[int] = set()
    for field in message.__fields__:
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            found.add(int(value))
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Struct):
                found |= codes(each)
    return found


def suffices(grants: Sequence[Grant], needed: Sequence[Sequence[Grant]]) -> bool:
    def has(kind: ResourceType, operation: Operation) -> bool:
        enough = {operation, _.ALL} | IMPLIED.get(operation, set())
        return any(given is kind and what in enough for given, what in grants)

    return any(all(has(*grant) for grant in way) for way in needed)


def tried(needed: list[list[Grant]]) -> Iterator[list[Grant]]:
    """Yield the sets of rules to test: none, each alone, all that are needed, and all except one."""
    yield []
    for kind in (T, G, X, C):
        for operation in (*SUPPORTED_OPERATIONS[kind], _.ALL):
            yield [(kind, operation)]
    for way in needed:
        yield way
        for left_out in way:
            yield [grant for grant in way if grant != left_out]


def prepare(admin: Callable[..., Any]) -> None:
    """Create the topic of the walk, and the internal topics."""
    topic = CreatableTopic(name=NAMES[T], num_partitions=1, replication_factor=1)
    admin(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 5)
    use_share_groups(admin)
    share_partition = f"{NAMES[G]}:{topic_id_to_str(bytes(16))}:0"
    for kind, key in enumerate((NAMES[G], NAMES[X], share_partition)):
        found = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        while codes(admin(found, 6)) != {0}:
            pass
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    commit = OffsetCommitRequest(
        group_id=NAMES[G],
        topics=[OffsetCommitRequestTopic(name=NAMES[T], partitions=[partition])],
    )
    while codes(admin(commit, 9)) != {0}:
        pass


def make_share_group(admin: Callable[..., Any]) -> None:
    """Replace the classic group of `prepare` by a share group, which AlterShareGroupOffsets creates."""
    request, version = request_of("AlterShareGroupOffsets", AlterShareGroupOffsetsRequest)
    admin(DeleteGroupsRequest(groups_names=[NAMES[G]]), 2)
    while codes(admin(request, version)) != {0}:
        pass


def make_classic_group(admin: Callable[..., Any]) -> None:
    """Undo `make_share_group`."""
    admin(DeleteGroupsRequest(groups_names=[NAMES[G]]), 2)
    prepare(admin)


def grant(admin: Callable[..., Any], user: str, grants: Sequence[Grant]) -> None:
    """Replace all rules by these."""
    deleted = admin(DeleteAclsRequest(filters=[ANY_RULE]), 3)
    assert codes(deleted) == {0}
    if grants:
        creations = [
            AclCreation(
                resource_type=kind,
                resource_name=NAMES[kind],
                principal=f"User:{user}",
                host="*",
                operation=operation,
                permission_type=Permission.ALLOW,
            )
            for kind, operation in grants
        ]
        assert codes(admin(CreateAclsRequest(creations=creations), 3)) == {0}
    deadline = time.monotonic() + 60
    while sum(len(each.acls) for each in admin(ALL_RULES, 3).resources) != len(grants):
        assert time.monotonic() < deadline  # Kafka's broker learns of them later


ALL_RULES = DescribeAclsRequest(
    resource_type_filter=1,
    resource_name_filter=None,
    pattern_type_filter=1,
    principal_filter=None,
    host_filter=None,
    operation=1,
    permission_type=1,
)
ANY_RULE = DeleteAclsFilter(
    resource_type_filter=1,
    resource_name_filter=None,
    pattern_type_filter=1,
    principal_filter=None,
    host_filter=None,
    operation=1,
    permission_type=1,
)


def walk(
    name: str, admin: Callable[..., Any], client: Callable[..., Any], user: str
) -> list[tuple[list[Grant], set[int]]]:
    """Return each set of rules with which an API did not answer as in the table, and the error codes."""
    api = next(api for api in load().values() if api.name == name)
    needed = NEEDS[name]
    wrong = []
    if name in OF_SHARE_GROUPS:
        make_share_group(admin)
    for grants in tried(needed):
        if name in ("DeleteTopics", "OffsetDelete"):
            prepare(admin)
        grant(admin, user, grants)
        answered = codes(client(*request_of(name, api.request)))
        if suffices(grants, needed) is bool(answered & REFUSALS):
            wrong.append((grants, answered))
    if name in OF_SHARE_GROUPS:
        make_classic_group(admin)
    return wrong
