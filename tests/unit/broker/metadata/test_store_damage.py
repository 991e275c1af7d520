"""After damage to one of the metadata's two copies, nothing is lost, and a start reports the damage."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from simulation.faulty_disk import FaultyDisk, PowerCut

from barnabas.base.environment.environment import Environment
from barnabas.base.environment.filesystem import Lock
from barnabas.base.environment.os_filesystem import OsFileSystem
from barnabas.base.environment.randomness import system_random
from barnabas.broker.metadata.copies import JournalCopies
from barnabas.broker.metadata.embedded import EmbeddedStore
from barnabas.broker.metadata.journal import encode_line
from barnabas.broker.metadata.opening import check_unused
from barnabas.broker.metadata.store import Create, StoreError, StoreNode, StoreUnavailableError
from barnabas.broker.metadata.tree import Change

COPIES = ("/d/metadata-1.journal", "/d/metadata-2.journal")
COMMITS = 5
#: `make test` tries one place of so many; each bit of a byte has its turn
SAMPLE = 7


async def contents(store: EmbeddedStore, path: str = "/") -> dict[str, tuple[bytes, int, int]]:
    node = await store.get(path)
    found = {path: (node.data, node.version, node.created)}
    for name in await store.children(path):
        found |= await contents(store, f"{path.rstrip('/')}/{name}")
    return found


def read(disk: FaultyDisk, *folders: str) -> dict[str, tuple[bytes, int, int]]:
    async def scenario() -> dict[str, tuple[bytes, int, int]]:
        store = await EmbeddedStore.open(
            replace(Environment.of_system(), filesystem=disk), *(folders or ("/d",))
        )
        try:
            return await contents(store)
        finally:
            await store.close()

    return asyncio.run(scenario())


def raw(disk: FaultyDisk, path: str) -> bytes:
    file = disk.open(path)
    try:
        return file.read_at(1 << 30, 0)
    finally:
        file.close()


def put(disk: FaultyDisk, path: str, content: bytes) -> None:
    file = disk.open(path, create=True)
    file.truncate(0)
    file.write_at([content], 0)
    file.sync()
    file.close()


class Filled:
    """The disk of a store, its nodes, and its files before the last commits."""

    def __init__(self, *folders: str) -> None:
        self.disk = FaultyDisk()
        self.folders = folders or ("/d",)
        self.older: dict[str, bytes] = {}
        asyncio.run(self._fill())
        self.expected = read(self.disk, *self.folders)

    async def _fill(self) -> None:
        store = await EmbeddedStore.open(
            replace(Environment.of_system(), filesystem=self.disk), *self.folders
        )
        await store.create("/topics")
        for number in range(COMMITS):
            await store.create(f"/topics/{number}", b"\x00\xff data %d" % number)
            if number == COMMITS - 3:
                self.older = {path: raw(self.disk, path) for path in COPIES if self.folders == ("/d",)}
        await store.set("/topics/1", b"changed")
        await store.delete("/topics/0")
        await store.close()


@pytest.fixture(params=COPIES, ids=["first copy", "second copy"])
def path(request: pytest.FixtureRequest) -> str:
    return request.param


def assert_healed(filled: Filled, path: str, caplog: pytest.LogCaptureFixture) -> None:
    """Check that a start finds all nodes and reports the damage, and that the next start finds no damage."""
    caplog.clear()
    assert read(filled.disk) == filled.expected
    assert [path] == [r.message.split()[0] for r in caplog.records if r.levelname == "WARNING"]
    caplog.clear()
    assert read(filled.disk) == filled.expected
    assert not caplog.records


def test_a_flipped_bit_anywhere_in_one_copy_is_healed(
    path: str, is_whole: bool, caplog: pytest.LogCaptureFixture
) -> None:
    filled = Filled()
    whole = raw(filled.disk, path)
    for place in range(0, len(whole), 1 if is_whole else SAMPLE):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << (place % 8)
        put(filled.disk, path, bytes(flipped))
        assert_healed(filled, path, caplog)


def test_a_cut_anywhere_in_one_copy_is_healed(
    path: str, is_whole: bool, caplog: pytest.LogCaptureFixture
) -> None:
    filled = Filled()
    whole = raw(filled.disk, path)
    last_line = whole[:-1].rindex(b"\n") + 1
    for size in {last_line, *range(0, len(whole), 1 if is_whole else SAMPLE)}:
        put(filled.disk, path, whole[:size])
        if size == last_line:  # as a crash between the two copies leaves it
            assert read(filled.disk) == filled.expected
        else:
            assert_healed(filled, path, caplog)


CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "zeroed": lambda whole: bytes(len(whole)),
    "zeroed at the end": lambda whole: whole[:-100] + bytes(100),
    "zeroed in the middle": lambda whole: whole[:300] + bytes(50) + whole[350:],
    "emptied": lambda whole: b"",
    "garbage behind": lambda whole: whole + b"x" * 1000,
    "its own last line again": lambda whole: whole + whole.splitlines(keepends=True)[-1],
    "a line taken out": lambda whole: b"".join(
        whole.splitlines(keepends=True)[:2] + whole.splitlines(True)[3:]
    ),
    "not UTF-8": lambda whole: b"\xff\xfe\x00" * 100,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_one_copy_that_is_otherwise_damaged_is_healed(
    path: str, change: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    filled = Filled()
    put(filled.disk, path, change(raw(filled.disk, path)))
    assert_healed(filled, path, caplog)


def test_a_deleted_copy_is_written_anew(path: str, caplog: pytest.LogCaptureFixture) -> None:
    filled = Filled()
    filled.disk.remove(path)
    assert_healed(filled, path, caplog)


def test_a_copy_set_back_to_an_older_state_is_healed(path: str, caplog: pytest.LogCaptureFixture) -> None:
    filled = Filled()
    put(filled.disk, path, filled.older[path])
    assert_healed(filled, path, caplog)
    assert "older" in caplog.text or not caplog.records


def test_a_copy_that_cannot_be_read_is_not_missed(path: str, caplog: pytest.LogCaptureFixture) -> None:
    filled = Filled()
    filled.disk.remove(path)
    filled.disk.make_directory(path)
    assert read(filled.disk) == filled.expected
    assert f"{path} cannot be read" in caplog.text


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_damage_to_both_copies_is_refused_in_one_line(change: Callable[[bytes], bytes]) -> None:
    filled = Filled()
    for path in COPIES:
        put(filled.disk, path, change(raw(filled.disk, path)))
    with pytest.raises(StoreUnavailableError, match="barnabas log repair") as refused:
        read(filled.disk)
    assert "\n" not in str(refused.value)
    for path in COPIES:
        assert path in str(refused.value)


def test_a_whole_copy_that_a_damaged_one_had_outgrown_is_not_taken_for_all() -> None:
    filled = Filled()
    put(filled.disk, COPIES[0], raw(filled.disk, COPIES[0]) + b"torn")
    put(filled.disk, COPIES[1], filled.older[COPIES[1]])
    with pytest.raises(StoreUnavailableError, match="known to be complete"):
        read(filled.disk)


def test_the_second_copy_lies_in_the_second_log_directory_and_follows_a_change_of_order() -> None:
    filled = Filled("/a", "/b")
    names = {folder: {entry.name for entry in filled.disk.entries(folder)} for folder in ("/a", "/b")}
    assert names == {
        "/a": {"metadata-1.journal"} | (names["/a"] & {"metadata.lock"}),
        "/b": {"metadata-2.journal"} | (names["/b"] & {"metadata.lock"}),
    }
    assert read(filled.disk, "/b", "/a") == filled.expected
    assert read(filled.disk, "/b") == filled.expected
    assert read(filled.disk, "/new", "/a") == filled.expected


def test_metadata_of_two_brokers_is_not_mixed() -> None:
    one, other = Filled("/a"), Filled("/a")
    one.disk.make_directory("/b")
    put(one.disk, "/b/metadata-1.journal", raw(other.disk, "/a/metadata-1.journal"))
    with pytest.raises(StoreUnavailableError, match="different brokers"):
        read(one.disk, "/a", "/b")


def test_journal_of_a_newer_format_is_refused() -> None:
    disk = FaultyDisk()
    disk.make_directory("/d")
    put(disk, COPIES[0], encode_line(b'{"format": 99}', 0)[0])
    with pytest.raises(StoreUnavailableError, match="format 99"):
        read(disk)


def test_a_power_cut_at_any_moment_loses_nothing_acknowledged() -> None:
    for seed in range(60):
        chance = random.Random(seed)
        disk = FaultyDisk()
        acknowledged: list[str] = []
        disk.make_directory("/d")
        disk.sync_directory("/")
        disk.changes_left = chance.randrange(6, 60)
        with contextlib.suppress(PowerCut):
            copies = JournalCopies.open(disk, ["/d"], system_random())
            for number in range(20):
                copies.commit([Change(f"/{number}", None, StoreNode(b"", 0, number))], number)
                acknowledged.append(f"/{number}")
        disk.crash(chance)
        found = read(disk)
        assert set(acknowledged) <= found.keys()
        assert len(found.keys() - {"/"}) <= len(acknowledged) + 1


def test_a_journal_that_has_grown_is_written_anew_as_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.broker.metadata.copies._MIN_BYTES", 2000)
    disk = FaultyDisk()

    async def scenario() -> None:
        store = await EmbeddedStore.open(replace(Environment.of_system(), filesystem=disk), "/d")
        await store.create("/n")
        for number in range(200):
            await store.set("/n", b"%d" % number)
        await store.close()

    asyncio.run(scenario())
    assert all(len(raw(disk, path)) < 2500 for path in COPIES)
    assert read(disk)["/n"][:2] == (b"199", 200)


class OneBadFile:
    """A disk on which one path cannot be written."""

    def __init__(self, disk: FaultyDisk, bad: str) -> None:
        self.disk = disk
        self.bad: str | None = bad

    def __getattr__(self, name: str) -> object:
        return getattr(self.disk, name)

    def open(self, path: str, *, create: bool = False) -> object:
        file = self.disk.open(path, create=create)
        if self.bad is not None and path.startswith(self.bad):
            file.sync = _broken  # type: ignore[method-assign]
        return file


def _broken() -> None:
    raise OSError(5, "Input/output error")


def test_a_copy_that_cannot_be_written_is_left_out_with_a_line_until_it_can(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    filled = Filled()
    disk = OneBadFile(filled.disk, path)

    async def scenario() -> None:
        store = await EmbeddedStore.open(replace(Environment.of_system(), filesystem=disk), "/d")  # type: ignore[arg-type]
        await store.create("/more")
        await store.create("/and more")
        assert caplog.text.count("cannot be written and is left out") == 1
        disk.bad = None
        await store.create("/last")
        assert "can be written again" in caplog.text
        await store.close()

    asyncio.run(scenario())
    other = next(copy for copy in COPIES if copy != path)
    filled.disk.remove(other)
    assert {"/more", "/and more", "/last"} <= read(filled.disk).keys()


def test_a_write_that_no_copy_takes_is_refused_and_does_not_come_back() -> None:
    disk = FaultyDisk()

    async def scenario() -> None:
        store = await EmbeddedStore.open(replace(Environment.of_system(), filesystem=disk), "/d")
        await store.create("/a")
        disk.space = 10
        with pytest.raises(StoreUnavailableError, match="full"):
            await store.multi([Create("/b"), Create("/b/c")])
        disk.space = None
        with pytest.raises(StoreError):
            await store.get("/b")

    asyncio.run(scenario())
    disk._locked.clear()
    assert read(disk).keys() == {"/", "/a"}


class RefusingDisk(FaultyDisk):
    """A disk on which some folders cannot be locked, as on a read-only file system."""

    unlockable = ""

    def lock(self, path: str) -> Lock:
        if self.unlockable and path.startswith(self.unlockable):
            raise OSError(errno.EROFS, "Read-only file system")
        return super().lock(path)


def broken(*operations: str, folder: str = "/") -> Callable[[str, str], Exception | None]:
    """Return a function for `FaultyDisk.refuse`: EIO for these operations below a folder, or for all
    operations.
    """

    def refuse(operation: str, path: str) -> Exception | None:
        is_refused = path.startswith(folder) and (not operations or operation in operations)
        return OSError(errno.EIO, "Input/output error") if is_refused else None

    return refuse


def add(path: str) -> list[Change]:
    return [Change(path, None, StoreNode(b"", 0, 1))]


def test_what_a_refused_write_left_in_one_copy_never_hides_a_later_commit_in_the_other() -> None:
    disk = FaultyDisk()
    copies = JournalCopies.open(disk, ["/a", "/b"], system_random())
    first_lost = broken("sync", "truncate", folder="/a")
    second_lost = broken("sync", folder="/b")
    disk.refuse = lambda operation, path: first_lost(operation, path) or second_lost(operation, path)
    with pytest.raises(StoreUnavailableError):
        copies.commit(add("/refused"), 1)
    disk.refuse = broken(folder="/a")
    copies.commit(add("/acknowledged"), 2)
    disk.refuse = None
    copies.close()
    assert read(disk, "/a", "/b").keys() == {"/", "/acknowledged"}


def test_a_commit_that_only_a_lost_directory_had_never_hides_later_ones_when_it_is_back() -> None:
    disk = FaultyDisk()
    copies = JournalCopies.open(disk, ["/a", "/b"], system_random())
    before = raw(disk, "/b/metadata-2.journal")
    copies.commit(add("/cut short"), 1)
    copies.close()
    put(disk, "/b/metadata-2.journal", before)  # as a crash between the two leaves it
    disk.refuse = broken(folder="/a")
    copies = JournalCopies.open(disk, ["/a", "/b"], system_random())
    copies.commit(add("/acknowledged"), 1)
    disk.refuse = None
    copies.close()
    assert read(disk, "/a", "/b").keys() == {"/", "/acknowledged"}


def test_a_directory_that_is_read_only_keeps_no_store_from_opening(caplog: pytest.LogCaptureFixture) -> None:
    disk = RefusingDisk()
    copies = JournalCopies.open(disk, ["/a", "/b"], system_random())
    copies.commit(add("/kept"), 1)
    copies.close()
    disk.unlockable = "/a"
    assert read(disk, "/a", "/b").keys() == {"/", "/kept"}
    assert "/a cannot hold a copy of the metadata: Read-only file system" in caplog.text


def test_no_new_store_is_begun_while_a_directory_cannot_be_read_that_may_hold_one() -> None:
    disk = FaultyDisk()
    JournalCopies.open(disk, ["/a"], system_random()).close()
    disk.refuse = broken(folder="/a")
    with pytest.raises(StoreUnavailableError, match=r"/a/metadata-1\.journal cannot be read"):
        JournalCopies.open(disk, ["/a", "/b"], system_random())


def test_copies_in_the_old_places_stay_until_the_new_ones_are_written() -> None:
    disk = FaultyDisk()
    copies = JournalCopies.open(disk, ["/a", "/b"], system_random())
    copies.commit(add("/kept"), 1)
    copies.close()
    disk.space = 1  # enough for the folders
    with pytest.raises(StoreUnavailableError, match="full"):
        JournalCopies.open(disk, ["/c", "/d", "/a", "/b"], system_random())
    disk.space = None
    assert read(disk, "/c", "/d", "/a", "/b").keys() == {"/", "/kept"}
    assert {entry.name for entry in disk.entries("/a")} == {"metadata-1.journal.old"}


def test_damage_in_the_middle_does_not_hide_how_far_a_copy_had_got() -> None:
    filled = Filled()
    damaged = bytearray(raw(filled.disk, COPIES[0]))
    damaged[damaged.index(b"data 1")] ^= 1
    put(filled.disk, COPIES[0], bytes(damaged))
    put(filled.disk, COPIES[1], filled.older[COPIES[1]])
    with pytest.raises(StoreUnavailableError, match="known to be complete"):
        read(filled.disk)


def test_no_new_store_is_begun_where_a_brokers_data_lie(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    check_unused(OsFileSystem(), [str(tmp_path)])  # an empty folder is nobody's
    (tmp_path / "orders-0" / "partition.metadata").write_text("version: 0")
    with pytest.raises(StoreUnavailableError, match=r"orders-0, but the metadata .* is gone.*log repair"):
        asyncio.run(
            EmbeddedStore.open(
                Environment.of_system(),
                tmp_path,
                before_new=lambda: check_unused(OsFileSystem(), [str(tmp_path)]),
            )
        )
    assert not list(tmp_path.glob("*.journal"))
