"""Random walks of an administrator: topics, their partitions, and what brokers tell about them."""

from __future__ import annotations

from typing import Any

from tests.compat.walks.pair import Pair
from tests.compat.wire import Wire

from barnabas.base.types import ZERO_TOPIC_ID
from barnabas.kafka.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.kafka.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.kafka.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.kafka.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.kafka.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.kafka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.kafka.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.kafka.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas.kafka.protocol.messages.describe_producers import DescribeProducersRequest
from barnabas.kafka.protocol.messages.describe_producers import TopicRequest as ProducersTopic
from barnabas.kafka.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from barnabas.kafka.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.kafka.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.kafka.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.kafka.protocol.schema import Request

#: ends of names, and whole names that no topic can have
NAMES = ("a", "b", "c", "d", "x.y", "x_y")
ODD = ("__cluster_metadata", "", ".", "..", "a/b", "ü", "x" * 249 + "!", "x" * 250, "a b", "a\0b")
UNKNOWN_ID = b"no such topic id"
SETTINGS: tuple[tuple[str, str | None], ...] = (
    ("retention.ms", "5000"), ("retention.ms", "soon"), ("retention.ms", None), ("retention.ms", " 7 "),
    ("cleanup.policy", "compact, delete"), ("cleanup.policy", "compact,compact"), ("cleanup.policy", ""),
    ("compression.type", "lz4"), ("compression.type", "LZ4"), ("no.such", "1"), ("", "1"),
    ("min.cleanable.dirty.ratio", "0.25"), ("min.cleanable.dirty.ratio", "1.5"),
    ("max.message.bytes", "0x10"), ("max.message.bytes", "2147483648"),
    ("unclean.leader.election.enable", "yes"), ("unclean.leader.election.enable", "TRUE"),
    ("min.insync.replicas", "2"), ("min.compaction.lag.ms", "9"), ("max.compaction.lag.ms", "5"),
    ("leader.replication.throttled.replicas", "0:1,1:1"), ("leader.replication.throttled.replicas", "0-1"),
)  # fmt: skip


class TopicWalk:
    """One administrator, who creates, grows, describes and deletes topics.

    Args:
        pair: both brokers.
        is_sound: whether requests have no duplicates and no names that topics cannot have.
    """

    def __init__(self, pair: Pair, *, is_sound: bool = False) -> None:
        self.pair, self.random, self._is_sound = pair, pair.random, is_sound

    def run(self, steps: int) -> None:
        work = {
            self.create: 8, self.grow: 4, self.delete: 3, self.metadata: 4, self.pages: 3,
            self.delete_records: 1, self.log_dirs: 1, self.move: 1, self.elect: 1, self.reassign: 2,
            self.list_moves: 1, self.cluster: 1, self.producers: 1, self.offsets: 1, self.features: 1,
        }  # fmt: skip
        for _ in range(steps):
            self.random.choices(list(work), list(work.values()))[0]()

    def _name(self) -> str:
        """Return the end of a name of the walk, or beginning with '=', a whole name."""
        dice = self.random.random()
        if dice < 0.05 and not self._is_sound:
            return "=" + self.random.choice(ODD)
        return "nowhere" if dice < 0.1 else self.random.choice(NAMES)

    def _names(self, max_count: int = 3) -> list[str]:
        names = [self._name() for _ in range(self.random.choice((*range(1, max_count + 1), 1, 1)))]
        return list(dict.fromkeys(names)) if self._is_sound else names

    def _assignment(self) -> list[int]:
        return self.random.choice(([1], [1], [1], [1, 1], [7], [1, 7], [], [-1]))

    def create(self) -> None:
        rng = self.random
        topics, validate = [], rng.random() < 0.25
        names = self._names()
        if {"x.y", "x_y"} <= set(names):  # Kafka does not see that topics of one request collide
            names = [name for name in names if name != "x.y"]
        for name in names:
            count = rng.choice((1, 2, 3, 3, -1, 0, -2))
            factor = rng.choices((1, -1, 0, 2, -2), (10, 10, 1, 1, 1))[0]
            assigned = []
            if rng.random() < 0.3:
                count, factor = rng.choices(((-1, -1), (1, -1), (-1, 1), (1, 1)), (8, 1, 1, 1))[0]
                indexes = rng.choice(([0], [0, 1], [1, 0], [0, 2], [0, 0], [-1, 0], [1]))
                assigned = [
                    CreatableReplicaAssignment(partition_index=index, broker_ids=self._assignment())
                    for index in indexes
                ]
            configs = rng.sample(SETTINGS, rng.choice((0, 0, 1, 2)))
            topics.append((name, count, factor, assigned, configs))

        def make(wire: Wire, _: int) -> Request:
            made = [
                CreatableTopic(
                    name=_full(wire, name), num_partitions=count, replication_factor=factor,
                    assignments=assigned,
                    configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs],
                )
                for name, count, factor, assigned, configs in topics
            ]  # fmt: skip
            return CreateTopicsRequest(topics=made, timeout_ms=30_000, validate_only=validate)

        version = rng.choice((2, 4, 5, 7, 7, 7))
        told = f"create v{version} {topics} validate {validate}"
        self.pair.ask(make, told, version=version)
        if not validate:
            self.settle([name for name, *_ in topics])

    def settle(self, names: list[str]) -> None:
        """Wait until both brokers know the same of the topics, and learn their ids."""
        answers = self.pair.ask(
            lambda wire, _: MetadataRequest(
                topics=[MetadataRequestTopic(name=_full(wire, name)) for name in dict.fromkeys(names)],
                allow_auto_topic_creation=False,
            ),
            f"metadata of {names}",
            _without_the_brokers_choice,
            patient=True,
        )
        for wire, answer in zip(self.pair.wires, answers, strict=True):
            for topic in answer.topics:
                if topic.topic_id != ZERO_TOPIC_ID:
                    wire.learn(topic.topic_id, topic.name)

    def grow(self) -> None:
        rng = self.random
        names, validate = self._names(), rng.random() < 0.25
        wanted = []
        for name in names:
            count = rng.choice((1, 2, 3, 4, 5, 0, -1))
            assigned = None
            if rng.random() < 0.4:
                assigned = [self._assignment() for _ in range(rng.randint(0, 3))]
            wanted.append((name, count, assigned))

        def make(wire: Wire, _: int) -> Request:
            topics = [
                CreatePartitionsTopic(
                    name=_full(wire, name),
                    count=count,
                    assignments=None
                    if assigned is None
                    else [CreatePartitionsAssignment(broker_ids=ids) for ids in assigned],
                )
                for name, count, assigned in wanted
            ]
            return CreatePartitionsRequest(topics=topics, timeout_ms=30_000, validate_only=validate)

        self.pair.ask(make, f"grow {wanted} validate {validate}", version=rng.choice((0, 1, 2, 3)))
        if not validate:
            self.settle(names)

    def delete(self) -> None:
        rng = self.random
        version = rng.choice((1, 5, 6, 6, 6))
        chosen = [
            (name, "name" if version < 6 else rng.choice(("name", "id", "id", "both")))
            for name in self._names()
        ]
        # Kafka answers as often as a request names a topic in two ways at once.
        chosen = [each for at, each in enumerate(chosen) if each[1] != "both" or each not in chosen[:at]]
        if version == 6 and rng.random() < 0.1:
            chosen.append(("nowhere", rng.choice(("none", "unknown id"))))

        def make(wire: Wire, _: int) -> Request:
            states = []
            for name, how in chosen:
                full = _full(wire, name)
                states.append(
                    DeleteTopicState(
                        name=full if how in ("name", "both") else None,
                        topic_id=UNKNOWN_ID if how == "unknown id" else wire.known_id(full)
                        if how in ("id", "both") else ZERO_TOPIC_ID,
                    )
                )  # fmt: skip
            names = [_full(wire, name) for name, _ in chosen]
            return DeleteTopicsRequest(topics=states, topic_names=names, timeout_ms=30_000)

        self.pair.ask(make, f"delete v{version} {chosen}", version=version)
        self.settle([name for name, _ in chosen])

    def metadata(self) -> None:
        rng = self.random
        version = rng.choice((4, 7, 8, 9, 10, 11, 12, 13))  # earlier ones create what is missing
        # Kafka fails on an empty name that comes with no id.
        chosen = [(name, version >= 12 and name != "=" and rng.random() < 0.4) for name in self._names()]
        bits = rng.random() < 0.3, rng.random() < 0.3
        unknown = version >= 12 and rng.random() < 0.1

        def make(wire: Wire, _: int) -> Request:
            topics = []
            for name, by_id in chosen:
                full = _full(wire, name)
                topics.append(
                    MetadataRequestTopic(name=None, topic_id=wire.known_id(full))
                    if by_id
                    else MetadataRequestTopic(name=full)
                )
            if unknown:
                topics.append(MetadataRequestTopic(name=None, topic_id=UNKNOWN_ID))
            return MetadataRequest(
                topics=topics,
                allow_auto_topic_creation=False,
                include_cluster_authorized_operations=bits[0],
                include_topic_authorized_operations=bits[1],
            )

        told = f"metadata v{version} {chosen} bits {bits}"
        self.pair.ask(make, told, _without_the_brokers_choice, version=version, patient=True)

    def pages(self) -> None:
        rng = self.random
        # Of the empty name, Kafka takes no cursor for a cursor, and fails.
        names = [name for name in self._names() if name != "="] or ["a"]
        limit = rng.choice((2000, 1, 2, 3, 0, -1))
        cursor = None
        if rng.random() < 0.5:
            cursor = (self._name(), rng.choice((0, 0, 1, 2, 5, -1)))

        def make(wire: Wire, _: int) -> Request:
            at = (
                None
                if cursor is None
                else Cursor(topic_name=_full(wire, cursor[0]), partition_index=cursor[1])
            )
            return DescribeTopicPartitionsRequest(
                topics=[TopicRequest(name=_full(wire, name)) for name in names],
                response_partition_limit=limit,
                cursor=at,
            )

        self.pair.ask(make, f"pages of {names} limit {limit} cursor {cursor}", patient=True)

    def delete_records(self) -> None:
        offsets = (0, -1, 1, -2)
        wanted = [
            (name, [(part, self.random.choice(offsets)) for part in parts]) for name, parts in self._places()
        ]

        def make(wire: Wire, _: int) -> Request:
            topics = [
                DeleteRecordsTopic(
                    name=_full(wire, name),
                    partitions=[DeleteRecordsPartition(partition_index=i, offset=o) for i, o in parts],
                )
                for name, parts in wanted
            ]
            return DeleteRecordsRequest(topics=topics, timeout_ms=5000)

        self.pair.ask(make, f"delete records {wanted}", patient=True)

    def log_dirs(self) -> None:
        wanted = self._places()

        def make(wire: Wire, _: int) -> Request:
            topics = [
                DescribableLogDirTopic(topic=_full(wire, name), partitions=parts) for name, parts in wanted
            ]
            return DescribeLogDirsRequest(topics=topics)

        self.pair.ask(make, f"log dirs {wanted}", version=self.random.choice((1, 2, 3, 4)), patient=True)

    def _places(self) -> list[tuple[str, list[int]]]:
        """Return topics and partitions of them, each once."""
        return [(name, self.random.sample((0, 1, 2, 9), 2)) for name in dict.fromkeys(self._names(2))]

    def move(self) -> None:
        wanted = self._places()
        wanted = [(name, parts) for name, parts in wanted if len(name) < 200]  # Kafka cannot move the others
        path = self.random.choice(("/nowhere/at/all", "relative", ""))

        def make(wire: Wire, _: int) -> Request:
            topics = [
                AlterReplicaLogDirTopic(name=_full(wire, name), partitions=parts) for name, parts in wanted
            ]
            return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])

        self.pair.ask(make, f"move {wanted} to {path!r}", patient=True)

    def elect(self) -> None:
        wanted = self._places()
        kind, version = self.random.choice((0, 0, 1, 2)), self.random.choice((0, 1, 2))

        def make(wire: Wire, _: int) -> Request:
            topics = [TopicPartitions(topic=_full(wire, name), partitions=parts) for name, parts in wanted]
            return ElectLeadersRequest(election_type=kind, topic_partitions=topics, timeout_ms=5000)

        self.pair.ask(make, f"elect v{version} type {kind} {wanted}", version=version)

    def reassign(self) -> None:
        rng = self.random
        replicas = [[1], [1], None, [], [1, 1], [7], [1, 7], [-1]]
        wanted = [(name, [(part, rng.choice(replicas)) for part in parts]) for name, parts in self._places()]
        version, may_grow = rng.choice((0, 1)), rng.random() < 0.5

        def make(wire: Wire, _: int) -> Request:
            topics = [
                ReassignableTopic(
                    name=_full(wire, name),
                    partitions=[ReassignablePartition(partition_index=i, replicas=r) for i, r in parts],
                )
                for name, parts in wanted
            ]
            return AlterPartitionReassignmentsRequest(
                topics=topics, timeout_ms=5000, allow_replication_factor_change=may_grow
            )

        self.pair.ask(make, f"reassign v{version} {wanted} may grow {may_grow}", version=version)

    def list_moves(self) -> None:
        wanted = self._places()

        def make(wire: Wire, _: int) -> Request:
            topics = [
                ListPartitionReassignmentsTopics(name=_full(wire, name), partition_indexes=parts)
                for name, parts in wanted
            ]
            return ListPartitionReassignmentsRequest(topics=topics or None, timeout_ms=5000)

        self.pair.ask(make, f"list reassignments {wanted}", without_more_than_the_error)

    def cluster(self) -> None:
        rng = self.random
        bits, kind, fenced = rng.random() < 0.5, rng.choice((1, 1, 2, 3, 0)), rng.random() < 0.5
        version = rng.choice((0, 1, 2))
        self.pair.ask(
            lambda *_: DescribeClusterRequest(
                include_cluster_authorized_operations=bits, endpoint_type=kind, include_fenced_brokers=fenced
            ),
            f"cluster v{version} bits {bits} type {kind} fenced {fenced}",
            version=version,
        )

    def producers(self) -> None:
        wanted = self._places()

        def make(wire: Wire, _: int) -> Request:
            topics = [
                ProducersTopic(name=_full(wire, name), partition_indexes=parts) for name, parts in wanted
            ]
            return DescribeProducersRequest(topics=topics)

        self.pair.ask(make, f"producers {wanted}", patient=True)

    def offsets(self) -> None:
        wanted = self._places()
        at, version = (
            self.random.choice((-1, -2, -3, -4, -5, -6, -7, 0)),
            self.random.choice((1, 4, 6, 8, 9, 10, 11)),
        )

        def make(wire: Wire, _: int) -> Request:
            topics = [
                ListOffsetsTopic(
                    name=_full(wire, name),
                    partitions=[ListOffsetsPartition(partition_index=i, timestamp=at) for i in parts],
                )
                for name, parts in wanted
            ]
            return ListOffsetsRequest(replica_id=-1, topics=topics, timeout_ms=1000)

        self.pair.ask(make, f"list offsets v{version} at {at} {wanted}", version=version, patient=True)

    def features(self) -> None:
        rng = self.random
        names = ("transaction.version", "group.version", "no.such", "")
        updates = [
            FeatureUpdateKey(
                feature=name,
                max_version_level=rng.choice((0, 1, 2, 3, 99, -1)),
                upgrade_type=rng.choice((1, 2, 3, 0, 9)),
                allow_downgrade=rng.random() < 0.5,
            )
            for name in rng.sample(names, rng.choice((1, 1, 2, 0)))
        ]
        version = rng.choice((1, 2))
        self.pair.ask(
            lambda *_: UpdateFeaturesRequest(timeout_ms=5000, feature_updates=updates, validate_only=True),
            f"features v{version} {updates}",
            version=version,
        )


def _full(wire: Wire, name: str) -> str:
    return name[1:] if name.startswith("=") else wire.name(name)


def without_more_than_the_error(answer: Any) -> Any:
    """Return only the error code of a whole answer, if there is an error."""
    return {"error_code": answer["error_code"]} if answer["error_code"] else answer


def _without_the_brokers_choice(answer: Any) -> Any:
    """Return a Metadata answer without the controller, of which each broker may say its own."""
    return {key: value for key, value in answer.items() if key != "controller_id"}
