"""Moves a broker's embedded metadata store to ZooKeeper, so that other brokers can join the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from barnabas.base.environment.environment import Environment
from barnabas.base.environment.filesystem import FileSystem, exists
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.batches import batches
from barnabas.broker.metadata.copies import FILE_NAMES
from barnabas.broker.metadata.embedded import EmbeddedStore
from barnabas.broker.metadata.folders import (
    IMPORTED,
    SHARED,
    belong_to_cluster,
    embedded_files,
    have_been_in_cluster,
)
from barnabas.broker.metadata.store import Create, MetadataStore, Operation, Set, StoreUnavailableError
from barnabas.broker.metadata.tree import ROOT


async def import_embedded(environment: Environment, folders: Sequence[str], target: MetadataStore) -> str:
    """Copy the embedded store in a stopped broker's log directories to `target`. Rename the store's files.

    The function writes the cluster's id last. Until then `target` has no cluster, and an interrupted import
    can be repeated. A complete import cannot be repeated, because `target` may have changed since. Versions
    of nodes and transaction numbers start again in `target`.

    Args:
        environment: environment of this process.
        folders: log directories of the broker, in the order of its ``log.dirs``.
        target: an empty store.

    Returns:
        The cluster's id.

    Raises:
        StoreUnavailableError: there is no embedded store, a broker uses it, the target has another cluster,
            or one of the stores fails.
    """
    fs = environment.filesystem
    source = await EmbeddedStore.open(environment, *folders, before_new=lambda: check_embedded(fs, folders))
    try:
        identity = await source.get(znodes.CLUSTER_ID)
        cluster_id = znodes.decoded(znodes.CLUSTER_ID, znodes.decode_cluster_id, identity.data)
        there = await target.exists(znodes.CLUSTER_ID)
        if there is None:
            await _copy(source, target)
            await target.create(znodes.CLUSTER_ID, identity.data)
        else:
            other = znodes.decoded(znodes.CLUSTER_ID, znodes.decode_cluster_id, there.data)
            if other != cluster_id:
                raise StoreUnavailableError(f"there is another cluster, {other}: name another chroot")
    finally:
        await source.close()
    thread = environment.blocking.pool("import", 1)
    try:
        await thread.run(_put_away, fs, folders)
    finally:
        await thread.close()
    return cluster_id


def check_embedded(fs: FileSystem, folders: Sequence[str]) -> None:
    """Raise StoreUnavailableError if none of `folders` has an embedded store."""
    if not embedded_files(fs, folders):
        for folder in folders:
            if exists(fs, f"{folder}/{FILE_NAMES[0]}{IMPORTED}"):
                how = "its broker with zookeeper.connect set to where it is"
                if exists(fs, f"{folder}/{SHARED}"):
                    command = f"barnabas cluster start --data {folder} --zookeeper HOST:PORT/CHROOT"
                    how = f"its brokers with `{command}`"
                raise StoreUnavailableError(
                    f"the metadata of {folder} was moved to ZooKeeper before: start {how}"
                )
        raise StoreUnavailableError(
            f"{', '.join(folders)} has no {FILE_NAMES[0]}: name the log.dirs of a broker without ZooKeeper"
        )


def check_lone(fs: FileSystem, folders: Sequence[str]) -> None:
    """Reject the import from log directories of a broker that is, or was, in a cluster.

    Raises:
        StoreUnavailableError: `folders` belong, or belonged, to a broker of a cluster.
    """
    if not have_been_in_cluster(fs, folders):
        return
    raise StoreUnavailableError(
        f"{', '.join(folders)} belongs to a broker of a cluster, whose metadata is in ZooKeeper: remove "
        f"{', '.join(embedded_files(fs, folders))}, and start the broker with zookeeper.connect set to where "
        "it is"
    )


def check_imported(fs: FileSystem, folders: Sequence[str]) -> None:
    """Reject the start of a broker with ZooKeeper if its log directories have an embedded store.

    Raises:
        StoreUnavailableError: one of `folders` has an embedded store.
    """
    for folder in folders:
        for name in FILE_NAMES:
            if not exists(fs, f"{folder}/{name}"):
                continue
            if belong_to_cluster(fs, folders):
                raise StoreUnavailableError(
                    f"{folder}/{name} does not belong to this broker, whose metadata is in ZooKeeper: remove "
                    "it, or have `barnabas log repair` move it aside"
                )
            if have_been_in_cluster(fs, folders):
                raise StoreUnavailableError(
                    f"{folder} has both {name}, which is that of a broker without ZooKeeper, and a backup of "
                    f"a cluster's metadata: remove {' and '.join(FILE_NAMES)} if the broker is one of the "
                    "cluster, else zookeeper.connect"
                )
            raise StoreUnavailableError(
                f"{folder}/{name} has the metadata of a broker without ZooKeeper: move it there with "
                "`barnabas cluster import`, or remove zookeeper.connect"
            )


async def _copy(source: MetadataStore, target: MetadataStore) -> None:
    paths = [path for path in await _below(source, ROOT) if path != znodes.CLUSTER_ID]
    operations: list[Operation] = []
    found = zip(paths, await source.read(paths), await target.read(paths), strict=True)
    for path, node, there in found:
        assert node is not None
        if there is None:
            operations.append(Create(path, node.data))
        elif there.data != node.data:
            operations.append(Set(path, node.data))
    await asyncio.gather(*(target.multi(batch) for batch in batches(operations)))


async def _below(store: MetadataStore, path: str) -> list[str]:
    """Return the paths of all nodes below `path`, parents before their children."""
    found = []
    for name in await store.children(path):
        child = f"{path.rstrip('/')}/{name}"
        found += [child, *await _below(store, child)]
    return found


def _put_away(fs: FileSystem, folders: Sequence[str]) -> None:
    for folder in folders:
        for name in FILE_NAMES:
            if exists(fs, f"{folder}/{name}"):
                fs.rename(f"{folder}/{name}", f"{folder}/{name}{IMPORTED}")
                fs.sync_directory(folder)
