"""The sync phase of a rebalance: the coordinator stores the leader's assignment
before it answers any member.
"""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.kafka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment


async def joined(groups, members=2, **options):
    """Create members of one generation that have joined and not synced yet. Return
    their ids, the leader first.
    """
    parked = [await groups.new_member(**options) for _ in range(members)]
    for _, join in parked:
        generation = (await join).generation_id
    return [member_id for member_id, _ in parked], generation


def test_everyone_gets_their_part_when_the_leader_has_assigned(coordinate):
    async def scenario(groups):
        (leader, follower), generation = await joined(groups)
        waiting = groups.sync(follower, generation)
        await asyncio.sleep(1)
        assert not waiting.done()
        own = await groups.sync(leader, generation, {leader: b"L", follower: b"F"})
        assert (own.assignment, own.protocol_type, own.protocol_name) == (b"L", "consumer", "range")
        assert (await waiting).assignment == b"F"
        assert groups.state() == "Stable"
        # Whoever asks later is told the same.
        assert (await groups.sync(follower, generation)).assignment == b"F"

    coordinate(scenario)


def test_member_the_leader_left_out_gets_an_empty_assignment(coordinate):
    async def scenario(groups):
        (leader, follower), generation = await joined(groups)
        waiting = groups.sync(follower, generation)
        await groups.sync(leader, generation, {leader: b"L"})
        response = await waiting
        assert (response.error_code, response.assignment) == (0, b"")

    coordinate(scenario)


def test_sync_of_a_stranger_or_another_generation_is_refused(coordinate):
    async def scenario(groups):
        (leader, _), generation = await joined(groups)
        assert await groups.error(groups.sync("ghost", generation)) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await groups.error(groups.sync(leader, generation - 1)) == ErrorCode.ILLEGAL_GENERATION
        assert await groups.error(groups.sync(leader, 1, group="none")) == ErrorCode.UNKNOWN_MEMBER_ID

    coordinate(scenario)


def test_sync_under_another_protocol_is_refused(coordinate):
    async def scenario(groups):
        (leader, _), generation = await joined(groups)
        refusal = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        for given in ({"type": "connect"}, {"protocol": "roundrobin"}):
            assert await groups.error(groups.sync(leader, generation, **given)) == refusal

    coordinate(scenario)


def test_sync_while_others_join_again_is_told_to_join_too(coordinate):
    async def scenario(groups):
        (leader, follower), generation = await joined(groups)
        waiting = groups.sync(follower, generation)
        await groups.new_member()
        assert await groups.error(waiting) == ErrorCode.REBALANCE_IN_PROGRESS
        assert await groups.error(groups.sync(leader, generation)) == ErrorCode.REBALANCE_IN_PROGRESS

    coordinate(scenario)


def test_parked_sync_survives_a_disconnect(coordinate):
    async def scenario(groups):
        (leader, follower), generation = await joined(groups)
        lost = groups.sync(follower, generation)
        await asyncio.sleep(0)
        lost.cancel()
        again = groups.sync(follower, generation)
        await groups.sync(leader, generation, {follower: b"F"})
        assert (await again).assignment == b"F"

    coordinate(scenario)


def test_member_that_never_syncs_is_out_after_the_rebalance_timeout(coordinate):
    async def scenario(groups):
        (leader, follower), generation = await joined(groups, rebalance=20_000, session=60_000)
        own = await groups.sync(leader, generation, {leader: b"L", follower: b"F"})
        assert own.error_code == 0
        await asyncio.sleep(20.1)
        assert groups.state() == "PreparingRebalance"
        assert await groups.heartbeat(follower, generation) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await groups.heartbeat(leader, generation) == ErrorCode.REBALANCE_IN_PROGRESS

    coordinate(scenario)


def test_leader_that_never_assigns_is_out_and_the_others_go_round_again(coordinate):
    async def scenario(groups):
        (leader, follower), generation = await joined(groups, rebalance=20_000, session=60_000)
        waiting = groups.sync(follower, generation)
        await asyncio.sleep(20.1)
        assert await groups.error(waiting) == ErrorCode.REBALANCE_IN_PROGRESS
        again = await groups.join(follower)
        assert (again.generation_id, again.leader) == (generation + 1, follower)
        assert await groups.error(groups.join(leader)) == ErrorCode.UNKNOWN_MEMBER_ID

    coordinate(scenario)


def test_nobody_learns_an_assignment_that_is_not_stored(coordinate):
    async def scenario(groups):
        (leader, follower), generation = await joined(groups)
        waiting = groups.sync(follower, generation)
        groups.log.hold = True
        own = groups.sync(leader, generation, {leader: b"L", follower: b"F"})
        await asyncio.sleep(1)
        assert not waiting.done() and not own.done()
        assert groups.state() == "CompletingRebalance"
        groups.log.commit_next()
        assert ((await own).assignment, (await waiting).assignment) == (b"L", b"F")

    coordinate(scenario)


def test_assignment_that_cannot_be_stored_begins_the_round_again(coordinate):
    async def scenario(groups):
        for fails_at_once in (True, False):
            (leader, follower), generation = await joined(groups, group=f"g{fails_at_once}")
            options = {"group": f"g{fails_at_once}"}
            waiting = groups.sync(follower, generation, **options)
            groups.log.hold = not fails_at_once
            error = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
            groups.log.failure = error if fails_at_once else None
            own = groups.sync(leader, generation, {leader: b"L", follower: b"F"}, **options)
            await asyncio.sleep(0)
            if not fails_at_once:
                groups.log.fail_next(error)
            assert await groups.error(own) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert await groups.error(waiting) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            groups.log.failure, groups.log.hold = None, False
            await asyncio.sleep(0)
            assert groups.state(options["group"]) == "PreparingRebalance"
            again = [groups.join(name, **options) for name in (leader, follower)]
            assert (await again[0]).generation_id == generation + 1

    coordinate(scenario)


def test_requests_of_a_group_wait_their_turn_behind_its_append(coordinate):
    async def scenario(groups):
        (leader,), generation = await joined(groups, 1)
        groups.log.hold = True
        own = groups.sync(leader, generation, {leader: b"L"})
        await asyncio.sleep(0)
        commit = asyncio.ensure_future(groups.commit({("t", 0): 7}, leader, generation))
        other = asyncio.ensure_future(groups.commit({("t", 0): 1}, group="other"))
        await asyncio.sleep(0.1)
        assert len(groups.log.held) == 2  # the assignment, and the other group's commit
        groups.log.commit_next()
        assert (await own).assignment == b"L"
        groups.log.commit_next()
        assert await other == ErrorCode.NONE
        await asyncio.sleep(0)
        groups.log.commit_next()
        assert await commit == ErrorCode.NONE
        assert (groups.committed(), groups.committed(group="other")) == (7, 1)

    coordinate(scenario)


@pytest.mark.parametrize("how", ["at once", "later", "later, behind another request"])
@pytest.mark.parametrize("first", [0, 1])
def test_leader_learns_its_assignment_before_its_followers(coordinate, how, first):
    async def scenario(groups):
        (leader, *followers), generation = await joined(groups, 3)
        order = []

        def sync(member, parts=()):
            """Send SyncGroup as the dispatcher does. If it must wait, a callback sends the answer later."""
            request = SyncGroupRequest(
                group_id="g",
                generation_id=generation,
                member_id=member,
                assignments=[SyncGroupRequestAssignment(member_id=m, assignment=m.encode()) for m in parts],
            )
            answer = groups.coordinator.sync(request)
            if isinstance(answer, asyncio.Future):
                answer.add_done_callback(lambda done: order.append((member, done.result().assignment)))
            else:
                order.append((member, answer.assignment))

        for follower in followers[:first]:
            sync(follower)
        groups.log.hold = how != "at once"
        if how == "later, behind another request":
            held = groups.coordinator._slots[0].lock
            held.acquire("g", shared=False)
        sync(leader, [leader, *followers])
        for follower in followers[first:]:
            sync(follower)
        if how == "later, behind another request":
            held.release("g", shared=False)
        await asyncio.sleep(0.1)
        if groups.log.hold:
            assert order == []
            groups.log.commit_next()
            await asyncio.sleep(0.1)
        assert order[0] == (leader, leader.encode())
        assert sorted(order) == sorted((member, member.encode()) for member in (leader, *followers))

    coordinate(scenario)


def test_an_assignment_that_no_log_takes_is_refused_before_it_is_encoded(coordinate):
    """Earlier, one of 90 MB blocked the loop for 0.7 s and used 1.1 GB of memory."""

    async def scenario(groups):
        (leader, follower), generation = await joined(groups)
        waiting = groups.sync(follower, generation)
        await asyncio.sleep(0)
        attempts, assignment = groups.log.attempts, bytes(90 << 20)
        tracemalloc.start()
        try:
            refused = await groups.error(groups.sync(leader, generation, {leader: assignment}))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert refused == await groups.error(waiting) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert groups.log.attempts == attempts
        assert peak < 4 << 20
        assert groups.state() == "PreparingRebalance"

    coordinate(scenario)
