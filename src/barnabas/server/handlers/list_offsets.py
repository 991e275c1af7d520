"""ListOffsets v1-11: the offset at a timestamp, or at a special one.

Latest and earliest, the largest timestamp (KIP-734), and those of tiered storage (KIP-405, KIP-1005,
KIP-1023), of which there is none: the earliest local offset is the earliest, and no offset is tiered or waits
to be. Leader epochs (KIP-320); read_committed asks up to the last stable offset.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.answers import Answer
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.replication.manager import ReplicaManager
from barnabas.replication.partition import Partition
from barnabas.server.requests.api import handles
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.long_work import LongWork
from barnabas.server.requests.pieces import Pieces
from barnabas.storage import LongSearch, OffsetAtTimestamp
from barnabas.types import Offset


@dataclass(frozen=True, slots=True)
class Ports:
    """What the handler works on."""

    replicas: ReplicaManager
    long_work: LongWork


CONSUMER = -1
READ_COMMITTED = 1

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
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


def _failed(request: ListOffsetsRequest, error: KafkaError) -> ListOffsetsResponse:
    response = ListOffsetsResponse()
    for topic in request.topics:
        results = [
            ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=error.code)
            for wanted in topic.partitions
        ]
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=results))
    return response


@handles(
    ListOffsetsRequest,
    on_error=_failed,
    pieces=[Pieces("topics.partitions", size=32, unique=True)],
    is_heavy=True,
)
def list_offsets(
    ports: Ports, context: RequestContext, request: ListOffsetsRequest
) -> Answer[ListOffsetsResponse]:
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
                partition = ports.replicas.find(topic.name, wanted.partition_index)
                partition.check_leader(wanted.current_leader_epoch)
                _look_up(partition, wanted, request, result)
            except KafkaError as error:
                result.error_code = error.code
            except LongSearch as search:
                long.append(
                    _LongLookUp(partition, wanted.timestamp, _bound(partition, request), search, result)
                )
            results.append(result)
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=results))
    return _look_up_long(ports, long, response) if long else response


class _LongLookUp(NamedTuple):
    """A partition in which the search takes long."""

    partition: Partition
    timestamp: int
    bound: Offset
    search: LongSearch
    #: the place of the answer
    result: ListOffsetsPartitionResponse


async def _look_up_long(
    ports: Ports, long: list[_LongLookUp], response: ListOffsetsResponse
) -> ListOffsetsResponse:
    for partition, timestamp, bound, search, result in long:
        try:
            found = await _find(ports, partition, timestamp, search)
        except KafkaError as error:
            result.error_code = error.code
        else:
            _tell(found, bound, result)
    return response


async def _find(
    ports: Ports, partition: Partition, timestamp: int, search: LongSearch
) -> OffsetAtTimestamp | None:
    while True:
        log = partition.log
        if timestamp == MAX_TIMESTAMP:
            timestamp = search.max_timestamp
        found = await ports.long_work.run(search.find, timestamp, log.log_start_offset)
        if found is not None:
            return found
        try:
            return log.offset_for_timestamp(timestamp, search.next_offset)
        except LongSearch as following:
            search = following


def _check_timestamp(timestamp: int, version: int) -> None:
    if timestamp < 0 and version < _SINCE.get(timestamp, version + 1):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def _look_up(
    partition: Partition,
    wanted: ListOffsetsPartition,
    request: ListOffsetsRequest,
    result: ListOffsetsPartitionResponse,
) -> None:
    log = partition.log
    bound = _bound(partition, request)
    if wanted.timestamp == LATEST:
        result.offset = bound
        result.leader_epoch = partition.leader_epoch
    elif wanted.timestamp in (EARLIEST, EARLIEST_LOCAL):
        result.offset = log.log_start_offset
        result.leader_epoch = log.epochs.epoch_at(log.log_start_offset)
    elif wanted.timestamp >= 0 or wanted.timestamp == MAX_TIMESTAMP:
        _tell(log.offset_for_timestamp(wanted.timestamp), bound, result)


def _bound(partition: Partition, request: ListOffsetsRequest) -> Offset:
    """Where what the client may see ends."""
    log = partition.log
    if request.replica_id != CONSUMER:
        return log.log_end_offset
    if request.isolation_level == READ_COMMITTED:
        return log.last_stable_offset
    return log.high_watermark


def _tell(found: OffsetAtTimestamp | None, bound: Offset, result: ListOffsetsPartitionResponse) -> None:
    if found is not None and found.offset < bound:
        result.timestamp, result.offset, result.leader_epoch = found
