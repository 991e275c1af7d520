"""Stores and deletes the offsets that classic groups and consumer groups commit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from barnabas.base.errors import ErrorCode
from barnabas.base.types import LeaderEpoch, Offset, ProducerId, ProducerIdentity, TopicId
from barnabas.broker.config.declaration import LONG_MAX
from barnabas.broker.coordinator.contract import Result
from barnabas.broker.coordinator.groups.codec import (
    NO_EXPIRY,
    CommittedOffset,
    OffsetKey,
    OffsetRecord,
    offset_record,
)
from barnabas.broker.coordinator.groups.offsets import Group, OffsetStore
from barnabas.broker.coordinator.groups.pending import PendingOffsets
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.kafka.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_MINUTE_MS = 60_000
#: makes a named tuple of its fields; calling its class takes three times as long
_tuple = tuple.__new__


class _Partition(Protocol):
    """One partition of OffsetCommit or TxnOffsetCommit."""

    partition_index: int
    committed_offset: Offset
    committed_leader_epoch: LeaderEpoch
    committed_metadata: str | None


class Commits:
    """The committed and pending offsets of one shard's groups, and the operations on them."""

    def __init__(self, view: BrokerView) -> None:
        self.offsets = OffsetStore()
        #: offsets in open transactions
        self.pending = PendingOffsets()
        self._view = view

    # --- replay ---

    def replay(self, record: OffsetRecord) -> None:
        """Apply one record from outside of transactions: store or delete an offset."""
        key, committed = record
        if committed is None:
            self.offsets.remove(key)
            self.pending.drop(key)
        else:
            self.offsets.put(key, committed)
            if key in self.pending.writers:
                self.pending.supersede(key)

    def replay_pending(self, producer_id: ProducerId, record: OffsetRecord) -> None:
        """Keep an offset of an open transaction. The offset becomes valid when the transaction commits."""
        if record.committed is not None:  # a transaction deletes no offsets
            self.pending.put(producer_id, record.key, record.committed)

    def end_transaction(self, producer_id: ProducerId, commit: bool) -> list[OffsetKey]:
        """End a producer's transaction.

        If `commit` is true, make the offsets of the transaction valid and return their keys. If it is false,
        drop the offsets and return an empty list.
        """
        counting = []
        for key, committed in self.pending.end(producer_id):
            if commit:
                self.offsets.put(key, committed)
                counting.append(key)
        return counting

    # --- commit ---

    def commit(self, request: OffsetCommitRequest) -> Result[OffsetCommitResponse]:
        """Return the response to OffsetCommit, and the records that store the offsets.

        Every topic of the request must have its name and its id. The method does not check the sender. An
        offset whose metadata is too long gets OFFSET_METADATA_TOO_LARGE in the response, and no record.
        """
        now = self._view.clock.now_ms()
        retention = request.retention_time_ms
        expires = NO_EXPIRY if retention < 0 else min(now + retention, LONG_MAX)
        records: list[OffsetRecord] = []
        response = OffsetCommitResponse()
        for topic in request.topics:
            outcomes = [
                OffsetCommitResponsePartition(
                    partition_index=partition.partition_index,
                    error_code=self._add_record(
                        request.group_id, topic.name, partition, now, expires, topic.topic_id, records
                    ),
                )
                for partition in topic.partitions
            ]
            response.topics.append(
                OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=outcomes)
            )
        return Result(response, records)

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, topic_ids: Mapping[str, TopicId]
    ) -> Result[TxnOffsetCommitResponse]:
        """Return the response to TxnOffsetCommit, and the offset records for the producer's transaction.

        `topic_ids` must have every topic of the request, by name. The method does not check the sender. An
        offset whose metadata is too long gets OFFSET_METADATA_TOO_LARGE in the response, and no record.
        """
        now = self._view.clock.now_ms()
        records: list[OffsetRecord] = []
        response = TxnOffsetCommitResponse()
        for topic in request.topics:
            topic_id = topic_ids[topic.name]
            outcomes = [
                TxnOffsetCommitResponsePartition(
                    partition_index=partition.partition_index,
                    error_code=self._add_record(
                        request.group_id, topic.name, partition, now, NO_EXPIRY, topic_id, records
                    ),
                )
                for partition in topic.partitions
            ]
            response.topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=outcomes))
        producer = ProducerIdentity(request.producer_id, request.producer_epoch)
        return Result(response, records, producer)

    def _add_record(
        self,
        group_id: str,
        topic: str,
        partition: _Partition,
        now_ms: int,
        expires_ms: int,
        topic_id: TopicId,
        records: list[OffsetRecord],
    ) -> ErrorCode:
        metadata = partition.committed_metadata or ""
        if len(metadata) > self._view.config.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        offset, leader_epoch = partition.committed_offset, partition.committed_leader_epoch
        key = _tuple(OffsetKey, (group_id, topic, partition.partition_index))
        committed = _tuple(CommittedOffset, (offset, leader_epoch, metadata, now_ms, expires_ms, topic_id))
        if expires_ms == NO_EXPIRY:
            records.append(_tuple(OffsetRecord, (key, committed)))
        else:
            records.append(offset_record(key, committed))
        return ErrorCode.NONE

    # --- delete ---

    def delete(self, group: Group, keys: list[OffsetKey]) -> Result[dict[OffsetKey, ErrorCode]]:
        """Return an error code for each key, and the records that delete offsets.

        Offsets of topics that members subscribe to get GROUP_SUBSCRIBED_TO_TOPIC, and stay. A key without an
        offset gets NONE.
        """
        in_use = group.topics_in_use()
        outcome = {
            key: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if key.topic in in_use else ErrorCode.NONE
            for key in keys
        }
        there = [
            key
            for key, error in outcome.items()
            if error is ErrorCode.NONE and (self.offsets.get(key) is not None or key in self.pending)
        ]
        return Result(outcome, _tombstones(there))

    def delete_all(self, group_id: str) -> list[OffsetRecord]:
        """Return the records that delete all offsets of a group, pending ones included."""
        return _tombstones(sorted({*self.offsets.keys(group_id), *self.pending.of_group(group_id)}))

    def expire(self, group: Group) -> tuple[list[OffsetRecord], bool]:
        """Return the records that delete a group's expired offsets, and whether other offsets remain.

        An offset does not expire while a transaction has a pending offset for the same partition.
        """
        retention_ms = self._view.config.offsets_retention_minutes * _MINUTE_MS
        expired = [
            key
            for key in self.offsets.expired(group, self._view.clock.now_ms(), retention_ms)
            if key not in self.pending
        ]
        left = sum(map(len, self.offsets.of_group(group.group_id).values())) - len(expired)
        return _tombstones(expired), bool(left or self.pending.of_group(group.group_id))

    def has_offsets(self, group_id: str) -> bool:
        """Whether the group has any offsets, pending ones included."""
        return bool(self.offsets.of_group(group_id) or self.pending.of_group(group_id))

    def has_offsets_of(self, group_id: str, topics: set[str]) -> bool:
        """Whether the group has offsets of these deleted topics, pending ones included."""
        return bool(self._keys_of(group_id, topics))

    def topics_of(self, group_id: str, topic_ids: Collection[TopicId]) -> set[str]:
        """Return the names of the topics with these ids for which the group has committed offsets."""
        of_group = self.offsets.of_group(group_id)
        return {
            topic
            for topic, partitions in of_group.items()
            if any(committed.topic_id in topic_ids for committed in partitions.values())
        }

    def forget_topics(self, group_id: str, topics: set[str]) -> Result[None]:
        """Return the records that delete a group's offsets of deleted topics.

        Keep offsets that were committed for a new topic of the same name.
        """
        return Result(records=_tombstones(self._keys_of(group_id, topics)))

    def _keys_of(self, group_id: str, topics: set[str]) -> list[OffsetKey]:
        there = self._view.image.topics

        def is_gone(key: OffsetKey, committed: CommittedOffset | None) -> bool:
            topic = there.get(key.topic)
            return topic is None or committed is None or committed.topic_id != topic.id

        stored = dict(self.offsets.of_topics(group_id, topics))
        pending = list(self.pending.of_topics(group_id, topics))
        later = {key for key, committed in pending if not is_gone(key, committed)}
        only_pending = {key for key, _ in pending} - later - stored.keys()
        # A tombstone also drops the pending offsets of its key. Their commit replaces the stored offset.
        gone = (key for key, committed in stored.items() if key not in later and is_gone(key, committed))
        return [*gone, *sorted(only_pending)]


def _tombstones(keys: Iterable[OffsetKey]) -> list[OffsetRecord]:
    return [OffsetRecord(key, None) for key in keys]
