"""Opens a partition's log from its folder, and recovers it after a crash.

After a clean stop recovery trusts the files if their ends have not changed. After a crash it reads every
segment that may have records beyond the recovery point, except those that a flush has listed as sealed
(`barnabas.broker.storage.sealed`). It checks each batch's CRC and position, rebuilds the indexes, and cuts
off everything after the first damage, with a log line. If that suffix has whole batches, a file beside the
segment keeps it.

Records before the recovery point were durable. If some of them are damaged or gone, the log is not opened: an
operator must decide on the remaining records (`barnabas log repair`).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence

from barnabas.base.environment.filesystem import Entry
from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import NO_PRODUCER_ID, Offset, TopicId, TopicPartition
from barnabas.broker.config import TopicConfig
from barnabas.broker.storage import producer_recovery
from barnabas.broker.storage.checkpoints import MAX_OFFSET, PARTITION_METADATA, SegmentSizes
from barnabas.broker.storage.damage import (
    check_sealed,
    keep_cut_off,
    keep_damaged,
    keep_segment,
    lost_records,
    read_small_file,
)
from barnabas.broker.storage.environment import LogEnvironment
from barnabas.broker.storage.epochs import FILE_NAME as EPOCH_FILE
from barnabas.broker.storage.epochs import LeaderEpochs
from barnabas.broker.storage.incomplete import FILE_NAME as INCOMPLETE
from barnabas.broker.storage.index import Index, OffsetIndex, TimeIndex
from barnabas.broker.storage.log import PartitionLog
from barnabas.broker.storage.log_files import (
    DELETED,
    INDEX,
    LOG,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    LogFiles,
    empty_segment,
    new_segment,
)
from barnabas.broker.storage.open_files import LogFile
from barnabas.broker.storage.producers import Producers
from barnabas.broker.storage.sealed import FILE_NAME as SEALED
from barnabas.broker.storage.sealed import SealedSegment, SealedSegments, decode, is_listed
from barnabas.broker.storage.segment import MAX_RELATIVE_OFFSET, LogSegment, TimestampedOffset
from barnabas.broker.storage.segments import Segments
from barnabas.broker.storage.swap import complete_swaps
from barnabas.broker.storage.transaction_recovery import check_transaction_indexes
from barnabas.kafka.records.batch import HEADER_SIZE, BatchHeader, check_crc, parse_header

logger = logging.getLogger(__name__)

_READ_BYTES = 1024 * 1024
_OF_SEGMENTS = frozenset((LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT))


def new_log(
    env: LogEnvironment, path: str, topic_partition: TopicPartition, topic_id: TopicId, config: TopicConfig
) -> PartitionLog:
    """Return an empty log in the empty folder `path`; its files are made when there is something to write."""
    segment = empty_segment(env, path, 0, config)
    return PartitionLog(
        topic_partition,
        topic_id,
        config,
        LogFiles(env, path, topic_id, Segments([segment]), is_blank=True),
        log_start_offset=0,
        log_end_offset=0,
        epochs=LeaderEpochs(),
        producers=Producers(),
    )


def load_log(
    env: LogEnvironment,
    path: str,
    topic_partition: TopicPartition,
    topic_id: TopicId,
    config: TopicConfig,
    *,
    was_clean: bool,
    recovery_point: Offset | None = 0,
    log_start_offset: Offset = 0,
    sizes: Mapping[Offset, SegmentSizes] | None = None,
    cleaned_to: Offset = 0,
) -> PartitionLog:
    """Open the log in the existing folder `path`, with the checkpoints' recovery point and start.

    May take long after a crash. Safe in a thread of its own when `env` is.

    Args:
        recovery_point: None when it is not known.
        sizes: each segment's sizes by its base offset as of a clean stop, when they are known.
        cleaned_to: compaction may have left holes up to there.

    Raises:
        OSError: the disk failed.
        KafkaError: CORRUPT_MESSAGE, records that had been safe on disk are damaged or gone.
    """
    listed = env.fs.entries(path)
    deleted = _deleted_segments(env, path, listed)
    entries = _cleared(env, path, listed)
    if not entries and not log_start_offset and not recovery_point:
        return new_log(env, path, topic_partition, topic_id, config)
    if was_clean and recovery_point is None:
        logger.warning("%s: no recovery point is known: checking the whole log", topic_partition)
        was_clean = False
    is_known = recovery_point is not None
    recovery_point = recovery_point or 0
    if not any(name.endswith(LOG) for name in entries) and recovery_point > log_start_offset:
        raise lost_records(topic_partition, log_start_offset, recovery_point, "no segment is left")
    is_marked = INCOMPLETE in entries
    if not any(name.endswith(LOG) for name in entries) and PARTITION_METADATA in entries and not is_marked:
        logger.warning(
            "%s has no segment, though it was written to or was about to be: records of it may be gone",
            topic_partition,
        )
    segments = _open_segments(env, path, entries, config, log_start_offset)
    sealed = _read_sealed(env, path, entries, is_needed=is_known and not was_clean)
    recovery_point = _flushed_to(segments, recovery_point, sealed)
    snapshots = [int(name[: -len(SNAPSHOT)]) for name in entries if name.endswith(SNAPSHOT)]
    files = LogFiles(
        env,
        path,
        topic_id,
        segments,
        snapshots=snapshots,
        recovery_point=recovery_point,
        is_safe=was_clean,
        sealed=SealedSegments(env.files, path, entries[SEALED].size) if SEALED in entries else None,
    )
    epochs = _load_epochs(env, path, segments, read_through=not was_clean and not recovery_point)
    first = segments[0].base_offset
    known_start = max(epochs.entries[0].start_offset if epochs.entries else 0, log_start_offset)
    has_holes = cleaned_to > 0 or config.is_compacted
    removed_to = _removed_up_to(deleted, known_start, first, has_holes=has_holes)
    if epochs.entries and removed_to < first:
        logger.warning(
            "%s: offsets %d to %d are not there any more, and nothing says that retention has removed them",
            topic_partition,
            removed_to,
            first - 1,
        )
    known = sizes or {base_offset: each.sizes for base_offset, each in sealed.items()}
    if was_clean:
        try:
            _ensure_indexes(files, segments.active, entries, config, known)
            problem = _problem_at_the_end(segments.active, recovery_point)
        except KafkaError as error:
            problem = error.message
        if problem is not None:
            logger.warning("%s: %s: checking the whole log as after a crash", topic_partition, problem)
            was_clean = False
    suspect = len(segments) - 1 if was_clean else _first_suspect(segments, recovery_point, sealed)
    is_rebuilt = False
    for place in range(suspect):
        try:
            is_rebuilt |= _ensure_indexes(files, segments[place], entries, config, known)
        except KafkaError as error:
            base_offset, follower = segments[place].base_offset, segments[place + 1].base_offset
            raise lost_records(topic_partition, base_offset, follower, error.message) from error
    check_sealed(topic_partition, segments, suspect, sizes, sealed, has_holes=has_holes)
    trusted = segments.from_place(0) if was_clean else segments.from_place(0)[:suspect]
    check_transaction_indexes(files, entries, trusted)
    snapshot_at = recovery_point if was_clean else segments[suspect].base_offset
    if snapshot_at > segments[0].base_offset and snapshot_at not in files.snapshots:
        path = files.snapshot_path(snapshot_at)
        logger.warning("%s is missing: rebuilding the producers' state from the batches", path)
    if was_clean:
        end = recovery_point
        segments.active.find_first_timestamp()
        producers = producer_recovery.load_producers(files, end)
    else:
        holes_to = max(recovery_point, cleaned_to)
        if config.is_compacted and not is_known:  # no checkpoint tells how far it is clean
            holes_to = segments.active.base_offset
        # What was rebuilt is not on disk yet.
        _list_checked(files, 0 if is_rebuilt else suspect, sealed)
        producers = _recover(files, suspect, recovery_point, holes_to, epochs, config, topic_partition)
        end = producers.end_offset
    files.recovery_point = end if was_clean else min(recovery_point, end)
    start = max(log_start_offset, files.segments[0].base_offset)
    log = PartitionLog(
        topic_partition,
        topic_id,
        config,
        files,
        log_start_offset=min(start, end),
        log_end_offset=end,
        epochs=epochs,
        producers=producers,
    )
    epochs.truncate_from_end(end)
    epochs.truncate_from_start(log.log_start_offset)
    return log


def _deleted_segments(env: LogEnvironment, path: str, listed: Sequence[Entry]) -> dict[Offset, Offset]:
    """Return the segments that a crash kept from being removed: where each begins and ends."""
    sizes = {entry.name: entry.size for entry in listed}
    ends: dict[Offset, Offset] = {}
    for stem in sorted(name.partition(".")[0] for name in sizes if name.endswith(LOG + DELETED)):
        if not _is_offset(stem):
            continue
        segment = LogSegment(
            env.files,
            path,
            int(stem),
            now_ms=env.clock.now_ms(),
            size=sizes[stem + LOG + DELETED],
            offset_entries=sizes.get(stem + INDEX + DELETED, 0) // OffsetIndex.ENTRY.size,
            suffix=DELETED,
        )
        end = segment.base_offset
        with contextlib.suppress(KafkaError, OSError):  # one that cannot be read tells nothing
            end = segment.next_offset()
        ends[segment.base_offset] = end
        segment.close()
    return ends


def _removed_up_to(
    deleted: Mapping[Offset, Offset], start: Offset, first: Offset, *, has_holes: bool
) -> Offset:
    """Up to where all offsets from `start` on were in `deleted` segments; at least `start`."""
    if has_holes:  # offsets between two segments say nothing
        return first if any(base_offset <= start for base_offset in deleted) else start
    for base_offset, end in deleted.items():
        if base_offset <= start:
            start = max(start, end)
    return start


def _cleared(env: LogEnvironment, path: str, listed: Sequence[Entry]) -> dict[str, Entry]:
    """Finish all interrupted swaps and deletions, and return the remaining entries of the folder."""
    if complete_swaps(env, path, listed):
        listed = env.fs.entries(path)
    entries = {entry.name: entry for entry in listed if _is_known(path, entry.name)}
    indexes = (INDEX, TIME_INDEX, TRANSACTION_INDEX)
    for name in list(entries):
        is_orphan = name.endswith(indexes) and name.partition(".")[0] + LOG not in entries
        if is_orphan or name.endswith((DELETED, ".tmp")):
            env.fs.remove(f"{path}/{name}")
            del entries[name]
    return entries


def _is_known(folder: str, name: str) -> bool:
    """Whether a file is named as one of a log's: those of segments by an offset."""
    stem, dot, kind = name.partition(".")
    if dot + kind not in _OF_SEGMENTS:
        return True
    if _is_offset(stem):
        return True
    logger.warning("ignored %s/%s: its name is not an offset", folder, name)
    return False


def _is_offset(stem: str) -> bool:
    return len(stem) == 20 and stem.isdecimal() and int(stem) <= MAX_OFFSET


def _open_segments(
    env: LogEnvironment, path: str, entries: dict[str, Entry], config: TopicConfig, log_start_offset: Offset
) -> Segments:
    def count(name: str, index: type[Index]) -> int:
        return entries[name].size // index.ENTRY.size if name in entries else 0

    segments = []
    for stem in sorted(name[: -len(LOG)] for name in entries if name.endswith(LOG)):
        entry = entries[stem + LOG]
        if entry.is_directory:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path}/{entry.name} is a folder, not a segment")
        segments.append(
            LogSegment(
                env.files,
                path,
                int(stem),
                now_ms=env.clock.now_ms(),
                size=entry.size,
                modified_ms=entry.modified_ms,
                offset_entries=count(stem + INDEX, OffsetIndex),
                time_entries=count(stem + TIME_INDEX, TimeIndex),
                aborted_bytes=entries[stem + TRANSACTION_INDEX].size
                if stem + TRANSACTION_INDEX in entries
                else 0,
            )
        )
    return Segments(segments or [new_segment(env, path, log_start_offset, config)])


def _load_epochs(env: LogEnvironment, path: str, segments: Segments, *, read_through: bool) -> LeaderEpochs:
    """Return the epochs of the checkpoint; `read_through`: the recovery is about to find them all."""
    file = f"{path}/{EPOCH_FILE}"
    try:
        return LeaderEpochs.decode(read_small_file(env.fs, file))
    except FileNotFoundError:
        if read_through or (not segments.active.size and len(segments) == 1):
            return LeaderEpochs()
        reason = "is missing"
    except ValueError as error:
        reason = str(error)
        keep_damaged(env.fs, file)
    logger.warning("%s: %s: it is rebuilt from the batches' headers", file, reason)
    epochs = LeaderEpochs()
    if read_through:
        return epochs
    with contextlib.suppress(KafkaError):  # the segment's own checks say what is wrong with it
        for segment in segments:
            for _, header in segment.headers(0):
                if header.leader_epoch > epochs.latest:
                    epochs.assign(header.leader_epoch, header.base_offset)
    epochs.changed = True
    return epochs


def _problem_at_the_end(active: LogSegment, recovery_point: Offset) -> str | None:
    """Why the log does not end as it did at the clean stop; None when it does.

    Raises:
        KafkaError: CORRUPT_MESSAGE, a batch there is damaged.
    """
    end = active.checked_end()
    return (
        None if end == recovery_point else f"it ends at {end}, at the clean stop it ended at {recovery_point}"
    )


def _ensure_indexes(
    files: LogFiles,
    segment: LogSegment,
    entries: dict[str, Entry],
    config: TopicConfig,
    sizes: Mapping[Offset, SegmentSizes],
) -> bool:
    """Make both sparse indexes true at their ends: retention uses the time index's last entry.

    Returns:
        Whether they were rebuilt.

    Raises:
        KafkaError: CORRUPT_MESSAGE, an index is damaged, and so is its segment.
    """
    known = sizes.get(segment.base_offset)
    is_whole = _has_whole_indexes(segment, entries)
    if (
        is_whole
        and known is not None
        and known[:3] == (segment.size, segment.offsets.size, segment.times.size)
    ):
        segment.restore_latest(TimestampedOffset(known.latest_timestamp, known.latest_offset))
        return False
    if is_whole and segment.has_true_indexes(are_complete=False):
        return False
    _rebuild_indexes(files, segment, config)
    return True


def _has_whole_indexes(segment: LogSegment, entries: dict[str, Entry]) -> bool:
    """Whether the files of both sparse indexes are there, and hold whole entries."""
    if not segment.size:  # what they hold was cut off, but not safely: a power cut has brought it back
        return not len(segment.offsets) and not len(segment.times)
    for index in (segment.offsets, segment.times):
        entry = entries.get(index.file.path.rpartition("/")[2])
        if entry is None or entry.is_directory or entry.size % index.ENTRY.size:
            return False
    return True


def _rebuild_indexes(files: LogFiles, segment: LogSegment, config: TopicConfig) -> None:
    logger.warning("%s: its indexes are missing or damaged; they are rebuilt", segment.log.path)
    segment.clear_indexes()
    for position, header in segment.headers(0):
        segment.index_batch(position, header, config.index_interval_bytes)
    segment.seal()
    files.note_indexes(segment)  # the next flush is to cover what was rebuilt


def _first_suspect(segments: Segments, recovery_point: Offset, sealed: Mapping[Offset, SealedSegment]) -> int:
    """Return the index of the first segment that recovery must read.

    It is the segment with the last record before the recovery point, even if that record is its last, unless
    it is listed. A flush of an active segment leaves out its indexes, and the segment may have been sealed
    since.
    """
    place = segments.place_of(max(recovery_point - 1, 0))
    return place + 1 if is_listed(segments, place, sealed) else place


def _flushed_to(segments: Segments, recovery_point: Offset, sealed: Mapping[Offset, SealedSegment]) -> Offset:
    """Return the recovery point, moved on behind the listed segments that follow it without a gap."""
    place = segments.place_of(max(recovery_point - 1, 0))
    while is_listed(segments, place, sealed):
        place += 1
        recovery_point = max(recovery_point, segments[place].base_offset)
    return recovery_point


def _read_sealed(
    env: LogEnvironment, path: str, entries: dict[str, Entry], *, is_needed: bool
) -> dict[Offset, SealedSegment]:
    """Return the list of sealed segments on disk, if it is needed; move a file aside that cannot be read."""
    file = f"{path}/{SEALED}"
    if SEALED not in entries or not (is_needed or entries[SEALED].is_directory):
        return {}
    try:
        return decode(read_small_file(env.fs, file))
    except ValueError as error:
        logger.warning("%s: %s: sealed segments are checked by their ends", file, error)
        keep_damaged(env.fs, file)
        del entries[SEALED]
        return {}


def _list_checked(files: LogFiles, count: int, sealed: Mapping[Offset, SealedSegment]) -> None:
    """List the first `count` segments, which are in order, and none that recovery may change.

    Raises:
        OSError: the disk failed.
    """
    segments = files.segments
    if files.sealed is not None:
        files.sealed.cut(segments[count].base_offset)
        files.sealed.sync()
    if not all(is_listed(segments, place, sealed) for place in range(count)):
        files.sealed = files.sealed or SealedSegments(files.env.files, files.path)
        files.sealed.write(segments, range(count))


def _recover(
    files: LogFiles,
    first: int,
    recovery_point: Offset,
    holes_to: Offset,
    epochs: LeaderEpochs,
    config: TopicConfig,
    topic_partition: TopicPartition,
) -> Producers:
    """Read the segments from place `first` on; return the producers as of the log's true end."""
    segments = files.segments
    start = segments[first].base_offset
    producers = producer_recovery.load_producers(files, start)
    # The file of epochs may be older than a truncation; the batches tell what is not known to be on disk.
    epochs.truncate_from_end(recovery_point)
    end = start
    place = first
    while place < len(segments):
        segment = segments[place]
        # Compaction drops records before the recovery point only: it cleans flushed segments only.
        has_hole = place > first and max(end, holes_to) < segment.base_offset
        if has_hole or end > segment.base_offset:
            logger.warning(
                "%s: the log ends at %d and its next segment begins at %d: the rest is dropped",
                topic_partition,
                end,
                segment.base_offset,
            )
            break
        size = segment.size
        end = _recover_segment(
            segment, max(end, segment.base_offset), recovery_point, epochs, producers, config
        )
        place += 1
        if segment.size < size:
            if end < recovery_point:
                raise lost_records(topic_partition, end, recovery_point, f"{segment.log.path} is damaged")
            kept = keep_cut_off(files, segment, size, end)
            segment.log.truncate(segment.size)
            logger.warning(
                "%s: %d bytes after offset %d are damaged and cut off%s",
                topic_partition,
                size - segment.size,
                end - 1,
                kept,
            )
            break
    if end < recovery_point:
        raise lost_records(topic_partition, end, recovery_point, "the log ends before")
    for segment in segments.from_place(place):
        keep_segment(files, segment)
    files.drop_segments_from(place)
    files.drop_snapshots_after(end)
    files.seal_again(first)
    producers.end_offset = end
    return producers


def _recover_segment(
    segment: LogSegment,
    start: Offset,
    recovery_point: Offset,
    epochs: LeaderEpochs,
    producers: Producers,
    config: TopicConfig,
) -> Offset:
    """Check and index every batch of a segment, and cut it off at the first damage; return its end.

    A batch of an earlier epoch than the one before it was truncated before that one was written: the disk
    had yet to be told.
    """
    size = segment.size
    segment.clear_indexes()
    segment.aborted.reset()
    segment.size = 0
    end = start
    for position, header, data in _sound_batches(segment, size, start):
        if header.base_offset >= recovery_point and 0 <= header.leader_epoch < epochs.latest:
            break
        segment.index_batch(position, header, config.index_interval_bytes)
        segment.size = position + header.size
        end = header.next_offset
        if header.leader_epoch > epochs.latest:
            epochs.assign(header.leader_epoch, header.base_offset)
        if header.producer_id != NO_PRODUCER_ID:
            aborted = producer_recovery.note_producer(producers, header, data, header.base_offset)
            if aborted is not None:
                segment.aborted.append(aborted)
    return end


def _sound_batches(
    segment: LogSegment, size: int, start: Offset
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yield the batches of a segment's file up to the first that is damaged or out of place."""
    log: LogFile = segment.log
    block = b""
    block_at = 0
    position = 0
    expected = start
    limit = segment.base_offset + MAX_RELATIVE_OFFSET
    while position + HEADER_SIZE <= size:
        at = position - block_at
        if at + HEADER_SIZE > len(block):
            block, block_at, at = log.read_at(_READ_BYTES, position), position, 0
        try:
            header = parse_header(block, at)
            if header.size < HEADER_SIZE or position + header.size > size:
                return
            if at + header.size > len(block):
                block, block_at, at = log.read_at(max(_READ_BYTES, header.size), position), position, 0
            check_crc(header, block, at)
        except KafkaError:
            return
        if header.base_offset < expected or not header.base_offset <= header.last_offset <= limit:
            return
        yield position, header, memoryview(block)[at : at + header.size]
        expected = header.next_offset
        position += header.size
