"""Counts partitions, groups, transactions and the cluster's topics for each response of ``/metrics``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from barnabas.base.types import NO_BROKER, BrokerId
from barnabas.broker.coordinator import ClassicGroup, ConsumerGroup, ShareGroup
from barnabas.broker.coordinator.transactions.transaction import TransactionState
from barnabas.broker.replication.partition import Partition
from barnabas.broker.server.monitoring.sources import Sources
from barnabas.broker.storage import PartitionLog

#: a transaction that is open for this much longer than the longest allowed timeout is hanging (KIP-664)
_LATE_MS = 300_000
#: number of partitions, groups or transactions counted in one step
_AT_ONCE = 500


_PROTOCOLS: Mapping[type, str] = {ClassicGroup: "classic", ConsumerGroup: "consumer", ShareGroup: "share"}


class Census:
    """Counts partitions, groups and transactions of a broker, for one response of ``/metrics``.

    The caller must first exhaust the iterator `steps`. The attributes then have the counts. At the
    controller, they include the counts of the cluster's topics and partitions.
    """

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self.partitions = self.leaders = self.reassigning = self.offline = 0
        self.under_replicated = self.under_min_isr = self.at_min_isr = 0
        self.producers = self.late = 0
        #: records that each follower lacks, and seconds since it had all
        self.lag_records: Counter[BrokerId] = Counter()
        self.lag_seconds: dict[BrokerId, float] = {}
        #: number of groups that this broker coordinates, by state
        self.groups: Counter[str] = Counter()
        #: number of these groups, by protocol; and number of share groups among them, by state
        self.protocols: Counter[str] = Counter()
        self.share_groups: Counter[str] = Counter()
        self.transactions: Counter[str] = Counter()
        #: the age of the oldest open transaction, in seconds
        self.oldest_transaction = 0.0
        #: at the controller
        self.cluster_topics = self.cluster_partitions = self.without_leader = self.not_preferred = 0

    def steps(self) -> Iterator[None]:
        """Add the counts to the attributes of this object, part by part.

        The iterator yields None after each part, so that the caller can let the event loop serve requests. A
        part takes less than a millisecond.
        """
        for partition in list(self._sources.replicas):
            self._count(partition)
            yield
        for number, group in enumerate(self._sources.groups.loaded_groups()):
            self.groups[group.state.value] += 1
            self.protocols[_PROTOCOLS[type(group)]] += 1
            if isinstance(group, ShareGroup):
                self.share_groups[group.state.value] += 1
            if number % _AT_ONCE == 0:
                yield
        yield from self._count_transactions()
        if self._sources.controller.active:
            yield from self._count_cluster()

    def _count(self, partition: Partition) -> None:
        self.partitions += 1
        log = partition.log
        self.offline += log.is_offline
        self.producers += len(log.producers)
        if log.producers.first_unstable_offset is not None:
            self.late += self._is_late(log)
        if not partition.is_leader:
            return
        self.leaders += 1
        state = partition.state
        missing = log.config.min_insync_replicas - len(state.isr)
        self.under_replicated += len(state.isr) < len(state.replicas)
        self.under_min_isr += missing > 0
        self.at_min_isr += missing == 0
        self.reassigning += bool(state.adding or state.removing)
        now = self._sources.serving_time.now()
        for follower in partition.progress:
            lacks = max(0, log.log_end_offset - max(follower.end, log.log_start_offset))
            self.lag_records[follower.broker_id] += lacks
            late = max(0.0, now - follower.caught_up_at) if lacks else 0.0
            self.lag_seconds[follower.broker_id] = max(late, self.lag_seconds.get(follower.broker_id, 0.0))

    def _is_late(self, log: PartitionLog) -> bool:
        longest = self._sources.view.config.transaction_max_timeout_ms + _LATE_MS
        before = self._sources.view.clock.now_ms() - longest
        return any(each.transaction_start >= 0 and each.last_timestamp < before for each in log.producers)

    def _count_transactions(self) -> Iterator[None]:
        now_ms = self._sources.view.clock.now_ms()
        for number, transaction in enumerate(self._sources.transactions.loaded_transactions()):
            self.transactions[transaction.state.label] += 1
            if transaction.state is TransactionState.ONGOING:
                age = (now_ms - transaction.started_ms) / 1000
                self.oldest_transaction = max(self.oldest_transaction, age)
            if number % _AT_ONCE == 0:
                yield

    def _count_cluster(self) -> Iterator[None]:
        topics = list(self._sources.view.image.topics.values())
        self.cluster_topics = len(topics)
        for topic in topics:
            for start in range(0, len(topic.partitions), _AT_ONCE):
                for state in topic.partitions[start : start + _AT_ONCE]:
                    self.cluster_partitions += 1
                    self.without_leader += state.leader == NO_BROKER
                    self.not_preferred += bool(state.replicas) and state.leader != state.replicas[0]
                yield
