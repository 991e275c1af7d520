"""The number of open files, and the indexes that use them."""

from __future__ import annotations

from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation.faulty_disk import FaultyDisk

from barnabas.broker.storage import OpenFiles
from barnabas.broker.storage.index import OffsetIndex, TimeIndex
from barnabas.broker.storage.open_files import LogFile


def test_no_more_files_than_the_capacity_are_open():
    disk = FaultyDisk()
    files = OpenFiles(disk, capacity=3)
    made = [LogFile(files, f"/{number}") for number in range(10)]
    for number, file in enumerate(made):
        file.write_at([b"%d" % number], 0)
        assert disk.open_files == len(files) <= 3
    assert [file.read_at(9, 0) for file in made] == [b"%d" % number for number in range(10)]
    assert disk.open_files == 3


def test_files_not_used_lately_are_closed_first():
    disk = FaultyDisk()
    files = OpenFiles(disk, capacity=2)
    busy, idle, new = (LogFile(files, f"/{name}") for name in ("busy", "idle", "new"))
    busy.write_at([b"b"], 0)
    idle.truncate(0)
    busy.read_at(1, 0)
    new.write_at([b"n"], 0)
    disk.remove("/busy")  # still open, so still readable
    assert busy.read_at(1, 0) == b"b"


def test_a_pinned_file_stays_open_and_closes_when_it_is_unpinned():
    disk = FaultyDisk()
    files = OpenFiles(disk, capacity=1)
    pinned, other = LogFile(files, "/pinned"), LogFile(files, "/other")
    pinned.write_at([b""], 0)
    pinned.pin()
    other.write_at([b"x"], 0)
    assert disk.open_files == 2
    pinned.close()
    pinned.sync()
    pinned.unpin()
    assert disk.open_files == 1


def test_reading_a_file_that_was_never_written_is_an_error():
    with pytest.raises(FileNotFoundError):
        LogFile(OpenFiles(FaultyDisk()), "/nothing").read_at(1, 0)


def test_removing_or_renaming_a_file_that_was_never_written_is_fine():
    file = LogFile(OpenFiles(FaultyDisk()), "/nothing")
    file.rename("/other")
    file.remove()


@given(
    steps=st.lists(st.integers(1, 5), max_size=2000),
    target=st.integers(-1, 6000),
    keep=st.integers(0, 2100),
    stored=st.booleans(),
)
def test_the_index_finds_what_a_list_would(steps, target, keep, stored):
    index = OffsetIndex(LogFile(OpenFiles(FaultyDisk()), "/index"))
    offsets: list[int] = []
    for step in steps:
        offsets.append((offsets[-1] if offsets else 0) + step)
        index.append(offsets[-1], 10 * offsets[-1])
    if stored:
        index.store()

    def floor(among: list[int]) -> tuple[int, int] | None:
        place = bisect_right(among, target) - 1
        return (among[place], 10 * among[place]) if place >= 0 else None

    assert index.floor(target) == floor(offsets)
    if keep < len(offsets):
        index.keep(index.count_before(offsets[keep]))
        offsets = offsets[:keep]
    assert len(index) == len(offsets)
    assert index.floor(target) == floor(offsets)
    assert [index.entry(place)[0] for place in range(len(index))] == offsets


def test_the_time_index_takes_only_later_times():
    index = TimeIndex(LogFile(OpenFiles(FaultyDisk()), "/times"))
    for timestamp, offset in ((5, 1), (5, 2), (3, 3), (9, 4)):
        index.append(timestamp, offset)
    assert [index.entry(place) for place in range(len(index))] == [(5, 1), (9, 4)]
    index.keep(index.count_before(4))
    assert index.last_timestamp == 5
    index.append(7, 9)
    assert index.last() == (7, 9)
    index.reset()
    assert len(index) == 0 and index.last() is None and index.last_timestamp == -1
