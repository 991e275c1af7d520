"""Decides whether log directories belong to a broker with an embedded store or to a broker of a cluster."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Sequence

from barnabas.base.environment.filesystem import FileSystem, exists, read_file, replace_file
from barnabas.broker.metadata.backup import FILE_NAME as BACKUP
from barnabas.broker.metadata.copies import FILE_NAMES
from barnabas.broker.metadata.store import StoreUnavailableError
from barnabas.broker.storage import checkpoints

#: the suffix of an embedded store's file after its content was imported to ZooKeeper
IMPORTED = ".imported"

#: in the first log directory of several brokers that one command runs; see `barnabas.cli.cluster.folder`
SHARED = "cluster.json"
#: the log directory of one of these brokers; the folder of a partition can have the same name
_MEMBER = re.compile(r"broker-\d+")
#: the file with the settings of one of them
_SETTINGS = re.compile(r"broker-\d+\.toml")


def check_alone(fs: FileSystem, folders: Sequence[str]) -> None:
    """Check that none of `folders` has the log directories of several brokers.

    One ``barnabas start`` command runs these brokers. Call this before a broker with an embedded store
    starts.

    Raises:
        StoreUnavailableError: one of `folders` has such log directories.
    """
    for folder in folders:
        members = _members(fs, folder)
        if members and not _has(fs, folder, SHARED):
            if _has_settings(fs, folder) and not embedded_files(fs, [folder]):  # their first start failed
                raise StoreUnavailableError(
                    f"{folder} has the data of {members} brokers: start them with `barnabas cluster start "
                    f"--brokers {members} --data {folder}`"
                )
            # not the first one of their log.dirs
            raise StoreUnavailableError(
                f"{folder} has the data of {members} brokers: start them with `barnabas start --brokers "
                f"{members}` and every directory of their log.dirs, in the same order"
            )
        if _has(fs, folder, SHARED):
            raise StoreUnavailableError(
                f"{folder} has the data of several brokers: start them with `barnabas start --data "
                f"{folder}`, or make them one by `--brokers 1`"
            )


def cluster_of(fs: FileSystem, folders: Sequence[str]) -> str | None:
    """Return the folder of the cluster that contains `folders`, log directories of one of its brokers.

    Return None if none of `folders` is in a folder that one ``barnabas start`` command uses for several
    brokers.
    """
    for folder in folders:
        head, slash, _ = folder.rstrip("/").rpartition("/")
        parent = head or slash or "."
        with contextlib.suppress(OSError, ValueError, AttributeError):
            # Brokers of `barnabas cluster start` have their metadata in ZooKeeper.
            if json.loads(read_file(fs, f"{parent}/{SHARED}")).get("is_embedded"):
                return parent
    return None


def belong_to_cluster(fs: FileSystem, folders: Sequence[str]) -> bool:
    """Whether the files in log directories show that they belong to a broker of a cluster.

    The result is True in each of these cases:

    - A ``meta.properties`` has ``metadata.store=zookeeper``. A broker of a cluster writes this line when it
      starts.
    - No folder has a file of the embedded store, and a folder has a metadata backup or a file that
      ``barnabas cluster import`` has renamed. This case helps if ``meta.properties`` is damaged, or if the
      broker has not started since the import.
    """
    if any(map(_is_marked, [fs] * len(folders), folders)):
        return True
    if embedded_files(fs, folders):
        return False
    return any(_has(fs, folder, BACKUP, *(name + IMPORTED for name in FILE_NAMES)) for folder in folders)


def have_been_in_cluster(fs: FileSystem, folders: Sequence[str]) -> bool:
    """Whether these log directories belong to a broker that is, or was, in a cluster."""
    return belong_to_cluster(fs, folders) or any(_has(fs, folder, BACKUP) for folder in folders)


def embedded_files(fs: FileSystem, folders: Sequence[str]) -> list[str]:
    """Return the paths of the embedded store's files in log directories."""
    return [f"{folder}/{name}" for folder in folders for name in FILE_NAMES if exists(fs, f"{folder}/{name}")]


def leave_cluster(fs: FileSystem, folders: Sequence[str]) -> None:
    """Remove ``metadata.store=zookeeper`` from ``meta.properties`` in log directories, if it is there.

    Raises:
        OSError: a file cannot be written.
    """
    for folder in folders:
        if _is_marked(fs, folder):
            properties = _properties(fs, folder)
            del properties[checkpoints.METADATA_STORE]
            content = checkpoints.encode_properties(properties)
            replace_file(fs, f"{folder}/{checkpoints.META_PROPERTIES}", content)


def _is_marked(fs: FileSystem, folder: str) -> bool:
    return _properties(fs, folder).get(checkpoints.METADATA_STORE) == checkpoints.ZOOKEEPER


def _members(fs: FileSystem, folder: str) -> int:
    """Return the number of brokers with a log directory in `folder` (``broker-N``)."""
    with contextlib.suppress(OSError):
        names = (entry.name for entry in fs.entries(folder) if _MEMBER.fullmatch(entry.name))
        return sum(exists(fs, f"{folder}/{name}/{checkpoints.META_PROPERTIES}") for name in names)
    return 0


def _has_settings(fs: FileSystem, folder: str) -> bool:
    """Whether `folder` has the settings of several brokers: it is the first one of their log.dirs."""
    return any(_SETTINGS.fullmatch(entry.name) for entry in fs.entries(folder))


def _properties(fs: FileSystem, folder: str) -> dict[str, str]:
    with contextlib.suppress(OSError, ValueError):
        return checkpoints.decode_properties(read_file(fs, f"{folder}/{checkpoints.META_PROPERTIES}"))
    return {}


def _has(fs: FileSystem, folder: str, *names: str) -> bool:
    with contextlib.suppress(OSError):
        return not {entry.name for entry in fs.entries(folder)}.isdisjoint(names)
    return False
