"""Opens a partition's log from its folder.

After a clean stop the broker trusts the files if their ends have not changed. After a crash it recovers the
log (`barnabas.broker.storage.recovery`).

Records before the recovery point were durable. If some of them are damaged or gone, the log is not opened: an
operator must decide on the remaining records (`barnabas log repair`).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping

from barnabas.base.errors import KafkaError
from barnabas.base.types import Offset, TopicId, TopicPartition
from barnabas.broker.config import TopicConfig
from barnabas.broker.storage import producer_recovery
from barnabas.broker.storage.checkpoints import PARTITION_METADATA, SegmentSizes
from barnabas.broker.storage.damage import check_sealed, keep_damaged, lost_records, read_small_file
from barnabas.broker.storage.environment import LogEnvironment
from barnabas.broker.storage.epochs import FILE_NAME as EPOCH_FILE
from barnabas.broker.storage.epochs import LeaderEpochs
from barnabas.broker.storage.folder import clear_folder, find_deleted_segments, open_segments, removed_up_to
from barnabas.broker.storage.incomplete import FILE_NAME as INCOMPLETE
from barnabas.broker.storage.index_recovery import ensure_indexes
from barnabas.broker.storage.log import PartitionLog
from barnabas.broker.storage.log_files import LOG, SNAPSHOT, LogFiles, empty_segment
from barnabas.broker.storage.producers import Producers
from barnabas.broker.storage.recovery import find_first_suspect, recover
from barnabas.broker.storage.sealed import FILE_NAME as SEALED
from barnabas.broker.storage.sealed import SealedSegments
from barnabas.broker.storage.sealed_recovery import flushed_to, list_checked, read_sealed
from barnabas.broker.storage.segment import LogSegment
from barnabas.broker.storage.segments import Segments
from barnabas.broker.storage.transaction_recovery import check_transaction_indexes

logger = logging.getLogger(__name__)


def new_log(
    env: LogEnvironment, path: str, topic_partition: TopicPartition, topic_id: TopicId, config: TopicConfig
) -> PartitionLog:
    """Return an empty log in the empty folder `path`. The first append creates its files."""
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
    cleaned_to: Offset | None = None,
) -> PartitionLog:
    """Open the log in the existing folder `path`.

    After a crash this may take long. A thread can call it with an `env` of its own.

    Args:
        env: environment of the log directory.
        path: folder of the log.
        topic_partition: partition of the log.
        topic_id: id of its topic.
        config: settings of its topic.
        was_clean: whether the last stop of the broker was clean.
        recovery_point: offset before which all records were durable, from the checkpoint; None if unknown.
        log_start_offset: start of the log, from the checkpoint.
        sizes: sizes of each segment at a clean stop, by base offset, if they are known.
        cleaned_to: offset up to which compaction may have left holes; None if the log was never compacted.

    Raises:
        OSError: the disk failed.
        KafkaError: CORRUPT_MESSAGE, records that were safe on disk are damaged or gone; KAFKA_STORAGE_ERROR,
            a folder has the name of a segment file.
    """
    listed = env.fs.entries(path)
    deleted = find_deleted_segments(env, path, listed)
    entries = clear_folder(env, path, listed)
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
    segments = open_segments(env, path, entries, config, log_start_offset)
    sealed = read_sealed(env, path, entries, is_needed=is_known and not was_clean)
    recovery_point = flushed_to(segments, recovery_point, sealed)
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
    has_holes = cleaned_to is not None or config.is_compacted
    removed_to = removed_up_to(deleted, known_start, first, has_holes=has_holes)
    if epochs.entries and removed_to < first:
        logger.warning(
            "%s: offsets %d to %d are missing, and retention has not removed them",
            topic_partition,
            removed_to,
            first - 1,
        )
    known = sizes or {base_offset: each.sizes for base_offset, each in sealed.items()}
    if was_clean:
        try:
            ensure_indexes(files, segments.active, entries, config, known)
            problem = _problem_at_the_end(segments.active, recovery_point)
        except KafkaError as error:
            problem = error.message
        if problem is not None:
            logger.warning("%s: %s: checking the whole log as after a crash", topic_partition, problem)
            was_clean = False
    suspect = len(segments) - 1 if was_clean else find_first_suspect(segments, recovery_point, sealed)
    is_rebuilt = False
    for index in range(suspect):
        try:
            is_rebuilt |= ensure_indexes(files, segments[index], entries, config, known)
        except KafkaError as error:
            base_offset, follower = segments[index].base_offset, segments[index + 1].base_offset
            raise lost_records(topic_partition, base_offset, follower, error.message) from error
    check_sealed(topic_partition, segments, suspect, sizes, sealed, has_holes=has_holes)
    trusted = segments.from_index(0) if was_clean else segments.from_index(0)[:suspect]
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
        holes_to = max(recovery_point, cleaned_to or 0)
        if config.is_compacted and not is_known:  # no checkpoint tells how far it is clean
            holes_to = segments.active.base_offset
        # What was rebuilt is not on disk yet.
        list_checked(files, 0 if is_rebuilt else suspect, sealed)
        producers = recover(files, suspect, recovery_point, holes_to, epochs, config, topic_partition)
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
    epochs.truncate_from_start(log.log_start_offset)
    # An empty log keeps the epoch of its last record: an election compares it with the epochs of other logs.
    epochs.truncate_from_end(end if log.log_start_offset < end else end + 1)
    return log


def _load_epochs(env: LogEnvironment, path: str, segments: Segments, *, read_through: bool) -> LeaderEpochs:
    """Return the leader epochs from the checkpoint. A damaged checkpoint is renamed.

    If the checkpoint is missing or damaged, the result depends on `read_through`:

    - False: read the epochs from the headers of all batches, up to the first damage.
    - True: return no epochs. The recovery will read all batches, and add their epochs.
    """
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
    """Return a text that says how the log's end differs from its end at the clean stop; None if it does not.

    Args:
        active: active segment of the log.
        recovery_point: recovery point in the checkpoint, which was the log's end at the clean stop.

    Raises:
        KafkaError: CORRUPT_MESSAGE, a batch at the end is damaged.
    """
    end = active.checked_end()
    return (
        None if end == recovery_point else f"it ends at {end}, at the clean stop it ended at {recovery_point}"
    )
