"""Completes decided transactions: writes a marker to each of their partitions, then the completion record.

The queue retries unacknowledged markers for as long as this broker is the coordinator. After a restart, and
on the next coordinator, all markers are written again. A marker that is written twice does no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol, TypeAlias

from barnabas.base.errors import ErrorCode
from barnabas.base.text import logger_of
from barnabas.base.types import LeaderEpoch, ProducerEpoch, ProducerId, TopicPartition
from barnabas.broker.awaitables import MaybeAwaitable, is_awaitable
from barnabas.broker.coordinator.backoff import backoff_ms
from barnabas.broker.coordinator.timers import Timers
from barnabas.broker.coordinator.transactions.transaction import Transaction, TransactionState

logger = logger_of(__name__)

#: consecutive failures before a warning is logged: about a second, in which most elections end
_WARN_AT = 4

#: another coordinator or producer has taken over: this broker must not write these markers any more
_OVERTAKEN = (ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
#: the partition does not exist: its topic was deleted
_WRITTEN = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

Outcomes: TypeAlias = Mapping[TopicPartition, ErrorCode]


class Marker(NamedTuple):
    """The marker that ends a transaction in each of its partitions."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    commit: bool
    coordinator_epoch: LeaderEpoch
    #: the transaction's protocol version: from 2 on, its end has raised the producer's epoch
    transaction_version: int


class MarkerWriter(Protocol):
    """Sends markers to the leaders of partitions, on any broker."""

    def write(self, marker: Marker, partitions: Collection[TopicPartition]) -> MaybeAwaitable[Outcomes]:
        """Write a marker to partitions. Return an error code for each, NONE for success.

        UNKNOWN_TOPIC_OR_PARTITION means that the partition was deleted. While a leader is unknown or does not
        answer, the code is another error.
        """


class MarkerQueue:
    """The decided transactions of one shard whose markers are being written.

    Args:
        writer: sends markers to the leaders of partitions.
        timers: the timers of the shard.
        epoch: returns the leader epoch in which this broker coordinates the shard.
        done: called with the transactional id when all markers are written. This function must start to store
            the completion. It must then call `completed`, or `retry` if the completion could not be stored.
    """

    def __init__(
        self,
        writer: MarkerWriter,
        timers: Timers,
        epoch: Callable[[], LeaderEpoch],
        done: Callable[[str], None],
    ) -> None:
        self._writer = writer
        self._timers = timers
        self._epoch = epoch
        self._done = done
        self._left: dict[str, set[TopicPartition]] = {}
        #: by transactional id, while partitions are left
        self._markers: dict[str, Marker] = {}
        #: by transactional id: consecutive failures to write its markers or its completion
        self._failures: dict[str, int] = {}
        #: writes that the event loop alone would let go, also those whose outcomes no longer count
        self._under_way: set[asyncio.Future[Outcomes]] = set()

    def add(self, transactional_id: str, transaction: Transaction) -> None:
        """Add a prepared transaction. This writes nothing: call `write` to write its markers."""
        self._left[transactional_id] = set(transaction.partitions)
        self._failures.pop(transactional_id, None)
        self._markers[transactional_id] = Marker(
            transaction.producer_id,
            transaction.epoch,
            transaction.state is TransactionState.PREPARE_COMMIT,
            self._epoch(),
            transaction.client_version,
        )

    def left(self, transactional_id: str) -> Collection[TopicPartition]:
        """Return the partitions of a transaction whose markers are not written yet."""
        return self._left.get(transactional_id, ())

    def cancel(self) -> None:
        """Remove all transactions from the queue: the next coordinator writes the markers.

        Writes under way go on, and their outcomes are ignored. A cancelled task that has not begun would
        drop the coroutines and futures that it is to await: asyncio reports each.
        """
        self._left.clear()
        self._markers.clear()
        self._failures.clear()

    def completed(self, transactional_id: str) -> None:
        """Reset the number of failures of a transaction, because its completion record is stored."""
        self._failures.pop(transactional_id, None)

    def retry(self, transactional_id: str, reason: object) -> None:
        """Call `done` again after a pause, because the completion record could not be stored.

        `reason` is the error, for the log.
        """
        pause_ms = self._failed(transactional_id, reason)
        self._timers.set((transactional_id, "done"), pause_ms, lambda: self._done(transactional_id))

    def _failed(self, transactional_id: str, reason: object) -> int:
        """Count a failure. Log a warning at the fourth in a row. Return the pause before a retry, in ms."""
        failures = self._failures[transactional_id] = self._failures.get(transactional_id, 0) + 1
        if failures == _WARN_AT:
            logger.warning(
                "cannot complete the transaction of %r yet, retrying: %s", transactional_id, reason
            )
        return backoff_ms(failures)

    def write(self, transactional_id: str) -> None:
        """Begin to write the missing markers of a transaction, and return at once.

        The queue retries until all markers are written, and then calls `done`. If the leaders answer at once,
        `done` is called before this method returns. If the transaction is not in the queue, do nothing.

        If a partition rejects the marker, because a newer coordinator or producer has fenced it, log an error
        and stop. The transaction then stays prepared.
        """
        left, marker = self._left.get(transactional_id), self._markers.get(transactional_id)
        if left is None or marker is None:
            return
        answer = self._writer.write(marker, sorted(left)) if left else {}
        if not is_awaitable(answer):
            self._written(transactional_id, answer)
            return
        future = asyncio.ensure_future(answer)
        self._under_way.add(future)

        def arrived(future: asyncio.Future[Outcomes]) -> None:
            self._under_way.discard(future)
            if future.cancelled():
                return
            error = future.exception()
            if self._markers.get(transactional_id) is not marker:
                return
            if error is not None and transactional_id not in self._failures:
                logger.error("markers of %r could not be written", transactional_id, exc_info=error)
            self._written(transactional_id, {} if error is not None else future.result())

        future.add_done_callback(arrived)

    def _written(self, transactional_id: str, outcomes: Outcomes) -> None:
        left = self._left.get(transactional_id)
        if left is None:
            return
        overtaken = {str(tp): code.name for tp, code in outcomes.items() if code in _OVERTAKEN}
        if overtaken:
            logger.error(
                "the markers of transaction %r are rejected, so it stays prepared: %s",
                transactional_id,
                overtaken,
            )
            return
        left.difference_update(tp for tp, code in outcomes.items() if code in _WRITTEN)
        if left:
            # Name only one: a transaction can have thousands of partitions.
            partition = min(left)
            code = outcomes.get(partition)
            answer = "no answer" if code is None else code.name
            reason = f"{len(left)} of its partitions have no marker, {partition} among them ({answer})"
            pause_ms = self._failed(transactional_id, reason)
            self._timers.set((transactional_id, "markers"), pause_ms, lambda: self.write(transactional_id))
            return
        del self._left[transactional_id], self._markers[transactional_id]
        self._done(transactional_id)
