"""The share coordinator, with the operations that the server's handlers and the persister call (KIP-932).

It finds the shard of a share partition and runs the operation there. It also keeps the log short: it repeats
old snapshots, deletes superseded records, and deletes the states of deleted topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.tasks import start_task, stop_tasks
from barnabas.base.text import logger_of
from barnabas.base.types import SHARE_GROUP_STATE_TOPIC, BrokerId, LeaderEpoch, Offset
from barnabas.broker.awaitables import MaybeAwaitable
from barnabas.broker.coordinator.contract import ShardContext
from barnabas.broker.coordinator.coordinator import Coordinator, reading, writing
from barnabas.broker.coordinator.loading import InternalLog
from barnabas.broker.coordinator.partitioning import is_storable
from barnabas.broker.coordinator.share_state.codec import snapshot_key
from barnabas.broker.coordinator.share_state.persister import SharePartitionKey, StateBatch
from barnabas.broker.coordinator.share_state.shard import ShareShard, StoredState
from barnabas.broker.metadata import ImageDelta
from barnabas.broker.view import BrokerView
from barnabas.kafka.records import Compression

logger = logger_of(__name__)

#: how many snapshots are repeated before the event loop serves others
_SNAPSHOTS_A_TURN = 20


def _checked(key: SharePartitionKey) -> str:
    """Return the key as a string. Raises KafkaError INVALID_REQUEST if no record can store the key."""
    if not key.group or not is_storable(key.group):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a group id has 1 to 32,767 bytes")
    if key.partition < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "there are no negative partitions")
    return str(key)


class ShareCoordinator(Coordinator[ShareShard]):
    """Coordinates the share partitions whose `__share_group_state` partitions this broker leads.

    One event loop owns it.

    Args:
        view: the broker's settings and clock, and its image (copy) of the metadata.
        log: the partitions of `__share_group_state`.
        delete_before: called with a partition of `__share_group_state` and an offset; deletes the records
            below the offset, or raises KafkaError.
    """

    def __init__(
        self,
        view: BrokerView,
        log: InternalLog,
        delete_before: Callable[[int, Offset], Awaitable[None]],
    ) -> None:
        self._delete_before = delete_before
        self._housekeeping: list[asyncio.Task[None]] = []
        #: the number of calls of `write_state`, for the metrics
        self.writes = 0
        #: by partition: the offset up to which `prune` has deleted records
        self._pruned: dict[int, Offset] = {}

        def make_shard(context: ShardContext[ShareShard]) -> ShareShard:
            self._pruned.pop(context.partition, None)
            return ShareShard(context, view)

        config = view.config
        super().__init__(
            SHARE_GROUP_STATE_TOPIC,
            log,
            view,
            make_shard,
            planned_partitions=config.share_coordinator_state_topic_num_partitions,
            write_timeout_ms=config.share_coordinator_write_timeout_ms,
            extends=snapshot_key,
            compression=Compression(config.share_coordinator_state_topic_compression_codec),
        )

    def start(self) -> None:
        """Begin to repeat old snapshots and to delete superseded records periodically."""
        config = self._view.config
        self._housekeeping = [
            start_task(self._repeat(work, interval_ms / 1000), name, is_vital=True)
            for work, interval_ms, name in (
                (
                    self.repeat_snapshots,
                    config.share_coordinator_cold_partition_snapshot_interval_ms,
                    "old snapshots of share groups",
                ),
                (
                    self.prune,
                    config.share_coordinator_state_topic_prune_interval_ms,
                    "superseded records of share groups",
                ),
            )
        ]

    async def stop(self) -> None:
        """Answer waiting requests with NOT_COORDINATOR and drop all state."""
        await stop_tasks(*self._housekeeping)
        await super().stop()

    def follow(self, node_id: BrokerId, delta: ImageDelta) -> None:
        """Load and unload shards as leaders change, and begin to delete the states of deleted topics.

        `node_id` is the id of this broker.
        """
        super().follow(node_id, delta)
        gone = {
            before.id
            for name in delta.topics
            if (before := delta.before.topics.get(name)) is not None and delta.is_deleted(before.id)
        }
        if gone:
            for _, shard in self.active_shards():
                shard.forget_topics(gone)

    # --- one share partition ---

    initialize = writing(ShareShard.initialize, _checked)
    read_state = writing(ShareShard.read, _checked)
    _write_state = writing(ShareShard.write, _checked)
    delete = writing(ShareShard.delete, _checked)

    def write_state(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        leader_epoch: LeaderEpoch,
        start_offset: Offset,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
        initialized_at: Offset = -1,
    ) -> MaybeAwaitable[None]:
        """Run `ShareShard.write`, and count the call in `writes`.

        The arguments are those of `SharePersister.write`. Return None if the state is stored already; if not,
        an awaitable that completes when it is.

        Raises:
            KafkaError: INVALID_REQUEST, `key` is not valid; the errors of `ShareShard.write` and
                `CoordinatorRuntime.write`.
        """
        self.writes += 1
        return self._write_state(
            key, state_epoch, leader_epoch, start_offset, delivery_complete_count, batches, initialized_at
        )

    summary = reading(ShareShard.summary, _checked)

    def last_pruned(self) -> list[tuple[int, Offset]]:
        """Return (partition, offset) for the partitions of `__share_group_state` that `prune` has shortened.

        The records below the offset are deleted. The result is in the order of the partitions. Partitions
        that this broker no longer leads are left out. A partition that this broker has loaded again is left
        out until `prune` has shortened it.
        """
        own = set(self.partitions())
        return [(partition, offset) for partition, offset in sorted(self._pruned.items()) if partition in own]

    def count(self) -> int:
        """Return the number of share partitions in loaded shards of this broker."""
        return sum(len(shard.states) for _, shard in self.active_shards())

    def loaded_states(self) -> list[tuple[SharePartitionKey, StoredState]]:
        """Return the key and state of every share partition in loaded shards of this broker."""
        return [item for _, shard in self.active_shards() for item in shard.states.items()]

    # --- the log ---

    async def repeat_snapshots(self) -> None:
        """Write old snapshots again at the end of the log, so that `prune` can delete records before them.

        Skip a shard in which the last snapshot of every share partition was itself written by this method.
        The log of such a shard has little else to delete.
        """
        for partition, shard in self.active_shards():
            if all(held.is_repeated for held in shard.states.values()):
                continue
            old = [key for key, held in shard.states.items() if shard.is_old(held)]
            for number, key in enumerate(old, 1):
                self.write_unattended(partition, str(key), partial(ShareShard.repeat_snapshot, key=key))
                if number % _SNAPSHOTS_A_TURN == 0:
                    await asyncio.sleep(0)

    async def prune(self) -> None:
        """Delete the superseded records at the start of each partition: newer snapshots have replaced them.

        Log a failure; the next call tries again.
        """
        for partition, shard in self.active_shards():
            try:
                needed = shard.needed_from()
                if needed > self._pruned.get(partition, 0):
                    await self._delete_before(partition, needed)
                    self._pruned[partition] = needed
            except KafkaError as error:
                logger.warning(
                    "%s-%d: cannot delete superseded records yet: %s", self.topic, partition, error
                )

    async def _repeat(self, work: Callable[[], Awaitable[None]], interval: float) -> None:
        while True:
            await asyncio.sleep(interval)
            try:
                await work()
            except Exception:
                logger.exception("cannot delete superseded records of share groups' states")
