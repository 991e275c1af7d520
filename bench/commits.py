"""Commits millions of offsets, and measures how soon a restarted broker returns them."""

from __future__ import annotations

import time

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from bench.connection import SECONDS, Connection

IN_FLIGHT = 20
_NOT_YET = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


def group(number: int) -> str:
    return f"bench-group-{number}"


def commit(bootstrap: str, topic: str, partitions: int, groups: int, rounds: int) -> None:
    """Commit an offset of each partition, for each group, in each round.

    Raises:
        RuntimeError: the broker rejected a commit.
    """
    with Connection(bootstrap) as connection:
        for number in range(groups):
            _find_coordinator(connection, group(number))
        sent = []
        for turn in range(rounds):
            for number in range(groups):
                wanted = [
                    OffsetCommitRequestPartition(partition_index=p, committed_offset=turn)
                    for p in range(partitions)
                ]
                request = OffsetCommitRequest(
                    group_id=group(number), topics=[OffsetCommitRequestTopic(name=topic, partitions=wanted)]
                )
                sent.append(connection.send(request))
                if len(sent) >= IN_FLIGHT:
                    _check(connection.receive(sent.pop(0), OffsetCommitResponse))
        for header in sent:
            _check(connection.receive(header, OffsetCommitResponse))


def _find_coordinator(connection: Connection, key: str) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        header = connection.send(FindCoordinatorRequest(key=key))
        if not connection.receive(header, FindCoordinatorResponse).error_code:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"no coordinator for {key}")
        time.sleep(0.1)


def _check(response: OffsetCommitResponse) -> None:
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code:
                raise RuntimeError(f"a commit was refused: error {partition.error_code}")


def wait_for(bootstrap: str, topic: str, groups: int, offset: int) -> None:
    """Wait until the broker returns `offset` as every group's committed offset.

    Raises:
        RuntimeError: the broker does not return an offset, or returns another one.
    """
    deadline = time.monotonic() + SECONDS
    with Connection(bootstrap) as connection:
        for number in range(groups):
            request = OffsetFetchRequest(
                group_id=group(number), topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
            )
            while True:
                response = connection.receive(connection.send(request), OffsetFetchResponse)
                if response.error_code not in _NOT_YET:
                    break
                if time.monotonic() > deadline:
                    raise RuntimeError(f"error {response.error_code} after {SECONDS:.0f} s")
                time.sleep(0.005)
            found = response.topics[0].partitions[0].committed_offset
            if found != offset:
                raise RuntimeError(f"{group(number)} committed {offset}, the broker says {found}")
