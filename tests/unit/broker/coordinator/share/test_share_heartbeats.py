"""ShareGroupHeartbeat (KIP-932) in virtual time: epochs, assignments, fencing, timeouts."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.coordinator import ShareGroupState

FENCED, UNKNOWN = ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID
NOT_FOUND, INVALID = ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_REQUEST


async def settle():
    """Let initializations end."""
    await asyncio.sleep(0.05)


async def join(groups, member, *topics, **more):
    """Join, wait until the partitions are initialized, and send another heartbeat."""
    joined = await groups.share_beat(member, 0, *topics, **more)
    await settle()
    return await groups.share_beat(member, joined.member_epoch, *topics, **more)


def test_member_alone_gets_everything_once_it_is_initialized(coordinate, told):
    async def scenario(groups):
        groups.topics(t=3)
        joined = await groups.share_beat("a", 0, "t")
        assert (joined.member_id, joined.member_epoch, told(joined)) == ("a", 1, {})
        assert joined.heartbeat_interval_ms == 500  # it has nothing to do yet
        await settle()
        stays = await groups.share_beat("a", 1)
        assert (stays.member_epoch, told(stays)) == (2, {"t": [0, 1, 2]})
        assert stays.heartbeat_interval_ms == 5000
        assert told(await groups.share_beat("a", 2)) is None
        assert groups.share_group().state is ShareGroupState.STABLE

    coordinate(scenario)


def test_members_share_partitions_without_waiting_for_each_other(coordinate, told):
    async def scenario(groups):
        groups.topics(t=2)
        first = await join(groups, "a", "t")
        assert told(first) == {"t": [0, 1]}
        newcomer = await groups.share_beat("b", 0, "t")
        (owned,) = told(newcomer).values()
        assert len(owned) == 1
        after = await groups.share_beat("a", first.member_epoch)
        assert after.member_epoch == newcomer.member_epoch
        (left,) = told(after).values()
        assert sorted(owned + left) == [0, 1]
        third = await groups.share_beat("c", 0, "t")
        assert len(told(third)["t"]) in (1, 2)

    coordinate(scenario)


def test_member_that_leaves_is_replaced_by_the_others(coordinate, told):
    async def scenario(groups):
        groups.topics(t=2)
        await join(groups, "a", "t")
        other = await join(groups, "b", "t")
        left = await groups.share_beat("a", -1)
        assert (left.member_id, left.member_epoch) == ("a", -1)
        assert told(await groups.share_beat("b", other.member_epoch)) == {"t": [0, 1]}
        assert await groups.error(groups.share_beat("a", -1)) == UNKNOWN
        await groups.share_beat("b", -1)
        assert groups.share_group().state is ShareGroupState.EMPTY
        assert groups.share_group().members == groups.share_group().targets == {}

    coordinate(scenario)


def test_members_that_join_and_new_partitions_count_as_rebalances_but_departures_do_not(coordinate):
    async def scenario(groups):
        groups.topics(t=2)
        await join(groups, "a", "t")
        rebalances = groups.coordinator.share_rebalances
        assert rebalances.count == 2  # the new member, and its partitions once they are initialized
        await join(groups, "b", "t")
        assert rebalances.count == 3
        await groups.share_beat("b", -1)
        assert rebalances.count == 3
        assert rebalances.rate > 0

    coordinate(scenario)


def test_silent_member_is_out_after_its_session(coordinate):
    async def scenario(groups):
        groups.topics(t=1)
        joined = await join(groups, "a", "t")
        await asyncio.sleep(44)
        await groups.share_beat("a", joined.member_epoch)
        await asyncio.sleep(44)
        assert "a" in groups.share_group().members
        await asyncio.sleep(2)
        assert groups.share_group().members == {}
        assert await groups.error(groups.share_beat("a", joined.member_epoch)) == UNKNOWN

    coordinate(scenario)


def test_the_removal_of_a_silent_member_is_tried_again_until_it_is_stored(coordinate):
    async def scenario(groups):
        groups.topics(t=1)
        await join(groups, "a", "t")
        groups.log.failure = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        await asyncio.sleep(60)
        assert "a" in groups.share_group().members
        groups.log.failure = None
        await asyncio.sleep(10)
        assert groups.share_group().members == {}

    coordinate(scenario)


def test_the_timeouts_of_a_group_override_the_brokers(coordinate):
    async def scenario(groups):
        groups.topics(t=1)
        groups.view.image = groups.image._replace(
            group_configs={"g": {"share.session.timeout.ms": "50000", "share.heartbeat.interval.ms": "7000"}}
        )
        joined = await join(groups, "a", "t")
        assert joined.heartbeat_interval_ms == 7000
        await asyncio.sleep(48)
        assert "a" in groups.share_group().members
        await asyncio.sleep(3)
        assert groups.share_group().members == {}

    coordinate(scenario)


def test_sessions_go_on_after_a_restart(coordinate):
    async def scenario(groups):
        groups.topics(t=1)
        await join(groups, "a", "t")
        await asyncio.sleep(30)
        again = await groups.restart()
        await asyncio.sleep(44)
        assert "a" in again.share_group().members
        await asyncio.sleep(2)
        assert again.share_group().members == {}
        await again.coordinator.stop()

    coordinate(scenario)


def test_an_epoch_that_the_member_does_not_have_is_fenced(coordinate):
    async def scenario(groups):
        groups.topics(t=1)
        joined = await groups.share_beat("a", 0, "t")
        await settle()
        now = await groups.share_beat("a", joined.member_epoch)
        assert now.member_epoch == 2
        lost = await groups.share_beat("a", 1)  # the answer with epoch 2 was lost
        assert lost.member_epoch == 2
        assert await groups.error(groups.share_beat("a", 3)) == FENCED
        await groups.share_beat("b", 0, "t")
        assert (await groups.share_beat("a", 2)).member_epoch == 3
        assert await groups.error(groups.share_beat("a", 1)) == FENCED
        again = await groups.share_beat("a", 0, "t")
        assert again.member_epoch == 3

    coordinate(scenario)


def test_another_subscription_takes_partitions_away_and_adds_others(coordinate, told):
    async def scenario(groups):
        groups.topics(t=1, u=2)
        joined = await join(groups, "a", "t")
        changed = await groups.share_beat("a", joined.member_epoch, "u")
        assert told(changed) == {}
        await settle()
        assert told(await groups.share_beat("a", changed.member_epoch)) == {"u": [0, 1]}
        back = await groups.share_beat("a", groups.share_group().epoch, "t", "u")
        assert told(back) == {"t": [0], "u": [0, 1]}  # the states were there already

    coordinate(scenario)


def test_new_topics_and_partitions_are_assigned_when_they_are_initialized(coordinate, told):
    async def scenario(groups):
        joined = await join(groups, "a", "t")
        assert told(joined) == {}
        groups.topics(t=1)
        seen = await groups.share_beat("a", joined.member_epoch)
        assert told(seen) is None
        await settle()
        grown = await groups.share_beat("a", seen.member_epoch)
        assert told(grown) == {"t": [0]}
        groups.topics(t=3)
        seen = await groups.share_beat("a", grown.member_epoch)
        await settle()
        assert told(await groups.share_beat("a", seen.member_epoch)) == {"t": [0, 1, 2]}

    coordinate(scenario)


def test_a_group_takes_so_many_members(coordinate):
    async def scenario(groups):
        groups.topics(t=1)
        await groups.share_beat("a", 0, "t")
        await groups.share_beat("b", 0, "t")
        full = ErrorCode.GROUP_MAX_SIZE_REACHED
        assert await groups.error(groups.share_beat("c", 0, "t")) == full
        assert await groups.error(groups.share_beat("b", 0, "t")) == ErrorCode.NONE

    coordinate(scenario, group_share_max_size=2)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"member": ""}, INVALID),
        ({"member": "a" * 40_000}, INVALID),
        ({"group": ""}, INVALID),
        ({"group": "g" * 40_000}, ErrorCode.INVALID_GROUP_ID),
        ({"rack_id": ""}, INVALID),
        ({"epoch": -2}, INVALID),
        ({"topics": ()}, INVALID),
        ({"epoch": 1}, NOT_FOUND),
        ({"epoch": -1}, NOT_FOUND),
    ],
)
def test_requests_that_no_member_may_send(coordinate, fields, code):
    async def scenario(groups):
        fields_ = {"member": "a", "epoch": 0, "topics": ("t",), **fields}
        member, epoch, topics = (fields_.pop(name) for name in ("member", "epoch", "topics"))
        assert await groups.error(groups.share_beat(member, epoch, *topics, **fields_)) == code
        assert groups.coordinator.groups() == []

    coordinate(scenario)


def test_groups_keep_their_type(coordinate):
    async def scenario(groups):
        groups.topics(t=1)
        joined = await join(groups, "a", "t")
        assert await groups.error(groups.enter("b", "t")) == NOT_FOUND
        assert await groups.error(groups.join()) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert await groups.heartbeat("a", joined.member_epoch) == UNKNOWN
        assert await groups.error(groups.sync("a", joined.member_epoch)) == UNKNOWN
        assert await groups.commit({("t", 0): 5}) == NOT_FOUND
        assert await groups.delete_offsets(("t", 0)) == NOT_FOUND
        await groups.enter("c", "t", group="h")
        assert await groups.error(groups.share_beat("d", 0, "t", group="h")) == NOT_FOUND
        await groups.new_member(group="i")
        assert await groups.error(groups.share_beat("d", 0, "t", group="i")) == NOT_FOUND

    coordinate(scenario)


def test_a_failed_append_changes_nothing(coordinate, told):
    async def scenario(groups):
        groups.topics(t=1)
        groups.log.failure = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        assert await groups.error(groups.share_beat("a", 0, "t")) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert groups.coordinator.groups() == []
        groups.log.failure = None
        assert told(await join(groups, "a", "t")) == {"t": [0]}

    coordinate(scenario)


def test_a_share_group_stays_until_it_is_deleted(coordinate):
    async def scenario(groups):
        groups.topics(t=1)
        await join(groups, "a", "t")
        assert await groups.delete() == ErrorCode.NON_EMPTY_GROUP
        await groups.share_beat("a", -1)
        await groups.coordinator.expire()
        assert groups.share_group().is_empty
        assert await groups.delete() == ErrorCode.NONE
        assert groups.coordinator.groups() == []
        assert groups.persister.states == {}
        again = await groups.restart()
        assert again.coordinator.groups() == []
        await again.coordinator.stop()

    coordinate(scenario)


def test_a_large_group_gets_its_target_a_moment_later(coordinate, told):
    async def scenario(groups):
        groups.topics(t=600)
        joined = await groups.share_beat("a", 0, "t")
        await asyncio.sleep(5)
        stays = await groups.share_beat("a", joined.member_epoch)
        assert told(stays) == {"t": list(range(600))}
        other = await groups.share_beat("b", 0, "t")
        assert other.member_epoch < groups.share_group().epoch
        await asyncio.sleep(1)
        assert len(told(await groups.share_beat("b", other.member_epoch))["t"]) == 300

    coordinate(scenario)
