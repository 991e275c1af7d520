"""Random walks of a user whose rules change: which requests both brokers allow, and what they hide."""

from __future__ import annotations

from typing import Any

from tests.compat.walks.configs import BROKER, ConfigWalk
from tests.compat.walks.pair import Pair
from tests.compat.walks.security import (
    ALLOW,
    CLUSTER,
    DENY,
    GROUP,
    LITERAL,
    PREFIXED,
    TOKEN,
    TOPIC,
    TRANSACTIONAL_ID,
    USER,
    Rule,
    SecurityWalk,
    creation,
)
from tests.compat.walks.topics import NAMES, TopicWalk
from tests.compat.wire import Wire

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages import alter_configs as whole
from barnabas.kafka.protocol.messages import incremental_alter_configs as single
from barnabas.kafka.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.kafka.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.kafka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.kafka.protocol.messages.create_acls import CreateAclsRequest
from barnabas.kafka.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.kafka.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.kafka.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.kafka.protocol.messages.end_txn import EndTxnRequest
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.kafka.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.kafka.protocol.messages.list_groups import ListGroupsRequest
from barnabas.kafka.protocol.messages.list_transactions import ListTransactionsRequest
from barnabas.kafka.protocol.messages.metadata import MetadataRequest
from barnabas.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.kafka.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from barnabas.kafka.protocol.schema import Request
from barnabas.kafka.records import Record, encode_batch

REFUSED, GROUP_ID_NOT_FOUND = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_ID_NOT_FOUND
#: types and names of resources, and valid settings of them
SETTINGS = (
    (2, "t", "retention.ms", "5000"), (2, "u", "retention.ms", "6000"), (2, "a", "cleanup.policy", "compact"),
    (BROKER, "", "message.max.bytes", "2000000"), (BROKER, "1", "log.retention.ms", "7000"),
    (32, "g", "consumer.session.timeout.ms", "45000"), (16, "m", "interval.ms", "100"),
)  # fmt: skip
GROUPS = ("g", "gg", "h")
EVERY_GROUP = (*GROUPS, "nobody")
BATCH = encode_batch([Record(None, b"v", 0)])
#: the largest answer
LIMIT = 1 << 20


class PermissionWalk:
    """Alice, who may do what an administrator allows and denies her.

    Args:
        admin: both brokers, with logins of an administrator.
        alice: both brokers, with logins of the user. The names are the same.
    """

    def __init__(self, admin: Pair, alice: Pair) -> None:
        self.admin, self.alice, self.random = admin, alice, alice.random
        self.topics, self.configs, self.security = (
            TopicWalk(alice, is_sound=True),
            ConfigWalk(alice),
            SecurityWalk(alice),
        )
        self.guard, self.keeper = SecurityWalk(admin), TopicWalk(admin)

    def run(self, steps: int) -> None:
        rng = self.random
        topics, configs, security = self.topics, self.configs, self.security
        asked = [
            self.produce, self.fetch, self.everything, self.groups, self.commit, self.offsets,
            self.coordinator, self.describe_groups, self.consumer_groups, self.share_groups,
            self.delete_groups, self.delete_offsets, self.members, self.producer_id, self.transactions,
            self.end, self.alter, topics.create, topics.grow, topics.delete, topics.metadata, topics.metadata,
            topics.pages, topics.delete_records, topics.log_dirs, topics.elect, topics.reassign,
            topics.list_moves, topics.cluster, topics.producers, topics.offsets, topics.features,
            configs.describe, configs.list_resources, security.describe_acls, security.quotas, security.users,
        ]  # fmt: skip
        for topic in ("t", "u", *NAMES[:3]):
            self.admin.each(lambda wire, topic=topic: wire.topic(topic, 2))
            for one, other in zip(self.admin.wires, self.alice.wires, strict=True):
                other.learn(one.topic_id(one.name(topic)), other.name(topic))
        for group in GROUPS:
            self.admin.ask(
                lambda wire, _, group=group: self._commit(wire, group, ["t"]), "admin commits", version=9
            )
        for group, kind in (("g", 0), ("x", 1)):  # this makes the internal topics
            self.admin.ask(
                lambda wire, _, group=group, kind=kind: FindCoordinatorRequest(
                    key_type=kind, coordinator_keys=[wire.name(group)]
                ),
                "coordinator",
                lambda _: None,
            )
        try:
            for step in range(steps):
                if step % 6 == 0:
                    self.change_rules()
                rng.choice(asked)()
                self.keeper.settle(list(NAMES))
        finally:
            self.guard.restore()
            self.configs.restore(self.admin)

    def change_rules(self) -> None:
        """Let the administrator add rules, or sometimes remove all."""
        rng = self.random
        if rng.random() < 0.2:
            self.guard.remove_rules()
        rules = [self._rule() for _ in range(rng.choice((1, 2, 3, 5)))]

        def make(wire: Wire, _: int) -> Request:
            return CreateAclsRequest(creations=[creation(wire, rule) for rule in rules])

        self.admin.ask(make, "rules")
        self.alice.note(f"rules {rules}")
        self.guard.settle()

    def _rule(self) -> Rule:
        rng = self.random
        kind = rng.choices((TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, TOKEN, USER), (8, 5, 5, 2, 0.3, 0.3))[0]
        names = {TOPIC: ("t", "u", *NAMES), CLUSTER: ("kafka-cluster",), GROUP: GROUPS}.get(kind, ("x", "y"))
        name, pattern = rng.choice((*names, *names, "*")), LITERAL
        if kind != CLUSTER and rng.random() < 0.35:
            name, pattern = rng.choice(("", "", *names)), PREFIXED
        return (
            kind, name, pattern,
            rng.choices(("User:alice", "User:*", "User:bob", "Group:alice"), (10, 3, 0.5, 0.5))[0],
            rng.choices(("*", "127.0.0.1", "10.0.0.1"), (8, 3, 1))[0],
            rng.choices(range(2, 15), (6, *[2] * 12))[0],
            rng.choices((ALLOW, DENY), (8, 2))[0],
        )  # fmt: skip

    def _some(self) -> list[str]:
        return self.random.sample(("t", "u", *NAMES[:3], "nowhere"), self.random.choice((1, 2, 3)))

    def alter(self) -> None:
        """Change valid settings: Kafka finds some of the errors before it checks the permissions."""
        rng = self.random
        wanted = rng.sample(SETTINGS, rng.choice((1, 1, 2, 3)))
        module, version = rng.choice(((whole, 2), (single, 1)))
        request = whole.AlterConfigsRequest if module is whole else single.IncrementalAlterConfigsRequest

        def make(wire: Wire, _: int) -> Request:
            resources = [
                module.AlterConfigsResource(
                    resource_type=kind,
                    resource_name=name if kind == BROKER else wire.name(name),
                    configs=[module.AlterableConfig(name=setting, value=value)],
                )
                for kind, name, setting, value in wanted
            ]
            return request(resources=resources)

        self.alice.ask(make, f"alter {request.__name__} {wanted}", version=version)

    def produce(self) -> None:
        topics, acks, version = self._some(), self.random.choice((1, -1)), self.random.choice((9, 12, 13))

        def make(wire: Wire, _: int) -> Request:
            data = [
                TopicProduceData(
                    name=wire.name(topic),
                    topic_id=wire.known_id(wire.name(topic)),
                    partition_data=[PartitionProduceData(index=0, records=BATCH)],
                )
                for topic in topics
            ]
            return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=data)

        self.alice.ask(make, f"produce v{version} {topics}", version=version)

    def fetch(self) -> None:
        topics, version = self._some(), self.random.choice((11, 12, 13, 17))

        def make(wire: Wire, _: int) -> Request:
            wanted = [
                FetchTopic(
                    topic=wire.name(topic),
                    topic_id=wire.known_id(wire.name(topic)),
                    partitions=[FetchPartition(partition=0, partition_max_bytes=LIMIT)],
                )
                for topic in topics
            ]
            return FetchRequest(replica_id=-1, min_bytes=0, max_bytes=LIMIT, session_epoch=-1, topics=wanted)

        self.alice.ask(make, f"fetch v{version} {topics}", version=version, patient=True)

    def everything(self) -> None:
        version, bits = self.random.choice((8, 9, 10, 12, 13)), self.random.random() < 0.5
        start = self.alice.wires[0].name("")

        def make(wire: Wire, _: int) -> Request:
            return MetadataRequest(
                topics=None,
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=bits,
                include_cluster_authorized_operations=bits,
            )

        def shape(answer: Any) -> Any:
            kept = [topic for topic in answer["topics"] if topic["name"].startswith(start)]
            return {**answer, "topics": kept, "controller_id": 1}

        self.alice.ask(make, f"all topics v{version} bits {bits}", shape, version=version, patient=True)

    def groups(self) -> None:
        start, version = self.alice.wires[0].name(""), self.random.choice((0, 4, 5))

        def shape(answer: Any) -> Any:
            return {
                **answer,
                "groups": [each for each in answer["groups"] if each["group_id"].startswith(start)],
            }

        self.alice.ask(lambda *_: ListGroupsRequest(), f"list groups v{version}", shape, version=version)

    def _commit(self, wire: Wire, group: str, topics: list[str]) -> Request:
        wanted = [
            OffsetCommitRequestTopic(
                name=wire.name(topic),
                topic_id=wire.known_id(wire.name(topic)),
                partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1)],
            )
            for topic in topics
        ]
        return OffsetCommitRequest(group_id=wire.name(group), topics=wanted)

    def commit(self) -> None:
        topics, group, version = self._some(), self.random.choice(EVERY_GROUP), self.random.choice((8, 9, 10))
        told = f"commit v{version} {group} {topics}"
        self.alice.ask(lambda wire, _: self._commit(wire, group, topics), told, version=version, patient=True)

    def offsets(self) -> None:
        rng = self.random
        wanted = {
            group: rng.choice((None, self._some())) for group in rng.sample(EVERY_GROUP, rng.choice((1, 2)))
        }
        version = rng.choice((8, 9, 10))

        def make(wire: Wire, _: int) -> Request:
            groups = [
                OffsetFetchRequestGroup(
                    group_id=wire.name(group),
                    member_epoch=-1,
                    topics=None if topics is None else [
                        OffsetFetchRequestTopics(
                            name=wire.name(t), topic_id=wire.known_id(wire.name(t)), partition_indexes=[0]
                        )
                        for t in topics
                    ],
                )
                for group, topics in wanted.items()
            ]  # fmt: skip
            return OffsetFetchRequest(groups=groups)

        self.alice.ask(make, f"fetch offsets v{version} {wanted}", version=version, patient=True)

    def coordinator(self) -> None:
        rng = self.random
        kind, keys = rng.choice((0, 1)), rng.sample((*GROUPS, "x", "y"), rng.choice((1, 2)))
        self.alice.ask(
            lambda wire, _: FindCoordinatorRequest(
                key_type=kind, key=wire.name(keys[0]), coordinator_keys=[wire.name(key) for key in keys]
            ),
            f"find coordinator type {kind} {keys}",
            version=rng.choice((2, 4, 6)),
        )

    def _sample(self) -> list[str]:
        return self.random.sample(EVERY_GROUP, self.random.choice((1, 2, 3)))

    def describe_groups(self) -> None:
        groups, bits = self._sample(), self.random.random() < 0.5
        self.alice.ask(
            lambda wire, _: DescribeGroupsRequest(
                groups=[wire.name(group) for group in groups], include_authorized_operations=bits
            ),
            f"describe groups {groups} bits {bits}",
        )

    def consumer_groups(self) -> None:
        groups, bits = self._sample(), self.random.random() < 0.5
        self.alice.ask(
            lambda wire, _: ConsumerGroupDescribeRequest(
                group_ids=[wire.name(group) for group in groups], include_authorized_operations=bits
            ),
            f"describe consumer groups {groups} bits {bits}",
        )

    def share_groups(self) -> None:
        groups, bits = self._sample(), self.random.random() < 0.5
        self.alice.ask(
            lambda wire, _: ShareGroupDescribeRequest(
                group_ids=[wire.name(group) for group in groups], include_authorized_operations=bits
            ),
            f"describe share groups {groups} bits {bits}",
        )

    def delete_groups(self) -> None:
        groups = self._sample()[:2]
        self.alice.ask(
            lambda wire, _: DeleteGroupsRequest(groups_names=[wire.name(group) for group in groups]),
            f"delete groups {groups}",
        )

    def delete_offsets(self) -> None:
        group, topics = self.random.choice(EVERY_GROUP), self._some()

        def make(wire: Wire, _: int) -> Request:
            wanted = [
                OffsetDeleteRequestTopic(
                    name=wire.name(t), partitions=[OffsetDeleteRequestPartition(partition_index=0)]
                )
                for t in topics
            ]
            return OffsetDeleteRequest(group_id=wire.name(group), topics=wanted)

        def shape(answer: Any) -> Any:
            """Leave out a missing group, which Barnabas looks up only if Alice may use one of the topics."""
            codes = {part["error_code"] for topic in answer["topics"] for part in topic["partitions"]}
            return None if answer["error_code"] == GROUP_ID_NOT_FOUND or codes == {REFUSED} else answer

        self.alice.ask(make, f"delete offsets {group} {topics}", shape)

    def members(self) -> None:
        group, how = self.random.choice(EVERY_GROUP), self.random.choice((0, 1, 2))
        topics = self._some()

        def make(wire: Wire, _: int) -> Request:
            if how == 0:
                return HeartbeatRequest(group_id=wire.name(group), generation_id=1, member_id="m")
            if how == 1:
                return LeaveGroupRequest(group_id=wire.name(group), members=[MemberIdentity(member_id="m")])
            return ConsumerGroupHeartbeatRequest(
                group_id=wire.name(group),
                member_id="m",
                member_epoch=7,
                subscribed_topic_names=[wire.name(topic) for topic in topics],
            )

        def shape(answer: Any) -> Any:
            return answer["error_code"], [each["error_code"] for each in answer.get("members", ())]

        self.alice.ask(make, f"member of {group} {how} {topics}", shape)

    def producer_id(self) -> None:
        name = self.random.choice((None, "x", "y"))

        def make(wire: Wire, _: int) -> Request:
            return InitProducerIdRequest(
                transactional_id=name and wire.name(name),
                transaction_timeout_ms=1000,
                producer_id=-1,
                producer_epoch=-1,
            )

        self.alice.ask(make, f"producer id {name}", lambda answer: answer["error_code"])

    def transactions(self) -> None:
        names, start = self.random.sample(("x", "y", "z"), 2), self.alice.wires[0].name("")

        def shape(answer: Any) -> Any:
            kept = [each["transactional_id"] for each in answer["transaction_states"]]
            return {
                "error_code": answer["error_code"],
                "ids": sorted(each for each in kept if each.startswith(start)),
            }

        if self.random.random() < 0.5:
            self.alice.ask(lambda *_: ListTransactionsRequest(), "list transactions", shape)
            return
        self.alice.ask(
            lambda wire, _: DescribeTransactionsRequest(
                transactional_ids=[wire.name(name) for name in names]
            ),
            f"describe transactions {names}",
            lambda answer: [
                (each["transactional_id"], each["error_code"]) for each in answer["transaction_states"]
            ],
        )

    def end(self) -> None:
        name, group, how = self.random.choice("xy"), self.random.choice(GROUPS), self.random.random() < 0.5

        def make(wire: Wire, _: int) -> Request:
            if how:
                return EndTxnRequest(transactional_id=wire.name(name), producer_id=1 << 40, producer_epoch=0)
            return AddOffsetsToTxnRequest(
                transactional_id=wire.name(name),
                producer_id=1 << 40,
                producer_epoch=0,
                group_id=wire.name(group),
            )

        self.alice.ask(make, f"end {how} {name} {group}")
