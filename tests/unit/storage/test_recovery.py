"""Starts after a clean stop and after a crash."""

from __future__ import annotations

import random

import pytest

from barnabas.errors import ErrorCode
from barnabas.records import Record, all_records
from barnabas.storage.index import OffsetIndex, TimeIndex

NOW = 1_700_000_000_000
LOG = "00000000000000000000.log"
INDEX = "00000000000000000000.index"
TIME_INDEX = "00000000000000000000.timeindex"


def values(bench) -> list[bytes | None]:
    log = bench.log
    found: list[Record] = []
    while (offset := found[-1].offset + 1 if found else log.log_start_offset) < log.log_end_offset:
        found += all_records(b"".join(log.read(offset, 1 << 20, log.log_end_offset).chunks))
    return [record.value for record in found]


def number(bench, count: int) -> list[bytes]:
    made = [b"%d" % place for place in range(count)]
    for value in made:
        bench.append(Record(None, value, NOW))
    return made


def test_a_clean_stop_needs_no_recovery(bench, caplog):
    bench.configure(segment_bytes=300)
    made = number(bench, 10)
    bench.stop()
    before = {name: size for name, size, *_ in bench.disk.entries("/data/logs-0")}
    bench.start()
    assert bench.directory.was_clean
    assert values(bench) == made
    assert bench.log.recovery_point == 10
    assert {name: size for name, size, *_ in bench.disk.entries("/data/logs-0")} == before
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_a_clean_start_does_not_read_what_is_before_the_end(bench):
    bench.configure(segment_bytes=300)
    number(bench, 10)
    bench.stop()
    bench.rewrite(LOG, lambda content: bytes(len(content)))
    bench.start()
    assert bench.log.log_end_offset == 10


def test_the_marker_of_a_clean_stop_holds_for_one_start(bench):
    bench.append()
    bench.restart()
    assert bench.directory.was_clean
    bench.crash()
    assert not bench.directory.was_clean


def test_a_killed_process_loses_nothing(bench):
    bench.configure(segment_bytes=300)
    made = number(bench, 10)
    bench.crash()
    assert values(bench) == made
    assert bench.log.log_end_offset == 10


@pytest.mark.parametrize("cut", [1, 10, 61, 66])
def test_a_torn_tail_is_cut_off_with_a_log_line(bench, caplog, cut):
    made = number(bench, 5)
    size = bench.log.size
    bench.kill()
    bench.rewrite(LOG, lambda content: content[:-cut])
    bench.start()
    assert values(bench) == made[:4]
    assert bench.log.size == size * 4 // 5
    assert "damaged and cut off" in caplog.text
    bench.append(Record(None, b"next", NOW))
    assert values(bench) == [*made[:4], b"next"]


def test_zeros_at_the_tail_are_cut_off(bench):
    """A file that grew by a crash without its bytes reads as zeros."""
    made = number(bench, 5)
    bench.kill()
    bench.rewrite(LOG, lambda content: content + bytes(1000))
    bench.start()
    assert values(bench) == made


def test_damage_in_an_unflushed_segment_drops_what_follows_it(bench, caplog):
    bench.configure(segment_bytes=300)
    made = number(bench, 12)
    assert len(bench.base_offsets()) == 3
    bench.kill()
    bench.rewrite(bench.names(".log")[1], lambda content: content[:-5] + b"xxxxx")
    bench.start()
    assert values(bench) == made[: bench.log.log_end_offset]
    assert bench.log.log_end_offset == 7
    assert len(bench.base_offsets()) == 2
    assert len(bench.names(".log")) == 2


def test_a_lost_segment_drops_what_follows_the_hole(bench):
    bench.configure(segment_bytes=300)
    made = number(bench, 12)
    bench.kill()
    bench.disk.remove(f"/data/logs-0/{bench.names('.log')[1]}")
    bench.start()
    assert values(bench) == made[:4]


def test_what_was_flushed_is_not_read_again(bench):
    bench.configure(segment_bytes=300)
    number(bench, 12)
    bench.log.flush()
    bench.directory.recovery_point_checkpoint().run()
    bench.kill()
    bench.rewrite(LOG, lambda content: content[:70] + b"?" + content[71:])
    bench.start()
    assert bench.log.log_end_offset == 12


@pytest.mark.parametrize("name", [INDEX, TIME_INDEX])
@pytest.mark.parametrize(
    "damage",
    [lambda content: content[:-1], lambda content: content + bytes(3), None],
    ids=["short", "long", "missing"],
)
def test_a_damaged_index_is_built_anew(bench, caplog, name, damage):
    bench.configure(segment_bytes=1000, index_interval_bytes=100)
    for place in range(30):
        bench.append(Record(None, b"%d" % place, NOW + place))
    sealed = bench.log.files.segments[0]
    expected = [sealed.offsets.entry(n) for n in range(len(sealed.offsets))]
    times = [sealed.times.entry(n) for n in range(len(sealed.times))]
    bench.stop()
    if damage:
        bench.rewrite(name, damage)
    else:
        bench.disk.remove(f"/data/logs-0/{name}")
    bench.start()
    sealed = bench.log.files.segments[0]
    assert [sealed.offsets.entry(n) for n in range(len(sealed.offsets))] == expected
    assert [sealed.times.entry(n) for n in range(len(sealed.times))] == times
    assert "built anew" in caplog.text


def test_an_index_that_points_beyond_its_segment_is_built_anew(bench, caplog):
    bench.configure(segment_bytes=1000, index_interval_bytes=100)
    number(bench, 30)
    bench.stop()
    bench.rewrite(INDEX, lambda content: content + OffsetIndex.ENTRY.pack(500, 999_999))
    bench.rewrite(TIME_INDEX, lambda content: content + TimeIndex.ENTRY.pack(-5, 500))
    bench.start()
    assert "built anew" in caplog.text
    assert bench.log.files.segments[0].offsets.last()[1] < 1000


def test_leftovers_of_an_interrupted_deletion_are_removed(bench):
    number(bench, 3)
    bench.stop()
    for name in ("00000000000000000009.log.deleted", "leader-epoch-checkpoint.tmp", "1.log.cleaned"):
        bench.rewrite(name, lambda content: b"x")
    bench.start()
    assert not bench.names(".deleted") + bench.names(".tmp") + bench.names(".cleaned")
    assert bench.log.log_end_offset == 3


def test_epochs_are_rebuilt_from_the_batches_after_a_crash(bench):
    for epoch in (0, 2, 2, 5):
        bench.append(epoch=epoch)
    bench.crash()
    assert [tuple(entry) for entry in bench.log.epochs.entries] == [(0, 0), (2, 1), (5, 3)]


def test_epochs_beyond_the_torn_tail_are_forgotten(bench):
    bench.append(epoch=0)
    bench.append(epoch=1)
    bench.log.flush()
    bench.kill()
    bench.rewrite(LOG, lambda content: content[:-1])
    bench.start()
    assert [tuple(entry) for entry in bench.log.epochs.entries] == [(0, 0)]


def test_a_damaged_epoch_file_is_passed_over(bench, caplog):
    bench.append(epoch=3)
    bench.stop()
    bench.rewrite("leader-epoch-checkpoint", lambda content: b"nonsense")
    bench.start()
    assert bench.log.latest_epoch == -1
    assert "leader-epoch-checkpoint is dropped" in caplog.text


def test_the_log_start_survives_by_its_checkpoint(bench):
    number(bench, 5)
    bench.log.advance_log_start(3)
    bench.directory.log_start_checkpoint().run()
    bench.crash()
    assert bench.log.log_start_offset == 3
    bench.restart()
    assert bench.log.log_start_offset == 3


def test_an_emptied_log_goes_on_where_it_was(bench):
    bench.configure(retention_ms=0)
    number(bench, 5)
    bench.clock.advance(10)
    bench.log.delete_old_segments(bench.clock.now_ms()).run()
    for again in (bench.restart, bench.crash, bench.restart):
        again()
        assert (bench.log.log_start_offset, bench.log.log_end_offset) == (5, 5)
    assert bench.append().base_offset == 5


def test_truncation_lowers_the_recovery_point_on_disk_first(bench, refused):
    number(bench, 10)
    bench.log.flush()
    bench.directory.recovery_point_checkpoint().run()
    bench.log.truncate_to(4)
    bench.append(Record(None, b"unflushed", NOW), epoch=1)
    bench.kill()
    bench.rewrite(LOG, lambda content: content[:-1] + b"?")
    bench.start()
    assert bench.log.log_end_offset == 4


def test_truncation_inside_a_batch_drops_the_whole_batch(bench):
    bench.append(*[Record(None, b"", NOW)] * 3)
    bench.append(*[Record(None, b"", NOW)] * 3, epoch=1)
    assert bench.log.truncate_to(4)
    assert (bench.log.log_end_offset, bench.log.high_watermark, bench.log.latest_epoch) == (3, 3, 0)
    assert not bench.log.truncate_to(3)


def test_truncation_removes_later_segments(bench):
    bench.configure(segment_bytes=300)
    made = number(bench, 12)
    bench.log.truncate_to(5)
    assert values(bench) == made[:5]
    assert len(bench.names(".log")) == 2
    bench.crash()
    assert values(bench) == made[:5]


def test_truncation_to_an_offset_before_the_log_starts_over_there(bench):
    bench.configure(segment_bytes=300, retention_bytes=0)
    number(bench, 12)
    bench.log.delete_old_segments(NOW).run()
    bench.log.truncate_to(2)
    assert (bench.log.log_start_offset, bench.log.log_end_offset) == (2, 2)
    assert bench.append().base_offset == 2
    bench.crash()
    assert (bench.log.log_start_offset, bench.log.log_end_offset) == (2, 3)


def test_a_log_can_start_over_far_ahead(bench):
    number(bench, 3)
    bench.log.truncate_fully_and_start_at(1000)
    assert bench.append().base_offset == 1000
    bench.restart()
    assert (bench.log.log_start_offset, bench.log.log_end_offset) == (1000, 1001)


def test_a_closed_log_refuses_everything(bench, refused):
    log = bench.log
    bench.append()
    removal = bench.directory.delete(log.topic_partition)
    for use in (bench.append, lambda: log.read(0, 1, 1), log.flush, lambda: log.truncate_to(0)):
        with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            use()
    removal.run()


def test_what_is_written_after_a_truncation_inside_a_batch_is_checked(bench):
    """The batch goes as a whole, so the log is not known to be safe up to where it was cut."""
    bench.append(Record(None, b"kept", NOW))
    bench.append(*[Record(None, b"%d" % number, NOW) for number in range(5)])
    bench.log.flush()
    bench.log.truncate_to(4)
    assert bench.log.log_end_offset == 1
    bench.append(Record(None, b"new", NOW))
    bench.append(Record(None, b"newer", NOW))
    bench.log.roll()
    bench.kill()
    bench.rewrite("00000000000000000000.log", lambda content: content[:-1] + b"\xff")
    assert bench.start().log_end_offset == 2


@pytest.mark.parametrize("seed", range(8))
def test_indexes_of_what_was_cut_off_do_not_come_back_with_a_power_cut(bench, seed):
    bench.configure(index_interval_bytes=0)
    bench.fill(3)
    bench.restart()
    bench.log.truncate_to(0)
    bench.crash()
    bench.stop()  # there is nothing that a clean stop would have to write
    bench.disk.crash(random.Random(seed))
    (segment,) = bench.start().files.segments
    assert (len(segment.offsets), len(segment.times)) == (0, 0)
