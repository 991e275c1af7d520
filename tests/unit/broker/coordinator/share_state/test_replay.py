"""The state in memory, the log and a simple model agree, also after restarts and deletions of old records."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from simulation.virtual_time import run_virtual

from barnabas.base.errors import ErrorCode
from barnabas.broker.coordinator import SharePartitionKey, ShareState

LAST = 12
PARTITIONS = st.integers(0, 1)
EPOCHS = st.integers(0, 3)


@st.composite
def batches(draw: st.DrawFn) -> list[tuple[int, int, int, int]]:
    ends = sorted(draw(st.lists(st.integers(0, LAST), unique=True, max_size=6)))
    return [
        (first, last, draw(st.sampled_from([0, 2, 4])), draw(st.integers(1, 3)))
        for first, last in zip(ends[::2], ends[1::2], strict=False)
    ]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("initialize"), PARTITIONS, EPOCHS, st.integers(-1, LAST)),
        st.tuples(st.just("write"), PARTITIONS, EPOCHS, EPOCHS, st.integers(-1, LAST), batches()),
        st.tuples(st.just("read"), PARTITIONS, EPOCHS),
        st.tuples(st.just("delete"), PARTITIONS),
        st.tuples(st.just("rest")),
        st.tuples(st.just("restart")),
    ),
    max_size=25,
)


class Model:
    """A model of one share partition, with a separate state for each record."""

    def __init__(self) -> None:
        self.epoch = self.leader = 0
        self.start, self.complete = -1, -1
        self.records: dict[int, tuple[int, int]] | None = None

    def initialize(self, epoch: int, start: int) -> ErrorCode | None:
        if epoch < self.epoch:
            return ErrorCode.FENCED_STATE_EPOCH
        before = self.epoch, self.start, self.complete, self.records
        after = epoch, start, -1 if start == -1 else 0, dict[int, tuple[int, int]]()
        if self.records is not None and epoch == self.epoch and before != after:
            return ErrorCode.FENCED_STATE_EPOCH
        self.epoch, self.start, self.complete, self.records = after
        return None

    def write(self, epoch: int, leader: int, start: int, given: Any) -> ErrorCode | None:
        if self.records is None:
            return ErrorCode.INVALID_REQUEST
        if leader < self.leader:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch < self.epoch:
            return ErrorCode.FENCED_STATE_EPOCH
        self.leader, self.start, self.complete = leader, max(self.start, start), len(given)
        for first, last, state, count in given:
            for offset in range(first, last + 1):
                there = self.records.get(offset, (0, 0))
                self.records[offset] = max(there, (count, state))
        self.records = {offset: each for offset, each in self.records.items() if offset >= self.start}
        return None

    def read(self, leader: int) -> ErrorCode | None:
        if self.records is None:
            return ErrorCode.INVALID_REQUEST
        if leader < self.leader:
            return ErrorCode.FENCED_LEADER_EPOCH
        self.leader = leader
        return None

    def matches(self, state: ShareState | None) -> bool:
        if state is None or self.records is None:
            return state is None and self.records is None
        records = {
            offset: (count, delivery)
            for first, last, delivery, count in state.batches
            for offset in range(first, last + 1)
        }
        expected = (self.epoch, self.leader, self.start, self.complete, self.records)
        return (*state[:4], records) == expected


@settings(deadline=None)
@given(steps, st.sampled_from([0, 1, 2, 500]))
def test_memory_the_log_and_the_model_agree(memory_log, make_shares, key, steps, limit):
    async def scenario() -> None:
        keys: list[SharePartitionKey] = [key._replace(partition=number) for number in (0, 1)]
        models = [Model(), Model()]
        log = Pruned(memory_log())
        options = {"share_coordinator_snapshot_update_records_per_snapshot": limit}
        shares = make_shares(log, **options)
        epoch = 0
        for what, *args in [*steps, ("restart",)]:
            if what == "restart":
                epoch += 1
                before = shares.states
                shares = await shares.restart(epoch)
                assert shares.states == before
            elif what == "rest":
                await asyncio.sleep(300)
                await shares.coordinator.repeat_snapshots()
                await shares.coordinator.prune()
                for _, start in shares.deleted:
                    log.start = start
            else:
                number, *more = args
                model = models[number]
                if what == "initialize":
                    answer = await shares.initialize(*more, key=keys[number])
                    assert answer == model.initialize(*more)
                elif what == "write":
                    state_epoch, leader, start, given = more
                    answer = await shares.write(
                        *given,
                        state_epoch=state_epoch,
                        leader_epoch=leader,
                        start=start,
                        complete=len(given),
                        key=keys[number],
                    )
                    assert answer == model.write(*more)
                elif what == "read":
                    answer = await shares.read(*more, key=keys[number])
                    assert (answer if isinstance(answer, ErrorCode) else None) == model.read(*more)
                else:
                    await shares.delete(keys[number])
                    models[number] = Model()
            for each, model in zip(keys, models, strict=True):
                assert model.matches(shares.states.get(each))
        await shares.coordinator.stop()

    run_virtual(scenario())


class Pruned:
    """A log in memory without the records before `start`."""

    def __init__(self, log: Any) -> None:
        self.start = 0
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def bounds(self, partition: int, epoch: int) -> tuple[int, int]:
        return self.start, self._log.bounds(partition, epoch)[1]
