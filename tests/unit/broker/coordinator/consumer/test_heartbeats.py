"""ConsumerGroupHeartbeat (KIP-848) in virtual time: epochs, assignments, fencing, timeouts."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.coordinator import ConsumerGroupState
from barnabas.broker.coordinator.groups.consumer import regex_subscriptions


def test_member_alone_gets_everything_at_once(coordinate, told):
    async def scenario(groups):
        groups.topics(t=3)
        joined = await groups.enter("a", "t")
        assert (joined.member_epoch, told(joined)) == (1, {"t": [0, 1, 2]})
        assert joined.heartbeat_interval_ms == 5000
        stays = await groups.beat("a", 1, {"t": [0, 1, 2]})
        assert (stays.member_epoch, told(stays)) == (1, None)
        assert groups.consumer_group().state is ConsumerGroupState.STABLE

    coordinate(scenario)


def test_partition_moves_only_once_its_owner_has_given_it_up(coordinate, told):
    async def scenario(groups):
        groups.topics(t=2)
        await groups.enter("a", "t")
        newcomer = await groups.enter("b", "t")
        assert (newcomer.member_epoch, told(newcomer)) == (2, {})
        asked = await groups.beat("a", 1)
        assert (asked.member_epoch, told(asked)) == (1, {"t": [0]})
        assert told(await groups.beat("b", 2)) is None
        still = await groups.beat("a", 1, {"t": [0, 1]})
        assert (still.member_epoch, told(still)) == (1, None)
        assert groups.consumer_group().state is ConsumerGroupState.RECONCILING
        gave = await groups.beat("a", 1, {"t": [0]})
        assert gave.member_epoch == 2
        assert told(await groups.beat("b", 2)) == {"t": [1]}
        assert groups.consumer_group().state is ConsumerGroupState.STABLE

    coordinate(scenario)


def test_member_that_leaves_makes_room(coordinate, told):
    async def scenario(groups):
        groups.topics(t=2)
        await groups.enter("a", "t")
        await groups.enter("b", "t")
        await groups.beat("a", 1, {"t": [0]})
        left = await groups.beat("b", -1)
        assert left.member_epoch == -1
        assert groups.consumer_group().state is ConsumerGroupState.ASSIGNING
        assert told(await groups.beat("a", 2, {"t": [0]})) == {"t": [0, 1]}

    coordinate(scenario)


def test_silent_member_is_out_after_its_session(coordinate, told):
    async def scenario(groups):
        groups.topics(t=2)
        await groups.enter("a", "t")
        await groups.enter("b", "t")
        for _ in range(9):
            await asyncio.sleep(5)
            epoch = groups.consumer_group().members["a"].epoch
            await groups.beat("a", epoch, {"t": [0]})
        assert set(groups.consumer_group().members) == {"a"}
        assert await groups.error(groups.beat("b", 2)) is ErrorCode.UNKNOWN_MEMBER_ID

    coordinate(scenario)


def test_member_that_does_not_give_up_partitions_is_out_after_its_rebalance_timeout(coordinate):
    async def scenario(groups):
        groups.topics(t=2)
        await groups.enter("a", "t", rebalance_timeout_ms=12_000)
        await groups.enter("b", "t")
        for second in range(0, 15, 3):
            assert ("a" in groups.consumer_group().members) == (second < 12)
            if second < 12:
                await groups.beat("a", 1, {"t": [0, 1]})
            await groups.beat("b", 2)
            await asyncio.sleep(3)
        assert await groups.error(groups.beat("a", 1, {"t": [0, 1]})) is ErrorCode.UNKNOWN_MEMBER_ID

    coordinate(scenario)


def test_member_that_gives_up_in_time_stays(coordinate):
    async def scenario(groups):
        groups.topics(t=2)
        await groups.enter("a", "t", rebalance_timeout_ms=12_000)
        await groups.enter("b", "t")
        await groups.beat("a", 1, {"t": [0, 1]})
        await asyncio.sleep(10)
        await groups.beat("a", 1, {"t": [0]})
        await asyncio.sleep(10)
        assert set(groups.consumer_group().members) == {"a", "b"}

    coordinate(scenario)


def test_epochs_of_the_past_and_future_are_fenced_but_a_lost_answer_is_forgiven(coordinate, told):
    async def scenario(groups):
        groups.topics(t=2)
        await groups.enter("a", "t")
        await groups.enter("b", "t")
        await groups.beat("a", 1, {"t": [0]})  # and the answer, epoch 2, gets lost
        again = await groups.beat("a", 1, {"t": [0]})
        assert again.member_epoch == 2
        for epoch, owned in ((1, {"t": [0, 1]}), (1, None), (3, {"t": [0]})):
            fenced = await groups.error(groups.beat("a", epoch, owned))
            assert fenced is ErrorCode.FENCED_MEMBER_EPOCH
        rejoined = await groups.enter("a", "t")
        assert (rejoined.member_epoch, told(rejoined)) == (2, {"t": [0]})

    coordinate(scenario)


def test_topic_that_grows_comes_or_goes_gives_a_new_target(coordinate, told):
    async def scenario(groups):
        groups.topics(t=1)
        await groups.enter("a", "t", "u")
        groups.topics(t=2)
        assert told(await groups.beat("a", 1)) == {"t": [0, 1]}
        groups.topics(t=2, u=1, v=1)
        assert told(await groups.beat("a", 2)) == {"t": [0, 1], "u": [0]}
        groups.topics(t=2, u=1, v=2)
        assert (await groups.beat("a", 3)).member_epoch == 3
        groups.topics(u=1)
        asked = await groups.beat("a", 3)
        assert told(asked) == {"u": [0]}
        assert (await groups.beat("a", 3, {"u": [0]})).member_epoch == 4

    coordinate(scenario)


def test_unsubscribed_topic_is_given_up_at_once(coordinate, told):
    async def scenario(groups):
        groups.topics(t=1, u=1)
        await groups.enter("a", "t", "u")
        changed = await groups.beat("a", 1, {"t": [0], "u": [0]}, subscribed_topic_names=["u"])
        assert (changed.member_epoch, told(changed)) == (1, {"u": [0]})
        assert (await groups.beat("a", 1, {"u": [0]})).member_epoch == 2

    coordinate(scenario)


def test_static_member_comes_back_to_what_it_had(coordinate, told):
    async def scenario(groups):
        groups.topics(t=2)
        await groups.enter("a", "t", instance_id="i")
        await groups.enter("b", "t", instance_id="j")
        await groups.beat("a", 1, {"t": [0]}, instance_id="i")
        assert told(await groups.beat("b", 2, {}, instance_id="j")) == {"t": [1]}
        refused = groups.enter("z", "t", instance_id="j")
        assert await groups.error(refused) is ErrorCode.UNRELEASED_INSTANCE_ID
        assert (await groups.beat("b", -2, instance_id="j")).member_epoch == -2
        assert told(await groups.beat("a", 2, {"t": [0]}, instance_id="i")) is None  # nothing moves
        back = await groups.enter("z", "t", instance_id="j")
        assert (back.member_epoch, told(back)) == (2, {"t": [1]})
        assert groups.consumer_group().epoch == 2
        fenced = groups.beat("b", 2, {"t": [1]}, instance_id="j")
        assert await groups.error(fenced) is ErrorCode.FENCED_INSTANCE_ID

    coordinate(scenario)


def test_static_member_that_does_not_come_back_is_out_after_its_session(coordinate):
    async def scenario(groups):
        groups.topics(t=2)
        await groups.enter("a", "t", instance_id="i")
        await groups.beat("a", -2, instance_id="i")
        await asyncio.sleep(46)
        assert groups.consumer_group().state is ConsumerGroupState.EMPTY

    coordinate(scenario)


def test_group_that_is_full_refuses_newcomers_only(coordinate):
    async def scenario(groups):
        groups.topics(t=2)
        await groups.enter("a", "t")
        assert await groups.error(groups.enter("b", "t")) is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert (await groups.enter("a", "t")).member_epoch == 1

    coordinate(scenario, group_consumer_max_size=1)


def test_majority_chooses_the_assignor(coordinate, told):
    async def scenario(groups):
        groups.topics(t=3, u=3)
        await groups.enter("a", "t", "u", server_assignor="range")
        await groups.enter("b", "t", "u")
        asked = await groups.beat("a", 1)
        assert told(asked) == {"t": [0, 1], "u": [0, 1]}
        unknown = groups.enter("c", "t", server_assignor="nonsense")
        assert await groups.error(unknown) is ErrorCode.UNSUPPORTED_ASSIGNOR

    coordinate(scenario)


def test_subscription_by_regular_expression_follows_the_topics(coordinate, told):
    async def scenario(groups):
        groups.topics(**{"log-a": 1, "other": 1})
        first = await groups.enter("a", regex="log-.*")
        assert (first.member_epoch, told(first)) == (1, {})
        await asyncio.sleep(1)
        assert told(await groups.beat("a", 1)) == {"log-a": [0]}
        groups.topics(**{"log-a": 1, "log-b": 1, "other": 1})
        await asyncio.sleep(10)
        await groups.beat("a", 2)
        await asyncio.sleep(1)
        assert told(await groups.beat("a", 2)) == {"log-a": [0], "log-b": [0]}
        # Another member of the same expression need not wait.
        assert (await groups.enter("b", regex="log-.*")).member_epoch == 4
        invalid = groups.enter("c", regex="(")
        assert await groups.error(invalid) is ErrorCode.INVALID_REGULAR_EXPRESSION
        await groups.beat("a", -1)
        await groups.beat("b", -1)
        assert groups.consumer_group().regexes == {}

    coordinate(scenario)


def test_a_clock_that_is_set_back_does_not_hide_the_topics_of_an_expression(coordinate, told):
    async def scenario(groups):
        groups.topics(**{"log-a": 1, "other": 1})
        await groups.enter("a", regex="log-.*")
        await asyncio.sleep(1)
        groups.clock.ahead_ms = -86_400_000
        await groups.enter("b", regex="oth.*")
        await asyncio.sleep(1)
        epoch = groups.consumer_group().members["b"].epoch
        assert told(await groups.beat("b", epoch)) == {"other": [0]}

    coordinate(scenario)


def test_a_clock_that_is_set_back_does_not_lengthen_the_pause_after_a_failure(coordinate, told):
    async def scenario(groups):
        groups.topics(**{"log-a": 1})
        await groups.enter("a", regex="log-.*")
        groups.log.failure = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        await asyncio.sleep(1)
        groups.log.failure = None
        groups.clock.ahead_ms = -86_400_000
        await asyncio.sleep(10)
        await groups.beat("a", 1)
        await asyncio.sleep(1)
        assert told(await groups.beat("a", 1)) == {"log-a": [0]}

    coordinate(scenario)


def test_new_topics_of_an_expression_that_could_not_be_stored_are_found_soon_after(coordinate, told):
    async def scenario(groups):
        groups.topics(**{"log-a": 1})
        await groups.enter("a", regex="log-.*")
        await asyncio.sleep(1)
        assert told(await groups.beat("a", 1)) == {"log-a": [0]}
        groups.topics(**{"log-a": 1, "log-b": 1})
        await asyncio.sleep(10)
        groups.log.failure = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        await groups.beat("a", 2)
        await asyncio.sleep(1)
        groups.log.failure = None
        await asyncio.sleep(10)
        await groups.beat("a", 2)
        await asyncio.sleep(1)
        assert told(await groups.beat("a", 2)) == {"log-a": [0], "log-b": [0]}

    coordinate(scenario)


def test_topics_found_for_a_deleted_group_are_not_those_of_the_new_group_of_its_name(
    coordinate, told, monkeypatch
):
    """The search leaves out the topics that a former client may not see: here all."""

    async def scenario(groups):
        groups.topics(t=1)
        ends = asyncio.Event()

        async def find_nothing(search, regexes, names, may_see):
            await ends.wait()
            return dict.fromkeys(regexes, frozenset())

        with monkeypatch.context() as patch:
            patch.setattr(regex_subscriptions, "resolve", find_nothing)
            await groups.enter("former", regex="t")
            await groups.beat("former", -1)
            assert await groups.delete() is ErrorCode.NONE
        epoch = (await groups.enter("new", regex="t")).member_epoch
        ends.set()
        await asyncio.sleep(1)
        assert told(await groups.beat("new", epoch)) == {"t": [0]}

    coordinate(scenario)


def test_timeouts_of_a_static_member_end_when_it_comes_back_with_another_id(coordinate):
    async def scenario(groups):
        groups.topics(t=1)
        await groups.enter("first", "t", instance_id="i")
        await groups.beat("first", -2, instance_id="i")
        epoch = (await groups.enter("second", "t", instance_id="i")).member_epoch
        for _ in range(20):
            await asyncio.sleep(5)
            await groups.beat("second", epoch, instance_id="i")
        ((_, shard),) = groups.coordinator.active_shards()
        timeouts = shard._consumers._timeouts
        assert not timeouts._late
        assert ("session", "g", "first") not in timeouts._timers

    coordinate(scenario)


def test_regular_expression_has_to_match_the_whole_name(coordinate, told):
    async def scenario(groups):
        groups.topics(log=1, catalog=1, logs=1)
        await groups.enter("a", regex="log")
        await asyncio.sleep(1)
        assert told(await groups.beat("a", 1)) == {"log": [0]}

    coordinate(scenario)


def test_an_expression_is_forgotten_with_its_last_subscriber(coordinate):
    async def scenario(groups):
        groups.topics(**{"log-a": 1, "other": 1})
        await groups.enter("a", regex="log-.*")
        await groups.enter("b", regex="log-.*")
        await asyncio.sleep(1)
        members = groups.consumer_group().members
        await groups.beat("a", members["a"].epoch, subscribed_topic_regex="oth.*")
        assert set(groups.consumer_group().regexes) == {"log-.*"}
        await groups.beat("b", members["b"].epoch, subscribed_topic_regex="oth.*")
        assert "log-.*" not in groups.consumer_group().regexes

    coordinate(scenario)


def test_commit_needs_the_members_epoch(coordinate):
    async def scenario(groups):
        groups.topics(t=1)
        await groups.enter("a", "t")
        assert await groups.commit({("t", 0): 5}, "a", 1) is ErrorCode.NONE
        assert await groups.commit({("t", 0): 6}, "a", 0) is ErrorCode.STALE_MEMBER_EPOCH
        assert await groups.commit({("t", 0): 6}, "z", 1) is ErrorCode.UNKNOWN_MEMBER_ID
        assert await groups.commit({("t", 0): 6}) is ErrorCode.UNKNOWN_MEMBER_ID
        assert await groups.commit({("t", 0): 6}, "a", 1, version=8) is ErrorCode.UNSUPPORTED_VERSION
        with pytest.raises(KafkaError, match="epoch 0"):
            groups.coordinator.check_fetch("g", "a", 0)
        groups.coordinator.check_fetch("g", "a", 1)
        groups.coordinator.check_fetch("g", None, -1)
        await groups.beat("a", -1)
        assert await groups.commit({("t", 0): 7}) is ErrorCode.NONE
        assert groups.committed() == 7

    coordinate(scenario)


def test_offsets_of_subscribed_topics_cannot_be_deleted(coordinate):
    async def scenario(groups):
        groups.topics(t=1, u=1)
        await groups.enter("a", "t")
        await groups.commit({("t", 0): 5, ("u", 0): 6}, "a", 1)
        assert await groups.delete_offsets(("t", 0), ("u", 0)) == [
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            ErrorCode.NONE,
        ]
        assert await groups.delete() is ErrorCode.NON_EMPTY_GROUP
        await groups.beat("a", -1)
        assert await groups.delete() is ErrorCode.NONE
        assert groups.committed() is None

    coordinate(scenario)


def test_group_and_its_offsets_expire_when_nobody_is_left(coordinate):
    async def scenario(groups):
        groups.topics(t=1)
        await groups.enter("a", "t")
        await groups.commit({("t", 0): 5}, "a", 1)
        await asyncio.sleep(40)
        await groups.beat("a", 1)
        await asyncio.sleep(40)
        await groups.coordinator.expire()
        assert groups.committed() == 5  # it is subscribed to
        await groups.beat("a", -1)
        await groups.coordinator.expire()
        assert groups.committed() is None
        with pytest.raises(KafkaError):
            groups.coordinator.group("g")

    coordinate(scenario, offsets_retention_minutes=1)


def test_failed_append_changes_nothing(coordinate, told):
    async def scenario(groups):
        groups.topics(t=2)
        await groups.enter("a", "t")
        groups.log.failure = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        assert await groups.error(groups.enter("b", "t")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        groups.log.failure = None
        assert set(groups.consumer_group().members) == {"a"}
        assert groups.consumer_group().epoch == 1

    coordinate(scenario)


def test_restart_goes_on_where_the_group_was(coordinate, told):
    async def scenario(groups):
        groups.topics(t=2)
        await groups.enter("a", "t")
        await groups.enter("b", "t", instance_id="i")
        before = groups.consumer_group()
        again = await groups.restart()
        after = again.consumer_group()
        assert (after.members, after.targets, after.epoch) == (before.members, before.targets, before.epoch)
        assert told(await again.beat("a", 1)) == {"t": [0]}
        assert (await again.beat("a", 1, {"t": [0]})).member_epoch == 2
        assert told(await again.beat("b", 2, instance_id="i")) == {"t": [1]}
        await asyncio.sleep(46)
        assert again.consumer_group().state is ConsumerGroupState.EMPTY

    coordinate(scenario)


def test_protocol_that_is_not_enabled_is_refused(coordinate):
    async def scenario(groups):
        groups.topics(t=2)
        assert await groups.error(groups.enter("a", "t")) is ErrorCode.UNSUPPORTED_VERSION

    coordinate(scenario, group_coordinator_rebalance_protocols=("classic",))


@pytest.mark.parametrize("by_regex", [False, True])
def test_heartbeat_that_tells_all_is_told_the_whole_assignment_again(coordinate, told, by_regex):
    """A client that has lost its connection sends all fields, because it may have missed the last answer."""

    async def scenario(groups):
        groups.topics(t=2)
        await (groups.enter("a", regex="t") if by_regex else groups.enter("a", "t"))
        subscription = {"subscribed_topic_regex": "t"} if by_regex else {"subscribed_topic_names": ["t"]}
        for _ in range(5):
            await asyncio.sleep(0.1)
            answer = await groups.beat("a", groups.consumer_group().members["a"].epoch, {"t": [0, 1]})
        assert told(answer) is None  # nothing has changed
        owned = {"t": [0, 1]}
        full = await groups.beat("a", answer.member_epoch, owned, rebalance_timeout_ms=60_000, **subscription)
        assert told(full) == owned
        for missing in ({"rebalance_timeout_ms": 60_000}, subscription):
            assert told(await groups.beat("a", answer.member_epoch, owned, **missing)) is None

    coordinate(scenario)
