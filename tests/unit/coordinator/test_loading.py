"""Reading a shard back: the last record of each key counts, transactions when they commit."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator.loading import CHUNK_BYTES, load
from barnabas.errors import KafkaError
from barnabas.records import Record, encode_batch
from barnabas.records.control import EndTransaction, encode_end_transaction
from barnabas.testing.virtual_time import run_virtual

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
    """What a shard makes of its records: what is committed, and what is pending and may still count."""

    def __init__(self):
        self.committed: dict[bytes, bytes | None] = {}
        self.pending: dict[int, dict[bytes, bytes | None]] = {}

    def replay(self, key, value):
        self.committed[key] = value
        for written in self.pending.values():
            if key in written and value is None:
                del written[key]
            elif key in written:
                written[key] = None

    def replay_pending(self, producer_id, key, value):
        self.pending.setdefault(producer_id, {})[key] = value

    def end_transaction(self, producer_id, commit):
        written = self.pending.pop(producer_id, {})
        self.committed.update({k: v for k, v in written.items() if v is not None} if commit else {})

    def visible(self):
        there = {key: value for key, value in self.committed.items() if value is not None}
        return there, {producer: written for producer, written in self.pending.items() if written}


def loaded(log):
    state = State()
    run_virtual(load(log, 0, state))
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
                for key, value in what:
                    state.replay(key, value)
            else:
                batch = encode_batch(records, producer_id=who, producer_epoch=0, transactional=True)
                for key, value in what:
                    state.replay_pending(who, key, value)
        log.append(0, batch, 0)
    assert loaded(log) == state.visible()


def test_others_get_their_turn_while_much_is_read(memory_log):
    async def scenario():
        log = memory_log()
        for number in range(300):
            log.append(0, encode_batch([Record(b"%d" % number, bytes(4096), 0)]), 0)
        turns = 0
        loading = asyncio.ensure_future(load(log, 0, State()))
        while not loading.done():
            turns += 1
            await asyncio.sleep(0)
        assert await loading == 300
        assert turns >= 300 * 4096 // CHUNK_BYTES

    run_virtual(scenario())


def test_log_that_cannot_be_read_to_its_end_is_not_loaded(memory_log):
    log = memory_log()
    log.append(0, encode_batch([Record(b"a", b"1", 0)]), 0)
    log.bounds = lambda partition: (0, 5)
    with pytest.raises(EOFError, match="offset 1"):
        loaded(log)


def test_damaged_log_is_not_loaded(memory_log):
    log = memory_log()
    log.append(0, encode_batch([Record(b"a", b"1", 0)]), 0)
    log.batches[0][0] = log.batches[0][0][:61] + bytes(7) + log.batches[0][0][68:]
    with pytest.raises(KafkaError):
        loaded(log)


def test_coordinator_of_a_damaged_partition_sends_clients_away(coordinate):
    async def scenario(groups):
        from barnabas.errors import ErrorCode

        await groups.commit({("t", 0): 5})
        await groups.coordinator.stop()
        damaged = groups.log.batches[0][0]
        groups.log.batches[0][0] = damaged[:61] + bytes(len(damaged) - 61)
        again = type(groups)(groups.log)
        await again.loaded()
        assert await again.commit({("t", 0): 6}) == ErrorCode.NOT_COORDINATOR
        # Elected once more (the disk was replaced, say), it tries again.
        groups.log.batches[0][0] = damaged
        again.coordinator.elect(0, 1)
        await again.loaded()
        assert again.committed() == 5

    coordinate(scenario)
