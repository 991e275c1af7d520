"""Commits, reads, deletions and expiry of offsets."""

from __future__ import annotations

import asyncio
import struct

from tests.unit.broker.coordinator.conftest import subscription, topic_id

from barnabas.base.errors import ErrorCode, KafkaError

DAY = 86_400


def test_member_commits_in_its_generation(coordinate):
    async def scenario(groups):
        (member,), generation = await groups.stable()
        assert await groups.commit({("t", 0): 5, ("u", 3): 7}, member, generation) == ErrorCode.NONE
        assert (groups.committed("t"), groups.committed("u", 3), groups.committed("t", 1)) == (5, 7, None)
        assert await groups.commit({("t", 0): 9}, member, generation - 1) == ErrorCode.ILLEGAL_GENERATION
        assert await groups.commit({("t", 0): 9}, "ghost", generation) == ErrorCode.UNKNOWN_MEMBER_ID
        assert groups.committed("t") == 5

    coordinate(scenario)


def test_consumer_that_assigns_by_itself_commits_to_a_group_of_its_own(coordinate):
    async def scenario(groups):
        assert await groups.commit({("t", 0): 5}) == ErrorCode.NONE
        group = groups.coordinator.group("g")
        assert (group.state.value, group.protocol_type, groups.committed()) == ("Empty", None, 5)
        # A named member without a generation is no different.
        assert await groups.commit({("t", 0): 6}, "someone", -1) == ErrorCode.NONE

    coordinate(scenario)


def test_commit_from_outside_is_refused_while_members_are_at_work(coordinate):
    async def scenario(groups):
        (member,), _ = await groups.stable()
        assert await groups.commit({("t", 0): 5}) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await groups.commit({("t", 0): 5}, member, -1) == ErrorCode.ILLEGAL_GENERATION
        await groups.leave((member, None))
        assert await groups.commit({("t", 0): 5}) == ErrorCode.NONE

    coordinate(scenario)


def test_commit_to_a_group_that_is_not_there_says_so_by_version(coordinate):
    async def scenario(groups):
        assert await groups.commit({("t", 0): 5}, "m", 3, version=9) == ErrorCode.GROUP_ID_NOT_FOUND
        assert await groups.commit({("t", 0): 5}, "m", 3, version=8) == ErrorCode.ILLEGAL_GENERATION

    coordinate(scenario)


def test_commit_before_the_assignment_is_told_to_join_again(coordinate):
    async def scenario(groups):
        member, join = await groups.new_member()
        generation = (await join).generation_id
        assert await groups.commit({("t", 0): 5}, member, generation) == ErrorCode.REBALANCE_IN_PROGRESS

    coordinate(scenario)


def test_commit_while_others_join_is_kept(coordinate):
    # So that a cooperative consumer, or one about to join again, can commit what it has done.
    async def scenario(groups):
        (member,), generation = await groups.stable()
        groups.join(version=3)
        assert groups.state() == "PreparingRebalance"
        assert await groups.commit({("t", 0): 5}, member, generation) == ErrorCode.NONE

    coordinate(scenario)


def test_metadata_and_leader_epoch_come_back(coordinate):
    async def scenario(groups):
        await groups.commit({("t", 0): 5}, metadata="bookmark")
        restarted = await groups.restart()
        (committed,) = restarted.coordinator.offsets("g").of_group("g")["t"].values()
        assert committed.metadata == "bookmark"

    coordinate(scenario)


def test_metadata_longer_than_allowed_is_refused_alone(coordinate):
    async def scenario(groups):
        assert await groups.commit({("t", 0): 5}, metadata="x" * 4096) == ErrorCode.NONE
        too_long = await groups.commit({("t", 0): 6}, metadata="x" * 4097)
        assert too_long == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert groups.committed() == 5

    coordinate(scenario)


def test_commit_counts_only_when_it_is_stored(coordinate):
    async def scenario(groups):
        groups.log.hold = True
        commit = asyncio.ensure_future(groups.commit({("t", 0): 5}))
        await asyncio.sleep(1)
        assert groups.committed() is None
        groups.log.commit_next()
        assert (await commit, groups.committed()) == (ErrorCode.NONE, 5)

    coordinate(scenario)


def test_commit_that_is_not_stored_in_time_is_refused_and_may_still_come(coordinate):
    async def scenario(groups):
        groups.log.hold = True
        begin = asyncio.get_running_loop().time()
        assert await groups.commit({("t", 0): 5}) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert asyncio.get_running_loop().time() - begin == 5
        groups.log.commit_next()
        await asyncio.sleep(0.1)
        assert groups.committed() == 5

    coordinate(scenario)


def test_append_errors_become_the_coordinators(coordinate):
    async def scenario(groups):
        for raised, told in {
            ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
            ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
            ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
        }.items():
            groups.log.failure = KafkaError(raised)
            assert await groups.commit({("t", 0): 5}) == told
            assert groups.committed() is None

    coordinate(scenario)


def test_offsets_and_members_survive_a_restart_of_the_broker(coordinate):
    async def scenario(groups):
        ids, generation = await groups.stable(2)
        for number in range(100):
            await groups.commit({("t", 0): number, ("t", 1): 2 * number}, ids[0], generation)
        restarted = await groups.restart()
        assert (restarted.committed(), restarted.committed(partition=1)) == (99, 198)
        assert restarted.state() == "Stable"
        for member in ids:
            assert await restarted.heartbeat(member, generation) == ErrorCode.NONE
        kept = await restarted.sync(ids[1], generation)
        assert kept.assignment == f"assignment of {ids[1]}".encode()
        # A member that did not come back with the broker is out after its session.
        await asyncio.sleep(10.1)
        assert restarted.state() == "Empty"

    coordinate(scenario)


def test_loading_coordinator_says_so_and_answers_when_loaded(coordinate):
    async def scenario(groups):
        await groups.commit({("t", 0): 5})
        await groups.coordinator.stop()
        again = type(groups)(groups.log)
        assert await again.commit({("t", 0): 6}) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await again.loaded()
        assert again.committed() == 5

    coordinate(scenario)


def test_deleted_group_takes_its_offsets_along(coordinate):
    async def scenario(groups):
        (member,), generation = await groups.stable()
        await groups.commit({("t", 0): 5}, member, generation)
        assert await groups.delete() == ErrorCode.NON_EMPTY_GROUP
        await groups.leave((member, None))
        assert await groups.delete() == ErrorCode.NONE
        assert await groups.delete() == ErrorCode.GROUP_ID_NOT_FOUND
        assert groups.committed() is None
        restarted = await groups.restart()
        assert (restarted.coordinator.groups(), restarted.committed()) == ([], None)

    coordinate(scenario)


def test_offsets_of_subscribed_topics_cannot_be_deleted(coordinate):
    async def scenario(groups):
        (member,), generation = await groups.stable()  # subscribes to t
        await groups.commit({("t", 0): 5, ("u", 0): 6}, member, generation)
        outcome = await groups.delete_offsets(("t", 0), ("u", 0), ("u", 1))
        assert outcome == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE, ErrorCode.NONE]
        assert (groups.committed("t"), groups.committed("u")) == (5, None)

    coordinate(scenario)


def test_changed_subscription_counts_when_the_next_generation_begins(coordinate):
    async def scenario(groups):
        (leader, follower), _ = await groups.stable(2)  # they subscribe to t
        one = [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
        changed = groups.join(follower, protocols={"range": subscription("u")})
        assert await groups.delete_offsets(("t", 0), ("u", 0)) == one, "the leader has not joined again"
        groups.join(leader, protocols={"range": subscription("u")})
        await changed
        assert await groups.delete_offsets(("t", 0), ("u", 0)) == one[::-1]

    coordinate(scenario)


def test_no_offset_can_be_deleted_when_subscriptions_cannot_be_read(coordinate):
    async def scenario(groups):
        (member,), generation = await groups.stable(protocols={"range": b"\x00"})
        await groups.commit({("t", 0): 5}, member, generation)
        assert await groups.delete_offsets(("t", 0)) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]

    coordinate(scenario)


def test_offsets_of_other_kinds_of_groups_cannot_be_deleted_while_they_have_members(coordinate):
    async def scenario(groups):
        await groups.stable(type="connect", protocols={"x": b""})
        assert await groups.delete_offsets(("t", 0)) == ErrorCode.NON_EMPTY_GROUP
        assert await groups.delete_offsets(("t", 0), group="none") == ErrorCode.GROUP_ID_NOT_FOUND

    coordinate(scenario)


def test_offsets_stay_while_the_group_is_in_use_and_expire_after(coordinate):
    async def scenario(groups):
        (member,), generation = await groups.stable(session=1_800_000)
        await groups.commit({("t", 0): 5}, member, generation)
        for _ in range(10 * 24 * 2):
            await asyncio.sleep(1800 - 1)
            assert await groups.heartbeat(member, generation) == ErrorCode.NONE
        await groups.coordinator.expire()
        assert groups.committed() == 5
        await groups.leave((member, None))
        await asyncio.sleep(6.9 * DAY)
        await groups.coordinator.expire()
        assert groups.committed() == 5
        await asyncio.sleep(0.2 * DAY)
        await groups.coordinator.expire()
        assert groups.committed() is None
        assert groups.coordinator.groups() == []

    coordinate(scenario)


def test_offsets_of_a_topic_no_longer_subscribed_expire_while_the_group_lives(coordinate):
    async def scenario(groups):
        (member,), generation = await groups.stable(session=1_800_000)  # subscribes to t
        await groups.commit({("t", 0): 5, ("old", 0): 6}, member, generation)
        for _ in range(8 * 24 * 2):
            await asyncio.sleep(1800 - 1)
            await groups.heartbeat(member, generation)
        await groups.coordinator.expire()
        assert (groups.committed("t"), groups.committed("old")) == (5, None)

    coordinate(scenario)


def test_offsets_of_a_consumer_that_assigns_by_itself_expire_by_commit(coordinate):
    async def scenario(groups):
        await groups.commit({("t", 0): 5})
        await asyncio.sleep(6 * DAY)
        await groups.commit({("t", 1): 6})
        await asyncio.sleep(1.1 * DAY)
        await groups.coordinator.expire()
        assert (groups.committed(partition=0), groups.committed(partition=1)) == (None, 6)
        await asyncio.sleep(6 * DAY)
        await groups.coordinator.expire()
        assert groups.coordinator.groups() == []

    coordinate(scenario)


def test_retention_a_client_chose_itself_holds(coordinate):
    async def scenario(groups):
        await groups.commit({("t", 0): 5}, retention_ms=60_000, version=4)
        restarted = await groups.restart()
        await asyncio.sleep(59)
        await restarted.coordinator.expire()
        assert restarted.committed() == 5
        await asyncio.sleep(2)
        await restarted.coordinator.expire()
        assert restarted.committed() is None

    coordinate(scenario)


def test_housekeeping_comes_by_itself(coordinate):
    async def scenario(groups):
        groups.coordinator.start()
        await groups.commit({("t", 0): 5}, retention_ms=1000, version=4)
        await asyncio.sleep(599)
        assert groups.committed() == 5
        await asyncio.sleep(2)
        assert groups.committed() is None

    coordinate(scenario)


def test_offsets_of_deleted_topics_are_forgotten_for_good(coordinate):
    async def scenario(groups):
        await groups.commit({("t", 0): 5, ("u", 0): 6})
        groups.coordinator.forget_topics({"t"})
        assert (groups.committed("t"), groups.committed("u")) == (None, 6)
        restarted = await groups.restart()
        assert (restarted.committed("t"), restarted.committed("u")) == (None, 6)

    coordinate(scenario)


def test_offsets_of_a_deleted_topic_are_forgotten_in_several_turns_of_the_event_loop(coordinate):
    async def scenario(groups):
        names = [f"g{number}" for number in range(250)]
        for name in names:
            await groups.commit({("t", 0): 5}, group=name)
        groups.coordinator.forget_topics({"t"})
        left = []
        for _ in range(4):
            left.append(sum(groups.committed("t", group=name) is not None for name in names))
            await asyncio.sleep(0)
        assert left == [150, 50, 0, 0]

    coordinate(scenario)


def test_offsets_of_a_topic_deleted_before_they_were_loaded_are_forgotten(
    coordinate,
):
    async def scenario(groups):
        await groups.commit({("t", 0): 5, ("t", 1): 6}, topic_id=b"deleted topic...")
        await groups.commit({("u", 0): 7}, topic_id=topic_id("u"))
        groups.view.image = groups.image._replace(deleted_topics={b"deleted topic...": frozenset()})
        again = await groups.restart()
        await asyncio.sleep(0)
        assert [again.committed("t", number) for number in range(2)] == [None, None]
        assert again.committed("u") == 7

    coordinate(scenario)


def test_an_offset_of_a_topic_that_was_made_again_is_not_forgotten_with_the_deleted_one(coordinate):
    async def scenario(groups):
        names = [f"g{number}" for number in range(150)]
        for name in names:
            await groups.commit({("t", 0): 5, ("t", 1): 5}, group=name, topic_id=b"deleted topic...")
        groups.topics(t=2)
        groups.coordinator.forget_topics({"t"})
        await groups.commit({("t", 0): 7}, group=names[-1], topic_id=topic_id("t"))
        await asyncio.sleep(0)
        assert {groups.committed("t", 0, name) for name in names[:-1]} == {None}
        assert [groups.committed("t", number, names[-1]) for number in range(2)] == [7, None]

    coordinate(scenario)


def test_topics_of_a_subscription_of_any_version_are_read():
    from barnabas.broker.coordinator.groups.subscription import subscribed_topics

    body = struct.pack(">i", 2) + struct.pack(">h", 1) + b"a" + struct.pack(">h", 2) + "ü".encode()
    for version in range(5):
        assert subscribed_topics(struct.pack(">h", version) + body + b"whatever follows") == {"a", "ü"}
