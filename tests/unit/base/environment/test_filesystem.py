"""The operating system's files, and the disk in memory that replaces them in tests."""

from __future__ import annotations

import errno
import os
import random
import stat

import pytest
from simulation.faulty_disk import FaultyDisk

from barnabas.base.environment import os_filesystem
from barnabas.base.environment.filesystem import (
    exists,
    make_durable_directory,
    read_file,
    replace_file,
    write_file,
)
from barnabas.base.environment.os_filesystem import OsFileSystem
from barnabas.base.system import files
from barnabas.base.system.files import IOV_MAX, is_cached


@pytest.fixture(params=["system", "memory"])
def place(request, tmp_path):
    """Return a file system, and a folder in it."""
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


@pytest.fixture
def no_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_made_is_for_the_brokers_user_alone(tmp_path, no_umask):
    fs, path = OsFileSystem(), str(tmp_path)
    fs.make_directory(f"{path}/a")
    fs.make_directory(f"{path}/b/c")
    assert [mode(tmp_path / name) for name in ("a", "b/c")] == [0o700, 0o700]
    write_file(fs, f"{path}/a/written", b"x")
    replace_file(fs, f"{path}/a/replaced", b"x")
    fs.lock(f"{path}/a/lock").release()
    assert {mode(file) for file in (tmp_path / "a").iterdir()} == {0o600}


def test_what_exists_keeps_its_permissions(tmp_path):
    fs = OsFileSystem()
    folder = tmp_path / "a"
    folder.mkdir()
    folder.chmod(0o750)
    file = folder / "file"
    file.touch()
    file.chmod(0o640)
    fs.make_directory(str(folder))
    write_file(fs, str(file), b"x")
    assert (mode(folder), mode(file)) == (0o750, 0o640)


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


def test_more_chunks_than_one_system_call_takes_are_written(place):
    fs, folder = place
    chunks = [b"%05d" % number for number in range(2 * IOV_MAX + 7)]
    file = fs.open(f"{folder}/a", create=True)
    file.write_at(chunks, 3)
    assert file.read_at(1 << 20, 0) == b"\0\0\0" + b"".join(chunks)
    with pytest.raises(OSError) as refused:  # the disk in memory has the bound of the system
        file.write_some(chunks[: IOV_MAX + 1], 0)
    assert refused.value.errno == errno.EINVAL
    file.close()


@pytest.mark.parametrize("at_once", [1, 2, 3, 7, 5 * IOV_MAX + 1])
def test_a_write_that_the_system_takes_in_pieces_is_completed(tmp_path, monkeypatch, at_once):
    whole = os_filesystem.pwritev
    monkeypatch.setattr(
        os_filesystem, "pwritev", lambda fd, chunks, at: whole(fd, [b"".join(chunks)[:at_once]], at)
    )
    disk = FaultyDisk()
    disk.max_at_once = at_once
    chunks = [b"hel", b"", memoryview(b"lo world"), *[b"12345"] * (IOV_MAX + 2)]
    for fs, folder in ((OsFileSystem(), str(tmp_path)), (disk, "")):
        file = fs.open(f"{folder}/a", create=True)
        file.write_at(chunks, 1)
        assert file.read_at(1 << 20, 0) == b"\0" + b"".join(chunks)
        file.close()


@pytest.mark.parametrize("at_once", [1, 3, 7])
def test_a_read_that_the_system_answers_in_pieces_is_completed(tmp_path, monkeypatch, at_once):
    file = OsFileSystem().open(str(tmp_path / "a"), create=True)
    file.write_at([b"hello world"], 0)
    whole = os_filesystem.pread
    monkeypatch.setattr(os_filesystem, "pread", lambda fd, size, at: whole(fd, min(size, at_once), at))
    assert file.read_at(11, 0) == b"hello world"
    assert file.read_at(100, 2) == b"llo world"
    assert file.read_at(5, 20) == b""
    file.close()


def test_a_write_that_makes_no_headway_is_an_error(tmp_path, monkeypatch):
    file = OsFileSystem().open(str(tmp_path / "a"), create=True)
    monkeypatch.setattr(os_filesystem, "pwritev", lambda fd, chunks, at: 0)
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


def test_a_power_cut_does_not_take_a_folder_that_was_made_durably():
    disk = FaultyDisk()
    disk.make_directory("/there")
    disk.sync_directory("/")
    assert make_durable_directory(disk, "/there/a/b/c")
    assert not make_durable_directory(disk, "/there/a/b/c")
    disk.crash(random.Random(1))
    assert exists(disk, "/there/a/b/c")


def test_the_page_cache_says_what_it_has(tmp_path):
    fs = OsFileSystem()
    file = fs.open(f"{tmp_path}/file", create=True)
    file.write_at([bytes(1 << 20)], 0)
    assert file.is_cached(1 << 20, 0)
    assert file.is_cached(100, 4090)
    assert file.is_cached(0, 0)
    file.close()


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="this system does not tell")
def test_one_part_that_is_not_in_the_page_cache_is_enough_to_wait(monkeypatch):
    asked = []

    def preadv(fd, buffers, position, flags):
        asked.append((position, flags))
        if position >= 300_000:
            raise BlockingIOError
        return 1

    monkeypatch.setattr(os, "preadv", preadv)
    assert is_cached(7, 290_000, 0)
    assert not is_cached(7, 400_000, 0)
    assert not is_cached(7, 4000, 299_000), "its last byte lies in the next page"
    assert {flags for _, flags in asked} == {os.RWF_NOWAIT}


@pytest.mark.parametrize(("code", "is_told"), [(errno.EOPNOTSUPP, False), (errno.EIO, True)])
def test_a_file_system_that_cannot_tell_is_read_as_if_it_had_everything(monkeypatch, code, is_told):
    def preadv(*_):
        raise OSError(code, "no")

    monkeypatch.setattr(os, "preadv", preadv, raising=False)
    monkeypatch.setattr(files, "_NO_WAIT", 8)
    if is_told:
        with pytest.raises(OSError, match="no"):
            is_cached(7, 100, 0)
    else:
        assert is_cached(7, 100, 0)
