"""Elects leaders of partitions in which no replica certainly has all committed records (KIP-966).

An election needs the logs of all replicas that were last in sync. Each of them can have lost its last records
in a power cut, so also another replica can have the longest log.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping

from barnabas.base.errors import KafkaError
from barnabas.base.tasks import start_task, stop_tasks
from barnabas.base.text import logger_of
from barnabas.base.types import NO_BROKER, BrokerId, TopicPartition
from barnabas.broker.controller.awaited_brokers import AwaitedBrokers
from barnabas.broker.controller.eligibility import eligibility_of, incomplete_replicas
from barnabas.broker.controller.partition_changes import (
    awaited_replicas,
    candidates,
    elect_longest_log,
    elect_uncleanly,
)
from barnabas.broker.controller.replica_logs import Ask, choose_leader, replica_logs
from barnabas.broker.controller.writes import ControllerWrites
from barnabas.broker.metadata.configs import ConfigResolver
from barnabas.broker.metadata.image import BrokerState, ClusterImage, PartitionState, TopicImage
from barnabas.broker.metadata.loader import MetadataLoader
from barnabas.broker.metadata.store import StoreError
from barnabas.broker.storage.log_end import LogEnd

log = logger_of(__name__)

#: between two attempts, doubled after each; in seconds
_FIRST_RETRY, _LAST_RETRY = 0.2, 5.0
#: The log names the awaited brokers when a partition has had no leader for this time: at least the seconds of
#: `_MIN_PATIENCE`, and at least `_SESSIONS` session timeouts. A killed broker can register only when its last
#: session has ended.
_MIN_PATIENCE, _SESSIONS = 10.0, 2.0
#: how many partitions a log line names
_NAMED = 20


class UncleanElections:
    """Asks candidates for the ends of their logs, and elects the longest one (`choose_leader`).

    - Without ``unclean.leader.election.enable``, an election waits until all members of the partition's last
      known ELR run and have answered. Log lines name the brokers that do not come back in time.
    - With this setting, an election takes place at once, among the live replicas. Log lines name the
      partitions that may lose records.

    A replica that its broker has registered as incomplete is never elected here. Without the setting, an
    election waits until each member of the last known ELR is complete. A user who accepts the loss of records
    can start an unclean election meanwhile (`ElectionControl`).

    Args:
        writes: writes to the metadata store while this broker is the controller.
        loader: loads this broker's image (copy) of the metadata.
        configs: resolves the effective settings of topics.
        ask: sends a request to a broker. Called with the broker's id, which can be this broker's, and the
            request; returns the response, or raises BarnabasError.
        session_timeout: returns the timeout of a broker's session with the metadata store, in seconds.
    """

    def __init__(
        self,
        writes: ControllerWrites,
        loader: MetadataLoader,
        configs: ConfigResolver,
        ask: Ask,
        session_timeout: Callable[[], float],
    ) -> None:
        self._writes = writes
        self._loader = loader
        self._configs = configs
        self._ask = ask
        self._is_due = False
        #: the number of partitions that got a leader from these elections
        self.elected = 0
        #: set when something has changed: a pause ends
        self._news = asyncio.Event()
        self._electing: asyncio.Task[None] | None = None
        self._awaited = AwaitedBrokers(
            self._waiting, lambda: max(_MIN_PATIENCE, _SESSIONS * session_timeout())
        )
        #: topics of an image, and their partitions without a leader
        self._found_leaderless: tuple[Mapping[str, TopicImage], list[tuple[TopicPartition, PartitionState]]]
        self._found_leaderless = {}, []

    def begin(self) -> None:
        """Start a background task that elects leaders for partitions without one, where that is possible now.

        `candidates` says when an unclean election is possible. The task retries with pauses while there are
        such partitions, and ends if this broker is no longer the controller. If the task already runs, it
        makes the next attempt at once.
        """
        self._is_due = True
        self._news.set()
        if self._electing is None or self._electing.done():
            self._electing = start_task(self._elect_while_due(), "unclean elections")

    async def stop(self) -> None:
        await stop_tasks(self._electing)
        self._awaited.stop()

    async def _elect(self) -> None:
        image = await self._loader.settled()
        self._awaited.update()
        wanted = self._wanted(image)
        if not wanted:
            return
        found = await replica_logs(self._ask, image, wanted)
        async with self._writes.deciding() as now:
            self._writes.require_controller()
            still = self._wanted(now)
            elected: dict[TopicPartition, LogEnd] = {}
            changes: dict[TopicPartition, tuple[PartitionState, PartitionState]] = {}
            for partition in still:
                state = now.partition(partition)
                logs = found.get(partition, {})
                if state is None or state != image.partition(partition):
                    continue
                is_unclean = self._is_unclean(now, partition)
                if not is_unclean and not logs.keys() >= set(state.last_known_elr):
                    continue
                logs = {broker: logs[broker] for broker in still[partition] if broker in logs}
                if any(now.brokers[broker].epoch != image.brokers[broker].epoch for broker in logs):
                    continue  # it may reach less far than it did
                if logs:
                    leader = choose_leader(state, logs)
                    elected[partition] = logs[leader].end
                    changes[partition] = (
                        state,
                        elect_uncleanly(state, leader)
                        if is_unclean
                        else elect_longest_log(state, leader, self._min_isr(now, partition)),
                    )
            await self._writes.write_batches(
                [self._writes.state_change(partition, *change) for partition, change in changes.items()]
            )
            await self._loader.settled()
        self.elected += len(elected)
        unclean = {each for each in elected if self._is_unclean(now, each)}
        leaders = {partition: after.leader for partition, (_, after) in changes.items()}
        _report({each: elected[each] for each in elected.keys() - unclean}, leaders, is_unclean=False)
        _report({each: elected[each] for each in unclean}, leaders, is_unclean=True)

    async def _elect_while_due(self) -> None:
        delay = _FIRST_RETRY
        while self._is_due and self._writes.is_controller:
            self._is_due = False
            try:
                await self._elect()
                if self._wanted(self._loader.image):
                    self._is_due = True
            except (KafkaError, StoreError) as error:
                log.warning("cannot elect leaders yet, so some partitions have none: %s", error)
                self._is_due = True
            if self._is_due:
                self._news.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(delay):
                        await self._news.wait()
                delay = min(2 * delay, _LAST_RETRY)

    def _wanted(self, image: ClusterImage) -> dict[TopicPartition, tuple[BrokerId, ...]]:
        """Return the partitions without a leader for which an unclean election is possible now.

        Each comes with the brokers that take part. The controller asks them for the ends of their logs.
        """
        electable = eligibility_of(image).in_sync
        incomplete = incomplete_replicas(image)
        wanted = {}
        for partition, state in self._leaderless(image):
            allowed = self._is_unclean(image, partition)
            complete = electable - incomplete.get(partition, frozenset())
            brokers = candidates(state, complete, is_unclean_allowed=allowed)
            if brokers:
                wanted[partition] = brokers
        return wanted

    def _waiting(self) -> dict[TopicPartition, tuple[BrokerId, ...]]:
        """Return the partitions without a leader, each with the brokers for which it waits.

        Leave out a partition while one of these brokers is starting. Return nothing if this broker is not the
        controller.
        """
        waiting: dict[TopicPartition, tuple[BrokerId, ...]] = {}
        if not self._writes.is_controller:
            return waiting
        image = self._loader.image
        electable = eligibility_of(image).in_sync
        incomplete = incomplete_replicas(image)
        starting = {each.id for each in image.brokers.values() if each.state is BrokerState.STARTING}
        for partition, state in self._leaderless(image):
            if not self._is_unclean(image, partition):
                brokers = awaited_replicas(state, electable - incomplete.get(partition, frozenset()))
                if brokers and starting.isdisjoint(brokers):
                    waiting[partition] = brokers
        return waiting

    def _leaderless(self, image: ClusterImage) -> list[tuple[TopicPartition, PartitionState]]:
        """Return the partitions without a leader, sorted. Search only if a topic has changed."""
        topics, found = self._found_leaderless
        if topics is not image.topics:
            found = sorted(
                (TopicPartition(name, number), state)
                for name, topic in image.topics.items()
                for number, state in enumerate(topic.partitions)
                if state.leader == NO_BROKER
            )
            self._found_leaderless = image.topics, found
        return found

    def _min_isr(self, image: ClusterImage, partition: TopicPartition) -> int:
        return self._configs.topic_config(image, partition.topic).min_insync_replicas

    def _is_unclean(self, image: ClusterImage, partition: TopicPartition) -> bool:
        return self._configs.topic_config(image, partition.topic).unclean_leader_election_enable


def _report(
    elected: Mapping[TopicPartition, LogEnd], leaders: Mapping[TopicPartition, BrokerId], *, is_unclean: bool
) -> None:
    if not elected:
        return
    named = [
        f"{partition} by broker {leaders[partition]} up to offset {reach.end}"
        for partition, reach in sorted(elected.items())[:_NAMED]
    ]
    more = ", ..." if len(elected) > _NAMED else ""
    if is_unclean:
        log.warning(
            "elected the running replica with the highest log end for %d partitions, because "
            "unclean.leader.election.enable is set; later records may be lost: %s%s",
            len(elected),
            ", ".join(named),
            more,
        )
    else:
        log.info(
            "elected the replica with the highest log end for %d partitions, because all replicas that were "
            "last in sync are back: %s%s",
            len(elected),
            ", ".join(named),
            more,
        )
