"""ListOffsets of a consumer: the request to one leader, and the answers by partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from barnabas.base.types import TopicPartition
from barnabas.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

#: times that name an end of the log
EARLIEST, LATEST = -2, -1
_CONSUMER = -1


def offsets_request(
    times: Mapping[TopicPartition, int], *, committed: bool = False, timeout_ms: int = 0
) -> ListOffsetsRequest:
    """Return the request for the first offset at a time or later.

    Args:
        times: milliseconds since 1970, `EARLIEST` or `LATEST`, by partition.
        committed: `LATEST` is the last stable offset, where open transactions begin.
    """
    topics: dict[str, ListOffsetsTopic] = {}
    for (name, number), time in times.items():
        topic = topics.setdefault(name, ListOffsetsTopic(name=name, partitions=[]))
        topic.partitions.append(ListOffsetsPartition(partition_index=number, timestamp=time))
    return ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=int(committed),
        topics=list(topics.values()),
        timeout_ms=timeout_ms,
    )


def by_partition(response: Any) -> Iterator[tuple[TopicPartition, Any]]:
    """Yield the answer for each partition of a response; other requests to leaders have the same form."""
    for topic in response.topics:
        for each in topic.partitions:
            yield TopicPartition(topic.name, each.partition_index), each
