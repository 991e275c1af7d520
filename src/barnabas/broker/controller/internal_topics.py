"""Adds replicas to internal topics that were created when there were too few brokers.

A single broker, and the first brokers of a cluster, create `__consumer_offsets` and the other internal topics
with one replica on each broker. So groups and transactions work at once. When more brokers have joined, the
controller adds replicas. It does so only if the settings do not give a replication factor.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

from barnabas.base.errors import KafkaError
from barnabas.base.tasks import start_task, stop_tasks
from barnabas.base.text import logger_of
from barnabas.base.types import (
    GROUP_METADATA_TOPIC,
    INTERNAL_TOPICS,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    BrokerId,
    TopicPartition,
)
from barnabas.broker.config import BrokerConfig
from barnabas.broker.controller.eligibility import eligibility_of
from barnabas.broker.controller.placement import add_replicas
from barnabas.broker.controller.reassignment import is_moving
from barnabas.broker.metadata.image import ClusterImage, ImageDelta
from barnabas.broker.view import BrokerView

log = logger_of(__name__)

#: replicas of internal topics in a cluster, unless a setting gives another number
CLUSTER_REPLICAS = 3

Targets = Mapping[TopicPartition, Sequence[BrokerId]]
Reassign = Callable[[Callable[[ClusterImage], Targets]], Awaitable[Mapping[TopicPartition, KafkaError]]]


class InternalTopics:
    """Adds replicas to internal topics when brokers join.

    Args:
        is_due: returns whether this broker is the controller.
        view: settings of this broker, and its image (copy) of the cluster's metadata.
        reassign: called with a function that returns partitions and all replicas that they are to have. It
            calls this function with an image that has all earlier decisions, starts the reassignments, and
            returns the errors by partition. May raise KafkaError.
    """

    def __init__(self, is_due: Callable[[], bool], view: BrokerView, reassign: Reassign) -> None:
        self._is_due = is_due
        self._view = view
        self._reassign = reassign
        self._growing: asyncio.Task[None] | None = None
        self._must_grow = False

    def on_image(self, delta: ImageDelta) -> None:
        """Start to add missing replicas if brokers or internal topics have changed."""
        if delta.brokers or not delta.topics.isdisjoint(INTERNAL_TOPICS):
            self.begin()

    def begin(self) -> None:
        """Start to add missing replicas, if this broker is the controller."""
        if not self._is_due() or not too_few(self._view.image, self._view.config):
            return
        self._must_grow = True
        if self._growing is None or self._growing.done():
            self._growing = start_task(self._grow(), "replicas of internal topics")

    async def stop(self) -> None:
        await stop_tasks(self._growing)

    async def _grow(self) -> None:
        while self._must_grow:
            self._must_grow = False
            if not self._is_due() or not too_few(self._view.image, self._view.config):
                return
            targets: Targets = {}

            def choose(image: ClusterImage) -> Targets:
                nonlocal targets
                targets = too_few(image, self._view.config)
                return targets

            try:
                failures = list((await self._reassign(choose)).values())
            except KafkaError as error:
                failures = [error]
            if failures:  # the next broker or controller that comes is the next occasion
                log.warning("cannot add replicas to internal topics yet: %s", failures[0])
            elif targets:
                log.info("%d partitions of internal topics get more replicas", len(targets))


def too_few(image: ClusterImage, config: BrokerConfig) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    """Return the partitions of internal topics that need more replicas.

    For each partition, the result has its present replicas and the ones to add. A partition needs
    `CLUSTER_REPLICAS` replicas, or one on each running broker if these are fewer.

    Partitions that have a reassignment in progress, or no state in the metadata store, are left out. Topics
    whose replication factor is set are left out, too. Without the setting ``zookeeper.connect`` the broker
    has no cluster, and the result is empty.
    """
    if config.zookeeper_connect is None:
        return {}
    settings = {
        GROUP_METADATA_TOPIC: config.offsets_topic_replication_factor,
        TRANSACTION_STATE_TOPIC: config.transaction_state_log_replication_factor,
        SHARE_GROUP_STATE_TOPIC: config.share_coordinator_state_topic_replication_factor,
    }
    in_sync = eligibility_of(image).in_sync
    running = [broker for broker in image.brokers.values() if broker.id in in_sync]
    wanted = min(CLUSTER_REPLICAS, len(running))
    targets: dict[TopicPartition, tuple[BrokerId, ...]] = {}
    for name, setting in settings.items():
        topic = image.topics.get(name)
        if setting is not None or topic is None:
            continue
        held = Counter(replica for state in topic.partitions for replica in state.replicas)
        for number, state in enumerate(topic.partitions):
            if len(state.replicas) < wanted and state.is_known and not is_moving(state):
                targets[TopicPartition(name, number)] = add_replicas(state.replicas, wanted, running, held)
    return targets
