"""A start after a crash reads the data after the last flush. A file lists the sealed segments on disk."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import ErrorCode
from barnabas.base.types import TopicPartition
from barnabas.broker.storage import log_files
from barnabas.broker.storage.checkpoints import SegmentSizes
from barnabas.broker.storage.retention import delete_old_segments
from barnabas.broker.storage.sealed import FILE_NAME, SealedSegment, decode, encode
from barnabas.broker.storage.truncation import truncate_fully_and_start_at, truncate_to
from barnabas.kafka.records import Record, all_records

NOW = 1_700_000_000_000
ENTRY = 52
PARTITION = TopicPartition("logs", 0)


def values(bench) -> list[bytes | None]:
    log = bench.log
    found: list[Record] = []
    while (offset := found[-1].offset + 1 if found else log.log_start_offset) < log.log_end_offset:
        found += all_records(b"".join(log.read(offset, 1 << 20, log.log_end_offset).chunks))
    return [record.value for record in found]


def write(bench, count: int, *, start: int = 0, time: int = NOW) -> list[bytes]:
    made = [b"%04d" % place for place in range(start, start + count)]
    for value in made:
        bench.append(Record(None, value, time))
    return made


def sealed(bench, batches: int = 14) -> list[bytes]:
    """Create sealed segments of four batches, all flushed, without a later checkpoint
    of the recovery point.
    """
    bench.configure(segment_bytes=300, index_interval_bytes=100)
    made = write(bench, batches)
    bench.log.flush()
    return made


class Used:
    """The files that the log opens, by their names."""

    def __init__(self, bench) -> None:
        self.names: list[str] = []
        bench.disk.refuse = self._note

    def _note(self, operation: str, path: str) -> None:
        if operation == "open":
            self.names.append(path.rpartition("/")[2])

    def of_segments(self) -> set[str]:
        return {name for name in self.names if name.endswith(("log", "index"))}


def names_of(*base_offsets: int) -> set[str]:
    kinds = ("log", "index", "timeindex")
    return {f"{base_offset:020d}.{kind}" for base_offset in base_offsets for kind in kinds}


def listed(bench) -> list[int]:
    content = bench.disk.open(f"/data/logs-0/{FILE_NAME}").read_at(1 << 20, 0)
    return list(decode(content))


def test_a_start_after_a_crash_opens_no_sealed_segment_that_a_flush_has_covered(bench):
    made = sealed(bench)
    assert bench.base_offsets() == [0, 4, 8, 12]
    bench.kill()
    used = Used(bench)
    bench.start()
    assert used.of_segments() <= names_of(12)
    assert (bench.log.log_end_offset, bench.log.recovery_point) == (14, 12)
    assert values(bench) == made


def test_what_lies_behind_the_last_flush_is_read(bench, caplog):
    made = sealed(bench)
    made += write(bench, 6, start=14)
    assert bench.base_offsets() == [0, 4, 8, 12, 16]
    bench.kill()
    used = Used(bench)
    bench.start()
    assert names_of(12) <= used.of_segments() <= names_of(12, 16)
    assert values(bench) == made
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_the_age_of_a_segment_is_known_without_its_index(bench):
    bench.configure(segment_bytes=300)
    write(bench, 4, time=NOW + 5)
    write(bench, 9, time=NOW)
    bench.log.flush()
    bench.kill()
    used = Used(bench)
    first, second, *_ = bench.start().files.segments
    assert (first.largest_timestamp, second.largest_timestamp) == (NOW + 5, NOW)
    assert not used.of_segments() & names_of(0, 4)


def test_a_flush_closes_the_files_of_sealed_segments(bench):
    sealed(bench, 200)
    assert len(bench.base_offsets()) == 50
    assert len(bench.log.files.env.files) < 10
    values(bench)
    bench.log.flush()


def test_a_flush_of_many_sealed_segments_lists_the_first_of_them_when_they_are_on_disk(bench, monkeypatch):
    monkeypatch.setattr(log_files, "SEGMENTS_A_FLUSH", 2)
    bench.configure(segment_bytes=300)
    made = write(bench, 22)
    flush = bench.log.prepare_flush()
    assert {file.path.rpartition("/")[2] for file in flush.files} == (
        names_of(0, 4) | {f"{offset:020d}.snapshot" for offset in (4, 8)} | {"partition.metadata"}
    )
    flush.run()
    bench.log.complete_flush(flush)
    assert (flush.is_partial, bench.log.recovery_point, listed(bench)) == (True, 8, [0, 4])
    bench.kill()
    used = Used(bench)
    bench.start()
    assert not used.of_segments() & names_of(0, 4)
    assert values(bench) == made


@pytest.mark.parametrize("seed", range(12))
def test_a_power_cut_after_the_first_part_of_a_flush_keeps_that_part(bench, monkeypatch, seed):
    monkeypatch.setattr(log_files, "SEGMENTS_A_FLUSH", 2)
    bench.configure(segment_bytes=300)
    made = write(bench, 22)
    flush = bench.log.prepare_flush()
    flush.run()
    bench.log.complete_flush(flush)
    bench.kill()
    bench.disk.crash(random.Random(seed))
    bench.start()
    kept = values(bench)
    assert len(kept) >= 8
    assert kept == made[: len(kept)]


@pytest.mark.parametrize("stops", [True, False])
def test_a_flush_in_one_call_covers_all_segments_and_holds_few_files_open(bench, monkeypatch, stops):
    monkeypatch.setattr(log_files, "SEGMENTS_A_FLUSH", 2)
    bench.configure(segment_bytes=300)
    write(bench, 102)
    bench.log.files.env.files.close_idle()
    open_files: list[int] = []
    files = bench.log.files
    bench.disk.refuse = lambda operation, path: open_files.append(  # type: ignore[func-returns-value]
        sum(file.is_open for segment in files.segments for file in segment.all_files())
    )
    if stops:
        bench.stop()
    else:
        bench.log.flush()
    assert (bench.log.recovery_point, len(listed(bench))) == (102, 25)
    assert max(open_files) <= 12


def test_segments_that_a_start_has_checked_wait_for_a_flush(bench):
    bench.configure(segment_bytes=300)
    write(bench, 10)
    bench.kill()
    assert bench.start().files.has_rolled
    bench.log.flush()
    assert not bench.log.files.has_rolled
    assert listed(bench) == [0, 4]


@pytest.mark.parametrize("is_stored", [True, False], ids=["recovery point stored", "not stored"])
@pytest.mark.parametrize("kind", ["log", "index", "timeindex"])
@pytest.mark.parametrize("damage", [lambda content: content[:-1], lambda content: content + b"\0", None])
def test_a_listed_segment_whose_files_have_other_sizes_is_checked(bench, caplog, is_stored, kind, damage):
    made = sealed(bench)
    if is_stored:
        bench.directory.recovery_point_checkpoint().run()
    bench.kill()
    name = f"{4:020d}.{kind}"
    if damage is None:
        bench.disk.remove(f"/data/logs-0/{name}")
    else:
        bench.rewrite(name, damage)
    if kind == "log" and is_stored:
        with pytest.raises(Exception, match="were on disk"):
            bench.start()
        return
    bench.start()
    kept = made if kind != "log" else made[: bench.log.log_end_offset]
    assert values(bench) == kept
    assert len(kept) >= 4
    if kind == "log":
        assert "is dropped" in caplog.text or "cut off" in caplog.text


@pytest.mark.parametrize("place", range(3))
def test_an_entry_that_is_damaged_does_not_count(bench, place):
    made = sealed(bench)
    bench.kill()
    position = place * ENTRY + 9
    bench.rewrite(FILE_NAME, lambda content: content[:position] + b"\xaa" + content[position + 1 :])
    used = Used(bench)
    bench.start()
    assert f"{place * 4:020d}.log" in used.of_segments()
    assert values(bench) == made


@pytest.mark.parametrize("how", ["gone", "folder", "cut short"])
def test_a_log_without_its_list_is_checked_once(bench, how):
    made = sealed(bench)
    bench.directory.recovery_point_checkpoint().run()
    bench.kill()
    if how == "cut short":
        bench.rewrite(FILE_NAME, lambda content: content[:60])
    else:
        bench.disk.remove(f"/data/logs-0/{FILE_NAME}")
    if how == "folder":
        bench.disk.make_directory(f"/data/logs-0/{FILE_NAME}")
    bench.start()
    assert values(bench) == made
    assert listed(bench)[:2] == [0, 4]
    bench.kill()
    used = Used(bench)
    bench.start()
    assert not used.of_segments() & names_of(0, 4)


@pytest.mark.parametrize("seed", range(12))
def test_a_truncated_segment_is_not_listed_as_it_was(bench, seed):
    """New data in place of truncated records has the same sizes, and a power cut removes it."""
    made = sealed(bench, 12)
    truncate_to(bench.log, 6)
    write(bench, 5, start=50)
    assert bench.base_offsets() == [0, 4, 8]
    bench.kill()
    bench.disk.crash(random.Random(seed))
    bench.start()
    found = values(bench)
    assert found[:6] == made[:6]
    new = [b"%04d" % place for place in range(50, 55)]
    assert found[6:] == new[: len(found) - 6]


def test_a_truncation_that_cannot_be_told_to_the_disk_changes_nothing(bench, refused):
    made = sealed(bench)
    bench.disk.fail_syncs = True
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        truncate_to(bench.log, 6)
    assert values(bench) == made
    assert bench.log.is_offline


def test_segments_after_a_truncation_are_listed_again(bench):
    made = sealed(bench)
    truncate_to(bench.log, 6)
    assert listed(bench) == [0]
    write(bench, 8, start=50)
    bench.log.flush()
    assert listed(bench) == [0, 4, 8]
    bench.kill()
    used = Used(bench)
    bench.start()
    assert not used.of_segments() & names_of(0, 4, 8)
    assert values(bench) == [*made[:6], *(b"%04d" % place for place in range(50, 58))]


def test_a_log_that_starts_over_has_no_old_entries(bench):
    sealed(bench)
    truncate_fully_and_start_at(bench.log, 100)
    bench.append(Record(None, b"new", NOW))
    assert bench.crash().log_end_offset == 101
    assert values(bench) == [b"new"]


def test_a_cleaned_segment_is_listed_as_it_is_now(bench):
    bench.configure(segment_bytes=300, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    for place in range(40):
        bench.append(Record(b"%d" % (place % 7), b"%04d" % place, NOW))
    bench.log.flush()
    assert bench.clean() is not None
    before = values(bench)
    first = bench.base_offsets()[0]
    bench.kill()
    used = Used(bench)
    bench.start()
    assert values(bench) == before
    bench.kill()
    used = Used(bench)
    bench.start()
    assert not used.of_segments() & names_of(first)


def test_entries_of_removed_segments_do_not_pile_up(bench):
    bench.configure(segment_bytes=150, retention_bytes=1000)
    for start in range(0, 1200, 100):
        write(bench, 100, start=start)
        bench.log.flush()
        removal = delete_old_segments(bench.log, bench.clock.now_ms())
        if removal is not None:
            removal.run()
    assert len(listed(bench)) < 450
    made = values(bench)
    bench.kill()
    used = Used(bench)
    bench.start()
    assert used.of_segments() <= names_of(*bench.base_offsets()[-1:])
    assert values(bench) == made


def test_a_full_disk_leaves_segments_unlisted_and_harms_nothing(bench):
    made = sealed(bench)
    bench.disk.refuse = lambda operation, path: (
        OSError(28, "full") if operation == "write" and path.endswith(FILE_NAME) else None
    )
    made += write(bench, 8, start=14)
    bench.log.flush()
    bench.disk.refuse = None
    assert listed(bench) == [0, 4, 8]
    made += write(bench, 4, start=22)
    bench.log.flush()
    bench.crash()
    assert values(bench) == made


def test_a_flush_that_ends_after_the_log_was_deleted_leaves_nothing_in_the_next_one(bench):
    bench.configure(segment_bytes=300)
    write(bench, 9)
    flush = bench.log.prepare_flush()
    flush.run()
    old = bench.log
    removal = bench.directory.delete(PARTITION)
    bench.log = bench.directory.create(PARTITION, bytes(16), bench.config)
    old.complete_flush(flush)
    removal.run()
    assert bench.names(FILE_NAME) == []


OFFSETS = st.integers(0, 2**62)
SIZES = st.integers(0, 2**32 - 1)
ENTRIES = st.lists(
    st.builds(
        SealedSegment,
        OFFSETS,
        OFFSETS,
        st.builds(SegmentSizes, OFFSETS, SIZES, SIZES, st.integers(-1, 2**62), OFFSETS),
    ),
    unique_by=lambda entry: entry.base_offset,
    max_size=8,
)


@given(ENTRIES)
def test_entries_are_read_as_they_were_written(entries):
    assert list(decode(b"".join(map(encode, entries))).values()) == entries


@given(ENTRIES, st.data())
def test_a_damaged_byte_takes_no_more_than_its_entry(entries, data):
    content = bytearray(b"".join(map(encode, entries)))
    if content:
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] ^= data.draw(st.integers(1, 255))
        del entries[place // ENTRY]
    assert list(decode(bytes(content)).values()) == entries
