"""The controller election, leader elections, producer ids and settings."""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import Any

import pytest
from simulation.clocks import ManualClock
from simulation.memory_store import MemoryServer, MemoryStore
from tests.unit.broker.controller.conftest import Member, Play, broker_image, join, until

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.broker.config import BrokerConfig
from barnabas.broker.controller import ConfigChange, ConfigResource, NewPartitions, NewTopic
from barnabas.broker.controller.configs import AlterOperation, ResourceType
from barnabas.broker.controller.controller_election import ControllerElection
from barnabas.broker.controller.elections import ElectionType
from barnabas.broker.controller.placement import place_replicas
from barnabas.broker.controller.writes import ControllerWrites
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.image import ALL_BROKERS, BrokerState, TopicImage
from barnabas.broker.metadata.store import (
    Create,
    NodeExistsError,
    SessionState,
    StoreUnavailableError,
    UnknownOutcomeError,
)

TOPIC = ConfigResource(ResourceType.TOPIC, "t")
BROKER = ConfigResource(ResourceType.BROKER, "1")
EVERY_BROKER = ConfigResource(ResourceType.BROKER, "")
MIN_ISR = "min.insync.replicas"


# --- controller election ---


def test_first_broker_takes_the_seat_and_the_second_does_not() -> None:
    async def scenario() -> None:
        server = MemoryServer()
        first = await join(server, BrokerConfig(node_id=1))
        second = await join(server, BrokerConfig(node_id=2))
        assert (first.controller.active, second.controller.active) == (True, False)
        assert second.image.controller_id == 1
        assert second.image.brokers.keys() == {1, 2}
        results = await second.controller.topics.create([NewTopic("t")])
        error = results["t"]
        assert isinstance(error, KafkaError)
        assert error.code is ErrorCode.NOT_CONTROLLER

    asyncio.run(scenario())


def test_each_controller_has_a_higher_epoch_than_the_one_before() -> None:
    async def scenario() -> None:
        server = MemoryServer()
        epochs = []
        for node_id in (1, 2, 1):
            member = await join(server, BrokerConfig(node_id=node_id))
            stored = await member.store.get(znodes.CONTROLLER_EPOCH)
            epochs.append(znodes.decode_controller_epoch(stored.data))
            await member.store.close()
        assert epochs == [1, 2, 3]

    asyncio.run(scenario())


def test_controller_that_was_replaced_without_noticing_changes_nothing() -> None:
    async def scenario() -> None:
        server = MemoryServer()
        old = await join(server, BrokerConfig(node_id=1))
        await old.store.delete(znodes.CONTROLLER)  # as when its session expired
        new = await join(server, BrokerConfig(node_id=2))
        assert new.controller.active
        result = (await old.controller.topics.create([NewTopic("t")]))["t"]
        assert isinstance(result, KafkaError)
        assert result.code is ErrorCode.NOT_CONTROLLER
        assert not old.controller.active
        assert await new.store.children(znodes.TOPICS) == []

    asyncio.run(scenario())


def test_controller_that_was_replaced_without_noticing_tells_nothing_of_its_old_image(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Simulation seed 81533: a deleted topic "already exists", so no client created it again."""
    monkeypatch.setattr(MemoryStore, "session_timeout", 6.0)

    async def scenario() -> None:
        server = MemoryServer()
        old = await join(server, BrokerConfig(node_id=1))
        topic = (await old.controller.topics.create([NewTopic("t")]))["t"]
        assert isinstance(topic, TopicImage)
        exists = (await old.controller.topics.create([NewTopic("t")]))["t"]
        assert isinstance(exists, KafkaError)
        assert exists.code is ErrorCode.TOPIC_ALREADY_EXISTS
        await old.loader.stop()  # it hears of nothing more
        for cancel in old.controller._cancels:
            cancel()
        image = old.loader.image
        monkeypatch.setattr(old.loader, "settled", lambda: asyncio.sleep(0, image))
        operator = MemoryStore(server)
        await operator.delete(znodes.CONTROLLER)
        new = await join(server, BrokerConfig(node_id=2))
        assert await new.controller.topics.delete([topic.id]) == {}
        for ask in (
            lambda: old.controller.topics.create([NewTopic("t")]),
            lambda: old.controller.topics.create([NewTopic("u")], validate_only=True),
            lambda: old.controller.topics.delete([b"?" * 16]),
            lambda: old.controller.topics.create_partitions([NewPartitions("t", 1)]),
            lambda: old.controller.configs.alter({ConfigResource(ResourceType.TOPIC, "no"): []}),
            lambda: old.controller.elections.elect(ElectionType.PREFERRED, None),
            lambda: old.controller.reassignments.alter({TopicPartition("t", 0): None}),
        ):
            old.controller._writes.epoch_version = 1  # it has not noticed
            with pytest.raises(KafkaError) as refused:
                await ask()
            assert refused.value.code is ErrorCode.NOT_CONTROLLER

    asyncio.run(scenario())


def test_second_broker_of_one_id_is_refused() -> None:
    async def scenario() -> None:
        server = MemoryServer()
        await join(server, BrokerConfig(node_id=1))
        with pytest.raises(NodeExistsError):
            await join(server, BrokerConfig(node_id=1))

    asyncio.run(scenario())


def test_own_node_of_an_election_whose_answer_was_lost_is_no_other_controllers() -> None:
    """The epoch is raised again, so that no earlier write can take effect later."""

    async def scenario() -> None:
        member = await join(MemoryServer(), BrokerConfig(node_id=1), start=False)
        lost, again = ControllerWrites(member.store), ControllerWrites(member.store)
        for writes in (lost, again):
            assert await ControllerElection(member.store, 1, ManualClock(), writes).run()
        assert (lost.epoch, again.epoch) == (1, 2)
        with pytest.raises(KafkaError) as refused:
            await lost.write([Create("/x")])
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
        await again.write([Create("/x")])

    asyncio.run(scenario())


def test_write_of_unknown_outcome_makes_the_controller_resign(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        member = await join(MemoryServer(), BrokerConfig(node_id=1))

        async def lost(operations: object) -> list[int]:
            raise UnknownOutcomeError("on purpose")

        with monkeypatch.context() as patch:
            patch.setattr(member.store, "multi", lost)
            result = (await member.controller.topics.create([NewTopic("t")]))["t"]
        assert isinstance(result, KafkaError)
        assert result.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert not member.controller.active
        member.store.session.enter(SessionState.SUSPENDED)
        member.store.session.enter(SessionState.CONNECTED)
        await until(lambda: member.controller.active)
        assert not isinstance((await member.controller.topics.create([NewTopic("t")]))["t"], KafkaError)

    asyncio.run(scenario())


def test_controller_that_resigns_over_a_connection_that_lives_takes_part_in_the_next_election(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its node `/controller` stays, so without this election the cluster would have no controller."""

    async def scenario() -> None:
        member = await join(MemoryServer(), BrokerConfig(node_id=1))

        async def timed_out(operations: object) -> list[int]:
            raise UnknownOutcomeError("on purpose")

        with monkeypatch.context() as patch:
            patch.setattr(member.store, "multi", timed_out)
            assert isinstance((await member.controller.topics.create([NewTopic("t")]))["t"], KafkaError)
        await until(lambda: member.controller.active)
        stored = await member.store.get(znodes.CONTROLLER_EPOCH)
        await member.store.set(znodes.CONTROLLER_EPOCH, stored.data, stored.version)  # by an operator
        assert isinstance((await member.controller.topics.create([NewTopic("t")]))["t"], KafkaError)
        await until(lambda: member.controller.active)
        assert not isinstance((await member.controller.topics.create([NewTopic("t")]))["t"], KafkaError)

    asyncio.run(scenario())


def test_broker_registers_again_after_a_lost_session_and_runs_for_controller() -> None:
    async def scenario() -> None:
        server = MemoryServer()
        member = await join(server, BrokerConfig(node_id=1))
        epoch = member.controller.registration.epoch
        assert epoch == (await member.store.get(znodes.broker(1))).created
        member.store.expire()
        assert not member.controller.active
        member.store.begin_again()
        await until(lambda: member.controller.active and 1 in member.image.brokers)
        assert member.image.brokers[1].epoch == member.controller.registration.epoch > epoch

    asyncio.run(scenario())


def test_broker_that_could_not_register_again_at_once_tries_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        member = await join(MemoryServer(), BrokerConfig(node_id=1))
        member.store.expire()
        create = member.store.create
        refused: list[object] = []

        async def refuse_once(*args: Any, **options: Any) -> Any:
            if not refused:
                refused.append(args)
                raise StoreUnavailableError("on purpose")
            return await create(*args, **options)

        with monkeypatch.context() as patch:
            patch.setattr(member.store, "create", refuse_once)
            member.store.begin_again()
            async with asyncio.timeout(60):
                while not (member.controller.active and 1 in member.image.brokers):
                    await asyncio.sleep(0.01)
        assert refused

    asyncio.run(scenario())


def test_broker_that_meets_a_damaged_node_when_it_registers_again_waits_until_the_node_is_mended() -> None:
    async def scenario() -> None:
        server = MemoryServer()
        member = await join(server, BrokerConfig(node_id=1))
        other = await join(server, BrokerConfig(node_id=2))
        assert not isinstance((await member.controller.topics.create([NewTopic("t")]))["t"], KafkaError)
        path = znodes.CONTROLLER_EPOCH
        good = (await other.store.get(path)).data
        member.store.expire()
        failures: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        await other.store.set(path, b"{")
        member.store.begin_again()
        await asyncio.sleep(1)
        await other.store.set(path, good)
        await until(lambda: 1 in member.image.brokers and not member.controller._must_join)
        assert not failures

    asyncio.run(scenario())


def test_broker_that_has_stopped_does_not_register_again() -> None:
    async def scenario() -> None:
        server = MemoryServer()
        member = await join(server, BrokerConfig(node_id=1))
        other = await join(server, BrokerConfig(node_id=2))
        await member.controller.stop()
        member.store.expire()
        member.store.begin_again()
        await until(lambda: other.controller.active and 1 not in other.image.brokers)
        for _ in range(100):
            await asyncio.sleep(0)
        assert 1 not in other.image.brokers

    asyncio.run(scenario())


def test_broker_takes_over_when_the_controller_goes() -> None:
    async def scenario() -> None:
        server = MemoryServer()
        first = await join(server, BrokerConfig(node_id=1))
        second = await join(server, BrokerConfig(node_id=2))
        await first.store.close()
        await until(lambda: second.controller.active)

    asyncio.run(scenario())


def test_log_says_how_long_a_controller_took_over(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        server = MemoryServer()
        first = await join(server, BrokerConfig(node_id=1))
        await join(server, BrokerConfig(node_id=2))
        assert "broker 2 has taken over" not in caplog.text
        await first.store.close()
        await until(lambda: "broker 2 has taken over as the controller" in caplog.text)

    with caplog.at_level("INFO", logger="barnabas.broker.controller"):
        asyncio.run(scenario())


def test_broker_whose_id_was_taken_while_it_was_away_has_to_stop() -> None:
    async def scenario() -> None:
        server = MemoryServer()
        failures: list[Exception] = []
        member = await join(server, BrokerConfig(node_id=1), on_failure=failures.append)
        member.store.expire()
        other = await join(server, BrokerConfig(node_id=1))
        member.store.begin_again()
        await until(lambda: bool(failures))
        assert isinstance(failures[0], NodeExistsError)
        assert other.controller.active

    asyncio.run(scenario())


def test_controller_that_becomes_isolated_without_the_store_makes_way_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Simulation seed 310005: its session outlived the break, and the cluster had no controller any more."""

    async def scenario() -> None:
        server = MemoryServer()
        first = await join(server, BrokerConfig(node_id=1))
        second = await join(server, BrokerConfig(node_id=2))
        for member in (first, second):
            await member.controller.enter()

        async def away(*args: object) -> None:
            raise StoreUnavailableError("on purpose")

        with monkeypatch.context() as patch:
            patch.setattr(first.store, "exists", away)
            first.store.session.enter(SessionState.SUSPENDED)
            first.controller.note_isolation(True)
            await until(lambda: first.controller._stepping_down and first.controller._stepping_down.done())
        assert not second.controller.active
        first.store.session.enter(SessionState.CONNECTED)
        await until(lambda: second.controller.active)
        assert not first.controller.active

    asyncio.run(scenario())


@pytest.mark.parametrize("has_ended", [False, True])
def test_broker_that_becomes_isolated_during_its_election_makes_way(
    monkeypatch: pytest.MonkeyPatch, has_ended: bool
) -> None:
    """If the isolation has ended before the broker has made way, the broker stays the controller."""

    async def scenario() -> None:
        server = MemoryServer()
        first = await join(server, BrokerConfig(node_id=1))
        second = await join(server, BrokerConfig(node_id=2))
        for member in (first, second):
            await member.controller.enter()
        multi = first.store.multi

        async def meanwhile(operations: Any) -> list[int]:
            is_election = any(each.path == znodes.CONTROLLER_EPOCH for each in operations[1:])
            if is_election:
                patch.undo()
                first.controller.note_isolation(True)
            versions = await multi(operations)
            if is_election and has_ended:
                first.controller.note_isolation(False)
            return versions

        with monkeypatch.context() as patch:
            patch.setattr(first.store, "multi", meanwhile)
            first.controller._writes.resign()
            first.controller._begin_join()
            await until(lambda: first.store.multi == multi)
        await until(lambda: (first if has_ended else second).controller.active)
        await until(lambda: first.image.brokers[1].is_isolated is not has_ended)
        assert (first.controller.active, second.controller.active) == (has_ended, not has_ended)

    asyncio.run(scenario())


def test_controller_whose_isolation_has_ended_before_it_made_way_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The store answers late. Meanwhile the broker is elected again."""

    async def scenario() -> None:
        server = MemoryServer()
        first = await join(server, BrokerConfig(node_id=1))
        second = await join(server, BrokerConfig(node_id=2))
        for member in (first, second):
            await member.controller.enter()
        exists, late = first.store.exists, asyncio.Event()

        async def answers_late(path: str) -> Any:
            if path == znodes.broker(1):
                await late.wait()
            return await exists(path)

        with monkeypatch.context() as patch:
            patch.setattr(first.store, "exists", answers_late)
            first.controller.note_isolation(True)
            await asyncio.sleep(0)
        first.controller.note_isolation(False)
        await until(lambda: first.controller.active)
        epoch = first.controller._writes.epoch
        late.set()
        await until(lambda: first.controller._stepping_down and first.controller._stepping_down.done())
        assert (first.controller.active, first.controller._writes.epoch) == (True, epoch)
        assert not first.image.brokers[1].is_isolated

    asyncio.run(scenario())


def test_change_of_the_registration_that_the_store_could_not_write_is_written_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The disk of the store's server was full, and the broker waited without end for its admission."""

    async def scenario() -> None:
        member = await join(MemoryServer(), BrokerConfig(node_id=1), state=BrokerState.STARTING)
        for _ in range(100):
            await asyncio.sleep(0)
        refused: list[str] = []

        async def full(path: str, data: bytes, version: int = -1) -> int:
            patch.undo()
            refused.append(path)
            raise StoreUnavailableError("on purpose")

        with monkeypatch.context() as patch:
            patch.setattr(member.store, "set", full)
            async with asyncio.timeout(60):
                await member.controller.enter()
        assert refused == [znodes.broker(1)]

    asyncio.run(scenario())


def test_controller_that_stops_takes_part_in_no_more_elections(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that has failed during the stop requests an election."""

    async def scenario() -> None:
        server = MemoryServer()
        member = await join(server, BrokerConfig(node_id=1))
        stopped = member.controller.partitions.stop

        async def fails_meanwhile() -> None:
            member.controller.partitions._begin_again()
            await stopped()

        monkeypatch.setattr(member.controller.partitions, "stop", fails_meanwhile)
        await member.controller.stop()
        for _ in range(100):
            await asyncio.sleep(0)
        assert not member.controller.active

    asyncio.run(scenario())


# --- elections ---


def test_restart_begins_a_new_leader_epoch_in_every_partition() -> None:
    async def scenario() -> None:
        server = MemoryServer()
        member = await join(server, BrokerConfig(node_id=1))
        await member.controller.topics.create([NewTopic("t", 3, 1)])
        await member.store.close()
        again = await join(server, BrokerConfig(node_id=1))
        assert [(s.leader, s.leader_epoch) for s in again.image.topics["t"].partitions] == [(1, 1)] * 3

    asyncio.run(scenario())


# --- placement ---


def test_leaders_and_followers_are_spread_evenly() -> None:
    placed = place_replicas([broker_image(n) for n in range(1, 5)], 24, 3, Random(7))
    for position in range(3):
        holders = [replicas[position] for replicas in placed]
        assert {holders.count(broker) for broker in range(1, 5)} == {6}
    assert all(len(set(replicas)) == 3 for replicas in placed)


def test_replicas_stand_in_different_racks_when_there_are_as_many() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    brokers = [broker_image(number, rack) for number, rack in racks.items()]
    for replicas in place_replicas(brokers, 4, 2, Random(7)):
        assert {racks[broker] for broker in replicas} == {"a", "b"}


@pytest.mark.parametrize("factor", range(1, 8))
def test_racks_get_further_replicas_in_turn_up_to_all_brokers(factor: int) -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "a", 6: "a"}
    brokers = [broker_image(number, rack) for number, rack in racks.items()]
    if factor > len(brokers):
        with pytest.raises(KafkaError, match="needs 7 brokers, and the cluster has 6"):
            place_replicas(brokers, 40, factor, Random(7))
        return
    for replicas in place_replicas(brokers, 40, factor, Random(7)):
        held = [racks[broker] for broker in replicas]
        assert len(set(replicas)) == factor
        assert len(set(held[:2])) == min(factor, 2)
        assert held.count("b") in {factor // 2, (factor + 1) // 2, 2}


# --- producer ids ---


def test_blocks_of_producer_ids_never_overlap_even_after_a_restart() -> None:
    async def scenario() -> None:
        server = MemoryServer()
        member = await join(server, BrokerConfig(node_id=1))
        blocks = list(await asyncio.gather(*(member.controller.producer_ids.allocate(1) for _ in range(3))))
        await member.store.close()
        again = await join(server, BrokerConfig(node_id=1))
        blocks.append(await again.controller.producer_ids.allocate(1))
        ids = [producer_id for block in blocks for producer_id in block]
        assert sorted(ids) == list(range(4000))
        stored = await again.store.get(znodes.PRODUCER_ID_BLOCK)
        assert json.loads(stored.data)["block_start"] == "3000"
        assert json.loads(stored.data)["block_end"] == "3999"

    asyncio.run(scenario())


# --- settings ---


async def alter(
    member: Member, resource: ConfigResource, *changes: ConfigChange, **options: Any
) -> ErrorCode:
    errors = await member.controller.configs.alter({resource: changes}, **options)
    return errors[resource].code if errors else ErrorCode.NONE


def change(name: str, operation: AlterOperation, value: str | None = None) -> ConfigChange:
    return ConfigChange(name, operation, value)


SET_RETENTION = change("log.retention.ms", AlterOperation.SET, "5")


def test_settings_are_set_and_deleted_one_by_one(play: Play) -> None:
    async def scenario(member: Member) -> None:
        await member.controller.topics.create([NewTopic("t")])
        await alter(member, TOPIC, change("retention.ms", AlterOperation.SET, " 5 "))
        await alter(member, TOPIC, change("segment.bytes", AlterOperation.SET, "100"))
        assert member.image.topic_config("t") == {"retention.ms": "5", "segment.bytes": "100"}
        await alter(member, TOPIC, change("retention.ms", AlterOperation.DELETE))
        assert member.image.topic_config("t") == {"segment.bytes": "100"}
        await alter(member, TOPIC, change("segment.bytes", AlterOperation.DELETE))
        assert not member.image.topic_configs

    play(scenario)


def test_lists_are_appended_to_and_subtracted_from_what_holds_now(play: Play) -> None:
    async def scenario(member: Member) -> None:
        await member.controller.topics.create([NewTopic("t")])

        async def policy(operation: AlterOperation, value: str) -> str:
            assert await alter(member, TOPIC, change("cleanup.policy", operation, value)) is ErrorCode.NONE
            return member.image.topic_config("t")["cleanup.policy"]

        assert await policy(AlterOperation.APPEND, "compact") == "delete,compact"
        assert await policy(AlterOperation.APPEND, "compact,delete") == "delete,compact"
        assert await policy(AlterOperation.SUBTRACT, "delete,unheard-of") == "compact"
        assert await policy(AlterOperation.SET, "delete, delete") == "delete"

    play(scenario)


def test_list_that_a_topic_does_not_set_begins_with_its_default_as_in_apache_kafka(play: Play) -> None:
    async def scenario(member: Member) -> None:
        await member.controller.topics.create([NewTopic("t")])
        await alter(member, EVERY_BROKER, change("log.cleanup.policy", AlterOperation.SET, "compact"))
        await alter(member, TOPIC, change("cleanup.policy", AlterOperation.APPEND, "delete"))
        assert member.image.topic_config("t")["cleanup.policy"] == "delete"

    play(scenario)


def test_replacing_unsets_what_is_not_named(play: Play) -> None:
    async def scenario(member: Member) -> None:
        await member.controller.topics.create([NewTopic("t", configs={"retention.ms": "5"})])
        assert await member.controller.configs.replace({TOPIC: {"segment.bytes": "100"}}) == {}
        assert member.image.topic_config("t") == {"segment.bytes": "100"}
        assert await member.controller.configs.replace({TOPIC: {}}) == {}
        assert member.image.topic_config("t") == {}

    play(scenario)


def test_validating_only_changes_nothing(play: Play) -> None:
    async def scenario(member: Member) -> None:
        await member.controller.topics.create([NewTopic("t")])
        step = change("retention.ms", AlterOperation.SET, "5")
        assert await alter(member, TOPIC, step, validate_only=True) is ErrorCode.NONE
        bad = change("retention.ms", AlterOperation.SET, "x")
        assert await alter(member, TOPIC, bad, validate_only=True) is ErrorCode.INVALID_CONFIG
        assert member.image.topic_config("t") == {}

    play(scenario)


def test_settings_of_one_broker_and_of_all_brokers_are_kept_apart(play: Play) -> None:
    async def scenario(member: Member) -> None:
        await alter(member, BROKER, change("log.segment.bytes", AlterOperation.SET, "100"))
        await alter(member, EVERY_BROKER, change("log.segment.bytes", AlterOperation.SET, "200"))
        assert dict(member.image.broker_configs) == {
            "1": {"log.segment.bytes": "100"},
            ALL_BROKERS: {"log.segment.bytes": "200", MIN_ISR: "1"},
        }

    play(scenario)


def test_append_for_all_brokers_does_not_take_over_what_one_broker_has(play: Play) -> None:
    async def scenario(member: Member) -> None:
        await alter(member, BROKER, change("log.cleanup.policy", AlterOperation.SET, "compact"))
        await alter(member, EVERY_BROKER, change("log.cleanup.policy", AlterOperation.APPEND, "compact"))
        assert member.image.broker_config(ALL_BROKERS)["log.cleanup.policy"] == "delete,compact"

    play(scenario)


def test_min_insync_replicas_is_one_value_of_the_cluster(play: Play) -> None:
    """The controller and the leaders use it to decide which replicas have all committed records (KIP-966)."""

    async def scenario(member: Member) -> None:
        set_two, remove = change(MIN_ISR, AlterOperation.SET, "2"), change(MIN_ISR, AlterOperation.DELETE)
        replace = member.controller.configs.replace
        assert await alter(member, BROKER, set_two) is ErrorCode.INVALID_CONFIG
        assert (await replace({BROKER: {MIN_ISR: "2"}}))[BROKER].code is ErrorCode.INVALID_CONFIG
        # Kafka refuses also to delete what a single broker does not have.
        assert await alter(member, BROKER, remove) is ErrorCode.INVALID_CONFIG
        assert await alter(member, EVERY_BROKER, set_two) is ErrorCode.NONE
        assert await alter(member, EVERY_BROKER, remove) is ErrorCode.INVALID_CONFIG
        assert (await replace({EVERY_BROKER: {}}))[EVERY_BROKER].code is ErrorCode.INVALID_CONFIG
        assert member.image.broker_config(ALL_BROKERS) == {MIN_ISR: "2"}
        assert await alter(member, EVERY_BROKER, change(MIN_ISR, AlterOperation.SET, "1")) is ErrorCode.NONE
        assert await alter(member, TOPIC, set_two) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await member.controller.topics.create([NewTopic("t")])
        for step in (set_two, remove):
            assert await alter(member, TOPIC, step) is ErrorCode.NONE

    play(scenario)


def test_first_controller_stores_the_value_that_it_was_started_with_for_the_whole_cluster() -> None:
    """Kafka 4.1 does the same with eligible leader replicas. The next controller's
    own value has no effect.
    """

    async def scenario() -> None:
        server = MemoryServer()
        first = await join(server, BrokerConfig.from_text({"node.id": "1", MIN_ISR: "2"}))
        assert dict(first.image.broker_configs) == {ALL_BROKERS: {MIN_ISR: "2"}}
        second = await join(server, BrokerConfig.from_text({"node.id": "2", MIN_ISR: "3"}))
        await first.store.close()
        await until(lambda: second.controller.active)
        await second.controller.topics.create([NewTopic("t")])
        assert dict(second.image.broker_configs) == {ALL_BROKERS: {MIN_ISR: "2"}}

    asyncio.run(scenario())


def test_values_of_single_brokers_that_an_earlier_version_stored_are_removed() -> None:
    async def scenario() -> None:
        server = MemoryServer()
        before = await join(server, BrokerConfig(node_id=1))
        stored = {"1": {MIN_ISR: "3"}, "2": {MIN_ISR: "2", "log.retention.ms": "5"}}
        for name, texts in stored.items():
            await before.store.create(znodes.broker_config(name), znodes.encode_config(texts))
        await before.store.delete(znodes.broker_config(ALL_BROKERS))
        await before.store.close()
        member = await join(server, BrokerConfig.from_text({"node.id": "1", MIN_ISR: "2"}))
        assert dict(member.image.broker_configs) == {
            "2": {"log.retention.ms": "5"},
            ALL_BROKERS: {MIN_ISR: "2"},
        }

    asyncio.run(scenario())


def test_value_of_the_cluster_that_somebody_deletes_in_the_store_is_there_again(play: Play) -> None:
    async def scenario(member: Member) -> None:
        await member.store.delete(znodes.broker_config(ALL_BROKERS))
        await until(lambda: not member.image.broker_configs)
        await until(lambda: member.image.broker_configs)
        assert dict(member.image.broker_configs) == {ALL_BROKERS: {MIN_ISR: "1"}}

    play(scenario)


def test_broker_that_was_started_with_another_value_than_the_cluster_has_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        server = MemoryServer()
        for number, given in enumerate(({MIN_ISR: "2"}, {MIN_ISR: "3"}, {MIN_ISR: "2"}, {}), start=1):
            member = await join(server, BrokerConfig.from_text({"node.id": str(number), **given}))
            await member.controller.enter()
        assert [
            record.getMessage().split(":")[0]
            for record in caplog.records
            if record.levelname == "WARNING" and MIN_ISR in record.getMessage()
        ] == [f"{MIN_ISR}=3 of this broker's start has no effect"]

    asyncio.run(scenario())


def test_kerberos_settings_of_a_broker_that_does_not_use_it_are_stored(play: Play) -> None:
    """librdkafka's and Kafka's tools set them, whatever the broker's mechanisms are."""

    async def scenario(member: Member) -> None:
        name = "sasl.kerberos.min.time.before.relogin"
        assert await alter(member, BROKER, change(name, AlterOperation.SET, "58000")) is ErrorCode.NONE
        assert await member.controller.configs.replace({BROKER: {name: "59000"}}) == {}
        assert member.image.broker_config("1") == {name: "59000"}
        assert await alter(member, BROKER, change(name, AlterOperation.SET, "x")) is ErrorCode.INVALID_REQUEST

    play(scenario)


RULES = "sasl.kerberos.principal.to.local.rules"


@pytest.mark.parametrize("prefix", ["", "listener.name.later.", "listener.name.later.gssapi."])
@pytest.mark.parametrize(("name", "value"), [("sasl.kerberos.service.name", "queue"), (RULES, "DEFAULT")])
def test_kerberos_names_are_a_brokers_own_and_of_listeners_that_it_does_not_have_yet(
    play: Play, prefix: str, name: str, value: str
) -> None:
    """As in Kafka (KIP-226), an open listener uses its present values until the next start."""

    async def scenario(member: Member) -> None:
        assert await alter(member, BROKER, change(prefix + name, AlterOperation.SET, value)) is ErrorCode.NONE
        assert member.image.broker_config("1") == {prefix + name: value}
        for refused in EVERY_BROKER, ConfigResource(ResourceType.BROKER, "2"):
            step = change(prefix + name, AlterOperation.SET, value)
            assert await alter(member, refused, step) is ErrorCode.INVALID_REQUEST
        assert await alter(member, BROKER, change(prefix + name, AlterOperation.DELETE)) is ErrorCode.NONE

    play(scenario)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        (
            "listener.name.plaintext.sasl.kerberos.service.name",
            "kafka",
            "dynamically for an existing listener",
        ),
        (f"listener.name.PLAINTEXT.gssapi.{RULES}", "DEFAULT", "dynamically for an existing listener"),
        (RULES, "RULE:x", "which is not a rule"),
        (f"listener.name.later.{RULES}", "RULE:x", "which is not a rule"),
    ],
)
def test_kerberos_names_that_a_broker_could_not_use_are_refused(
    play: Play, name: str, value: str, reason: str
) -> None:
    async def scenario(member: Member) -> None:
        steps = [change(name, AlterOperation.SET, value)]
        error = (await member.controller.configs.alter({BROKER: steps}))[BROKER]
        assert error.code is ErrorCode.INVALID_REQUEST
        assert reason in error.message
        assert member.image.broker_config("1") == {}

    play(scenario)


@pytest.mark.parametrize(
    ("resource", "step", "expected"),
    [
        (TOPIC, change("no.such", AlterOperation.SET, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, change("no.such", AlterOperation.DELETE), ErrorCode.NONE),
        (TOPIC, change("retention.ms", AlterOperation.SET, "x"), ErrorCode.INVALID_CONFIG),
        (TOPIC, change("retention.ms", AlterOperation.SET, None), ErrorCode.INVALID_REQUEST),
        (TOPIC, change("retention.ms", AlterOperation.APPEND, "5"), ErrorCode.INVALID_CONFIG),
        (TOPIC, change("cleanup.policy", AlterOperation.APPEND, "hide"), ErrorCode.INVALID_CONFIG),
        (TOPIC, ConfigChange("retention.ms", 9, "5"), ErrorCode.INVALID_REQUEST),
        (TOPIC, change("log.retention.ms", AlterOperation.SET, "5"), ErrorCode.INVALID_CONFIG),
        (BROKER, change("log.retention.ms", AlterOperation.SET, "x"), ErrorCode.INVALID_REQUEST),
        (BROKER, change("no.such", AlterOperation.SET, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, change("node.id", AlterOperation.SET, "5"), ErrorCode.INVALID_REQUEST),
        (EVERY_BROKER, change("log.dirs", AlterOperation.SET, "x"), ErrorCode.INVALID_REQUEST),
        (
            ConfigResource(ResourceType.GROUP, "g"),
            change("consumer.session.timeout.ms", AlterOperation.SET, "5"),
            ErrorCode.INVALID_CONFIG,
        ),
        (
            ConfigResource(ResourceType.TOPIC, "nope"),
            change("retention.ms", AlterOperation.SET, "5"),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (
            ConfigResource(ResourceType.TOPIC, "a b"),
            change("retention.ms", AlterOperation.SET, "5"),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ),
        *(
            (
                ConfigResource(kind, name),
                change("log.retention.ms", AlterOperation.SET, "5"),
                ErrorCode.INVALID_REQUEST,
            )
            for kind, name in [
                (ResourceType.BROKER, "7"),
                (ResourceType.BROKER, "one"),
                (ResourceType.BROKER_LOGGER, "1"),
                (ResourceType.CLIENT_METRICS, "m"),
                (ResourceType.CLIENT_METRICS, ""),
                (ResourceType.GROUP, ""),
                (99, "x"),
            ]
        ),
    ],
    ids=str,
)
def test_change_that_must_not_be_is_refused_and_changes_nothing(
    play: Play, resource: ConfigResource, step: ConfigChange, expected: ErrorCode
) -> None:
    async def scenario(member: Member) -> None:
        await member.controller.topics.create([NewTopic("t", configs={"segment.bytes": "100"})])
        before = member.image
        good = change("retention.ms", AlterOperation.SET, "7")
        steps = (good, step) if resource == TOPIC and expected is not ErrorCode.NONE else (step,)
        assert await alter(member, resource, *steps) is expected
        assert member.image.topic_configs == before.topic_configs
        assert member.image.broker_configs == before.broker_configs

    play(scenario)
