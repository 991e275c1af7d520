"""The operations of the share coordinator: the records that they store, the clients that they fence, the
deletions.
"""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.broker.coordinator import ShareState, StateBatch
from barnabas.broker.coordinator.share_state.codec import Snapshot, SnapshotRecord

INTERVAL_S = 300


def test_a_new_state_is_read_as_it_was_initialized(share):
    async def scenario(shares):
        assert await shares.initialize(3, 100) is None
        assert await shares.read(0) == ShareState(3, 0, 100, 0, initialized_at=0)
        assert shares.stored() == ["snapshot"]

    share(scenario)


def test_the_finished_records_are_unknown_only_without_a_start_offset(share):
    async def scenario(shares):
        await shares.initialize(0, -1)
        assert (await shares.summary()).delivery_complete_count == -1
        await shares.initialize(1, 100)
        assert (await shares.summary()).delivery_complete_count == 0

    share(scenario)


def test_nothing_is_read_or_written_before_the_state_is_initialized(share):
    async def scenario(shares):
        assert await shares.read() is ErrorCode.INVALID_REQUEST
        assert await shares.write((0, 9, 2, 1)) is ErrorCode.INVALID_REQUEST
        assert await shares.summary() == ShareState()
        assert shares.stored() == []

    share(scenario)


def test_writes_are_laid_over_each_other(share):
    async def scenario(shares):
        await shares.initialize(0, 0)
        await shares.write((0, 9, 0, 1))
        await shares.write((3, 5, 2, 1), complete=3)
        assert (await shares.read()).batches == (
            StateBatch(0, 2, 0, 1),
            StateBatch(3, 5, 2, 1),
            StateBatch(6, 9, 0, 1),
        )
        await shares.write((0, 2, 2, 2), start=6, complete=0)
        assert await shares.read() == ShareState(0, 0, 6, 0, (StateBatch(6, 9, 0, 1),), initialized_at=0)
        assert shares.stored() == ["snapshot", "update", "update", "update"]

    share(scenario)


def test_the_start_offset_never_falls(share):
    async def scenario(shares):
        await shares.initialize(0, 10)
        await shares.write(start=20)
        await shares.write(start=15)
        await shares.write((30, 31, 2, 1))
        assert (await shares.summary()).start_offset == 20

    share(scenario)


def test_an_earlier_leader_is_fenced_by_the_read_of_a_later_one(share):
    async def scenario(shares):
        await shares.initialize()
        assert await shares.write((0, 0, 2, 1), leader_epoch=4) is None
        assert (await shares.read(5)).leader_epoch == 5
        assert await shares.write((1, 1, 2, 1), leader_epoch=4) is ErrorCode.FENCED_LEADER_EPOCH
        assert await shares.read(4) is ErrorCode.FENCED_LEADER_EPOCH
        again = await shares.restart()
        assert await again.write((1, 1, 2, 1), leader_epoch=4) is ErrorCode.FENCED_LEADER_EPOCH
        assert await again.write((1, 1, 2, 1), leader_epoch=5) is None
        await again.coordinator.stop()

    share(scenario)


def test_a_read_by_the_same_leader_stores_nothing(share):
    async def scenario(shares):
        await shares.initialize()
        await shares.read(5)
        await shares.read(5)
        await shares.read(-1)
        assert shares.stored() == ["snapshot", "update"]

    share(scenario)


def test_a_new_initialization_replaces_the_state_and_fences_writers_from_before(share):
    async def scenario(shares):
        await shares.initialize(1, 0)
        await shares.write((0, 9, 2, 1), state_epoch=1, leader_epoch=7)
        assert await shares.initialize(2, 50) is None
        assert await shares.write((0, 9, 2, 1), state_epoch=1, leader_epoch=7) is ErrorCode.FENCED_STATE_EPOCH
        assert await shares.initialize(1, 0) is ErrorCode.FENCED_STATE_EPOCH
        assert await shares.initialize(2, 50) is None
        assert await shares.read(7) == ShareState(2, 7, 50, 0, initialized_at=2)
        assert await shares.read(6) is ErrorCode.FENCED_LEADER_EPOCH

    share(scenario)


def test_a_repeated_initialization_does_not_undo_what_members_have_done_since(share):
    """A former group coordinator was paused before its request. The next one has initialized the state."""

    async def scenario(shares):
        await shares.initialize(3, -1)
        assert await shares.initialize(3, -1) is None
        await shares.write((0, 9, 2, 1), state_epoch=3, leader_epoch=7)
        before = shares.states
        assert await shares.initialize(3, -1) is ErrorCode.FENCED_STATE_EPOCH
        assert shares.states == before

    share(scenario)


def test_a_former_group_coordinator_does_not_delete_the_state_of_its_successor(share):
    """The group was deleted and created again: its state epochs begin anew, and do not fence."""

    async def scenario(shares):
        await shares.initialize(7, -1, coordinator_epoch=4)
        await shares.delete(coordinator_epoch=5)
        await shares.initialize(1, -1, coordinator_epoch=5)
        await shares.write((0, 9, 2, 1), state_epoch=1)
        before = shares.states
        assert await shares.delete(coordinator_epoch=4) is ErrorCode.FENCED_STATE_EPOCH
        shares = await shares.restart()
        assert await shares.delete(coordinator_epoch=4) is ErrorCode.FENCED_STATE_EPOCH
        assert shares.states == before
        assert await shares.delete(coordinator_epoch=6) is None
        assert shares.states == {}
        await shares.coordinator.stop()

    share(scenario)


def test_a_repeated_initialization_fences_the_deletions_of_former_group_coordinators(share):
    async def scenario(shares):
        await shares.initialize(3, -1, coordinator_epoch=4)
        assert await shares.initialize(3, -1, coordinator_epoch=5) is None
        assert await shares.initialize(3, -1, coordinator_epoch=4) is ErrorCode.FENCED_STATE_EPOCH
        assert await shares.delete(coordinator_epoch=4) is ErrorCode.FENCED_STATE_EPOCH

    share(scenario)


def test_a_former_group_coordinator_does_not_replace_the_state_of_a_group_that_was_created_again(share):
    """The former group had a higher epoch. Its coordinator was paused before the request."""

    async def scenario(shares):
        await shares.initialize(7, -1, coordinator_epoch=4)
        await shares.delete(coordinator_epoch=5)
        await shares.initialize(1, -1, coordinator_epoch=5)
        await shares.write((0, 9, 2, 1), state_epoch=1)
        before = shares.states
        assert await shares.initialize(9, -1, coordinator_epoch=4) is ErrorCode.FENCED_STATE_EPOCH
        assert shares.states == before
        assert await shares.initialize(9, -1, coordinator_epoch=6) is None

    share(scenario)


def test_a_group_coordinator_with_a_low_epoch_replaces_only_the_state_that_it_has_seen(share):
    """`__consumer_offsets` was created again, so its leader epochs begin anew."""

    async def scenario(shares):
        await shares.initialize(7, -1, coordinator_epoch=9)
        seen = (await shares.summary()).initialized_at
        await shares.initialize(8, -1, coordinator_epoch=9)
        late = await shares.initialize(20, 0, coordinator_epoch=2, replaced=seen)
        assert late is ErrorCode.FENCED_STATE_EPOCH
        seen = (await shares.summary()).initialized_at
        assert await shares.initialize(20, 0, coordinator_epoch=2, replaced=seen) is None
        assert await shares.delete(coordinator_epoch=2) is None

    share(scenario)


def test_a_late_initialization_does_not_replace_the_state_of_a_group_that_was_created_again(share):
    """Both groups have the same coordinator. The request of the earlier group has arrived twice."""

    async def scenario(shares):
        await shares.initialize(7, -1, coordinator_epoch=4, log_end=100)
        await shares.delete(coordinator_epoch=4, log_end=110)
        await shares.initialize(1, -1, coordinator_epoch=4, log_end=120)
        await shares.write((0, 9, 2, 1), state_epoch=1)
        before = shares.states
        for _ in range(2):
            late = await shares.initialize(7, -1, coordinator_epoch=4, log_end=100)
            assert late is ErrorCode.FENCED_STATE_EPOCH
            assert shares.states == before
            shares = await shares.restart()
        assert await shares.initialize(9, -1, coordinator_epoch=4, log_end=130) is None
        await shares.coordinator.stop()

    share(scenario)


def test_a_late_deletion_does_not_delete_the_state_that_the_same_coordinator_has_initialized_since(share):
    async def scenario(shares):
        await shares.initialize(7, -1, coordinator_epoch=4, log_end=100)
        await shares.delete(coordinator_epoch=4, log_end=110)
        await shares.initialize(8, -1, coordinator_epoch=4, log_end=120)
        before = shares.states
        assert await shares.delete(coordinator_epoch=4, log_end=110) is ErrorCode.FENCED_STATE_EPOCH
        assert shares.states == before
        assert await shares.delete(coordinator_epoch=4, log_end=130) is None
        assert shares.states == {}

    share(scenario)


def test_a_repeated_initialization_fences_an_earlier_deletion_whose_outcome_was_unknown(share):
    async def scenario(shares):
        await shares.initialize(3, -1, coordinator_epoch=4, log_end=100)
        assert await shares.initialize(3, -1, coordinator_epoch=4, log_end=120) is None
        assert await shares.delete(coordinator_epoch=4, log_end=110) is ErrorCode.FENCED_STATE_EPOCH
        assert shares.stored() == ["snapshot", "snapshot"]

    share(scenario)


def test_a_position_that_a_coordinator_of_an_older_version_does_not_send_is_not_compared(share):
    async def scenario(shares):
        await shares.initialize(3, -1, coordinator_epoch=4, log_end=100)
        assert await shares.initialize(4, -1, coordinator_epoch=5) is None
        assert await shares.initialize(5, -1, coordinator_epoch=5, log_end=10) is None
        assert await shares.delete(coordinator_epoch=5) is None
        assert shares.states == {}

    share(scenario)


@pytest.mark.parametrize("start, complete, kept", [(0, 3, 6), (2, 1, 6), (5, 1, 6), (5, 7, 7), (6, 1, 1)])
def test_a_late_duplicate_of_a_write_keeps_the_number_of_finished_records(share, start, complete, kept):
    """The number belongs to a start offset. It rises until the start offset does."""

    async def scenario(shares):
        await shares.initialize(0, 0)
        await shares.write((5, 9, 0, 1), start=5, complete=6)
        assert await shares.write(start=start, complete=complete) is None
        for _ in range(2):
            ((_, state),) = shares.states.items()
            assert state.delivery_complete_count == kept
            shares = await shares.restart()
        await shares.coordinator.stop()

    share(scenario)


def test_a_lower_number_of_finished_records_belongs_to_a_write_with_a_change(share):
    """For example, the log has lost finished records with an unclean election."""

    async def scenario(shares):
        await shares.initialize(0, 0)
        await shares.write((5, 9, 2, 1), complete=5)
        await shares.write((5, 5, 0, 2), complete=1)
        assert (await shares.summary()).delivery_complete_count == 1

    share(scenario)


def test_a_write_of_an_earlier_life_of_the_group_is_fenced(share):
    """A leader repeats a write. Meanwhile the group was deleted and created again, with the same epochs."""

    async def scenario(shares):
        await shares.initialize(1, 0)
        earlier = (await shares.read()).initialized_at
        assert await shares.write((0, 4, 2, 1), state_epoch=1, initialized_at=earlier) is None
        await shares.delete()
        await shares.initialize(1, 0)
        before = shares.states
        late = (5, 9, 2, 1)
        fenced = ErrorCode.FENCED_STATE_EPOCH
        assert await shares.write(late, state_epoch=1, initialized_at=earlier) is fenced
        shares = await shares.restart()
        assert await shares.write(late, state_epoch=1, initialized_at=earlier) is fenced
        assert shares.states == before
        present = (await shares.read()).initialized_at
        assert await shares.write(late, state_epoch=1, initialized_at=present) is None
        await shares.coordinator.stop()

    share(scenario)


def test_a_repeated_initialization_does_not_fence_the_leader_that_has_read_the_state(share):
    async def scenario(shares):
        await shares.initialize(1, 0, coordinator_epoch=4)
        read = (await shares.read()).initialized_at
        await shares.initialize(1, 0, coordinator_epoch=5)
        await shares.coordinator.repeat_snapshots()
        assert await shares.write((0, 4, 2, 1), state_epoch=1, initialized_at=read) is None

    share(scenario)


def test_a_write_succeeds_after_a_snapshot_without_the_offset_of_the_initialization(share, key):
    """In a rolling upgrade, an older version of the broker can write such a snapshot."""

    async def scenario(shares):
        await shares.initialize(1, 0)
        read = await shares.read()
        ((_, shard),) = shares.coordinator.active_shards()
        shard.replay(SnapshotRecord(key, Snapshot(1, read._replace(initialized_at=-1), 0, 0)))
        assert await shares.write((0, 4, 2, 1), state_epoch=1, initialized_at=read.initialized_at) is None

    share(scenario)


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_a_snapshot_follows_so_many_updates(share, limit):
    async def scenario(shares):
        await shares.initialize()
        for number in range(2 * limit + 2):
            await shares.write((number, number, 2, 1))
        assert shares.stored() == ["snapshot", *(["update"] * limit + ["snapshot"]) * 2]
        assert (await shares.read()).batches == (StateBatch(0, 2 * limit + 1, 2, 1),)

    share(scenario, share_coordinator_snapshot_update_records_per_snapshot=limit)


def test_a_partition_that_the_broker_does_not_know_has_no_state(share, key):
    async def scenario(shares):
        for unknown in (key._replace(topic_id=bytes(16)), key._replace(partition=4)):
            assert await shares.initialize(key=unknown) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await shares.summary(unknown) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for impossible in (
            key._replace(partition=-1),
            key._replace(group=""),
            key._replace(group="g" * 40_000),
        ):
            assert await shares.initialize(key=impossible) is ErrorCode.INVALID_REQUEST

    share(scenario)


def test_ranges_that_overlap_are_refused(share):
    async def scenario(shares):
        await shares.initialize()
        assert await shares.write((0, 5, 2, 1), (5, 9, 2, 1)) is ErrorCode.INVALID_REQUEST
        assert await shares.write((9, 5, 2, 1)) is ErrorCode.INVALID_REQUEST

    share(scenario)


def test_a_state_has_a_bound(share):
    async def scenario(shares):
        await shares.initialize()
        for begin in range(0, 40_000, 8_000):
            await shares.write(*((offset, offset, 2, 1) for offset in range(begin, begin + 8_000, 2)))
        assert await shares.write((50_000, 50_000, 2, 1)) is ErrorCode.INVALID_REQUEST
        assert await shares.write(start=10_000) is None
        assert await shares.write((50_000, 50_000, 2, 1)) is None

    share(scenario)


def test_a_deleted_state_is_gone_for_good(share):
    async def scenario(shares):
        assert await shares.delete() is None
        await shares.initialize()
        await shares.write((0, 9, 2, 1))
        assert await shares.delete() is None
        assert shares.stored()[-1] == "-"
        again = await shares.restart()
        assert again.states == {}
        await again.coordinator.stop()

    share(scenario)


def test_a_failed_append_changes_nothing(share):
    async def scenario(shares):
        from barnabas.base.errors import KafkaError

        await shares.initialize()
        shares.log.failure = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        assert await shares.write((0, 9, 2, 1)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await shares.initialize(5) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        shares.log.failure = None
        assert await shares.read(0) == ShareState(0, 0, 0, 0, initialized_at=0)
        await shares.coordinator.prune()
        assert shares.deleted == []

    share(scenario)


def test_the_state_of_a_deleted_topic_goes_with_it(share):
    async def scenario(shares):
        await shares.initialize()
        shares.delete_topic()
        assert shares.states == {}

    share(scenario)


def test_many_states_of_a_deleted_topic_go_a_few_in_a_turn(share, key):
    async def scenario(shares):
        for number in range(100):
            await shares.initialize(key=key._replace(group=f"g{number}"))
        shares.delete_topic()
        left = [100, len(shares.states)]
        while left[-1]:
            await asyncio.sleep(0)
            left.append(len(shares.states))
        assert max(before - after for before, after in pairwise(left)) <= 10
        again = await shares.restart()
        assert again.states == {}
        await again.coordinator.stop()

    share(scenario)


def test_the_state_of_a_topic_that_was_deleted_meanwhile_goes_when_the_partition_is_loaded(share):
    async def scenario(shares):
        await shares.initialize()
        await shares.coordinator.stop()
        shares.delete_topic()
        again = await shares.restart()
        assert again.states == {}
        await again.coordinator.stop()

    share(scenario)


# --- the log ---


def test_what_a_newer_snapshot_supersedes_is_deleted(share, key):
    other = key._replace(partition=1)

    async def scenario(shares):
        await shares.initialize()  # 0
        await shares.initialize(key=other)  # 1
        await shares.coordinator.prune()
        assert shares.deleted == []
        await shares.write((0, 0, 2, 1))  # 2
        await shares.write((1, 1, 2, 1))  # 3: a snapshot
        await shares.coordinator.prune()
        assert shares.deleted == [(0, 1)]
        await shares.initialize(1, key=other)  # 4
        await shares.coordinator.prune()
        await shares.coordinator.prune()
        assert shares.deleted == [(0, 1), (0, 3)]
        await shares.delete()  # 5
        await shares.delete(other)  # 6
        await shares.coordinator.prune()
        assert shares.deleted[-1] == (0, 7)

    share(scenario, share_coordinator_snapshot_update_records_per_snapshot=1)


def test_a_loaded_state_is_kept_until_it_has_another_snapshot(share, key):
    async def scenario(shares):
        await shares.initialize()
        again = await shares.restart()
        await again.initialize(key=key._replace(partition=1))
        await again.coordinator.prune()
        assert again.deleted == []
        await asyncio.sleep(INTERVAL_S)
        await again.coordinator.repeat_snapshots()
        await again.coordinator.prune()
        assert again.deleted == [(0, 2)]
        await again.coordinator.stop()

    share(scenario)


def test_a_snapshot_that_is_not_committed_yet_deletes_nothing(share):
    async def scenario(shares):
        await shares.initialize()
        shares.log.hold = True
        pending = asyncio.ensure_future(shares.initialize(1))
        await asyncio.sleep(0)
        await shares.coordinator.prune()
        assert shares.deleted == []
        shares.log.commit_next()
        await pending
        await shares.coordinator.prune()
        assert shares.deleted == [(0, 1)]

    share(scenario)


def test_a_state_from_before_the_clock_was_set_back_is_stored_again(share, key):
    async def scenario(shares):
        await shares.initialize()
        shares.clock.ahead_ms = -86_400_000
        await shares.initialize(key=key._replace(partition=1))
        await shares.coordinator.repeat_snapshots()
        await shares.coordinator.repeat_snapshots()
        assert shares.stored() == ["snapshot"] * 3

    share(scenario)


def test_states_that_rest_are_stored_again_while_others_change(share, key):
    other = key._replace(partition=1)

    async def scenario(shares):
        await shares.initialize()
        await asyncio.sleep(INTERVAL_S)
        await shares.initialize(key=other)
        await shares.coordinator.repeat_snapshots()
        assert shares.stored() == ["snapshot"] * 3
        await asyncio.sleep(INTERVAL_S)
        await shares.coordinator.repeat_snapshots()
        assert shares.stored() == ["snapshot"] * 5
        await asyncio.sleep(INTERVAL_S)
        await shares.coordinator.repeat_snapshots()
        assert shares.stored() == ["snapshot"] * 5, "all rest: nothing is gained"
        await shares.write((0, 0, 2, 1), key=other)
        await shares.initialize(1)
        await asyncio.sleep(INTERVAL_S)
        before = shares.states
        await shares.coordinator.repeat_snapshots()
        assert shares.states == before
        assert shares.stored()[-2:] == ["snapshot"] * 2

    share(scenario)


def test_the_log_is_kept_short_without_being_told(share, key):
    async def scenario(shares):
        shares.coordinator.start()
        await shares.initialize()
        await asyncio.sleep(10)
        await shares.initialize(key=key._replace(partition=1))
        await asyncio.sleep(3 * INTERVAL_S)
        assert shares.deleted

    share(scenario)
