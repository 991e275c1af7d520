"""The transaction coordinator, with the operations that the server's handlers call.

A shard has the state of all transactional ids in one partition of `__transaction_state`. The coordinator
finds the shard of a transactional id and runs the operation there. It also aborts transactions that have
timed out, and deletes expired ids.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterator
from functools import partial
from typing import TypeVar

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.text import logger_of
from barnabas.base.types import (
    NO_PRODUCER_ID,
    TRANSACTION_STATE_TOPIC,
    ProducerId,
    ProducerIdentity,
    TopicPartition,
)
from barnabas.broker.awaitables import MaybeAwaitable, is_awaitable, resolve
from barnabas.broker.coordinator.contract import ShardContext
from barnabas.broker.coordinator.coordinator import Coordinator, reading, writing
from barnabas.broker.coordinator.loading import InternalLog
from barnabas.broker.coordinator.partitioning import is_storable
from barnabas.broker.coordinator.transactions.marker_queue import MarkerWriter
from barnabas.broker.coordinator.transactions.shard import TransactionShard
from barnabas.broker.coordinator.transactions.transaction import EPOCH_BUMP_VERSION, Transaction
from barnabas.broker.metadata.features import TRANSACTION_VERSION
from barnabas.broker.view import BrokerView

logger = logger_of(__name__)

T = TypeVar("T")


def _checked(transactional_id: str) -> str:
    """Return the transactional id. Raises KafkaError INVALID_REQUEST if the id is empty or too long."""
    if not transactional_id or not is_storable(transactional_id):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id has 1 to 32,767 bytes")
    return transactional_id


class TransactionCoordinator(Coordinator[TransactionShard]):
    """Coordinates the transactional ids whose `__transaction_state` partitions this broker leads.

    Args:
        view: settings and clock of the broker, and its image (copy) of the metadata.
        log: the partitions of `__transaction_state`.
        writer: writes markers to the partitions' leaders.
        producer_ids: function that returns an unused producer id.
    """

    def __init__(
        self,
        view: BrokerView,
        log: InternalLog,
        writer: MarkerWriter,
        *,
        producer_ids: Callable[[], Awaitable[ProducerId]],
    ) -> None:
        self._view = view
        self._clock = view.clock
        self._producer_ids = producer_ids
        self._housekeeping: dict[Callable[[], None], asyncio.TimerHandle] = {}

        def make_shard(context: ShardContext[TransactionShard]) -> TransactionShard:
            return TransactionShard(context, lambda: view.image.features.level(TRANSACTION_VERSION), writer)

        super().__init__(
            TRANSACTION_STATE_TOPIC,
            log,
            view,
            make_shard,
            planned_partitions=view.config.transaction_state_log_num_partitions,
            write_timeout_ms=view.config.request_timeout_ms,
        )

    def has_transactional_id(self, transactional_id: str) -> bool | None:
        """Whether the id exists; None if this broker does not coordinate it, or has not loaded it yet."""
        try:
            return self._read(transactional_id, lambda shard: transactional_id in shard.transactions)
        except KafkaError:
            return None

    def start(self) -> None:
        """Begin to check for timed-out transactions and expired ids periodically."""
        config = self._view.config
        self._repeat(self.abort_timed_out, config.transaction_abort_timed_out_transaction_cleanup_interval_ms)
        self._repeat(self.expire_ids, config.transaction_remove_expired_transaction_cleanup_interval_ms)

    async def stop(self) -> None:
        """Answer waiting requests with NOT_COORDINATOR and drop all state."""
        for handle in self._housekeeping.values():
            handle.cancel()
        await super().stop()

    def abort_timed_out(self) -> None:
        """Begin to abort the transactions that have been open for longer than their timeouts."""
        now = self._clock.now_ms()
        for partition, transactional_id, transaction in self._all():
            if transaction.is_timed_out(now):
                abort = partial(TransactionShard.abort_timed_out, transactional_id=transactional_id)
                self.write_unattended(partition, transactional_id, abort)

    def expire_ids(self) -> None:
        """Begin to delete the transactional ids that were unused for `transactional.id.expiration.ms`."""
        now, expiration_ms = self._clock.now_ms(), self._view.config.transactional_id_expiration_ms
        for partition, transactional_id, transaction in self._all():
            if transaction.is_expired(now, expiration_ms):
                expire = partial(
                    TransactionShard.expire, transactional_id=transactional_id, expiration_ms=expiration_ms
                )
                self.write_unattended(partition, transactional_id, expire)

    # --- one transactional id ---

    _needs_producer_id = reading(TransactionShard.needs_producer_id, _checked)
    _ending = reading(TransactionShard.ending, _checked)
    _init_producer = writing(TransactionShard.init_producer, _checked)

    async def init_producer(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdentity | None
    ) -> ProducerIdentity:
        """Handle InitProducerId: check the transaction timeout, and run `TransactionShard.init_producer`.

        `expected` is the identity of a producer that continues after an error (KIP-360); None for a new one.

        Raises:
            KafkaError: INVALID_REQUEST, the id is empty or too long; INVALID_TRANSACTION_TIMEOUT,
                `timeout_ms` is not between 1 and ``transaction.max.timeout.ms``;
                COORDINATOR_LOAD_IN_PROGRESS, there is no unused producer id now; the errors of
                `TransactionShard.init_producer` and `CoordinatorRuntime.write`.
        """
        _checked(transactional_id)
        longest = self._view.config.transaction_max_timeout_ms
        if not 0 < timeout_ms <= longest:
            raise KafkaError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"transaction.timeout.ms={timeout_ms} must lie between 1 and {longest} "
                "(transaction.max.timeout.ms)",
            )
        fresh = await resolve(self._fresh_id(transactional_id))
        return await resolve(self._init_producer(transactional_id, timeout_ms, expected, fresh))

    _add_partitions = writing(TransactionShard.add_partitions, _checked)

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
        version: int,
    ) -> MaybeAwaitable[None]:
        """Run `TransactionShard.add_partitions` when the last transaction of the id has completed.

        The call waits at most ``add.partitions.to.txn.retry.backoff.max.ms`` for the completion. After that
        time the producer gets CONCURRENT_TRANSACTIONS. Without the wait, the producer would get this error at
        once and retry much later (librdkafka after 100 ms).

        Args:
            transactional_id: the producer's transactional id.
            producer: the producer id and epoch in the request.
            partitions: the partitions to which the producer will write in its transaction.
            version: version of transactions that the producer uses: 2 is that of KIP-890.

        Raises:
            KafkaError: INVALID_REQUEST, the id is empty or too long; the errors of
                `TransactionShard.add_partitions` and `CoordinatorRuntime.write`.
        """
        add = partial(self._add_partitions, transactional_id, producer, partitions, version)
        try:
            return add()
        except KafkaError as error:
            if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                raise
        ending = self._ending(transactional_id)
        return add() if ending is None else self._after(ending, add)

    verify_partitions = reading(TransactionShard.verify_partitions, _checked)

    _end = writing(TransactionShard.end, _checked)

    def end(
        self, transactional_id: str, producer: ProducerIdentity, *, commit: bool, version: int
    ) -> MaybeAwaitable[ProducerIdentity]:
        """Handle EndTxn: commit or abort a producer's transaction (`TransactionShard.end`).

        Return the producer id and the epoch that the producer must use in its next transaction. In version 2,
        the result has a new producer id if the epochs of the present one are used up.

        Args:
            transactional_id: the producer's transactional id.
            producer: the producer id and epoch in the request.
            commit: True to commit, False to abort.
            version: version of transactions that the producer uses: 2 is that of KIP-890.

        Raises:
            KafkaError: INVALID_REQUEST, the id is empty or too long; COORDINATOR_LOAD_IN_PROGRESS, there is
                no unused producer id now; the errors of `TransactionShard.end` and
                `CoordinatorRuntime.write`.
        """
        end = partial(self._end, transactional_id, producer, commit=commit, version=version)
        if version < EPOCH_BUMP_VERSION:
            return end(fresh=NO_PRODUCER_ID)

        async def end_later(fresh: Awaitable[ProducerId]) -> ProducerIdentity:
            return await resolve(end(fresh=await fresh))

        fresh = self._fresh_id(transactional_id)
        return end_later(fresh) if is_awaitable(fresh) else end(fresh=fresh)

    describe = reading(TransactionShard.describe, _checked)

    def transactions(self) -> Iterator[tuple[str, Transaction]]:
        """Return an iterator over (transactional id, state) for all ids that this broker coordinates.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS, some ids may not be loaded yet.
        """
        self._check_loaded()
        return ((transactional_id, transaction) for _, transactional_id, transaction in self._all())

    def loaded_transactions(self) -> list[Transaction]:
        """Return the states of all transactional ids that this broker coordinates and has loaded.

        While a partition of `__transaction_state` still loads, the result lacks the ids in this partition.
        (`transactions` raises an error then.)
        """
        return [transaction for _, _, transaction in self._all()]

    # --- inside ---

    async def _after(self, ending: asyncio.Future[None], add: Callable[[], MaybeAwaitable[None]]) -> None:
        longest = self._view.config.add_partitions_to_txn_retry_backoff_max_ms / 1000
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(ending), longest)
        await resolve(add())

    def _fresh_id(self, transactional_id: str) -> MaybeAwaitable[ProducerId]:
        # Before the operation, because an operation cannot wait.
        return self._producer_ids() if self._needs_producer_id(transactional_id) else NO_PRODUCER_ID

    def _all(self) -> Iterator[tuple[int, str, Transaction]]:
        for partition, shard in self.active_shards():
            for transactional_id, transaction in list(shard.transactions.items()):
                yield partition, transactional_id, transaction

    def _repeat(self, work: Callable[[], None], interval_ms: int) -> None:
        def run() -> None:
            try:
                work()
            except Exception:
                logger.exception("cannot abort timed-out transactions or delete expired transactional ids")
            self._repeat(work, interval_ms)

        loop = asyncio.get_running_loop()
        self._housekeeping[work] = loop.call_later(interval_ms / 1000, run)
