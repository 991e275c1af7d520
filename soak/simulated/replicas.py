"""Checks all replicas of a partition against the records that were committed so far."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from simulation.virtual_time import VirtualProcess

from barnabas.base.errors import KafkaError
from barnabas.base.types import BrokerId, Offset, TopicId, TopicPartition
from barnabas.broker.logs.manager import LogManager
from barnabas.broker.replication.partition import Partition
from barnabas.broker.server.broker import Broker
from barnabas.broker.storage.log import PartitionLog
from barnabas.broker.storage.log_files import LogFiles
from barnabas.broker.storage.reading import read_batches
from barnabas.kafka.records.batch import BatchHeader, batches
from soak.simulated.bugs import replaced
from soak.simulated.cluster import SimulatedCluster, partitions_of
from soak.simulated.plan import LEAST_IN_SYNC
from soak.simulated.stage import Stage, host_of

#: seconds between two looks at all replicas, with faults and without
_EVERY, _EVERY_WITHOUT_FAULTS = 0.03, 0.1
_READ_BYTES = 1 << 20

#: a topic's id and the partition's number
Key: TypeAlias = tuple[TopicId, int]
#: what tells a batch from every other: base offset, leader epoch, CRC
Batch: TypeAlias = tuple[int, int, int]


@dataclass
class _Oracle:
    """The committed records of a partition.

    Attributes:
        watermark: the highest high watermark of any leader.
        batches: all batches below it, by their last offset. Batches that were deleted later stay here.
    """

    watermark: Offset = 0
    known_to: Offset = 0
    batches: dict[Offset, Batch] = field(default_factory=dict)
    #: producer id, epoch and first sequence of each, which compaction keeps
    origins: dict[Offset, tuple[int, int, int]] = field(default_factory=dict)

    def learn(self, header: BatchHeader) -> None:
        self.batches[header.last_offset] = header.base_offset, header.leader_epoch, header.crc
        self.origins[header.last_offset] = _origin(header)


@dataclass(slots=True)
class _Seen:
    """The result of the last check of a replica.

    Attributes:
        verified_to: the offset up to which the replica has the committed records.
        look: the values on which the check depended.
        look_of_leader: the same of the check of a leader.
    """

    log: PartitionLog
    key: Key
    verified_to: Offset = 0
    look: tuple[object, ...] = ()
    look_of_leader: tuple[object, ...] = ()


@dataclass(slots=True)
class _Checked:
    """The replicas of a broker's process that were checked."""

    broker: Broker
    seen: dict[Partition, _Seen] = field(default_factory=dict)


class Replicas:
    """Checks all replicas many times a second, and at each step that cannot be undone."""

    def __init__(self, stage: Stage, cluster: SimulatedCluster) -> None:
        self._stage = stage
        self._cluster = cluster
        self._decisions = cluster.decisions
        self._oracles: dict[Key, _Oracle] = {}
        self._checked: dict[BrokerId, _Checked] = {}
        self._leaders: dict[tuple[Key, int], BrokerId] = {}
        #: where the records on disk end, by the files whose recovery point is lower because of a truncation
        #: that has not begun. A new leader can make the truncation unnecessary.
        self._durable: dict[LogFiles, Offset] = {}
        #: complaints made, each once
        self._said: dict[object, None] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.result()

    @contextmanager
    def observing(self) -> Iterator[None]:
        """Observe each advance of a high watermark, and each truncation and deletion of a log."""
        note_truncation, delete = PartitionLog.note_truncation, LogManager.delete
        advance = PartitionLog.advance_high_watermark
        lower = LogFiles.lower_recovery_point

        def advancing(log: PartitionLog, offset: Offset) -> bool:
            has_moved = advance(log, offset)
            if has_moved and isinstance(log.listener, Partition) and log.listener.is_leader:
                self._advanced(log)
                self._check_quorum(log.listener)
            return has_moved

        def ending(log: PartitionLog, end: Offset) -> None:
            note_truncation(log, end)
            self._durable.pop(log.files, None)
            self._truncated(log, end)

        def lowering(files: LogFiles, offset: Offset) -> bool:
            before = files.recovery_point
            if is_lower := lower(files, offset):
                self._durable[files] = max(before, self._durable.get(files, 0))
            return is_lower

        def deleting(logs: LogManager, name: TopicPartition) -> None:
            self._deleted(logs, name)
            delete(logs, name)

        with replaced(
            (PartitionLog, "note_truncation", ending),
            (PartitionLog, "advance_high_watermark", advancing),
            (LogManager, "delete", deleting),
            (LogFiles, "lower_recovery_point", lowering),
        ):
            yield

    async def _watch(self) -> None:
        while True:
            self.check()
            await asyncio.sleep(_EVERY if self._stage.has_faults else _EVERY_WITHOUT_FAULTS)

    def check(self) -> None:
        """Report each condition that is not true now."""
        held = [
            (number, self._replicas_of(number, broker), self._is_registered(number, broker))
            for number, broker in self._cluster.running.items()
        ]
        for number, replicas, _ in held:
            for partition, seen in replicas:
                if partition.is_leader:
                    self._check_leadership(number, partition, seen)
        for number, replicas, is_registered in held:
            for partition, seen in replicas:
                self._check_replica(number, partition, seen, is_registered=is_registered)

    def _replicas_of(self, number: BrokerId, broker: Broker) -> list[tuple[Partition, _Seen]]:
        """Return the replicas of a broker, each with the result of its last check."""
        checked = self._checked.get(number)
        if checked is None or checked.broker is not broker:
            checked = self._checked[number] = _Checked(broker)
        known = checked.seen
        found = []
        for partition in partitions_of(broker):
            seen, log = known.get(partition), partition.log
            if seen is None or seen.log is not log:
                seen = known[partition] = _Seen(log, self._key(partition), log.log_start_offset)
            found.append((partition, seen))
        return found

    # --- leaders ---

    def _key(self, partition: Partition) -> Key:
        return _topic_id(partition.log), partition.topic_partition.partition

    def _check_leadership(self, number: BrokerId, partition: Partition, seen: _Seen) -> None:
        log, oracle = partition.log, self._oracles.get(seen.key)
        if oracle is None or log.high_watermark > oracle.watermark or oracle.known_to < oracle.watermark:
            self._advanced(log)
        look = (partition.state, partition.successors, self._decisions.version)
        if look == seen.look_of_leader:
            return  # all that is checked here follows from these
        other = self._leaders.setdefault((seen.key, partition.leader_epoch), number)
        if other != number:
            self._complain(
                "two-leaders",
                f"{partition.topic_partition}: {other} and {number} in epoch {partition.leader_epoch}",
            )
        self._check_counted(number, partition)
        seen.look_of_leader = look

    def _check_counted(self, number: BrokerId, leader: Partition) -> None:
        """Check that a leader waits for all brokers that the controller added to the ISR (KIP-497), even if
        it does not know.
        """
        name, state = leader.topic_partition, self._decisions.states.get(leader.topic_partition)
        if state is None or (state.leader, state.leader_epoch) != (number, leader.leader_epoch):
            return
        if self._decisions.topic_ids.get(name.topic) != _topic_id(leader.log):
            return  # the broker does not know yet that the topic was deleted, and created again
        missing = {*state.isr} - {number} - {*leader.successors}
        if missing:
            self._complain("member-not-counted", f"{name} of broker {number}: {missing} of {state.isr}")

    def _check_quorum(self, leader: Partition) -> None:
        """Check an advance of a high watermark: the ISR is large enough, and each member has the committed
        records.
        """
        log, name, key = leader.log, leader.topic_partition, self._key(leader)
        state = leader.state
        if len(state.isr) < min(LEAST_IN_SYNC, len(state.replicas)) and self._cluster.ensemble is not None:
            self._complain(
                "watermark-rose", f"{name} to {log.high_watermark}, though in sync are {state.isr}"
            )
        for number, broker in self._cluster.running.items():
            replica = broker.replicas._topics.get(key[0], {}).get(key[1])
            if replica is None or replica is leader or replica.is_leader:
                continue
            end = replica.log.log_end_offset
            if replica._flushes._every == 1 or log.config.flush_messages == 1:
                # else what becomes due had counted before
                durable = self._durable.get(replica.log.files, 0)
                end = min(end, max(replica._flushes.safe_end(), durable))
            if end < log.high_watermark and self._must_be_whole(
                number, replica, is_registered=self._is_registered(number, broker)
            ):
                self._complain(
                    "no-quorum",
                    f"{name} to {log.high_watermark}, broker {number} has {end}: {self._state(name)}",
                )

    def _advanced(self, log: PartitionLog) -> None:
        """Note the records that a leader has committed."""
        key = _topic_id(log), log.topic_partition.partition
        oracle = self._oracles.get(key)
        if oracle is None:
            oracle = self._oracles[key] = _Oracle()
        if log.high_watermark <= oracle.watermark and oracle.known_to >= oracle.watermark:
            return
        oracle.watermark = max(oracle.watermark, log.high_watermark)
        for header in _headers(log, max(oracle.known_to, log.log_start_offset), oracle.watermark):
            oracle.learn(header)
            oracle.known_to = header.next_offset

    # --- each replica ---

    def _check_replica(
        self, number: BrokerId, partition: Partition, seen: _Seen, *, is_registered: bool
    ) -> None:
        oracle = self._oracles.get(seen.key)
        if oracle is None:
            return  # no leader has committed a record yet
        log = seen.log
        due = partition._flushes._due
        look = (
            seen.verified_to,
            log.log_end_offset,
            log.high_watermark,
            due,
            partition._role,
            partition.state,
            oracle.watermark,
            oracle.known_to,
            self._decisions.version,
            is_registered,
        )
        if look == seen.look:
            return  # all that is checked here follows from these
        name = partition.topic_partition
        if due > log.log_end_offset:
            self._complain(
                "due-behind-end",
                f"{_where(number, name)} is to be fsynced to {due}, ends at {log.log_end_offset}",
            )
        if not partition.is_leader and log.high_watermark > oracle.watermark:
            self._complain(
                "watermark-ahead",
                f"{_where(number, name)}: {log.high_watermark}, committed is {oracle.watermark}",
            )
        must_be_whole = self._must_be_whole(number, partition, is_registered=is_registered)
        if must_be_whole is not None and log.log_end_offset < oracle.watermark:
            self._complain(
                must_be_whole,
                f"{_where(number, name)} ends at {log.log_end_offset}, committed is {oracle.watermark}: "
                f"{self._state(name)}",
            )
        limit = min(
            log.log_end_offset,
            oracle.known_to if must_be_whole is not None else min(log.high_watermark, oracle.known_to),
        )
        if seen.verified_to < limit:
            self._verify(_where(number, name), log, seen, oracle, limit)
        seen.look = (seen.verified_to, *look[1:])

    def _is_registered(self, number: BrokerId, broker: Broker) -> bool:
        """Return whether the broker's present process is registered in the cluster."""
        return self._cluster.registered_epoch(number) == broker.controller.registration.epoch

    def _must_be_whole(self, number: BrokerId, partition: Partition, *, is_registered: bool) -> str | None:
        """Return the kind of violation if this replica lacks committed records; None if it may lack them."""
        name = partition.topic_partition
        state = self._decisions.states.get(name)
        if state is None or self._decisions.topic_ids.get(name.topic) != _topic_id(partition.log):
            return None
        if partition.is_leader and partition.leader_epoch == state.leader_epoch:
            return "incomplete-leader"
        if not is_registered:
            return None
        return "incomplete-replica" if self._decisions.is_complete(number, name) else None

    def _state(self, name: TopicPartition) -> object:
        return self._decisions.states.get(name)

    def _verify(self, where: str, log: PartitionLog, seen: _Seen, oracle: _Oracle, limit: Offset) -> None:
        """Compare the batches that were not compared yet with the committed ones, up to `limit`."""
        compacted = log.config.is_compacted
        expected = seen.verified_to
        for header in _headers(log, max(seen.verified_to, log.log_start_offset), limit):
            last = header.last_offset
            if last < seen.verified_to or header.base_offset < log.log_start_offset:
                expected = header.next_offset
                continue
            known = oracle.batches.get(last)
            if compacted:
                wrong = (
                    known is None
                    or oracle.origins[last] != _origin(header)
                    or known[1] != header.leader_epoch
                )
            else:
                wrong = known != (header.base_offset, header.leader_epoch, header.crc)
                if header.base_offset > max(expected, log.log_start_offset):
                    wrong = True
            if wrong and last < oracle.known_to:
                self._complain(
                    "logs-differ",
                    f"{where} has batch {header.base_offset} to {last} of epoch {header.leader_epoch} "
                    f"behind {expected}, committed is {known}",
                )
            expected = header.next_offset
        seen.verified_to = limit

    # --- truncations and deletions ---

    def _truncated(self, log: PartitionLog, end: Offset) -> None:
        partition = log.listener
        for number, checked in self._checked.items():
            for seen in checked.seen.values():
                if seen.log is not log:
                    continue
                seen.verified_to = min(seen.verified_to, end)
                oracle = self._oracles.get(seen.key)
                name = log.topic_partition
                broker = self._cluster.running.get(number)
                if oracle is None or broker is None or not isinstance(partition, Partition):
                    continue
                is_registered = self._is_registered(number, broker)
                is_counted_on = self._must_be_whole(number, partition, is_registered=is_registered)
                if end < oracle.watermark and is_counted_on and log.log_start_offset < end:
                    self._complain(
                        "truncated-committed",
                        f"{name} of broker {number} to {end}, committed is {oracle.watermark}: "
                        f"{self._state(name)}",
                    )

    def _deleted(self, logs: LogManager, name: TopicPartition) -> None:
        log = logs.get(name)
        process = VirtualProcess.current()
        if self._cluster.ensemble is None or log is None or process is None:
            return
        if _topic_id(log) in self._decisions.deleted:
            return
        broker_id = next(n for n in self._stage.broker_ids if process.name.startswith(f"{host_of(n)} "))
        state = self._decisions.states.get(name)
        where = f"{name} of broker {broker_id}: {state}"
        if state is None:
            self._complain("deleted-without-word", where)
        elif broker_id in state.replicas or broker_id in state.removing:
            # It was moved away, is to come back, and may not have heard of the latter yet: it begins anew.
            broker = self._cluster.running.get(broker_id)
            known = None if broker is None else broker.image.partition(name)
            is_counted_on = broker_id in (*state.isr, *state.elr, *state.last_known_elr)
            if known is None or broker_id in known.replicas or is_counted_on:
                self._complain("deleted-without-word", where)

    def _complain(self, kind: str, text: str) -> None:
        if (kind, text) not in self._said:
            self._said[kind, text] = None
            self._stage.complain(kind, text)


def _headers(log: PartitionLog, start: Offset, end: Offset) -> Iterator[BatchHeader]:
    """Yield the headers of the batches between two offsets, as far as the log can be read now."""
    while start < end:
        try:  # not `read`: it takes a log offline whose disk fails
            found = read_batches(log.files.segments, log.log_end_offset, start, _READ_BYTES, end, True)
        except (OSError, KafkaError):
            return
        data = b"".join(bytes(chunk) for chunk in found.chunks)
        if not data:
            return
        for _, header in batches(data):
            if header.next_offset > end:
                return
            yield header
            start = header.next_offset


def _topic_id(log: PartitionLog) -> TopicId:
    return log.files._topic_id


def _where(number: BrokerId, name: TopicPartition) -> str:
    return f"{name} of broker {number}"


def _origin(header: BatchHeader) -> tuple[int, int, int]:
    return header.producer_id, header.producer_epoch, header.base_sequence
