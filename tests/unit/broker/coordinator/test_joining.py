"""The members that a group accepts, and the end of its join phase."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.text import BURST
from barnabas.broker.coordinator.groups.classic.members import MAX_METADATA


def test_dynamic_member_is_given_its_id_before_it_counts(coordinate):
    async def scenario(groups):
        first = await groups.join(client="app")
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert first.member_id.startswith("app-")
        second = await groups.join(first.member_id, client="app")
        assert (second.error_code, second.generation_id) == (0, 1)
        assert second.leader == second.member_id == first.member_id
        assert [m.member_id for m in second.members] == [first.member_id]
        assert (second.protocol_type, second.protocol_name) == ("consumer", "range")

    coordinate(scenario)


def test_below_version_4_a_member_counts_at_once(coordinate):
    async def scenario(groups):
        response = await groups.join(version=3)
        assert (response.error_code, response.generation_id) == (0, 1)

    coordinate(scenario)


def test_static_member_counts_at_once(coordinate):
    async def scenario(groups):
        response = await groups.join(instance="i1")
        assert response.error_code == 0
        assert response.member_id.startswith("i1-")
        assert response.members[0].group_instance_id == "i1"

    coordinate(scenario)


def test_member_id_given_out_but_never_used_is_forgotten(coordinate):
    async def scenario(groups):
        first = await groups.join()
        await asyncio.sleep(11)
        assert await groups.error(groups.join(first.member_id)) == ErrorCode.UNKNOWN_MEMBER_ID

    coordinate(scenario)


def test_member_of_another_life_is_unknown(coordinate):
    async def scenario(groups):
        assert await groups.error(groups.join("ghost")) == ErrorCode.UNKNOWN_MEMBER_ID
        assert [g.group_id for g in groups.coordinator.groups()] == []
        await groups.stable()
        assert await groups.error(groups.join("ghost")) == ErrorCode.UNKNOWN_MEMBER_ID

    coordinate(scenario)


def test_first_round_waits_for_as_long_as_members_keep_coming(coordinate):
    async def scenario(groups):
        loop = asyncio.get_running_loop()
        begin = loop.time()
        parked = []
        for _ in range(4):
            parked.append((await groups.new_member())[1])
            await asyncio.sleep(0.7)
        responses = [await join for join in parked]
        assert {r.generation_id for r in responses} == {1}
        assert len(responses[0].members) == 4
        assert 2.1 < loop.time() - begin <= 4

    coordinate(scenario)


def test_first_round_ends_at_the_rebalance_timeout_however_many_keep_coming(coordinate):
    async def scenario(groups):
        loop = asyncio.get_running_loop()
        first = (await groups.new_member(rebalance=3000))[1]
        while not first.done():
            await groups.new_member(rebalance=3000)
            await asyncio.sleep(0.3)
        assert loop.time() <= 3.3

    coordinate(scenario)


def test_without_initial_delay_a_lone_member_need_not_wait(coordinate):
    async def scenario(groups):
        _, join = await groups.new_member()
        await join
        assert asyncio.get_running_loop().time() == 0

    coordinate(scenario, group_initial_rebalance_delay_ms=0)


def test_round_waits_for_a_member_that_only_has_its_id_yet(coordinate):
    async def scenario(groups):
        (old, *_), generation = await groups.stable()
        given = await groups.join()
        other, other_join = await groups.new_member()
        again = groups.join(old)
        await asyncio.sleep(1)
        assert not again.done() and not other_join.done()
        last = groups.join(given.member_id)
        assert {(await j).generation_id for j in (again, other_join, last)} == {generation + 1}
        assert {m.member_id for m in (await again).members} == {old, other, given.member_id}

    coordinate(scenario)


def test_new_member_makes_the_others_join_again(coordinate):
    async def scenario(groups):
        ids, generation = await groups.stable(2)
        newcomer, join = await groups.new_member()
        assert groups.state() == "PreparingRebalance"
        assert await groups.heartbeat(ids[0], generation) == ErrorCode.REBALANCE_IN_PROGRESS
        rejoined = [groups.join(name) for name in ids]
        responses = [await task for task in (*rejoined, join)]
        assert {r.generation_id for r in responses} == {generation + 1}
        assert [len(r.members) for r in responses] == [3, 0, 0]
        assert {r.leader for r in responses} == {ids[0]}
        assert newcomer in {m.member_id for m in responses[0].members}

    coordinate(scenario)


def test_member_that_does_not_join_again_is_out_after_the_rebalance_timeout(coordinate):
    async def scenario(groups):
        (leader, follower), generation = await groups.stable(2, rebalance=20_000, session=30_000)
        _, join = await groups.new_member(rebalance=20_000, session=30_000)
        again = groups.join(follower, rebalance=20_000, session=30_000)
        await asyncio.sleep(19)
        assert not again.done()
        await asyncio.sleep(1.1)
        # The leader is the one who stayed away: another leads.
        assert (await again).leader == follower
        assert leader not in {m.member_id for m in (await again).members}
        assert (await join).generation_id == generation + 1

    coordinate(scenario)


def test_protocol_is_the_one_most_members_prefer_of_those_all_support(coordinate):
    async def scenario(groups):
        one = {"a": b"1", "b": b"1", "x": b"1"}
        two = {"b": b"2", "a": b"2"}
        joins = [(await groups.new_member(protocols=p))[1] for p in (one, two, two)]
        responses = [await join for join in joins]
        assert {r.protocol_name for r in responses} == {"b"}
        assert [m.metadata for m in responses[0].members] == [b"1", b"2", b"2"]

    coordinate(scenario)


def test_member_without_a_protocol_in_common_is_refused(coordinate):
    async def scenario(groups):
        await groups.stable(protocols={"a": b""})
        refusal = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert await groups.error(groups.join(protocols={"b": b""})) == refusal
        assert await groups.error(groups.join(protocols={"a": b""}, type="connect")) == refusal
        assert groups.state() == "Stable"

    coordinate(scenario)


def test_first_member_must_bring_a_protocol_and_its_type(coordinate):
    async def scenario(groups):
        refusal = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert await groups.error(groups.join(type="")) == refusal
        assert groups.coordinator.groups() == []

    coordinate(scenario)


def test_session_timeout_out_of_bounds_is_refused(coordinate):
    async def scenario(groups):
        for session in (5_999, 1_800_001):
            assert await groups.error(groups.join(session=session)) == ErrorCode.INVALID_SESSION_TIMEOUT

    coordinate(scenario)


def test_empty_group_id_is_refused(coordinate):
    async def scenario(groups):
        assert await groups.error(groups.join(group="")) == ErrorCode.INVALID_GROUP_ID
        assert await groups.error(groups.sync("m", 1, group="")) == ErrorCode.INVALID_GROUP_ID
        assert await groups.heartbeat("m", 1, group="") == ErrorCode.INVALID_GROUP_ID

    coordinate(scenario)


def test_full_group_refuses_the_next_member(coordinate):
    async def scenario(groups):
        await groups.stable(2)
        refused = await groups.join()
        assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        assert groups.state() == "Stable"

    coordinate(scenario, group_max_size=2)


def test_full_round_refuses_the_last_to_join(coordinate):
    async def scenario(groups):
        given = [(await groups.join()).member_id for _ in range(3)]
        joins = [groups.join(member_id) for member_id in given]
        assert await groups.error(joins[2]) == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert len((await joins[0]).members) == 2

    coordinate(scenario, group_max_size=2)


def test_lowered_limit_pushes_out_the_last_to_join_again(coordinate):
    async def scenario(groups):
        ids, _ = await groups.stable(3)
        groups.view.config = groups.config.replace(group_max_size=2)
        again = [groups.join(name) for name in ids]
        assert await groups.error(again[2]) == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert {m.member_id for m in (await again[0]).members} == set(ids[:2])

    coordinate(scenario)


def test_follower_with_unchanged_metadata_changes_nothing(coordinate):
    async def scenario(groups):
        (leader, follower), generation = await groups.stable(2)
        response = await groups.join(follower)
        assert (response.generation_id, response.leader, response.members) == (generation, leader, [])
        assert groups.state() == "Stable"

    coordinate(scenario)


def test_follower_with_changed_metadata_rebalances(coordinate):
    async def scenario(groups):
        (leader, follower), generation = await groups.stable(2)
        changed = groups.join(follower, protocols={"range": b"other"})
        assert groups.state() == "PreparingRebalance"
        again = await groups.join(leader)
        assert (await changed).generation_id == generation + 1
        assert [m.metadata for m in again.members][1] == b"other"

    coordinate(scenario)


def test_leader_that_joins_again_rebalances_even_unchanged(coordinate):
    async def scenario(groups):
        (leader, follower), generation = await groups.stable(2)
        again = groups.join(leader)
        assert groups.state() == "PreparingRebalance"
        await groups.join(follower)
        assert (await again).generation_id == generation + 1

    coordinate(scenario)


def test_lost_join_answer_is_given_again(coordinate):
    async def scenario(groups):
        (leader, follower), _ = await groups.stable(2)
        again = [groups.join(leader), groups.join(follower)]
        first = [await task for task in again]
        repeated = [await groups.join(leader), await groups.join(follower)]
        assert [(r.generation_id, len(r.members)) for r in repeated] == [
            (r.generation_id, len(r.members)) for r in first
        ]
        assert groups.state() == "CompletingRebalance"

    coordinate(scenario)


def test_parked_join_survives_a_disconnect(coordinate):
    async def scenario(groups):
        member_id, lost = await groups.new_member()
        lost.cancel()
        again = groups.join(member_id)
        response = await again
        assert (response.error_code, response.generation_id) == (0, 1)
        assert [m.member_id for m in response.members] == [member_id]

    coordinate(scenario)


def test_second_join_of_a_waiting_member_releases_the_first(coordinate):
    async def scenario(groups):
        member_id, first = await groups.new_member()
        second = groups.join(member_id)
        assert await groups.error(first) == ErrorCode.REBALANCE_IN_PROGRESS
        assert (await second).error_code == 0

    coordinate(scenario)


def test_new_member_that_waits_too_long_for_its_round_is_out(coordinate):
    async def scenario(groups):
        await groups.stable(1, rebalance=3_600_000, session=1_800_000)
        _, join = await groups.new_member(rebalance=3_600_000)
        await asyncio.sleep(299)
        assert not join.done()
        assert await groups.error(join) == ErrorCode.UNKNOWN_MEMBER_ID
        assert asyncio.get_running_loop().time() < 302

    coordinate(scenario)


def test_group_that_is_too_large_when_it_is_loaded_joins_again(coordinate):
    async def scenario(groups):
        ids, generation = await groups.stable(3)
        groups.view.config = groups.config.replace(group_max_size=2)
        restarted = await groups.restart()
        assert restarted.state() == "PreparingRebalance"
        again = [restarted.join(name) for name in ids]
        assert await restarted.error(again[2]) == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert (await again[0]).generation_id == generation + 1

    coordinate(scenario)


def test_many_joins_write_few_lines_of_log(coordinate, caplog, monkeypatch):
    """A client can name any number of groups, so the log lines of all groups together are limited."""
    caplog.set_level("INFO")
    monkeypatch.setattr("barnabas.base.text.PER_SECOND", 0)  # however long this takes

    async def scenario(groups):
        for number in range(2000):
            await groups.join(group=f"group {number} {'g' * 200}", client="c" * 200, version=3)

    coordinate(scenario)
    lines = [
        record for record in caplog.records if record.name.startswith("barnabas.broker.coordinator.groups")
    ]
    kinds = {record.msg.partition(" (")[0] for record in lines}
    assert len(kinds) < 8
    assert 2 * BURST < len(lines) <= len(kinds) * (BURST + 1)


#: more bytes than a string of a record has
TOO_LONG = "ü" * 2**14


def test_group_id_that_no_record_can_store_is_invalid(coordinate):
    async def scenario(groups):
        assert await groups.error(groups.join(group=TOO_LONG)) == ErrorCode.INVALID_GROUP_ID
        assert await groups.commit({("t", 0): 1}, group=TOO_LONG) == ErrorCode.INVALID_GROUP_ID
        entered = groups.enter("m", "t")
        assert await groups.error(entered) == 0
        refused = groups.beat(
            "m", 0, {}, group=TOO_LONG, rebalance_timeout_ms=1, subscribed_topic_names=["t"]
        )
        assert await groups.error(refused) == ErrorCode.INVALID_GROUP_ID
        assert [group.group_id for group in groups.coordinator.groups()] == ["g"]
        assert await groups.commit({("t", 0): 1}, group=TOO_LONG[1:]) == 0

    coordinate(scenario)


@pytest.mark.parametrize(
    "member",
    [{"instance": TOO_LONG}, {"client": TOO_LONG}, {"type": TOO_LONG}, {"protocols": {TOO_LONG: b""}}],
    ids=["instance id", "client id", "protocol type", "protocol"],
)
def test_member_that_no_record_can_store_is_refused(coordinate, member):
    async def scenario(groups):
        assert await groups.error(groups.join(**member)) == ErrorCode.INVALID_REQUEST
        assert groups.coordinator.groups() == []

    coordinate(scenario)


def test_subscription_that_the_log_would_refuse_is_not_held(coordinate):
    async def scenario(groups):
        ids, generation = await groups.stable()
        large = {"range": bytes(groups.log.max_bytes(0) + 1)}
        assert await groups.error(groups.join(version=3, protocols=large)) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert await groups.error(groups.join(ids[0], protocols=large)) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert await groups.heartbeat(ids[0], generation) == 0

    coordinate(scenario)


def test_members_of_all_groups_hold_so_many_bytes_and_no_more(coordinate):
    async def scenario(groups):
        large = {"range": bytes(1 << 19)}
        joining = []
        while True:
            joining.append(groups.join(group=f"g{len(joining)}", version=3, protocols=large, session=6_000))
            await asyncio.sleep(0)
            if joining[-1].done():
                break
        assert len(joining) == MAX_METADATA // (len("range") + (1 << 19)) + 1
        assert await groups.error(joining[-1]) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert [g.group_id for g in groups.coordinator.groups()] == [f"g{n}" for n in range(len(joining) - 1)]
        # Groups whose members have gone hold nothing.
        await asyncio.gather(*joining[:-1])
        await asyncio.sleep(60)
        assert await groups.error(groups.join(group="again", version=3, protocols=large)) == 0
        # Neither do groups of a partition that another broker coordinates.
        held = groups.coordinator.metadata
        assert held.bytes > 0
        groups.coordinator.resign_all()
        assert held.bytes == 0

    coordinate(scenario)


def test_join_while_the_log_is_offline_gets_an_error_that_clients_retry(coordinate):
    async def scenario(groups):
        def max_bytes(partition):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

        groups.log.max_bytes = max_bytes
        assert await groups.error(groups.join(version=3)) == ErrorCode.NOT_COORDINATOR

    coordinate(scenario)
