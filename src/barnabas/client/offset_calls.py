"""Requests to leaders about offsets and deleted records: ListOffsets and DeleteRecords."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnabas.base.types import BrokerId, TopicPartition
from barnabas.client.brokers import Brokers
from barnabas.client.connection_pool import RESPONSE_TIMEOUT
from barnabas.client.leaders import LeaderRequests, ask_leaders
from barnabas.kafka.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

#: special times in ListOffsets, for the start and the end of the log
EARLIEST, LATEST = -2, -1
_CONSUMER = -1


def list_offsets(
    brokers: Brokers, times: Mapping[TopicPartition, int], *, skip_failed: bool
) -> dict[TopicPartition, int]:
    """Return one offset of each partition, from the partitions' leaders.

    Args:
        times: `EARLIEST` (the log start), `LATEST` (the high watermark), or a time in ms since 1970, by
            partition. A time gives the offset of the first record at this time or later; -1 if there is
            none.
        skip_failed: leave out partitions that do not exist or have no leader, and those whose leader rejects
            the request or does not answer.

    Raises:
        KafkaError: a partition does not exist or has no leader, or its leader rejects the request for it.
        ClientError: a leader does not answer.
    """

    def request_of(partitions: Sequence[TopicPartition]) -> ListOffsetsRequest:
        some = {partition: times[partition] for partition in partitions}
        return offsets_request(some, timeout_ms=round(1000 * brokers.timeout))

    answers = ask_leaders(
        brokers, times, request_of, response_timeout=RESPONSE_TIMEOUT, skip_failed=skip_failed
    )
    return {partition: answer.offset for partition, answer in answers.items()}


def offsets_at(
    brokers: Brokers,
    leaders: Mapping[TopicPartition, BrokerId],
    time: int,
    *,
    committed: bool = False,
) -> dict[TopicPartition, int]:
    """Return the offset of the first record at or after a time, for each partition.

    Partitions whose leader rejects the request or does not answer are left out.

    Args:
        leaders: partitions, with their leaders.
        time: milliseconds since 1970, `EARLIEST` or `LATEST`. The offset is -1 if there is no record at or
            after it.
        committed: if True, `LATEST` is the last stable offset, below which no transaction is open. If False,
            it is the high watermark.

    Raises:
        AuthenticationError: a leader rejects the client, or the client rejects a leader.
    """

    def request_of(partitions: Sequence[TopicPartition]) -> ListOffsetsRequest:
        return offsets_request(dict.fromkeys(partitions, time), committed=committed)

    return LeaderRequests(brokers, leaders, leaders, request_of).ask().offsets


def offsets_request(
    times: Mapping[TopicPartition, int], *, committed: bool = False, timeout_ms: int = 0
) -> ListOffsetsRequest:
    """Return a ListOffsets request for each partition's first offset at a time or later.

    Args:
        times: milliseconds since 1970, `EARLIEST` or `LATEST`, by partition.
        committed: if True, `LATEST` is the last stable offset, below which no transaction is open. If False,
            it is the high watermark.
        timeout_ms: the request's field of this name (since version 10), in milliseconds.
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


def delete_records(brokers: Brokers, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Delete each partition's records below its offset in `before`; -1 deletes all records.

    Return each partition's new log start offset. If replicas differ, it is the lowest one of the live
    replicas.

    Raises:
        KafkaError: a partition does not exist, or its leader rejects the offset. Records of other partitions
            may be deleted already.
        ClientError: a leader does not answer.
    """

    def request_of(partitions: Sequence[TopicPartition]) -> DeleteRecordsRequest:
        topics: dict[str, DeleteRecordsTopic] = {}
        for name, number in partitions:
            topic = topics.setdefault(name, DeleteRecordsTopic(name=name))
            offset = before[TopicPartition(name, number)]
            topic.partitions.append(DeleteRecordsPartition(partition_index=number, offset=offset))
        return DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=round(1000 * brokers.timeout))

    answers = ask_leaders(brokers, before, request_of)  # followers delete them, too, which takes time
    return {partition: answer.low_watermark for partition, answer in answers.items()}
