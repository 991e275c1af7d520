"""Turns the folder of a lone broker into the folder of several brokers on one machine, and back.

The metadata's journals stay where they are, in the log directories. The lone broker's other files become the
files of broker N: they move to the folder ``broker-N`` in each log directory. Every step is a rename. In each
log directory, `meta.properties` moves last. If a conversion is interrupted, the next start continues it.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from barnabas.base.environment.environment import Environment
from barnabas.base.environment.filesystem import exists
from barnabas.base.environment.os_filesystem import OsFileSystem
from barnabas.base.types import BrokerId
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.backup import FILE_NAME as BACKUP
from barnabas.broker.metadata.copies import FILE_NAMES, LOCK_FILE
from barnabas.broker.metadata.embedded import EmbeddedStore
from barnabas.broker.metadata.folders import IMPORTED, embedded_files, leave_cluster
from barnabas.broker.metadata.store import Delete, MetadataStore, Operation, Set, StoreUnavailableError
from barnabas.broker.storage import checkpoints
from barnabas.cli.cluster.folder import ClusterFolder, ClusterFolderError

#: folder of the files during a conversion: no partition's folder has this name
_MOVING = "moving"
_OWN = re.compile(r"broker-\d+(\.log|\.toml|\.old\d*)")
_MEMBER = re.compile(r"broker-\d+")
#: files of the folder itself, and of the file system
_STAY = {"secure", ".lock", "cluster.json", "control.json", LOCK_FILE, _MOVING, "lost+found"}


def lone_broker_of(folder: ClusterFolder, configured: BrokerId) -> BrokerId | None:
    """Return the id of the lone broker whose files are in the folder; None if there are none.

    If the files do not contain the id, return `configured`, the ``node.id`` of the settings.
    """
    fs = OsFileSystem()
    for directory in folder.log_dirs:
        for root in (directory, directory / _MOVING):
            if (root / checkpoints.META_PROPERTIES).exists():
                with suppress(OSError, ValueError):
                    content = (root / checkpoints.META_PROPERTIES).read_bytes()
                    return int(checkpoints.decode_properties(content).get("node.id", configured))
                return configured
    is_new = not embedded_files(fs, list(map(str, folder.log_dirs))) or folder.layout() is not None
    return None if is_new else configured


def make_member(folder: ClusterFolder, broker: BrokerId) -> None:
    """Move the lone broker's files into the folders of `broker`.

    Raises ClusterFolderError if other files are already there.
    """
    fs = OsFileSystem()
    for directory in folder.log_dirs:
        names = [name for name in _names(directory) if not _stays(directory, name)]
        moving = directory / _MOVING
        if not names and not moving.exists():
            continue
        moving.mkdir(exist_ok=True)
        for name in _last(names, checkpoints.META_PROPERTIES):
            (directory / name).rename(moving / name)
        fs.sync_directory(str(moving))
        try:
            moving.rename(folder.log_dir_of(directory, broker))
        except OSError as error:
            raise ClusterFolderError(
                f"{folder.log_dir_of(directory, broker)} is in the way of the files of broker {broker} "
                f"({error.strerror}): move it away"
            ) from None
        fs.sync_directory(str(directory))


def make_lone(folder: ClusterFolder, broker: BrokerId, others: Collection[BrokerId]) -> None:
    """Move the files of `broker` out of its folders, so that it can run as a lone broker.

    The files move from the folder ``broker-N`` in each log directory into the log directory itself. The
    folders of `others` get another name. The layout of the cluster (`cluster.json`) is removed.

    Args:
        folder: folder of the cluster.
        broker: the broker that remains.
        others: all other brokers of the cluster; they must have no partitions (`require_drained`).

    Raises:
        ClusterFolderError: a log directory has no files of the broker. Its disk may not be mounted.
        OSError: a file cannot be moved. The next call continues.
    """
    fs = OsFileSystem()
    for directory in folder.log_dirs:
        places = (
            folder.log_dir_of(directory, broker),
            directory / _MOVING,
            directory / checkpoints.META_PROPERTIES,
        )
        if not any(place.exists() for place in places):
            rest = ",".join(str(each) for each in folder.log_dirs if each != directory)
            raise ClusterFolderError(
                f"{directory} has no files of broker {broker}: mount its disk; if it is lost, "
                f"add --set log.dirs={rest}"
            )
    retire(folder, others)
    for directory in folder.log_dirs:
        member, moving = folder.log_dir_of(directory, broker), directory / _MOVING
        if not moving.exists() and _is_member(member):
            member.rename(moving)
        if not moving.exists():
            continue
        for name in (".lock", BACKUP):  # of a broker in a cluster
            (moving / name).unlink(missing_ok=True)
        for name in _last(_names(moving), checkpoints.META_PROPERTIES):
            (moving / name).rename(directory / name)
        moving.rmdir()
        fs.sync_directory(str(directory))
    leave_cluster(fs, list(map(str, folder.log_dirs)))
    folder.remove_layout()


def retire(folder: ClusterFolder, brokers: Collection[BrokerId]) -> None:
    """Rename the folders of `brokers`, so that new brokers with these ids start empty.

    No partition may be left on these brokers (`require_drained`).
    """
    for directory in folder.log_dirs:
        for broker in brokers:
            member = folder.log_dir_of(directory, broker)
            if _is_member(member):
                member.rename(_free_name(member))


def require_drained(folder: ClusterFolder, brokers: Collection[BrokerId], kept: Collection[BrokerId]) -> None:
    """Check that `brokers` have no partitions, and remove these brokers from the metadata.

    Remove the broker epochs of `brokers`. Also remove `brokers` from the lists of brokers that still have
    files of deleted topics. Nothing else in the metadata changes.

    Args:
        folder: folder of the cluster. No other process may use its embedded store during this call.
        brokers: the brokers to remove.
        kept: the remaining brokers, for the message of the error.

    Raises:
        ClusterFolderError: one of `brokers` has a partition.
        StoreUnavailableError: the metadata cannot be read.
    """

    async def check() -> None:
        environment = Environment.of_system()
        store = await EmbeddedStore.open(environment, *folder.log_dirs, before_new=lambda: check_new(folder))
        try:
            await _forget(store, frozenset(brokers), kept)
        finally:
            await store.close()

    asyncio.run(check())


async def _forget(store: MetadataStore, brokers: frozenset[BrokerId], kept: Collection[BrokerId]) -> None:
    held: Counter[BrokerId] = Counter()
    most_replicas = 0
    topics = [znodes.topic(name) for name in await store.children(znodes.TOPICS)]
    for path, node in zip(topics, await store.read(topics), strict=True):
        if node is not None:
            for replicas in znodes.decoded(path, znodes.decode_topic, node.data).replicas:
                held.update(brokers.intersection(replicas))
                most_replicas = max(most_replicas, len(replicas))
    if held:
        broker, count = min(held.items())
        options = f"--brokers {','.join(map(str, sorted(kept)))}"
        if most_replicas > len(kept):
            options += f" --replication-factor {len(kept)}"
        raise ClusterFolderError(
            f"broker {broker} holds {count} partitions: start all brokers, have `barnabas topics reassign "
            f"plan {options} | barnabas topics reassign execute --wait -` move them, and try again"
        )
    operations: list[Operation] = []
    epochs = await store.exists(znodes.BROKER_EPOCHS)
    if epochs is not None:
        left = znodes.decoded(znodes.BROKER_EPOCHS, znodes.decode_broker_epochs, epochs.data)
        left = {broker: each for broker, each in left.items() if broker not in brokers}
        operations.append(Set(znodes.BROKER_EPOCHS, znodes.encode_broker_epochs(left)))
    deleted = [f"{znodes.DELETED_TOPICS}/{name}" for name in await store.children(znodes.DELETED_TOPICS)]
    for path, node in zip(deleted, await store.read(deleted), strict=True):
        if node is not None:
            kept = znodes.decoded(path, znodes.decode_deleted_topic, node.data) - brokers
            operations.append(Set(path, znodes.encode_deleted_topic(kept)) if kept else Delete(path))
    await store.multi(operations)


def check_new(folder: ClusterFolder) -> None:
    """Refuse to create an empty store in a folder that has brokers' data.

    Raises:
        StoreUnavailableError: the folder has data of brokers, but its metadata is lost or was moved to
            ZooKeeper.
    """
    fs = OsFileSystem()
    for directory in folder.log_dirs:
        if exists(fs, f"{directory}/{FILE_NAMES[0]}{IMPORTED}"):
            raise StoreUnavailableError(
                f"the metadata of {directory} was moved to ZooKeeper: start its brokers with `barnabas "
                f"cluster start --data {directory} --zookeeper HOST:PORT/CHROOT`"
            )
        members = [directory / name for name in _names(directory) if _is_member(directory / name)]
        held = [member for member in members if (member / checkpoints.META_PROPERTIES).exists()]
        if held or (directory / checkpoints.META_PROPERTIES).exists():
            sources = " ".join(map(str, sorted(held) or [directory]))
            raise StoreUnavailableError(
                f"{directory} has data of brokers, but the metadata that belongs to it is gone: put "
                f"{FILE_NAMES[0]} back from a backup, or rebuild it by `barnabas cluster restore {sources} "
                f"--data {directory}`"
            )


def _names(directory: Path) -> list[str]:
    try:
        return sorted(path.name for path in directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _last(names: Sequence[str], last: str) -> list[str]:
    return sorted(names, key=lambda name: (name == last, name))


def _stays(directory: Path, name: str) -> bool:
    """Whether an entry of a log directory does not belong to the lone broker."""
    path = directory / name
    is_journal = any(name.startswith(journal) for journal in FILE_NAMES) and not path.is_dir()
    return name in _STAY or is_journal or _OWN.fullmatch(name) is not None or _is_member(path)


def _is_member(path: Path) -> bool:
    """Whether a path is a broker's folder, and not the folder of a partition of a topic named "broker"."""
    is_partition = (path / checkpoints.PARTITION_METADATA).exists()
    return _MEMBER.fullmatch(path.name) is not None and path.is_dir() and not is_partition


def _free_name(path: Path) -> Path:
    number = 0
    while (free := path.with_name(f"{path.name}.old{number or ''}")).exists():
        number += 1
    return free
