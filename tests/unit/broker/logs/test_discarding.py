"""A discard of a replica happens completely or not at all, wherever the command is interrupted."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from tests.unit.broker.logs.test_manager import CONFIG, Bench, hosted, incomplete

from barnabas.base.environment.os_filesystem import OsFileSystem
from barnabas.base.types import TopicPartition
from barnabas.broker.logs.discarding import discard_replica, find_replica
from barnabas.broker.storage.incomplete import Mark, read_mark, write_mark
from barnabas.cli.log.check import check_directories
from barnabas.cli.log.repair import Repair

T = TopicPartition("t", 0)


class Interrupted(Exception):
    """Ends the process of the command."""


class Fragile:
    """A file system on which a process ends before one of its changes of names."""

    def __init__(self, changes: int) -> None:
        self._fs = OsFileSystem()
        self._left = changes

    def __getattr__(self, name):
        def counted(*arguments):
            if self._left == 0:
                raise Interrupted
            self._left -= 1
            return getattr(self._fs, name)(*arguments)

        return counted if name in ("rename", "make_directory") else getattr(self._fs, name)


def discard(fs, *paths: Path) -> list[str]:
    said: list[str] = []
    folders = [str(path) for path in paths]
    discard_replica(fs, find_replica(fs, folders, T), T, "damaged.1", said.append)
    return said


def made(path: Path) -> None:
    """Create the folder of a stopped broker with two partitions."""

    async def fill() -> None:
        bench = Bench(str(path), disk=OsFileSystem(), is_clustered=True)
        for name in "tu":
            bench.create(name, records=8).flush()
        bench.logs.set_broker_epoch(7)
        bench.logs.close()

    asyncio.run(fill())


def found(*paths: Path) -> tuple[list[str], int, int]:
    """Return the replicas that the next start registers as incomplete, and the log
    ends of both partitions.
    """

    async def load() -> tuple[list[str], int, int]:
        bench = Bench(*map(str, paths), disk=OsFileSystem(), is_clustered=True)
        assert bench.logs.previous_epoch == 7, "the other replicas stay what they are"
        await bench.logs.load(hosted("tu"), lambda _: CONFIG)
        bench.logs.set_broker_epoch(7)
        logs = {log.topic_partition.topic: log.log_end_offset for log in bench.logs}
        registered = incomplete(bench)
        await bench.logs.stop()
        return registered, logs.get("t", -1), logs["u"]

    return asyncio.run(load())


def test_a_discarded_replica_begins_anew_and_its_files_are_kept(tmp_path: Path) -> None:
    made(tmp_path / "a")
    before = {file.name: file.read_bytes() for file in (tmp_path / "a" / "t-0").iterdir()}
    discard(OsFileSystem(), tmp_path / "a")
    kept = {file.name: file.read_bytes() for file in (tmp_path / "a" / "damaged.1" / "t-0").iterdir()}
    assert kept == {name: content for name, content in before.items() if name != "partition.metadata"}
    assert found(tmp_path / "a") == (["t-0"], 0, 8)


def test_a_discard_that_is_interrupted_anywhere_leaves_no_replica_that_counts_and_lacks_records(
    tmp_path: Path,
) -> None:
    made(tmp_path / "whole")
    for changes in range(100):
        path = tmp_path / f"cut-{changes}"
        shutil.copytree(tmp_path / "whole", path)
        try:
            discard(Fragile(changes), path)
        except Interrupted:
            registered, end, _ = found(path)
            assert registered == ["t-0"] or (registered, end) == ([], 8)
            discard(OsFileSystem(), path)
            assert found(path) == (["t-0"], 0, 8)
        else:
            break
    assert 5 < changes < 100


def test_the_copy_on_another_disk_goes_with_the_replica(tmp_path: Path) -> None:
    made(tmp_path / "a")
    (tmp_path / "b").mkdir()
    shutil.copy(tmp_path / "a" / ".kafka_cleanshutdown", tmp_path / "b")
    (tmp_path / "b" / "recovery-point-offset-checkpoint").write_bytes(b"0\n0\n")
    future = f"t-0.{'0' * 32}-future"
    shutil.copytree(tmp_path / "a" / "t-0", tmp_path / "a" / future)
    shutil.copytree(tmp_path / "a" / "t-0", tmp_path / "b" / "t-0")
    discard(OsFileSystem(), tmp_path / "a", tmp_path / "b")
    assert not (tmp_path / "a" / future).exists()
    assert found(tmp_path / "a", tmp_path / "b") == (["t-0"], 0, 8)


def test_the_mark_of_a_discarded_replica_names_its_topic(tmp_path: Path) -> None:
    made(tmp_path / "a")
    for _ in range(2):  # also if the command is repeated
        discard(OsFileSystem(), tmp_path / "a")
        mark = read_mark(OsFileSystem(), str(tmp_path / "a" / "t-0"))
        assert mark is not None
        assert mark.topic_id == b"t" * 16


@pytest.mark.parametrize("metadata", [b"", None])
def test_a_replica_whose_topic_id_cannot_be_read_is_discarded_nevertheless(
    tmp_path: Path, metadata: bytes | None
) -> None:
    made(tmp_path / "a")
    file = tmp_path / "a" / "t-0" / "partition.metadata"
    file.unlink() if metadata is None else file.write_bytes(metadata)
    discard(OsFileSystem(), tmp_path / "a")
    assert read_mark(OsFileSystem(), str(tmp_path / "a" / "t-0")) == Mark("it was discarded")
    assert found(tmp_path / "a") == (["t-0"], 0, 8)


def test_the_mark_of_a_repaired_replica_names_its_topic(tmp_path: Path) -> None:
    made(tmp_path / "a")
    segment = min((tmp_path / "a" / "t-0").glob("*.log"))
    content = segment.read_bytes()
    segment.write_bytes(content[:100] + b"?" * 50 + content[150:])
    directories = check_directories([tmp_path / "a"])
    directories.is_clustered = True
    Repair(directories, lambda _: None, dry_run=False).run()
    mark = read_mark(OsFileSystem(), str(tmp_path / "a" / "t-0"))
    assert mark is not None
    assert mark.topic_id == b"t" * 16


def test_log_check_tells_the_mark_of_a_deleted_topic_from_that_of_an_incomplete_replica(
    tmp_path: Path,
) -> None:
    """The broker's next start removes such a mark."""
    made(tmp_path / "a")
    folder = tmp_path / "a" / "t-0"

    def finding() -> str:
        partition, _ = check_directories([tmp_path / "a"]).partitions
        (it,) = (each for each in partition.findings if each.path == str(folder / "barnabas-incomplete"))
        assert not it.is_damage
        assert (partition.safe_end == 0) == ("copied again" in it.detail)
        return it.detail

    write_mark(OsFileSystem(), str(folder), Mark("it was discarded", topic_id=b"t" * 16))
    assert "the replica is incomplete (it was discarded)" in finding()
    write_mark(OsFileSystem(), str(folder), Mark("it was discarded", topic_id=b"another topic id"))
    assert finding() == "it is of a deleted topic of the same name: the broker's next start removes it"


@pytest.mark.parametrize("content", [b"", b"\xff", b"{}", b"[1]", b'{"reason": "x"}'])
def test_a_mark_that_is_damaged_is_a_mark(tmp_path: Path, content: bytes) -> None:
    made(tmp_path / "a")
    (tmp_path / "a" / "t-0" / "barnabas-incomplete").write_bytes(content)
    assert found(tmp_path / "a")[0] == ["t-0"]
