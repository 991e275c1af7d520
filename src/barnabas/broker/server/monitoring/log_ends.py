"""Finds the start and end offsets of partitions, from which the broker computes the lag of groups.

A group's coordinator does not lead all partitions that the group reads. The coordinator requests the offsets
of all other partitions from their leaders. For ``/metrics/partitions`` this module also keeps earlier high
watermarks, from which it computes the lag in seconds.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping

from barnabas.base.errors import KafkaError
from barnabas.base.types import NO_BROKER, BrokerId, Offset, TopicPartition
from barnabas.broker.interbroker import BrokerClient, ChannelError
from barnabas.broker.metadata import ClusterImage
from barnabas.broker.replication.manager import ReplicaManager
from barnabas.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

_LATEST, _EARLIEST = -1, -2
_CONSUMER = -1
#: time limit for the responses of leaders, in seconds
_PATIENCE = 2.0
#: largest number of partitions in one request, and in all requests for one page
_AT_ONCE, _MAX_ASKED = 1000, 50_000
#: largest number of remembered ends of a partition
_MAX_SEEN = 32
#: largest number of partitions with remembered ends
_MAX_PARTITIONS = 100_000


async def ask_ends(
    peers: BrokerClient, image: ClusterImage, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, Offset]:
    """Request the high watermarks of partitions from their leaders, and return them by partition.

    The result lacks a partition without a leader. It also lacks a partition whose leader answers with an
    error, or not within 2 seconds. It has at most the first 50,000 of `partitions`.

    Args:
        peers: the other brokers.
        image: cluster image, which has the leader of each partition.
        partitions: partitions that other brokers lead, not this one.
    """
    return await _ask(peers, image, partitions, _LATEST)


async def ask_starts(
    peers: BrokerClient, image: ClusterImage, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, Offset]:
    """Request the log start offsets of partitions from their leaders, and return them by partition.

    `ask_ends` describes the arguments, and the partitions that the result lacks.
    """
    return await _ask(peers, image, partitions, _EARLIEST)


async def _ask(
    peers: BrokerClient, image: ClusterImage, partitions: Collection[TopicPartition], timestamp: int
) -> dict[TopicPartition, Offset]:
    by_leader: dict[BrokerId, list[TopicPartition]] = defaultdict(list)
    for partition in list(partitions)[:_MAX_ASKED]:
        state = image.partition(partition)
        if state is not None and state.leader != NO_BROKER:
            by_leader[state.leader].append(partition)
    found: dict[TopicPartition, Offset] = {}

    async def ask(leader: BrokerId, asked: list[TopicPartition]) -> None:
        for start in range(0, len(asked), _AT_ONCE):
            request = _request(asked[start : start + _AT_ONCE], timestamp)
            response = await peers.channel(leader, "metrics").send(request, timeout_s=_PATIENCE)
            for topic in response.topics:
                for each in topic.partitions:
                    if not each.error_code:
                        found[TopicPartition(topic.name, each.partition_index)] = each.offset

    async def try_to_ask(leader: BrokerId, asked: list[TopicPartition]) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                await ask(leader, asked)
        except (ChannelError, KafkaError, TimeoutError):
            pass

    await asyncio.gather(*(try_to_ask(leader, asked) for leader, asked in by_leader.items()))
    return found


def _request(partitions: Collection[TopicPartition], timestamp: int) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsTopic] = {}
    for name, index in partitions:
        topic = topics.setdefault(name, ListOffsetsTopic(name=name))
        topic.partitions.append(ListOffsetsPartition(partition_index=index, timestamp=timestamp))
    return ListOffsetsRequest(replica_id=_CONSUMER, topics=list(topics.values()))


def known_end(replicas: ReplicaManager, partition: TopicPartition) -> Offset | None:
    """Return the partition's high watermark; None if this broker does not lead the partition."""
    try:
        found = replicas.find(*partition)
    except KafkaError:
        return None
    return found.log.high_watermark if found.is_leader else None


class EndHistory:
    """Keeps up to 32 high watermarks of each partition with their times, to compute the lag in seconds."""

    def __init__(self) -> None:
        #: by partition: (seconds, end), oldest first, each end above the one before
        self._seen: dict[TopicPartition, list[tuple[float, Offset]]] = {}

    def keep_only(self, partitions: Mapping[TopicPartition, object]) -> None:
        """Remove the history of every partition that is not a key of `partitions`."""
        for partition in [each for each in self._seen if each not in partitions]:
            del self._seen[partition]

    def note(self, partition: TopicPartition, end: Offset, now: float) -> None:
        """Store the high watermark `end` of a partition with the time `now`, if it has changed.

        If the high watermark has decreased, first remove the partition's earlier high watermarks: the log was
        truncated, or the topic was created again. If this object already has `_MAX_PARTITIONS` partitions,
        ignore a partition that it does not have.

        Args:
            partition: the partition.
            end: the partition's high watermark.
            now: time in seconds, of a clock that never goes back.
        """
        seen = self._seen.get(partition)
        if seen is None:
            if len(self._seen) < _MAX_PARTITIONS:
                self._seen[partition] = [(now, end)]
            return
        if end < seen[-1][1]:  # the log was truncated, or the topic created again
            seen.clear()
        if not seen or end > seen[-1][1]:
            seen.append((now, end))
            if len(seen) > _MAX_SEEN:
                del seen[1:-1:2]  # coarser, and as far back as before

    def seconds_behind(self, partition: TopicPartition, offset: Offset, end: Offset, now: float) -> float:
        """Return an estimate of the seconds since the partition's high watermark was `offset`.

        - If `offset` is not below `end`, or if no high watermark of the partition is stored: return 0.
        - If `offset` is between two stored high watermarks: assume that the partition grew evenly between
          them.
        - If `offset` is below the oldest stored high watermark: assume that the partition grew at the average
          rate between the oldest and the newest one. If only one is stored, return the seconds since it was
          stored.
        - If `offset` is not below the newest stored high watermark: return the seconds since the newest one
          was stored.

        Args:
            partition: the partition.
            offset: the offset, for example the committed offset of a group.
            end: present high watermark of the partition.
            now: present time in seconds, by the clock of `note`.
        """
        if offset >= end:
            return 0.0
        seen = self._seen.get(partition, [])
        if not seen:
            return 0.0
        first_time, first_end = seen[0]
        if offset < first_end:
            rate = (seen[-1][1] - first_end) / (seen[-1][0] - first_time) if len(seen) > 1 else 0.0
            return now - first_time + ((first_end - offset) / rate if rate > 0 else 0.0)
        before = seen[0]
        for sample in seen[1:]:
            if sample[1] > offset:
                grown = (offset - before[1]) / (sample[1] - before[1])
                return max(0.0, now - (before[0] + grown * (sample[0] - before[0])))
            before = sample
        return max(0.0, now - before[0])
