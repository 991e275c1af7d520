"""Bugs to plant in the broker, one at a time, to test the checks of the simulation.

Each bug replaces a function of the broker with a wrong one. Other brokers have had such defects. No other
code uses these functions. `python -m soak.simulated --bugs` counts the seeds that catch each bug.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, TypeAlias
from zlib import crc32

from barnabas.base.types import ProducerIdentity
from barnabas.broker.coordinator.contract import Result
from barnabas.broker.coordinator.groups.classic.session_timeouts import SessionTimeouts
from barnabas.broker.coordinator.groups.codec import OffsetRecord
from barnabas.broker.coordinator.groups.commits import Commits
from barnabas.broker.coordinator.groups.consumer.group import ConsumerGroup
from barnabas.broker.coordinator.groups.modern.timeouts import Timeouts
from barnabas.broker.coordinator.groups.pending import PendingOffsets
from barnabas.broker.coordinator.transactions.shard import TransactionShard
from barnabas.broker.logs.directory_checkpoints import DirectoryCheckpoints
from barnabas.broker.logs.offset_checkpoint import CheckpointWrite
from barnabas.broker.replication.partition.flushing import FlushSchedule
from barnabas.broker.server.transactions.markers import MarkerAppender
from barnabas.broker.storage import log, log_files, opening, producers, reading, recovery
from barnabas.broker.storage.log import PartitionLog
from barnabas.broker.storage.log_files import LogFiles
from barnabas.broker.storage.offset_map import OffsetMap
from barnabas.broker.storage.open_files import LogFile
from barnabas.broker.storage.producer_snapshot import encode_snapshot
from barnabas.broker.storage.producers import Producer, Producers

Plant = Callable[[], AbstractContextManager[object]]
Bugs: TypeAlias = dict[str, tuple[str, Plant]]
#: by name: what it does, and how it is planted
BUGS: Bugs = {}


def adding(bugs: Bugs) -> Callable[[str, str], Callable[[Callable[[], Iterator[None]]], None]]:
    """Return a decorator that adds a bug to `bugs`, by its name and a description."""

    def bug(name: str, doc: str) -> Callable[[Callable[[], Iterator[None]]], None]:
        def add(plant: Callable[[], Iterator[None]]) -> None:
            bugs[name] = (doc, contextmanager(plant))

        return add

    return bug


_bug = adding(BUGS)


@contextmanager
def replaced(*parts: tuple[object, str, Any]) -> Iterator[None]:
    """Replace attributes of objects while the context lasts.

    Raises:
        TypeError: a function does not accept the arguments of the function that it replaces. The broker would
            then fail at each call, and the checks would find this error and not the bug.
    """
    with ExitStack() as undo:
        for owner, name, value in parts:
            original = vars(owner)[name]
            if inspect.isfunction(original) and inspect.isfunction(value):
                _check_arguments(name, original, value)
            undo.callback(setattr, owner, name, original)
            setattr(owner, name, value)
        yield


def _check_arguments(name: str, original: Callable[..., Any], value: Callable[..., Any]) -> None:
    parameters = inspect.signature(original).parameters.values()
    positional = [each for each in parameters if each.kind == each.POSITIONAL_OR_KEYWORD]
    named = [each.name for each in parameters if each.kind == each.KEYWORD_ONLY]
    try:
        inspect.signature(value).bind(*positional, **dict.fromkeys(named))
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from error


@_bug("no-deduplication", "a batch that comes again is appended again")
def _no_deduplication() -> Iterator[None]:
    with replaced(
        (Producer, "duplicate", lambda self, header: None),
        (producers, "_check_sequence", lambda producer, header: None),
    ):
        yield


@_bug("epochs-unchecked", "neither coordinator nor log look whether a producer's epoch is the newest")
def _epochs_unchecked() -> Iterator[None]:
    check, of_producer, end = Producers.check, TransactionShard._of_producer, TransactionShard.end

    def checked(self: Producers, header: Any, origin: Any) -> Any:
        known = self.get(header.producer_id)
        if known is not None and header.producer_epoch < known.epoch:
            return None
        return check(self, header, origin)

    def newest(self: TransactionShard, transactional_id: str, producer: ProducerIdentity) -> ProducerIdentity:
        known = self.transactions.get(transactional_id)
        return producer if known is None else ProducerIdentity(producer.producer_id, known.epoch)

    def looked_up(self: TransactionShard, transactional_id: str, producer: ProducerIdentity) -> Any:
        return of_producer(self, transactional_id, newest(self, transactional_id, producer))

    def ended(self: TransactionShard, transactional_id: str, producer: ProducerIdentity, **how: Any) -> Any:
        return end(self, transactional_id, newest(self, transactional_id, producer), **how)

    with replaced(
        (Producers, "check", checked),
        (TransactionShard, "_of_producer", looked_up),
        (TransactionShard, "end", ended),
    ):
        yield


@_bug("epoch-not-raised", "who takes a transactional id gets the epoch of who had it")
def _epoch_not_raised() -> Iterator[None]:
    following = TransactionShard._next_identity

    def same(self: TransactionShard, transactional_id: str, transaction: Any, *more: Any) -> Any:
        if transaction.epoch >= 0:
            return transaction.producer
        return following(self, transactional_id, transaction, *more)

    with replaced((TransactionShard, "_next_identity", same)):
        yield


@_bug("watermark-before-fsync", "the high watermark passes records whose fsync is still under way")
def _watermark_before_fsync() -> Iterator[None]:
    with replaced((FlushSchedule, "safe_end", lambda self: self._log.log_end_offset)):
        yield


@_bug("fsync-skipped", "what counts as fsynced is not, when it is a log")
def _fsync_skipped() -> Iterator[None]:
    sync = LogFile.sync

    def skipping(self: LogFile) -> None:
        if not self.path.endswith(".log"):
            sync(self)

    with replaced((LogFile, "sync", skipping)):
        yield


@_bug("stable-offset-too-high", "the last stable offset is the high watermark")
def _stable_offset_too_high() -> Iterator[None]:
    with replaced((PartitionLog, "last_stable_offset", property(lambda self: self.high_watermark))):
        yield


@_bug("aborted-not-told", "Fetch does not say which transactions were aborted")
def _aborted_not_told() -> Iterator[None]:
    with replaced((PartitionLog, "aborted_transactions", lambda self, offset, size, may_wait=True: [])):
        yield


@_bug("offset-commit-not-stored", "committed offsets are kept in memory alone")
def _offset_commit_not_stored() -> Iterator[None]:
    commit = Commits.commit

    def in_memory(self: Commits, request: Any) -> Any:
        result = commit(self, request)
        for record in result.records:
            assert isinstance(record, OffsetRecord)
            self.replay(record)
        return Result(result.response)

    with replaced((Commits, "commit", in_memory)):
        yield


@_bug("transaction-offsets-dropped", "offsets of a transaction that commits are forgotten, one time in eight")
def _transaction_offsets_dropped() -> Iterator[None]:
    ended = PendingOffsets.end

    def dropping(self: PendingOffsets, producer_id: int) -> Any:
        return [pair for pair in ended(self, producer_id) if pair[1].offset % 8]

    with replaced((PendingOffsets, "end", dropping)):
        yield


@_bug("marker-skipped", "one partition in four gets no marker at a transaction's end")
def _marker_skipped() -> Iterator[None]:
    append = MarkerAppender._append

    def skipping(self: MarkerAppender, marker: Any, partition: Any) -> Any:
        if crc32(f"{marker} {partition}".encode()) % 4 == 0:
            return None
        return append(self, marker, partition)

    with replaced((MarkerAppender, "_append", skipping)):
        yield


@_bug("snapshot-cut-short", "a snapshot of producers leaves out every second one")
def _snapshot_cut_short() -> Iterator[None]:
    encode = encode_snapshot

    def half(known: Iterable[Any]) -> bytes:
        return encode(list(known)[::2])

    with replaced((log_files, "encode_snapshot", half)):
        yield


@_bug("stale-snapshots-kept", "snapshots of producers stay behind the end to which a log was recovered")
def _stale_snapshots_kept() -> Iterator[None]:
    recover = recovery.recover

    def recovering(*arguments: Any, **more: Any) -> Any:
        with replaced((LogFiles, "drop_snapshots_after", lambda self, offset: None)):
            return recover(*arguments, **more)

    with replaced((opening, "recover", recovering)):
        yield


@_bug("cleaner-drops-live", "compaction takes the last value of one key in sixteen")
def _cleaner_drops_live() -> Iterator[None]:
    is_latest = OffsetMap.is_latest

    def wrong(self: OffsetMap, key: bytes, offset: int) -> bool:
        return is_latest(self, key, offset) and crc32(key) % 16 != 0

    with replaced((OffsetMap, "is_latest", wrong)):
        yield


@_bug("sessions-never-expire", "members that have died stay in their groups")
def _sessions_never_expire() -> Iterator[None]:
    with replaced(
        (SessionTimeouts, "watch", lambda self, group, member_id, timeout_ms: None),
        (Timeouts, "expect_heartbeat", lambda self, group_id, member_id, timeout_ms: None),
    ):
        yield


@_bug("partition-given-twice", "a member is given a partition that another has not given up")
def _partition_given_twice() -> Iterator[None]:
    with replaced((ConsumerGroup, "is_owned", lambda self, topic, partition: False)):
        yield


@_bug("log-start-not-stored", "what DeleteRecords took comes back at a start")
def _log_start_not_stored() -> Iterator[None]:
    checkpoint = DirectoryCheckpoints.write_log_starts

    def empty(self: DirectoryCheckpoints) -> CheckpointWrite:
        checkpoint(self)
        return CheckpointWrite(self._log_starts, self._logs, lambda log: None)

    with replaced((DirectoryCheckpoints, "write_log_starts", empty)):
        yield


@_bug("reads-skip-a-batch", "one fetch in a hundred begins behind the batch it was to begin with")
def _reads_skip_a_batch() -> Iterator[None]:
    read = reading.read_batches

    def skipping(segments: Any, end: int, offset: int, max_bytes: int, max_offset: int, min_one: bool) -> Any:
        wrong = offset % 100 == 99 and offset + 1 < max_offset
        return read(segments, end, offset + 1 if wrong else offset, max_bytes, max_offset, min_one)

    with replaced((log, "read_batches", skipping)):
        yield


@_bug("copy-not-fsynced", "a log that moves to another folder gets a copy that is not fsynced")
def _copy_not_fsynced() -> Iterator[None]:
    sync = LogFile.sync

    def skipping(self: LogFile) -> None:
        if "-future/" not in self.path:
            sync(self)

    with replaced((LogFile, "sync", skipping)):
        yield


@_bug("copy-start-not-stored", "a log that has moved to another folder has no log start there at first")
def _copy_start_not_stored() -> Iterator[None]:
    checkpoint = DirectoryCheckpoints.write_log_starts

    def without_copies(self: DirectoryCheckpoints) -> CheckpointWrite:
        with replaced((DirectoryCheckpoints, "logs", property(lambda self: self._logs))):
            return checkpoint(self)

    with replaced((DirectoryCheckpoints, "write_log_starts", without_copies)):
        yield


@_bug("deleted-offsets-return", "a deleted group's offsets stay, and a group of the same name gets them")
def _deleted_offsets_return() -> Iterator[None]:
    with replaced((Commits, "delete_all", lambda self, group_id: [])):
        yield
