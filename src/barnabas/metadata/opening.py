"""From the setting ``metadata.store`` to a store that is ready for use."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from pathlib import Path

from barnabas.config import BrokerConfig
from barnabas.metadata import znodes
from barnabas.metadata.embedded import EmbeddedStore
from barnabas.metadata.memory import MemoryStore
from barnabas.metadata.store import Create, MetadataStore, NodeExistsError, StoreUnavailableError
from barnabas.storage.filesystem import PRIVATE_FOLDER
from barnabas.types import topic_id_to_str

#: the embedded store's file, in the first of ``log.dirs``
FILE_NAME = "metadata.db"


async def open_store(config: BrokerConfig) -> MetadataStore:
    """The store that the settings name, with the nodes that are always there.

    Raises:
        StoreUnavailableError: it cannot be opened; the text says what to do.
    """
    store: MetadataStore
    if config.metadata_store == "memory":
        store = MemoryStore()
    else:
        folder = Path(config.log_dirs[0])
        try:
            await asyncio.to_thread(folder.mkdir, PRIVATE_FOLDER, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreUnavailableError(f"{folder} cannot be made: {error}") from error
        store = await EmbeddedStore.open(folder / FILE_NAME)
    await prepare(store)
    return store


async def prepare(store: MetadataStore) -> str:
    """Make a new store's permanent nodes, the cluster's id among them; the id, old or new."""
    node = await store.exists(znodes.CLUSTER_ID)
    if node is not None:
        await _make_missing_folders(store)
    else:
        cluster_id = topic_id_to_str(uuid.uuid4().bytes)
        nodes = [Create(folder) for folder in znodes.FOLDERS]
        nodes.append(Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(cluster_id)))
        nodes.append(Create(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(0)))
        try:
            await store.multi(nodes)
        except NodeExistsError:  # another broker was first
            node = await store.get(znodes.CLUSTER_ID)
        else:
            return cluster_id
    return znodes.decode_cluster_id(node.data)


async def _make_missing_folders(store: MetadataStore) -> None:
    """An earlier version may have made the store, with fewer folders."""
    for folder, node in zip(znodes.FOLDERS, await store.read(znodes.FOLDERS), strict=True):
        if node is None:
            with contextlib.suppress(NodeExistsError):  # another broker was first
                await store.multi([Create(folder)])
