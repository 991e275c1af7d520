"""Moves logs from one log directory of a broker to another (KIP-113).

A copy of the log, Kafka's future replica, is created in the other directory. It follows the log as a replica
follows its leader, by leader epochs. When it is complete and durable, the log switches to the copy's files,
and the old ones are removed. A move continues after a restart, which finds the copy's folder.

Four rules make it safe:

- The switch is one step of the event loop, so that no append is in only one of the two logs.
- From the preparation of the switch to its end, the broker does not fsync the log (`is_held`). So no record
  counts as durable that is not durable in the copy. Producers without records are durable in the copy before
  the switch. The old files are removed when the new folder's name and the leader epochs are durable. A crash
  before that leaves two folders. The broker's next start keeps the complete one (`LogManager.load`).
- Before the switch, the log's start offset is in the checkpoint of the other directory. So records that
  DeleteRecords has deleted do not come back.
- A log is not compacted while it moves, and a copy from before a compaction is not used. So deleted keys do
  not come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from barnabas.base.environment.environment import Environment
from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.tasks import start_task, stop_tasks
from barnabas.base.text import logger_of
from barnabas.base.types import Chunk, Offset, TopicPartition
from barnabas.broker.config.declaration import LONG_MAX
from barnabas.broker.logs import LogDirectory
from barnabas.broker.logs.manager import LogManager
from barnabas.broker.storage import PartitionLog
from barnabas.broker.storage.producer_snapshot import decode_snapshot, encode_snapshot
from barnabas.broker.storage.truncation import cut_in_parts, truncate_fully_and_start_at, truncate_to
from barnabas.broker.view import BrokerView

log = logger_of(__name__)

#: bytes copied in one turn of the event loop
_CHUNK = 256 * 1024
#: seconds before the first and the latest retries; each wait is twice the one before
_FIRST_RETRY, _LAST_RETRY = 0.05, 10.0
#: longest sleep in seconds to keep the rate: the rate may be raised meanwhile
_MAX_PAUSE = 1.0


class _GivenUpError(Exception):
    """The move cannot be completed."""


class LogMoves:
    """Moves the logs of a broker between its log directories. Only the event loop may use it.

    Args:
        view: the broker's settings.
        logs: the broker's logs.
        environment: provides the threads.
        flush: called with a partition after the switch or an attempt to switch; requests an fsync of the
            partition's log, and returns at once.
    """

    def __init__(
        self,
        view: BrokerView,
        logs: LogManager,
        environment: Environment,
        flush: Callable[[TopicPartition], None],
    ) -> None:
        self._view = view
        self._logs = logs
        self._flush = flush
        self._pool = environment.blocking.pool("log moves", 2)
        self._workers: dict[LogDirectory, asyncio.Task[None]] = {}
        self._is_stopped = False

    def start(self) -> None:
        """Continue the moves that the last stop interrupted."""
        for directory in self._logs.directories:
            if directory.futures:
                self._work_on(directory)

    async def stop(self) -> None:
        """Stop all moves. The broker's next start continues them."""
        self._is_stopped = True
        await stop_tasks(*self._workers.values())
        await self._pool.close()

    def begin(self, topic_partition: TopicPartition, path: str) -> None:
        """Begin the move of a log to the log directory `path`. Cancel its move to another directory, if any.

        Do nothing more if the log is in `path` already, or is being moved there.

        Raises:
            KafkaError: LOG_DIR_NOT_FOUND, no log directory of this broker has this path; KAFKA_STORAGE_ERROR,
                one of the directories is offline; REPLICA_NOT_AVAILABLE, there is no such log here: if it is
                created later, it will be in `path`.
        """
        target = self._logs.directory_at(path)
        current = self._logs.get(topic_partition)
        if current is None:
            self._logs.prefer(topic_partition, target)
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE)
        if current.is_offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {topic_partition} is offline")
        if self._logs.copy_of(topic_partition) is target:
            return
        self._logs.drop_copy(topic_partition)
        if self._logs.directory_of(topic_partition) is target:
            return
        self._logs.create_copy(current, target)
        self._work_on(target)

    def _work_on(self, target: LogDirectory) -> None:
        worker = self._workers.get(target)
        if (worker is None or worker.done()) and not self._is_stopped:
            self._workers[target] = start_task(self._move_all(target), f"moves to {target.path}")

    async def _move_all(self, target: LogDirectory) -> None:
        retry = _FIRST_RETRY
        while target.futures and target.failure is None:
            topic_partition, future = next(iter(target.futures.items()))
            try:
                await self._move(topic_partition, future, target)
            except _GivenUpError as error:
                log.error("%s is not moved to %s: %s", topic_partition, target.path, error)
                self._drop(topic_partition, future, target)
            except (KafkaError, OSError) as error:  # a full disk may have space again
                if target.failure is not None or target.futures.get(topic_partition) is not future:
                    continue  # no move to the directory goes on, or this one was cancelled
                log.warning("%s is moved to %s later: %s", topic_partition, target.path, error)
                target.futures[topic_partition] = target.futures.pop(topic_partition)  # the others first
                await asyncio.sleep(retry)
                retry = min(2 * retry, _LAST_RETRY)
            except Exception:
                log.exception("%s is not moved to %s", topic_partition, target.path)
                self._drop(topic_partition, future, target)
            else:
                retry = _FIRST_RETRY
        if target.futures:
            names = ", ".join(map(str, target.futures))
            log.error(
                "%s has failed: the next start that can use it continues the moves of %s", target.path, names
            )
            target.close_futures()  # else the cleaner would wait for these moves

    def _drop(self, topic_partition: TopicPartition, future: PartitionLog, target: LogDirectory) -> None:
        """Cancel the move of the copy `future` to `target`, unless `begin` has cancelled it meanwhile."""
        if target.futures.get(topic_partition) is future:
            self._logs.drop_copy(topic_partition)

    async def _move(
        self, topic_partition: TopicPartition, future: PartitionLog, target: LogDirectory
    ) -> None:
        """Copy records to the copy `future` until the log has moved.

        End earlier if the move is cancelled, or if `target` fails.

        Raises:
            _GivenUpError: the move cannot be completed.
            KafkaError, OSError: the move cannot be completed now; a later attempt may succeed.
        """
        await self._logs.checkpoints.store_cleaned(target)
        pause = _FIRST_RETRY
        while target.failure is None and target.futures.get(topic_partition) is future:
            current = self._logs.get(topic_partition)
            if current is None or current.is_offline:
                raise _GivenUpError("the log that is to be moved is gone or offline")
            if future.is_offline:
                raise _GivenUpError(f"the copy is offline: {future.failure}")
            rate = self._view.config.replica_alter_log_dirs_io_max_bytes_per_second
            if size := await self._copy_some(current, future, min(rate, _CHUNK)):
                await self._pay(size)
                continue
            await self._fsync(future)  # most of it, before anybody is held up
            if await self._try_to_switch(current, future, target):
                log.info("%s has moved to %s", topic_partition, target.path)
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, 1.0)

    async def _copy_some(self, current: PartitionLog, future: PartitionLog, max_bytes: int) -> int:
        """Copy at most about `max_bytes` bytes from the log `current` to the copy `future`.

        Return the number of copied bytes; 0 if there is nothing to copy. If the copy has records that the log
        does not have, only remove these records, and return 1: there may be records to copy now.
        """
        if (cut := _surplus(current, future)) is not None:
            await self._truncate(future, cut)  # nothing may be appended before
            return 1
        _follow(current, future)
        epoch = current.files.truncation_epoch
        chunks = _read(current, future, max_bytes)
        if not chunks:
            return 0
        data = await self._pool.run(_joined, chunks)
        del chunks
        if current.files.truncation_epoch == epoch and not current.closed:  # else it was cut off meanwhile
            if future.log_start_offset == future.log_end_offset:
                _add_earlier_producers(current, future)
            _append(future, data)
        return len(data)

    async def _pay(self, size: int) -> None:
        """Wait as long as `size` bytes take at ``replica.alter.log.dirs.io.max.bytes.per.second``."""
        left = float(size)
        while left > 0:
            rate = self._view.config.replica_alter_log_dirs_io_max_bytes_per_second
            if rate == LONG_MAX:
                return
            pause = min(left / max(rate, 1), _MAX_PAUSE)
            await asyncio.sleep(pause)
            left -= pause * rate

    async def _truncate(self, future: PartitionLog, cut: _Cut) -> None:
        """Remove the records in `cut` from the copy `future`, and fsync the copy.

        Threads read the batches that the truncation needs, and write the copy's lower recovery point.
        """
        if cut.starts_over:
            await self._logs.prepare_truncation(future, min(cut.offset, future.log_start_offset))
            truncate_fully_and_start_at(future, cut.offset, sync=False)
        else:
            truncation = await self._logs.prepare_truncation(future, cut.offset)
            truncate_to(future, cut.offset, sync=False, truncation=truncation)
        await self._fsync(future)

    async def _fsync(self, future: PartitionLog) -> None:
        for _ in cut_in_parts(future):
            await asyncio.sleep(0)
        while (flush := future.prepare_flush()) is not None:
            try:
                await _to_its_end(self._pool.run(flush.run))
            finally:
                future.complete_flush(flush)
            if not flush.is_partial:
                break

    async def _try_to_switch(self, current: PartitionLog, future: PartitionLog, target: LogDirectory) -> bool:
        """Switch the log to the copy's files.

        The copy also replaces the old files of an earlier move. Return False if the switch is not possible
        now, for one of these reasons:

        - The log or the copy has changed meanwhile.
        - The log's replica is in `LogManager.incomplete`.
        - An earlier move of the log has not ended its switch.

        Raises:
            _GivenUpError: these old files cannot be removed.
            KafkaError, OSError: a later attempt may succeed.
        """
        topic_partition = current.topic_partition
        if topic_partition in self._logs.incomplete:
            return False  # its mark is in its folder
        if current.is_held:
            return False  # an earlier move is about to release it
        if self._logs.get(topic_partition) is not current:
            return False  # it was deleted, or its disk has failed, while the copy was flushed
        source = self._logs.directory_of(topic_partition)
        current.is_held = True
        try:
            while await self._copy_some(current, future, _CHUNK):
                if current.log_end_offset - future.log_end_offset > _CHUNK:
                    return False  # much was cut off, or much has come
            if future.log_end_offset != current.log_end_offset:
                return False
            # No record tells of some producers: a crash after the switch must not lose them.
            future.files.write_snapshot(future.log_end_offset, current.producers)
            await self._fsync(future)
            cleaned_to = source.cleaned_to.get(topic_partition)
            if cleaned_to is not None:
                target.note_clean(topic_partition, cleaned_to)
            _follow(current, future)  # the start of the copy is the one that the checkpoint gets
            start = current.log_start_offset
            await self._logs.checkpoints.write_all(target)
            # From here on nothing waits until the switch.
            if (
                current.closed
                or current.is_offline
                or future.is_offline
                or target.futures.get(topic_partition) is not future
                or not current.log_start_offset == start == future.log_start_offset
                or source.cleaned_to.get(topic_partition) != cleaned_to
                or any(log is current for plan in source.checkpoints.planned_starts for log, _ in plan)
                or current.files.is_flushing
                or current.files.is_cut
                or current.files.swap is not None
                or _surplus(current, future) is not None
            ):
                return False
            _follow(current, future)
            chunks = _read(current, future, _CHUNK)
            if chunks:
                _append(future, _joined(chunks))
                del chunks
            if future.log_end_offset != current.log_end_offset:
                return False
            if future.recovery_point < current.recovery_point:
                return False  # what is known to be on disk would not be any more
            if not self._logs.moved_away(current):
                raise _GivenUpError("the old files of an earlier move cannot be removed now")
            if cleaned_to is not None:
                target.note_clean(topic_partition, cleaned_to)  # `moved_away` has perhaps removed the entry
            future.files.env.fs.rename(future.files.path, f"{target.path}/{topic_partition}")
            future.files.renamed(f"{target.path}/{topic_partition}")
            files = current.switch_files(future)
            del source.logs[topic_partition], target.futures[topic_partition]
            target.logs[topic_partition] = current
            self._logs.switched(current, source, files)
            await self._make_switch_durable(current, source, target)
        finally:
            current.is_held = False
            if not current.is_offline:
                self._flush(topic_partition)
        return True

    async def _make_switch_durable(
        self, current: PartitionLog, source: LogDirectory, target: LogDirectory
    ) -> None:
        """Fsync the new files of a log, then remove the old ones. If this fails, keep the old ones.

        The log may be deleted meanwhile. Its deletion removes the old files, too.
        """
        try:
            await self._sync_names(current, target)
            await self._fsync(current)
        except (KafkaError, OSError) as error:
            if not current.closed:
                log.error(
                    "the new files of %s in %s are not durable, so the old ones stay in %s until a later "
                    "fsync succeeds, or until the broker starts again: %s",
                    current.topic_partition,
                    target.path,
                    source.path,
                    error,
                )
        else:
            self._logs.moved_away(current)

    async def _sync_names(self, current: PartitionLog, target: LogDirectory) -> None:
        """Fsync the log directory `target`, so that the new folder's name is durable.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the fsync failed. As in `PartitionLog.complete_flush`, the log or
                its directory is then offline, unless the directory could not even be opened.
        """
        try:
            await _to_its_end(self._pool.run(target.env.fs.sync_directory, target.path))
        except OSError as error:
            raise current.failed(error, syncing=True) from error


class _Cut(NamedTuple):
    """The necessary removal of records from a copy: the records from `offset` on, or all records.

    If all records are removed, the empty copy begins at `offset`.
    """

    #: the first offset to remove, or where the copy starts over
    offset: Offset
    starts_over: bool


def _surplus(current: PartitionLog, future: PartitionLog) -> _Cut | None:
    """Return which records of the copy `future` must be removed; None if there are none.

    The copy must not keep records that the log `current` no longer has. The log loses records if it is
    truncated, or if its start advances.
    """
    end = future.log_end_offset
    if end < current.log_start_offset:
        start = current.start_of_first_batch()
        if start != end:
            return _Cut(start, starts_over=True)
    cut = min(_agreed_end(current, future), end)
    if cut < future.log_start_offset:
        return _Cut(current.start_of_first_batch(), starts_over=True)
    return _Cut(cut, starts_over=False) if cut < end else None


def _follow(current: PartitionLog, future: PartitionLog) -> None:
    """Advance the high watermark and the start offset of the copy `future` to the values of the log.

    The start offset is at most the copy's high watermark.
    """
    future.advance_high_watermark(current.high_watermark)
    if future.log_start_offset < current.log_start_offset:
        future.advance_log_start(min(current.log_start_offset, future.high_watermark))


def _agreed_end(current: PartitionLog, future: PartitionLog) -> int:
    """Return the offset up to which copy and log agree, by their leader epochs."""
    if future.latest_epoch < 0 or current.latest_epoch < 0:  # one of them has no records to differ in
        return current.log_end_offset
    epoch, its_end = current.end_offset_for_epoch(future.latest_epoch)
    if epoch < 0:
        epoch, its_end = current.latest_epoch, current.log_end_offset
    own_epoch, own_end = future.end_offset_for_epoch(epoch)
    if own_epoch < 0:
        return its_end
    return min(own_end, its_end) if own_epoch == epoch else own_end


async def _to_its_end(running: asyncio.Future[None]) -> None:
    """Wait for `running`, the work of a thread, even if this task is cancelled: later steps depend on it."""
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


def _joined(chunks: Sequence[Chunk]) -> bytes:
    return b"".join([bytes(chunk) for chunk in chunks])


def _read(current: PartitionLog, future: PartitionLog, max_bytes: int) -> list[Chunk]:
    offset = max(future.log_end_offset, current.log_start_offset)
    return list(current.read(offset, max_bytes, current.log_end_offset).chunks)


def _add_earlier_producers(current: PartitionLog, future: PartitionLog) -> None:
    """Give the empty copy `future` the producers whose last record is before its start, as a snapshot there.

    No record tells of these producers. So all later snapshots of the copy contain them, too.
    """
    start = future.log_end_offset
    earlier = [each for each in current.producers if each.last_offset < start]
    if earlier:
        future.files.write_snapshot(start, earlier)
        future.producers.restore(decode_snapshot(encode_snapshot(earlier)), start)


def _append(future: PartitionLog, data: bytes) -> None:
    try:
        future.append_as_follower(data)
    except KafkaError as error:
        if error.code is ErrorCode.CORRUPT_MESSAGE:
            raise _GivenUpError(f"it is damaged: {error.message}") from error
        raise
