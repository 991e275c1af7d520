"""Creates and deletes topics, and adds partitions to them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import NamedTuple

from barnabas.base.environment.randomness import new_topic_id
from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.text import logger_of, shown
from barnabas.base.types import METADATA_TOPIC, BrokerId, TopicId
from barnabas.broker.config import BrokerConfig
from barnabas.broker.controller.configs import check_topic_config
from barnabas.broker.controller.eligibility import eligibility_of, known_brokers
from barnabas.broker.controller.names import Collisions, check_topic_name
from barnabas.broker.controller.placement import (
    check_assignment,
    check_assignments,
    invalid_assignment,
    place_replicas,
)
from barnabas.broker.controller.reassignment import target_of
from barnabas.broker.controller.writes import ControllerWrites
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.configs import ConfigResolver
from barnabas.broker.metadata.image import ClusterImage, PartitionState, TopicImage
from barnabas.broker.metadata.store import Create, Delete, Operation, Set

log = logger_of(__name__)

#: how many partitions one request may make, as in Apache Kafka
MAX_PARTITIONS_PER_REQUEST = 10_000

#: the most partitions whose operations are made in one turn of the event loop
_PARTITIONS_A_TURN = 200

#: leave it to the broker's setting
DEFAULT = -1


class NewTopic(NamedTuple):
    """A topic to create.

    For `partitions` and `replication_factor`, `DEFAULT` means the broker's default. `assignments` are pairs
    of a partition number and the partition's replicas. If there are any, `partitions` and
    `replication_factor` must be `DEFAULT`. `configs` are settings as text. A setting without a value (None)
    is rejected.
    """

    name: str
    partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: Sequence[tuple[int, Sequence[BrokerId]]] = ()
    configs: Mapping[str, str | None] = MappingProxyType({})


class NewPartitions(NamedTuple):
    """A topic's new number of partitions (`total`), and the replicas of each added partition (`assignments`).

    If `assignments` is None, the controller chooses the replicas.
    """

    topic: str
    total: int
    assignments: Sequence[Sequence[BrokerId]] | None = None


class TopicControl:
    """The part of the controller that creates and deletes topics, and adds partitions to them.

    One transaction of the metadata store creates or deletes a topic, with all its partitions and settings.
    Folders on disk follow the metadata, never the reverse. The deletion of a topic leaves a note with the
    topic's id and the brokers that have folders of the topic. A broker deletes the topic's logs only if there
    is such a note. It removes itself from the note when it has no folder left (`deletion_notes.py`).

    Args:
        writes: writes to the metadata store while this broker is the controller.
        configs: computes settings.
        broker_id: id of this broker.
        random: chooses topic ids, and the first of the brokers that get replicas.
        caught_up: waits until the controller has processed all changes of brokers.
    """

    def __init__(
        self,
        writes: ControllerWrites,
        configs: ConfigResolver,
        broker_id: BrokerId,
        random: Random,
        caught_up: Callable[[], Awaitable[None]],
    ) -> None:
        self._caught_up = caught_up
        self._writes = writes
        self._broker_id = broker_id
        self._configs = configs
        self._random = random

    async def create(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> dict[str, TopicImage | KafkaError]:
        """Create topics with different names. Return the created topic or the error, by name.

        With `validate_only`, create nothing, and return the topics that would be created.

        Raises:
            KafkaError: NOT_CONTROLLER; KAFKA_STORAGE_ERROR; POLICY_VIOLATION, the topics together have more
                than `MAX_PARTITIONS_PER_REQUEST` partitions.
        """
        await self._caught_up()
        async with self._writes.answering() as image:
            defaults = self._configs.broker_config(image)
            results: dict[str, TopicImage | KafkaError] = {}
            collisions = Collisions(image.topics)
            for topic in topics:
                try:
                    results[topic.name] = self._plan(topic, image, defaults, collisions)
                    collisions.add(topic.name)
                except KafkaError as error:
                    results[topic.name] = error
            planned = {name: topic for name, topic in results.items() if isinstance(topic, TopicImage)}
            check_partition_count(sum(len(topic.partitions) for topic in planned.values()))
            if not validate_only:
                configs = {topic.name: dict(topic.configs) for topic in topics}
                creations = {
                    name: await self._creation(topic, configs[name]) for name, topic in planned.items()
                }
                results |= await self._writes.write_each(creations)
            return results

    async def delete(self, topic_ids: Sequence[TopicId]) -> dict[TopicId, KafkaError]:
        """Delete topics. Return the error of each topic that was not deleted.

        The error is UNKNOWN_TOPIC_ID, TOPIC_DELETION_DISABLED, or the error of the failed write.

        Raises:
            KafkaError: NOT_CONTROLLER; KAFKA_STORAGE_ERROR.
        """
        async with self._writes.answering() as image:
            enabled = self._configs.broker_config(image).delete_topic_enable
            errors: dict[TopicId, KafkaError] = {}
            deletions: dict[TopicId, list[Operation]] = {}
            for topic_id in topic_ids:
                topic = image.topic_by_id(topic_id)
                if topic is None:
                    errors[topic_id] = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
                elif not enabled:
                    errors[topic_id] = KafkaError(ErrorCode.TOPIC_DELETION_DISABLED)
                else:
                    missing = await self._missing(topic)
                    has_config = topic.name in image.topic_configs
                    deletions[topic_id] = await _deletion(topic, has_config, missing)
            errors |= await self._writes.write_each(deletions)
            return errors

    async def create_partitions(
        self, requests: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> dict[str, KafkaError]:
        """Add partitions to topics. Return the errors of topics that got no new partitions, by topic name.

        The errors are those of `_grow`, or the error of the failed write. `requests` must be for different
        topics. With `validate_only`, change nothing, and return the errors that the checks find.

        Raises:
            KafkaError: NOT_CONTROLLER; KAFKA_STORAGE_ERROR; POLICY_VIOLATION, the requests together add more
                than `MAX_PARTITIONS_PER_REQUEST` partitions.
        """
        await self._caught_up()
        async with self._writes.answering() as image:
            errors: dict[str, KafkaError] = {}
            grown: dict[str, tuple[TopicImage, int]] = {}
            for request in requests:
                try:
                    grown[request.topic] = self._grow(request, image)
                except KafkaError as error:
                    errors[request.topic] = error
            check_partition_count(sum(len(topic.partitions) - old for topic, old in grown.values()))
            if not validate_only:
                growths = {name: await self._growth(topic, old) for name, (topic, old) in grown.items()}
                errors |= await self._writes.write_each(growths)
            return errors

    async def _missing(self, topic: TopicImage) -> Collection[str]:
        """Return the paths of the topic's nodes that the metadata store lacks; usually there are none."""
        if not any(state.is_missing for state in topic.partitions):
            return ()
        paths = [znodes.partitions(topic.name)]
        for number in range(len(topic.partitions)):
            paths += [znodes.partition(topic.name, number), znodes.partition_state(topic.name, number)]
        nodes = await self._writes.read(paths)
        return {path for path, node in zip(paths, nodes, strict=True) if node is None}

    def _plan(
        self, topic: NewTopic, image: ClusterImage, defaults: BrokerConfig, collisions: Collisions
    ) -> TopicImage:
        if topic.name == METADATA_TOPIC:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"'{topic.name}' is the name of Kafka's metadata topic: choose another",
            )
        check_topic_name(topic.name)
        if topic.name in image.topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
        collisions.check(topic.name)
        check_topic_config(topic.configs)
        if topic.assignments:
            if topic.partitions != DEFAULT or topic.replication_factor != DEFAULT:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    "an assignment gives the numbers of partitions and replicas: leave both numbers at -1",
                )
            replicas = check_assignments(topic.assignments, known_brokers(image))
        else:
            replicas = self._place(topic, image, defaults)
        eligible = eligibility_of(image)
        states = {r: new_partition(r, eligible.in_sync) for r in dict.fromkeys(replicas)}
        partitions = tuple(states[r] for r in replicas)
        return TopicImage(topic.name, new_topic_id(self._random), partitions)

    def _place(
        self, topic: NewTopic, image: ClusterImage, defaults: BrokerConfig
    ) -> list[tuple[BrokerId, ...]]:
        count = defaults.num_partitions if topic.partitions == DEFAULT else topic.partitions
        factor = topic.replication_factor
        if factor == DEFAULT:
            factor = defaults.default_replication_factor
        if factor < 1:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"a replication factor of {factor}: ask for at least 1, or -1 for the default",
            )
        if count < 1:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, f"{count} partitions: ask for at least 1, or -1 for the default"
            )
        check_partition_count(count)
        return _place_replicas(image, count, factor, self._random)

    def _grow(self, request: NewPartitions, image: ClusterImage) -> tuple[TopicImage, int]:
        """Return the topic with its present and new partitions, and the number of its present partitions.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, there is no such topic; INVALID_PARTITIONS, the topic does
                not get more partitions; INVALID_REPLICA_ASSIGNMENT, the named replicas are not allowed;
                INVALID_REPLICATION_FACTOR, there are too few brokers; POLICY_VIOLATION, the topic would get
                too many partitions.
        """
        topic = image.topics.get(request.topic)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{request.topic}'")
        old = len(topic.partitions)
        added = request.total - old
        if added <= 0:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"'{request.topic}' has {old} partitions: {request.total} would not be more",
            )
        factor = len(target_of(topic.partitions[0]))
        if request.assignments is None:
            check_partition_count(added)
            replicas = _place_replicas(image, added, factor, self._random)
        elif len(request.assignments) != added:
            raise invalid_assignment(
                f"the request adds {added} partitions, but assigns replicas for {len(request.assignments)}"
            )
        else:
            known = known_brokers(image)
            replicas = [check_assignment(r, known, factor) for r in request.assignments]
        eligible = eligibility_of(image)
        new = tuple(new_partition(r, eligible.in_sync) for r in replicas)
        return TopicImage(topic.name, topic.id, topic.partitions + new), old

    async def _creation(self, topic: TopicImage, configs: Mapping[str, str | None]) -> list[Operation]:
        operations: list[Operation] = [
            Create(znodes.topic(topic.name), znodes.encode_topic(znodes.assignment_of(topic))),
            Create(znodes.partitions(topic.name)),
            *await self._partition_creations(topic, 0),
        ]
        if configs:
            texts = {name: value for name, value in configs.items() if value is not None}
            operations.append(Create(znodes.topic_config(topic.name), znodes.encode_config(texts)))
        return operations

    async def _growth(self, topic: TopicImage, old: int) -> list[Operation]:
        return [
            Set(znodes.topic(topic.name), znodes.encode_topic(znodes.assignment_of(topic))),
            *await self._partition_creations(topic, old),
        ]

    async def _partition_creations(self, topic: TopicImage, first: int) -> list[Operation]:
        operations: list[Operation] = []
        for number in range(first, len(topic.partitions)):
            if number % _PARTITIONS_A_TURN == _PARTITIONS_A_TURN - 1:
                await asyncio.sleep(0)
            state = znodes.encode_partition_state(topic.partitions[number], self._writes.epoch)
            operations.append(Create(znodes.partition(topic.name, number)))
            operations.append(Create(znodes.partition_state(topic.name, number), state))
        return operations


def new_partition(replicas: tuple[BrokerId, ...], in_sync: frozenset[BrokerId]) -> PartitionState:
    """Return the first state of a partition.

    `in_sync` are the brokers of the cluster that can be in sync at once. The ISR has the `replicas` on these
    brokers. The first broker of the ISR is the leader.

    Raises:
        KafkaError: INVALID_REPLICA_ASSIGNMENT, none of `replicas` is in `in_sync`.
    """
    isr = replicas if in_sync.issuperset(replicas) else tuple(r for r in replicas if r in in_sync)
    if not isr:
        raise invalid_assignment(f"none of the brokers {shown(replicas)} is running")
    return PartitionState(replicas, isr, isr[0])


def _place_replicas(
    image: ClusterImage, partitions: int, replication_factor: int, random: Random
) -> list[tuple[BrokerId, ...]]:
    """Return replicas for new partitions, by `place_replicas`.

    Brokers that run come first. If they are too few, brokers that start or stop follow, then absent ones.

    Raises:
        KafkaError: INVALID_REPLICATION_FACTOR, there are too few brokers in all, or none runs.
    """
    in_sync = eligibility_of(image).in_sync
    running = [broker for broker in image.brokers.values() if broker.id in in_sync]
    registered = sorted(image.brokers.keys() - in_sync)
    away = sorted(known_brokers(image) - image.brokers.keys())
    return place_replicas(running, partitions, replication_factor, random, others=(registered, away))


async def _deletion(topic: TopicImage, has_config: bool, missing: Collection[str]) -> list[Operation]:
    brokers = {broker for state in topic.partitions for broker in state.replicas}
    # The note comes first: a broker that sees the topic go knows that it was deleted.
    note = Create(znodes.deleted_topic(topic.id), znodes.encode_deleted_topic(brokers))
    paths: list[str] = []
    for number in range(len(topic.partitions)):
        if number % _PARTITIONS_A_TURN == _PARTITIONS_A_TURN - 1:
            await asyncio.sleep(0)
        paths += [znodes.partition_state(topic.name, number), znodes.partition(topic.name, number)]
    paths += [znodes.partitions(topic.name), znodes.topic(topic.name)]
    if has_config:
        paths.append(znodes.topic_config(topic.name))
    return [note, *(Delete(path) for path in paths if path not in missing)]


def check_partition_count(count: int) -> None:
    """Raise KafkaError POLICY_VIOLATION if `count` exceeds `MAX_PARTITIONS_PER_REQUEST`.

    `count` is the number of new partitions in one request.
    """
    if count > MAX_PARTITIONS_PER_REQUEST:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{count} partitions in one request are too many: ask for {MAX_PARTITIONS_PER_REQUEST} at most",
        )
