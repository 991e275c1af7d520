"""Backs up a cluster's metadata to a file, and restores a store from it.

The file is text with one JSON value a line: first a header, then ``["path", "data"]`` for each node. The last
line is ``{"crc32": "..."}``, the checksum of all lines before it. The file has everything that users decided:
topics with their ids and replicas, settings, users, features, pending deletions. It does not have leaders and
ISRs, which change often.
When all replicas of a partition run, a restored cluster elects the replica with the furthest log (KIP-966).
So a restore of an old backup loses no acknowledged record.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from barnabas.base.environment.filesystem import FileSystem
from barnabas.base.types import NO_BROKER
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.batches import batches
from barnabas.broker.metadata.image import PartitionState
from barnabas.broker.metadata.store import (
    Create,
    MetadataStore,
    NoNodeError,
    Operation,
    Set,
    StoreUnavailableError,
)
from barnabas.broker.storage.damage import read_small_file

#: in a log directory of each broker of a cluster
FILE_NAME = "barnabas-metadata-backup"
#: the most controllers that may have been elected since the file was written
_CONTROLLERS = 1000
#: leader epochs of one partition for each controller: no epoch from before a restore comes again
_LEADER_EPOCHS = 1000
#: the most producer ids that may have been granted since the file was written
_PRODUCER_IDS = 2**32
#: the nodes that end with a session, and the admitted broker epochs
_TRANSIENT = (znodes.BROKER_IDS, znodes.BROKER_EPOCHS, znodes.CONTROLLER)


class BackupError(ValueError):
    """The bytes are not a backup, or are damaged."""


class Backup(NamedTuple):
    """The metadata of a cluster at one moment, without registrations, leaders and ISRs."""

    cluster_id: str
    #: the time of the backup, in milliseconds since 1970, by the clock of the process that took it
    taken_ms: int
    #: the controller epoch at the time of the backup
    controller_epoch: int
    #: the content of each node, as text, by the node's path
    nodes: Mapping[str, str]

    @property
    def age(self) -> tuple[int, int]:
        """Sort key. Of two backups of a cluster, the later one has the larger key."""
        return (self.controller_epoch, self.taken_ms)

    @property
    def topics(self) -> list[str]:
        """Sorted names of the topics."""
        start = f"{znodes.TOPICS}/"
        return sorted(path.removeprefix(start) for path in self.nodes if path.startswith(start))


def is_kept(path: str) -> bool:
    """Whether a backup contains the node at `path`.

    Backups leave out the states of partitions, the registrations and epochs of brokers, and the controller.
    """
    if path.startswith(f"{znodes.TOPICS}/"):
        return "/" not in path.removeprefix(f"{znodes.TOPICS}/")
    return not any(path == each or path.startswith(f"{each}/") for each in _TRANSIENT)


async def back_up(store: MetadataStore, now_ms: int) -> Backup:
    """Read the nodes of the store, and return a backup of them. `now_ms` is the time of the backup.

    Raises:
        StoreUnavailableError: there is no cluster in the store, or the store fails.
    """
    paths = [path async for path in _kept_paths(store, "")]
    found = await store.read(paths)
    return backup_of({path: node.data for path, node in zip(paths, found, strict=True) if node}, now_ms)


def backup_of(nodes: Mapping[str, bytes], now_ms: int) -> Backup:
    """Make a backup of nodes (data by path). Raises StoreUnavailableError if the cluster's id is missing."""
    if znodes.CLUSTER_ID not in nodes:
        raise StoreUnavailableError("there is no cluster: name the right ZooKeeper, chroot or folder")
    return Backup(
        znodes.decoded(znodes.CLUSTER_ID, znodes.decode_cluster_id, nodes[znodes.CLUSTER_ID]),
        now_ms,
        znodes.decoded(
            znodes.CONTROLLER_EPOCH,
            znodes.decode_controller_epoch,
            nodes.get(znodes.CONTROLLER_EPOCH, b"0"),
        ),
        {path: data.decode() for path, data in nodes.items()},
    )


async def _kept_paths(store: MetadataStore, path: str) -> AsyncIterator[str]:
    for name in await _children(store, path or "/"):
        child = f"{path}/{name}"
        if child == "/zookeeper" or not is_kept(child):
            continue
        yield child
        if not child.startswith(f"{znodes.TOPICS}/"):
            async for below in _kept_paths(store, child):
                yield below


async def _children(store: MetadataStore, path: str) -> Sequence[str]:
    try:
        return await store.children(path)
    except NoNodeError:
        return ()


def encode(backup: Backup) -> Iterator[bytes]:
    """Yield the lines of the backup file."""
    checksum = 0
    head = {
        "barnabas-metadata-backup": 1,
        "cluster": backup.cluster_id,
        "taken_ms": backup.taken_ms,
        "controller_epoch": backup.controller_epoch,
        "nodes": len(backup.nodes),
    }
    lines: Iterable[object] = (head, *sorted(backup.nodes.items()))
    for value in lines:
        line = json.dumps(value, ensure_ascii=False).encode() + b"\n"
        checksum = zlib.crc32(line, checksum)
        yield line
    yield json.dumps({"crc32": f"{checksum:08x}"}).encode() + b"\n"


def decode(data: bytes) -> Backup:
    """Parse the content of a backup file. Raises BackupError if it is damaged or of another version."""
    body, _, last = data.rstrip(b"\n").rpartition(b"\n")
    try:
        checksum = json.loads(last)["crc32"]
        if checksum != f"{zlib.crc32(body + chr(10).encode()):08x}":
            raise BackupError("its checksum is wrong")
        head, *nodes = map(json.loads, body.split(b"\n"))
        if head["barnabas-metadata-backup"] != 1 or head["nodes"] != len(nodes):
            raise BackupError("it has the format of another version")
        return Backup(head["cluster"], head["taken_ms"], head["controller_epoch"], dict(nodes))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, BackupError):
            raise
        raise BackupError(f"it is not a backup of a cluster's metadata ({error})") from error


def read_backup(fs: FileSystem, path: str) -> Backup:
    """Return the backup in a file. If `path` is a log directory of a broker, read the backup file in it.

    Raises:
        BackupError: the file is not a backup.
        OSError: the file cannot be read.
    """
    try:
        fs.entries(path)
        file = f"{path}/{FILE_NAME}"
    except OSError:
        file = path
    try:
        return decode(read_small_file(fs, file))
    except ValueError as error:
        raise BackupError(f"{path}: {error}") from error


async def restore(backup: Backup, store: MetadataStore) -> None:
    """Write a backup to a store that has no cluster, or a cluster without topics and brokers.

    This function writes the cluster's id last, so that an interrupted restore can be repeated. It raises the
    controller epoch, leader epochs and producer ids, so that none is used twice. No broker should run.

    Raises:
        StoreUnavailableError: the store has a cluster with topics or brokers, or the store fails.
    """
    await _check_empty(store)
    operations: list[Operation] = []
    planned = list(_nodes_of(backup))
    for (path, data), there in zip(planned, await store.read([path for path, _ in planned]), strict=True):
        if there is None:
            operations.append(Create(path, data))
        elif there.data != data:
            operations.append(Set(path, data))
    await asyncio.gather(*(store.multi(batch) for batch in batches(operations)))
    identity = backup.nodes[znodes.CLUSTER_ID].encode()
    if await store.exists(znodes.CLUSTER_ID) is None:
        await store.create(znodes.CLUSTER_ID, identity)
    else:
        await store.set(znodes.CLUSTER_ID, identity)


async def _check_empty(store: MetadataStore) -> None:
    if await store.exists(znodes.CLUSTER_ID) is None:
        return
    if await _children(store, znodes.BROKER_IDS) or await _children(store, znodes.TOPICS):
        raise StoreUnavailableError(
            "there is a cluster with topics or brokers already: stop its brokers, and name another chroot"
        )


def _nodes_of(backup: Backup) -> Iterator[tuple[str, bytes]]:
    """Yield (path, data) for each node of the restored store, parents before their children."""
    nodes = {path: data.encode() for path, data in backup.nodes.items() if path != znodes.CLUSTER_ID}
    controller_epoch = backup.controller_epoch + _CONTROLLERS
    nodes[znodes.CONTROLLER_EPOCH] = znodes.encode_controller_epoch(controller_epoch)
    nodes[znodes.BROKER_EPOCHS] = znodes.encode_broker_epochs({})
    block = nodes.get(znodes.PRODUCER_ID_BLOCK)
    last = -1
    if block is not None:
        last = znodes.decoded(znodes.PRODUCER_ID_BLOCK, znodes.decode_producer_id_block, block)[1]
    last += _PRODUCER_IDS
    nodes[znodes.PRODUCER_ID_BLOCK] = znodes.encode_producer_id_block(NO_BROKER, last, last)
    nodes.update((folder, nodes.get(folder, b"")) for folder in znodes.FOLDERS)
    topics = []
    for path in sorted(nodes):  # a parent's path is the beginning of its children's
        yield path, nodes[path]
        if path.startswith(f"{znodes.TOPICS}/"):
            topics.append(path)
    for path in topics:
        name = path.removeprefix(f"{znodes.TOPICS}/")
        yield znodes.partitions(name), b""
        assignment = znodes.decoded(path, znodes.decode_topic, nodes[path])
        for number, replicas in enumerate(assignment.replicas):
            yield znodes.partition(name, number), b""
            # The ISR is not known: the replica whose log reaches furthest will lead.
            epoch = controller_epoch * _LEADER_EPOCHS
            state = PartitionState(replicas, (), NO_BROKER, epoch, last_known_elr=replicas)
            yield znodes.partition_state(name, number), znodes.encode_partition_state(state, 0)
