"""Transactions in a log: the records that read_committed consumers get, whatever happens to the broker."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import ProducerIdentity
from barnabas.broker.storage import AbortedTransaction, Origin
from barnabas.broker.storage.retention import delete_old_segments
from barnabas.broker.storage.transaction_index import ENTRY
from barnabas.broker.storage.truncation import truncate_to
from barnabas.kafka.records import Record, batches, encode_batch
from barnabas.kafka.records.builder import batch_records
from barnabas.kafka.records.control import EndTransaction, decode_end_transaction, encode_end_transaction

NOW = 1_700_000_000_000


class Transactions:
    """Writes to a bench's log, and remembers the expected result."""

    def __init__(self, bench):
        self.bench = bench
        self.sequences = {}
        self.open = {}  # by producer: its first offset, and the records so far
        self.decided = {}  # by offset: the value of each record that counts

    @property
    def log(self):
        return self.bench.log

    def write(self, producer, count=1):
        """Append records of a transaction of `producer`, or without a producer if it is None."""
        base = self.log.log_end_offset
        values = [b"%d" % (base + number) for number in range(count)]
        header = {}
        if producer is not None:
            sequence = self.sequences.get(producer, 0)
            self.sequences[producer] = sequence + count
            header = {
                "producer_id": producer,
                "producer_epoch": 0,
                "base_sequence": sequence,
                "transactional": True,
            }
        data = encode_batch([Record(None, value, NOW) for value in values], **header)
        self.log.append_as_leader(data, 0)
        self.log.advance_high_watermark(self.log.log_end_offset)
        written = {base + number: value for number, value in enumerate(values)}
        if producer is None:
            self.decided.update(written)
        else:
            self.open.setdefault(producer, (base, {}))[1].update(written)

    def end(self, producer, commit):
        marker = encode_end_transaction(
            EndTransaction(commit, 0), producer_id=producer, producer_epoch=0, timestamp=NOW
        )
        self.log.append_as_leader(marker, 0, origin=Origin.COORDINATOR)
        self.log.advance_high_watermark(self.log.log_end_offset)
        _, written = self.open.pop(producer, (0, {}))
        if commit:
            self.decided.update(written)

    @property
    def stable(self):
        return min([first for first, _ in self.open.values()], default=self.log.log_end_offset)

    def expected(self, offset):
        return {o: value for o, value in sorted(self.decided.items()) if offset <= o < self.stable}

    def read(self, offset, max_bytes):
        """Return the records that a read_committed consumer gets, fetch by fetch."""
        found = {}
        start = offset
        while offset < self.log.last_stable_offset:
            fetched = self.log.read(offset, max_bytes, self.log.last_stable_offset)
            data = b"".join(fetched.chunks)
            aborted = self.log.aborted_transactions(offset, fetched.size)
            assert aborted == sorted(aborted, key=lambda t: t.first_offset)
            skipping = set()
            for position, header in batches(data):
                batch = data[position : position + header.size]
                while aborted and aborted[0].first_offset <= header.last_offset:
                    skipping.add(aborted.pop(0).producer_id)
                offset = header.next_offset
                if header.is_control:
                    if not decode_end_transaction(header, batch).commit:
                        skipping.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in skipping):
                    found.update({r.offset: r.value for r in batch_records(header, batch)})
        return {o: value for o, value in found.items() if o >= start}


@pytest.fixture
def transactions(bench):
    return Transactions(bench)


def bytes_of(log):
    return log.read(0, 1 << 20, log.log_end_offset).size


def test_aborted_records_are_told_with_the_fetch(transactions):
    transactions.write(None)
    transactions.write(1, 2)
    transactions.write(2)
    transactions.end(1, commit=False)
    transactions.end(2, commit=True)
    log = transactions.log
    assert log.aborted_transactions(0, bytes_of(log)) == [AbortedTransaction(1, 1, 4, 3)]
    assert log.aborted_transactions(5, 10) == []
    assert transactions.read(0, 1 << 20) == {0: b"0", 3: b"3"}


def test_index_is_in_kafkas_format_and_only_where_something_was_aborted(transactions):
    transactions.write(1)
    transactions.end(1, commit=True)
    assert transactions.bench.names(".txnindex") == []
    transactions.write(7)
    transactions.end(7, commit=False)
    (name,) = transactions.bench.names(".txnindex")
    file = transactions.bench.disk.open(f"/data/logs-0/{name}")
    assert file.read_at(100, 0) == struct.pack(">hqqqq", 0, 7, 2, 3, 4)


def test_second_marker_of_a_transaction_aborts_nothing(transactions):
    transactions.write(1)
    transactions.end(1, commit=True)
    transactions.end(1, commit=False)
    log = transactions.log
    assert log.aborted_transactions(0, bytes_of(log)) == []


def test_marker_that_is_not_committed_lets_nothing_through(transactions):
    transactions.write(1)
    log = transactions.log
    marker = encode_end_transaction(EndTransaction(True, 0), producer_id=1, producer_epoch=0, timestamp=NOW)
    log.append_as_leader(marker, 0, origin=Origin.COORDINATOR)
    log.append_as_leader(encode_batch([Record(None, b"x", NOW)]), 0)
    assert log.last_stable_offset == 0
    log.advance_high_watermark(1)
    assert log.last_stable_offset == 0
    log.advance_high_watermark(3)
    assert log.last_stable_offset == 3


def test_transaction_that_begins_before_the_logs_start_ends_there(transactions):
    transactions.write(1)
    transactions.write(None, 5)
    transactions.log.advance_log_start(3)
    assert transactions.log.last_stable_offset == 3


def test_write_outside_the_open_transaction_is_refused(transactions):
    transactions.write(1)
    plain = encode_batch([Record(None, b"v", NOW)], producer_id=1, producer_epoch=0, base_sequence=1)
    with pytest.raises(KafkaError) as error:
        transactions.log.append_as_leader(plain, 0)
    assert error.value.code == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(
    ("epoch", "coordinator_epoch", "must_raise", "expected"),
    [
        (0, 0, False, None),
        (0, 0, True, ErrorCode.INVALID_PRODUCER_EPOCH),
        (1, 0, True, None),
        (-1, 0, False, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_marker_must_not_be_of_the_past(transactions, epoch, coordinator_epoch, must_raise, expected):
    transactions.write(1)
    assert refused(transactions, epoch, coordinator_epoch, must_raise) == expected


def test_repeated_marker_of_v2_passes_once_nothing_is_open(transactions):
    transactions.write(1)
    transactions.end(1, commit=True)
    assert refused(transactions, 0, 0, True) is None


def test_earlier_coordinator_is_fenced(transactions):
    transactions.write(1)
    later = encode_end_transaction(EndTransaction(True, 5), producer_id=1, producer_epoch=0, timestamp=NOW)
    transactions.log.append_as_leader(later, 0, origin=Origin.COORDINATOR)
    assert refused(transactions, 0, 4, False) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert refused(transactions, 0, 5, False) is None


def refused(transactions, epoch, coordinator_epoch, must_raise):
    try:
        transactions.log.producers.check_marker(
            ProducerIdentity(1, epoch), coordinator_epoch, must_raise_epoch=must_raise
        )
    except KafkaError as error:
        return error.code
    return None


def test_damaged_index_is_built_anew(transactions):
    transactions.bench.configure(segment_bytes=200)
    for producer in range(1, 5):
        transactions.write(producer)
        transactions.write(9)
        transactions.end(producer, commit=False)
    transactions.bench.stop()
    damaged = transactions.bench.names(".txnindex")
    for name in damaged:
        transactions.bench.rewrite(name, lambda content: content[:-5])
    transactions.bench.start()
    transactions.end(9, commit=True)
    assert len(damaged) > 1
    assert transactions.read(0, 1 << 20) == transactions.expected(0)


def test_index_of_what_was_aborted_beside_an_older_transaction_is_sound(transactions, caplog):
    """The last stable offset is then before the first record of the aborted transaction."""
    transactions.bench.configure(segment_bytes=200)
    transactions.write(9)
    for producer in range(1, 5):
        transactions.write(producer)
        transactions.end(producer, commit=False)
    for restart in (transactions.bench.restart, transactions.bench.crash):
        restart()
        assert "damaged" not in caplog.text
    assert len(transactions.bench.names(".txnindex")) > 1


producers = st.sampled_from([1, 2, 3])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.none() | producers, st.integers(1, 3)),
        st.tuples(st.just("end"), producers, st.booleans()),
        st.tuples(st.sampled_from(["crash", "restart", "roll"])),
    ),
    max_size=40,
)


@given(steps=steps, segment_bytes=st.sampled_from([150, 400, 4000]), data=st.data())
def test_reader_of_committed_records_gets_them_all_and_no_other(make_bench, steps, segment_bytes, data):
    transactions = Transactions(make_bench())
    transactions.bench.configure(segment_bytes=segment_bytes, index_interval_bytes=0)
    for step, *arguments in steps:
        if step == "write":
            transactions.write(*arguments)
        elif step == "end":
            transactions.end(*arguments)
        elif step == "roll":
            transactions.log.roll()
        else:
            getattr(transactions.bench, step)()
        assert transactions.log.last_stable_offset == transactions.stable
    start = data.draw(st.integers(0, transactions.log.log_end_offset))
    max_bytes = data.draw(st.sampled_from([1, 80, 300, 1 << 20]))
    assert transactions.read(start, max_bytes) == transactions.expected(start)


def test_a_transaction_index_built_anew_outlives_the_power(transactions, bench):
    transactions.write(1)
    transactions.end(1, commit=False)
    bench.log.roll()
    transactions.write(None)
    bench.log.roll()
    transactions.write(None)
    bench.log.flush()
    bench.directory.recovery_point_checkpoint().run()
    bench.kill()
    bench.rewrite("00000000000000000000.txnindex", lambda content: content[:-1])
    bench.start()
    bench.log.flush()
    bench.kill()
    for seed in range(20):
        bench.disk.crash(random.Random(seed))
        bench.start()
        assert transactions.read(0, 1000) == {2: b"2", 3: b"3"}
        bench.kill()


# --- damage to what has no checksum of its own ---

CHECKSUMS = "barnabas-txnindex-checksums"


def sealed(transactions, segment_bytes=300):
    """Create flushed sealed segments with aborted transactions, beside an open one."""
    transactions.bench.configure(segment_bytes=segment_bytes, index_interval_bytes=0)
    for producer in range(1, 9):
        transactions.write(producer, 2)
        transactions.write(9)
        transactions.end(producer, commit=producer % 3 == 0)
    transactions.end(9, commit=True)
    transactions.log.roll()
    transactions.write(None)
    transactions.log.flush()
    transactions.bench.directory.recovery_point_checkpoint().run()
    return transactions.bench.names(".txnindex")


def end(bench, how):
    (bench.stop if how == "stopped" else bench.kill)()


def flipped(content, place, bit=0):
    changed = bytearray(content)
    changed[place] ^= 1 << bit
    return bytes(changed)


@pytest.mark.parametrize("how", ["stopped", "killed"])
@pytest.mark.parametrize("place", [9, 17, 25, 33], ids=["producer", "first", "last", "stable"])
def test_plausible_flip_in_a_transaction_index_is_found_and_mended(transactions, caplog, how, place):
    names = sealed(transactions)
    assert len(names) > 2
    folder = f"/data/logs-0/{names[1]}"
    before = transactions.bench.disk.open(folder).read_at(1000, 0)
    end(transactions.bench, how)
    transactions.bench.rewrite(names[1], lambda content: flipped(content, place))
    transactions.bench.start()
    assert f"{names[1]} is damaged: it is rebuilt" in caplog.text
    assert transactions.bench.disk.open(folder).read_at(1000, 0) == before
    assert transactions.read(0, 1 << 20) == transactions.expected(0)
    caplog.clear()
    transactions.bench.restart()
    assert "rebuilt" not in caplog.text


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_transaction_index_that_is_gone_is_built_anew(transactions, caplog, how):
    names = sealed(transactions)
    end(transactions.bench, how)
    for name in names:
        transactions.bench.disk.remove(f"/data/logs-0/{name}")
    transactions.bench.start()
    assert caplog.text.count("txnindex is missing: it is rebuilt") == len(names)
    assert transactions.read(0, 1 << 20) == transactions.expected(0)


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_transaction_index_where_nothing_was_aborted_is_removed(transactions, caplog, how):
    transactions.bench.configure(segment_bytes=100)
    for producer in range(1, 4):
        transactions.write(producer)
        transactions.end(producer, commit=True)
    transactions.log.flush()
    transactions.bench.directory.recovery_point_checkpoint().run()
    end(transactions.bench, how)
    entry = struct.pack(">hqqqq", 0, 1, 0, 1, 2)
    transactions.bench.rewrite("00000000000000000000.txnindex", lambda content: entry)
    transactions.bench.start()
    assert "00000000000000000000.txnindex is damaged" in caplog.text
    assert transactions.read(0, 1 << 20) == transactions.expected(0)


@pytest.mark.parametrize("how", ["stopped", "killed"])
@pytest.mark.parametrize("damage", [None, lambda content: flipped(content, 9), lambda content: b""])
def test_without_checksums_transaction_indexes_are_compared_with_their_segments(
    transactions, caplog, how, damage
):
    names = sealed(transactions)
    end(transactions.bench, how)
    if damage is None:
        transactions.bench.disk.remove(f"/data/logs-0/{CHECKSUMS}")
    else:
        transactions.bench.rewrite(CHECKSUMS, damage)
    transactions.bench.start()
    assert f"{CHECKSUMS}: " in caplog.text
    assert "rebuilt" not in caplog.text
    transactions.log.flush()
    caplog.clear()
    transactions.bench.kill()
    transactions.bench.rewrite(names[0], lambda content: flipped(content, 17))
    transactions.bench.start()
    assert f"{names[0]} is damaged" in caplog.text
    assert transactions.read(0, 1 << 20) == transactions.expected(0)


def test_what_retention_and_truncation_take_leaves_no_checksum_behind(transactions, caplog):
    sealed(transactions)
    bases = transactions.bench.base_offsets()
    transactions.log.advance_log_start(bases[2])
    delete_old_segments(transactions.log, NOW).run()
    for restart in (transactions.bench.restart, transactions.bench.crash):
        restart()
        assert "txnindex" not in caplog.text
    truncate_to(transactions.log, bases[3] + 1)
    for _ in range(20):
        transactions.write(None)
    transactions.log.flush()
    transactions.bench.directory.recovery_point_checkpoint().run()
    for restart in (transactions.bench.crash, transactions.bench.restart):
        restart()
        assert "txnindex" not in caplog.text


@pytest.mark.parametrize("place", [0, 9, 17, 25, 33], ids=["version", "producer", "first", "last", "stable"])
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_truncation_takes_over_no_damage_of_a_transaction_index(transactions, caplog, how, place):
    bench = transactions.bench
    names = sealed(transactions, segment_bytes=1 << 20)
    (name,) = names
    whole = bench.disk.open(f"/data/logs-0/{name}").read_at(1000, 0)
    last = AbortedTransaction(*ENTRY.unpack(whole[-34:])[1:])
    bench.rewrite(name, lambda content: flipped(content, place))
    truncate_to(transactions.log, last.last_offset)
    assert f"{name} is damaged: it is rebuilt from its segment, with 5 aborted transactions" in caplog.text
    assert bench.disk.open(f"/data/logs-0/{name}").read_at(1000, 0) == whole[:-34]
    transactions.log.flush()
    bench.directory.recovery_point_checkpoint().run()
    caplog.clear()
    end(bench, how)
    bench.start()
    assert "txnindex" not in caplog.text
    assert bench.disk.open(f"/data/logs-0/{name}").read_at(1000, 0) == whole[:-34]


@pytest.mark.parametrize("kept", [0, 3, 6])
def test_a_truncation_keeps_what_was_aborted_before_it(transactions, caplog, kept):
    sealed(transactions, segment_bytes=1 << 20)
    log = transactions.log
    aborted = sorted(log.aborted_transactions(0, bytes_of(log)), key=lambda t: t.last_offset)
    assert len(aborted) == 6
    truncate_to(log, aborted[kept].last_offset if kept < 6 else log.log_end_offset - 1)
    left = log.aborted_transactions(0, bytes_of(log))
    assert sorted(left, key=lambda t: t.last_offset) == aborted[:kept]
    assert "txnindex" not in caplog.text


def test_checksums_follow_a_cleaning(transactions, caplog):
    transactions.bench.configure(cleanup_policy=("compact",), segment_bytes=300)
    for producer in range(1, 9):
        data = encode_batch(
            [Record(b"k", b"v", NOW)],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        transactions.log.append_as_leader(data, 0)
        transactions.end(producer, commit=False)
    transactions.log.roll()
    transactions.bench.clean()
    assert transactions.bench.names(".txnindex")
    transactions.log.flush()
    transactions.bench.directory.recovery_point_checkpoint().run()
    for restart in (transactions.bench.crash, transactions.bench.restart):
        restart()
        assert "txnindex" not in caplog.text


def test_damaged_offset_index_hides_no_aborted_transaction(transactions, caplog):
    sealed(transactions, segment_bytes=1000)
    (segment, *_) = transactions.log.files.segments
    offsets = [segment.offsets.entry(number) for number in range(len(segment.offsets))]
    assert len(offsets) > 2
    transactions.bench.stop()
    transactions.bench.rewrite(
        "00000000000000000000.index",
        lambda content: b"".join(struct.pack(">II", max(offset & ~7, 0), at) for offset, at in offsets),
    )
    transactions.bench.start()
    assert transactions.read(0, 100) == transactions.expected(0)
    assert "00000000000000000000.index is damaged" in caplog.text


@pytest.mark.parametrize("seed", range(6))
def test_a_clean_stop_leaves_the_index_of_aborted_transactions_on_the_disk(bench, caplog, seed):
    transactions = Transactions(bench)
    transactions.write(7)
    transactions.end(7, commit=False)
    bench.stop()
    bench.disk.crash(random.Random(seed))  # the power goes
    bench.start()
    assert "txnindex" not in caplog.text
    assert len(bench.log.aborted_transactions(0, 1 << 20)) == 1
