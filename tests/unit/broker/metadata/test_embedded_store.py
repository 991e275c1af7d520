"""The files of the embedded store: the data that survives a crash, and the processes that may open them."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from barnabas.base.environment.environment import Environment
from barnabas.broker.metadata import journal
from barnabas.broker.metadata.embedded import EmbeddedStore
from barnabas.broker.metadata.store import (
    Create,
    NodeExistsError,
    NoNodeError,
    Set,
    StoreNode,
    StoreUnavailableError,
)


def test_nodes_versions_and_numbers_survive_a_restart(tmp_path: Path) -> None:
    async def write() -> int:
        store = await EmbeddedStore.open(Environment.of_system(), tmp_path)
        await store.multi([Create("/a"), Create("/a/b", b"one")])
        await store.set("/a/b", b"two")
        created = (await store.get("/a/b")).created
        await store.close()
        return created

    async def read(created: int) -> None:
        store = await EmbeddedStore.open(Environment.of_system(), tmp_path)
        node = await store.get("/a/b")
        assert (node.data, node.version, node.created) == (b"two", 1, created)
        assert await store.children("/a") == ["b"]
        await store.create("/new")
        assert (await store.get("/new")).created > created
        await store.close()

    asyncio.run(read(asyncio.run(write())))


def test_ephemeral_nodes_are_gone_after_a_restart_and_numbers_still_grow(tmp_path: Path) -> None:
    async def register() -> int:
        store = await EmbeddedStore.open(Environment.of_system(), tmp_path)
        await store.create("/me", ephemeral=True)
        created = (await store.get("/me")).created
        await store.close()
        return created

    async def scenario() -> None:
        first = await register()
        assert await register() > first

    asyncio.run(scenario())


def test_what_was_acknowledged_is_in_the_file_without_a_close(tmp_path: Path) -> None:
    async def crash() -> None:
        store = await EmbeddedStore.open(Environment.of_system(), tmp_path)
        await store.create("/kept", b"x")
        # a copy of the files is what a process killed here would leave behind
        shutil.copytree(tmp_path, tmp_path / "copy")
        await store.close()

    async def read() -> None:
        store = await EmbeddedStore.open(Environment.of_system(), tmp_path / "copy")
        assert (await store.get("/kept")).data == b"x"
        await store.close()

    asyncio.run(crash())
    asyncio.run(read())


def test_second_opener_gets_one_clear_line(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await EmbeddedStore.open(Environment.of_system(), tmp_path)
        with pytest.raises(StoreUnavailableError, match="in use by another broker"):
            await EmbeddedStore.open(Environment.of_system(), tmp_path)
        await store.close()

    asyncio.run(scenario())


def test_write_that_fails_on_disk_is_taken_back_and_later_ones_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        store = await EmbeddedStore.open(Environment.of_system(), tmp_path)
        heard: list[str] = []
        await store.watch("/", lambda event, path: heard.append(path))
        with monkeypatch.context() as patch:
            patch.setattr(store._tree._disk[0], "commit", _full_disk)
            with pytest.raises(StoreUnavailableError, match="disk is full"):
                await store.create("/a")
        with pytest.raises(NoNodeError):
            await store.get("/a")
        assert heard == []
        await store.create("/a")
        assert heard == ["/a"]
        await store.close()

    asyncio.run(scenario())


def _full_disk(*_: object) -> None:
    raise StoreUnavailableError("metadata-1.journal cannot be written: the disk is full")


def test_no_write_is_rejected_because_of_another_one_that_the_disk_did_not_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        store = await EmbeddedStore.open(Environment.of_system(), tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(store._tree._disk[0], "commit", _full_disk)
            outcomes = await asyncio.gather(
                store.create("/a"), store.create("/a"), store.set("/b", b""), return_exceptions=True
            )
        assert [type(each) for each in outcomes] == [StoreUnavailableError] * 3
        await store.create("/a")
        with pytest.raises(NodeExistsError):
            await store.create("/a")
        await store.close()

    asyncio.run(scenario())


def test_writes_at_once_share_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> int:
        store = await EmbeddedStore.open(Environment.of_system(), tmp_path)
        commits = 0
        write = store._tree._disk[0].commit

        def counted(*arguments: object) -> None:
            nonlocal commits
            commits += 1
            write(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(store._tree._disk[0], "commit", counted)
        await asyncio.gather(*(store.create(f"/{number}") for number in range(100)))
        assert len(await store.children("/")) == 100
        await store.close()
        return commits

    assert asyncio.run(scenario()) <= 3


def test_restarts_do_not_let_the_journal_grow(tmp_path: Path) -> None:
    names = [f"/{number}" for number in range(400)]

    async def restart() -> None:
        store = await EmbeddedStore.open(Environment.of_system(), tmp_path)
        await store.multi([Set(name, b"x" * 300) for name in names])
        await store.close()

    async def scenario() -> int:
        store = await EmbeddedStore.open(Environment.of_system(), tmp_path)
        await store.multi([Create(name, b"x" * 300) for name in names])
        await store.close()
        for _ in range(20):
            await restart()
        return (tmp_path / "metadata-1.journal").stat().st_size

    assert asyncio.run(scenario()) < 5 * 400 * 330


def test_a_large_snapshot_is_encoded_in_steps_between_which_other_threads_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = []
    encode = journal._encode

    def measured(value: object) -> str:
        text = encode(value)
        sizes.append(len(text))
        return text

    monkeypatch.setattr(journal, "_encode", measured)
    nodes = {f"/{number}": StoreNode(b"x" * 100, 0, number) for number in range(1000)}
    content, _ = journal.encode_snapshot("id", 1, 1, nodes)
    assert journal.decode(content).nodes == nodes
    assert max(sizes) < 200  # one call of the encoder runs to its end before any other thread does


def test_a_large_transaction_is_applied_in_steps_and_seen_only_as_a_whole(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await EmbeddedStore.open(Environment.of_system(), tmp_path)
        told: list[str] = []
        await store.watch("/", lambda _event, path: told.append(path))
        writing = asyncio.create_task(
            store.multi([Create("/a"), *(Create(f"/a/{number}") for number in range(5000))])
        )
        seen = []
        turns = 0
        while not writing.done():
            turns += 1
            reading = asyncio.create_task(store.exists("/a/4999"))
            await asyncio.sleep(0)
            if reading.done():
                seen.append(reading.result())
            else:
                reading.cancel()
        assert turns > 15
        assert not any(node is None for node in seen[1:]), "who reads meanwhile waits"
        assert len(told) == 5001
        assert len(await store.children("/a")) == 5000
        await store.close()

    asyncio.run(scenario())


def test_a_large_transaction_that_is_refused_at_its_end_leaves_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await EmbeddedStore.open(Environment.of_system(), tmp_path)
        creations = [Create("/a"), *(Create(f"/a/{number}") for number in range(2000))]
        with pytest.raises(NoNodeError):
            await store.multi([*creations, Set("/missing", b"")])
        assert await store.exists("/a") is None
        await store.close()

    asyncio.run(scenario())
