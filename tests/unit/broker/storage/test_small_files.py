"""The separate parts of a log: indexes, checkpoints, snapshots, the map of keys, salvage."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation.faulty_disk import FaultyDisk

from barnabas.base.types import TopicPartition
from barnabas.broker.storage import OpenFiles, checked_lines, checkpoints
from barnabas.broker.storage.index import BLOCK, TimeIndex
from barnabas.broker.storage.offset_map import ENTRY_BYTES, OffsetMap
from barnabas.broker.storage.open_files import LogFile
from barnabas.broker.storage.producer_snapshot import decode_snapshot, encode_snapshot
from barnabas.broker.storage.producers import Producer, ProducerBatch
from barnabas.broker.storage.salvage import whole_batches
from barnabas.broker.storage.segment import LogSegment
from barnabas.broker.storage.segments import Segments
from barnabas.kafka.records import Record, encode_batch
from barnabas.kafka.records.batch import NO_SEQUENCE

NOW = 1_700_000_000_000


@given(
    stored=st.integers(0, 5 * BLOCK),
    waiting=st.integers(0, 3),
    target=st.integers(-10, 10 * 5 * BLOCK + 100),
)
def test_the_last_entry_up_to_a_number_is_found_in_any_block(stored, waiting, target):
    index = TimeIndex(LogFile(OpenFiles(FaultyDisk()), "/a"))
    entries = [(10 * number, number) for number in range(stored + waiting)]
    for number, entry in enumerate(entries):
        if number == stored and stored:
            index.store()
        index.append(*entry)
    assert index.floor(target) == next((entry for entry in reversed(entries) if entry[0] <= target), None)


def test_the_map_of_keys_takes_as_many_as_its_memory_holds():
    offsets = OffsetMap(10 * (ENTRY_BYTES + 4))
    assert [offsets.put(b"%04d" % number, number) for number in range(12)] == [True] * 10 + [False] * 2
    assert offsets.put(b"0003", 20)  # which is there already
    assert not offsets.is_latest(b"0003", 19)


def test_what_is_found_behind_damage_begins_where_the_log_goes_on():
    data = b"".join(encode_batch([Record(None, b"x", NOW)] * 2, base_offset=at) for at in (0, 2, 4))
    assert [header.base_offset for _, header in whole_batches(data, 0)] == [0, 2, 4]
    assert [header.base_offset for _, header in whole_batches(data, 0, 2)] == [2, 4]
    assert [header.base_offset for _, header in whole_batches(data, 2)] == [2, 4]


def test_a_line_that_is_no_text_costs_itself_alone():
    content = checked_lines.encode(["t 0 5", "t 1 7"])
    assert checked_lines.decode(content.replace(b"t 1", b"\xff 1"))[0] == ["t 0 5"]


@pytest.mark.parametrize("offset", [-1, checkpoints.MAX_OFFSET + 1])
def test_a_number_that_is_no_offset_is_damage(offset):
    offsets, _, damage = checkpoints.decode_offsets(b"0\n2\nt 0 3\nt 1 %d\n" % offset)
    assert offsets == {TopicPartition("t", 0): 3}
    assert damage is not None


@pytest.mark.parametrize("epoch", [0, 1, 77])
def test_the_mark_of_a_clean_stop_tells_the_brokers_epoch(epoch):
    for crc in (None, 0, 2**32 - 1):
        marker = checkpoints.CleanShutdown(epoch, crc)
        assert checkpoints.decode_clean_shutdown(checkpoints.encode_clean_shutdown(marker)) == marker


@pytest.mark.parametrize("content", [b"", b"[]", b"1", b'{"brokerEpoch":"7","logsElsewhere":true}', b"\xff"])
def test_a_mark_of_a_clean_stop_that_is_damaged_has_no_epoch(content):
    assert checkpoints.decode_clean_shutdown(content) == checkpoints.CleanShutdown()


def test_a_producer_without_sequences_keeps_its_last_batch_in_a_snapshot():
    """Simulation seed 77096: a coordinator writes transactional offsets without sequences."""
    producer = Producer(7, 2)
    producer.batches = [ProducerBatch(NO_SEQUENCE, offset, 0, 10) for offset in (3, 5)]
    producer.last_timestamp = 10
    (read,) = decode_snapshot(encode_snapshot([producer]))
    assert read.batches == producer.batches


def test_a_producer_whose_batches_are_gone_has_no_last_offset_in_a_snapshot():
    content = encode_snapshot([Producer(7, 2)])
    producer_id, epoch, sequence, offset = struct.unpack_from(">qhiq", content, 2 + 4 + 4)
    assert (producer_id, epoch, sequence, offset) == (7, 2, -1, -1)


def test_segments_that_no_longer_follow_each_other_are_no_run():
    files = OpenFiles(FaultyDisk())
    first, second, third, other = (LogSegment(files, "/a", at, now_ms=NOW) for at in (0, 4, 8, 4))
    segments = Segments([first, second, third])
    assert segments.index_of_run([first, second]) == 0
    assert segments.index_of_run([second]) == 1
    assert segments.index_of_run([first, other]) is None
    assert segments.index_of_run([second, third]) is None  # the active one is not to be replaced
