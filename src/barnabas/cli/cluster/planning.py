"""Decides which brokers a start of a cluster runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count as numbers_from

import click

from barnabas.base.environment.os_filesystem import OsFileSystem
from barnabas.base.text import quoted
from barnabas.broker.metadata.folders import embedded_files
from barnabas.cli.cluster.folder import ClusterFolder, ClusterFolderError, Layout, ids_of


def plan(
    folder: ClusterFolder,
    brokers: int | None,
    host: str,
    first_port: int | None,
    zookeeper: str | None,
    racks: Sequence[str],
) -> Layout:
    """Return the brokers to run: the brokers of the folder's last start, and new brokers up to `brokers`.

    Args:
        brokers: number of brokers; by default as many as exist, or 3 if there are none.
        host: host of the listeners.
        first_port: port of broker 1, with the ports that follow for the others; 0 means any unused ports. By
            default, existing brokers keep their addresses, and new ones use the ports from 9092 (broker 1)
            on, without those of existing brokers.
        zookeeper: address of a ZooKeeper. None means the ZooKeeper of the folder's last start. In a folder
            without a cluster, None means that the cluster runs its own ZooKeeper.
        racks: one rack for each broker; empty to leave the racks unchanged.

    Raises:
        ClusterFolderError: the options do not fit the folder's cluster, or that cluster already runs.
        click.UsageError: `racks` does not have one name for each broker.
    """
    folder.require_free()
    before = folder.layout()
    if before is not None and before.is_embedded:
        before = _moved(folder, before, zookeeper)
    count = brokers or (len(before.addresses) if before is not None else 3)
    if before is not None and count < len(before.addresses):
        raise ClusterFolderError(
            f"{folder.path} has {len(before.addresses)} brokers: start it with --brokers "
            f"{len(before.addresses)}, or choose another folder by --data"
        )
    if before is not None and zookeeper not in (None, before.zookeeper):
        raise ClusterFolderError(
            f"the cluster in {folder.path} has its metadata in the ZooKeeper at {before.zookeeper}: "
            "remove --zookeeper, or choose another folder by --data"
        )
    if racks and (len(racks) != count or not all(rack.strip() for rack in racks)):
        raise click.UsageError(f"--racks {quoted(','.join(racks))}: name one for each of {count} brokers")
    layout = before or Layout(zookeeper=zookeeper, is_own_zookeeper=zookeeper is None)
    ids = ids_of(layout.addresses, count)
    taken = {address.rpartition(":")[2] for address in layout.addresses.values()}
    for position, broker in enumerate(ids):
        if first_port is not None:
            layout.addresses[broker] = f"{host}:{first_port + position if first_port else 0}"
        elif broker not in layout.addresses:
            port = next(port for port in numbers_from(9092 + position) if str(port) not in taken)
            taken.add(str(port))
            layout.addresses[broker] = f"{host}:{port}"
    if racks:
        layout.racks = dict(zip(ids, racks, strict=True))
    return layout


def _moved(folder: ClusterFolder, before: Layout, zookeeper: str | None) -> Layout:
    """Return the layout `before` with `zookeeper` in place of the embedded store.

    The brokers were started by `barnabas start --brokers`. The user must have moved their metadata to the
    ZooKeeper.

    Args:
        folder: folder of the brokers.
        before: the layout with the embedded store.
        zookeeper: address of the ZooKeeper from --zookeeper; None without this option.

    Raises:
        ClusterFolderError: `zookeeper` is None, or the metadata is still in the folder.
    """
    name = str(folder.path)
    directories = " ".join([name, *before.more_log_dirs])
    if zookeeper is None:
        raise ClusterFolderError(
            f"the brokers of {name} need no ZooKeeper: start them with `barnabas start --data {name}`, or "
            f"move them to one by `barnabas cluster import {directories} --zookeeper HOST:PORT/CHROOT`, and "
            "name it by --zookeeper"
        )
    if embedded_files(OsFileSystem(), list(map(str, folder.log_dirs))):
        raise ClusterFolderError(
            f"the metadata of {name} is not in a ZooKeeper yet: move it there with `barnabas cluster import "
            f"{directories} --zookeeper {zookeeper}`"
        )
    return Layout(
        before.addresses,
        before.racks,
        zookeeper,
        is_own_zookeeper=False,
        more_log_dirs=before.more_log_dirs,
    )
