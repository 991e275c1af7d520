"""A share partition on its leader: loading, locks, writes, waiting fetches and the end of a leadership."""

from __future__ import annotations

import asyncio
import errno

import pytest
from simulation.virtual_time import run_virtual
from tests.unit.broker.sharing.conftest import GROUP, KEY, LED, Queue

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.coordinator.share_state.persister import ShareState, StateBatch
from barnabas.broker.sharing.in_flight import RELEASE, RENEW
from barnabas.broker.sharing.sessions import Member
from barnabas.broker.storage import ColdRead
from barnabas.broker.storage.open_files import SLICE_BYTES


def scenario(test):
    """Run a test in virtual time."""

    def run():
        run_virtual(test())

    run.__name__ = test.__name__
    return run


def with_log(test):
    """Run a test in virtual time, with the log that it writes."""

    def run(caplog):
        run_virtual(test(caplog))

    run.__name__ = test.__name__
    return run


@scenario
async def test_a_batch_goes_to_one_member_and_its_acknowledgement_is_stored():
    queue = Queue()
    queue.append(3)
    poll = queue.fetch("a")
    assert await poll.acquired == [(0, 2, 1)]
    assert poll.offsets() == [(0, 2)]
    assert queue.fetch("b").is_waiting
    stored = queue.acknowledge(0, 2)
    assert stored is not None and not stored.done()
    await stored
    assert queue.persister.writes == [(3, 0, [])]


@scenario
async def test_records_beyond_the_high_watermark_are_not_delivered():
    queue = Queue()
    queue.partition.update(LED._replace(replicas=(1, 2), isr=(1, 2), partition_epoch=1))
    queue.append(3)
    poll = queue.fetch()
    await queue.settle()
    assert poll.is_waiting
    queue.partition.update(LED._replace(replicas=(1, 2), isr=(1,), partition_epoch=2))
    assert await poll.acquired == [(0, 2, 1)]


@scenario
async def test_an_append_wakes_one_of_the_members_that_wait():
    queue = Queue()
    polls = [queue.fetch(member) for member in "abc"]
    await queue.settle()
    queue.append(1)
    await queue.settle()
    assert [poll.is_waiting for poll in polls] == [False, True, True]
    queue.append(1)
    queue.append(1)
    await queue.settle()
    assert [poll.is_waiting for poll in polls] == [False, False, True]
    assert await polls[1].acquired == [(1, 2, 1)]


@scenario
async def test_what_one_member_leaves_wakes_the_next():
    queue = Queue()
    polls = [queue.fetch(member, max_records=1) for member in "abc"]
    await queue.settle()
    queue.append(1)
    queue.append(1)
    await queue.settle()
    assert [await poll.acquired for poll in polls[:2]] == [[(0, 0, 1)], [(1, 1, 1)]]
    assert polls[2].is_waiting


@scenario
async def test_a_member_that_waits_no_more_does_not_keep_records_from_others():
    queue = Queue()
    first, second = queue.fetch("a"), queue.fetch("b")
    await queue.settle()
    first.fetch.leave()
    queue.append(1)
    assert await second.acquired == [(0, 0, 1)]
    assert first.is_waiting


@scenario
async def test_a_released_record_goes_to_a_member_that_waits_and_counts():
    queue = Queue()
    queue.append(2)
    await queue.acquire("a")
    poll = queue.fetch("b")
    await queue.settle()
    await queue.acknowledge(1, 1, RELEASE)
    assert await poll.acquired == [(1, 1, 2)]
    assert queue.persister.writes == [(0, 0, [(1, 1, 0, 1)])]


@with_log
async def test_a_defect_while_the_state_is_stored_answers_acknowledgements_and_the_next_fetch_reads_it_anew(
    caplog,
):
    queue = Queue()
    queue.append(2)
    await queue.acquire("a")
    queue.persister.may_answer.clear()
    in_write = queue.acknowledge(0, 0)
    await queue.settle()
    unwritten = queue.acknowledge(1, 1)
    queue.persister.failures = [IndexError("a short response")]
    queue.persister.may_answer.set()
    await queue.settle()
    for answer in (in_write, unwritten):
        with pytest.raises(KafkaError, match="a short response") as refused:
            await asyncio.wait_for(answer, 60)
        assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "IndexError" in caplog.text
    assert await queue.acquire("b") == [(0, 1, 1)]


@with_log
async def test_a_defect_after_a_write_answers_its_acknowledgements(caplog):
    queue = Queue()
    queue.append(1)
    await queue.acquire("a")
    queue.share_partition.in_flight.written = lambda: 1 / 0
    with pytest.raises(KafkaError):
        await asyncio.wait_for(queue.acknowledge(0, 0), 60)
    assert "ZeroDivisionError" in caplog.text


@with_log
async def test_a_defect_while_the_state_is_read_answers_fetches_and_the_next_one_reads_it_again(caplog):
    queue = Queue()
    queue.append(1)
    queue.persister.failures = [IndexError("a short response")]
    with pytest.raises(KafkaError, match="a short response"):
        await queue.acquire()
    assert "IndexError" in caplog.text
    assert await queue.acquire() == [(0, 0, 1)]


@scenario
async def test_a_lock_ends_after_its_time_and_the_record_goes_to_another_member():
    queue = Queue(**{"share.record.lock.duration.ms": "20000"})
    queue.append(2)
    await queue.acquire("a")
    poll = queue.fetch("b")
    await asyncio.sleep(19)
    assert poll.is_waiting
    assert await poll.acquired == [(0, 1, 2)]
    with pytest.raises(KafkaError) as refused:
        queue.acknowledge(0, 1)
    assert refused.value.code is ErrorCode.INVALID_RECORD_STATE


@scenario
async def test_records_that_the_disk_does_not_give_are_not_locked_and_the_fetch_gets_the_error():
    queue = Queue()
    for _ in range(3):
        queue.append(1, value=bytes(SLICE_BYTES // 2))  # the chunk stays in the file, and the batch does not
    await queue.acquire("a", max_records=1)  # the state is loaded
    reads = iter([None, None, OSError(errno.EIO, "the disk is broken")])  # the third one is of the batch
    queue.disk.refuse = lambda operation, path: next(reads, None) if operation == "read" else None
    with pytest.raises(KafkaError) as refused:
        await queue.acquire("b", max_records=1)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert await queue.acquire("b", max_records=1) == [(1, 1, 1)]


@scenario
async def test_a_renewed_lock_ends_later():
    queue = Queue(**{"share.record.lock.duration.ms": "20000"})
    queue.append(1)
    await queue.acquire("a")
    poll = queue.fetch("b")
    await asyncio.sleep(15)
    assert queue.acknowledge(0, 0, RENEW) is None
    await asyncio.sleep(15)
    assert poll.is_waiting
    await asyncio.sleep(6)
    assert not poll.is_waiting


@scenario
async def test_acknowledgements_during_a_write_share_the_next_one():
    queue = Queue()
    queue.append(3)
    await queue.acquire()
    queue.persister.may_answer.clear()
    first = queue.acknowledge(0, 0)
    await queue.settle()
    others = [queue.acknowledge(offset, offset) for offset in (1, 2)]
    await queue.settle()
    assert len(queue.persister.writes) == 1
    queue.persister.may_answer.set()
    await asyncio.gather(first, *others)
    assert [start for start, _, _ in queue.persister.writes] == [1, 3]


@scenario
async def test_a_failed_write_is_told_and_the_records_stay_with_their_member():
    queue = Queue()
    queue.append(2)
    await queue.acquire()
    queue.persister.failures = [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    stored = queue.acknowledge(0, 1)
    with pytest.raises(KafkaError) as refused:
        await stored
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert queue.fetch("b").is_waiting
    await queue.acknowledge(0, 1)
    # the failed write may have been stored: the state of its records is written again
    assert queue.persister.writes[-1] == (2, 0, [])


@scenario
async def test_a_lock_that_ends_during_a_write_that_fails_has_ended():
    queue = Queue(**{"share.record.lock.duration.ms": "20000"})
    queue.append(1)
    await queue.acquire()
    queue.persister.may_answer.clear()
    queue.persister.failures = [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    stored = queue.acknowledge(0, 0)
    poll = queue.fetch("b")
    await asyncio.sleep(25)
    assert poll.is_waiting
    queue.persister.may_answer.set()
    with pytest.raises(KafkaError):
        await stored
    assert await poll.acquired == [(0, 0, 2)]


@scenario
async def test_another_leader_has_the_state_and_the_records_come_again_from_it():
    queue = Queue()
    queue.append(1)
    await queue.acquire()
    waiting = queue.fetch("b")
    queue.persister.failures = [ErrorCode.FENCED_LEADER_EPOCH]
    with pytest.raises(KafkaError) as refused:
        await queue.acknowledge(0, 0)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(KafkaError) as told:
        await waiting.acquired
    assert told.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert len(queue.partitions) == 0


@scenario
async def test_a_new_leader_epoch_begins_with_the_stored_state():
    queue = Queue()
    queue.append(4)
    await queue.acquire(batch_size=1)
    await queue.acknowledge(1, 1)
    waiting = queue.fetch("b")
    queue.partition.update(LED._replace(leader_epoch=6, partition_epoch=1))
    with pytest.raises(KafkaError) as told:
        await waiting.acquired
    assert told.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(KafkaError) as refused:
        queue.acknowledge(0, 0)
    assert refused.value.code is ErrorCode.INVALID_RECORD_STATE
    assert await queue.acquire("b") == [(0, 0, 1), (2, 3, 1)]


@scenario
async def test_a_former_leader_refuses_late_acknowledgements():
    queue = Queue()
    queue.append(1)
    await queue.acquire()
    queue.partition.update(LED._replace(replicas=(1, 2), leader=2, leader_epoch=6, partition_epoch=1))
    with pytest.raises(KafkaError) as refused:
        queue.acknowledge(0, 0)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


@scenario
async def test_a_deleted_topic_ends_its_share_partitions():
    queue = Queue()
    poll = queue.fetch()
    await queue.settle()
    queue.partition.close(KafkaError(ErrorCode.UNKNOWN_TOPIC_ID))
    with pytest.raises(KafkaError) as told:
        await poll.acquired
    assert told.value.code is ErrorCode.UNKNOWN_TOPIC_ID
    assert len(queue.partitions) == 0 and not queue.partition.watchers


@scenario
async def test_the_state_is_read_again_until_the_group_coordinator_has_initialized_it():
    queue = Queue()
    queue.append(1)
    queue.persister.failures = [ErrorCode.INVALID_REQUEST, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert await queue.acquire() == [(0, 0, 1)]
    assert queue.persister.reads == 3


@scenario
async def test_nobody_asks_any_more_and_the_state_is_not_read_for_ever():
    queue = Queue()
    queue.persister.failures = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 1000
    poll = queue.fetch()
    await queue.settle()
    poll.fetch.leave()
    await asyncio.sleep(60)
    assert queue.persister.reads == 1
    assert len(queue.partitions) == 0


@pytest.mark.parametrize(
    ("reset", "start"), [("earliest", 0), ("latest", 2), ("by_duration:PT10S", 1), ("by_duration:PT1H", 0)]
)
def test_a_new_group_begins_where_its_setting_says_and_stores_that(reset, start):
    @scenario
    async def test():
        queue = Queue(**{"share.auto.offset.reset": reset})
        queue.persister.states[KEY] = ShareState(3, -1, -1, 0, ())
        queue.append(1)
        queue.clock.advance(20_000)
        queue.append(1)
        poll = queue.fetch(max_records=1, is_strict=True)
        await queue.settle()
        assert queue.persister.states[KEY] == ShareState(3, 5, start, 0, ())
        queue.append(1)
        assert (await poll.acquired)[0][0] == start

    test()


@scenario
async def test_stored_counts_and_states_hold_for_the_next_leader():
    queue = Queue()
    queue.append(5)
    batches = (StateBatch(1, 2, 2, 1), StateBatch(4, 4, 0, 3))
    queue.persister.states[KEY] = ShareState(0, 4, 0, 2, batches)
    assert await queue.acquire(max_records=500) == [(0, 0, 1), (3, 3, 1)]
    assert await queue.acquire() == [(4, 4, 4)]  # it was delivered often: alone


@scenario
async def test_stored_state_beyond_the_end_of_the_log_is_forgotten():
    queue = Queue()
    queue.append(2)
    queue.persister.states[KEY] = ShareState(0, 4, 7, 0, (StateBatch(9, 9, 2, 1),))
    poll = queue.fetch()
    await queue.settle()
    queue.append(1)
    assert await poll.acquired == [(2, 2, 1)]


@scenario
async def test_the_log_start_moves_over_records_in_flight():
    queue = Queue()
    queue.append(2)
    queue.append(2)
    await queue.acquire("a", max_records=1)
    queue.partition.log.advance_log_start(2)
    assert await queue.acquire("b") == [(2, 3, 1)]
    stored = queue.acknowledge(0, 1)
    assert not stored.done(), "the next leader may still have the records"
    await stored
    assert queue.persister.writes[-1][0] == 2
    assert queue.acknowledge(0, 1) is None
    await queue.acknowledge(2, 3, member="b")
    assert queue.persister.writes == [(2, 0, []), (4, 0, [])]


@scenario
async def test_a_log_start_behind_the_last_record_in_flight_is_stored():
    """Simulation seed 320022: no acknowledgement followed, so the group seemed to lag for ever."""
    queue = Queue()
    queue.append(2)
    queue.append(2)
    await queue.acquire("a")
    await queue.acknowledge(2, 3, member="a")
    queue.partition.log.advance_log_start(2)
    queue.share_partition.progressed(0)
    await queue.settle()
    assert queue.persister.writes[-1] == (4, 0, [])


@scenario
async def test_control_records_are_not_delivered_and_do_not_hold_the_start_offset():
    queue = Queue()
    queue.append(1, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    queue.end_transaction(1, commit=True)
    queue.append(1)
    poll = queue.fetch()
    assert await poll.acquired == [(0, 0, 1), (2, 2, 1)]
    await queue.acknowledge(0, 0)
    assert queue.persister.writes == [(2, 0, [])]


@scenario
async def test_aborted_records_are_delivered_by_read_uncommitted_only():
    for level, expected in (("read_uncommitted", [(0, 1, 1), (3, 3, 1)]), ("read_committed", [(3, 3, 1)])):
        queue = Queue(**{"share.isolation.level": level})
        queue.append(2, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
        queue.end_transaction(1, commit=False)
        queue.append(1)
        assert await queue.acquire() == expected


@scenario
async def test_read_committed_waits_for_the_end_of_a_transaction():
    queue = Queue(**{"share.isolation.level": "read_committed"})
    queue.append(1)
    queue.append(1, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    assert await queue.acquire("a") == [(0, 0, 1)]
    poll = queue.fetch("b")
    await queue.settle()
    assert poll.is_waiting
    queue.end_transaction(1, commit=True)
    assert await poll.acquired == [(1, 1, 1)]


@scenario
async def test_a_wait_for_records_does_not_end_with_gaps_alone():
    queue = Queue(**{"share.isolation.level": "read_committed"})
    poll = queue.fetch()
    await queue.settle()
    for sequence in range(30):
        queue.append(1, producer_id=1, producer_epoch=0, base_sequence=sequence, transactional=True)
        queue.end_transaction(1, commit=False)
    await queue.settle()
    assert poll.is_waiting
    queue.append(1)
    assert await poll.acquired == [(60, 60, 1)]


@scenario
async def test_start_offset_behind_gaps_alone_is_stored():
    queue = Queue(**{"share.isolation.level": "read_committed"})
    queue.append(1)
    await queue.acquire()
    await queue.acknowledge(0, 0)
    queue.append(1, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    queue.end_transaction(1, commit=False)
    queue.fetch()
    await queue.settle()
    assert queue.persister.writes == [(1, 0, []), (3, 0, [])]


@scenario
async def test_only_batches_with_acquired_records_are_sent():
    queue = Queue()
    for _ in range(4):
        queue.append(2)
    await queue.acquire("a")
    await queue.acknowledge(3, 4, RELEASE)
    poll = queue.fetch("b")
    assert await poll.acquired == [(3, 4, 2)]
    assert poll.offsets() == [(2, 3), (4, 5)]


@scenario
async def test_the_end_of_a_session_releases_its_records_at_once():
    queue = Queue()
    queue.append(2)
    await queue.acquire("a")
    poll = queue.fetch("b")
    await queue.settle()
    queue.partitions.end_session(Member(GROUP, "a"), False)
    assert await poll.acquired == [(0, 1, 2)]
    await queue.settle()
    assert queue.persister.writes == [(0, 0, [(0, 1, 0, 1)])]


@scenario
async def test_the_last_session_of_a_group_ends_its_share_partitions_when_all_is_stored():
    queue = Queue()
    queue.append(2)
    await queue.acquire("a")
    queue.persister.may_answer.clear()
    stored = queue.acknowledge(0, 1)
    queue.partitions.end_session(Member(GROUP, "a"), True)
    await queue.settle()
    assert len(queue.partitions) == 1
    queue.persister.may_answer.set()
    await stored
    await queue.settle()
    assert len(queue.partitions) == 0
    assert queue.persister.states[KEY].start_offset == 2


@scenario
async def test_a_full_share_partition_delivers_nothing_new_until_records_are_finished():
    queue = Queue(**{"share.partition.max.record.locks": "100"})
    for _ in range(3):
        queue.append(60)
    assert await queue.acquire("a") == [(0, 119, 1)]
    poll = queue.fetch("b")
    await queue.settle()
    assert poll.is_waiting
    await queue.acknowledge(0, 59)
    assert await poll.acquired == [(120, 179, 1)]


@scenario
async def test_records_on_the_disk_are_read_ahead_while_others_are_served():
    queue = Queue()
    queue.append(1)
    cold = queue.partition.log = ColdOnce(queue.partition.log)
    poll = queue.fetch()
    assert poll.is_waiting and queue.fetch("b").is_waiting
    assert await poll.acquired == [(0, 0, 1)]
    assert cold.refused == 1


class ColdOnce:
    """A log whose first read would wait for the disk."""

    def __init__(self, log):
        self._log = log
        self.refused = 0

    def __getattr__(self, name):
        return getattr(self._log, name)

    def read(self, *args):
        if not self.refused:
            self.refused += 1
            raise ColdRead(self._log.files.segments.active.log, 10, 0)
        return self._log.read(*args)


@scenario
async def test_a_fetch_waits_for_as_many_bytes_as_it_wants_and_acquires_nothing_until_then():
    queue = Queue()
    queue.append(1)
    size = queue.partition.log.size
    poll = queue.fetch("a", min_bytes=3 * size)
    await queue.settle()
    assert poll.is_waiting
    queue.append(1)
    await queue.settle()
    assert poll.is_waiting
    queue.append(1)
    assert await poll.acquired == [(0, 2, 1)]


@scenario
async def test_a_fetch_that_waits_for_bytes_leaves_the_records_to_others():
    queue = Queue()
    poll = queue.fetch("a", min_bytes=100_000)
    other = queue.fetch("b")
    await queue.settle()
    queue.append(1)
    assert await other.acquired == [(0, 0, 1)]
    assert poll.is_waiting


@scenario
async def test_a_fetch_gets_what_there_is_at_its_time_limit():
    queue = Queue()
    queue.append(2)
    poll = queue.fetch("a", min_bytes=100_000)
    await queue.settle()
    poll.fetch.end_wait()
    assert [tuple(each) for each in poll.fetch.results[0].acquired] == [(0, 1, 1)]


@scenario
async def test_the_bytes_of_whole_batches_count():
    queue = Queue()
    queue.append(1)
    size = queue.partition.log.size
    poll = queue.fetch("a", min_bytes=size + size // 2)
    await queue.settle()
    assert poll.is_waiting
    queue.append(1)
    assert await poll.acquired == [(0, 1, 1)]


@scenario
async def test_more_bytes_than_a_fetch_may_have_are_not_waited_for():
    queue = Queue()
    queue.append(10)
    assert await queue.acquire("a", min_bytes=2**20, max_bytes=100) == [(0, 9, 1)]


@scenario
async def test_a_fetch_that_may_have_no_bytes_waits_for_one_batch():
    queue = Queue()
    poll = queue.fetch("a", min_bytes=100, max_bytes=0)
    await queue.settle()
    assert poll.is_waiting
    queue.append(1)
    assert await poll.acquired == [(0, 0, 1)]


@scenario
async def test_bytes_that_many_fetches_wait_for_are_counted_once_and_a_few_fetches_a_turn():
    queue = Queue()
    polls = [queue.fetch(f"m{number}", min_bytes=100_000) for number in range(100)]
    await queue.settle()
    log = queue.partition.log = CountedReads(queue.partition.log)
    tries = []
    for poll in polls:
        poll.fetch.try_now = lambda source, own=poll.fetch.try_now: tries.append(own) or own(source)
    queue.append(1)
    await asyncio.sleep(0)
    assert len(tries) <= 16
    await queue.settle()
    assert len(tries) == 100 and log.reads == 1
    assert all(poll.is_waiting for poll in polls)


class CountedReads:
    """A log that counts how often it is read."""

    def __init__(self, log):
        self._log = log
        self.reads = 0

    def __getattr__(self, name):
        return getattr(self._log, name)

    def read(self, *args):
        self.reads += 1
        return self._log.read(*args)


@pytest.mark.parametrize("state_epoch", [0, 1])
def test_a_state_that_was_reset_under_the_session_of_a_former_member_holds_for_the_next_one(state_epoch):
    """The former member has left the group, but its connection, and so its session, is still there."""

    @scenario
    async def run():
        queue = Queue()
        queue.append(3)
        await queue.acquire("former")
        await queue.acknowledge(0, 2, member="former")
        await asyncio.sleep(60)
        # The state of a new group can have the state epoch that the deleted group of its name had.
        queue.persister.states[KEY] = ShareState(state_epoch, -1, 0, 0, ())
        queue.partitions.check_states(GROUP)
        with pytest.raises(KafkaError) as refused:
            await queue.acquire("new")
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await queue.acquire("new") == [(0, 2, 1)]
        await queue.acknowledge(0, 2, member="new")

    run()


@scenario
async def test_acknowledgements_of_a_deleted_group_do_not_count_for_a_new_group_of_its_name():
    """The new state has the same state epoch, and the leader has not noticed the deletion yet."""
    queue = Queue()
    queue.append(3)
    queue.persister.states[KEY] = ShareState(0, -1, 0, 0, (), initialized_at=5)
    await queue.acquire("former")
    anew = queue.persister.states[KEY] = ShareState(0, -1, 0, 0, (), initialized_at=9)
    with pytest.raises(KafkaError) as refused:
        await queue.acknowledge(0, 2, member="former")
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert queue.persister.states[KEY] == anew
    assert await queue.acquire("new") == [(0, 2, 1)]


@scenario
async def test_a_state_that_nobody_has_reset_is_kept_and_read_once_for_many_new_sessions():
    queue = Queue()
    queue.append(3)
    await queue.acquire("a")
    await queue.acknowledge(0, 1, member="a")
    await asyncio.sleep(10)
    for _ in range(100):
        queue.partitions.check_states(GROUP)
        await asyncio.sleep(0)
    assert queue.persister.reads == 2
    await queue.acknowledge(2, 2, member="a")


@pytest.mark.parametrize(("read", "now"), [(5, -1), (-1, 5)])
def test_a_state_is_kept_while_a_share_coordinator_does_not_know_where_it_was_initialized(read, now):
    """In a rolling upgrade a broker of an older version coordinates for a while."""

    @scenario
    async def run():
        queue = Queue()
        queue.append(3)
        queue.persister.states[KEY] = ShareState(0, -1, 0, 0, (), initialized_at=read)
        await queue.acquire("a")
        await asyncio.sleep(10)
        queue.persister.states[KEY] = ShareState(0, -1, 0, 0, (), initialized_at=now)
        queue.partitions.check_states(GROUP)
        await queue.settle()
        assert queue.persister.reads == 2
        await queue.acknowledge(0, 2, member="a")

    run()


@scenario
async def test_a_write_that_begins_and_ends_during_the_check_of_the_state_does_not_end_the_share_partition():
    queue = Queue()
    queue.append(3)
    await queue.acquire("a")
    await asyncio.sleep(10)
    queue.persister.may_read.clear()
    queue.partitions.check_states(GROUP)
    await queue.settle()
    await queue.acknowledge(0, 1, member="a")
    queue.persister.may_read.set()
    await queue.settle()
    await queue.acknowledge(2, 2, member="a")


@scenario
async def test_a_state_that_cannot_be_read_does_not_delay_the_reads_of_others():
    """Only some share partitions can read at the same time. None of them waits for a coordinator."""
    queue = Queue()
    queue.append(1)
    queue.persister.failures = [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    await queue.acquire("a")
    await asyncio.sleep(10)
    queue.persister.failures = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    queue.partitions.check_states(GROUP)
    await queue.settle()
    assert queue.persister.retries == [False] * 4
    await queue.acknowledge(0, 0, member="a")


@scenario
async def test_checks_of_many_states_read_only_a_few_at_the_same_time():
    queue = Queue()
    queue.append(1)
    await queue.acquire("a")
    await asyncio.sleep(10)
    loading = queue.share_partition._dependencies.loading
    while not loading.locked():
        await loading.acquire()
    queue.partitions.check_states(GROUP)
    await queue.settle()
    assert queue.persister.reads == 1
    loading.release()
    await queue.settle()
    assert queue.persister.reads == 2


@scenario
async def test_a_state_that_cannot_be_read_for_the_moment_is_kept():
    queue = Queue()
    queue.append(1)
    await queue.acquire("a")
    await asyncio.sleep(10)
    queue.persister.failures = [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    queue.partitions.check_states(GROUP)
    await queue.settle()
    await queue.acknowledge(0, 0, member="a")


@scenario
async def test_a_state_that_was_deleted_ends_the_share_partition():
    queue = Queue()
    queue.append(1)
    await queue.acquire("a")
    await asyncio.sleep(10)
    queue.persister.failures = [ErrorCode.INVALID_REQUEST]
    queue.partitions.check_states(GROUP)
    await queue.settle()
    assert len(queue.partitions) == 0
