"""The states of share partitions: initialized before an assignment, altered and deleted (KIP-932)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace

import pytest

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.coordinator.share_state.persister import (
    CoordinatorPosition,
    SharePartitionKey,
    ShareState,
)
from barnabas.broker.metadata import ImageDelta

UNAVAILABLE = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def key(topic: str, partition: int, group: str = "g") -> SharePartitionKey:
    return SharePartitionKey(group, topic.encode().ljust(16, b"."), partition)


async def settle():
    """Let initializations end."""
    await asyncio.sleep(0.05)


async def join(groups, member, *topics):
    joined = await groups.share_beat(member, 0, *topics)
    await settle()
    return await groups.share_beat(member, joined.member_epoch)


async def alter(groups, offsets, group="g"):
    """Alter start offsets. Return the errors by topic and partition, or the error of the whole request."""
    keys = {key(topic, partition, group): offset for (topic, partition), offset in offsets.items()}
    names = {key(topic, 0).topic_id: topic for topic, _ in offsets}
    try:
        failures = await groups.coordinator.share_groups.alter_offsets(group, keys, names)
    except KafkaError as error:
        return error.code
    return {(k.topic_id.rstrip(b".").decode(), k.partition): error.code for k, error in failures.items()}


async def delete_offsets(groups, *names, group="g"):
    """Delete offsets. Return the outcome of each topic with states, or the error of the whole request."""
    try:
        outcomes = await groups.coordinator.share_groups.delete_offsets(group, names)
    except KafkaError as error:
        return error.code
    return {id.rstrip(b".").decode(): error and error.code for id, error in outcomes.items()}


# --- initialization ---


def test_a_change_of_a_group_that_raises_ends_the_call_that_waits_for_it(coordinate):
    def fail(_draft):
        raise ZeroDivisionError

    def run_later(_group, operation):  # as while another operation holds the lock; errors are only logged

        def run():
            with suppress(ZeroDivisionError):
                operation(None)

        asyncio.get_running_loop().call_soon(run)

    async def scenario(groups):
        groups.topics(t=1)
        await join(groups, "a", "t")
        shares = groups.coordinator.share_groups._shards.read("g")
        shares._context = replace(shares._context, write=run_later)
        async with asyncio.timeout(1):
            with pytest.raises(ZeroDivisionError):
                await shares._change("g", fail)

    coordinate(scenario)


def test_partitions_are_initialized_without_a_start_offset_in_the_group_epoch(coordinate):
    async def scenario(groups):
        groups.topics(t=2)
        await groups.share_beat("a", 0, "t")
        assert groups.share_group().partitions.initializing == {key("t", 0).topic_id: ("t", {0, 1})}
        await settle()
        assert groups.persister.states == {
            key("t", number): ShareState(1, -1, -1, 0, ()) for number in range(2)
        }
        assert groups.share_group().partitions.initialized == {key("t", 0).topic_id: ("t", {0, 1})}
        assert groups.share_group().partitions.initializing == {}
        await groups.share_beat("b", 0, "t")
        await settle()
        assert len(groups.persister.log) == 2

    coordinate(scenario)


def test_a_partition_that_a_known_topic_gets_begins_at_its_first_record(coordinate):
    """With `latest`, records from before the initialization would be lost (KAFKA-20742)."""

    async def scenario(groups):
        groups.topics(t=250)  # more than one request initializes at a time
        joined = await join(groups, "a", "t")
        groups.topics(t=252, u=1)
        await groups.share_beat("a", joined.member_epoch, "t", "u")
        await settle()
        starts = {k: state.start_offset for k, state in groups.persister.states.items()}
        assert {k: start for k, start in starts.items() if start != -1} == {
            key("t", number): 0 for number in (250, 251)
        }
        assert len(starts) == 253

    coordinate(scenario)


def test_a_topic_that_grows_before_its_first_initialization_is_known_too(coordinate):
    async def scenario(groups):
        groups.topics(t=1)
        groups.persister.failure = UNAVAILABLE
        joined = await groups.share_beat("a", 0, "t")
        await asyncio.sleep(10)
        groups.topics(t=2)
        await groups.share_beat("a", joined.member_epoch, "t")
        groups.persister.failure = None
        await asyncio.sleep(10)
        starts = [groups.persister.states[key("t", number)].start_offset for number in range(2)]
        assert starts == [-1, 0]

    coordinate(scenario)


@pytest.mark.parametrize("is_deleted", ["group", "offsets"])
def test_a_topic_whose_states_were_deleted_begins_as_a_new_one(coordinate, is_deleted):
    """A partition that the known topic got still waits for its initialization."""

    async def scenario(groups):
        groups.topics(t=1)
        joined = await join(groups, "a", "t")
        groups.topics(t=2)
        groups.persister.failure = UNAVAILABLE
        await groups.share_beat("a", joined.member_epoch, "t")
        await asyncio.sleep(10)
        await groups.share_beat("a", -1)
        groups.persister.failure = None
        if is_deleted == "group":
            assert await groups.delete() == ErrorCode.NONE
        else:
            assert await delete_offsets(groups, "t") == {"t": None}
        await groups.share_beat("b", 0, "t")
        await asyncio.sleep(10)
        starts = [groups.persister.states[key("t", number)].start_offset for number in range(2)]
        assert starts == [-1, -1]

    coordinate(scenario)


def test_a_partition_is_not_assigned_before_its_initialization_is_known(coordinate, told):
    async def scenario(groups):
        groups.topics(t=1)
        groups.persister.open.clear()
        joined = await groups.share_beat("a", 0, "t")
        await asyncio.sleep(20)
        assert told(await groups.share_beat("a", joined.member_epoch, "t")) == {}
        groups.persister.open.set()
        await settle()
        assert told(await groups.share_beat("a", joined.member_epoch)) == {"t": [0]}

    coordinate(scenario)


def test_a_failed_initialization_is_repeated_until_its_answer_is_known(coordinate, told):
    """After a lost answer, the partition must not initialize forever (KAFKA-19204)."""

    async def scenario(groups):
        groups.topics(t=1)
        groups.persister.failure = UNAVAILABLE
        joined = await groups.share_beat("a", 0, "t")
        await asyncio.sleep(30)
        assert 5 < len(groups.persister.log) < 20
        groups.persister.failure = None
        await asyncio.sleep(6)
        assert told(await groups.share_beat("a", joined.member_epoch)) == {"t": [0]}

    coordinate(scenario)


def test_the_next_coordinator_goes_on_with_an_initialization(coordinate, told):
    async def scenario(groups):
        groups.topics(t=1)
        groups.persister.open.clear()
        joined = await groups.share_beat("a", 0, "t")
        await settle()
        again = await groups.restart()
        assert again.share_group().partitions.initializing
        groups.persister.open.set()
        await settle()
        assert told(await again.share_beat("a", joined.member_epoch)) == {"t": [0]}
        assert again.persister.states[key("t", 0)].start_offset == -1
        await again.coordinator.stop()

    coordinate(scenario)


def test_an_initialization_whose_end_could_not_be_stored_is_repeated(coordinate, told):
    async def scenario(groups):
        groups.topics(t=1)
        groups.persister.open.clear()
        joined = await groups.share_beat("a", 0, "t")
        groups.log.failure = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        groups.persister.open.set()
        await settle()
        groups.log.failure = None
        assert told(await groups.share_beat("a", joined.member_epoch, "t")) == {}
        await settle()
        assert told(await groups.share_beat("a", joined.member_epoch)) == {"t": [0]}

    coordinate(scenario)


def test_a_state_that_an_earlier_group_has_left_is_replaced(coordinate):
    async def scenario(groups):
        groups.topics(t=1)
        groups.persister.states[key("t", 0)] = ShareState(77, 3, 500, 2, ())
        await join(groups, "a", "t")
        assert groups.persister.states == {key("t", 0): ShareState(78, -1, -1, 0, ())}

    coordinate(scenario)


@pytest.mark.parametrize("asked_by", ["member", "administrator"])
def test_the_group_epoch_rises_once_above_all_states_that_an_earlier_group_has_left(coordinate, asked_by):
    async def scenario(groups):
        groups.topics(t=250)
        left = {key("t", number): ShareState(77 + number % 3, 3, 500, 2, ()) for number in range(250)}
        groups.persister.states |= left
        if asked_by == "member":
            await groups.share_beat("a", 0, "t")
            await asyncio.sleep(1)
            # One epoch replaces the states, and three assign a hundred partitions each.
            assert groups.share_group().epoch == 80 + 3
        else:
            assert await alter(groups, {("t", number): 5 for number in range(250)}) == {}
            assert groups.share_group().epoch == 80
        assert all(state.state_epoch >= 80 for state in groups.persister.states.values())

    coordinate(scenario)


@pytest.mark.parametrize("asked", ["summary", "initialize"])
def test_states_that_cannot_be_replaced_do_not_hold_up_the_others(coordinate, asked):
    async def scenario(groups):
        groups.topics(t=3)
        groups.persister.states |= {key("t", number): ShareState(77, 3, 500, 2, ()) for number in range(2)}
        answer = groups.persister._answer

        async def answer_one(*what):
            await answer(*what)
            if what[:2] == (asked, key("t", 1)) and (asked == "summary" or what[2] > 77):
                raise UNAVAILABLE

        groups.persister._answer = answer_one
        failures = await alter(groups, {("t", number): 5 for number in range(3)})
        assert failures == {("t", 1): ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert [groups.persister.states[key("t", number)].start_offset for number in range(3)] == [5, 500, 5]

    coordinate(scenario)


def test_a_former_coordinator_does_not_replace_the_state_that_its_successor_has_initialized(coordinate):
    """The former one was paused, and has the group's old epoch. Only the successor commits records."""

    async def scenario(groups):
        groups.topics(t=1)
        groups.persister.open.clear()
        await groups.share_beat("a", 0, "t")
        await settle()
        progressed = ShareState(77, 3, 500, 2, ())
        groups.persister.states[key("t", 0)] = progressed
        groups.log.failure = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        groups.persister.open.set()
        await settle()
        assert groups.persister.states == {key("t", 0): progressed}

    coordinate(scenario)


@pytest.mark.parametrize("is_appended", [False, True])
def test_an_alteration_that_was_fenced_ends_when_this_broker_no_longer_coordinates_the_group(
    coordinate, is_appended
):
    """It raises the group epoch. The runtime drops this operation of a shard that is gone."""

    async def scenario(groups):
        groups.topics(t=1)
        groups.persister.open.clear()
        altering = asyncio.create_task(alter(groups, {("t", 0): 5}))
        await settle()
        groups.persister.states[key("t", 0)] = ShareState(77, 3, 500, 2, ())
        if is_appended:
            groups.log.hold = True
            groups.persister.open.set()
            await settle()
        groups.coordinator.resign(groups.coordinator.partition_for("g"))
        groups.persister.open.set()
        assert await asyncio.wait_for(altering, 3) == ErrorCode.NOT_COORDINATOR

    coordinate(scenario)


def test_many_partitions_are_initialized_a_hundred_at_a_time(coordinate, told):
    async def scenario(groups):
        groups.topics(t=250)
        joined = await groups.share_beat("a", 0, "t")
        await asyncio.sleep(1)
        assert len(groups.persister.states) == 250
        assert told(await groups.share_beat("a", joined.member_epoch)) == {"t": list(range(250))}
        assert groups.share_group().epoch == 4

    coordinate(scenario)


# --- deleted topics ---


@dataclass
class Deleted:
    """A change of the image in which a topic disappears, with or without the confirmation of its deletion."""

    groups: object
    name: str

    def follow(self, *, is_deleted: bool) -> None:
        before = self.groups.image
        topic = before.topics[self.name]
        topics = {name: found for name, found in before.topics.items() if name != self.name}
        deleted = {topic.id: frozenset({1})} if is_deleted else {}
        after = before._replace(
            topics=topics, topic_names={t.id: t.name for t in topics.values()}, deleted_topics=deleted
        )
        self.groups.view.image = after
        self.groups.coordinator.follow(1, ImageDelta(before, after, topics=frozenset({self.name})))


def test_a_deleted_topic_is_forgotten_on_the_word_of_its_deletion_only(coordinate, told):
    async def scenario(groups):
        groups.topics(t=1, u=1)
        joined = await join(groups, "a", "t", "u")
        Deleted(groups, "u").follow(is_deleted=False)
        assert groups.share_group().partitions.initialized.keys() == {
            key("t", 0).topic_id,
            key("u", 0).topic_id,
        }
        assert told(await groups.share_beat("a", joined.member_epoch)) == {"t": [0]}
        groups.topics(t=1, u=1)
        back = await groups.share_beat("a", groups.share_group().epoch)
        assert told(back) == {"t": [0], "u": [0]}
        Deleted(groups, "u").follow(is_deleted=True)
        assert groups.share_group().partitions.initialized.keys() == {key("t", 0).topic_id}

    coordinate(scenario)


def test_a_deleted_topic_is_forgotten_in_several_turns_of_the_event_loop(coordinate):
    async def scenario(groups):
        groups.topics(t=1)
        names = [f"g{number}" for number in range(150)]
        for name in names:
            await groups.share_beat("a", 0, "t", group=name)
        await settle()
        Deleted(groups, "t").follow(is_deleted=True)
        left = []
        for _ in range(2):
            left.append(sum(not groups.share_group(name).partitions.is_empty for name in names))
            await asyncio.sleep(0)
        assert left == [50, 0]

    coordinate(scenario)


def test_a_topic_deleted_while_nobody_coordinated_the_group_is_forgotten_at_the_next_start(coordinate):
    async def scenario(groups):
        groups.topics(t=1)
        await join(groups, "a", "t")
        groups.view.image = groups.image._replace(
            topics={}, topic_names={}, deleted_topics={key("t", 0).topic_id: frozenset({1})}
        )
        again = await groups.restart()
        assert again.share_group().partitions.is_empty
        await again.coordinator.stop()

    coordinate(scenario)


def test_a_topic_that_is_deleted_while_it_is_initialized_stays_forgotten(coordinate):
    async def scenario(groups):
        groups.topics(t=1)
        groups.persister.open.clear()
        await groups.share_beat("a", 0, "t")
        await settle()
        Deleted(groups, "t").follow(is_deleted=True)
        groups.persister.open.set()
        await settle()
        assert groups.share_group().partitions.is_empty

    coordinate(scenario)


# --- administration ---


def test_altered_start_offsets_are_of_a_later_state_epoch(coordinate, told):
    async def scenario(groups):
        groups.topics(t=2)
        await join(groups, "a", "t")
        assert await alter(groups, {("t", 0): 5}) == ErrorCode.NON_EMPTY_GROUP
        await groups.share_beat("a", -1)
        before = groups.persister.states[key("t", 0)]
        assert await alter(groups, {("t", 0): 5}) == {}
        after = groups.persister.states[key("t", 0)]
        assert after.start_offset == 5
        assert after.state_epoch > before.state_epoch
        assert told(await groups.share_beat("a", 0, "t")) == {"t": [0, 1]}

    coordinate(scenario)


def test_offsets_can_be_set_for_a_group_that_is_not_there_yet(coordinate, told):
    async def scenario(groups):
        groups.topics(t=2)
        assert await alter(groups, {("t", 1): 7}) == {}
        assert groups.state() == "Empty"
        joined = await join(groups, "a", "t")
        assert told(joined) == {"t": [0, 1]}
        assert groups.persister.states[key("t", 1)].start_offset == 7
        assert groups.persister.states[key("t", 0)].start_offset == 0, "the topic is known already"

    coordinate(scenario)


def test_a_start_offset_that_could_not_be_set_leaves_the_partition_as_it_was(coordinate, told):
    async def scenario(groups):
        groups.topics(t=1, u=1)
        await join(groups, "a", "t")
        await groups.share_beat("a", -1)
        groups.persister.failure = UNAVAILABLE
        assert await alter(groups, {("t", 0): 5, ("u", 0): 5}) == {
            ("t", 0): ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ("u", 0): ErrorCode.COORDINATOR_NOT_AVAILABLE,
        }
        assert groups.share_group().partitions.initialized.keys() == {key("t", 0).topic_id}
        groups.persister.failure = None
        assert told(await groups.share_beat("a", 0, "t", "u")) == {"t": [0]}

    coordinate(scenario)


def test_deleted_offsets_are_initialized_anew_by_the_next_member(coordinate):
    async def scenario(groups):
        groups.topics(t=2, u=1)
        await join(groups, "a", "t", "u")
        assert await delete_offsets(groups, "t") == ErrorCode.NON_EMPTY_GROUP
        await groups.share_beat("a", -1)
        assert await delete_offsets(groups, "t", "nothing") == {"t": None}
        assert groups.persister.states.keys() == {key("u", 0)}
        assert groups.share_group().partitions.names() == {key("u", 0).topic_id: "u"}
        await join(groups, "a", "t", "u")
        assert groups.persister.states.keys() == {key("t", 0), key("t", 1), key("u", 0)}

    coordinate(scenario)


def test_a_deletion_that_failed_can_be_repeated(coordinate):
    async def scenario(groups):
        groups.topics(t=2)
        await join(groups, "a", "t")
        await groups.share_beat("a", -1)
        groups.persister.failure = UNAVAILABLE
        assert await delete_offsets(groups, "t") == {"t": ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert await groups.delete() == ErrorCode.COORDINATOR_NOT_AVAILABLE
        groups.persister.failure = None
        again = await groups.restart()
        assert await delete_offsets(again, "t") == {"t": None}
        assert groups.persister.states == {}
        assert again.share_group().partitions.is_empty
        assert await again.delete() == ErrorCode.NONE
        await again.coordinator.stop()

    coordinate(scenario)


def test_a_former_coordinator_does_not_delete_the_states_that_its_successor_has_initialized(coordinate):
    """It was paused after it had stored that it deletes the states. A member has come since."""

    async def scenario(groups):
        groups.topics(t=1)
        await join(groups, "a", "t")
        await groups.share_beat("a", -1)
        groups.persister.open.clear()
        deletion = asyncio.ensure_future(groups.delete())
        await settle()
        progressed = {key("t", 0): ShareState(5, 3, 500, 2, ())}
        groups.persister.states = dict(progressed)
        groups.persister.positions = {key("t", 0): CoordinatorPosition(1, 0)}
        groups.persister.open.set()
        assert await deletion == ErrorCode.NOT_COORDINATOR
        assert groups.persister.states == progressed

    coordinate(scenario)


def test_a_deletion_from_before_the_broker_lost_and_regained_the_group_does_not_go_on(coordinate):
    """The answer of the share coordinator was late. A member has come and gone since."""

    async def scenario(groups):
        groups.topics(t=1)
        await join(groups, "a", "t")
        await groups.share_beat("a", -1)
        answered = asyncio.Event()
        delete = groups.persister.delete

        async def delete_slowly(*arguments):
            await delete(*arguments)
            await answered.wait()

        groups.persister.delete = delete_slowly
        deletion = asyncio.ensure_future(groups.delete())
        await settle()
        groups.coordinator.elect(0, 1)
        await groups.loaded()
        await join(groups, "b", "t")
        await groups.share_beat("b", -1)
        answered.set()
        assert await deletion == ErrorCode.NOT_COORDINATOR
        assert groups.share_group().partitions.initialized.keys() == {key("t", 0).topic_id}
        assert groups.persister.states.keys() == {key("t", 0)}

    coordinate(scenario)


def test_a_group_that_becomes_a_share_group_before_its_deletion_is_deleted_with_its_states(coordinate):
    """A first deletion deletes the classic group. An alteration then creates a share group of this name."""

    async def scenario(groups):
        groups.topics(t=1)
        await groups.commit({("t", 0): 5})
        groups.log.hold = True
        first = asyncio.ensure_future(groups.delete())
        await asyncio.sleep(0)
        altering = asyncio.ensure_future(alter(groups, {("t", 0): 7}))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(groups.delete())
        await asyncio.sleep(0)
        groups.log.hold = False
        groups.log.commit_next()
        assert await first == ErrorCode.NONE
        assert await altering == {}
        assert await second == ErrorCode.NONE
        assert groups.persister.states == {}
        assert groups.coordinator.groups() == []

    coordinate(scenario)


@pytest.mark.parametrize("what", ["group", "offsets"])
def test_requests_that_arrive_twice_do_not_change_the_states_of_the_next_members(coordinate, what):
    """They arrive after the group, or the offsets of its topic, were deleted and created again."""

    async def scenario(groups):
        groups.topics(t=1)
        sent = []
        persister = groups.persister
        initialize, delete = persister.initialize, persister.delete

        def noting(request):
            def ask(*arguments):
                sent.append(lambda: request(*arguments))
                return request(*arguments)

            return ask

        persister.initialize, persister.delete = noting(initialize), noting(delete)
        for _ in range(2):  # the second generation of states has the higher state epoch
            await join(groups, "a", "t")
            await groups.share_beat("a", -1)
            if what == "offsets":
                await delete_offsets(groups, "t")
            else:
                await groups.delete()
        await join(groups, "b", "t")
        assert len(sent) == 5
        before = dict(persister.states)
        for repeat in sent[:4]:
            with pytest.raises(KafkaError) as refused:
                await repeat()
            assert refused.value.code == ErrorCode.FENCED_STATE_EPOCH
        assert persister.states == before
        await sent[4]()

    coordinate(scenario)


def test_start_offsets_of_a_topic_that_is_deleted_meanwhile_are_not_set(coordinate):
    async def scenario(groups):
        groups.topics(t=1, u=1)
        groups.persister.open.clear()
        altering = asyncio.ensure_future(alter(groups, {("t", 0): 5, ("u", 0): 5}))
        await settle()
        Deleted(groups, "t").follow(is_deleted=True)
        groups.persister.open.set()
        assert await altering == {("t", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert groups.share_group().partitions.names() == {key("u", 0).topic_id: "u"}

    coordinate(scenario)


def test_a_state_is_not_deleted_under_a_member_that_comes_meanwhile(coordinate, told):
    """The member's initialization waits for the deletion."""

    async def scenario(groups):
        groups.topics(t=1)
        await join(groups, "a", "t")
        await groups.share_beat("a", -1)
        groups.persister.open.clear()
        deletion = asyncio.ensure_future(groups.delete())
        await settle()
        joined = await groups.share_beat("b", 0, "t")
        assert told(joined) == {}
        groups.persister.open.set()
        assert await deletion == ErrorCode.NON_EMPTY_GROUP
        await settle()
        assert told(await groups.share_beat("b", joined.member_epoch)) == {"t": [0]}
        assert groups.persister.states.keys() == {key("t", 0)}

    coordinate(scenario)


def test_an_administration_waits_for_another_one_for_a_limited_time(coordinate):
    """Its client gives up after some time. The request must not be executed long after that."""

    async def scenario(groups):
        groups.topics(t=1)
        await join(groups, "a", "t")
        await groups.share_beat("a", -1)
        groups.persister.open.clear()
        first = asyncio.ensure_future(delete_offsets(groups, "t"))
        await settle()
        late = [
            asyncio.ensure_future(each)
            for each in (alter(groups, {("t", 0): 5}), delete_offsets(groups, "t"), groups.delete())
        ]
        await asyncio.sleep(29)
        assert not any(each.done() for each in late)
        await asyncio.sleep(2)
        assert [each.result() for each in late] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3
        groups.persister.open.set()
        assert await first == {"t": None}
        assert await alter(groups, {("t", 0): 5}) == {}

    coordinate(scenario)


def test_a_group_has_one_conversation_at_a_time_also_when_one_comes_as_another_ends(coordinate):
    async def scenario(groups):
        ((_, shard),) = groups.coordinator.active_shards()
        inside, peak, tasks = 0, 0, []

        async def talk():
            nonlocal inside, peak
            async with shard.shares.states.exclusive("g"):
                inside += 1
                peak = max(peak, inside)
                await asyncio.sleep(0.01)
                inside -= 1

        first, second = asyncio.ensure_future(talk()), asyncio.ensure_future(talk())
        first.add_done_callback(lambda _: tasks.append(asyncio.ensure_future(talk())))
        await first
        await second
        await asyncio.gather(*tasks)
        assert peak == 1

    coordinate(scenario)


@pytest.mark.parametrize("kind", ["missing", "consumer"])
def test_offsets_of_groups_that_are_no_share_groups(coordinate, kind):
    async def scenario(groups):
        groups.topics(t=1)
        not_found = ErrorCode.GROUP_ID_NOT_FOUND
        if kind == "consumer":
            await groups.enter("a", "t")
            assert await alter(groups, {("t", 0): 5}) == not_found
        assert await delete_offsets(groups, "t") == not_found
        assert groups.persister.log == []

    coordinate(scenario)


def test_summaries_have_the_state_or_the_error_of_each_partition(coordinate):
    async def scenario(groups):
        groups.topics(t=1)
        await alter(groups, {("t", 0): 5})
        summaries = groups.coordinator.share_groups.summaries
        assert (await summaries([key("t", 0)]))[key("t", 0)].start_offset == 5
        groups.persister.failure = UNAVAILABLE
        assert await summaries([key("t", 0)]) == {key("t", 0): UNAVAILABLE}

    coordinate(scenario)
