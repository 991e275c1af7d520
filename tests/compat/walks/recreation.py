"""Random walks over topics that are deleted and created again under producers, readers and groups."""

from __future__ import annotations

import time
from typing import Any

from tests.compat.scenarios import transactions as txn
from tests.compat.scenarios.consumer_groups import beat, describe, enter
from tests.compat.walks.data import LIMIT, whole_batches
from tests.compat.walks.pair import SETTLING_SECONDS, Pair
from tests.compat.wire import NO_TOPIC_ID, Wire

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from barnabas.kafka.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.kafka.protocol.messages.create_topics import (
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
from barnabas.kafka.protocol.messages.describe_producers import DescribeProducersRequest
from barnabas.kafka.protocol.messages.describe_producers import TopicRequest as ProducersTopic
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from barnabas.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
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
from barnabas.kafka.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.protocol.schema import Request
from barnabas.kafka.records import Record, encode_batch
from barnabas.kafka.records.compression import Compression

TOPICS = ("a", "b")
MEMBERS = ("m", "n")
#: two transactional ids, with transactions of version 1 and 2, and an idempotent producer
PRODUCERS = ("x1", "x2", "")
POLICIES = ("delete", "compact", "compact,delete")
NOW = int(time.time() * 1000)
TOPIC_RESOURCE = 2
#: of a batch: the first one is of the time NOW, and each further one is a millisecond later
MAX_RECORDS = 5
#: how long a step waits until all parts of Kafka know a change that some of them know
REST_SECONDS = 0.1


class RecreationWalk:
    """An administrator, three producers, two readers with sessions and two groups, over two topics."""

    #: who produces; None has no producer id
    senders: tuple[str | None, ...] = (*PRODUCERS, None)

    def __init__(self, pair: Pair) -> None:
        self.pair, self.random = pair, pair.random
        #: number of partitions, 0 without the topic
        self.partitions = dict.fromkeys(TOPICS, 0)
        #: how often each topic was created
        self.lives = dict.fromkeys(TOPICS, 0)
        self.producers: dict[str, list[tuple[int, int]]] = {}
        #: the next sequence by producer, epoch, topic, life and partition
        self.sequences: dict[tuple[str, int, str, int, int], int] = {}
        #: the session ids of both brokers and the next epoch, of the reader by names and the one by ids
        self.sessions = {False: ([0, 0], 0), True: ([0, 0], 0)}
        self.epochs = dict.fromkeys(MEMBERS, 0)
        #: the last assignment of each member, in both brokers
        self.owned: dict[str, tuple[Any, Any]] = {}
        for name in PRODUCERS:
            if name:
                pair.each(lambda wire, name=name: txn.coordinated(wire, wire.name(name)))
            self.begin(name)

    def run(self, steps: int) -> None:
        for topic in TOPICS:
            self.create(topic)
        work = {
            self.recreate: 2, self.grow: 1, self.alter: 0.7, self.produce: 8, self.fetch: 6,
            self.end: 3, self.add: 1.5, self.offsets_in_transaction: 1, self.list_offsets: 3,
            self.delete_records: 1, self.describe_producers: 1, self.describe_transactions: 1,
            self.commit: 3, self.committed: 3, self.delete_offsets: 0.7, self.beat: 5, self.describe: 1.5,
        }  # fmt: skip
        for _ in range(steps):
            self.random.choices(list(work), list(work.values()))[0]()

    def _topic(self) -> str:
        return self.random.choice(TOPICS)

    def _partition(self, topic: str) -> int:
        return self.random.choice((0, 0, *range(self.partitions[topic] or 1), self.partitions[topic]))

    def _id(self, wire: Wire, topic: str, life: int | None = None) -> bytes:
        """Return the id of a topic: of its last life or of an earlier one."""
        life = self.lives[topic] if life is None else life
        current = wire.known_id(wire.name(topic)) if life == self.lives[topic] else NO_TOPIC_ID
        return current if current != NO_TOPIC_ID else wire.known_id(f"{topic} of life {life}")

    def _life(self, topic: str) -> int:
        """Return the last life of a topic, or sometimes an earlier one."""
        last = self.lives[topic]
        return self.random.randint(1, last) if last and self.random.random() < 0.15 else last

    # the administrator

    def recreate(self) -> None:
        topic = self._topic()
        if not self.partitions[topic]:
            self.create(topic)
            return
        self.delete(topic)
        if self.random.random() < 0.7:
            self.create(topic)

    def create(self, topic: str) -> None:
        count, policy = self.random.choice((1, 2, 3)), self.random.choice(POLICIES)
        configs = [CreatableTopicConfig(name="cleanup.policy", value=policy)]
        answers = self.pair.ask(
            lambda wire, _: CreateTopicsRequest(
                topics=[
                    CreatableTopic(
                        name=wire.name(topic), num_partitions=count, replication_factor=1, configs=configs
                    )
                ],
                timeout_ms=30_000,
            ),
            f"create {topic} {count} {policy}",
            version=7,
        )
        self.partitions[topic] = count
        self.lives[topic] += 1
        for wire, answer in zip(self.pair.wires, answers, strict=True):
            wire.learn(answer.topics[0].topic_id, wire.name(topic))
        self._settle(topic)

    def delete(self, topic: str) -> None:
        by_id = self.random.random() < 0.5

        def make(wire: Wire, _: int) -> Request:
            state = DeleteTopicState(
                name=None if by_id else wire.name(topic),
                topic_id=self._id(wire, topic) if by_id else bytes(16),
            )
            return DeleteTopicsRequest(topics=[state], timeout_ms=30_000)

        self.pair.ask(make, f"delete {topic}", version=6)
        self.partitions[topic] = 0
        for wire in self.pair.wires:
            wire.learn(wire.topic_id(wire.name(topic)), f"{topic} of life {self.lives[topic]}")
        self._settle(topic)

    def grow(self) -> None:
        topic = self._topic()
        count = self.partitions[topic] + 1
        self.pair.ask(
            lambda wire, _: CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name=wire.name(topic), count=count, assignments=None)],
                timeout_ms=30_000,
            ),
            f"grow {topic} to {count}",
        )
        if self.partitions[topic]:
            self.partitions[topic] = count
            self._settle(topic)

    def _settle(self, topic: str) -> None:
        """Wait until the leaders and the group coordinators of both brokers know the topic's partitions."""
        count = self.partitions[topic]
        self._list_offsets(topic, list(range(count or 1)), -1, 9, 0, patient=True)
        self.pair.each(lambda wire: self._await_coordinator(wire, topic, count))
        time.sleep(REST_SECONDS)

    def _await_coordinator(self, wire: Wire, topic: str, count: int) -> None:
        """Let members of another group join and leave until one gets `count` partitions of the topic."""
        deadline = time.monotonic() + SETTLING_SECONDS
        while True:
            assigned = wire.ask(enter(wire, "probe", topic, group="probe")).assignment.topic_partitions
            wire.ask(beat(wire, "probe", -1, group="probe"))
            if sum(len(each.partitions) for each in assigned) == count:
                return
            assert time.monotonic() < deadline, assigned
            time.sleep(0.02)

    def alter(self) -> None:
        topic, policy = self._topic(), self.random.choice((*POLICIES, None))
        config = AlterableConfig(
            name="cleanup.policy", config_operation=1 if policy is None else 0, value=policy
        )

        def make(wire: Wire, _: int) -> Request:
            resource = AlterConfigsResource(
                resource_type=TOPIC_RESOURCE, resource_name=wire.name(topic), configs=[config]
            )
            return IncrementalAlterConfigsRequest(resources=[resource])

        self.pair.ask(make, f"alter {topic} {policy}")
        time.sleep(REST_SECONDS)

    def delete_records(self) -> None:
        topic = self._topic()
        wanted = [
            DeleteRecordsPartition(
                partition_index=self._partition(topic), offset=self.random.choice((-1, 0, 1, 3, 99))
            )
        ]
        self.pair.ask(
            lambda wire, _: DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=wire.name(topic), partitions=wanted)], timeout_ms=5000
            ),
            f"delete records of {topic} {wanted}",
        )

    # producers

    def begin(self, name: str) -> None:
        mine, theirs = self.pair.ask(
            lambda wire, _: txn.init(wire.name(name) if name else None), f"init {name!r}"
        )
        self.producers[name] = [(each.producer_id, each.producer_epoch) for each in (mine, theirs)]

    def produce(self) -> None:
        rng, topic = self.random, self._topic()
        partition, life = self._partition(topic), self._life(topic)
        name = rng.choice(self.senders)
        count = rng.choice((1, 1, 2, MAX_RECORDS))
        version = rng.choice((9, 11) if name == "x1" else (12, 13) if name == "x2" else (3, 8, 11, 12, 13))
        held = [(-1, -1)] * 2 if name is None else self.producers[name]
        key = (name or "", held[0][1], topic, life, partition)
        sequence = -1 if name is None else self.sequences.get(key, 0)
        if name == "" and rng.random() < 0.1:
            sequence += rng.choice((1, -1, 7)) if sequence else 0
        records = [Record(rng.choice((b"k", b"l", b"m")), b"v", NOW + n) for n in range(count)]
        codec, acks = rng.choice(list(Compression)), rng.choice((1, -1)) if name is None else -1

        def make(wire: Wire, number: int) -> Request:
            batch = encode_batch(
                records, compression=codec, transactional=bool(name),
                producer_id=held[number][0], producer_epoch=held[number][1], base_sequence=sequence,
            )  # fmt: skip
            data = [PartitionProduceData(index=partition, records=batch)]
            topics = [
                TopicProduceData(
                    name=wire.name(topic), topic_id=self._id(wire, topic, life), partition_data=data
                )
            ]
            return ProduceRequest(
                transactional_id=wire.name(name) if name else None, acks=acks, timeout_ms=5000,
                topic_data=topics,
            )  # fmt: skip

        told = f"produce v{version} {count} by {name!r} to {topic}-{partition} life {life} from {sequence}"
        mine, _ = self.pair.ask(make, told, version=version)
        if name is not None and not mine.responses[0].partition_responses[0].error_code:
            known = life if version >= 13 else self.lives[topic]
            self.sequences[name, held[0][1], topic, known, partition] = sequence + count

    def add(self) -> None:
        topic = self._topic()
        partition = self._partition(topic)
        held = self.producers["x1"]
        self.pair.ask(
            lambda wire, number: txn.add(wire.name("x1"), held[number], wire.name(topic), partition),
            f"add {topic}-{partition}",
            version=self.random.choice((2, 3)),
        )

    def offsets_in_transaction(self) -> None:
        name, topic, offset = self.random.choice(("x1", "x2")), self._topic(), self.random.randint(0, 9)
        held, version = self.producers[name], 5 if name == "x2" else 4
        self.pair.ask(
            lambda wire, n: txn.offsets(
                wire, wire.name(name), held[n], wire.name(topic), offset, group_id=wire.name("s")
            ),
            f"offsets of {topic} {offset} by {name}",
            version=version,
        )

    def end(self) -> None:
        name, commits = self.random.choice(("x1", "x2")), self.random.random() < 0.6
        held, version = self.producers[name], 5 if name == "x2" else 4
        mine, theirs = self.pair.ask(
            lambda wire, number: txn.end(wire.name(name), held[number], commits),
            f"end {name} commits {commits}",
            version=version,
        )
        self.pair.each(lambda wire: txn.settled(wire, wire.name(name)))
        if version == 5 and not mine.error_code and mine.producer_id >= 0:
            self.producers[name] = [(each.producer_id, each.producer_epoch) for each in (mine, theirs)]
        elif mine.error_code:
            self.begin(name)
            self.pair.each(lambda wire: txn.settled(wire, wire.name(name)))

    def describe_transactions(self) -> None:
        name = self.random.choice(("x1", "x2"))
        self.pair.ask(lambda wire, _: txn.describe(wire.name(name)), f"describe {name}")

    def describe_producers(self) -> None:
        topic = self._topic()
        indexes = [0, self.partitions[topic]]

        def shape(answer: Any) -> Any:
            for found in answer["topics"]:
                for partition in found["partitions"]:
                    for producer in partition["active_producers"]:
                        producer["last_timestamp"] = min(producer["last_timestamp"], 0)
            return answer

        self.pair.ask(
            lambda wire, _: DescribeProducersRequest(
                topics=[ProducersTopic(name=wire.name(topic), partition_indexes=indexes)]
            ),
            f"producers of {topic}",
            shape,
        )

    # readers

    def fetch(self) -> None:
        rng = self.random
        by_id = rng.random() < 0.6
        numbers, epoch = self.sessions[by_id]
        is_new = not numbers[0] or rng.random() < 0.1
        epoch = 0 if is_new else epoch
        wanted: dict[tuple[str, int], list[FetchPartition]] = {}
        for topic in TOPICS:
            life = self._life(topic)
            for partition in range(self.partitions[topic] + (rng.random() < 0.1) or 1):
                if is_new or rng.random() < 0.3:
                    wanted.setdefault((topic, life), []).append(
                        FetchPartition(
                            partition=partition,
                            fetch_offset=rng.choice((0, 0, 1, 4, 50)),
                            partition_max_bytes=LIMIT,
                            current_leader_epoch=rng.choice((-1, -1, 0)),
                        )
                    )
        gone = None if is_new or rng.random() < 0.85 else (self._topic(), rng.randrange(3))
        life = gone and self._life(gone[0])
        isolation, version = rng.randrange(2), rng.choice((13, 17) if by_id else (7, 11, 12))

        def make(wire: Wire, number: int) -> Request:
            topics = [
                FetchTopic(topic=wire.name(name), topic_id=self._id(wire, name, which), partitions=parts)
                for (name, which), parts in wanted.items()
            ]
            forgotten = [
                ForgottenTopic(
                    topic=wire.name(gone[0]), topic_id=self._id(wire, gone[0], life), partitions=[gone[1]]
                )
            ] if gone else []  # fmt: skip
            return FetchRequest(
                replica_id=-1, max_wait_ms=20, min_bytes=1, max_bytes=LIMIT, isolation_level=isolation,
                session_id=0 if is_new else numbers[number], session_epoch=epoch, topics=topics,
                forgotten_topics_data=forgotten,
            )  # fmt: skip

        told = f"fetch v{version} epoch {epoch} isolation {isolation}: {wanted} not {gone} of life {life}"
        mine, theirs = self.pair.ask(make, told, _without_what_kafka_remembers, version=version)
        if mine.error_code:
            self.sessions[by_id] = ([0, 0], 0)
        else:
            self.sessions[by_id] = ([mine.session_id, theirs.session_id] if is_new else numbers, epoch + 1)

    def list_offsets(self) -> None:
        topic = self._topic()
        at = self.random.choice((-1, -1, -2, -4, -5, NOW, NOW + 1, NOW + 3))
        version, isolation = self.random.choice((1, 2, 4, 7, 9, 11)), self.random.randrange(2)
        self._list_offsets(topic, [self._partition(topic)], at, version, isolation)

    def _list_offsets(
        self, topic: str, indexes: list[int], at: int, version: int, isolation: int, patient: bool = False
    ) -> None:
        wanted = [ListOffsetsPartition(partition_index=index, timestamp=at) for index in indexes]
        self.pair.ask(
            lambda wire, _: ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation,
                topics=[ListOffsetsTopic(name=wire.name(topic), partitions=wanted)],
                timeout_ms=1000,
            ),
            f"list offsets v{version} of {topic} {indexes} at {at} isolation {isolation}",
            _without_times_of_markers,
            version=version,
            patient=patient,
        )

    # groups

    def beat(self) -> None:
        rng = self.random
        member = rng.choice(MEMBERS)
        epoch = rng.choice((-1, self.epochs[member], self.epochs[member], self.epochs[member]))
        if self.epochs[member] == 0:
            epoch = 0
        held = self.owned.get(member) if epoch else None
        subscribed = rng.choice((TOPICS, TOPICS, ("a",))) if not epoch or rng.random() < 0.1 else None

        def make(wire: Wire, number: int) -> Request:
            owned = held and [
                TopicPartitions(topic_id=each.topic_id, partitions=each.partitions) for each in held[number]
            ]
            first = {"rebalance_timeout_ms": 60_000, "server_assignor": "range", "topic_partitions": []}
            usual: dict[str, Any] = {"topic_partitions": owned} if epoch > 0 else {}
            names = subscribed and [wire.name(topic) for topic in subscribed]
            return ConsumerGroupHeartbeatRequest(
                group_id=wire.name("g"), member_id=member, member_epoch=epoch, subscribed_topic_names=names,
                **(usual if epoch else first),
            )  # fmt: skip

        answers = self.pair.ask(make, f"beat of {member} epoch {epoch} {subscribed}")
        if answers[0].error_code or epoch < 0:
            self.epochs[member] = 0
            self.owned.pop(member, None)
            return
        self.epochs[member] = answers[0].member_epoch
        if answers[0].assignment is not None:
            self.owned[member] = tuple(answer.assignment.topic_partitions for answer in answers)

    def describe(self) -> None:
        self.pair.ask(lambda wire, _: describe(wire), "describe")

    def commit(self) -> None:
        rng, topic = self.random, self._topic()
        life, partition, offset = self._life(topic), self._partition(topic), rng.randint(0, 9)
        member, version = rng.choice((*MEMBERS, "")), rng.choice((2, 5, 7, 8, 9, 10))
        version = version if not member else max(version, 9)
        epoch = self.epochs[member] - rng.choice((0, 0, 0, 1)) if member else -1
        group = "g" if member else rng.choice("gs")

        def make(wire: Wire, _: int) -> Request:
            parts = [OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)]
            wanted = OffsetCommitRequestTopic(
                name=wire.name(topic), topic_id=self._id(wire, topic, life), partitions=parts
            )
            return OffsetCommitRequest(
                group_id=wire.name(group), generation_id_or_member_epoch=epoch, member_id=member,
                topics=[wanted],
            )  # fmt: skip

        told = f"commit v{version} {group} {topic}-{partition} life {life} by {member!r} epoch {epoch}"
        self.pair.ask(make, told, version=version)

    def committed(self) -> None:
        rng = self.random
        group, version, everything = rng.choice("gs"), rng.choice((1, 5, 7, 8, 9, 10)), rng.random() < 0.3
        everything &= version >= 2
        lives = {topic: self._life(topic) for topic in TOPICS}
        stable = rng.random() < 0.5

        def make(wire: Wire, _: int) -> Request:
            wanted = [
                OffsetFetchRequestTopics(
                    name=wire.name(topic), topic_id=self._id(wire, topic, life), partition_indexes=[0, 1, 2]
                )
                for topic, life in lives.items()
            ]
            old = [OffsetFetchRequestTopic(name=each.name, partition_indexes=[0, 1, 2]) for each in wanted]
            asked = OffsetFetchRequestGroup(
                group_id=wire.name(group), member_epoch=-1, topics=None if everything else wanted
            )
            return OffsetFetchRequest(
                group_id=wire.name(group), topics=None if everything else old, groups=[asked],
                require_stable=stable,
            )  # fmt: skip

        told = f"committed v{version} {group} {lives} all {everything} stable {stable}"
        self.pair.ask(make, told, version=version, patient=True)

    def delete_offsets(self) -> None:
        group, topic = self.random.choice("gs"), self._topic()
        parts = [OffsetDeleteRequestPartition(partition_index=index) for index in (0, 1)]
        self.pair.ask(
            lambda wire, _: OffsetDeleteRequest(
                group_id=wire.name(group),
                topics=[OffsetDeleteRequestTopic(name=wire.name(topic), partitions=parts)],
            ),
            f"delete offsets {group} {topic}",
        )


def _without_what_kafka_remembers(answer: Any) -> Any:
    """Return a Fetch answer with one error for all ids of deleted topics.

    In a session, Kafka remembers their names, and looks the partitions up by these names. Its last stable
    offset can be in a batch whose first records are deleted.
    """
    answer = whole_batches(answer)
    for name, partition in answer["partitions"].items():
        if "of life" in name and partition["error_code"]:
            partition["error_code"] = ErrorCode.UNKNOWN_TOPIC_ID
        start = partition["log_start_offset"]
        partition["last_stable_offset"] = max(partition["last_stable_offset"], start)
    return answer


def _without_times_of_markers(answer: Any) -> Any:
    """Return a ListOffsets answer with -2 in place of times that brokers have chosen."""
    for topic in answer["topics"]:
        for partition in topic["partitions"]:
            if partition["timestamp"] > NOW + MAX_RECORDS:
                partition["timestamp"] = -2
    return answer
