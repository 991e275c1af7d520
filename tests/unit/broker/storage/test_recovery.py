"""Starts after a clean stop and after a crash."""

from __future__ import annotations

import errno
import random
from contextlib import suppress

import pytest
from tests.unit.broker.storage.conftest import PARTITION, TOPIC_ID

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.storage import checked_lines, checkpoints
from barnabas.broker.storage.index import OffsetIndex, TimeIndex
from barnabas.broker.storage.retention import delete_old_segments
from barnabas.broker.storage.sealed import FILE_NAME as SEALED
from barnabas.broker.storage.segment import file_name
from barnabas.broker.storage.truncation import truncate_fully_and_start_at, truncate_to
from barnabas.kafka.records import Record, all_records

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
    """A file that grew in a crash without its data reads as zeros."""
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
    bench.rewrite(LOG, lambda content: content[:65] + b"?" + content[66:])
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
    assert "rebuilt" in caplog.text


def test_an_index_that_points_beyond_its_segment_is_built_anew(bench, caplog):
    bench.configure(segment_bytes=1000, index_interval_bytes=100)
    number(bench, 30)
    bench.stop()
    bench.rewrite(INDEX, lambda content: content + OffsetIndex.ENTRY.pack(500, 999_999))
    bench.rewrite(TIME_INDEX, lambda content: content + TimeIndex.ENTRY.pack(-5, 500))
    bench.start()
    assert "rebuilt" in caplog.text
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


def test_a_damaged_epoch_file_is_made_anew_from_the_batches(bench, caplog):
    bench.append(epoch=3)
    bench.stop()
    bench.rewrite("leader-epoch-checkpoint", lambda content: b"nonsense")
    bench.start()
    assert bench.log.latest_epoch == 3
    assert "leader-epoch-checkpoint: not a checkpoint" in caplog.text


def test_the_log_start_survives_by_its_checkpoint(bench):
    number(bench, 5)
    bench.log.advance_log_start(3)
    bench.directory.log_start_checkpoint().run()
    bench.crash()
    assert bench.log.log_start_offset == 3
    bench.restart()
    assert bench.log.log_start_offset == 3


@pytest.mark.parametrize("seed", range(8))
def test_a_power_cut_that_brings_deleted_segments_back_does_not_bring_their_records_back(bench, seed):
    """The disk may not have the new names of the segments' files yet."""
    bench.configure(segment_bytes=300)
    number(bench, 12)
    bench.log.flush()
    bench.directory.recovery_point_checkpoint().run()
    start = bench.log.files.segments[1].base_offset
    bench.log.advance_log_start(start)
    bench.directory.log_start_checkpoint().run()
    delete_old_segments(bench.log, bench.clock.now_ms())
    bench.log.epochs.changed = False  # their file was written
    bench.directory.log_start_checkpoint().run()
    bench.kill()
    bench.disk.crash(random.Random(seed))
    assert bench.start().log_start_offset == start


def test_an_emptied_log_goes_on_where_it_was(bench):
    bench.configure(retention_ms=0)
    number(bench, 5)
    bench.clock.advance(10)
    delete_old_segments(bench.log, bench.clock.now_ms()).run()
    for again in (bench.restart, bench.crash, bench.restart):
        again()
        assert (bench.log.log_start_offset, bench.log.log_end_offset) == (5, 5)
    assert bench.append().base_offset == 5


def test_truncation_lowers_the_recovery_point_on_disk_first(bench, refused):
    number(bench, 10)
    bench.log.flush()
    bench.directory.recovery_point_checkpoint().run()
    truncate_to(bench.log, 4)
    bench.append(Record(None, b"unflushed", NOW), epoch=1)
    bench.kill()
    bench.rewrite(LOG, lambda content: content[:-1] + b"?")
    bench.start()
    assert bench.log.log_end_offset == 4


def test_truncation_inside_a_batch_drops_the_whole_batch(bench):
    bench.append(*[Record(None, b"", NOW)] * 3)
    bench.append(*[Record(None, b"", NOW)] * 3, epoch=1)
    assert truncate_to(bench.log, 4)
    assert (bench.log.log_end_offset, bench.log.high_watermark, bench.log.latest_epoch) == (3, 3, 0)
    assert not truncate_to(bench.log, 3)


def test_truncation_removes_later_segments(bench):
    bench.configure(segment_bytes=300)
    made = number(bench, 12)
    truncate_to(bench.log, 5)
    assert values(bench) == made[:5]
    assert len(bench.names(".log")) == 2
    bench.crash()
    assert values(bench) == made[:5]


def test_truncation_to_an_offset_before_the_log_starts_over_there(bench):
    bench.configure(segment_bytes=300, retention_bytes=0)
    number(bench, 12)
    delete_old_segments(bench.log, NOW).run()
    truncate_to(bench.log, 2)
    assert (bench.log.log_start_offset, bench.log.log_end_offset) == (2, 2)
    assert bench.append().base_offset == 2
    bench.crash()
    assert (bench.log.log_start_offset, bench.log.log_end_offset) == (2, 3)


def test_a_log_can_start_over_far_ahead(bench):
    number(bench, 3)
    truncate_fully_and_start_at(bench.log, 1000)
    assert bench.append().base_offset == 1000
    bench.restart()
    assert (bench.log.log_start_offset, bench.log.log_end_offset) == (1000, 1001)


def test_a_closed_log_refuses_everything(bench, refused):
    log = bench.log
    bench.append()
    removal = bench.directory.delete(log.topic_partition)
    for use in (bench.append, lambda: log.read(0, 1, 1), log.flush, lambda: truncate_to(log, 0)):
        with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            use()
    removal.run()


def test_what_is_written_after_a_truncation_inside_a_batch_is_checked(bench):
    """The whole batch is removed, so the log is not known to be durable up to the truncation."""
    bench.append(Record(None, b"kept", NOW))
    bench.append(*[Record(None, b"%d" % number, NOW) for number in range(5)])
    bench.log.flush()
    truncate_to(bench.log, 4)
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
    truncate_to(bench.log, 0)
    bench.crash()
    bench.stop()  # there is nothing that a clean stop would have to write
    bench.disk.crash(random.Random(seed))
    (segment,) = bench.start().files.segments
    assert (len(segment.offsets), len(segment.times)) == (0, 0)


def test_epochs_that_were_cut_off_are_not_taken_from_their_file(bench):
    """A follower that led in epoch 1 copies records of epoch 0 instead (KAFKA-6361), and is killed."""
    bench.append(epoch=0)
    bench.append(epoch=1)
    bench.log.flush()
    bench.directory.recovery_point_checkpoint().run()
    truncate_to(bench.log, 1)
    bench.append(epoch=0)
    bench.append(epoch=2)
    entries = [(0, 0), (2, 2)]
    assert bench.log.epochs.entries == entries
    bench.crash()
    assert bench.log.epochs.entries == entries


def test_what_was_cut_off_does_not_come_back_behind_what_was_written_since(bench):
    """Its batches are complete and their offsets fit, but their epoch has ended."""
    bench.append(epoch=0)
    bench.append(epoch=0)
    truncate_to(bench.log, 1)
    bench.append(epoch=1)
    bench.append(epoch=0)
    bench.kill()
    bench.start()
    assert (bench.log.log_end_offset, bench.log.latest_epoch) == (2, 1)


# --- what had been safe on disk ---


def sealed_and_stopped(bench, how):
    """Create three segments, two of them fsynced, and stop in one of both ways."""
    bench.configure(segment_bytes=300)
    made = number(bench, 12)
    assert bench.base_offsets() == [0, 4, 8]
    bench.log.flush()
    bench.directory.recovery_point_checkpoint().run()
    (bench.stop if how == "stopped" else bench.kill)()
    return made


@pytest.mark.parametrize("how", ["stopped", "killed"])
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(
    "damage",
    [lambda content: content[:-20], lambda content: content[:-1], lambda content: content[:138], None],
    ids=["torn", "last byte", "cut", "gone"],
)
def test_segments_that_had_been_safe_and_are_cut_or_gone_are_not_passed_over(
    bench, caplog, how, place, damage
):
    sealed_and_stopped(bench, how)
    name = bench.names(".log")[place]
    if damage is None:
        bench.disk.remove(f"/data/logs-0/{name}")
    else:
        bench.rewrite(name, damage)
    if how == "killed" and place == 0 and damage is None:
        bench.start()  # retention may have removed it: the files do not tell
        assert "offsets 0 to 3 are missing" in caplog.text
        return
    with pytest.raises(KafkaError, match=r"were on disk .*barnabas log check"):
        bench.start()
    assert bench.directory.failure is None


@pytest.mark.parametrize("how", ["stopped", "killed"])
@pytest.mark.parametrize("are_gone", [False, True])
def test_segments_that_retention_has_removed_are_not_said_to_be_lost(bench, caplog, how, are_gone):
    bench.configure(segment_bytes=300, retention_bytes=400)
    number(bench, 12)
    bench.log.flush()
    removal = delete_old_segments(bench.log, bench.clock.now_ms())
    if are_gone:  # the new start is on disk before that
        bench.directory.log_start_checkpoint().run()
        removal.run()
    (bench.stop if how == "stopped" else bench.kill)()
    bench.start()
    assert bench.log.log_start_offset == bench.log.files.segments[0].base_offset == 4
    assert "are missing, and retention" not in caplog.text


@pytest.mark.parametrize("deleted", ["whole", "cut"])
def test_a_loss_behind_a_segment_that_retention_was_removing_is_told(bench, caplog, deleted):
    bench.configure(segment_bytes=300, retention_bytes=400)
    number(bench, 12)
    bench.log.flush()
    delete_old_segments(bench.log, bench.clock.now_ms())  # 0 to 3, whose files wait for their removal
    bench.kill()
    if deleted == "whole":
        bench.disk.remove("/data/logs-0/" + bench.names(".log")[0])
    else:
        bench.rewrite(file_name(0, ".log.deleted"), lambda content: content[:-20])
    bench.start()
    lost = (4, 7) if deleted == "whole" else (0, 3)  # what is cut proves nothing
    assert f"offsets {lost[0]} to {lost[1]} are missing" in caplog.text


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_garbage_behind_the_active_segment_is_cut_off_and_nothing_is_lost(bench, caplog, how):
    made = sealed_and_stopped(bench, how)
    bench.rewrite(bench.names(".log")[2], lambda content: content + random.Random(5).randbytes(2000))
    bench.start()
    assert bench.log.log_end_offset == bench.log.high_watermark == 12
    assert values(bench) == made
    assert "2000 bytes after offset 11 are damaged and cut off" in caplog.text


def test_a_later_batch_with_an_absurd_offset_is_no_end(bench, caplog):
    """The CRC does not cover the base offset."""
    made = sealed_and_stopped(bench, "stopped")
    last = bench.names(".log")[2]
    bench.rewrite(last, lambda content: content + b"\x4f" + content[1:69])
    bench.start()
    assert bench.log.log_end_offset == 12
    assert values(bench) == made


def test_a_hole_behind_the_recovery_point_of_a_compacted_log_is_a_loss(bench):
    """Compaction makes gaps only before the recovery point."""
    bench.configure(segment_bytes=200, cleanup_policy=("compact",))
    for value in range(6):
        bench.append(Record(b"%d" % value, bytes(100), NOW))
        if value == 1:
            bench.log.flush()
            bench.directory.recovery_point_checkpoint().run()
    lost = bench.base_offsets()[4]
    bench.kill()
    bench.disk.remove(f"/data/logs-0/{lost:020}.log")
    assert bench.start().log_end_offset == lost


def test_whole_batches_behind_damage_are_kept_in_a_file(bench, caplog):
    number(bench, 5)
    bench.kill()
    bench.rewrite(LOG, lambda content: content[:70] + b"?" + content[71:])
    bench.start()
    assert values(bench) == [b"0"]
    assert "batches of offsets 2 to 4 among them are kept in /data/logs-0/" in caplog.text
    (kept,) = bench.names(".damaged")
    file = bench.disk.open(f"/data/logs-0/{kept}")
    assert file.read_at(1 << 20, 0).endswith(b"4\x00")
    file.close()


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_header_that_cannot_be_is_not_served(bench, caplog, refused, how):
    bench.configure(segment_bytes=300)
    number(bench, 12)
    bench.log.flush()
    bench.rewrite(LOG, lambda content: content[:69] + b"\x4f" + content[70:])  # the second batch's offset
    bench.log.files.segments[0]._recent.clear()
    for _ in range(3):
        with refused(ErrorCode.CORRUPT_MESSAGE):
            bench.log.read(1, 1000, 12)
    assert caplog.text.count("offset 1 cannot be read") == 1


def test_a_log_that_was_begun_and_has_no_segment_is_said(bench, caplog):
    number(bench, 3)
    bench.kill()
    bench.disk.remove(f"/data/logs-0/{LOG}")
    bench.start()
    assert "logs-0 has no segment" in caplog.text


def test_a_batch_that_says_it_is_huge_is_not_promised(bench, refused):
    bench.configure(segment_bytes=300)
    number(bench, 12)
    bench.log.flush()
    bench.rewrite(LOG, lambda content: content[:77] + b"\x40" + content[78:])  # the second batch's length
    bench.log.files.segments[0]._recent.clear()
    with refused(ErrorCode.CORRUPT_MESSAGE):
        bench.log.read(1, 10, 12)
    assert len(b"".join(bench.log.read(0, 80, 12).chunks)) == 69


def test_an_index_that_leads_astray_skips_no_records(bench):
    bench.configure(index_interval_bytes=0)
    made = number(bench, 40)
    bench.stop()
    for number_of_entry in range(5, 38):
        whole = []
        at = number_of_entry * OffsetIndex.ENTRY.size

        def change(content, at=at, whole=whole):
            whole.append(content)
            relative, position = OffsetIndex.ENTRY.unpack_from(content, at)
            return content[:at] + OffsetIndex.ENTRY.pack(relative, position + 69) + content[at + 8 :]

        bench.rewrite(INDEX, change)
        bench.start()
        assert values(bench) == made
        for offset in range(40):
            (first, *_) = all_records(b"".join(bench.log.read(offset, 69, 40).chunks))
            assert first.offset == offset
        bench.stop()
        bench.rewrite(INDEX, lambda content, whole=whole: whole[0])


def test_a_power_cut_that_takes_acknowledged_records_is_said(bench, caplog):
    number(bench, 5)
    bench.directory.high_watermark_checkpoint().run()
    bench.kill()
    bench.rewrite(LOG, lambda content: content[:138])
    bench.start()
    assert "records of offsets 2 to 4, which had been acknowledged, are missing" in caplog.text


def test_what_a_power_cut_has_left_beyond_the_recovery_point_is_not_taken_for_committed(bench):
    number(bench, 2)
    bench.log.flush()
    number(bench, 3)
    for checkpoint in (bench.directory.high_watermark_checkpoint, bench.directory.recovery_point_checkpoint):
        checkpoint().run()
    bench.kill()
    bench.rewrite(LOG, lambda content: content[: 4 * 69])  # a truncation may be undone: these may be older
    directory = bench.directory = bench.open()
    log = directory.load(bench.log.topic_partition, bench.log.topic_id, bench.config)
    assert (log.log_end_offset, log.high_watermark) == (4, 2)


def test_a_log_whose_recovery_point_is_lost_is_read_through(bench, caplog):
    made = sealed_and_stopped(bench, "stopped")
    file = bench.disk.open("/data/recovery-point-offset-checkpoint")
    file.write_at([b"\xff\x00"], 4)
    file.close()
    bench.start()
    assert values(bench) == made
    assert "recovery-point-offset-checkpoint is damaged" in caplog.text


# --- the time index and what retention goes by ---


def timed(bench, how):
    """Create fsynced segments whose largest timestamp is in their last batch but one."""
    bench.configure(segment_bytes=570, index_interval_bytes=0)
    for place in range(20):
        bench.append(Record(None, b"%02d" % place, NOW + 1000 * (place ^ 1)))
    bench.log.flush()
    bench.directory.recovery_point_checkpoint().run()
    latest = [segment.latest for segment in bench.log.files.segments]
    assert len(latest) > 2
    (bench.stop if how == "stopped" else bench.kill)()
    if how == "unlisted":
        bench.disk.remove(f"/data/logs-0/{SEALED}")
    return latest


def sizes(bench):
    return {entry.name: entry.size for entry in bench.disk.entries("/data/logs-0")}


def shifted(content, by_ms=0, by_offset=0):
    """Return a time index with another last entry."""
    size = TimeIndex.ENTRY.size
    timestamp, offset = TimeIndex.ENTRY.unpack(content[-size:])
    return content[:-size] + TimeIndex.ENTRY.pack(timestamp + by_ms, offset + by_offset)


@pytest.mark.parametrize("how", ["stopped", "killed", "unlisted"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda content: shifted(content, by_ms=1 << 40),
        lambda content: shifted(content, by_ms=-(1 << 9)),
        lambda content: shifted(content, by_offset=-1),
        lambda content: shifted(content, by_offset=1 << 20),
        lambda content: content[: -TimeIndex.ENTRY.size],
        lambda content: b"",
    ],
    ids=["later", "earlier", "other batch", "no batch", "cut", "emptied"],
)
@pytest.mark.parametrize("place", [0, 1])
def test_retention_is_not_misled_by_a_damaged_time_index(bench, caplog, how, damage, place):
    latest = timed(bench, how)
    name = bench.names(".timeindex")[place]
    size = sizes(bench)[name]
    bench.rewrite(name, damage)
    is_cut = sizes(bench)[name] < size
    bench.start()
    assert [segment.latest for segment in bench.log.files.segments] == latest
    if how == "unlisted" or (how == "killed" and is_cut):
        assert f"{name.partition('.')[0]}.log: its indexes are missing or damaged" in caplog.text
    for step in range(20):
        found = bench.log.offset_for_timestamp(NOW + 1000 * step)
        assert found.offset == step & ~1


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_damaged_entry_inside_a_time_index_hides_no_record(bench, caplog, how):
    timed(bench, how)
    entry = TimeIndex.ENTRY
    name = bench.names(".timeindex")[1]

    def damage(content):
        timestamp, offset = entry.unpack_from(content, entry.size)
        return content[: entry.size] + entry.pack(timestamp, offset + 3) + content[2 * entry.size :]

    bench.rewrite(name, damage)
    bench.start()
    for step in range(20):
        assert bench.log.offset_for_timestamp(NOW + 1000 * step).offset == step & ~1
    assert f"{name} is damaged: entries that do not fit" in caplog.text


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_whole_indexes_are_not_built_anew(bench, caplog, how):
    timed(bench, how)
    bench.start()
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_sizes_without_those_of_the_indexes_count_as_damaged(bench, caplog):
    latest = timed(bench, "stopped")
    path = f"/data/{checkpoints.SEGMENT_SIZES}"
    content = bench.disk.open(path).read_at(1 << 20, 0)
    lines = [" ".join(line.split()[:4]) for line in content.decode().splitlines()[2:]]
    file = bench.disk.open(path)
    short = checked_lines.encode(lines)
    file.truncate(len(short))
    file.write_at([short], 0)
    file.close()
    bench.start()
    assert [segment.latest for segment in bench.log.files.segments] == latest
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert f"{path} is damaged" in warning


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_producer_snapshot_that_is_gone_is_said(bench, caplog, how):
    bench.configure(segment_bytes=300)
    for place in range(12):
        record = Record(None, b"%d" % place, NOW)
        bench.append(record, producer_id=7, producer_epoch=0, base_sequence=place)
    bench.log.flush()
    bench.directory.recovery_point_checkpoint().run()
    (bench.stop if how == "stopped" else bench.kill)()
    name = bench.names(".snapshot")[-1]
    bench.disk.remove(f"/data/logs-0/{name}")
    bench.start()
    assert f"{name} is missing: rebuilding the producers' state from the batches" in caplog.text
    (producer,) = bench.log.producers
    assert producer.batches[-1].last_sequence == 11


def test_where_a_log_begins_is_kept_while_it_cannot_be_opened(bench):
    bench.fill(5)
    bench.log.advance_log_start(3)
    bench.stop()
    bench.directory = bench.open()
    bench.directory.log_start_checkpoint().run()  # it was not loaded
    bench.directory.close()
    assert bench.start().log_start_offset == 3


def end_before_start(bench, *, flushed: int = 5) -> None:
    """Leave a log that ends at `flushed` after a power cut, and whose start on disk is 8."""
    bench.fill(flushed)
    bench.log.flush()
    size = bench.log.size
    bench.fill(10 - flushed)
    bench.log.advance_log_start(8)
    bench.directory.log_start_checkpoint().run()
    bench.kill()
    file = bench.disk.open(f"{bench.path}/logs-0/00000000000000000000.log")
    file.truncate(size)  # the other records are gone
    file.close()


@pytest.mark.parametrize("flushed", [0, 5])
def test_after_a_power_cut_the_offsets_of_deleted_records_are_not_used_again(bench, caplog, flushed):
    end_before_start(bench, flushed=flushed)
    log = bench.start()
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (8, 8, 8)
    assert f"ends at {flushed}, and the records before 8 were deleted" in caplog.text
    assert bench.names(".log") == [file_name(8, ".log")]
    assert bench.append().base_offset == 8
    assert bench.crash().log_start_offset == 8
    assert bench.log.log_end_offset == 9


def test_a_log_that_continues_at_its_start_keeps_its_last_epoch_over_another_crash(bench):
    bench.append(epoch=3)
    end_before_start(bench, flushed=5)
    bench.start()
    assert bench.directory.checkpoints.has_stale_offsets
    bench.directory.checkpoints.write_all()  # as the start of a broker does
    assert not bench.directory.checkpoints.has_stale_offsets
    assert bench.log.epochs.entries == [(3, 8)]
    bench.crash()
    assert bench.log.epochs.entries == [(3, 8)]
    assert bench.log.log_start_offset == bench.log.log_end_offset == 8


@pytest.mark.parametrize("power", ["stays", "is cut"])
@pytest.mark.parametrize("step", range(1, 25))
def test_a_start_that_fails_while_a_log_moves_to_its_start_is_made_good_by_the_next(bench, step, power):
    end_before_start(bench)
    count = 0

    def refuse(operation, path):
        nonlocal count
        count += "logs-0" in path
        return OSError(errno.ENOSPC, "the disk is full") if count >= step else None

    bench.directory = bench.open()
    bench.disk.refuse = refuse
    with suppress(KafkaError):
        bench.directory.load(PARTITION, TOPIC_ID, bench.config).abandon()
    bench.disk.refuse = None
    if power == "is cut":
        bench.disk.crash(random.Random(step))
    else:
        bench.directory._lock.release()
    log = bench.start()
    assert (log.log_start_offset, log.log_end_offset) == (8, 8)
    assert bench.append().base_offset == 8


def test_after_a_clean_stop_a_start_beyond_the_end_removes_no_record(bench):
    bench.fill(5)
    bench.stop()
    content = checkpoints.encode_offsets({PARTITION: 8}, {})
    bench.disk.remove(f"{bench.path}/{checkpoints.LOG_STARTS}")
    bench.disk.open(f"{bench.path}/{checkpoints.LOG_STARTS}", create=True).write_at([content], 0)
    size = bench.log.size
    assert bench.start().log_end_offset == 5
    assert bench.log.size == size


def test_in_a_cluster_a_log_without_an_epoch_continues_at_its_end(bench):
    """Its leader could not detect that it has another history: records would be missing between them."""
    end_before_start(bench, flushed=0)
    bench.is_clustered = True
    assert bench.start().log_end_offset == 0
    assert bench.directory.checkpoints.has_stale_offsets
    bench.directory.log_start_checkpoint().run()
    assert not bench.directory.checkpoints.has_stale_offsets
    bench.fill(10)
    bench.kill()
    assert bench.start().log_start_offset == 0


@pytest.mark.parametrize("base_offset", [0, 1, 2])
def test_a_batch_that_says_it_lies_within_the_one_before_is_damage(bench, refused, base_offset):
    """A CRC does not cover the base offset of a batch."""
    for _ in range(3):
        bench.append(*[Record(None, b"v", 1)] * 3)
    size = bench.log.files.segments.active.size // 3
    bench.restart()
    bench.rewrite(
        bench.names(".log")[0],
        lambda content: content[:size] + base_offset.to_bytes(8, "big") + content[size + 8 :],
    )
    with refused(ErrorCode.CORRUPT_MESSAGE):
        bench.log.read(6, 1000, bench.log.log_end_offset)


def test_a_compacted_segment_that_lost_its_last_batch_after_a_clean_stop_is_missed(bench):
    bench.configure(segment_bytes=300, cleanup_policy=("compact",))
    for number in range(12):
        bench.append(Record(b"%d" % number, b"v", 1))
    bench.stop()
    name = bench.names(".log")[0]
    content = bench.disk.open(f"/data/logs-0/{name}").read_at(1 << 20, 0)
    batch = 12 + int.from_bytes(content[8:12], "big")
    bench.rewrite(name, lambda content: content[:-batch])
    with pytest.raises(KafkaError, match="were on disk"):
        bench.start()


def test_batches_without_a_producer_make_none_when_a_snapshot_is_missing(bench):
    bench.configure(segment_bytes=300)
    number(bench, 12)
    bench.stop()
    for name in bench.names(".snapshot"):
        bench.disk.remove(f"/data/logs-0/{name}")
    bench.start()
    assert len(bench.log.producers) == 0


def test_the_latest_time_after_a_truncation_is_that_of_what_is_left(bench):
    for time_ms in (50, 90, 70, 95):
        bench.append(Record(None, b"v", time_ms))
    truncate_to(bench.log, 3)
    assert bench.log.files.segments.active.latest == (90, 1)


def test_a_log_that_starts_over_has_nothing_of_before(bench):
    bench.configure(segment_bytes=300)
    for sequence in range(12):
        bench.append(Record(None, b"v", 1), producer_id=7, producer_epoch=0, base_sequence=sequence)
    assert bench.names(".snapshot")
    truncate_fully_and_start_at(bench.log, 100)
    assert bench.names(".snapshot") == []
    assert bench.names(".log") == [file_name(100, ".log")]
