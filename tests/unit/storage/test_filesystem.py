"""The operating system's files, and the disk in memory that stands in for them."""

from __future__ import annotations

import os
import random

import pytest

from barnabas.storage.filesystem import OsFileSystem, read_file, replace_file, write_file
from barnabas.testing.faulty_disk import FaultyDisk


@pytest.fixture(params=["system", "memory"])
def place(request, tmp_path):
    """A file system and a folder in it."""
    if request.param == "system":
        return OsFileSystem(), str(tmp_path)
    disk = FaultyDisk()
    disk.make_directory("/folder")
    return disk, "/folder"


def test_files_are_written_and_read_by_position(place):
    fs, folder = place
    file = fs.open(f"{folder}/a", create=True)
    file.write_at([b"he", memoryview(b"llo")], 2)
    assert file.read_at(100, 0) == b"\0\0hello"
    assert file.read_at(2, 3) == b"el"
    assert file.read_at(2, 99) == b""
    file.truncate(4)
    file.sync()
    assert file.read_at(100, 0) == b"\0\0he"
    file.close()
    with pytest.raises(OSError, match=r".*"):
        file.read_at(1, 0)


def test_a_missing_file_is_not_made_unless_asked_for(place):
    fs, folder = place
    with pytest.raises(FileNotFoundError):
        fs.open(f"{folder}/a")
    with pytest.raises(FileNotFoundError):
        fs.remove(f"{folder}/a")
    with pytest.raises(FileNotFoundError):
        fs.rename(f"{folder}/a", f"{folder}/b")


def test_folders_list_what_is_in_them(place):
    fs, folder = place
    assert fs.make_directory(f"{folder}/x/y")
    assert not fs.make_directory(f"{folder}/x")
    write_file(fs, f"{folder}/x/file", b"abc")
    assert {(entry.name, entry.is_directory) for entry in fs.entries(f"{folder}/x")} == {
        ("y", True),
        ("file", False),
    }
    fs.rename(f"{folder}/x/file", f"{folder}/x/other")
    assert read_file(fs, f"{folder}/x/other") == b"abc"
    fs.remove_tree(f"{folder}/x")
    assert fs.entries(folder) == []


def test_replacing_leaves_the_new_content_and_nothing_else(place):
    fs, folder = place
    replace_file(fs, f"{folder}/a", b"long old content")
    replace_file(fs, f"{folder}/a", b"new")
    assert read_file(fs, f"{folder}/a") == b"new"
    assert [entry.name for entry in fs.entries(folder)] == ["a"]


def test_a_lock_is_held_once(place):
    fs, folder = place
    lock = fs.lock(f"{folder}/lock")
    with pytest.raises(BlockingIOError):
        fs.lock(f"{folder}/lock")
    lock.release()
    fs.lock(f"{folder}/lock").release()


def test_a_write_that_the_system_takes_in_pieces_is_completed(tmp_path, monkeypatch):
    file = OsFileSystem().open(str(tmp_path / "a"), create=True)
    whole, piecewise = os.pwritev, os.pwrite
    monkeypatch.setattr(os, "pwritev", lambda fd, chunks, at: piecewise(fd, b"".join(chunks)[:3], at))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: piecewise(fd, bytes(data)[:2], at))
    file.write_at([b"hel", b"lo world"], 1)
    assert file.read_at(100, 0) == b"\0hello world"
    monkeypatch.setattr(os, "pwritev", whole)
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: 0)
    monkeypatch.setattr(os, "pwritev", lambda fd, chunks, at: 1)
    with pytest.raises(OSError, match="nothing could be written"):
        file.write_at([b"xy"], 0)
    file.close()


def test_a_power_cut_keeps_what_was_synced_and_any_part_of_the_rest():
    seen = set()
    for seed in range(40):
        disk = FaultyDisk()
        replace_file(disk, "/kept", b"kept")
        file = disk.open("/kept")
        file.write_at([b"more"], 4)
        write_file(disk, "/new", b"new")
        disk.crash(random.Random(seed))
        names = {entry.name for entry in disk.entries("/")}
        assert read_file(disk, "/kept")[:4] == b"kept"
        seen.add((len(read_file(disk, "/kept")) > 4, "new" in names))
    assert seen == {(True, True), (True, False), (False, True), (False, False)}


def test_a_full_disk_writes_what_fits_and_says_so():
    disk = FaultyDisk()
    disk.space = 3
    with pytest.raises(OSError, match="full"):
        write_file(disk, "/a", b"12345")
    assert read_file(disk, "/a") == b"123"


def test_what_a_failed_sync_lost_stays_lost():
    disk = FaultyDisk()
    replace_file(disk, "/a", b"old")
    file = disk.open("/a")
    file.write_at([b"new"], 0)
    disk.fail_syncs = True
    with pytest.raises(OSError, match="broken"):
        file.sync()
    disk.mend()
    file.sync()
    disk.crash(random.Random(3))
    assert read_file(disk, "/a") in (b"old", b"new")
    assert disk.has_lost_writes is False
