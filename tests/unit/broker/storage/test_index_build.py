"""Indexes with changed contents: no wrong data is served, and the indexes are built again."""

from __future__ import annotations

import random

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.broker.storage import ColdRead
from barnabas.broker.storage.index import OffsetIndex, TimeIndex
from barnabas.broker.storage.index_build import DamagedIndex
from barnabas.broker.storage.truncation import truncate_to
from barnabas.kafka.records import Record, all_records

NOW = 1_700_000_000_000
INDEX = "00000000000000000000.index"
TIME_INDEX = "00000000000000000000.timeindex"


def served(read):
    """Return the result of `read(may_wait)` as the broker calls it: a thread does the
    part that would wait.
    """
    try:
        return read(False)
    except ColdRead as cold:
        cold.warm()
    return read(False)


def offset_read(log, offset):
    """Return the first offset of the batch that is served for `offset`."""
    end = log.log_end_offset
    chunks = served(lambda may_wait: log.read(offset, 1, end, may_wait=may_wait).chunks)
    return next(iter(all_records(b"".join(chunks)))).offset


def offset_at(log, timestamp):
    found = served(lambda may_wait: log.offset_for_timestamp(timestamp, may_wait=may_wait))
    return found.offset if found else None


def filled(bench, batches=60, size=10, interval=0, *, is_sealed=True):
    """Create batches of one record each and stop. Of each pair of timestamps, the later one comes first."""
    bench.configure(index_interval_bytes=interval)
    for place in range(batches):
        bench.append(Record(None, bytes(size), NOW + (place ^ 1)))
    if is_sealed:
        bench.log.roll()
    bench.stop()


def spoilt(how, content, entry):
    rng = random.Random(how)
    entries = [content[at : at + entry.size] for at in range(0, len(content), entry.size)]
    if how == "entries of another segment":  # of batches that lie further apart
        return b"".join(entry.pack(*(3 * number for number in entry.unpack(each))) for each in entries)
    if how == "shuffled":
        rng.shuffle(entries)
        return b"".join(entries)
    if how == "zeros":
        return bytes(len(content))
    if how == "astray":  # but for the last entry, which a start looks at
        return b"".join(entry.pack(a, b + 5) for a, b in map(entry.unpack, entries[:-1])) + entries[-1]
    if how == "ones":  # but for the last entry, which a start looks at
        size = len(entries) // 4 * entry.size
        return content[:size] + b"\xff" * (len(content) - size - entry.size) + entries[-1]
    return rng.randbytes(len(content))


@pytest.mark.parametrize(
    "how", ["entries of another segment", "shuffled", "zeros", "ones", "astray", "noise", "other noise"]
)
@pytest.mark.parametrize("names", [[INDEX], [TIME_INDEX], [INDEX, TIME_INDEX]], ids=len)
def test_all_offsets_and_times_are_found_whatever_the_indexes_say(bench, how, names):
    filled(bench)
    for name in names:
        entry = OffsetIndex.ENTRY if name == INDEX else TimeIndex.ENTRY
        bench.rewrite(name, lambda content, entry=entry: spoilt(how, content, entry))
    log = bench.start()
    for offset in random.Random(1).sample(range(60), 60):
        assert offset_read(log, offset) == offset
        assert offset_at(log, NOW + offset) == offset & ~1


def test_an_index_of_noise_is_built_again_and_outlives_a_restart(bench, caplog):
    filled(bench)
    bench.rewrite(INDEX, lambda content: spoilt("astray", content, OffsetIndex.ENTRY))
    log = bench.start()
    assert [offset_read(log, offset) for offset in range(60)] == list(range(60))
    assert caplog.text.count("its indexes were built again") == 1
    caplog.clear()
    log = bench.restart()
    assert [offset_read(log, offset) for offset in range(60)] == list(range(60))
    assert [offset_at(log, NOW + offset) for offset in range(60)] == [place & ~1 for place in range(60)]
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_an_index_of_zeros_in_a_large_segment_is_not_used_to_read_all_of_it_on_the_event_loop(bench):
    filled(bench, 300, 10_000, interval=4096)
    bench.rewrite(INDEX, lambda content: bytes(len(content)))
    log = bench.start()
    with pytest.raises(DamagedIndex):
        log.read(299, 1, 300, may_wait=False)
    assert offset_read(log, 299) == 299
    segment = log.files.segments[0]
    assert segment.offsets.floor(298)[0] > 290


def test_a_segment_with_few_entries_by_its_settings_is_whole(bench, caplog):
    filled(bench, 300, 10_000, interval=1 << 30)
    log = bench.start()
    assert log.read(299, 1, 300, may_wait=False).chunks
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_what_is_appended_while_the_indexes_are_built_is_found(bench):
    filled(bench, is_sealed=False)
    for name, entry in ((INDEX, OffsetIndex.ENTRY), (TIME_INDEX, TimeIndex.ENTRY)):
        bench.rewrite(name, lambda content, entry=entry: spoilt("astray", content, entry))
    log = bench.start()
    with pytest.raises(DamagedIndex) as damaged:
        log.read(50, 1, 60, may_wait=False)
    for place in range(60, 200):
        bench.append(Record(None, b"", NOW + (place ^ 1)))
    damaged.value.warm()
    assert [offset_read(log, offset) for offset in range(200)] == list(range(200))
    assert [offset_at(log, NOW + place) for place in range(200)] == [place & ~1 for place in range(200)]


def test_what_was_cut_off_while_the_indexes_are_built_does_not_come_back(bench):
    filled(bench, is_sealed=False)
    bench.rewrite(INDEX, lambda content: spoilt("astray", content, OffsetIndex.ENTRY))
    log = bench.start()
    with pytest.raises(DamagedIndex) as damaged:
        log.read(50, 1, 60, may_wait=False)
    truncate_to(log, 30)
    damaged.value.warm()
    for place in range(30, 60):
        bench.append(Record(None, b"other", NOW + (place ^ 1)))
    assert [offset_read(log, offset) for offset in range(60)] == list(range(60))


def test_a_segment_that_is_damaged_too_is_refused_where_it_is_and_read_before(bench, refused):
    filled(bench)
    bench.rewrite(INDEX, lambda content: spoilt("astray", content, OffsetIndex.ENTRY))
    bench.rewrite("00000000000000000000.log", lambda content: content[:2000] + bytes(600) + content[2600:])
    log = bench.start()
    assert offset_read(log, 10) == 10
    for _ in range(2):
        with refused(ErrorCode.CORRUPT_MESSAGE):
            offset_read(log, 40)


@pytest.mark.parametrize("bit", range(12))
def test_no_flipped_bit_of_a_position_has_the_inside_of_a_batch_taken_for_its_beginning(bench, bit):
    filled(bench, size=100)  # of zeros, which many fields of a header are, too

    def flipped(content):
        entries = [content[at : at + 8] for at in range(0, len(content), 8)]
        moved = [(offset, position ^ 1 << bit) for offset, position in map(OffsetIndex.ENTRY.unpack, entries)]
        return b"".join(OffsetIndex.ENTRY.pack(*entry) for entry in moved)

    bench.rewrite(INDEX, flipped)
    log = bench.start()
    for offset in random.Random(bit).sample(range(60), 60):
        assert next(iter(all_records(b"".join(log.read(offset, 1, 60).chunks)))).offset == offset
        assert offset_read(log, offset) == offset
