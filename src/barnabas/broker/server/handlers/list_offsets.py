"""ListOffsets v1-11: returns the offset for a timestamp, or for one of the special timestamps.

The special timestamps are latest, earliest, the largest timestamp (KIP-734), and three timestamps of tiered
storage (KIP-405, KIP-1005, KIP-1023). There is no tiered storage: the earliest local offset is the earliest
offset, and no offset is tiered or pending upload. Leader epochs are supported (KIP-320). With read_committed,
latest is the last stable offset. Until a new leader knows the high watermark, consumers get the error
OFFSET_NOT_AVAILABLE (KIP-207).
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import Offset
from barnabas.broker.awaitables import MaybeAwaitable
from barnabas.broker.logs.cold_reads import ColdReads
from barnabas.broker.replication.manager import ReplicaManager
from barnabas.broker.replication.partition import Partition
from barnabas.broker.server.fetching.offset_search import MAX_TIMESTAMP, find_offset
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.leadership import leader_of
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.broker.server.requests.needs import each_topic
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.broker.storage import ColdRead, LongSearch, OffsetAtTimestamp
from barnabas.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.kafka.security.acls import Operation

CONSUMER = -1
READ_COMMITTED = 1

#: the version from which clients know OFFSET_NOT_AVAILABLE
OFFSET_NOT_AVAILABLE_SINCE = 5

LATEST = -1
EARLIEST = -2
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

#: the version from which each special timestamp may be asked
_SINCE = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}


@handles(
    ListOffsetsRequest,
    needs=[each_topic(Operation.DESCRIBE, "topics")],
    pieces=[Pieces("topics.partitions", size=32, unique=True)],
    is_heavy=True,
    confirmed_by=leader_of("partition_index"),
)
def list_offsets(
    replicas: ReplicaManager,
    long_work: LongWork,
    cold_reads: ColdReads,
    context: RequestContext,
    request: ListOffsetsRequest,
) -> MaybeAwaitable[ListOffsetsResponse]:
    named = Counter((topic.name, p.partition_index) for topic in request.topics for p in topic.partitions)
    response = ListOffsetsResponse()
    long: list[_LongLookUp] = []
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            result = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
            try:
                if named[topic.name, wanted.partition_index] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                _check_timestamp(wanted.timestamp, context.api_version)
                partition = replicas.find(topic.name, wanted.partition_index)
                partition.check_leader(wanted.current_leader_epoch)
                unknown = _why_unknown(partition, request, context.api_version)
                _look_up(partition, wanted, request, result, unknown)
            except KafkaError as error:
                result.error_code = error.code
            except (LongSearch, ColdRead) as search:
                long.append(
                    _LongLookUp(
                        partition, wanted.timestamp, _bound(partition, request), search, result, unknown
                    )
                )
            results.append(result)
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=results))
    return _look_up_long(long_work, cold_reads, long, response) if long else response


class _LongLookUp(NamedTuple):
    """A search by timestamp that is too long for one turn of the event loop, or needs the disk."""

    partition: Partition
    timestamp: int
    bound: Offset
    search: LongSearch | ColdRead
    #: the partition's part of the response
    result: ListOffsetsPartitionResponse
    #: error for offsets beyond the high watermark, from `_why_unknown`
    unknown: KafkaError | None


async def _look_up_long(
    long_work: LongWork, cold_reads: ColdReads, long: list[_LongLookUp], response: ListOffsetsResponse
) -> ListOffsetsResponse:
    for partition, timestamp, bound, search, result, unknown in long:
        try:
            _answer(
                await find_offset(long_work, cold_reads, partition, timestamp, search), bound, result, unknown
            )
        except KafkaError as error:
            result.error_code = error.code
    return response


def _check_timestamp(timestamp: int, version: int) -> None:
    if timestamp < 0 and version < _SINCE.get(timestamp, version + 1):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def _why_unknown(partition: Partition, request: ListOffsetsRequest, version: int) -> KafkaError | None:
    """Return the error for offsets that a new leader cannot give to a consumer yet (KIP-207).

    A new leader may know a lower high watermark than the earlier leader. Without the error, consumers would
    see the latest offset decrease. The error is OFFSET_NOT_AVAILABLE, or LEADER_NOT_AVAILABLE before version
    `OFFSET_NOT_AVAILABLE_SINCE`. Return None if the leader already knows the high watermark, or if the
    request is not from a consumer.
    """
    if partition.has_committed_former_epochs or request.replica_id != CONSUMER:
        return None
    known = version >= OFFSET_NOT_AVAILABLE_SINCE
    return KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE if known else ErrorCode.LEADER_NOT_AVAILABLE)


def _look_up(
    partition: Partition,
    wanted: ListOffsetsPartition,
    request: ListOffsetsRequest,
    result: ListOffsetsPartitionResponse,
    unknown: KafkaError | None,
) -> None:
    log = partition.log
    bound = _bound(partition, request)
    if wanted.timestamp == LATEST:
        if unknown is not None:
            raise unknown
        result.offset = bound
        result.leader_epoch = partition.leader_epoch
    elif wanted.timestamp in (EARLIEST, EARLIEST_LOCAL):
        result.offset = log.log_start_offset
        is_empty = log.log_start_offset == log.log_end_offset
        result.leader_epoch = (
            partition.leader_epoch if is_empty else log.epochs.epoch_at(log.log_start_offset)
        )
    elif wanted.timestamp >= 0 or wanted.timestamp == MAX_TIMESTAMP:
        _answer(log.offset_for_timestamp(wanted.timestamp, may_wait=False), bound, result, unknown)


def _bound(partition: Partition, request: ListOffsetsRequest) -> Offset:
    """Return the offset after the last record that the sender of the request may read.

    For a consumer, this is the high watermark or, with read_committed, the last stable offset. For all
    others, it is the log's end.
    """
    log = partition.log
    if request.replica_id != CONSUMER:
        return log.log_end_offset
    if request.isolation_level == READ_COMMITTED:
        return log.last_stable_offset
    return log.high_watermark


def _answer(
    found: OffsetAtTimestamp | None,
    bound: Offset,
    result: ListOffsetsPartitionResponse,
    unknown: KafkaError | None,
) -> None:
    if found is not None and found.offset < bound:
        result.timestamp, result.offset, result.leader_epoch = found
    elif unknown is not None:
        raise unknown
