"""Idempotent producers: the window of five batches, sequences, epochs, and their state after a restart."""

from __future__ import annotations

import gc
import time

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.broker.storage import Origin
from barnabas.broker.storage.producer_snapshot import decode_snapshot, encode_snapshot
from barnabas.broker.storage.producers import Producer, ProducerBatch, Producers
from barnabas.broker.storage.retention import delete_old_segments
from barnabas.broker.storage.truncation import truncate_to
from barnabas.kafka.records import Record, encode_batch
from barnabas.kafka.records.batch import parse_header
from barnabas.kafka.records.control import EndTransaction, encode_end_transaction

NOW = 1_700_000_000_000


def batch(sequence: int, count: int = 1, *, producer: int = 7, epoch: int = 0, **more: bool) -> bytes:
    records = [Record(None, b"%d" % number, NOW) for number in range(count)]
    return encode_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, **more)


def append(bench, *args: int, **kwargs: int):
    return bench.log.append_as_leader(batch(*args, **kwargs), 0)


def test_duplicate_batch_returns_its_original_offset(bench):
    first = append(bench, 0, 3)
    again = append(bench, 0, 3)
    assert again.duplicate
    assert (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset) == (0, 2)
    assert bench.log.log_end_offset == 3


def test_any_of_the_last_five_batches_is_a_duplicate_and_the_sixth_is_out_of_order(bench, refused):
    for number in range(6):
        append(bench, 2 * number, 2)
    for number in range(1, 6):
        info = append(bench, 2 * number, 2)
        assert info.duplicate and info.base_offset == 2 * number
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        append(bench, 0, 2)
    assert bench.log.log_end_offset == 12


@pytest.mark.parametrize("again", ["restart", "crash"])
def test_the_window_of_five_survives(bench, refused, again):
    for number in range(6):
        append(bench, 2 * number, 2)
    getattr(bench, again)()
    for number in range(1, 6):
        info = append(bench, 2 * number, 2)
        assert info.duplicate and info.base_offset == 2 * number
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        append(bench, 0, 2)
    assert append(bench, 12).base_offset == 12


def test_the_window_survives_the_deletion_of_its_segments(bench):
    bench.configure(segment_bytes=200, retention_bytes=0)
    for number in range(5):
        append(bench, number)
    bench.log.advance_high_watermark(5)
    delete_old_segments(bench.log, NOW)
    assert bench.log.log_start_offset == 5
    bench.restart()
    assert append(bench, 3).base_offset == 3
    bench.crash()
    assert append(bench, 3).base_offset == 3


def test_a_gap_in_the_sequence_is_out_of_order(bench, refused):
    append(bench, 0, 3)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        append(bench, 4)
    assert append(bench, 3).base_offset == 3


def test_a_batch_that_overlaps_one_before_is_out_of_order(bench, refused):
    append(bench, 0, 3)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        append(bench, 0, 4)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        append(bench, 1, 2)


LAST = 2**31 - 1  # sequences go on from 0 after it

#: base sequence and count of five batches in a row: the wrap lies between two of them, or inside one
WRAPS = pytest.mark.parametrize(
    "batches",
    [
        [(LAST - 5, 2), (LAST - 3, 2), (LAST - 1, 2), (0, 2), (2, 2)],
        [(LAST - 4, 2), (LAST - 2, 2), (LAST, 3), (2, 1), (3, 4)],
        [(LAST - 3, 1), (LAST - 2, 1), (LAST - 1, 1), (LAST, 1), (0, 1)],
        [(LAST - 8, 9), (0, 1), (1, 1), (2, 1), (3, 1)],
    ],
)


@WRAPS
def test_the_sequence_goes_on_from_zero_after_the_largest_int(bench, refused, batches):
    for sequence, count in batches:
        expected = bench.log.log_end_offset
        assert append(bench, sequence, count).base_offset == expected
        following = (sequence + count) % (LAST + 1)
        for wrong in {(following + 1) % (LAST + 1), (following - 1) % (LAST + 1), LAST // 2} - {sequence}:
            with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
                append(bench, wrong, count + 1)


@pytest.mark.parametrize("again", [None, "restart", "crash"])
@WRAPS
def test_all_batches_around_the_wrap_are_duplicates(bench, batches, again):
    offsets = [append(bench, *sent).base_offset for sent in batches]
    end = bench.log.log_end_offset
    if again:
        getattr(bench, again)()
    for sent, offset in zip(batches, offsets, strict=True):
        info = append(bench, *sent)
        assert info.duplicate and info.base_offset == offset
    sequence, count = batches[-1]
    assert append(bench, (sequence + count) % (LAST + 1)).base_offset == end


@WRAPS
def test_the_window_goes_on_where_a_truncation_cut_it_off_around_the_wrap(bench, batches):
    offsets = [append(bench, *sent).base_offset for sent in batches]
    bench.log.roll()
    truncate_to(bench.log, offsets[3])
    assert append(bench, *batches[2]).duplicate
    assert append(bench, *batches[3]).base_offset == offsets[3]


@WRAPS
def test_a_snapshot_keeps_the_batches_around_the_wrap(bench, batches):
    for sent in batches:
        append(bench, *sent)
    (producer,) = decode_snapshot(encode_snapshot(bench.log.producers))
    assert [(batch.base_sequence, batch.offset_delta + 1) for batch in producer.batches] == batches


def test_a_producer_that_is_not_known_may_begin_anywhere(bench):
    """Its state may have expired, so the log cannot know its sequence."""
    assert append(bench, 41).base_offset == 0
    assert append(bench, 42).base_offset == 1


def test_an_older_epoch_is_fenced(bench, refused):
    append(bench, 0, epoch=3)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        append(bench, 0, epoch=2)


def test_a_new_epoch_begins_with_sequence_zero(bench, refused):
    append(bench, 0, 5)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        append(bench, 5, epoch=1)
    assert append(bench, 0, epoch=1).base_offset == 5
    assert not append(bench, 1, epoch=1).duplicate


def test_producers_do_not_disturb_each_other(bench):
    append(bench, 0, producer=1)
    append(bench, 0, producer=2)
    assert append(bench, 1, producer=1).base_offset == 2
    assert append(bench, 0, producer=2).base_offset == 1


def test_silent_producers_are_forgotten(bench):
    append(bench, 0)
    bench.log.producers.expire(NOW + 999, 1000)
    assert [producer.producer_id for producer in bench.log.producers] == [7]
    bench.log.producers.expire(NOW + 1000, 1000)
    assert list(bench.log.producers) == []


def test_active_producers_show_what_describe_producers_asks_for(bench):
    append(bench, 0, 3, epoch=2)
    (producer,) = bench.log.producers
    assert (producer.producer_id, producer.epoch, producer.last_sequence) == (7, 2, 2)
    assert (producer.last_timestamp, producer.coordinator_epoch, producer.transaction_start) == (NOW, -1, -1)


def test_an_open_transaction_holds_the_last_stable_offset_until_its_marker(bench):
    bench.append()
    bench.log.append_as_leader(batch(0, 2, transactional=True), 0)
    bench.log.append_as_leader(batch(0, producer=8, transactional=True), 0)
    bench.append()
    log = bench.log
    assert (log.last_stable_offset, log.high_watermark) == (1, 5)
    log = bench.crash()
    assert log.last_stable_offset == 1
    marker = encode_end_transaction(EndTransaction(True, 3), producer_id=7, producer_epoch=0, timestamp=NOW)
    log.append_as_leader(marker, 0, origin=Origin.COORDINATOR)
    assert log.last_stable_offset == 1, "until the marker is committed"
    log.advance_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 3
    assert log.producers.get(7).coordinator_epoch == 3
    log = bench.restart()
    assert log.last_stable_offset == 3
    log.producers.expire(NOW + 10**9, 1)
    assert [producer.producer_id for producer in log.producers] == [8]


def test_truncation_takes_the_producers_back(bench):
    for number in range(4):
        append(bench, number)
    truncate_to(bench.log, 2)
    assert bench.log.producers.get(7).last_sequence == 1
    assert append(bench, 2).base_offset == 2


def test_a_damaged_snapshot_is_passed_over_for_the_one_before_and_the_log(bench, caplog):
    bench.configure(segment_bytes=200)
    for number in range(4):
        append(bench, number)
    bench.stop()
    *_, earlier, last = bench.names(".snapshot")
    bench.rewrite(last, lambda content: content[:-1])
    bench.rewrite(earlier, lambda content: b"")
    bench.start()
    assert append(bench, 1).duplicate and append(bench, 3).duplicate
    assert f"{last} is dropped" in caplog.text


def test_snapshot_comes_back_with_every_remembered_batch():
    producers = []
    for number in range(3):
        producer = Producer(number, number + 1)
        producer.batches = [ProducerBatch(10 * place + 2, 100 + place, 2, NOW) for place in range(number * 2)]
        producer.last_timestamp = NOW if producer.batches else -1
        producer.transaction_start = number - 1
        producer.coordinator_epoch = number
        producers.append(producer)
    again = decode_snapshot(encode_snapshot(producers))
    assert [{n: getattr(p, n) for n in Producer.__slots__} for p in again] == [
        {n: getattr(p, n) for n in Producer.__slots__} for p in producers
    ]


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_a_snapshot_cut_off_or_changed_is_refused(cut):
    producer = Producer(1, 0)
    producer.batches = [ProducerBatch(0, 0, 0, NOW), ProducerBatch(1, 1, 0, NOW)]
    content = encode_snapshot([producer])
    with pytest.raises(ValueError, match="snapshot"):
        decode_snapshot(content[:cut])
    changed = bytearray(content)
    changed[cut] ^= 1
    with pytest.raises(ValueError, match="snapshot"):
        decode_snapshot(bytes(changed))


def test_the_first_part_of_a_snapshot_has_kafkas_layout():
    producer = Producer(0x0102030405060708, 9)
    producer.batches = [ProducerBatch(11, 12, 1, 13)]
    producer.last_timestamp = 13
    assert encode_snapshot([producer])[6:] == bytes.fromhex(
        "00000001010203040506070800090000000b000000000000000c00000001000000000000000dffffffffffffffffffffffff"
    )


@pytest.mark.parametrize("known", [0, 3])
def test_what_follows_a_batch_that_found_the_disk_full_is_refused_as_it_was(bench, refused, known):
    for sequence in range(known):
        append(bench, sequence)
    bench.disk.space = 0
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        append(bench, known)
    bench.disk.space = None
    for sequence in range(known + 1, known + 5):
        with refused(ErrorCode.KAFKA_STORAGE_ERROR):
            append(bench, sequence)
    assert [append(bench, sequence).base_offset for sequence in range(known, known + 5)] == list(
        range(known, known + 5)
    )
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        append(bench, known + 6)


@pytest.mark.parametrize("known", [0, 3])
def test_a_producer_that_gave_a_refused_batch_up_is_told_soon_and_may_begin_a_new_epoch(
    bench, refused, known
):
    for sequence in range(known):
        append(bench, sequence)
    bench.disk.space = 0
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        append(bench, known)
    bench.disk.space = None
    for _ in range(5):
        with refused(ErrorCode.KAFKA_STORAGE_ERROR):
            append(bench, known + 1)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        append(bench, known + 1)
    assert append(bench, 0, epoch=1).base_offset == known


def test_many_transactions_are_replayed_in_time_that_grows_with_their_number():
    """While a start reads a log, nothing is committed, so all ended transactions are remembered."""
    data = parse_header(batch(0, transactional=True))
    end = EndTransaction(True, 0)
    marker = parse_header(encode_end_transaction(end, producer_id=7, producer_epoch=0, timestamp=NOW))

    def replayed(count: int) -> tuple[float, Producers]:
        producers = Producers()
        gc.disable()  # what a collection costs depends on what other tests have left
        began = time.thread_time()
        for offset in range(0, 2 * count, 2):
            producers.update(data, offset)
            producers.end_transaction(marker, end, offset + 1)
        took = time.thread_time() - began
        gc.enable()
        return took, producers

    few, _ = replayed(10_000)
    many, producers = replayed(60_000)
    assert many < 15 * few  # and not 36 times as long
    assert producers.first_unstable_offset == 0
    producers.committed(120_000)
    assert producers.first_unstable_offset is None
