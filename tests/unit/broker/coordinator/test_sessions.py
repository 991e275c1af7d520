"""Heartbeats, leaving members, and members without heartbeats."""

from __future__ import annotations

import asyncio

from barnabas.base.errors import ErrorCode


def test_heartbeats_keep_a_member_in(coordinate):
    async def scenario(groups):
        (member,), generation = await groups.stable()
        for _ in range(10):
            await asyncio.sleep(9)
            assert await groups.heartbeat(member, generation) == ErrorCode.NONE
        assert groups.state() == "Stable"

    coordinate(scenario)


def test_silent_member_is_out_after_its_session_timeout(coordinate):
    async def scenario(groups):
        (leader, follower), generation = await groups.stable(2)
        await asyncio.sleep(9)
        assert await groups.heartbeat(leader, generation) == ErrorCode.NONE
        await asyncio.sleep(1.1)
        assert await groups.heartbeat(leader, generation) == ErrorCode.REBALANCE_IN_PROGRESS
        assert await groups.heartbeat(follower, generation) == ErrorCode.UNKNOWN_MEMBER_ID
        again = await groups.join(leader)
        assert (again.generation_id, len(again.members)) == (generation + 1, 1)

    coordinate(scenario)


def test_commits_count_as_signs_of_life(coordinate):
    async def scenario(groups):
        (member,), generation = await groups.stable()
        for number in range(10):
            await asyncio.sleep(9)
            assert await groups.commit({("t", 0): number}, member, generation) == ErrorCode.NONE
        assert groups.state() == "Stable"

    coordinate(scenario)


def test_heartbeat_of_a_stranger_or_another_generation_is_refused(coordinate):
    async def scenario(groups):
        assert await groups.heartbeat("m", 1) == ErrorCode.UNKNOWN_MEMBER_ID
        (member,), generation = await groups.stable()
        assert await groups.heartbeat("ghost", generation) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await groups.heartbeat(member, generation + 1) == ErrorCode.ILLEGAL_GENERATION

    coordinate(scenario)


def test_member_that_waits_for_its_answer_need_not_beat(coordinate):
    async def scenario(groups):
        (leader, follower), _ = await groups.stable(2, session=10_000, rebalance=60_000)
        again = groups.join(leader)  # waits for the follower, far beyond its session
        for _ in range(5):
            await asyncio.sleep(9)
            if await groups.heartbeat(follower, 1) == ErrorCode.UNKNOWN_MEMBER_ID:
                break
        await groups.join(follower)
        assert (await again).error_code == 0

    coordinate(scenario)


def test_leaving_rebalances_and_the_last_leaves_an_empty_group(coordinate):
    async def scenario(groups):
        (leader, follower), generation = await groups.stable(2)
        left = await groups.leave((leader, None))
        assert [(m.member_id, m.error_code) for m in left.members] == [(leader, 0)]
        again = await groups.join(follower)
        assert (again.leader, again.generation_id) == (follower, generation + 1)
        await groups.leave((follower, None))
        group = groups.coordinator.group("g")
        assert (group.state.value, group.generation) == ("Empty", generation + 2)
        assert (group.protocol_type, group.protocol, group.leader) == ("consumer", None, None)

    coordinate(scenario)


def test_leaving_a_group_one_is_not_in_is_told_member_by_member(coordinate):
    async def scenario(groups):
        (member,), _ = await groups.stable()
        left = await groups.leave(("ghost", None), (member, None), ("", "nobody"), ("", None))
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        assert [m.error_code for m in left.members] == [unknown, 0, unknown, unknown]

    coordinate(scenario)


def test_member_to_be_may_leave_without_disturbing_anyone(coordinate):
    async def scenario(groups):
        await groups.stable()
        given = await groups.join()
        left = await groups.leave((given.member_id, None))
        assert left.members[0].error_code == 0
        assert groups.state() == "Stable"

    coordinate(scenario)


def test_leaving_of_the_last_awaited_ends_the_round(coordinate):
    async def scenario(groups):
        (leader, follower), generation = await groups.stable(2)
        again = groups.join(leader)
        await groups.leave((follower, None))
        assert ((await again).generation_id, len((await again).members)) == (generation + 1, 1)

    coordinate(scenario)


def test_leaving_while_waiting_for_the_round_answers_the_join(coordinate):
    async def scenario(groups):
        member_id, join = await groups.new_member()
        await groups.leave((member_id, None))
        assert await groups.error(join) == ErrorCode.UNKNOWN_MEMBER_ID
        await asyncio.sleep(2)
        assert groups.state() == "Empty"

    coordinate(scenario)


def test_group_that_could_not_be_stored_empty_is_tried_again(coordinate):
    async def scenario(groups):
        (_member,), _ = await groups.stable()
        groups.log.failure = OSErrorAsKafka
        await asyncio.sleep(11)
        assert groups.state() == "PreparingRebalance"
        groups.log.failure = None
        await asyncio.sleep(6)
        assert groups.state() == "Empty"

    from barnabas.base.errors import KafkaError

    OSErrorAsKafka = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    coordinate(scenario)


def test_resigning_sends_everybody_who_waits_away(coordinate):
    async def scenario(groups):
        (leader, follower), generation = await groups.stable(2)
        again = groups.join(leader)
        groups.coordinator.resign(0)
        assert await groups.error(again) == ErrorCode.NOT_COORDINATOR
        assert await groups.heartbeat(follower, generation) == ErrorCode.NOT_COORDINATOR
        assert await groups.commit({("t", 0): 1}) == ErrorCode.NOT_COORDINATOR

    coordinate(scenario)


def test_heartbeats_do_not_wait_for_slow_appends(coordinate):
    async def scenario(groups):
        (member,), generation = await groups.stable()
        groups.log.hold = True
        commit = asyncio.ensure_future(groups.commit({("t", 0): 5}, member, generation))
        for _ in range(4):
            await asyncio.sleep(4)
            assert await groups.heartbeat(member, generation) == ErrorCode.NONE
        assert await commit == ErrorCode.COORDINATOR_NOT_AVAILABLE
        groups.log.commit_next()
        await asyncio.sleep(0.1)
        assert (groups.state(), groups.committed()) == ("Stable", 5)

    coordinate(scenario)


def test_member_that_beats_while_its_expiry_waits_for_an_append_stays(coordinate):
    async def scenario(groups):
        (member,), generation = await groups.stable()
        groups.log.hold = True
        commit = asyncio.ensure_future(groups.commit({("t", 0): 5}, member, generation))
        await asyncio.sleep(11)  # the session has ended, but the group's turn is taken
        assert await groups.heartbeat(member, generation) == ErrorCode.NONE
        groups.log.commit_next()
        groups.log.hold = False
        await asyncio.sleep(1)
        assert groups.state() == "Stable"
        assert await commit == ErrorCode.COORDINATOR_NOT_AVAILABLE

    coordinate(scenario)
