"""Groups that change between the classic and the consumer protocol while they are in use (KIP-848)."""

from __future__ import annotations

import asyncio
import struct

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.broker.coordinator import ClassicGroup, ConsumerGroup, GroupState
from barnabas.broker.coordinator.groups.subscription import decode_assignment, encode_assignment


def subscription(*topics, owned=()):
    """Return ConsumerProtocolSubscription v1 with owned partitions of the first topic."""
    names = [struct.pack(">h", len(topic)) + topic.encode() for topic in topics]
    mine = [names[0] + struct.pack(f">i{len(owned)}i", len(owned), *owned)] if owned else []
    return (
        struct.pack(">hi", 1, len(names))
        + b"".join(names)
        + struct.pack(">ii", -1, len(mine))
        + b"".join(mine)
    )


def offers(*topics, owned=(), protocols=("range",)):
    return {name: subscription(*topics, owned=owned) for name in protocols}


def assigned(response):
    return {
        entry.topic: entry.partitions for entry in decode_assignment(response.assignment).assigned_partitions
    }


async def stable_classic(groups, *names, owned=(0, 1)):
    """Create a classic group whose first member owns all partitions. Return the members' ids and the
    generation.
    """
    parked = [await groups.new_member(client=name, protocols=offers("t")) for name in names]
    joined = [await join for _, join in parked]
    generation = joined[0].generation_id
    shares = {parked[0][0]: encode_assignment({"t": frozenset(owned)}, 1)}
    syncs = [
        groups.sync(member, generation, shares if number == 0 else {})
        for number, (member, _) in enumerate(parked)
    ]
    await asyncio.gather(*syncs)
    return [member for member, _ in parked], generation


def test_classic_group_becomes_a_consumer_group_and_members_go_on(coordinate, told):
    async def scenario(groups):
        groups.topics(t=2)
        (old,), generation = await stable_classic(groups, "old")
        await groups.commit({("t", 0): 5}, old, generation)
        newcomer = await groups.enter("new", "t")
        assert (newcomer.member_epoch, told(newcomer)) == (2, {})
        group = groups.consumer_group()
        assert group.members[old].classic is not None
        assert groups.committed() == 5
        # The member of before is told to rebalance, gives up one partition, and the newcomer gets it.
        assert await groups.heartbeat(old, generation) is ErrorCode.REBALANCE_IN_PROGRESS
        joined = await groups.join(old, protocols=offers("t", owned=(0, 1)))
        assert joined.generation_id == 1
        assert assigned(await groups.sync(old, 1)) == {"t": [0]}
        assert told(await groups.beat("new", 2)) is None
        assert await groups.heartbeat(old, 1) is ErrorCode.REBALANCE_IN_PROGRESS
        joined = await groups.join(old, protocols=offers("t", owned=(0,)))
        assert joined.generation_id == 2
        assert assigned(await groups.sync(old, 2)) == {"t": [0]}
        assert await groups.heartbeat(old, 2) is ErrorCode.NONE
        assert told(await groups.beat("new", 2)) == {"t": [1]}

    coordinate(scenario)


def test_parked_members_of_a_classic_group_are_told_to_come_again(coordinate, told):
    async def scenario(groups):
        groups.topics(t=2)
        (one, two), generation = await stable_classic(groups, "one", "two")
        parked = groups.join(one, protocols=offers("t", "u"))
        await asyncio.sleep(0)
        assert not parked.done()
        await groups.enter("new", "t")
        assert (await parked).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert await groups.heartbeat(two, generation) is ErrorCode.REBALANCE_IN_PROGRESS

    coordinate(scenario)


def test_group_is_classic_again_when_the_last_new_member_leaves(coordinate, told):
    async def scenario(groups):
        groups.topics(t=2)
        (old,), _ = await stable_classic(groups, "old")
        await groups.enter("new", "t")
        await groups.join(old, protocols=offers("t", owned=(0,)))
        await groups.sync(old, 2)
        await groups.beat("new", -1)
        group = groups.coordinator.group("g")
        assert isinstance(group, ClassicGroup)
        assert group.has(GroupState.PREPARING_REBALANCE)
        assert await groups.heartbeat(old, 2) is ErrorCode.REBALANCE_IN_PROGRESS
        joined = await groups.join(old, protocols=offers("t", owned=(0,)))
        assert (joined.generation_id, joined.leader) == (3, old)
        everything = {old: encode_assignment({"t": frozenset({0, 1})}, 1)}
        assert assigned(await groups.sync(old, 3, everything)) == {"t": [0, 1]}

    coordinate(scenario)


def test_garbage_in_a_protocol_that_was_not_looked_at_does_not_keep_a_group_from_going_back(coordinate):
    async def scenario(groups):
        groups.topics(t=2)
        await groups.enter("new", "t")
        garbage = {"range": subscription("t"), "other": b""}
        joined = await groups.join(instance="i", protocols=garbage)
        await groups.join(instance="j", protocols={"other": subscription("t")})
        await groups.leave(("", "i"))
        await groups.join(instance="i", protocols=garbage)
        await groups.beat("new", -1)
        group = groups.coordinator.group("g")
        assert isinstance(group, ClassicGroup)
        assert group.protocol == "other"
        assert joined.generation_id == 2

    coordinate(scenario)


def test_group_stays_as_it_is_where_the_policy_says_so(coordinate):
    async def scenario(groups):
        groups.topics(t=2)
        await stable_classic(groups, "old")
        assert await groups.error(groups.enter("new", "t")) is ErrorCode.GROUP_ID_NOT_FOUND
        assert isinstance(groups.coordinator.group("g"), ClassicGroup)

    for policy in ("disabled", "downgrade"):
        coordinate(scenario, group_consumer_migration_policy=policy)


def test_group_is_not_downgraded_where_the_policy_says_so(coordinate):
    async def scenario(groups):
        groups.topics(t=2)
        (old,), _ = await stable_classic(groups, "old")
        await groups.enter("new", "t")
        await groups.beat("new", -1)
        assert set(groups.consumer_group().members) == {old}

    coordinate(scenario, group_consumer_migration_policy="upgrade")


@pytest.mark.parametrize("user_data", [b"", b"weights"])
def test_assignment_with_data_of_its_own_is_not_thrown_away(coordinate, user_data):
    async def scenario(groups):
        groups.topics(t=2)
        member, parked = await groups.new_member(protocols=offers("t"))
        generation = (await parked).generation_id
        assignment = struct.pack(">hii", 1, 0, len(user_data)) + user_data
        await groups.sync(member, generation, {member: assignment})
        expected = ErrorCode.GROUP_ID_NOT_FOUND if user_data else ErrorCode.NONE
        assert await groups.error(groups.enter("new", "t")) is expected

    coordinate(scenario)


def test_static_member_changes_its_protocol_and_keeps_what_it_has(coordinate, told):
    async def scenario(groups):
        groups.topics(t=2)
        joined = await groups.join(instance="i", protocols=offers("t"))
        shares = {joined.member_id: encode_assignment({"t": frozenset({0, 1})}, 1)}
        await groups.sync(joined.member_id, 1, shares, instance="i")
        upgraded = await groups.enter("new", "t", instance_id="i")
        assert told(upgraded) == {"t": [0, 1]}
        assert set(groups.consumer_group().members) == {"new"}
        epoch = groups.consumer_group().epoch
        back = await groups.join(instance="i", protocols=offers("t"))
        group = groups.coordinator.group("g")
        assert isinstance(group, ClassicGroup)
        assert group.has(GroupState.STABLE)
        assert back.generation_id == group.generation == epoch
        synced = await groups.sync(back.member_id, epoch, instance="i")
        assert assigned(synced) == {"t": [0, 1]}

    coordinate(scenario)


def test_classic_member_that_does_not_join_again_is_out(coordinate):
    async def scenario(groups):
        groups.topics(t=2)
        (old,), generation = await stable_classic(groups, "old")
        await groups.enter("new", "t")
        for _ in range(21):
            assert await groups.heartbeat(old, generation) is ErrorCode.REBALANCE_IN_PROGRESS
            await groups.beat("new", groups.consumer_group().members["new"].epoch)
            await asyncio.sleep(3)
            if old not in groups.consumer_group().members:
                break
        assert set(groups.consumer_group().members) == {"new"}

    coordinate(scenario)


def test_member_has_its_whole_time_to_join_again_after_the_group_was_classic_in_between(coordinate):
    """It had to join again before the newcomer left, too, a minute before."""

    async def scenario(groups):
        groups.topics(t=2)
        (old,), generation = await stable_classic(groups, "old")
        await groups.enter("new", "t")
        assert await groups.heartbeat(old, generation) is ErrorCode.REBALANCE_IN_PROGRESS
        await groups.beat("new", -1)
        joined = await groups.join(old, protocols=offers("t"))
        everything = {old: encode_assignment({"t": frozenset({0, 1})}, 1)}
        await groups.sync(old, joined.generation_id, everything)
        for _ in range(19):
            await asyncio.sleep(3)
            assert await groups.heartbeat(old, joined.generation_id) is ErrorCode.NONE
        await groups.enter("next", "t")
        for _ in range(2):
            await asyncio.sleep(3)
            late = await groups.heartbeat(old, joined.generation_id)
            assert late is ErrorCode.REBALANCE_IN_PROGRESS

    coordinate(scenario)


def test_classic_member_that_falls_silent_is_out_after_its_own_session(coordinate):
    async def scenario(groups):
        groups.topics(t=2)
        (old,), _ = await stable_classic(groups, "old")
        await groups.enter("new", "t")
        await asyncio.sleep(11)
        assert set(groups.consumer_group().members) == {"new"}
        assert old not in groups.consumer_group().targets

    coordinate(scenario)


@pytest.mark.parametrize(("rebalance", "expected"), [(-1, 10_000), (45_000, 45_000)])
def test_without_a_rebalance_timeout_a_classic_member_has_its_sessions(coordinate, rebalance, expected):
    async def scenario(groups):
        groups.topics(t=2)
        await groups.enter("new", "t")
        joined = await groups.join(version=0, session=10_000, rebalance=rebalance, protocols=offers("t"))
        member = groups.consumer_group().members[joined.member_id]
        assert member.rebalance_timeout_ms == expected

    coordinate(scenario)


def test_empty_groups_change_their_kind_and_keep_their_offsets(coordinate, told):
    async def scenario(groups):
        groups.topics(t=1)
        await groups.commit({("t", 0): 5})
        await groups.enter("a", "t")
        assert groups.consumer_group().epoch == 1
        await groups.beat("a", -1)
        member, parked = await groups.new_member(protocols=offers("t"))
        assert (await parked).generation_id == 1
        assert isinstance(groups.coordinator.group("g"), ClassicGroup)
        assert groups.committed() == 5
        await groups.leave((member, None))
        assert (await groups.enter("a", "t")).member_epoch == 1
        again = await groups.restart()
        assert isinstance(again.coordinator.group("g"), ConsumerGroup)
        assert again.committed() == 5

    coordinate(scenario)


@pytest.mark.parametrize("instance", [None, "i"])
def test_former_classic_member_does_not_delete_the_empty_consumer_group(coordinate, instance):
    async def scenario(groups):
        groups.topics(t=1)
        await groups.enter("a", "t")
        await groups.beat("a", -1)
        before = groups.consumer_group()
        stale = groups.join("gone", instance=instance, protocols=offers("t"))
        assert await groups.error(stale) is ErrorCode.UNKNOWN_MEMBER_ID
        assert groups.consumer_group() == before
        assert (await groups.restart()).consumer_group().epoch == before.epoch

    coordinate(scenario)


def test_members_of_both_protocols_survive_a_restart(coordinate, told):
    async def scenario(groups):
        groups.topics(t=2)
        (old,), _ = await stable_classic(groups, "old")
        await groups.enter("new", "t")
        before = groups.consumer_group()
        again = await groups.restart()
        assert again.consumer_group().members == before.members
        joined = await again.join(old, protocols=offers("t", owned=(0,)))
        assert assigned(await again.sync(old, joined.generation_id)) == {"t": [0]}
        await again.beat("new", -1)
        last = await again.restart()
        assert isinstance(last.coordinator.group("g"), ClassicGroup)

    coordinate(scenario)


def test_leave_group_takes_out_members_of_either_protocol(coordinate):
    async def scenario(groups):
        groups.topics(t=2)
        (old,), _ = await stable_classic(groups, "old")
        await groups.enter("new", "t", instance_id="i")
        await groups.enter("last", "t")
        left = await groups.leave((old, None), ("", "i"), ("nobody", None), ("", "j"))
        assert [member.error_code for member in left.members] == [0, 0, 25, 25]
        assert set(groups.consumer_group().members) == {"last"}

    coordinate(scenario)


def test_protocol_that_classic_members_do_not_share_is_refused(coordinate):
    async def scenario(groups):
        groups.topics(t=2)
        await stable_classic(groups, "old")
        await groups.enter("new", "t")
        other = groups.join(protocols=offers("t", protocols=("sticky",)))
        assert await groups.error(other) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        garbage = groups.join(instance="i", protocols={"range": b"\x00"})
        assert await groups.error(garbage) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    coordinate(scenario)


def test_session_that_times_out_during_the_upgrade_does_not_bring_the_classic_group_back(coordinate):
    async def scenario(groups):
        groups.topics(t=2)
        await stable_classic(groups, "one", "two")
        await asyncio.sleep(9.5)
        groups.log.hold = True
        entering = groups.enter("new", "t")
        await asyncio.sleep(1)  # both sessions time out, behind the upgrade
        groups.log.hold = False
        while groups.log.held:
            groups.log.commit_next()
            await asyncio.sleep(0.01)
        epoch = (await entering).member_epoch
        for _ in range(30):
            await asyncio.sleep(3)
            epoch = (await groups.beat("new", epoch)).member_epoch
        assert set(groups.consumer_group().members) == {"new"}

    coordinate(scenario)
