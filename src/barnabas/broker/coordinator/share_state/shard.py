"""The share partitions of one partition of `__share_group_state`, and the operations on them (KIP-932).

The methods of `ShareShard` for requests are operations of the coordinator runtime. An operation reads the
shard, and returns a `Result`: the records to append and the response. Most changes are stored as update
records. After ``share.coordinator.snapshot.update.records.per.snapshot`` updates the next change is stored as
a snapshot. A snapshot supersedes all earlier records of its share partition.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.text import logger_of
from barnabas.base.types import LeaderEpoch, Offset, ProducerId, TopicId
from barnabas.broker.coordinator.contract import Result, ShardContext
from barnabas.broker.coordinator.share_state.batches import combine, is_ordered
from barnabas.broker.coordinator.share_state.codec import (
    Snapshot,
    SnapshotRecord,
    UpdateRecord,
    decode_record,
)
from barnabas.broker.coordinator.share_state.persister import (
    UNKNOWN_POSITION,
    CoordinatorPosition,
    SharePartitionKey,
    ShareState,
    StateBatch,
)
from barnabas.broker.view import BrokerView

logger = logger_of(__name__, is_limited=True)

T = TypeVar("T")

#: in place of an epoch: the caller does not know it, so it is not checked
_ANY = -1
#: the most batches in the state of a share partition. A snapshot with as many has 400 KB
_MAX_BATCHES = 20_000
#: the most states of deleted topics that a shard begins to delete in one turn of the event loop
_DELETIONS_A_TURN = 5


class StoredState(NamedTuple):
    """A share partition's state in memory."""

    #: the last snapshot, with the changes of the updates after it
    snapshot: Snapshot
    #: the number of updates since the last snapshot
    updates: int = 0

    @property
    def state(self) -> ShareState:
        return self.snapshot.state

    @property
    def is_repeated(self) -> bool:
        """Whether `ShareShard.repeat_snapshot` wrote the last snapshot: it has the state of an older one."""
        return self.snapshot.written_ms != self.snapshot.created_ms


class ShareShard:
    """One shard of the share coordinator: the share partitions of one `__share_group_state` partition.

    Args:
        context: what the coordinator runtime gives to the shard, such as the clock and the end of the log.
        view: the broker's settings, and its image (copy) of the metadata.
    """

    def __init__(self, context: ShardContext[ShareShard], view: BrokerView) -> None:
        self.states: dict[SharePartitionKey, StoredState] = {}
        #: the offset of each last snapshot; missing if it was loaded from the log
        self._positions: dict[SharePartitionKey, Offset] = {}
        #: the offsets of snapshots that were appended, but not replayed yet
        self._appended: dict[SharePartitionKey, Offset] = {}
        self._context = context
        self._view = view

    # --- the runtime's side ---

    def decode(self, key: bytes, value: bytes | None) -> SnapshotRecord | UpdateRecord | None:
        """Decode a record of `__share_group_state`. Return None for an unknown kind.

        Raises:
            ProtocolError: the kind is known, but the record cannot be decoded.
        """
        record = decode_record(key, value)
        if record is None:
            logger.warning("skipped a record of unknown type in __share_group_state")
        return record

    def replay(self, record: SnapshotRecord | UpdateRecord) -> None:
        """Apply one committed record of `__share_group_state`."""
        key = record.key
        if isinstance(record, UpdateRecord):
            held = self.states.get(key)
            if held is not None:
                self.states[key] = _updated(held, record)
            return
        position = self._appended.pop(key, None)
        self._positions.pop(key, None)
        if record.snapshot is None:
            self.states.pop(key, None)
            return
        self.states[key] = StoredState(record.snapshot)
        if position is not None:
            self._positions[key] = position

    def replay_pending(self, producer_id: ProducerId, record: SnapshotRecord | UpdateRecord) -> None:
        """Ignore a transaction's record, and log a warning: a share coordinator writes none."""
        logger.warning(
            "__share_group_state holds a record that producer %d wrote in a transaction", producer_id
        )

    def end_transaction(self, producer_id: ProducerId, commit: bool) -> None:
        """Ignore the end of a transaction, because `replay_pending` ignores its records."""

    def loaded(self) -> None:
        """Begin to delete the states of topics that were deleted before this broker loaded the partition."""
        self.forget_topics(self._view.image.deleted_topics)

    def unload(self, error: KafkaError) -> None:
        """Do nothing: no request waits in a shard."""

    # --- operations ---

    def initialize(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        start_offset: Offset,
        position: CoordinatorPosition = UNKNOWN_POSITION,
        replaced: Offset = _ANY,
    ) -> Result[None]:
        """Replace the state by a new one: see `SharePersister.initialize`.

        If `state_epoch` is -1, the new state keeps the stored state epoch. If `start_offset` is -1, the
        partition's leader chooses the start offset later. Until then, the number of finished records is
        unknown. From any other start offset on, no record is finished.

        Raises:
            KafkaError: FENCED_STATE_EPOCH, the stored state epoch is higher than `state_epoch`, or it is
                equal and the state has changed since its initialization; or a request with a later position
                has initialized the state, which is not the one that the caller replaces;
                UNKNOWN_TOPIC_OR_PARTITION, the partition is not in the broker's image of the metadata.
        """
        held = self.states.get(key)
        before = ShareState() if held is None else held.state
        _check_state_epoch(before, state_epoch)
        if held is not None and replaced != before.initialized_at:
            _check_position(held, position)
        self._check_exists(key)
        state = ShareState(
            state_epoch=before.state_epoch if state_epoch == _ANY else state_epoch,
            leader_epoch=before.leader_epoch,  # an earlier leader stays fenced
            start_offset=start_offset,
            delivery_complete_count=-1 if start_offset == -1 else 0,
            initialized_at=before.initialized_at,
        )
        if held is not None and state_epoch == before.state_epoch:
            # A repetition. It must not undo what members have done since, perhaps long ago.
            if state != before:
                raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
            if position <= held.snapshot.position:
                return Result()
        else:
            state = state._replace(initialized_at=self._context.log_end())
        return self._snapshot(key, state, None, position=position)

    def read(self, key: SharePartitionKey, leader_epoch: LeaderEpoch) -> Result[ShareState]:
        """Return the state, and store a higher leader epoch: see `SharePersister.read`.

        If `leader_epoch` is -1, only read.

        Raises:
            KafkaError: INVALID_REQUEST, the state is not initialized; FENCED_LEADER_EPOCH, a later leader
                has read or written the state; UNKNOWN_TOPIC_OR_PARTITION, the partition is not in the
                broker's image of the metadata.
        """
        held = self._find(key)
        state = held.state
        _check_leader_epoch(state, leader_epoch)
        self._check_exists(key)
        if leader_epoch in (_ANY, state.leader_epoch):
            return Result(state)
        state = state._replace(leader_epoch=leader_epoch)
        return self._change(key, held, state, (), state)

    def write(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        leader_epoch: LeaderEpoch,
        start_offset: Offset,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
        initialized_at: Offset = _ANY,
    ) -> Result[None]:
        """Combine batches with the stored ones: see `SharePersister.write`.

        Epochs of -1 are not checked. `delivery_complete_count` is the number of finished records from the
        start offset on; -1 for an unknown number.

        Raises:
            KafkaError: INVALID_REQUEST, the state is not initialized, or the batches overlap, are not in the
                order of their offsets, or are too many; FENCED_STATE_EPOCH, the stored state epoch is higher,
                or the state was initialized again; FENCED_LEADER_EPOCH, a later leader has read or written
                the state; UNKNOWN_TOPIC_OR_PARTITION, the partition is not in the broker's image of the
                metadata.
        """
        held = self._find(key)
        state = held.state
        _check_leader_epoch(state, leader_epoch)
        _check_state_epoch(state, state_epoch)
        if not state.may_be_initialized_at(initialized_at):
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH, "the state was initialized again")
        self._check_exists(key)
        if not is_ordered(batches):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the batches overlap or are not ordered by offset")
        if len(state.batches) + len(batches) > _MAX_BATCHES:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"a state has at most {_MAX_BATCHES} batches")
        state = state._replace(
            leader_epoch=max(state.leader_epoch, leader_epoch),
            start_offset=max(state.start_offset, start_offset),
            delivery_complete_count=_finished(state, start_offset, delivery_complete_count, batches),
        )
        return self._change(key, held, state, batches, None)

    def delete(
        self, key: SharePartitionKey, position: CoordinatorPosition = UNKNOWN_POSITION
    ) -> Result[None]:
        """Delete the state of a share partition, if there is one: see `SharePersister.delete`.

        Raises:
            KafkaError: FENCED_STATE_EPOCH, a request with a later position has initialized the state.
        """
        held = self.states.get(key)
        if held is None:
            return Result()
        _check_position(held, position)
        return Result(records=[SnapshotRecord(key, None)])

    def summary(self, key: SharePartitionKey) -> ShareState:
        """Return the state without its batches: see `SharePersister.summary`.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, the partition is not in the broker's image of the
                metadata.
        """
        self._check_exists(key)
        held = self.states.get(key)
        return ShareState() if held is None else held.state._replace(batches=())

    # --- the log ---

    def repeat_snapshot(self, key: SharePartitionKey) -> Result[None]:
        """Write a snapshot older than ``share.coordinator.cold.partition.snapshot.interval.ms`` again.

        If the state is gone or its snapshot is not old, do nothing. Without the repetition, the old snapshot
        of an idle share partition would keep all later records in the log.
        """
        held = self.states.get(key)
        if held is None or not self.is_old(held):
            return Result()
        return self._snapshot(key, held.state, None, created_ms=held.snapshot.created_ms)

    def is_old(self, held: StoredState) -> bool:
        """Whether the snapshot is at least ``share.coordinator.cold.partition.snapshot.interval.ms`` old.

        A snapshot from the future also counts as old: the clock was set back, perhaps by days.
        """
        age_ms = self._context.clock.now_ms() - held.snapshot.written_ms
        return not 0 <= age_ms < self._view.config.share_coordinator_cold_partition_snapshot_interval_ms

    def needed_from(self) -> Offset:
        """Return the offset below which newer snapshots have superseded all records.

        The shard knows the offsets only of snapshots that it has appended itself. Return 0 if the last
        snapshot of a share partition was loaded from the log. Return the end of the log if there are no share
        partitions.
        """
        needed = [self._positions.get(key, 0) for key in self.states] + list(self._appended.values())
        return min(needed) if needed else self._context.log_end()

    def forget_topics(self, topic_ids: Container[TopicId]) -> None:
        """Begin to delete the states of deleted topics, a few in each turn of the event loop."""
        self._forget(iter([key for key in self.states if key.topic_id in topic_ids]))

    def _forget(self, keys: Iterator[SharePartitionKey]) -> None:
        for number, key in enumerate(keys, 1):
            self._context.write(str(key), partial(ShareShard.delete, key=key))
            if number == _DELETIONS_A_TURN:
                self._context.timers.set(object(), 0, partial(self._forget, keys))
                return

    # --- inside ---

    def _find(self, key: SharePartitionKey) -> StoredState:
        held = self.states.get(key)
        if held is None:
            # Without the group's name: an answer of thousands of partitions would repeat its 32 KB.
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the state of the share partition is not initialized")
        return held

    def _check_exists(self, key: SharePartitionKey) -> None:
        image = self._view.image
        name = image.topic_names.get(key.topic_id)
        topic = None if name is None else image.topics.get(name)
        if topic is None or not 0 <= key.partition < len(topic.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _change(
        self,
        key: SharePartitionKey,
        held: StoredState,
        state: ShareState,
        batches: Sequence[StateBatch],
        response: T,
    ) -> Result[T]:
        """Return the result that stores `state` combined with `batches`, as an update or as a snapshot."""
        if held.updates >= self._view.config.share_coordinator_snapshot_update_records_per_snapshot:
            state = state._replace(batches=combine(state.batches, batches, state.start_offset))
            return self._snapshot(key, state, response)
        update = UpdateRecord(
            key,
            held.snapshot.epoch,
            state.leader_epoch,
            state.start_offset,
            state.delivery_complete_count,
            combine((), batches, state.start_offset),
        )
        return Result(response, [update])

    def _snapshot(
        self,
        key: SharePartitionKey,
        state: ShareState,
        response: T,
        *,
        created_ms: int | None = None,
        position: CoordinatorPosition = UNKNOWN_POSITION,
    ) -> Result[T]:
        held = self.states.get(key)
        now_ms = self._context.clock.now_ms()
        snapshot = Snapshot(
            0 if held is None else held.snapshot.epoch + 1,
            state,
            now_ms if created_ms is None else created_ms,
            now_ms,
            held.snapshot.position if held and position == UNKNOWN_POSITION else position,
        )
        self._appended[key] = self._context.log_end()

        def appended(error: KafkaError | None) -> T:
            if error is not None:
                self._appended.pop(key, None)
                raise error
            return response

        return Result(records=[SnapshotRecord(key, snapshot)], then=appended)


def _check_leader_epoch(state: ShareState, leader_epoch: LeaderEpoch) -> None:
    if leader_epoch != _ANY and leader_epoch < state.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)


def _check_state_epoch(state: ShareState, state_epoch: int) -> None:
    if state_epoch != _ANY and state_epoch < state.state_epoch:
        raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)


def _check_position(held: StoredState, position: CoordinatorPosition) -> None:
    if position.is_before(held.snapshot.position):
        raise KafkaError(ErrorCode.FENCED_STATE_EPOCH, "a later request has initialized the state")


def _finished(state: ShareState, start_offset: Offset, count: int, batches: Sequence[StateBatch]) -> int:
    """Return the number of finished records after a write that says `count`: see `SharePersister.write`."""
    if start_offset > state.start_offset or count >= state.delivery_complete_count:
        return count
    is_changed = combine(state.batches, batches, state.start_offset) != state.batches
    return count if is_changed else state.delivery_complete_count


def _updated(held: StoredState, update: UpdateRecord) -> StoredState:
    state = held.state
    start = state.start_offset if update.start_offset == -1 else update.start_offset
    changed = state._replace(
        leader_epoch=max(state.leader_epoch, update.leader_epoch),
        start_offset=start,
        delivery_complete_count=update.delivery_complete_count,
        batches=combine(state.batches, update.batches, start),
    )
    return StoredState(held.snapshot._replace(state=changed), held.updates + 1)
