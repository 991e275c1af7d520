"""The coordinator runtime: it appends records, replays them when committed, and replies, one operation a key
at a time.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest
from simulation.clocks import VirtualClock
from simulation.virtual_time import run_virtual

from barnabas.base.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.broker.coordinator.contract import Result
from barnabas.broker.coordinator.runtime import CoordinatorRuntime
from barnabas.kafka.records import Record, batches, encode_batch


class Count(NamedTuple):
    """A record of the test's shard: a key, and a count."""

    key: bytes
    count: int

    def encode(self):
        return self.key, b"%d" % self.count


class Counters:
    """A shard that counts by key. `seen` has the replayed records."""

    def __init__(self, context):
        self.context = context
        self.counts: dict[bytes, int] = {}
        self.unloaded_with = None
        self.is_loaded = False

    def decode(self, key, value):
        return Count(key, int(value) if value.isdigit() else 0)

    def replay(self, record):
        self.counts[record.key] = record.count

    def loaded(self):
        self.is_loaded = True

    def unload(self, error):
        self.unloaded_with = error.code

    def increment(self, key):
        count = self.counts.get(key, 0) + 1
        return Result(count, [Count(key, count)])


@pytest.fixture
def run(memory_log):
    """Run a scenario with a runtime that leads partition 0, and with its log."""

    def runner(scenario):
        async def main():
            log = memory_log()
            clock = VirtualClock(asyncio.get_running_loop())
            runtime = CoordinatorRuntime("counters", log, clock, Counters, write_timeout_ms=5000)
            runtime.elect(0, 3)
            await scenario(runtime, log)
            await runtime.stop()

        run_virtual(main())

    return runner


def increment(runtime, key=b"a"):
    return runtime.write(0, key.decode(), lambda shard: shard.increment(key))


def count(runtime, key=b"a"):
    return runtime.read(0, lambda shard: shard.counts.get(key, 0))


def test_committed_at_once_is_answered_at_once(run):
    async def scenario(runtime, log):
        assert [increment(runtime) for _ in range(3)] == [1, 2, 3]
        assert count(runtime) == 3

    run(scenario)


def test_records_bear_the_time_and_the_leader_epoch(run):
    async def scenario(runtime, log):
        await asyncio.sleep(7)
        increment(runtime)
        (batch,) = log.batches[0]
        _, header = next(batches(batch))
        assert header.leader_epoch == 3
        assert header.max_timestamp == 1_700_000_000_000 + 7000

    run(scenario)


def test_nothing_changes_before_the_commit(run):
    async def scenario(runtime, log):
        log.hold = True
        reply = increment(runtime)
        await asyncio.sleep(1)
        assert (reply.done(), count(runtime)) == (False, 0)
        log.commit_next()
        assert (await reply, count(runtime)) == (1, 1)

    run(scenario)


def test_operations_of_one_key_run_one_after_another(run):
    async def scenario(runtime, log):
        log.hold = True
        replies = [increment(runtime) for _ in range(3)]
        other = increment(runtime, b"b")
        assert len(log.held) == 2
        for _ in range(4):
            await asyncio.sleep(0.1)
            log.commit_next()
        assert [await reply for reply in replies] == [1, 2, 3]
        assert await other == 1

    run(scenario)


def test_operations_that_wait_keep_their_order_behind_one_that_appends(run):
    async def scenario(runtime, log):
        log.hold = True
        order = []

        def note(name, records):
            def operation(shard):
                order.append(name)
                return Result(name, [Count(b"a", 1)] if records else [])

            return runtime.write(0, "a", operation)

        replies = [note(n, n in ("first", "third")) for n in ("first", "second", "third", "fourth", "fifth")]
        assert order == ["first"]
        log.commit_next()
        assert [await r for r in replies[:2]] == ["first", "second"]
        await asyncio.sleep(0.1)
        assert order == ["first", "second", "third"]
        log.commit_next()
        assert [await r for r in replies[2:]] == ["third", "fourth", "fifth"]

    run(scenario)


def test_failed_append_changes_nothing_and_the_next_goes_on(run):
    async def scenario(runtime, log):
        log.hold = True
        replies = [increment(runtime) for _ in range(2)]
        log.fail_next(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS))
        with pytest.raises(KafkaError) as refused:
            await replies[0]
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await asyncio.sleep(0.1)
        log.commit_next()
        assert (await replies[1], count(runtime)) == (1, 1)

    run(scenario)


def test_late_commit_is_answered_as_late_and_counts_all_the_same(run):
    async def scenario(runtime, log):
        log.hold = True
        replies = [increment(runtime) for _ in range(2)]
        with pytest.raises(KafkaError) as late:
            await replies[0]
        assert late.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert asyncio.get_running_loop().time() == 5
        log.commit_next()
        await asyncio.sleep(0.1)
        log.commit_next()
        assert (await replies[1], count(runtime)) == (2, 2)

    run(scenario)


def test_error_of_an_operation_reaches_its_caller_alone(run):
    async def scenario(runtime, log):
        def fail(shard):
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)

        with pytest.raises(KafkaError):
            runtime.write(0, "a", fail)
        log.hold = True
        first, second, third = increment(runtime), runtime.write(0, "a", fail), increment(runtime)
        log.commit_next()
        assert await first == 1
        with pytest.raises(KafkaError) as refused:
            await second
        assert refused.value.code is ErrorCode.ILLEGAL_GENERATION
        await asyncio.sleep(0.1)
        log.commit_next()
        assert await third == 2

    run(scenario)


class Unfit(NamedTuple):
    """A record that does not fit the log's format."""

    def encode(self):
        raise ProtocolError("too long")


def test_records_that_cannot_be_encoded_append_nothing_and_the_next_operation_goes_on(run):
    async def scenario(runtime, log):
        unfit = lambda shard: Result(1, [Count(b"a", 7), Unfit()])  # noqa: E731
        with pytest.raises(ProtocolError):
            runtime.write(0, "a", unfit)
        log.hold = True
        first, second, third = increment(runtime), runtime.write(0, "a", unfit), increment(runtime)
        log.commit_next()
        assert await first == 1
        with pytest.raises(ProtocolError):
            await second
        await asyncio.sleep(0.1)
        log.commit_next()
        assert (await third, count(runtime), log.attempts) == (2, 2, 2)

    run(scenario)


def test_then_makes_the_answer_after_the_replay_or_of_the_failure(run):
    async def scenario(runtime, log):
        def operation(shard):
            def then(error):
                return error.code if error else shard.counts[b"a"]

            return Result(records=[Count(b"a", 42)], then=then)

        assert runtime.write(0, "a", operation) == 42
        log.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        assert runtime.write(0, "a", operation) == ErrorCode.NOT_COORDINATOR

    run(scenario)


def test_resigning_fails_whoever_waits(run):
    async def scenario(runtime, log):
        log.hold = True
        replies = [increment(runtime) for _ in range(3)]
        shard = next(runtime.active_shards())[1]
        runtime.resign(0)
        log.commit_next()
        for reply in replies:
            with pytest.raises(KafkaError) as refused:
                await reply
            assert refused.value.code is ErrorCode.NOT_COORDINATOR
        assert (shard.unloaded_with, shard.counts) == (ErrorCode.NOT_COORDINATOR, {})
        with pytest.raises(KafkaError):
            increment(runtime)

    run(scenario)


def test_shard_of_another_broker_is_not_served(run):
    async def scenario(runtime, log):
        with pytest.raises(KafkaError) as refused:
            runtime.write(1, "a", lambda shard: Result(1))
        assert refused.value.code is ErrorCode.NOT_COORDINATOR

    run(scenario)


def test_state_is_the_same_after_moving_away_and_back(run):
    async def scenario(runtime, log):
        for _ in range(5):
            increment(runtime)
        runtime.resign(0)
        runtime.elect(0, 4)
        with pytest.raises(KafkaError) as loading:
            increment(runtime)
        assert loading.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        while runtime.is_loading():
            await asyncio.sleep(0)
        assert increment(runtime) == 6

    run(scenario)


def test_a_shard_that_was_given_up_changes_nothing_in_the_next_one(run):
    async def scenario(runtime, log):
        increment(runtime)
        old = next(runtime.active_shards())[1]

        def late():
            old.context.write("a", lambda _: old.increment(b"a"))

        old.context.timers.set("retry", 1000, late)
        runtime.resign(0)
        old.context.timers.set("retry", 1000, late)  # by what has failed for it
        runtime.elect(0, 4)
        await asyncio.sleep(0.5)
        assert [increment(runtime) for _ in range(3)] == [2, 3, 4]
        late()
        await asyncio.sleep(5)
        assert count(runtime) == 4

    run(scenario)


def test_resigning_while_loading_stops_the_loading(run):
    async def scenario(runtime, log):
        increment(runtime)
        runtime.resign(0)
        runtime.elect(0, 4)
        runtime.resign(0)
        await asyncio.sleep(1)
        assert list(runtime.active_shards()) == []

    run(scenario)


async def loaded(runtime):
    while runtime.is_loading():
        await asyncio.sleep(0)


def test_a_newer_epoch_of_the_same_leader_loads_anew(run):
    async def scenario(runtime, log):
        increment(runtime)
        log.append(0, encode_batch([Record(b"a", b"7", 0)]), 5)  # by another leader in between
        old = next(runtime.active_shards())[1]
        runtime.elect(0, 9)
        assert old.unloaded_with is ErrorCode.NOT_COORDINATOR
        await loaded(runtime)
        assert increment(runtime) == 8
        assert next(batches(log.batches[0][-1]))[1].leader_epoch == 9
        now = next(runtime.active_shards())[1]
        runtime.elect(0, 9)
        runtime.elect(0, 8)  # heard of late
        assert next(runtime.active_shards())[1] is now

    run(scenario)


def test_a_shard_serves_when_all_that_the_log_had_at_its_election_is_committed(run):
    async def scenario(runtime, log):
        increment(runtime)
        log.lag = True
        runtime.elect(0, 4)
        await asyncio.sleep(60)
        ((waiting, partition, end, epoch),) = log.waiting
        assert (partition, end, epoch) == (0, 1, 4)
        with pytest.raises(KafkaError) as loading:
            increment(runtime)
        assert loading.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        # What came after the election is not this shard's: here nobody could have written it.
        log.append(0, encode_batch([Record(b"a", b"50", 0)]), 4)
        log.lag = False
        waiting.set_result(None)
        await loaded(runtime)
        assert count(runtime) == 1

    run(scenario)


def test_a_partition_that_waits_for_its_replicas_holds_up_no_other(run):
    async def scenario(runtime, log):
        for partition in (1, 2):
            log.append(partition, encode_batch([Record(b"a", b"5", 0)]), 0)
        log.lag = True
        runtime.elect(1, 0)
        await asyncio.sleep(0)
        log.lag = False
        runtime.elect(2, 0)
        await asyncio.sleep(1)
        assert [partition for partition, _ in runtime.active_shards()] == [0, 2]

    run(scenario)


def test_a_load_ends_with_its_epoch(run):
    async def scenario(runtime, log):
        increment(runtime)
        log.lag = True
        runtime.elect(0, 4)
        await asyncio.sleep(0)
        runtime.elect(0, 5)
        await asyncio.sleep(0)
        (first, *_), (second, *_) = log.waiting
        assert first.cancelled()
        log.lag = False
        second.set_result(None)
        await loaded(runtime)
        assert count(runtime) == 1

    run(scenario)


def test_a_partition_that_is_not_led_after_all_is_no_ones_until_it_is(run):
    async def scenario(runtime, log):
        log.not_led = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        runtime.elect(1, 4)
        with pytest.raises(KafkaError) as refused:
            runtime.read(1, lambda shard: None)
        assert refused.value.code is ErrorCode.NOT_COORDINATOR
        log.not_led = None
        runtime.elect(1, 4)
        assert runtime.read(1, lambda shard: shard.counts) == {}

    run(scenario)


def test_a_log_that_cannot_be_opened_on_a_full_disk_is_tried_again_until_there_is_space(run, caplog):
    async def scenario(runtime, log):
        log.not_led = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left")
        runtime.elect(1, 4)
        await asyncio.sleep(30)
        with pytest.raises(KafkaError) as refused:
            runtime.read(1, lambda shard: None)
        assert refused.value.code is ErrorCode.NOT_COORDINATOR
        log.not_led = None
        await asyncio.sleep(10)
        assert runtime.read(1, lambda shard: shard.counts) == {}
        (line,) = caplog.records
        assert "partition 1 cannot be loaded now, and is tried again: no space left" in line.getMessage()

    run(scenario)


def test_a_log_that_cannot_be_read_now_is_loaded_later(run, monkeypatch):
    async def scenario(runtime, log):
        log.append(1, encode_batch([Record(b"a", b"5", 0)]), 0)
        with monkeypatch.context() as patched:

            def refuse(*_):
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "too many open files")

            patched.setattr(log, "read", refuse)
            runtime.elect(1, 4)
            await asyncio.sleep(10)
        await asyncio.sleep(10)
        assert runtime.read(1, lambda shard: shard.counts) == {b"a": 5}

    run(scenario)


def test_a_log_that_takes_long_until_it_cannot_be_read_is_loaded_again_after_a_longer_pause(run, monkeypatch):
    """A segment file of a large log can be missing for good. Each attempt reads everything before it."""

    async def scenario(runtime, log):
        log.append(1, encode_batch([Record(b"a", b"5", 0)]), 0)
        attempts = []

        async def refuse(*_):
            attempts.append(None)
            await asyncio.sleep(3)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no such file")

        monkeypatch.setattr(log, "read", refuse)
        runtime.elect(1, 4)
        await asyncio.sleep(3 + 5 * (15 + 3) + 1)
        assert len(attempts) == 6

    run(scenario)


def test_a_partition_that_could_not_be_loaded_is_not_loaded_when_another_broker_leads_it(run):
    async def scenario(runtime, log):
        log.not_led = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left")
        runtime.elect(1, 4)
        runtime.resign(1)
        log.not_led = None
        await asyncio.sleep(30)
        assert [partition for partition, _ in runtime.active_shards()] == [0]

    run(scenario)


def test_partitions_are_loaded_one_after_another(run):
    async def scenario(runtime, log):
        records = [Record(b"%d" % number, bytes(1024), 0) for number in range(50)]
        for partition in range(1, 6):
            for _ in range(10):
                log.append(partition, encode_batch(records), 0)
        read, reading = log.read, []

        def note(partition, offset, max_bytes):
            if reading[-1:] != [partition]:
                reading.append(partition)
            return read(partition, offset, max_bytes)

        log.read = note
        for partition in range(1, 6):
            runtime.elect(partition, 0)
        while runtime.is_loading():
            await asyncio.sleep(0)
        assert reading == [1, 2, 3, 4, 5]

    run(scenario)


def commit(runtime, key, value):
    """Run an operation that reads no state. So it can run at the same time as others of its kind."""
    operation = lambda shard: Result(value, [Count(key, value)])  # noqa: E731
    return runtime.write(0, "k", operation, shared=True)


def test_operations_together_are_all_under_way_at_once(run):
    async def scenario(runtime, log):
        log.hold = True
        replies = [commit(runtime, b"a", value) for value in (1, 2, 3)]
        alone = runtime.write(0, "k", lambda shard: Result(dict(shard.counts)))
        assert len(log.held) == 3
        for _ in range(3):
            log.commit_next()
        assert [await reply for reply in replies] == [1, 2, 3]
        assert await alone == {b"a": 3}

    run(scenario)


def test_records_are_replayed_in_the_order_of_the_log(run):
    async def scenario(runtime, log):
        log.hold = True
        first, second = commit(runtime, b"a", 1), commit(runtime, b"a", 2)
        # Both are committed; that the second is happens to be heard of first.
        log.held.reverse()
        log.commit_next()
        await asyncio.sleep(0.1)
        assert (second.done(), count(runtime)) == (False, 0)
        log.hold = False
        third = commit(runtime, b"a", 3)
        assert not third.done()
        log.commit_next()
        assert [await reply for reply in (first, second, third)] == [1, 2, 3]
        assert count(runtime) == 3

    run(scenario)
