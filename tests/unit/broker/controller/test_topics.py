"""The controller creates, deletes and extends topics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import pytest
from simulation.memory_store import MemoryServer
from tests.unit.broker.controller.conftest import Member, Play, join, until

from barnabas.base.environment.randomness import new_topic_id, system_random
from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicId, TopicPartition
from barnabas.broker.config import BrokerConfig
from barnabas.broker.controller import NewPartitions, NewTopic
from barnabas.broker.controller.deletion_notes import DeletionNotes
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.image import ImageDelta, TopicImage
from barnabas.broker.metadata.store import StoreUnavailableError


def code(result: Any) -> ErrorCode:
    return result.code if isinstance(result, KafkaError) else ErrorCode.NONE


def test_new_topic_is_led_and_in_sync_everywhere_from_the_start(play: Play) -> None:
    async def scenario(member: Member) -> None:
        result = (await member.controller.topics.create([NewTopic("t", 6, 2)]))["t"]
        assert isinstance(result, TopicImage)
        topic = member.image.topics["t"]
        assert topic == result
        assert {state.leader for state in topic.partitions} == {1, 2, 3}
        for state in topic.partitions:
            assert state.leader == state.replicas[0]
            assert state.isr == state.replicas
            assert len(set(state.replicas)) == 2

    play(scenario, others=2)


def test_numbers_left_out_are_the_brokers_defaults(play: Play) -> None:
    async def scenario(member: Member) -> None:
        await member.controller.topics.create([NewTopic("t")])
        topic = member.image.topics["t"]
        assert [len(topic.partitions), len(topic.partitions[0].replicas)] == [4, 2]

    play(scenario, others=1, config=BrokerConfig(num_partitions=4, default_replication_factor=2))


def test_assignment_is_taken_as_it_is(play: Play) -> None:
    async def scenario(member: Member) -> None:
        await member.controller.topics.create([NewTopic("t", assignments=[(1, [2, 1]), (0, [1, 2])])])
        assert [state.replicas for state in member.image.topics["t"].partitions] == [(1, 2), (2, 1)]

    play(scenario, others=1)


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        (NewTopic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("ä"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("x" * 249), ErrorCode.NONE),
        (NewTopic("there"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (NewTopic("with_dot"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", -2), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 10_001, 1), ErrorCode.POLICY_VIOLATION),
        (NewTopic("t", 1, assignments=[(0, [1])]), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", -1, 1, assignments=[(0, [1])]), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", assignments=[(1, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(-1, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(0, [1]), (0, [2])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(0, [])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(0, [1, 1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(0, [7])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(0, [1]), (1, [1, 2])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", configs={"no.such": "1"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", configs={"retention.ms": "long"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", configs={"retention.ms": "-2"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", configs={"log.retention.ms": "5"}), ErrorCode.INVALID_CONFIG),
    ],
    ids=lambda value: None if isinstance(value, ErrorCode) else repr(value)[9:60],
)
def test_topic_that_must_not_be_is_refused_and_changes_nothing(
    play: Play, topic: NewTopic, expected: ErrorCode
) -> None:
    async def scenario(member: Member) -> None:
        await member.controller.topics.create([NewTopic("there"), NewTopic("with.dot")])
        before = member.image
        results = await member.controller.topics.create([topic, NewTopic("bystander")])
        assert code(results[topic.name]) is expected
        assert code(results["bystander"]) is ErrorCode.NONE
        added = {*member.image.topics} - {*before.topics}
        assert added == {"bystander"} | ({topic.name} if expected is ErrorCode.NONE else set())

    play(scenario, others=1)


def _two_of_three(scenario: Callable[[Member], Awaitable[None]]) -> None:
    """Run a scenario in a cluster of three brokers of which broker 3 is away."""

    async def play() -> None:
        server = MemoryServer()
        first, _, third = [await join(server, BrokerConfig(node_id=each)) for each in (1, 2, 3)]
        await until(lambda: first.image.admitted.keys() == {1, 2, 3})
        await third.controller.stop()
        await third.loader.stop()
        await third.store.close()
        await until(lambda: first.image.brokers.keys() == {1, 2})
        await scenario(first)

    asyncio.run(play())


def test_a_broker_that_is_away_gets_replicas_when_the_others_are_too_few() -> None:
    """As in KRaft. Before, no group could begin in a cluster of three while one broker was dead."""

    async def scenario(member: Member) -> None:
        results = await member.controller.topics.create([NewTopic("all", 6, 3), NewTopic("two", 6, 2)])
        assert not any(isinstance(each, KafkaError) for each in results.values())
        for state in member.image.topics["all"].partitions:
            assert state.replicas[2] == 3
            assert state.isr == state.replicas[:2]
            assert state.leader == state.replicas[0]
        assert {each.replicas[0] for each in member.image.topics["all"].partitions} == {1, 2}
        assert not any(3 in each.replicas for each in member.image.topics["two"].partitions)
        assert await member.controller.topics.create_partitions([NewPartitions("all", 8)]) == {}
        assert {each.replicas[2] for each in member.image.topics["all"].partitions} == {3}
        refused = (await member.controller.topics.create([NewTopic("more", 1, 4)]))["more"]
        assert code(refused) is ErrorCode.INVALID_REPLICATION_FACTOR

    _two_of_three(scenario)


def test_an_assignment_may_name_a_broker_that_is_away_beside_one_that_runs() -> None:
    async def scenario(member: Member) -> None:
        asked = {"a": [3, 1], "b": [3], "c": [9, 1]}
        results = await member.controller.topics.create(
            [NewTopic(name, assignments=[(0, replicas)]) for name, replicas in asked.items()]
        )
        wanted = [ErrorCode.NONE, *[ErrorCode.INVALID_REPLICA_ASSIGNMENT] * 2]
        assert [code(results[name]) for name in asked] == wanted
        state = member.image.topics["a"].partitions[0]
        assert (state.replicas, state.isr, state.leader) == ((3, 1), (1,), 1)

    _two_of_three(scenario)


def test_two_names_of_one_request_that_collide_are_not_both_made(play: Play) -> None:
    async def scenario(member: Member) -> None:
        results = await member.controller.topics.create([NewTopic("a.b"), NewTopic("a_b")])
        assert code(results["a.b"]) is ErrorCode.NONE
        assert code(results["a_b"]) is ErrorCode.INVALID_TOPIC_EXCEPTION

    play(scenario)


def test_request_for_too_many_partitions_makes_none_of_its_topics(play: Play) -> None:
    async def scenario(member: Member) -> None:
        with pytest.raises(KafkaError) as refused:
            await member.controller.topics.create([NewTopic("a", 6000, 1), NewTopic("b", 6000, 1)])
        assert refused.value.code is ErrorCode.POLICY_VIOLATION
        assert not member.image.topics

    play(scenario)


def test_validating_only_tells_what_would_be_and_makes_nothing(play: Play) -> None:
    async def scenario(member: Member) -> None:
        results = await member.controller.topics.create(
            [NewTopic("a", 3, 1), NewTopic("b", 0, 1)], validate_only=True
        )
        made = results["a"]
        assert isinstance(made, TopicImage)
        assert len(made.partitions) == 3
        assert code(results["b"]) is ErrorCode.INVALID_PARTITIONS
        assert not member.image.topics

    play(scenario)


def test_settings_of_a_new_topic_are_kept_and_go_with_it(play: Play) -> None:
    async def scenario(member: Member) -> None:
        await member.controller.topics.create([NewTopic("t", configs={"retention.ms": "5"})])
        assert member.image.topic_config("t") == {"retention.ms": "5"}
        await member.controller.topics.delete([member.image.topics["t"].id])
        assert not member.image.topic_configs
        await member.controller.topics.create([NewTopic("t")])
        assert member.image.topic_config("t") == {}

    play(scenario)


def test_deleted_topic_leaves_no_node_behind(play: Play) -> None:
    async def scenario(member: Member) -> None:
        before = sorted(member.store._tree._nodes)
        await member.controller.topics.create([NewTopic("t", 3, 1, configs={"retention.ms": "5"})])
        topic_id = member.image.topics["t"].id
        assert await member.controller.topics.delete([topic_id]) == {}
        assert "t" not in member.image.topics
        assert member.image.topic_by_id(topic_id) is None
        await confirm(member)
        assert sorted(member.store._tree._nodes) == before

    play(scenario)


async def confirm(member: Member, *left: TopicId) -> None:
    """Let the broker confirm the deletion of topics of which it has no partitions (`left`)."""

    async def without(topic_ids: Collection[TopicId]) -> Collection[TopicId]:
        return set(topic_ids).difference(left)

    notes = DeletionNotes(member.store, member.loader, 1, without)
    notes.on_image(ImageDelta(member.image, member.image))
    for _ in range(20):
        await asyncio.sleep(0)
    await notes.stop()


def test_deletion_is_noted_while_another_broker_may_have_folders(play: Play) -> None:
    async def scenario(member: Member) -> None:
        await member.controller.topics.create([NewTopic("t", 1, 2)])
        topic_id = member.image.topics["t"].id
        await member.controller.topics.delete([topic_id])
        assert dict(member.image.deleted_topics) == {topic_id: frozenset({1, 2})}
        await confirm(member, topic_id)
        assert dict(member.image.deleted_topics) == {topic_id: frozenset({1, 2})}
        await confirm(member)
        assert dict(member.image.deleted_topics) == {topic_id: frozenset({2})}

    play(scenario, others=1)


def test_a_broker_that_stops_confirms_no_deletion_that_it_hears_of(play: Play) -> None:
    async def scenario(member: Member) -> None:
        asked = []

        async def without(topic_ids: Collection[TopicId]) -> Collection[TopicId]:
            asked.append(topic_ids)
            return topic_ids

        notes = DeletionNotes(member.store, member.loader, 1, without)
        await notes.stop()
        await member.controller.topics.create([NewTopic("t")])
        await member.controller.topics.delete([member.image.topics["t"].id])
        notes.on_image(ImageDelta(member.image, member.image))
        await asyncio.sleep(0)
        assert not asked

    play(scenario)


def test_unknown_id_cannot_be_deleted_and_does_not_hinder_others(play: Play) -> None:
    async def scenario(member: Member) -> None:
        await member.controller.topics.create([NewTopic("t")])
        unknown = new_topic_id(system_random())
        errors = await member.controller.topics.delete([unknown, member.image.topics["t"].id])
        assert {key: error.code for key, error in errors.items()} == {unknown: ErrorCode.UNKNOWN_TOPIC_ID}
        assert not member.image.topics

    play(scenario)


def test_deletion_can_be_forbidden(play: Play) -> None:
    async def scenario(member: Member) -> None:
        await member.controller.topics.create([NewTopic("t")])
        topic_id = member.image.topics["t"].id
        errors = await member.controller.topics.delete([topic_id])
        assert errors[topic_id].code is ErrorCode.TOPIC_DELETION_DISABLED
        assert "t" in member.image.topics

    play(scenario, config=BrokerConfig(delete_topic_enable=False))


def test_topic_grows_and_its_old_partitions_stay_as_they_are(play: Play) -> None:
    async def scenario(member: Member) -> None:
        await member.controller.topics.create([NewTopic("t", 2, 2)])
        before = member.image.topics["t"]
        assert await member.controller.topics.create_partitions([NewPartitions("t", 5)]) == {}
        after = member.image.topics["t"]
        assert after.id == before.id
        assert after.partitions[:2] == before.partitions
        assert [len(state.replicas) for state in after.partitions] == [2] * 5

    play(scenario, others=1)


def test_added_partitions_take_the_assignment_asked_for(play: Play) -> None:
    async def scenario(member: Member) -> None:
        await member.controller.topics.create([NewTopic("t", 1, 1)])
        await member.controller.topics.create_partitions([NewPartitions("t", 3, [[2], [1]])])
        assert member.image.partition(TopicPartition("t", 1)).replicas == (2,)  # type: ignore[union-attr]
        assert member.image.partition(TopicPartition("t", 2)).replicas == (1,)  # type: ignore[union-attr]

    play(scenario, others=1)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (NewPartitions("nope", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (NewPartitions("t", 2), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", 1), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", -1), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", 3, []), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 3, [[1], [1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 3, [[1, 2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 3, [[9]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 3, [[]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
    ids=str,
)
def test_growth_that_must_not_be_is_refused(play: Play, request_: NewPartitions, expected: ErrorCode) -> None:
    async def scenario(member: Member) -> None:
        await member.controller.topics.create([NewTopic("t", 2, 1)])
        errors = await member.controller.topics.create_partitions([request_])
        assert errors[request_.topic].code is expected
        assert len(member.image.topics["t"].partitions) == 2

    play(scenario, others=1)


def test_growth_that_is_only_validated_changes_nothing(play: Play) -> None:
    async def scenario(member: Member) -> None:
        await member.controller.topics.create([NewTopic("t", 2, 1)])
        assert (
            await member.controller.topics.create_partitions([NewPartitions("t", 3)], validate_only=True)
            == {}
        )
        assert len(member.image.topics["t"].partitions) == 2

    play(scenario)


def test_store_that_cannot_be_written_is_a_storage_error_and_nothing_is_made(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(member: Member) -> None:
        async def full(operations: object) -> Any:
            raise StoreUnavailableError("the disk is full")

        monkeypatch.setattr(member.store, "multi", full)
        results = await member.controller.topics.create([NewTopic("t")])
        assert code(results["t"]) is ErrorCode.KAFKA_STORAGE_ERROR
        assert not member.image.topics

    play(scenario)


def test_many_askers_at_once_make_a_topic_once(play: Play) -> None:
    async def scenario(member: Member) -> None:
        asks = (member.controller.topics.create([NewTopic("t")]) for _ in range(10))
        codes = [code(results["t"]) for results in await asyncio.gather(*asks)]
        assert sorted(codes) == sorted([ErrorCode.NONE] + [ErrorCode.TOPIC_ALREADY_EXISTS] * 9)
        assert await member.store.children(znodes.TOPICS) == ["t"]

    play(scenario)


def test_topic_that_lost_states_stays_without_leaders_and_can_be_deleted(play: Play) -> None:
    """A tool has removed the states without the brokers' knowledge. This is no reason to delete anything."""

    async def scenario(member: Member) -> None:
        await member.controller.topics.create([NewTopic("t", 3, 1)])
        before = member.image.topics["t"]
        await member.store.delete(znodes.partition_state("t", 1))
        await member.store.delete(znodes.partition("t", 1))
        await member.loader.settled()
        await member.controller.partitions.caught_up()
        topic = member.image.topics["t"]
        assert topic.id == before.id
        assert [state.leader for state in topic.partitions] == [1, -1, 1]
        assert topic.partitions[1].is_missing
        assert not member.image.deleted_topics
        assert member.controller.active
        assert await member.controller.topics.delete([topic.id]) == {}
        assert "t" not in member.image.topics
        assert topic.id in member.image.deleted_topics

    play(scenario)
