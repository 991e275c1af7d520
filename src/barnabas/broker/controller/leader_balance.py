"""Moves leadership back to preferred leaders at intervals (``auto.leader.rebalance.enable``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from barnabas.base.errors import KafkaError
from barnabas.base.tasks import start_task, stop_tasks
from barnabas.base.text import logger_of
from barnabas.base.types import BrokerId, TopicPartition
from barnabas.broker.controller.elections import ElectionControl, ElectionType
from barnabas.broker.controller.eligibility import eligibility_of
from barnabas.broker.controller.reassignment import is_moving
from barnabas.broker.metadata.image import ClusterImage
from barnabas.broker.metadata.store import StoreError
from barnabas.broker.view import BrokerView

log = logger_of(__name__)


class LeaderBalance:
    """Elects preferred leaders at intervals, for brokers that lead too few of their partitions.

    Args:
        elections: elects the leaders.
        is_due: returns whether this broker is the controller.
        view: settings of this broker, and its image (copy) of the cluster's metadata.
    """

    def __init__(self, elections: ElectionControl, is_due: Callable[[], bool], view: BrokerView) -> None:
        self._elections = elections
        self._is_due = is_due
        self._view = view
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._view.config.auto_leader_rebalance_enable:
            self._looking = start_task(self._look(), "leader balance")

    async def stop(self) -> None:
        await stop_tasks(self._looking)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self._view.config.leader_imbalance_check_interval_seconds)
            if not self._is_due():
                continue
            wanted = imbalanced(self._view.image, self._view.config.leader_imbalance_per_broker_percentage)
            if wanted:
                try:
                    await self._elections.elect(ElectionType.PREFERRED, wanted)
                except (KafkaError, StoreError) as error:
                    log.warning("preferred leaders could not be elected: %s", error)


def imbalanced(image: ClusterImage, percentage: int) -> list[TopicPartition]:
    """Return the partitions whose preferred leader could lead now and does not lead.

    The percentage applies to each preferred leader separately. For example, a broker is the preferred leader
    of 20 partitions, and `percentage` is 10. The result has partitions of this broker only if there are at
    least 3. A partition with a reassignment in progress is left out.
    """
    electable = eligibility_of(image).electable
    preferred: dict[BrokerId, int] = {}
    elsewhere: dict[BrokerId, list[TopicPartition]] = {}
    for name, topic in sorted(image.topics.items()):
        for number, state in enumerate(topic.partitions):
            broker = state.replicas[0]
            preferred[broker] = preferred.get(broker, 0) + 1
            can_lead = broker in state.isr and broker in electable and not is_moving(state)
            if state.leader != broker and can_lead:
                elsewhere.setdefault(broker, []).append(TopicPartition(name, number))
    return [
        partition
        for broker, partitions in elsewhere.items()
        if 100 * len(partitions) > percentage * preferred[broker]
        for partition in partitions
    ]
