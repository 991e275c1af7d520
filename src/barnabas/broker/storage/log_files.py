"""The files of one log: segments, producer snapshots, and which of them are not on disk yet.

`LogFiles` handles names, sizes and fsyncs. `PartitionLog` knows the meaning of the records. Every method may
raise OSError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, cast

from barnabas.base.environment.filesystem import write_file
from barnabas.base.types import Offset, TopicId
from barnabas.broker.config import TopicConfig
from barnabas.broker.storage.checkpoints import PARTITION_METADATA, encode_partition_metadata
from barnabas.broker.storage.environment import LogEnvironment
from barnabas.broker.storage.harm import TornError
from barnabas.broker.storage.open_files import LogFile
from barnabas.broker.storage.producer_snapshot import encode_snapshot
from barnabas.broker.storage.producers import Producer
from barnabas.broker.storage.sealed import SealedSegments
from barnabas.broker.storage.segment import Cut, LogSegment, file_name
from barnabas.broker.storage.segments import Segments
from barnabas.broker.storage.swap import Swap
from barnabas.broker.storage.tasks import Flush, Removal, Replacement
from barnabas.broker.storage.transaction_index import CHECKSUMS, encode_checksums

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TRANSACTION_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
DELETED = ".deleted"
#: sealed segments that one flush covers: it holds their files open, and lists them only when it ends
SEGMENTS_A_FLUSH = 64
#: an empty dict that most of the thousands of logs share; it never changes
_NOTHING: dict[Offset, LogSegment] = cast(Any, MappingProxyType({}))


class LogFiles:
    """The files in one partition's folder. Their `PartitionLog` owns this object."""

    __slots__ = (
        "_aside",
        "_is_closed",
        "_is_flushing",
        "_is_new",
        "_names_changed",
        "_topic_id",
        "_truncation_epoch",
        "_unflushed",
        "_unsynced",
        "are_checksums_due",
        "env",
        "has_checksums",
        "has_rolled",
        "has_unflushed_switch",
        "is_blank",
        "is_cut",
        "is_reported_damaged",
        "path",
        "recovery_point",
        "sealed",
        "segments",
        "snapshots",
        "swap",
    )

    def __init__(
        self,
        env: LogEnvironment,
        path: str,
        topic_id: TopicId,
        segments: Segments,
        *,
        snapshots: Iterable[Offset] = (),
        recovery_point: Offset = 0,
        is_blank: bool = False,
        is_safe: bool = False,
        sealed: SealedSegments | None = None,
    ) -> None:
        """Create the object for the existing folder `path`.

        Args:
            env: environment of the log directory.
            path: folder of the log.
            topic_id: id of the log's topic.
            segments: segments of the log.
            snapshots: offsets of the producer snapshots in the folder.
            recovery_point: offset before which everything is known to be on disk.
            is_blank: whether the folder has no file yet.
            is_safe: whether the names in the folder, and the folder's own name, are certainly on disk.
            sealed: the file that lists the sealed segments on disk; None if there is none.
        """
        self.env = env
        self.path = path
        self.segments = segments
        #: the offsets at which producer snapshots were taken
        self.snapshots: Sequence[Offset] = tuple(snapshots)
        #: everything before this offset is known to be on disk
        self.recovery_point = recovery_point
        #: the file that lists the sealed segments on disk; None until there is one
        self.sealed = sealed
        #: sealed segments that may not be on disk, with their indexes
        self._unflushed: dict[Offset, LogSegment] = _NOTHING
        #: whether the file with the checksums of transaction indexes exists, and whether it is behind
        self.has_checksums = self.are_checksums_due = False
        #: whether sealed segments wait for a flush that is not prepared yet
        self.has_rolled = False
        #: whether the log has switched to these files, and no flush up to its end has completed since
        self.has_unflushed_switch = False
        #: small files written since the last fsync
        self._unsynced: Sequence[LogFile] = ()
        #: whether names came or went since the folder was last fsynced
        self._names_changed = not is_safe
        #: whether the folder's own name may not be safe on disk
        self._is_new = not is_safe
        self._topic_id = topic_id
        #: whether the folder has no file yet
        self.is_blank = is_blank
        #: whether damage that a read found was logged
        self.is_reported_damaged = False
        self._is_flushing = False
        self._is_closed = False
        #: whether a truncation is not durable yet
        self.is_cut = False
        self._truncation_epoch = 0
        #: renamed to ``.deleted`` by an operation that then failed: the next removal deletes them, too
        self._aside: Sequence[LogFile] = ()
        #: the cleaned segment that is being put in place
        self.swap: Swap | None = None

    @property
    def truncation_epoch(self) -> int:
        """A number that each truncation increases.

        If it has changed since a task was prepared, the task may refer to removed records.
        """
        return self._truncation_epoch

    def note_new(self, *files: LogFile) -> None:
        """Note new files in the folder, so that the next flush makes their names durable."""
        self._unsynced = (*self._unsynced, *files)
        self._names_changed = True

    def note_indexes(self, segment: LogSegment) -> None:
        """Note the changed indexes of `segment`, so that the next flush makes them durable."""
        for index in (segment.offsets, segment.times, segment.aborted):
            if index.changed:
                self.note_new(index.file)
                index.changed = False

    def begin(self) -> None:
        """Prepare for the log's first write: write the file with the topic's id to the folder.

        Before its first write, a partition has only an empty folder. The folder need not be durable, because
        a start creates a missing one again.
        """
        if self.is_blank:
            self.write_topic_id()
            self.is_blank = False

    def write_topic_id(self) -> None:
        path = f"{self.path}/{PARTITION_METADATA}"
        write_file(self.env.fs, path, encode_partition_metadata(self._topic_id))
        self.note_topic_id()

    def note_topic_id(self) -> None:
        """Note the file `partition.metadata`, so that the next flush makes it durable."""
        self.note_new(LogFile(self.env.files, self.path, PARTITION_METADATA))

    def roll(self, offset: Offset, producers: Iterable[Producer], config: TopicConfig) -> LogSegment:
        """Seal the active segment and begin a new one at `offset`, the log's end. Return the active segment.

        An empty active segment stays: the new one would have the same files. After an OSError the active
        segment is still active.
        """
        old = self.segments.active
        if not old.size:
            return old
        old.seal()
        self.take_snapshot(offset, producers)
        segment = new_segment(self.env, self.path, offset, config)
        self._note_unflushed(old)
        self.has_rolled = True
        self._note_checksums(old)
        self.segments.add(segment)
        self._names_changed = True
        return segment

    def seal_again(self, index: int) -> None:
        """Seal the sealed segments from `index` on again, after recovery has rebuilt their indexes.

        This adds the last entries of the indexes, and writes them. The next flush makes them durable.
        """
        for segment in self.segments.from_index(index):
            if segment is not self.segments.active:
                segment.seal()
                self._note_unflushed(segment)
                self.has_rolled = True
                self._note_checksums(segment)

    def _note_unflushed(self, segment: LogSegment) -> None:
        if self._unflushed is _NOTHING:
            self._unflushed = {}
        self._unflushed[segment.base_offset] = segment

    def _forget_unflushed(self, base_offset: Offset) -> None:
        if self._unflushed:
            self._unflushed.pop(base_offset, None)

    def take_snapshot(self, offset: Offset, producers: Iterable[Producer]) -> None:
        """Write the producer snapshot at `offset`, the log's end, unless it exists."""
        if offset not in self.snapshots:
            self.write_snapshot(offset, producers)

    def write_snapshot(self, offset: Offset, producers: Iterable[Producer]) -> None:
        """Write the producer snapshot at `offset`, the log's end. Replace the one that exists."""
        path = self.snapshot_path(offset)
        write_file(self.env.fs, path, encode_snapshot(producers))
        if offset not in self.snapshots:
            self.snapshots = (*self.snapshots, offset)
        self.note_new(LogFile(self.env.files, path))

    def snapshot_path(self, offset: Offset) -> str:
        return self.path_of_snapshot(self.path, offset)

    @staticmethod
    def path_of_snapshot(folder: str, offset: Offset) -> str:
        """Return the path of the producer snapshot at `offset`, in the folder of a log."""
        return f"{folder}/{file_name(offset, SNAPSHOT)}"

    def drop_snapshot(self, offset: Offset) -> None:
        """Remove the producer snapshot at `offset`, if there is one."""
        for file in self._forget_snapshots(lambda taken: taken == offset):
            file.remove()

    def drop_segments_from(self, index: int) -> None:
        """Remove the segments from `index` (at least 1) on.

        Remove the last one first, so that a crash leaves no hole in the log.
        """
        while len(self.segments) > index:
            self._remove_active()

    def drop_snapshots_after(self, offset: Offset) -> None:
        for file in self._forget_snapshots(lambda taken: taken > offset):
            file.remove()

    @property
    def has_new_names(self) -> bool:
        """Whether some names of segments are perhaps not on disk yet, so that the folder needs an fsync."""
        return self._names_changed

    def remove_first_segments(self, count: int, synced: LogSegment | None = None) -> Removal:
        """Remove the oldest segments and their producer snapshots from the log.

        The files get the suffix ``.deleted``, so that a restart recognizes them. Return the task that removes
        the files. After an OSError some of the segments may be removed, the oldest first.

        Args:
            count: number of segments; at least one must remain.
            synced: the segment that was active at the last fsync of the folder. If it is not active now, or
                is unknown, this method fsyncs the folder.
        """
        # the segments that stay must not be lost where these are not
        if self._names_changed and synced is not self.segments.active:
            self.env.fs.sync_directory(self.path)
        for segment in list(self.segments)[:count]:
            self._set_aside(segment.log)  # the .log, which decides, first
            self._names_changed = True
            self.segments.remove_first(1)
            self._forget_unflushed(segment.base_offset)
            self._note_checksums(segment)
            self._set_aside(*segment.all_files()[1:])
        self._set_aside(*self._forget_snapshots(lambda offset: offset < self.segments[0].base_offset))
        return self._removal()

    def begin_swap(self, cleaned: LogSegment, replaced: Sequence[LogSegment]) -> None:
        """Begin to replace the segments `replaced` with `cleaned`: rename its files to ``.swap``.

        After the folder is fsynced, a restart completes the swap. After an OSError, call `settle_swap`.
        """
        assert self.swap is None, f"{self.path}: another segment is being put in place"
        for file in cleaned.all_files():
            file.move_to(self.env.files)
        self.swap = Swap(cleaned, replaced)
        self.swap.begin()

    def finish_swap(self) -> Removal | None:
        """Complete the swap that `begin_swap` has begun: the cleaned segment replaces the old segments.

        Return the task that removes the files of the old segments; None if the swap was cancelled. After an
        OSError, call this method again. Until it succeeds, reads use the old segments, also if their files
        are already renamed.
        """
        swap = self.swap
        if swap is None or swap.is_cancelled:
            return None
        index = self.segments.index_of_run(swap.replaced)
        assert index is not None
        swap.is_decided = True
        self._set_aside(*(file for segment in swap.replaced for file in segment.all_files()))
        swap.finish()
        self.swap = None
        self.segments.replace(index, len(swap.replaced), swap.cleaned)
        if self.sealed is not None:
            self.sealed.replace(self.segments, index)
        for segment in swap.replaced:
            self._forget_unflushed(segment.base_offset)
        self._note_checksums(swap.cleaned, *swap.replaced)
        merged = {segment.base_offset for segment in swap.replaced[1:]}
        self._aside = (*self._aside, *self._forget_snapshots(merged.__contains__))
        return self._removal()

    def cancel_swap(self) -> None:
        """Cancel the swap that has begun, if any, because the log's end is about to change.

        If the swap has already replaced segments on disk, complete it. After an OSError, call this method
        again.
        """
        if self.swap is not None:
            removal = self.settle_swap()
            if removal is not None:
                self._aside = (*self._aside, *removal.files)
            self.env.fs.sync_directory(self.path)
            self.forget_cancelled_swap()

    def settle_swap(self) -> Removal | None:
        """Complete the swap if it has begun to rename the old files. If it has not, cancel it.

        Return the task that removes the replaced files; None if there are none. In both cases, the caller
        must fsync the folder, and after that call `forget_cancelled_swap`.
        """
        if self.swap is None:
            return None
        if self.swap.is_decided:
            return self.finish_swap()
        self.swap.cancel()
        return None

    def forget_cancelled_swap(self) -> None:
        """Allow the next swap to begin, because the cancellation of the swap is on disk."""
        if self.swap is not None and self.swap.is_cancelled:
            self.swap = None

    def start_of_batch(self, offset: Offset) -> Offset:
        """Return the base offset of the batch that contains `offset`; `offset` itself if there is none."""
        segment = self.segments[self.segments.index_of(offset)]
        position = segment.position_of(offset)
        return (
            min(offset, next(segment.headers(position))[1].base_offset) if position < segment.size else offset
        )

    def lower_recovery_point(self, offset: Offset) -> bool:
        """Lower the recovery point to `offset` before a truncation. Return whether it was higher.

        If it was higher, the caller must also call `SealedSegments.sync`.
        """
        if offset >= self.recovery_point:
            return False
        if self.sealed is not None:
            self.sealed.cut(offset)
        self.recovery_point = offset
        self._truncation_epoch += 1  # a flush that is under way must not raise it again
        return True

    def truncate(self, cut: Cut, *, sync: bool = True) -> None:
        """Remove the batches after `cut`, the result of a `Truncation`.

        The last segment goes first, so that a crash leaves no hole. Without `sync`, the next flush makes the
        truncation durable, and removes the files of whole segments, which may be large.
        """
        self.cancel_swap()
        self._truncation_epoch += 1
        self.are_checksums_due = self.has_checksums
        while self.segments.active.base_offset > cut.end:
            segment = self.segments.remove_last()
            self._forget_unflushed(segment.base_offset)
            self._set_aside(*segment.all_files())  # the .log, which decides, first
        self._forget_unflushed(self.segments.active.base_offset)
        self.segments.active.truncate(cut)
        if sync:  # otherwise a crash could bring back truncated batches after the next ones
            self.segments.active.cut_surplus()
            self.segments.active.log.sync()
        self.note_indexes(self.segments.active)
        self.recovery_point = min(self.recovery_point, cut.end)
        self.drop_snapshots_after(cut.end)
        self._note_cut(sync)
        if sync:
            self._removal().run()

    def _note_cut(self, is_synced: bool) -> None:
        if is_synced:
            self.env.fs.sync_directory(self.path)
        else:
            self.is_cut = self._names_changed = True

    def start_over(self, offset: Offset, config: TopicConfig, *, sync: bool = True) -> None:
        """Remove all files. The log continues empty at `offset`. Call `begin` first.

        Without `sync`, the next flush makes the change durable.
        """
        self.cancel_swap()
        self._truncation_epoch += 1
        self.are_checksums_due = self.has_checksums
        while len(self.segments) > 1:
            self._set_aside(*self.segments.remove_last().all_files())
        self._set_aside(*self.segments.active.all_files())
        for file in self._forget_snapshots(lambda taken: True):
            file.remove()
        self._unflushed = _NOTHING
        self.segments = Segments([new_segment(self.env, self.path, offset, config)])
        # Until the folder is fsynced, a crash may bring back the old files. So the recovery point must not be
        # after them: recovery would check neither these files nor the hole between them and `offset`.
        self.recovery_point = offset if sync else min(self.recovery_point, offset)
        self._note_cut(sync)
        if sync:
            self._removal().run()

    def prepare_flush(self, log_end_offset: Offset, replacements: Sequence[Replacement]) -> Flush | None:
        """Return a task that makes the log durable up to its end; None if everything is durable already.

        If many sealed segments are not durable, the task is for the first of them (`Flush.is_partial`).
        `replacements` are small files of the log that have changed.
        """
        assert not self._is_flushing, f"{self.path} is being flushed already"
        has_checksums = self.are_checksums_due
        if has_checksums:
            replacements = [*replacements, self._checksums()]
        if self.is_blank or not (
            self._unflushed
            or self._unsynced
            or self.is_cut
            or self._names_changed
            or replacements
            or log_end_offset > self.recovery_point
        ):
            self.has_unflushed_switch = False
            return None
        active = self.segments.active
        active.cut_surplus()
        sealed = list(islice(self._unflushed.values(), SEGMENTS_A_FLUSH))
        files = [file for segment in sealed for file in segment.kept_files()]
        is_partial = len(sealed) < len(self._unflushed)
        if is_partial:
            end = self.segments[self.segments.index_of(sealed[-1].base_offset) + 1].base_offset
            small_files = [file for file in self._unsynced if _offset_of_snapshot(file) <= end]
            left = [file for file in self._unsynced if _offset_of_snapshot(file) > end]
        else:
            end = log_end_offset
            small_files, left = [*self._unsynced], []
            if active.size:
                files.append(active.log)
            else:
                small_files.append(active.log)
        small_files = _pin(files, small_files)
        files += small_files
        directories = [self.path] if self._names_changed else []
        if self._is_new:
            directories.append(self.env.path)
        flush = Flush(
            self.env.fs,
            end,
            self._truncation_epoch,
            files,
            small_files,
            replacements,
            directories,
            [segment.base_offset for segment in sealed],
            self._removal() if self._aside and self.swap is None and not is_partial else None,
            is_partial=is_partial,
        )
        self._unsynced = left
        self._names_changed = self._is_new = False
        self.has_rolled = is_partial
        self.is_cut &= is_partial
        if has_checksums:
            self.are_checksums_due = False
            self.has_checksums = True
        self._is_flushing = True
        return flush

    def complete_flush(self, flush: Flush) -> None:
        """Record the result of a flush. If it failed, raise its error: the next flush repeats all of it."""
        self._is_flushing = False
        for file in flush.files:
            file.unpin()
        for file in flush.small_files:
            file.close()
        if flush.error is not None:
            self._unsynced = (*self._unsynced, *flush.small_files)
            if flush.removal is not None:
                self._aside = (*self._aside, *flush.removal.files)
            self.is_cut = True  # perhaps
            self._names_changed |= self.path in flush.directories
            self._is_new |= self.env.path in flush.directories
            self.has_rolled |= bool(flush.sealed)
            self.are_checksums_due |= self.has_checksums and bool(flush.replacements)
            raise flush.error
        self.has_unflushed_switch &= flush.is_partial
        if flush.truncation_epoch == self._truncation_epoch:
            self.recovery_point = max(self.recovery_point, flush.offset)
            self._note_sealed(flush.sealed)
            for base_offset in flush.sealed:
                self._forget_unflushed(base_offset)

    def _note_sealed(self, base_offsets: Sequence[Offset]) -> None:
        """Add durable sealed segments to the list on disk, and close their files. A read opens them again."""
        indexes = [self.segments.index_of(each) for each in base_offsets if each in self._unflushed]
        if not indexes or self._is_closed:
            return
        if self.sealed is None:
            self.sealed = SealedSegments(self.env.files, self.path)
        self.sealed.append(self.segments, indexes)
        for index in indexes:
            self.segments[index].close()

    def seal_active(self) -> None:
        """Add the last entries of the active segment's indexes, and write the indexes to their files.

        After a clean stop, the next start then need not read the segment. The next flush makes them durable.
        """
        active = self.segments.active
        if active.size:
            active.seal()
        self._note_checksums(active)
        self.note_indexes(active)

    def _checksums(self) -> Replacement:
        """Return a task that writes the checksums of the transaction indexes."""
        found = {
            segment.base_offset: segment.aborted.checksum()
            for segment in self.segments
            if segment.aborted.stored_bytes
        }
        return Replacement(self.env.fs, f"{self.path}/{CHECKSUMS}", encode_checksums(found))

    @property
    def is_flushing(self) -> bool:
        """Whether a task from `prepare_flush` has not been completed yet."""
        return self._is_flushing

    def renamed(self, path: str) -> None:
        """Change the paths of all files, after a rename of the folder to `path`.

        The next flush makes the rename durable.
        """
        for file in (*self._all(), *self._aside):
            file.folder_renamed(self.path, path)
        self.path = path
        self._names_changed = self._is_new = True

    def supersede(self, earlier: LogFiles) -> None:
        """Note that a log has switched from the files `earlier` to these files.

        `truncation_epoch` gets a new number. A task that was prepared for `earlier` has the old number. So
        the log recognizes it as outdated.
        """
        self.has_unflushed_switch = True
        self._truncation_epoch = max(self._truncation_epoch, earlier.truncation_epoch) + 1

    def move_to(self, env: LogEnvironment) -> None:
        """Close every file. From now on, open files belong to `env`."""
        self._close_files()
        self.env = env
        for file in self._all():
            file.move_to(env.files)

    def close(self) -> None:
        """Close every file. Write no more to the list of sealed segments: another log may get the folder."""
        self._close_files()
        self.sealed = None
        self._is_closed = True

    def _close_files(self) -> None:
        for file in self._all():
            file.close()

    def _all(self) -> list[LogFile]:
        files = [file for segment in self.segments for file in segment.all_files()]
        return (
            [*files, *self._unsynced] if self.sealed is None else [*files, *self._unsynced, self.sealed.file]
        )

    def _note_checksums(self, *changed: LogSegment) -> None:
        """Make the next flush write the checksums, if one of the changed segments has a transaction index."""
        if any(len(segment.aborted) for segment in changed):
            self.are_checksums_due = True

    def _remove_active(self) -> None:
        segment = self.segments.remove_last()
        self._forget_unflushed(segment.base_offset)
        segment.remove()

    def _set_aside(self, *files: LogFile) -> None:
        """Add the suffix ``.deleted`` to the names of files, and note them for the next removal.

        Skip files that have the suffix from an earlier attempt.
        """
        for file in files:
            if not file.path.endswith(DELETED):
                file.close()
                file.rename(file.path + DELETED)
                self._aside = (*self._aside, file)

    def _removal(self) -> Removal:
        files, self._aside = self._aside, ()
        return Removal(files)

    def _forget_snapshots(self, which: Callable[[Offset], bool]) -> list[LogFile]:
        gone = [offset for offset in self.snapshots if which(offset)]
        self.snapshots = tuple(offset for offset in self.snapshots if offset not in gone)
        return [LogFile(self.env.files, self.snapshot_path(offset)) for offset in sorted(gone, reverse=True)]


def _offset_of_snapshot(file: LogFile) -> Offset:
    """Return the offset of a producer snapshot; -1 if `file` is another small file."""
    name = file.path.rpartition("/")[2]
    return int(name.removesuffix(SNAPSHOT)) if name.endswith(SNAPSHOT) else -1


def _pin(files: list[LogFile], others: list[LogFile]) -> list[LogFile]:
    """Pin all of `files`, or raise and pin none. Of `others`, pin those that exist, and return them."""
    pinned: list[LogFile] = []
    try:
        for file in [*files, *others]:
            try:
                file.pin()
            except FileNotFoundError:
                if len(pinned) < len(files):
                    raise
            else:
                pinned.append(file)
    except BaseException:
        for file in pinned:
            file.unpin()
        raise
    return pinned[len(files) :]


def empty_segment(env: LogEnvironment, directory: str, offset: Offset, config: TopicConfig) -> LogSegment:
    """Return a new segment at `offset` for the log in the folder `directory`.

    This call does not touch the disk: the first write to the segment creates its file.
    """
    jitter = env.random.randrange(config.segment_jitter_ms) if config.segment_jitter_ms else 0
    return LogSegment(env.files, directory, offset, now_ms=env.clock.now_ms(), roll_jitter_ms=jitter)


def new_segment(env: LogEnvironment, directory: str, offset: Offset, config: TopicConfig) -> LogSegment:
    """Create an empty segment file at `offset`, and return the segment.

    After a restart, the name of this file shows where the log ends.

    Raises:
        OSError: the file could not be created. If an incomplete file could not be removed either, the error
            is a TornError.
    """
    segment = empty_segment(env, directory, offset, config)
    try:
        segment.log.truncate(0)
    except OSError:
        try:
            segment.log.remove()
        except OSError as error:  # at a restart the log would end where this file begins
            raise TornError(f"{segment.log.path} cannot be taken away again", error) from error
        raise
    return segment
