"""The maintenance of a log: rolling, flushing, retention, truncation, closing.

Owned by one thread, the event loop's. It hands slow work (fsync, deleting files) out as a task
(`barnabas.broker.storage.tasks`) that any thread may run.

Always: log start offset <= last stable offset <= high watermark <= log end offset.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Protocol

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import Offset, TopicId, TopicPartition
from barnabas.broker.config import TopicConfig
from barnabas.broker.storage.environment import LogEnvironment
from barnabas.broker.storage.epochs import FILE_NAME as EPOCH_FILE
from barnabas.broker.storage.epochs import LeaderEpochs
from barnabas.broker.storage.harm import Harm, TornError, harm_of
from barnabas.broker.storage.log_files import LogFiles
from barnabas.broker.storage.producers import Producers
from barnabas.broker.storage.retention import expired_segments
from barnabas.broker.storage.segment import LogSegment
from barnabas.broker.storage.tasks import Flush, Removal, Replacement
from barnabas.broker.storage.truncation import Remainder, Truncation

logger = logging.getLogger(__name__)


class BoundsListener(Protocol):
    """A listener for changes of a log's bounds, except those by appends."""

    def bounds_moved(self) -> None:
        """The log's start has moved, or its end has moved back."""


class LogUpkeep:
    """The state of one partition's log, and everything but its traffic."""

    __slots__ = (
        "_env",
        "closed",
        "config",
        "epochs",
        "failure",
        "files",
        "high_watermark",
        "is_held",
        "listener",
        "log_end_offset",
        "log_start_offset",
        "producers",
        "stored_start",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: TopicConfig,
        files: LogFiles,
        *,
        log_start_offset: Offset,
        log_end_offset: Offset,
        epochs: LeaderEpochs,
        producers: Producers,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        #: the topic's settings; a new value takes effect at once
        self.config = config
        self.files = files
        self.log_start_offset = log_start_offset
        #: where the log would start after a crash, while it starts later in memory alone; None: at its start
        self.stored_start: Offset | None = None
        #: only the package `replication` advances it
        self.high_watermark = log_start_offset
        self.log_end_offset = log_end_offset
        self.epochs = epochs
        self.producers = producers
        self.listener: BoundsListener | None = None
        self.closed = False
        #: whether no fsync may begin: the log's files are about to be replaced
        self.is_held = False
        #: why the log takes no more writes until the next start, None while it does
        self.failure: Exception | None = None
        self._env = files.env

    def __repr__(self) -> str:
        return f"<PartitionLog {self.topic_partition} {self.log_start_offset}..{self.log_end_offset}>"

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.files.segments)

    @property
    def is_offline(self) -> bool:
        """Whether the log takes no more writes until the next start."""
        return self.closed or self.failure is not None or self._env.failure is not None

    @property
    def recovery_point(self) -> Offset:
        """Everything before this offset is known to be on disk."""
        return self.files.recovery_point

    @property
    def has_rolled(self) -> bool:
        """Whether a segment was sealed since the last flush: the time for one that bounds a recovery."""
        return self.files.has_rolled

    def advance_high_watermark(self, offset: Offset) -> bool:
        """Move the high watermark forward to `offset`, at most to the log's end; return whether it moved."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.producers.committed(offset)
        return True

    def roll(self) -> LogSegment:
        """Seal the active segment and begin a new one at the log's end.

        Raises:
            OSError: the caller's business, as it may be in the middle of something.
        """
        return self.files.roll(self.log_end_offset, self.producers, self.config)

    def check_log_start(self, offset: Offset) -> None:
        """Whether `advance_log_start` would be allowed.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE, `offset` lies beyond the high watermark; KAFKA_STORAGE_ERROR, the
                log is offline.
        """
        self._check_usable()
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition} can start at its high watermark {self.high_watermark} at the "
                f"latest, not at {offset}",
            )

    def advance_log_start(self, offset: Offset) -> bool:
        """Hide records before `offset` from readers (DeleteRecords); return whether anything changed.

        Raises:
            KafkaError: as `check_log_start`.
        """
        self.check_log_start(offset)
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        self._bounds_moved()
        return True

    def prepare_deletion(self, now_ms: int) -> LogSegment | None:
        """The active segment, whose name must be on disk before `delete_old_segments`: fsync the folder.

        None when there is nothing to delete, or the disk knows all names.

        Raises:
            KafkaError: as `delete_old_segments`.
        """
        if not self._old_segments(now_ms) or not self.files.has_new_names:
            return None
        return self.files.segments.active

    def delete_old_segments(self, now_ms: int, synced: LogSegment | None = None) -> Removal | None:
        """Take out the segments that retention or the log's start has left behind.

        Their files are renamed to ``.deleted``; run the result when `file.delete.delay.ms` has passed.

        Args:
            now_ms: the time.
            synced: as `prepare_deletion` has returned it, when the folder was fsynced since; else that is
                done here.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, it could not be done, or only for the oldest of them.
        """
        count = self._old_segments(now_ms)
        if not count:
            return None
        oldest = self.files.segments[0].base_offset
        try:
            return self.files.take_out_first(count, synced)
        except OSError as error:
            raise self._failed(error) from error
        finally:
            start = self.files.segments[0].base_offset
            if start > oldest:
                logger.info("%s: dropping offsets %d to %d", self.topic_partition, oldest, start - 1)
            if start > self.log_start_offset:
                self.log_start_offset = start
                self.epochs.truncate_from_start(start)
                self._bounds_moved()

    def _old_segments(self, now_ms: int) -> int:
        """Return the number of expired segments. None of them is the active one, or the log has rolled."""
        self._check_usable()
        if self.files.swap is not None:
            return 0  # the next look will do: the cleaner completes it
        try:
            count = expired_segments(
                self.files.segments,
                self.config,
                log_start_offset=self.log_start_offset,
                high_watermark=self.high_watermark,
                log_end_offset=self.log_end_offset,
                now_ms=now_ms,
            )
        except OSError as error:  # the age of a segment is read from its index
            raise self._failed(error) from error
        if count and count == len(self.files.segments):
            try:
                self.roll()
            except OSError as error:
                failed = self._failed(error)
                if count == 1 or harm_of(error) is not Harm.REQUEST:
                    raise failed from error
                count -= 1  # on a full disk the others are worth the more
        return count

    def roll_overdue(self, now_ms: int) -> bool:
        """Seal an active segment that is due by `max.compaction.lag.ms`; return whether it did.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the log directory is offline.
        """
        self._check_usable()
        first = self.files.segments.active.first_timestamp
        if not 0 < first < now_ms - self.config.max_compaction_lag_ms:
            return False
        try:
            self.roll()
        except OSError as error:
            raise self._failed(error) from error
        return True

    def begin_swap(self, cleaned: LogSegment, replaced: Sequence[LogSegment]) -> None:
        """Make a cleaned segment replace others: fsync the folder, then `finish_swap`.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, it could not be done, `settle_swap`; UNKNOWN_TOPIC_OR_PARTITION,
                the log is closed.
        """
        self._check_usable()
        try:
            self.files.begin_swap(cleaned, replaced)
        except OSError as error:
            raise self._failed(error) from error

    def finish_swap(self) -> Removal | None:
        """Put the cleaned segment in place; None when a truncation has overtaken it.

        Fsync the folder before the next swap; run the result when `file.delete.delay.ms` has passed.

        Raises:
            KafkaError: as `begin_swap`; while the log is in use, it is to be called again.
        """
        self._check_usable()
        try:
            return self.files.finish_swap()
        except OSError as error:
            raise self._failed(error) from error

    def settle_swap(self) -> Removal | None:
        """Complete or cancel a swap that an error has interrupted; return a task like `finish_swap`.

        Fsync the folder, then call `LogFiles.forget_cancelled_swap`.

        Raises:
            KafkaError: as `finish_swap`.
        """
        self._check_usable()
        try:
            return self.files.settle_swap()
        except OSError as error:
            raise self._failed(error) from error

    def begin_truncation(self, offset: Offset) -> Truncation | None:
        """Return a task that computes, in any thread, the result of a truncation: then `prepare_truncation`.

        None if there is nothing to compute: the truncation removes nothing of the log, or all of it.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the log directory is offline.
        """
        self._check_usable()
        if not self.files.segments[0].base_offset <= offset < self.log_end_offset:
            return None
        return Truncation(self.files, offset)

    def prepare_truncation(self, offset: Offset, truncation: Truncation | None = None) -> bool:
        """Prepare a truncation to `offset`; return whether the recovery point has to be on disk before it.

        It is lower now. With the old one on disk, a start after a crash would take what is written after
        `offset` for flushed.

        Args:
            offset: as for `truncate_to`.
            truncation: as `begin_truncation` has made it, after its run.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the log directory is offline; CORRUPT_MESSAGE, as `truncate_to`.
        """
        found = self._found(truncation, offset)
        # a batch goes as a whole: what is written next begins where it began
        end = offset if found is None else self._remainder(found).cut.end
        try:
            is_lower = self.files.lower_recovery_point(end)
        except OSError as error:
            raise self._failed(error) from error
        if found is not None:
            found.tail = self.files.tail
        return is_lower

    def sync_sealed(self) -> None:
        """Tell the disk which sealed segments the truncation will take. In any thread.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the fsync failed, and the log is offline.
        """
        try:
            if self.files.sealed is not None:
                self.files.sealed.sync()
        except OSError as error:
            raise self._failed(error, syncing=True) from error

    def _found(self, truncation: Truncation | None, offset: Offset) -> Truncation | None:
        """Return a truncation that has run, and fits the log as it is now: `truncation` if it does."""
        if truncation is not None and truncation.offset == offset and truncation.fits(self.files):
            self._check_usable()
            return truncation
        truncation = self.begin_truncation(offset)
        if truncation is not None:
            truncation.run()
        return truncation

    def _remainder(self, truncation: Truncation) -> Remainder:
        try:
            return truncation.remainder
        except OSError as error:
            raise self._failed(error) from error

    def truncate_to(self, offset: Offset, *, sync: bool = True, truncation: Truncation | None = None) -> bool:
        """Cut the log off before `offset`, as a follower does to match its leader; return whether it did.

        A batch that holds `offset` goes as a whole. Without `sync`, the next flush tells the disk; until
        then nothing may be appended.

        Args:
            offset: the first that goes.
            sync: tell the disk here and now.
            truncation: as for `prepare_truncation`. Without it, or when the log has changed since, batches
                are read here.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the log directory is offline; CORRUPT_MESSAGE, what would be left
                is damaged, and nothing was cut off.
        """
        if offset >= self.log_end_offset:
            # a leader notes the epoch in which it began to lead, and may have written nothing in it
            self.epochs.truncate_from_end(offset)
            return False
        if offset < self.files.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset, sync=sync)
            return True
        found = self._found(truncation, offset)
        assert found is not None
        cut, producers = self._remainder(found)
        try:
            self._announce_truncation(cut.end)  # a batch goes as a whole
            found.drop_damaged_snapshots()
        except OSError as error:
            raise self._failed(error) from error
        try:
            self.files.truncate(cut, sync=sync)
            self.producers = producers
            self._now_ends_at(cut.end)
        except OSError as error:
            raise self._half_truncated(error) from error
        return True

    def truncate_fully_and_start_at(self, offset: Offset, *, sync: bool = True) -> None:
        """Drop everything; the log is empty and goes on at `offset`. `sync` as for `truncate_to`.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the log directory is offline.
        """
        try:
            self._announce_truncation(min(offset, self.log_start_offset))
        except OSError as error:
            raise self._failed(error) from error
        try:
            self.files.start_over(offset, self.config, sync=sync)
            self.log_start_offset = self.high_watermark = offset
            self.epochs.truncate_from_end(0)
            self.producers = _no_producers(offset)
            self._now_ends_at(offset)
        except OSError as error:
            raise self._half_truncated(error) from error

    def _announce_truncation(self, offset: Offset) -> None:
        self._check_usable()
        if offset < self.recovery_point:
            if self.files.sealed is not None:
                self.files.sealed.cut(offset)
                self.sync_sealed()
            if self._env.before_truncation is not None:
                self._env.before_truncation(self.topic_partition, offset)

    def _now_ends_at(self, end: Offset) -> None:
        logger.info("%s: truncated, it ends at %d", self.topic_partition, end)
        self.log_end_offset = end
        self.high_watermark = min(self.high_watermark, end)
        self.log_start_offset = min(self.log_start_offset, end)
        self.epochs.truncate_from_end(end)
        self.producers.committed(self.high_watermark)
        self._bounds_moved()

    def _bounds_moved(self) -> None:
        if self.listener is not None:
            self.listener.bounds_moved()

    def cut_in_parts(self) -> Iterator[None]:
        """Shorten a file that a truncation has left too long, a part a step; other things may come between.

        To be done before `prepare_flush`, which does the rest at once: a tenth of a second for some hundred
        megabytes.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the disk failed or the log directory is offline.
        """
        while True:
            self._check_usable()
            try:
                is_more = self.files.segments.active.cut_some()
            except OSError as error:
                raise self._failed(error) from error
            if not is_more:
                return
            yield

    def prepare_flush(self) -> Flush | None:
        """Return a task that makes the log durable up to its end: run it in any thread, then
        `complete_flush`.

        None if everything is durable already. Run one at a time: a second one before the first is completed
        would promise work that the first has yet to do.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the log directory is offline.
        """
        self._check_usable()
        replacements = []
        if self.epochs.changed:
            path = f"{self.files.path}/{EPOCH_FILE}"
            replacements.append(Replacement(self._env.fs, path, self.epochs.encode()))
        has_checksums = self.files.are_checksums_due
        try:
            if has_checksums:
                replacements.append(self.files.checksums())
            flush = self.files.prepare_flush(self.log_end_offset, replacements)
        except OSError as error:
            raise self._failed(error) from error
        if flush is not None:
            self.epochs.changed = False
            if has_checksums:
                self.files.are_checksums_due = False
                self.files.has_checksums = True
        return flush

    def complete_flush(self, flush: Flush) -> None:
        """Move the recovery point on after a flush that has run.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, it failed. If an fsync did, the log is offline at least, for what
                could not be written may be lost though a second fsync says nothing; else all of it is due
                again.
        """
        try:
            self.files.complete_flush(flush)
        except Exception as error:
            self.epochs.changed |= bool(flush.replacements)
            self.files.are_checksums_due |= self.files.has_checksums and bool(flush.replacements)
            raise self._failed(error, syncing=flush.is_lost) from error

    def flush(self) -> None:
        """Make the log durable up to its end, here and now.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, it failed; the log directory is offline.
        """
        flush = self.prepare_flush()
        if flush is not None:
            flush.run()
            self.complete_flush(flush)

    def prepare_close(self) -> Flush | None:
        """Write all files that a quick start needs; return the task that makes them durable.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the log directory is offline.
        """
        self._check_usable()
        try:
            if self.log_end_offset > max(self.files.snapshots, default=0):
                self.files.take_snapshot(self.log_end_offset, self.producers)
            self.files.seal_active()
        except OSError as error:
            raise self._failed(error) from error
        return self.prepare_flush()

    def close(self) -> None:
        """Flush everything that a quick start needs, and close the files.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the log directory is offline; the files are closed.
        """
        try:
            flush = self.prepare_close()
            if flush is not None:
                flush.run()
                self.complete_flush(flush)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the files as they are: the log was deleted, or a crash is played."""
        self.closed = True
        self.files.close()

    def take_files(self, copy: LogUpkeep) -> LogFiles:
        """Switch to the files of a copy that has the same batches; return the files used until now.

        The log writes state that its batches do not contain (producers whose batches are gone, leader epochs
        without any) beside the new files.

        Raises:
            OSError: nothing has changed.
        """
        copy.files.take_snapshot(self.log_end_offset, self.producers)
        before, self.files = self.files, copy.files
        self.files.succeed(before)
        self._env = self.files.env
        self.epochs.changed = True
        return before

    def move_to(self, env: LogEnvironment) -> None:
        """Give a log that was loaded in a thread over to the owner of `env`; its files are closed."""
        self._env = env
        self.files.move_to(env)

    def _check_usable(self) -> None:
        if self.closed:
            raise self._gone()
        if self._env.failure is not None:
            raise self._env.offline()
        if self.failure is not None:
            raise self._offline()

    def _failed(self, error: Exception, *, syncing: bool = False) -> KafkaError:
        """Handle `error`, met with one of the log's files; return the KafkaError for the caller to raise."""
        if self.closed:
            return self._gone()
        if isinstance(error, OSError) and harm_of(error, syncing=syncing) is not Harm.LOG:
            return self._env.judge(self.topic_partition, error)
        return self._fail(error)

    def _fail(self, error: Exception) -> KafkaError:
        """Take the log offline until the next start."""
        if self.failure is None:
            self.failure = error
            logger.error(
                "%s in %s is offline, it takes no more writes until the next start: %r",
                self.topic_partition,
                self._env.path,
                error,
            )
        return self._offline()

    def _half_truncated(self, error: OSError) -> KafkaError:
        if harm_of(error) is Harm.DIRECTORY:
            failed = self._env.fail(error)
        else:
            failed = self._fail(TornError("half truncated", error))
        self.abandon()  # what is on disk only the next start can tell
        return failed

    def _offline(self) -> KafkaError:
        return KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {self.topic_partition} is offline: {self.failure}"
        )

    def _gone(self) -> KafkaError:
        if self._env.failure is not None:
            return self._env.offline()
        if self.failure is not None:
            return self._offline()
        return KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the log of {self.topic_partition} is closed"
        )


def _no_producers(end: Offset) -> Producers:
    producers = Producers()
    producers.end_offset = end
    return producers
