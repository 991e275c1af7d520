"""From the setting ``metadata.store`` to a store that is ready for use."""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Sequence
from pathlib import Path

from barnabas.config import BrokerConfig
from barnabas.metadata import znodes
from barnabas.metadata.copies import FILE_NAMES
from barnabas.metadata.embedded import EmbeddedStore
from barnabas.metadata.memory import MemoryStore
from barnabas.metadata.store import Create, MetadataStore, NodeExistsError, StoreUnavailableError
from barnabas.storage import checkpoints
from barnabas.types import topic_id_to_str

_PARTITION_FOLDER = re.compile(r"[a-zA-Z0-9._-]{1,249}-[0-9]{1,10}")


async def open_store(config: BrokerConfig) -> MetadataStore:
    """The store that the settings name, with the nodes that are always there.

    Raises:
        StoreUnavailableError: it cannot be opened; the text says what to do.
    """
    store: MetadataStore
    if config.metadata_store == "memory":
        store = MemoryStore()
    else:
        folders = config.log_dirs
        store = await EmbeddedStore.open(*folders, before_new=lambda: check_unused(folders))
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


def check_unused(folders: Sequence[str]) -> None:
    """Refuse to begin anew where a broker has been: what it holds would belong to no topic.

    Raises:
        StoreUnavailableError: a broker's data lie in one of `folders`.
    """
    for folder in map(Path, folders):
        try:
            names = sorted(entry.name for entry in folder.iterdir())
        except OSError:
            continue  # what cannot be read is reported when the logs are opened
        held = [
            name
            for name in names
            if _PARTITION_FOLDER.fullmatch(name) and (folder / name / checkpoints.PARTITION_METADATA).exists()
        ]
        if held or checkpoints.META_PROPERTIES in names:
            more = ", ..." if held[3:] else ""
            what = f"the partitions {', '.join(held[:3])}{more}" if held else checkpoints.META_PROPERTIES
            raise StoreUnavailableError(
                f"{folder} holds {what}, but the metadata that belongs to it is gone: put {FILE_NAMES[0]} "
                "back from a backup, or have `barnabas log repair` make it anew from what lies there"
            )
