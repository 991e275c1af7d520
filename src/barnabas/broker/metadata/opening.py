"""Opens the store that the setting ``metadata.store`` selects."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from functools import partial
from random import Random

from barnabas.base.environment.environment import Environment
from barnabas.base.environment.filesystem import FileSystem, exists
from barnabas.base.environment.randomness import new_uuid
from barnabas.base.errors import ConfigError
from barnabas.base.types import topic_id_to_str
from barnabas.broker.config import BrokerConfig
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.copies import FILE_NAMES
from barnabas.broker.metadata.embedded import EmbeddedStore
from barnabas.broker.metadata.features import HIGHEST
from barnabas.broker.metadata.folders import belong_to_cluster, check_alone, cluster_of
from barnabas.broker.metadata.importing import check_imported
from barnabas.broker.metadata.reconnection import persistently
from barnabas.broker.metadata.store import Create, MetadataStore, NodeExistsError, StoreUnavailableError
from barnabas.broker.metadata.zookeeper.address import parse_address
from barnabas.broker.metadata.zookeeper.tls import check_tls, tls_context
from barnabas.broker.storage import checkpoints

_PARTITION_FOLDER = re.compile(r"[a-zA-Z0-9._-]{1,249}-[0-9]{1,10}")


async def open_store(config: BrokerConfig, environment: Environment) -> MetadataStore:
    """Open the store that the settings select. If the store has no cluster, create a new cluster in it.

    Raises:
        ConfigError: settings are invalid or contradict one another; or there is no cluster at
            ``zookeeper.connect``, but the log directories belong to a broker of a cluster.
        StoreUnavailableError: the store cannot be opened. The text of the error says what to do.
    """
    check_store(config)
    store = await _open(config, environment)
    try:
        if config.zookeeper_connect is not None or environment.open_store is not None:
            await persistently(store, lambda: check_not_lost(store, environment.filesystem, config.log_dirs))
        await persistently(store, lambda: prepare(store, environment.random))
    except BaseException:
        await store.close()
        raise
    return store


def check_store(config: BrokerConfig) -> None:
    """Raise ConfigError if settings of the metadata store are invalid or contradict one another."""
    connect = config.zookeeper_connect
    if config.metadata_store == "zookeeper" and not connect:
        raise ConfigError(
            "metadata.store=zookeeper needs zookeeper.connect: set it to HOST:PORT,HOST:PORT/chroot"
        )
    digest = config.zookeeper_digest
    if digest is not None and not all(digest.partition(":")[::2]):
        raise ConfigError("zookeeper.digest cannot be used: write USER:PASSWORD")
    check_tls(config)
    if connect is None:
        return
    if config.metadata_store not in (None, "zookeeper"):
        raise ConfigError(
            f"metadata.store={config.metadata_store} contradicts zookeeper.connect={connect}: remove one"
        )
    parse_address(connect)
    if config.zookeeper_set_acl and digest is None:
        raise ConfigError(
            "zookeeper.set.acl=true needs brokers that authenticate with ZooKeeper: set zookeeper.digest to "
            "USER:PASSWORD, the same on all brokers"
        )


async def _open(config: BrokerConfig, environment: Environment) -> MetadataStore:
    if environment.open_store is not None:
        store: MetadataStore = await environment.open_store()
        return store
    if config.zookeeper_connect is not None:
        from barnabas.broker.metadata.zookeeper.store import (
            ZooKeeperStore,  # imports kazoo, which takes a while
        )

        check_imported(environment.filesystem, config.log_dirs)
        connection_timeout = config.zookeeper_connection_timeout_ms
        return await ZooKeeperStore.open(
            parse_address(config.zookeeper_connect),
            session_timeout=config.zookeeper_session_timeout_ms / 1000,
            connection_timeout=None if connection_timeout is None else connection_timeout / 1000,
            max_in_flight=config.zookeeper_max_in_flight_requests,
            set_acl=config.zookeeper_set_acl,
            auth=[("digest", config.zookeeper_digest)] if config.zookeeper_digest is not None else [],
            tls=partial(tls_context, config) if config.zookeeper_ssl_client_enable else None,
        )
    if config.metadata_store == "memory":
        return EmbeddedStore()
    folders = config.log_dirs
    fs = environment.filesystem
    check_alone(fs, folders)
    return await EmbeddedStore.open(environment, *folders, before_new=lambda: check_unused(fs, folders))


async def prepare(store: MetadataStore, random: Random) -> str:
    """Create the permanent nodes that the store lacks, and return the id of the cluster in the store.

    If the store has no cluster yet, create one, whose id `random` chooses.

    Raises:
        StoreError: the store cannot be read or written.
    """
    node = await store.exists(znodes.CLUSTER_ID)
    if node is not None:
        await _make_missing(store)
    else:
        cluster_id = topic_id_to_str(new_uuid(random).bytes)
        nodes = [Create(folder) for folder in znodes.FOLDERS]
        nodes.append(Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(cluster_id)))
        nodes.append(Create(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(0)))
        nodes.append(Create(znodes.BROKER_EPOCHS, znodes.encode_broker_epochs({})))
        nodes.append(Create(znodes.FEATURES, znodes.encode_features(dict(HIGHEST))))
        try:
            await store.multi(nodes)
        except NodeExistsError:  # another broker was first
            node = await store.get(znodes.CLUSTER_ID)
        else:
            return cluster_id
    return znodes.decoded(znodes.CLUSTER_ID, znodes.decode_cluster_id, node.data)


async def _make_missing(store: MetadataStore) -> None:
    """Create the nodes in `znodes.FOLDERS` that are missing. An earlier version of Barnabas created fewer."""
    needed = [Create(folder) for folder in znodes.FOLDERS]  # other nodes hold what live brokers may know
    for create, node in zip(needed, await store.read([each.path for each in needed]), strict=True):
        if node is None:
            with contextlib.suppress(NodeExistsError):  # another broker was first
                await store.multi([create])


async def check_not_lost(store: MetadataStore, fs: FileSystem, folders: Sequence[str]) -> None:
    """Reject a store without a cluster if a broker of a cluster has used the log directories.

    With a new cluster, the data in these directories would belong to no topic.

    Raises:
        ConfigError: the store has no cluster, and a broker has used one of `folders`.
    """
    if await store.exists(znodes.CLUSTER_ID) is not None:
        return
    for folder in folders:
        with contextlib.suppress(OSError):
            if exists(fs, f"{folder}/{checkpoints.META_PROPERTIES}"):
                raise ConfigError(
                    f"there is no cluster at zookeeper.connect, and {folder} belongs to a broker of a "
                    "cluster: correct the setting, or have `barnabas cluster restore` make the cluster again"
                )


def check_unused(fs: FileSystem, folders: Sequence[str]) -> None:
    """Reject a new embedded store in log directories that have a broker's data.

    With a new store, this data would belong to no topic.

    Raises:
        StoreUnavailableError: one of `folders` has a broker's data.
    """
    for folder in folders:
        try:
            names = sorted(entry.name for entry in fs.entries(folder))
        except OSError:
            continue  # what cannot be read is reported when the logs are opened
        held = [
            name
            for name in names
            if _PARTITION_FOLDER.fullmatch(name)
            and exists(fs, f"{folder}/{name}/{checkpoints.PARTITION_METADATA}")
        ]
        if held or checkpoints.META_PROPERTIES in names:
            if (cluster := cluster_of(fs, folders)) is not None:
                raise StoreUnavailableError(
                    f"{folder} has the data of one of the brokers in {cluster}: start them together, with "
                    f"`barnabas start --data {cluster}`"
                )
            if belong_to_cluster(fs, folders):
                raise StoreUnavailableError(
                    f"the metadata of {folder} is in ZooKeeper: set zookeeper.connect to where it is"
                )
            more = ", ..." if held[3:] else ""
            what = f"the partitions {', '.join(held[:3])}{more}" if held else checkpoints.META_PROPERTIES
            raise StoreUnavailableError(
                f"{folder} holds {what}, but the metadata that belongs to it is gone: put {FILE_NAMES[0]} "
                "back from a backup, or have `barnabas log repair` rebuild it from the data folders"
            )
