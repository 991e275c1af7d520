"""Loads a shard: the last record of each key is valid, and transactions are when they commit."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation.virtual_time import run_virtual

from barnabas.base.errors import KafkaError
from barnabas.broker.coordinator.loading import CHUNK_BYTES, _checked, load
from barnabas.kafka.records import Record, encode_batch
from barnabas.kafka.records.control import EndTransaction, encode_end_transaction

PRODUCERS = (1, 2)

keys = st.sampled_from([b"a", b"b", b"c", b"d"])
values = st.none() | st.binary(max_size=3)
writes = st.lists(st.tuples(keys, values), min_size=1, max_size=4)
transactional_writes = st.lists(st.tuples(keys, st.binary(max_size=3)), min_size=1, max_size=4)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("plain"), writes),
        st.tuples(st.sampled_from(PRODUCERS), transactional_writes),
        st.tuples(st.sampled_from(PRODUCERS), st.booleans()),
    ),
    max_size=12,
)


class State:
    """The state that a shard makes of its records: the committed ones, and the pending ones."""

    def __init__(self):
        self.committed: dict[bytes, bytes | None] = {}
        self.pending: dict[int, dict[bytes, bytes | None]] = {}

    def decode(self, key, value):
        return key, value

    def replay(self, record):
        key, value = record
        self.committed[key] = value
        for written in self.pending.values():
            if key in written and value is None:
                del written[key]
            elif key in written:
                written[key] = None

    def replay_pending(self, producer_id, record):
        key, value = record
        self.pending.setdefault(producer_id, {})[key] = value

    def end_transaction(self, producer_id, commit):
        written = self.pending.pop(producer_id, {})
        self.committed.update({k: v for k, v in written.items() if v is not None} if commit else {})

    def visible(self):
        there = {key: value for key, value in self.committed.items() if value is not None}
        return there, {producer: written for producer, written in self.pending.items() if written}


def loaded(log):
    state = State()
    run_virtual(load(log, 0, state, *log.bounds(0, 0)))
    return state.visible()


@given(steps)
def test_load_equals_the_log_applied_record_by_record(memory_log, steps):
    log, state = memory_log(), State()
    for who, what in steps:
        if isinstance(what, bool):
            marker = EndTransaction(what, coordinator_epoch=0)
            batch = encode_end_transaction(marker, producer_id=who, producer_epoch=0, timestamp=0)
            state.end_transaction(who, what)
        else:
            records = [Record(key, value, 0) for key, value in what]
            if who == "plain":
                batch = encode_batch(records)
                for record in what:
                    state.replay(record)
            else:
                batch = encode_batch(records, producer_id=who, producer_epoch=0, transactional=True)
                for record in what:
                    state.replay_pending(who, record)
        log.append(0, batch, 0)
    assert loaded(log) == state.visible()


def test_others_get_their_turn_while_much_is_read(memory_log):
    async def scenario():
        log = memory_log()
        for number in range(300):
            log.append(0, encode_batch([Record(b"%d" % number, bytes(4096), 0)]), 0)
        turns = 0
        loading = asyncio.ensure_future(load(log, 0, State(), *log.bounds(0, 0)))
        while not loading.done():
            turns += 1
            await asyncio.sleep(0)
        assert await loading == 300
        assert turns >= 300 * 4096 // CHUNK_BYTES

    run_virtual(scenario())


def test_log_that_cannot_be_read_to_its_end_is_not_loaded(memory_log):
    log = memory_log()
    log.append(0, encode_batch([Record(b"a", b"1", 0)]), 0)
    log.bounds = lambda partition, epoch: (0, 5)
    with pytest.raises(KafkaError, match="from offset 1 on and ends at 5"):
        loaded(log)


@pytest.mark.parametrize("place", range(0, 84, 3))
def test_damaged_log_is_not_loaded_and_the_damage_is_named(memory_log, place):
    log = memory_log()
    for number in range(3):
        log.append(0, encode_batch([Record(b"key", b"value number %d" % number, 0)]), 0)
    log.bounds = lambda partition, epoch: (0, 3)
    damaged = bytearray(log.batches[0][1])
    damaged[place] ^= 0x41

    def read_raw(partition, offset, max_bytes):  # as a disk does, which knows nothing of batches
        return [log.batches[0][0], bytes(damaged), log.batches[0][2]][offset:]

    log.read = read_raw
    if 12 <= place < 16:  # the leader epoch, which nothing covers and nobody needs here
        loaded(log)
        return
    with pytest.raises(KafkaError, match=r"damaged from offset [01] on and ends at 3.*log check"):
        loaded(log)


def test_coordinator_of_a_damaged_partition_sends_clients_away(coordinate, caplog):
    async def scenario(groups):
        from barnabas.base.errors import ErrorCode

        await groups.commit({("t", 0): 5})
        await groups.coordinator.stop()
        damaged = groups.log.batches[0][0]
        groups.log.batches[0][0] = damaged[:61] + bytes(len(damaged) - 61)
        again = type(groups)(groups.log)
        await again.loaded()
        assert await again.commit({("t", 0): 6}) == ErrorCode.NOT_COORDINATOR
        (line,) = [record for record in caplog.records if record.levelname == "ERROR"]
        assert "partition 0 cannot be loaded: it is damaged from offset 0 on" in line.getMessage()
        assert line.exc_info is None
        # Elected once more (the disk was replaced, say), it tries again.
        groups.log.batches[0][0] = damaged
        again.coordinator.elect(0, 1)
        await again.loaded()
        assert again.committed() == 5

    coordinate(scenario)


@pytest.mark.parametrize("second", [0, 1, 2])
def test_batches_that_do_not_lie_behind_each_other_are_not_loaded(second):
    """A CRC does not cover the base offset of a batch."""
    data = b"".join(encode_batch([Record(b"a", b"1", 0)] * 2, base_offset=at) for at in (0, second))
    if second == 2:
        assert [header.base_offset for _, header in _checked(data, 0)] == [0, 2]
        assert [header.base_offset for _, header in _checked(data, 1)] == [0, 2]  # 1 lies in the first
        with pytest.raises(KafkaError, match="where 3 should"):
            _checked(data, 3)
    else:
        with pytest.raises(KafkaError, match="lie where"):
            _checked(data, 0)


@given(st.lists(st.tuples(st.booleans(), keys, values.filter(bool)), max_size=12))
def test_a_record_that_adds_to_another_is_replayed_after_it(memory_log, records):
    """A key with a plus adds to the key without it. It is valid until that key is written again."""

    class Sums:
        def __init__(self):
            self.found: dict[bytes, list[bytes]] = {}

        def decode(self, key, value):
            return key, value

        def replay(self, record):
            key, value = record
            if key.startswith(b"+"):
                self.found[key[1:]].append(value)
            else:
                self.found[key] = [value]

    log, expected = memory_log(), Sums()
    for adds, key, value in records:
        record = (b"+" + key if adds else key), value
        log.append(0, encode_batch([Record(*record, 0)]), 0)
        if not adds or key in expected.found:
            expected.replay(record)
    loaded = Sums()
    base = lambda key: key[1:] if key.startswith(b"+") else None  # noqa: E731
    run_virtual(load(log, 0, loaded, *log.bounds(0, 0), base))
    assert loaded.found == expected.found
