"""Checks log directories file by file: it finds damage, and the offsets that are lost."""

from __future__ import annotations

import mmap
import os
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from barnabas.base.environment.os_filesystem import OsFileSystem
from barnabas.base.errors import BarnabasError
from barnabas.base.system import locks
from barnabas.base.types import TopicPartition
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.backup import FILE_NAME as BACKUP
from barnabas.broker.metadata.backup import BackupError, read_backup
from barnabas.broker.metadata.copies import FILE_NAMES, Found, choose, find_copies
from barnabas.broker.metadata.folders import SHARED, belong_to_cluster, embedded_files
from barnabas.broker.metadata.journal import Journal
from barnabas.broker.metadata.store import StoreUnavailableError
from barnabas.broker.storage import checkpoints
from barnabas.broker.storage.epochs import FILE_NAME as EPOCH_FILE
from barnabas.broker.storage.epochs import LeaderEpochs
from barnabas.broker.storage.incomplete import FILE_NAME as INCOMPLETE
from barnabas.broker.storage.incomplete import read_mark
from barnabas.broker.storage.index import OffsetIndex, TimeIndex
from barnabas.broker.storage.producer_snapshot import decode_snapshot
from barnabas.broker.storage.salvage import whole_batches
from barnabas.broker.storage.segment import file_name
from barnabas.broker.storage.transaction_index import ENTRY as TRANSACTION_ENTRY
from barnabas.cli.log.findings import Finding, Partition, Segment
from barnabas.cli.log.transactions import index_problems

PARTITION_FOLDER = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>[0-9]{1,10})")
_SEGMENT = re.compile(r"[0-9]{20}\.log")
_CHECKPOINTS = (
    checkpoints.RECOVERY_POINTS,
    checkpoints.HIGH_WATERMARKS,
    checkpoints.LOG_STARTS,
    checkpoints.CLEANED,
)
_INDEX_SIZES = {
    ".index": OffsetIndex.ENTRY.size,
    ".timeindex": TimeIndex.ENTRY.size,
    ".txnindex": TRANSACTION_ENTRY.size,
}


_FS = OsFileSystem()


class DirectoryInUse(BarnabasError):
    """A broker is running on a log directory that is to be checked."""


class NotPermitted(BarnabasError):
    """The user of the command may not read a file. The file can be complete, so no repair may replace it."""


class DirectoryShared(BarnabasError):
    """A folder has no logs of its own. Instead it has the folders of several brokers."""


@dataclass(slots=True)
class Directories:
    """All log directories of one broker, and the results of their check.

    Attributes:
        paths: the log directories.
        copies: the files that contain the cluster's metadata; empty if the metadata is in ZooKeeper.
        findings: the results for files that belong to no partition.
        partitions: the partitions' folders, with their own findings.
    """

    paths: list[Path]
    copies: list[Found]
    #: the metadata of a complete copy; None if no copy is complete
    journal: Journal | None
    findings: list[Finding]
    partitions: list[Partition]
    #: whether the broker is one of a cluster: its metadata is in ZooKeeper, and others have its records, too
    is_clustered: bool = False

    def all_findings(self) -> Iterator[Finding]:
        yield from self.findings
        for partition in self.partitions:
            yield from partition.findings


def check_directories(paths: Sequence[Path]) -> Directories:
    """Read all files of one broker's log directories, and return the findings. Nothing is changed.

    Raises:
        DirectoryInUse: a broker is running on one of the directories.
        DirectoryShared: one of the directories contains the folders of several brokers.
        NotPermitted: this user may not read a file of a directory.
        OSError: a directory cannot be listed.
    """
    for path in paths:
        _check_not_shared(path)
        _check_permitted(path)
        check_not_in_use(path)
    findings: list[Finding] = []
    is_clustered = belong_to_cluster(_FS, [str(path) for path in paths])
    copies: list[Found] = []
    journal: Journal | None = None
    topics: Mapping[str, znodes.Assignment] = {}
    if is_clustered:
        topics = _check_cluster_metadata(paths, findings)
    else:
        copies, journal = _check_metadata(paths, findings)
        topics = {} if journal is None else topics_of(journal)
    partitions: list[Partition] = []
    for path in paths:
        points, compacted = _check_small_files(path, findings, topics)
        sizes = _sizes(path)
        partitions += [
            _check_partition(folder, match, points, compacted, sizes)
            for folder in sorted(path.iterdir())
            if folder.is_dir() and (match := PARTITION_FOLDER.fullmatch(folder.name))
        ]
        partitions += _missing_partitions(path, points, is_clustered=is_clustered)
    if not is_clustered:  # the broker of a cluster copies what a missing directory had
        _check_log_dirs(paths, findings)
    found = Directories(list(paths), copies, journal, findings, partitions, is_clustered)
    if journal is not None:
        _check_against_metadata(found, journal)
        _check_owner(found, journal)
    return found


def topics_of(journal: Journal) -> dict[str, znodes.Assignment]:
    """Return the topics in `journal`, the metadata of a cluster, with the assignment of each."""
    prefix = znodes.TOPICS + "/"
    return {
        path.removeprefix(prefix): znodes.decoded(path, znodes.decode_topic, node.data)
        for path, node in journal.nodes.items()
        if path.startswith(prefix) and "/" not in path.removeprefix(prefix)
    }


def scan_segment(path: Path, floor: int) -> Segment:
    """Read a segment's whole file. Return its undamaged batches and the positions of damage.

    `floor` is the end offset of the segment before it. Batches with lower offsets count as damaged.

    Raises:
        OSError: the file cannot be read.
    """
    base_offset = int(path.stem)
    segment = Segment(path, base_offset, path.stat().st_size, end=max(base_offset, floor))
    if not segment.size:
        return segment
    position = 0
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for at, header in whole_batches(data, base_offset, segment.end):
            if at > position:
                segment.damaged.append((position, at, segment.end))
            segment.batches.append((at, header))
            segment.end = header.next_offset
            position = at + header.size
    if position < segment.size:
        segment.damaged.append((position, segment.size, segment.end))
    return segment


def check_not_in_use(path: Path) -> None:
    """Raise DirectoryInUse when a broker runs on a log directory."""
    try:
        with (path / ".lock").open("rb") as file:
            locks.lock(file.fileno())
    except BlockingIOError:
        raise DirectoryInUse(f"a broker runs on {path}: stop it first") from None
    except OSError:
        return


def _check_not_shared(path: Path) -> None:
    """Raise DirectoryShared if a folder contains the folders of several brokers."""
    if (path / SHARED).exists():
        raise DirectoryShared(
            f"{path} has the folders of several brokers: name one of them, such as {path}/broker-1. If the "
            f"metadata in {path} is damaged, move {FILE_NAMES[0]} and {FILE_NAMES[1]} away, and start the "
            "brokers: the message of `barnabas start` has the command that creates the metadata again"
        )


def _check_cluster_metadata(
    paths: Sequence[Path], findings: list[Finding]
) -> Mapping[str, znodes.Assignment]:
    """Check the metadata files of a broker whose cluster uses ZooKeeper, and append to `findings`.

    Return the topics in the latest backup of the metadata, by name; empty if no backup can be read.
    """
    folders = [str(path) for path in paths]
    findings += [
        Finding(file, "unknown", "a broker of a cluster has no such file")
        for file in embedded_files(_FS, folders)
    ]
    backups = []
    for path in paths:
        if (path / BACKUP).exists():
            try:
                backups.append(read_backup(_FS, str(path)))
            except (BackupError, OSError) as error:
                detail = f"{error}; the broker writes it again"
                findings.append(Finding(str(path / BACKUP), "damaged", detail))
            else:
                detail = f"a backup of {len(backups[-1].topics)} topics"
                findings.append(Finding(str(path / BACKUP), "whole", detail))
    if not backups:
        return {}
    latest = max(backups, key=lambda each: each.age)
    return {
        name: znodes.decoded(path, znodes.decode_topic, latest.nodes[path].encode())
        for name, path in ((name, znodes.topic(name)) for name in latest.topics)
    }


def _check_permitted(path: Path) -> None:
    """Raise NotPermitted if this user may not read a file of the log directory or of a partition's folder."""
    entries = list(path.iterdir())
    folders = [entry for entry in entries if entry.is_dir() and PARTITION_FOLDER.fullmatch(entry.name)]
    files = [entry for entry in entries if not entry.is_dir()]
    for entry in [*files, *(file for folder in folders for file in folder.iterdir())]:
        if entry.exists() and not os.access(entry, os.R_OK):
            raise NotPermitted(
                f"{entry}: permission denied: run the command as the user of the broker, or give this user "
                "the right to read and write the file"
            )


def _check_metadata(paths: Sequence[Path], findings: list[Finding]) -> tuple[list[Found], Journal | None]:
    copies = find_copies(_FS, [str(path) for path in paths])
    present = [copy for copy in copies if not copy.is_missing]
    if not present:
        findings.append(Finding(copies[0].path, "missing", "there is no metadata"))
        return copies, None
    newest = max(copy.generation for copy in present)
    for copy in copies[:2]:
        is_old = copy.is_whole and copy.generation < newest - 1
        state = "missing" if copy.is_missing else "whole" if copy.is_whole and not is_old else "damaged"
        detail = f"is {newest - copy.generation} commits older than the other" if is_old else copy.described()
        findings.append(Finding(copy.path, state, detail))
    try:
        best = choose(copies)
    except StoreUnavailableError as error:
        findings.append(Finding(copies[0].path, "damaged", str(error)))
        return copies, None
    for finding in findings:
        if finding.is_damage and best is not None:
            finding.detail += f"; the next start writes it from {best.path}"
    return copies, None if best is None else best.journal


def _check_small_files(
    path: Path, findings: list[Finding], topics: Mapping[str, znodes.Assignment]
) -> tuple[dict[TopicPartition, int], set[TopicPartition]]:
    """Check checkpoints, stored segment sizes and meta.properties of the log directory `path`.

    Append the findings about these files to `findings`. Return the recovery points, and the partitions that
    were ever compacted. If a topic was deleted, and `topics` has a new topic with the same name, both results
    leave out the entries of the deleted topic.
    """
    compacted: set[TopicPartition] = set()
    points: dict[TopicPartition, int] = {}
    for name in _CHECKPOINTS:
        file = path / name
        if not file.exists():
            continue
        try:
            offsets, tags, damage = checkpoints.decode_offsets(file.read_bytes())
        except OSError as error:
            offsets, tags, damage = {}, {}, f"cannot be read ({error.strerror})"
        findings.append(_finding(file, damage, f"{len(offsets)} offsets"))
        for topic_partition, tag in tags.items():
            topic = topics.get(topic_partition.topic)
            if topic is not None and tag != checkpoints.tag_of_topic(topic.topic_id):
                del offsets[topic_partition]
        if name == checkpoints.RECOVERY_POINTS:
            points = offsets
        if name == checkpoints.CLEANED:
            compacted = set(offsets)
    findings.extend(
        Finding(str(path / name), "damaged", "it is a folder")
        for name in (checkpoints.CLEAN_SHUTDOWN, checkpoints.SEGMENT_SIZES)
        if (path / name).is_dir()
    )
    sizes = path / checkpoints.SEGMENT_SIZES
    if sizes.is_file():
        is_whole = checkpoints.decode_sizes(sizes.read_bytes()) is not None
        findings.append(
            _finding(sizes, None if is_whole else "it does not match its checksums", "sizes of segments")
        )
    findings.append(_finding(path / checkpoints.META_PROPERTIES, *_meta_problem(path)))
    return points, compacted


def _meta_problem(path: Path) -> tuple[str | None, str]:
    try:
        found = checkpoints.decode_properties((path / checkpoints.META_PROPERTIES).read_bytes())
    except FileNotFoundError:
        return "is missing", ""
    except (ValueError, OSError) as error:
        return str(error), ""
    if found.get("version") not in ("0", "1") or "cluster.id" not in found:
        return "it does not say whose directory this is", ""
    return None, f"cluster {found['cluster.id']}, broker {found.get('node.id')}"


def _check_log_dirs(paths: Sequence[Path], findings: list[Finding]) -> None:
    """Append to `findings` each `meta.properties` that names a log directory which is not in `paths`."""
    found: dict[Path, Mapping[str, str]] = {}
    for path in paths:
        with suppress(OSError, ValueError):
            file = path / checkpoints.META_PROPERTIES
            found[file] = checkpoints.decode_properties(file.read_bytes())
    present = {properties.get("directory.id") for properties in found.values()}
    for file, properties in found.items():
        known = properties.get(checkpoints.LOG_DIRS)
        if gone := sorted(set(known.split(",")) - present if known else ()):
            ids = ",".join(gone)
            detail = f"the log directory with directory.id={ids} is missing: name it, too, if it is not lost"
            findings.append(Finding(str(file), "missing", detail))


def _check_partition(
    folder: Path,
    match: re.Match[str],
    points: dict[TopicPartition, int],
    compacted: set[TopicPartition],
    sizes: Mapping[TopicPartition, Mapping[int, checkpoints.SegmentSizes]],
) -> Partition:
    topic_partition = TopicPartition(match["topic"], int(match["partition"]))
    partition = Partition(folder, topic_partition, points.get(topic_partition, 0), [])
    findings = partition.findings
    names = sorted(file.name for file in folder.iterdir())
    _identify(partition, has_segments=any(map(_SEGMENT.fullmatch, names)))
    mark = read_mark(_FS, str(folder))
    if mark is not None and not mark.is_of(partition.topic_id):
        detail = "it is of a deleted topic of the same name: the broker's next start removes it"
        findings.append(Finding(str(folder / INCOMPLETE), "whole", detail))
    elif mark is not None:
        detail = f"the replica is incomplete ({mark.reason}): it is copied again from the partition's leader"
        findings.append(Finding(str(folder / INCOMPLETE), "whole", detail))
        if not mark.is_emptied:
            partition.safe_end, sizes = 0, {}
    floor = 0
    for name in names:
        if not _SEGMENT.fullmatch(name):
            continue
        path = folder / name
        if not path.is_file():
            findings.append(Finding(str(path), "damaged", "is not a file"))
            continue
        segment = scan_segment(path, floor)
        if partition.segments and floor < segment.base_offset:
            lost = (floor, segment.base_offset - 1)
            if partition.topic_partition in compacted or partition.segments[-1].damaged:
                detail = f"offsets {lost[0]} to {lost[1]} are not there before it"
                findings.append(Finding(str(path), "whole", detail))
            else:
                detail = f"offsets {lost[0]} to {lost[1]} are missing before it"
                findings.append(Finding(str(path), "damaged", detail, lost))
        partition.segments.append(segment)
        _report_segment(segment, findings)
        floor = segment.end
    if floor < partition.safe_end:
        lost = (floor, partition.safe_end - 1)
        detail = f"it ends at {floor}; offsets {lost[0]} to {lost[1]} had been safe on disk and are gone"
        findings.append(Finding(str(folder), "damaged", detail, lost))
    _compare_sizes(partition, sizes.get(topic_partition, {}))
    for name in names:
        _check_side_file(folder / name, findings)
    named = {finding.path for finding in findings if finding.is_damage}
    problems = [
        problem
        for segment in partition.segments
        if not segment.damaged
        for problem in _index_problems(segment)
    ]
    if topic_partition not in compacted:  # compaction keeps entries whose records it has removed
        problems += index_problems(partition)
    for file, problem in problems:
        if str(file) not in named:
            state = "damaged" if file.exists() else "missing"
            findings.append(Finding(str(file), state, f"{problem}; `log repair` has it rebuilt"))
    return partition


def _identify(partition: Partition, *, has_segments: bool) -> None:
    """Read the topic id of a partition's folder, and append to its findings if this is not possible."""
    file = partition.path / checkpoints.PARTITION_METADATA
    try:
        partition.topic_id = checkpoints.decode_partition_metadata(file.read_bytes())
    except FileNotFoundError:
        if has_segments:
            partition.findings.append(Finding(str(file), "missing", "is missing"))
    except (ValueError, OSError) as error:
        partition.findings.append(Finding(str(file), "damaged", str(error)))


def _sizes(path: Path) -> Mapping[TopicPartition, Mapping[int, checkpoints.SegmentSizes]]:
    """Return the sizes of each segment at the last clean stop, by partition and base offset.

    The result is empty if the last stop was not clean, or if the sizes cannot be read.
    """
    try:
        if (path / checkpoints.CLEAN_SHUTDOWN).exists():
            return checkpoints.decode_sizes((path / checkpoints.SEGMENT_SIZES).read_bytes()) or {}
    except OSError:
        return {}
    return {}


def _compare_sizes(partition: Partition, sizes: Mapping[int, checkpoints.SegmentSizes]) -> None:
    found = {segment.base_offset: segment for segment in partition.segments}
    for base_offset, (size, *_) in sorted(sizes.items()):
        path = str(partition.path / file_name(base_offset, ".log"))
        segment = found.get(base_offset)
        if segment is None and not any(finding.path == path for finding in partition.findings):
            end = min((base for base in (*sizes, *found) if base > base_offset), default=base_offset + 1)
            lost = (base_offset, end - 1)
            detail = f"it is gone with its offsets {lost[0]} to {lost[1]}"
            partition.findings.append(Finding(path, "missing", detail, lost))
        elif segment is not None and segment.size < size and not segment.damaged:
            detail = f"it has {segment.size} bytes, at the clean stop it had {size}"
            partition.findings.append(Finding(path, "damaged", detail))


def _report_segment(segment: Segment, findings: list[Finding]) -> None:
    path = str(segment.path)
    for start, end, offset in segment.damaged:
        follower = next((header.base_offset for at, header in segment.batches if at >= end), None)
        where = f"bytes {start} to {end - 1} are not a whole batch"
        if follower is None:
            findings.append(
                Finding(path, "damaged", f"{where}; offsets from {offset} on may have been there")
            )
        elif follower > offset:
            lost = (offset, follower - 1)
            detail = f"{where}; offsets {lost[0]} to {lost[1]} are lost"
            findings.append(Finding(path, "damaged", detail, lost))
        else:
            findings.append(Finding(path, "damaged", f"{where}; no offset is lost"))
    if not segment.damaged:
        offsets = f"offsets {segment.base_offset} to {segment.end - 1}" if segment.batches else "no records"
        findings.append(Finding(path, "whole", f"{len(segment.batches)} batches, {offsets}"))


def _index_problems(segment: Segment) -> Iterator[tuple[Path, str]]:
    """Yield the sparse indexes that do not agree with an undamaged segment, each with its wrong entry."""
    by_position = dict(segment.batches)
    file = segment.path.with_suffix(".index")
    last = -1, -1
    for relative_offset, position in _entries(file, OffsetIndex.ENTRY):
        header = by_position.get(position)
        offset = segment.base_offset + relative_offset
        is_right = header is not None and header.base_offset <= offset < segment.end
        if not is_right or relative_offset <= last[0] or position <= last[1]:
            yield file, f"an entry names byte {position} for offset {offset}"
            break
        last = relative_offset, position
    file = segment.path.with_suffix(".timeindex")
    batches = iter(header for _, header in segment.batches)
    header = next(batches, None)
    latest = before = -1
    for timestamp, relative_offset in _entries(file, TimeIndex.ENTRY):
        offset = segment.base_offset + relative_offset
        while header is not None and header.last_offset < offset:
            latest = max(latest, header.latest_record_timestamp)
            header = next(batches, None)
        is_right = (
            header is not None
            and header.base_offset <= offset
            and header.latest_record_timestamp == timestamp
            and latest <= timestamp
        )
        if not is_right or timestamp <= before:
            yield file, f"an entry names the time {timestamp} for offset {offset}"
            break
        before = timestamp


def _entries(file: Path, entry: struct.Struct) -> Iterator[tuple[int, int]]:
    """Yield the entries of an index; none if it cannot be read or ends within an entry."""
    try:
        content = file.read_bytes()
    except OSError:
        return
    if len(content) % entry.size == 0:
        yield from entry.iter_unpack(content)


def _check_side_file(file: Path, findings: list[Finding]) -> None:
    try:
        if file.suffix in _INDEX_SIZES:
            left = file.stat().st_size % _INDEX_SIZES[file.suffix]
            if left or not file.is_file():
                findings.append(Finding(str(file), "damaged", "the next start rebuilds it"))
        elif file.suffix == ".snapshot":
            decode_snapshot(file.read_bytes())
        elif file.name == EPOCH_FILE:
            LeaderEpochs.decode(file.read_bytes())
    except (ValueError, OSError) as error:
        findings.append(Finding(str(file), "damaged", f"{error}; the next start rebuilds it"))


def _missing_partitions(
    path: Path, points: dict[TopicPartition, int], *, is_clustered: bool
) -> list[Partition]:
    missing = []
    more = ": the broker copies it again from the partition's leader" if is_clustered else ""
    for topic_partition, end in sorted(points.items()):
        folder = path / str(topic_partition)
        if end and not folder.is_dir():
            gone = "the folder is gone"
            if folder.exists():
                gone = "a file is in the place of the folder, which is gone"
            detail = f"{gone} with its offsets up to {end - 1}{more}"
            missing.append(
                Partition(folder, topic_partition, end, [], [Finding(str(folder), "missing", detail)])
            )
    return missing


def _check_owner(found: Directories, journal: Journal) -> None:
    """Find each meta.properties that names another cluster than `journal`, the metadata beside it.

    Its finding in `found` becomes "damaged".
    """
    node = journal.nodes.get(znodes.CLUSTER_ID)
    homes = {Path(copy.path).parent for copy in found.copies if not copy.is_missing}
    for finding in found.findings:
        path = Path(finding.path)
        if node is None or path.name != checkpoints.META_PROPERTIES or finding.is_damage:
            continue
        named = checkpoints.decode_properties(path.read_bytes())["cluster.id"]
        ours = znodes.decoded(znodes.CLUSTER_ID, znodes.decode_cluster_id, node.data)
        if named != ours and path.parent in homes:
            finding.state = "damaged"
            finding.detail = f"it names cluster {named!r}, the metadata beside it are of {ours!r}"


def _check_against_metadata(found: Directories, journal: Journal) -> None:
    topics = topics_of(journal)
    kept = []
    for partition in found.partitions:
        topic, number = partition.topic_partition
        known = topics.get(topic)
        if known is None or number >= len(known.replicas):
            if not partition.segments:
                continue  # of a topic that was deleted
            partition.findings.append(Finding(str(partition.path), "unknown", "it belongs to no topic"))
        elif partition.topic_id not in (None, known.topic_id):
            partition.findings.append(
                Finding(str(partition.path), "unknown", "it is of another topic of the name")
            )
        kept.append(partition)
    found.partitions = kept


def _finding(path: Path, damage: str | None, detail: str) -> Finding:
    return Finding(str(path), "whole", detail) if damage is None else Finding(str(path), "damaged", damage)
