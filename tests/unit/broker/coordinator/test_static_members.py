"""Members with a group.instance.id (KIP-345)."""

from __future__ import annotations

import asyncio

from barnabas.base.errors import ErrorCode, KafkaError


async def stable(groups, *instances, **options):
    """Create a stable group of static members. Return member ids by instance; the first member leads."""
    joins = [groups.join(instance=name, **options) for name in instances]
    responses = [await join for join in joins]
    ids = {name: response.member_id for name, response in zip(instances, responses, strict=True)}
    generation = responses[0].generation_id
    parts = {member_id: name.encode() for name, member_id in ids.items()}
    await asyncio.gather(*(groups.sync(ids[name], generation, parts, instance=name) for name in instances))
    return ids, generation


def test_restarted_member_takes_its_place_without_a_rebalance(coordinate):
    async def scenario(groups):
        ids, generation = await stable(groups, "a", "b")
        again = await groups.join(instance="b")
        assert again.member_id != ids["b"]
        assert (again.generation_id, again.leader, again.members) == (generation, ids["a"], [])
        assert groups.state() == "Stable"
        kept = await groups.sync(again.member_id, generation, instance="b")
        assert kept.assignment == b"b"

    coordinate(scenario)


def test_predecessor_is_fenced(coordinate):
    async def scenario(groups):
        ids, generation = await stable(groups, "a", "b")
        await groups.join(instance="b")
        fenced = ErrorCode.FENCED_INSTANCE_ID
        assert await groups.heartbeat(ids["b"], generation, instance="b") == fenced
        assert await groups.error(groups.join(ids["b"], instance="b")) == fenced
        assert await groups.error(groups.sync(ids["b"], generation, instance="b")) == fenced
        assert await groups.commit({("t", 0): 1}, ids["b"], generation, instance="b") == fenced
        left = await groups.leave((ids["b"], "b"))
        assert left.members[0].error_code == fenced

    coordinate(scenario)


def test_restarted_leader_is_told_not_to_assign(coordinate):
    async def scenario(groups):
        _ids, generation = await stable(groups, "a", "b")
        again = await groups.join(instance="a", version=9)
        assert (again.leader, again.skip_assignment) == (again.member_id, True)
        assert {m.group_instance_id for m in again.members} == {"a", "b"}
        assert again.generation_id == generation

    coordinate(scenario)


def test_restarted_leader_below_version_9_is_not_told_that_it_leads(coordinate):
    async def scenario(groups):
        ids, _generation = await stable(groups, "a", "b")
        again = await groups.join(instance="a", version=8)
        assert (again.leader, again.members, again.skip_assignment) == (ids["a"], [], False)
        # It leads all the same: joining again, it rebalances.
        groups.join(again.member_id, instance="a")
        assert groups.state() == "PreparingRebalance"

    coordinate(scenario)


def test_takeover_that_changes_the_protocol_rebalances(coordinate):
    async def scenario(groups):
        both = {"x": b"", "y": b""}
        await stable(groups, "a", protocols=both)
        again = await groups.join(instance="a", protocols={"y": b""})
        assert (again.generation_id, again.protocol_name) == (2, "y")

    coordinate(scenario)


def test_takeover_keeps_all_protocols_for_the_next_round(coordinate):
    async def scenario(groups):
        both = {"x": b"", "y": b""}
        await stable(groups, "a", protocols=both)
        await groups.join(instance="a", protocols=both)
        newcomer = groups.join(instance="b", protocols={"y": b""})
        member = groups.coordinator.group("g").members.holder("a").member_id
        again = groups.join(member, instance="a", protocols=both)
        assert (await again).protocol_name == (await newcomer).protocol_name == "y"

    coordinate(scenario)


def test_takeover_while_joining_answers_the_predecessor_as_fenced(coordinate):
    async def scenario(groups):
        ids, generation = await stable(groups, "a", "b")
        newcomer = groups.join(instance="c")
        first = groups.join(ids["b"], instance="b")
        second = groups.join(instance="b")
        assert await groups.error(first) == ErrorCode.FENCED_INSTANCE_ID
        leader = groups.join(ids["a"], instance="a")
        assert {(await j).generation_id for j in (leader, second, newcomer)} == {generation + 1}
        assert len((await leader).members) == 3

    coordinate(scenario)


def test_takeover_while_assigning_rebalances(coordinate):
    async def scenario(groups):
        joins = [groups.join(instance=name) for name in "ab"]
        leader, follower = [(await join).member_id for join in joins]
        waiting = groups.sync(follower, 1, instance="b")
        await asyncio.sleep(0)
        again = groups.join(instance="b")
        assert await groups.error(waiting) == ErrorCode.FENCED_INSTANCE_ID
        assert groups.state() == "PreparingRebalance"
        rejoined = groups.join(leader, instance="a")
        assert (await again).generation_id == (await rejoined).generation_id == 2

    coordinate(scenario)


def test_takeover_that_is_not_stored_leaves_the_predecessor_in_place(coordinate):
    async def scenario(groups):
        ids, generation = await stable(groups, "a")
        groups.log.failure = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        assert await groups.error(groups.join(instance="a")) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        groups.log.failure = None
        assert await groups.heartbeat(ids["a"], generation, instance="a") == ErrorCode.NONE

    coordinate(scenario)


def test_takeover_survives_a_restart_of_the_broker(coordinate):
    async def scenario(groups):
        ids, generation = await stable(groups, "a", "b")
        again = await groups.join(instance="b")
        restarted = await groups.restart()
        assert await restarted.heartbeat(again.member_id, generation, instance="b") == ErrorCode.NONE
        assert await restarted.heartbeat(ids["b"], generation, instance="b") == ErrorCode.FENCED_INSTANCE_ID

    coordinate(scenario)


def test_unknown_instance_is_an_unknown_member(coordinate):
    async def scenario(groups):
        ids, generation = await stable(groups, "a")
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        assert await groups.heartbeat(ids["a"], generation, instance="z") == unknown
        assert await groups.error(groups.join(ids["a"], instance="z")) == unknown

    coordinate(scenario)


def test_administrator_takes_out_a_static_member_by_its_instance(coordinate):
    async def scenario(groups):
        await stable(groups, "a", "b")
        left = await groups.leave(("", "b"))
        assert [(m.member_id, m.group_instance_id, m.error_code) for m in left.members] == [("", "b", 0)]
        assert groups.state() == "PreparingRebalance"

    coordinate(scenario)


def test_static_member_away_at_the_round_keeps_its_place_until_it_fails_to_sync(coordinate):
    async def scenario(groups):
        long = {"rebalance": 20_000, "session": 60_000}
        ids, generation = await stable(groups, "a", "b", **long)
        newcomer = groups.join(instance="c", **long)
        leader = groups.join(ids["a"], instance="a", **long)
        await asyncio.sleep(20.1)
        assert {m.group_instance_id for m in (await leader).members} == {"a", "b", "c"}
        assert (await newcomer).generation_id == generation + 1

    coordinate(scenario)


def test_static_members_all_away_are_waited_for_until_their_sessions_end(coordinate):
    async def scenario(groups):
        long = {"rebalance": 10_000, "session": 60_000}
        _ids, _ = await stable(groups, "a", "b", **long)
        member_id, join = await groups.new_member(**long)
        join.cancel()
        await groups.leave((member_id, None))
        await asyncio.sleep(30)
        assert groups.state() == "PreparingRebalance"
        assert len(groups.coordinator.group("g").members) == 2
        await asyncio.sleep(31)
        assert groups.state() == "Empty"

    coordinate(scenario)
