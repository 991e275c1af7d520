"""Collects the end positions of replicas' logs from brokers, and chooses a leader by them (KIP-966)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from barnabas.base.errors import BarnabasError, ErrorCode
from barnabas.base.text import logger_of
from barnabas.base.types import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from barnabas.broker.controller.partition_changes import last_in_sync
from barnabas.broker.metadata.image import ClusterImage, PartitionState
from barnabas.broker.storage.log_end import LogEnd, contains, longest_log
from barnabas.kafka.protocol.messages.get_replica_log_info import (
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
    PartitionLogInfo,
    TopicPartitions,
)
from barnabas.kafka.protocol.schema import Request

log = logger_of(__name__)

#: function that sends a request to a broker, also to this one; raises BarnabasError
Ask: TypeAlias = Callable[[BrokerId, Request], Awaitable[Any]]

#: how many partitions one request asks for
_AT_ONCE = 500


class ReplicaLog(NamedTuple):
    """The end and the leader epochs of a replica's log, as its broker reports them."""

    end: LogEnd
    #: the latest leader epochs, each with its first offset, in ascending order; empty from a broker of 0.2.0
    epoch_starts: tuple[tuple[LeaderEpoch, Offset], ...] = ()


def choose_leader(state: PartitionState, logs: Mapping[BrokerId, ReplicaLog]) -> BrokerId:
    """Return the replica with the longest log that has all records of those that were last in sync.

    Another replica can have a higher last epoch, from a leadership in which nothing was committed. A later
    leader then committed records of earlier epochs, and appended none of its own. Such a log lacks them.
    But a log with records of the last leadership is equal to that leader's log up to its own end. If `logs`
    has no replica that was last in sync, return the one with the longest log.

    Args:
        state: state of the partition, which has no leader.
        logs: logs of the candidates; at least one. Of equally long logs, the first one is chosen.
    """
    ends = {broker: each.end for broker, each in logs.items()}
    in_sync = {broker: ends[broker] for broker in ends if broker in last_in_sync(state)} or ends
    best = longest_log(in_sync)
    last_leadership = state.leader_epoch - 1  # the epoch rose when the leader was lost

    def has_all_of_best(log: ReplicaLog) -> bool:
        has_followed_further = log.end.epoch == last_leadership and log.end.end >= ends[best].end
        return has_followed_further or contains(log.epoch_starts, log.end, ends[best])

    return longest_log(
        {
            broker: each.end
            for broker, each in logs.items()
            if broker == best or (broker not in in_sync and has_all_of_best(each))
        }
    )


async def replica_logs(
    ask: Ask, image: ClusterImage, wanted: Mapping[TopicPartition, Iterable[BrokerId]]
) -> dict[TopicPartition, dict[BrokerId, ReplicaLog]]:
    """Ask the `wanted` brokers of each partition for the ends and the leader epochs of their logs.

    Return them by partition and broker. The result lacks brokers that do not answer, that answer with an
    error, or that have registered again since `image`.
    """
    by_broker: dict[BrokerId, list[TopicPartition]] = {}
    for partition, brokers in wanted.items():
        for broker in brokers:
            by_broker.setdefault(broker, []).append(partition)
    found: dict[TopicPartition, dict[BrokerId, ReplicaLog]] = {}
    answers = await asyncio.gather(
        *(
            _of_broker(ask, image, broker, partitions, has_epochs=True)
            for broker, partitions in sorted(by_broker.items())
        )
    )
    for broker, answer in zip(sorted(by_broker), answers, strict=True):
        for partition, info in answer.items():
            if info.error_code == ErrorCode.NONE:
                end = LogEnd(info.last_written_leader_epoch, info.log_end_offset)
                starts = tuple((each.leader_epoch, each.start_offset) for each in info.epoch_starts)
                found.setdefault(partition, {})[broker] = ReplicaLog(end, starts)
    return found


async def failed_replicas(
    ask: Ask, image: ClusterImage, broker: BrokerId
) -> frozenset[tuple[TopicId, int]] | None:
    """Ask `broker` for its replicas whose log directory has failed.

    Return the topic id and the index of each of these partitions; an empty set if none has failed. Return
    None if the request fails, or if the broker has registered again since `image`. Also return None if the
    response lacks a replica that the broker has in `image`.
    """
    partitions = [
        TopicPartition(name, number)
        for name, topic in sorted(image.topics.items())
        for number, state in enumerate(topic.partitions)
        if broker in state.replicas
    ]
    answer = await _of_broker(ask, image, broker, partitions, has_epochs=False)
    if len(answer) < len(partitions):
        return None
    return frozenset(
        (image.topics[name].id, number)
        for (name, number), info in answer.items()
        if info.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    )


async def _of_broker(
    ask: Ask, image: ClusterImage, broker: BrokerId, partitions: list[TopicPartition], *, has_epochs: bool
) -> dict[TopicPartition, PartitionLogInfo]:
    found: dict[TopicPartition, PartitionLogInfo] = {}
    registered = image.brokers.get(broker)
    for first in range(0, len(partitions), _AT_ONCE):
        topics: dict[TopicId, TopicPartitions] = {}
        for name, number in partitions[first : first + _AT_ONCE]:
            topic_id = image.topics[name].id
            topics.setdefault(topic_id, TopicPartitions(topic_id=topic_id)).partitions.append(number)
        request = GetReplicaLogInfoRequest(
            broker_id=broker, topic_partitions=list(topics.values()), include_epoch_starts=has_epochs
        )
        try:
            response: GetReplicaLogInfoResponse = await ask(broker, request)
        except BarnabasError as error:
            log.info("broker %d does not report the log ends of its replicas: %s", broker, error)
            break
        if registered is None or response.broker_epoch != registered.epoch:
            break
        for topic in response.topic_partition_log_info_list:
            name = image.topic_names.get(topic.topic_id, "")
            for info in topic.partition_log_info:
                found[TopicPartition(name, info.partition)] = info
    return found
