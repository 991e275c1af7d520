"""The page ``/metrics/partitions``: metrics of each partition, and of each group in its partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from barnabas.base.metrics.declaration import Sample
from barnabas.base.types import NO_BROKER, Offset
from barnabas.broker.metadata.image import PartitionState
from barnabas.broker.replication.partition import Partition
from barnabas.broker.server.monitoring.sources import Sources
from barnabas.broker.sharing.share_partition import SharePartition


@dataclass(frozen=True, slots=True)
class Committed:
    """A group's committed offset in one partition, and its lag in this partition in records and seconds."""

    group: str
    topic: str
    partition: str
    offset: Offset
    #: lag in records; -1 if the end offset is unknown
    lag: int
    #: lag in seconds; None if unknown
    seconds: float | None


@dataclass(frozen=True, slots=True)
class PartitionReading:
    """The partitions, group offsets and parts of the broker for one response of ``/metrics/partitions``."""

    sources: Sources
    partitions: list[Partition]
    #: partitions without a leader; empty unless this broker is the controller
    leaderless: list[tuple[str, int, PartitionState]]
    committed: list[Committed]


Sampler = Callable[[PartitionReading], Iterator[Sample]]


def _local(value: Callable[[Partition], float]) -> Sampler:
    """Return a sampler: a function that yields a sample for each replica on this broker.

    The labels are the topic and the partition number. The sampler calls `value` with the replica's
    `Partition`, to get the sample's value.
    """
    return lambda reading: ((_labels(each), value(each)) for each in reading.partitions)


def _of_leader(value: Callable[[Partition], float]) -> Sampler:
    """Return a sampler: a function that yields a sample for each partition that this broker leads.

    The labels are the topic and the partition number. The sampler calls `value` with the partition, to get
    the sample's value.
    """
    return lambda reading: ((_labels(each), value(each)) for each in reading.partitions if each.is_leader)


def _state(value: Callable[[PartitionState], float]) -> Sampler:
    """Return a sampler: a function that yields a sample for each partition that this broker leads.

    On the controller, the sampler also yields a sample for each partition without a leader.

    The labels are the topic and the partition number. The sampler calls `value` with the partition's state in
    the cluster image, to get the sample's value.
    """

    def sample(reading: PartitionReading) -> Iterator[Sample]:
        for each in reading.partitions:
            if each.is_leader:
                yield _labels(each), value(each.state)
        for topic, index, state in reading.leaderless:
            yield (topic, str(index)), value(state)

    return sample


def _shared(value: Callable[[SharePartition], float]) -> Sampler:
    """Return a sampler: a function that yields a sample for each share partition in use on this broker.

    The labels are the share group, the topic and the partition number. The sampler calls `value` with the
    share partition, to get the sample's value.
    """
    return lambda reading: (
        ((each.key.group, *_labels(each.partition)), value(each)) for each in reading.sources.share_partitions
    )


def _committed(value: Callable[[Committed], float | None]) -> Sampler:
    def sample(reading: PartitionReading) -> Iterator[Sample]:
        for each in reading.committed:
            found = value(each)
            if found is not None:
                yield (each.group, each.topic, each.partition), found

    return sample


def _sum(value: Callable[[Committed], int]) -> Sampler:
    def sample(reading: PartitionReading) -> Iterator[Sample]:
        sums: Counter[tuple[str, str]] = Counter()
        for each in reading.committed:
            sums[each.group, each.topic] += value(each)
        yield from sums.items()

    return sample


def _follower_lag(reading: PartitionReading) -> Iterator[Sample]:
    for each in reading.partitions:
        log = each.log
        for follower in each.progress:
            lacks = max(0, log.log_end_offset - max(follower.end, log.log_start_offset))
            yield (*_labels(each), str(follower.broker_id)), lacks


def _labels(partition: Partition) -> tuple[str, str]:
    topic, index = partition.topic_partition
    return topic, str(index)


def _is_preferred(state: PartitionState) -> bool:
    return bool(state.replicas) and state.leader == state.replicas[0]


def _lacks_replicas(state: PartitionState) -> bool:
    return len(state.isr) < len(state.replicas)


def _missing(partition: Partition) -> int:
    """Return ``min.insync.replicas`` minus the size of the ISR: the number of missing in-sync replicas.

    The result is negative if the ISR is larger than necessary.
    """
    return partition.log.config.min_insync_replicas - len(partition.state.isr)


SAMPLERS: Mapping[str, Sampler] = {
    "kafka_log_log_size": _local(lambda each: each.log.size),
    "kafka_log_log_numlogsegments": _local(lambda each: len(each.log.files.segments)),
    "kafka_log_log_logstartoffset": _local(lambda each: each.log.log_start_offset),
    "kafka_log_log_logendoffset": _local(lambda each: each.log.log_end_offset),
    "kafka_cluster_partition_replicascount": _of_leader(lambda each: len(each.state.replicas)),
    "kafka_cluster_partition_insyncreplicascount": _of_leader(lambda each: len(each.state.isr)),
    "kafka_cluster_partition_underreplicated": _of_leader(lambda each: int(_lacks_replicas(each.state))),
    "kafka_cluster_partition_underminisr": _of_leader(lambda each: int(_missing(each) > 0)),
    "kafka_cluster_partition_atminisr": _of_leader(lambda each: int(_missing(each) == 0)),
    "kafka_cluster_partition_laststableoffsetlag": _of_leader(
        lambda each: each.log.high_watermark - each.log.last_stable_offset
    ),
    "kafka_topic_partition_current_offset": _of_leader(lambda each: each.log.high_watermark),
    "kafka_topic_partition_oldest_offset": _of_leader(lambda each: each.log.log_start_offset),
    "kafka_topic_partition_leader": _state(lambda state: state.leader),
    "kafka_topic_partition_leader_is_preferred": _state(lambda state: int(_is_preferred(state))),
    "kafka_topic_partition_replicas": _state(lambda state: len(state.replicas)),
    "kafka_topic_partition_in_sync_replica": _state(lambda state: len(state.isr)),
    "kafka_topic_partition_under_replicated_partition": _state(lambda state: int(_lacks_replicas(state))),
    "barnabas_partition_replica_lag_records": _follower_lag,
    "kafka_server_sharepartitionmetrics_inflightmessagecount": _shared(
        lambda each: 0 if each.in_flight is None else each.in_flight.size
    ),
    "kafka_server_sharepartitionmetrics_inflightbatchcount": _shared(
        lambda each: 0 if each.in_flight is None else len(each.in_flight.ranges())
    ),
    "kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total": _shared(
        lambda each: each.expired_locks
    ),
    "kafka_consumergroup_current_offset": _committed(lambda each: each.offset),
    "kafka_consumergroup_lag": _committed(lambda each: each.lag),
    "kafka_consumergroup_group_lag_seconds": _committed(lambda each: each.seconds),
    "kafka_consumergroup_current_offset_sum": _sum(lambda each: each.offset),
    "kafka_consumergroup_lag_sum": _sum(lambda each: max(0, each.lag)),
}


def leaderless(reading: Sources) -> Iterator[tuple[str, int, PartitionState] | None]:
    """Yield the topic, the index and the state of each partition without a leader.

    Also yield None after each topic, so that the caller can let the event loop serve requests. If this broker
    is not the controller, yield nothing.
    """
    if not reading.controller.active:
        return
    for topic in list(reading.view.image.topics.values()):
        for index, state in enumerate(topic.partitions):
            if state.leader == NO_BROKER:
                yield topic.name, index, state
        yield None
