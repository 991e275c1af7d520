"""Truncations: a thread computes them before anything changes, and they happen completely or not at all."""

from __future__ import annotations

import errno

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.broker.storage import segment
from barnabas.broker.storage.truncation import (
    begin_truncation,
    cut_in_parts,
    prepare_truncation,
    truncate_fully_and_start_at,
    truncate_to,
)
from barnabas.kafka.records import Record, all_records

NOW = 1_700_000_000_000
LOG = "00000000000000000000.log"


def values(bench):
    log = bench.log
    found = []
    while (offset := found[-1].offset + 1 if found else log.log_start_offset) < log.log_end_offset:
        found += all_records(b"".join(log.read(offset, 1 << 20, log.log_end_offset).chunks))
    return [record.value for record in found]


def number(bench, count):
    made = [b"%d" % place for place in range(count)]
    for place, value in enumerate(made):
        bench.append(Record(None, value, NOW + place))
    return made


def spoil_batch(bench, offset, *, name=LOG):
    """Overwrite the magic byte of a batch, as a disk that returns wrong data."""
    spoilt = bench.log.files.segments[bench.log.files.segments.index_of(offset)]
    at = spoilt.position_of(offset) + 16
    bench.rewrite(name, lambda content: content[:at] + b"\xff" + content[at + 1 :])


@pytest.mark.parametrize("segment_bytes", [300, 100_000])
def test_a_truncation_that_meets_damage_in_what_would_stay_changes_nothing(bench, refused, segment_bytes):
    bench.configure(segment_bytes=segment_bytes, index_interval_bytes=100_000)
    made = number(bench, 12)
    segments = bench.base_offsets()
    spoil_batch(bench, 1)
    files = bench.disk.entries("/data/logs-0")
    with refused(ErrorCode.CORRUPT_MESSAGE):
        truncate_to(bench.log, 2)
    log = bench.log
    assert not log.is_offline
    assert (log.log_end_offset, log.high_watermark, bench.base_offsets()) == (12, 12, segments)
    assert bench.disk.entries("/data/logs-0") == files
    assert [record.value for record in all_records(b"".join(log.read(11, 999, 12).chunks))] == made[11:]
    bench.append(Record(None, b"12", NOW))
    assert log.log_end_offset == 13


def test_a_truncation_whose_producers_cannot_be_replayed_changes_nothing(bench, refused):
    bench.configure(index_interval_bytes=0)
    number(bench, 12)
    segments = bench.base_offsets()
    spoil_batch(bench, 3)
    with refused(ErrorCode.CORRUPT_MESSAGE):
        truncate_to(bench.log, 9)  # its batch is found by the index
    assert (bench.log.log_end_offset, bench.log.is_offline, bench.base_offsets()) == (12, False, segments)


@pytest.mark.parametrize("interval", [0, 100_000])
def test_damage_that_begins_where_the_log_is_cut_goes(bench, interval):
    bench.configure(index_interval_bytes=interval)
    made = number(bench, 12)
    spoil_batch(bench, 7)
    assert truncate_to(bench.log, 7)
    bench.append(Record(None, b"again", NOW), epoch=1)
    assert values(bench) == [*made[:7], b"again"]
    bench.crash()
    assert values(bench) == [*made[:7], b"again"]


def test_what_was_found_out_before_is_not_read_again(bench, monkeypatch):
    bench.configure(segment_bytes=300)
    made = number(bench, 12)
    truncation = begin_truncation(bench.log, 5)
    truncation.run()
    monkeypatch.setattr(type(truncation), "run", lambda _: pytest.fail("it was read again"))
    assert prepare_truncation(bench.log, 5, truncation) == (5, False)
    assert truncate_to(bench.log, 5, truncation=truncation)
    assert values(bench) == made[:5]


def test_what_was_found_out_of_another_log_end_is_found_out_again(bench):
    made = number(bench, 6)
    truncation = begin_truncation(bench.log, 4)
    truncation.run()
    bench.append(Record(None, b"more", NOW))
    truncate_to(bench.log, 5)
    assert truncate_to(bench.log, 4, truncation=truncation)
    assert values(bench) == made[:4]


def test_a_truncation_that_has_failed_to_read_does_not_change_the_log(bench, refused):
    number(bench, 6)
    truncation = begin_truncation(bench.log, 4)
    bench.disk.refuse = lambda operation, path: OSError(errno.EMFILE, "too many open files")
    truncation.run()
    bench.disk.refuse = None
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        truncate_to(bench.log, 4, truncation=truncation)
    assert (bench.log.log_end_offset, bench.log.is_offline) == (6, False)
    assert truncate_to(bench.log, 4)


@pytest.mark.parametrize(
    "cut",
    [
        lambda log: truncate_to(log, 1, sync=False),
        lambda log: truncate_fully_and_start_at(log, 50, sync=False),
    ],
)
def test_the_files_of_whole_segments_are_removed_by_the_flush(bench, cut):
    bench.configure(segment_bytes=300)
    number(bench, 12)
    cut(bench.log)
    aside = bench.names(".log.deleted")
    assert len(aside) >= 2
    bench.disk.refuse = lambda operation, path: (
        OSError(errno.ENOMEM, "out of memory") if operation == "sync_directory" else None
    )
    failing = bench.log.prepare_flush()
    failing.run()
    with pytest.raises(Exception, match="KAFKA_STORAGE_ERROR"):
        bench.log.complete_flush(failing)
    assert bench.names(".log.deleted") == aside


def test_a_truncation_is_found_out_again_when_another_one_came_in_between(bench):
    """The thread reads indexes that were shortened after it had counted their entries."""
    bench.configure(index_interval_bytes=1)
    made = number(bench, 3)
    bench.log.roll()
    bench.append(Record(None, b"gone", NOW + 4))
    truncate_to(bench.log, 3)
    truncation = begin_truncation(bench.log, 2)
    truncate_to(bench.log, 1)
    truncation.run()
    bench.append(Record(None, b"new", NOW + 5))
    prepare_truncation(bench.log, 1, truncation)
    truncate_to(bench.log, 1, truncation=truncation)
    assert values(bench) == made[:1]


def test_a_flush_after_a_truncation_removes_what_was_cut_off(bench):
    bench.configure(segment_bytes=300)
    made = number(bench, 12)
    truncate_to(bench.log, 5, sync=False)
    assert bench.names(".deleted")
    bench.log.flush()
    assert not bench.names(".deleted")
    bench.append(Record(None, b"new", NOW), epoch=1)
    bench.crash()
    assert values(bench) == [*made[:5], b"new"]


def test_a_start_after_a_crash_removes_what_was_cut_off(bench):
    bench.configure(segment_bytes=300)
    made = number(bench, 12)
    truncate_to(bench.log, 5, sync=False)
    bench.crash()
    assert values(bench) == made[:5]
    assert not bench.names(".deleted")


def stored_bytes(bench):
    return {entry.name: entry.size for entry in bench.disk.entries("/data/logs-0")}[LOG]


def test_a_file_that_has_much_to_lose_is_shortened_in_parts(bench, monkeypatch):
    monkeypatch.setattr(segment, "_CUT_AT_ONCE", 300)
    made = number(bench, 12)
    before = stored_bytes(bench)
    truncate_to(bench.log, 3, sync=False)
    log = bench.log
    assert (values(bench), stored_bytes(bench)) == (made[:3], before)
    sizes = [before]
    for _ in cut_in_parts(log):
        sizes.append(stored_bytes(bench))
        assert 0 < sizes[-2] - sizes[-1] <= 300
    assert len(sizes) > 2
    assert 0 < sizes[-1] - stored_bytes(bench) <= 300
    assert stored_bytes(bench) == log.files.segments.active.size
    log.flush()
    bench.append(Record(None, b"new", NOW), epoch=1)
    bench.crash()
    assert values(bench) == [*made[:3], b"new"]


@pytest.mark.parametrize("parts", [0, 1])
@pytest.mark.parametrize(
    "step",
    [
        lambda bench: bench.log.flush(),
        lambda bench: truncate_to(bench.log, 1),
        lambda bench: bench.restart(),
        lambda bench: bench.append(Record(None, b"2", NOW), epoch=1),  # by a follower that leads now
    ],
)
def test_what_is_left_of_a_cut_goes_before_anything_else_is_done(bench, monkeypatch, step, parts):
    monkeypatch.setattr(segment, "_CUT_AT_ONCE", 300)
    made = number(bench, 12)
    truncate_to(bench.log, 2, sync=False)
    for _ in zip(range(parts), cut_in_parts(bench.log), strict=False):
        pass
    step(bench)
    assert stored_bytes(bench) == bench.log.files.segments.active.size
    bench.crash()
    assert values(bench) == made[: bench.log.log_end_offset]
    assert bench.log.log_end_offset in (1, 2, 3)


@pytest.mark.parametrize("parts", range(4))
def test_a_crash_between_the_parts_of_a_cut_leaves_a_sound_log(bench, monkeypatch, parts):
    monkeypatch.setattr(segment, "_CUT_AT_ONCE", 300)
    made = number(bench, 12)
    bench.log.flush()
    truncate_to(bench.log, 2, sync=False)
    for _ in zip(range(parts), cut_in_parts(bench.log), strict=False):
        pass
    bench.crash()
    end = bench.log.log_end_offset
    assert 2 <= end <= 12
    assert values(bench) == made[:end]
