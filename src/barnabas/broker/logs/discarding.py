"""Discards a replica of a stopped broker. The broker then copies the records again from the leader.

First a file that marks the replica as incomplete is written (`barnabas.broker.storage.incomplete`). If the
process ends after that, the broker treats the replica as incomplete, and `discard_replica` can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from barnabas.base.environment.filesystem import FileSystem, make_durable_directory, read_file, replace_file
from barnabas.base.types import TopicId, TopicPartition
from barnabas.broker.logs.partition_folders import is_copy
from barnabas.broker.storage import checkpoints, incomplete
from barnabas.broker.storage.damage import read_small_file
from barnabas.broker.storage.incomplete import Mark, write_mark

_CHECKPOINTS = (
    checkpoints.RECOVERY_POINTS,
    checkpoints.HIGH_WATERMARKS,
    checkpoints.LOG_STARTS,
    checkpoints.CLEANED,
)
#: files that stay in the replica's folder
_KEPT = (incomplete.FILE_NAME, checkpoints.PARTITION_METADATA)


def find_replica(fs: FileSystem, directories: Sequence[str], topic_partition: TopicPartition) -> list[str]:
    """Return the log directories in which a partition has a folder or a checkpoint entry.

    Raises:
        OSError: a directory cannot be read.
    """
    found = []
    for directory in directories:
        has_folder = any(
            entry.is_directory and entry.name == str(topic_partition) for entry in fs.entries(directory)
        )
        if has_folder or any(topic_partition in _offsets(fs, directory, name) for name in _CHECKPOINTS):
            found.append(directory)
    return found


def discard_replica(
    fs: FileSystem,
    directories: Sequence[str],
    topic_partition: TopicPartition,
    aside: str,
    say: Callable[[str], None],
    *,
    dry_run: bool = False,
) -> None:
    """Mark a replica as incomplete, move its files to a folder `aside`, and remove its checkpoint entries.

    Args:
        fs: file system of the directories.
        directories: all results of `find_replica`; the replica begins again in the first.
        topic_partition: partition of the replica.
        aside: name of the folder to which the files are moved, in each log directory; it can exist already.
        say: called with a line about each step.
        dry_run: describe the steps and change nothing.

    Raises:
        OSError: the disk failed.
    """
    for number, directory in enumerate(directories):
        folder = f"{directory}/{topic_partition}"
        if number == 0:
            say(f"{folder}: marked as incomplete: the broker copies it again from the partition's leader")
            if not dry_run:
                make_durable_directory(fs, folder)
                write_mark(fs, folder, Mark("it was discarded", topic_id=_topic_id(fs, folder)))
        _move_content(
            fs, directory, topic_partition, aside, say, _KEPT if number == 0 else (), dry_run=dry_run
        )
        for name in _CHECKPOINTS:
            _forget(fs, directory, name, topic_partition, say, dry_run=dry_run)


def _move_content(
    fs: FileSystem,
    directory: str,
    topic_partition: TopicPartition,
    aside: str,
    say: Callable[[str], None],
    kept: Collection[str],
    *,
    dry_run: bool,
) -> None:
    target = f"{directory}/{aside}/{topic_partition}"
    folder = f"{directory}/{topic_partition}"
    names = [entry.name for entry in fs.entries(directory) if entry.is_directory]
    moved = [
        (f"{folder}/{entry.name}", f"{target}/{entry.name}")
        for entry in (fs.entries(folder) if str(topic_partition) in names else ())
        if entry.name not in kept
    ]
    moved += [
        (f"{directory}/{name}", f"{directory}/{aside}/{name}")
        for name in names
        if is_copy(name, topic_partition)
    ]
    if not moved:
        return
    say(f"{folder}: what it holds is moved to {target}")
    if dry_run:
        return
    make_durable_directory(fs, target)
    for source, destination in moved:
        fs.rename(source, destination)
    for changed in (
        target,
        f"{directory}/{aside}",
        folder if str(topic_partition) in names else directory,
        directory,
    ):
        fs.sync_directory(changed)


def _topic_id(fs: FileSystem, folder: str) -> TopicId:
    """Return the topic id in a partition's folder; empty if it is not known."""
    try:
        content = read_small_file(fs, f"{folder}/{checkpoints.PARTITION_METADATA}")
        return checkpoints.decode_partition_metadata(content)
    except (FileNotFoundError, ValueError):
        return b""


def _offsets(fs: FileSystem, directory: str, name: str) -> dict[TopicPartition, int]:
    try:
        return checkpoints.decode_offsets(read_file(fs, f"{directory}/{name}")).offsets
    except FileNotFoundError:
        return {}


def _forget(
    fs: FileSystem,
    directory: str,
    name: str,
    topic_partition: TopicPartition,
    say: Callable[[str], None],
    *,
    dry_run: bool,
) -> None:
    try:
        offsets, tags, damage = checkpoints.decode_offsets(read_file(fs, f"{directory}/{name}"))
    except FileNotFoundError:
        return
    if damage is not None or offsets.pop(topic_partition, None) is None:
        return  # the start puts a damaged one aside, and a marked replica does not heed it
    tags.pop(topic_partition, None)
    say(f"{directory}/{name}: written without {topic_partition}")
    if not dry_run:
        replace_file(fs, f"{directory}/{name}", checkpoints.encode_offsets(offsets, tags))
