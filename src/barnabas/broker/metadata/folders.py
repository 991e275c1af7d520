"""Whether log directories are those of a lone broker, with its metadata in them, or of one in a cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from barnabas.base.environment.filesystem import FileSystem, exists, read_file, replace_file
from barnabas.broker.metadata import legacy
from barnabas.broker.metadata.backup import FILE_NAME as BACKUP
from barnabas.broker.metadata.copies import FILE_NAMES
from barnabas.broker.metadata.store import StoreUnavailableError
from barnabas.broker.storage import checkpoints

#: what the name of an embedded store's file ends in once its contents are in ZooKeeper
IMPORTED = ".imported"

#: in the first log directory of several brokers that one command runs; see `barnabas.cli.cluster.folder`
SHARED = "cluster.json"


def check_alone(fs: FileSystem, folders: Sequence[str]) -> None:
    """Refuse to start a lone broker on the folder of several, whose records are in folders below it.

    Raises:
        StoreUnavailableError: one of `folders` is shared.
    """
    for folder in folders:
        if _has(fs, folder, SHARED):
            raise StoreUnavailableError(
                f"{folder} has the data of several brokers: start them with `barnabas start --data "
                f"{folder}`, or make them one by `--brokers 1`"
            )


def belong_to_cluster(fs: FileSystem, folders: Sequence[str]) -> bool:
    """Whether the broker of these log directories is one of a cluster, as far as its files tell.

    A start says so in ``meta.properties``. Earlier versions did not: there the backup of the metadata tells,
    or what `cluster import` has left, unless there is a store of the broker's own.
    """
    if any(map(_is_marked, [fs] * len(folders), folders)):
        return True
    if embedded_files(fs, folders):
        return False
    return any(_has(fs, folder, BACKUP, *(name + IMPORTED for name in FILE_NAMES)) for folder in folders)


def have_been_in_cluster(fs: FileSystem, folders: Sequence[str]) -> bool:
    """Whether the broker of these log directories is one of a cluster, or was one before."""
    return belong_to_cluster(fs, folders) or any(_has(fs, folder, BACKUP) for folder in folders)


def embedded_files(fs: FileSystem, folders: Sequence[str]) -> list[str]:
    """Return the files of a lone broker's store in log directories."""
    names = (*FILE_NAMES, legacy.FILE_NAME)
    return [f"{folder}/{name}" for folder in folders for name in names if exists(fs, f"{folder}/{name}")]


def leave_cluster(fs: FileSystem, folders: Sequence[str]) -> None:
    """Have log directories be those of a lone broker from now on. Raises OSError."""
    for folder in folders:
        if _is_marked(fs, folder):
            properties = _properties(fs, folder)
            del properties[checkpoints.METADATA_STORE]
            content = checkpoints.encode_properties(properties)
            replace_file(fs, f"{folder}/{checkpoints.META_PROPERTIES}", content)


def _is_marked(fs: FileSystem, folder: str) -> bool:
    return _properties(fs, folder).get(checkpoints.METADATA_STORE) == checkpoints.ZOOKEEPER


def _properties(fs: FileSystem, folder: str) -> dict[str, str]:
    with contextlib.suppress(OSError, ValueError):
        return checkpoints.decode_properties(read_file(fs, f"{folder}/{checkpoints.META_PROPERTIES}"))
    return {}


def _has(fs: FileSystem, folder: str, *names: str) -> bool:
    with contextlib.suppress(OSError):
        return not {entry.name for entry in fs.entries(folder)}.isdisjoint(names)
    return False
