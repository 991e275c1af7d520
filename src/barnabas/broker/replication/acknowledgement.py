"""Delays a produce response until its batches have the acks that the request requires."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import LeaderEpoch, Offset
from barnabas.broker.replication.partition import ACKS_ALL, Partition
from barnabas.broker.replication.purgatory import DelayedOperation

T = TypeVar("T")


class Appended(NamedTuple):
    """An append to one partition that is not acknowledged yet."""

    partition: Partition
    last_offset: Offset
    #: the leader epoch of the append: under a later leader, other records may have its offsets
    leader_epoch: LeaderEpoch
    #: called with the error for the response, instead of an acknowledgement
    fail: Callable[[KafkaError], None]


class Acknowledgement(Generic[T]):
    """Waits until every append is acknowledged or has failed, or until the time limit.

    `Appended.fail` gets the error of an append that fails:

    - the error with which the partition rejects writes now (`Partition.unwritable`), for example
      KAFKA_STORAGE_ERROR;
    - NOT_LEADER_OR_FOLLOWER after the end of the leader epoch;
    - after the time limit, NOT_ENOUGH_REPLICAS_AFTER_APPEND if acks=all and too few replicas are in sync, and
      REQUEST_TIMED_OUT in all other cases.

    Args:
        appended: the appends, each to one partition.
        acks: acks that the produce request requires.
        response: result of the future that `wait` returns, also if appends have failed.
    """

    def __init__(self, appended: Sequence[Appended], acks: int, response: T) -> None:
        self._left = list(appended)
        self._acks = acks
        self._response = response

    def wait(self, timeout_ms: int | None, future: asyncio.Future[T] | None = None) -> DelayedOperation[T]:
        """Start to wait. Return the delayed operation, whose future gets the constructor's `response`.

        Args:
            timeout_ms: longest wait in milliseconds; None for no limit.
            future: future for the result, as in `DelayedOperation`.
        """
        return DelayedOperation([item.partition for item in self._left], timeout_ms, self._attempt, future)

    def _attempt(self, expired: bool) -> T | None:
        left = []
        for item in self._left:
            partition = item.partition
            if partition.unwritable is not None:
                item.fail(partition.unwritable)
            elif not partition.is_leader or partition.leader_epoch != item.leader_epoch:
                item.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            elif not partition.is_acknowledged(item.last_offset, self._acks):
                left.append(item)
        if left and expired:
            for item in left:
                lacks_replicas = self._acks == ACKS_ALL and item.partition.is_under_min_isr
                item.fail(
                    KafkaError(
                        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
                        if lacks_replicas
                        else ErrorCode.REQUEST_TIMED_OUT
                    )
                )
            left = []
        self._left = left
        return None if left else self._response
