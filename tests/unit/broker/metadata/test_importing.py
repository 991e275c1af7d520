"""Moves the metadata of a single broker to a store that a cluster shares."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from simulation.memory_store import MemoryServer, MemoryStore

from barnabas.base.environment.environment import Environment
from barnabas.base.environment.os_filesystem import OsFileSystem
from barnabas.base.environment.randomness import system_random
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.embedded import EmbeddedStore
from barnabas.broker.metadata.importing import check_imported, import_embedded
from barnabas.broker.metadata.opening import check_unused, prepare
from barnabas.broker.metadata.store import Create, Operation, StoreUnavailableError

SYSTEM = Environment.of_system()


async def embedded(*folders: Path, topics: int = 3) -> str:
    """Create a store and close it. Return the id of its cluster."""
    for folder in folders:
        folder.mkdir(exist_ok=True)
    store = await EmbeddedStore.open(SYSTEM, *folders)
    cluster_id = await prepare(store, system_random())
    await store.multi([Create(znodes.topic(f"t{number}"), b"%d" % number) for number in range(topics)])
    await store.create(znodes.broker(1), b"x", ephemeral=True)
    await store.close()
    return cluster_id


def test_every_node_is_copied_and_the_files_are_put_away(tmp_path: Path) -> None:
    async def scenario() -> None:
        folders = [tmp_path / "one", tmp_path / "two"]
        cluster_id = await embedded(*folders, topics=500)
        target = MemoryStore()
        assert await import_embedded(SYSTEM, [str(folder) for folder in folders], target) == cluster_id
        assert znodes.decode_cluster_id((await target.get(znodes.CLUSTER_ID)).data) == cluster_id
        assert len(await target.children(znodes.TOPICS)) == 500
        assert (await target.get(znodes.topic("t7"))).data == b"7"
        assert await target.children(znodes.BROKER_IDS) == []
        assert (tmp_path / "one" / "metadata-1.journal.imported").exists()
        assert (tmp_path / "two" / "metadata-2.journal.imported").exists()
        assert not list(tmp_path.glob("*/*.journal"))

    asyncio.run(scenario())


def test_interrupted_import_is_completed_by_the_next_one(tmp_path: Path) -> None:
    class Interrupted(MemoryStore):
        async def multi(self, operations: Sequence[Operation]) -> list[int]:
            if any(operation.path == znodes.CLUSTER_ID for operation in operations):
                raise StoreUnavailableError("on purpose")
            return await super().multi(operations)

    async def scenario() -> None:
        cluster_id = await embedded(tmp_path)
        server = MemoryServer()
        with pytest.raises(StoreUnavailableError, match="on purpose"):
            await import_embedded(SYSTEM, [str(tmp_path)], Interrupted(server))
        assert (tmp_path / "metadata-1.journal").exists()
        target = MemoryStore(server)
        await target.set(znodes.topic("t1"), b"changed")
        assert await import_embedded(SYSTEM, [str(tmp_path)], target) == cluster_id
        assert (await target.get(znodes.topic("t1"))).data == b"1"

    asyncio.run(scenario())


def test_completed_import_is_not_repeated_over_what_has_changed_since(tmp_path: Path) -> None:
    async def scenario() -> None:
        await embedded(tmp_path)
        target = MemoryStore()
        await import_embedded(SYSTEM, [str(tmp_path)], target)
        await target.set(znodes.topic("t1"), b"changed")
        for name in ("metadata-1.journal", "metadata-2.journal"):
            (tmp_path / f"{name}.imported").rename(tmp_path / name)
        await import_embedded(SYSTEM, [str(tmp_path)], target)
        assert (await target.get(znodes.topic("t1"))).data == b"changed"
        assert not (tmp_path / "metadata-1.journal").exists()

    asyncio.run(scenario())


def test_store_of_another_cluster_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    async def scenario() -> None:
        await embedded(tmp_path)
        target = MemoryStore()
        other = await prepare(target, system_random())
        with pytest.raises(StoreUnavailableError, match=f"there is another cluster, {other}"):
            await import_embedded(SYSTEM, [str(tmp_path)], target)
        assert await target.children(znodes.TOPICS) == []
        assert (tmp_path / "metadata-1.journal").exists()

    asyncio.run(scenario())


def test_folder_without_a_store_and_one_in_use_are_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        with pytest.raises(StoreUnavailableError, match=r"has no metadata-1\.journal"):
            await import_embedded(SYSTEM, [str(tmp_path)], MemoryStore())
        assert list(tmp_path.glob("*.journal")) == []
        await embedded(tmp_path)
        used = await EmbeddedStore.open(SYSTEM, tmp_path)
        with pytest.raises(StoreUnavailableError, match="in use"):
            await import_embedded(SYSTEM, [str(tmp_path)], MemoryStore())
        await used.close()

    asyncio.run(scenario())


def test_broker_is_told_on_which_side_its_metadata_lie(tmp_path: Path) -> None:
    async def scenario() -> None:
        fs = OsFileSystem()
        await embedded(tmp_path)
        (tmp_path / "meta.properties").write_text("")
        with pytest.raises(StoreUnavailableError, match="barnabas cluster import"):
            check_imported(fs, [str(tmp_path)])
        await import_embedded(SYSTEM, [str(tmp_path)], MemoryStore())
        check_imported(fs, [str(tmp_path)])
        with pytest.raises(StoreUnavailableError, match=r"is in ZooKeeper: set zookeeper\.connect"):
            check_unused(fs, [str(tmp_path)])

    asyncio.run(scenario())
