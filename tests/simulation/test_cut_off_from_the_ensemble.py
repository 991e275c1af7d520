"""Brokers that cannot reach the ensemble, and clients that know only such a broker."""

from __future__ import annotations

from soak.simulated.client import GROUP, TRANSACTION
from soak.simulated.plan import SESSION_TIMEOUT
from soak.simulated.stage import host_of
from tests.simulation.scene import AT_ONCE, Scene, play

from barnabas.base.errors import ErrorCode
from barnabas.base.types import TopicPartition
from barnabas.broker.metadata.store import SessionState


def test_deposed_coordinator_does_not_answer_with_offsets_that_have_moved_on() -> None:
    async def scenario(scene: Scene) -> None:
        deposed = await scene.coordinator(GROUP, scene.group)
        assert await scene.commit(deposed, 5) == 0
        scene.ensemble.cut(host_of(deposed))
        successor = await scene.successor(deposed)
        assert await scene.commit(successor, 9) == 0
        assert await scene.committed(successor) == 9
        assert await scene.committed(deposed) is ErrorCode.NOT_COORDINATOR
        scene.ensemble.heal(host_of(deposed))

    play(scenario)


def test_deposed_leader_does_not_answer_with_an_end_of_the_log_that_has_moved_on() -> None:
    async def scenario(scene: Scene) -> None:
        place = TopicPartition("events", 0)
        deposed = scene.leader_of(place)
        assert await scene.latest(deposed) == 0
        scene.ensemble.cut(host_of(deposed))
        await scene.successor_of(deposed, place)
        assert await scene.latest(deposed) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    play(scenario)


def test_deposed_leader_does_not_tell_a_reader_that_newer_offsets_are_out_of_range() -> None:
    """The reader would begin at the log start, and do its work again."""

    async def scenario(scene: Scene) -> None:
        place = TopicPartition("events", 0)
        deposed = scene.leader_of(place)
        assert await scene.read(deposed, place, 1) is ErrorCode.OFFSET_OUT_OF_RANGE
        scene.ensemble.cut(host_of(deposed))
        successor = await scene.successor_of(deposed, place)
        assert await scene.produce(successor, place) is ErrorCode.NONE
        assert await scene.read(successor, place, 1) is ErrorCode.NONE
        assert await scene.read(deposed, place, 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    play(scenario)


def test_ensemble_that_is_away_stops_nothing_that_needs_no_decision() -> None:
    async def scenario(scene: Scene) -> None:
        coordinator = await scene.coordinator(GROUP, scene.group)
        of_transactions = await scene.coordinator(TRANSACTION, "writer")
        leader = scene.leader_of(TopicPartition("events", 0))
        assert await scene.init(of_transactions, "writer") == 0
        for number in scene.cluster.brokers:
            scene.ensemble.cut(host_of(number))
        for offset in range(8):
            await scene.survey.pause_for(SESSION_TIMEOUT / 2)
            began = scene.survey.time()
            assert await scene.commit(coordinator, offset) == 0
            assert await scene.committed(coordinator) == offset
            assert await scene.latest(leader) == 0
            assert await scene.init(of_transactions, "writer") == offset + 1
            assert scene.survey.time() - began < AT_ONCE
        assert scene.state(coordinator) is SessionState.OVERDUE
        for number in scene.cluster.brokers:
            scene.ensemble.heal(host_of(number))

    play(scenario)


def test_dead_member_of_the_isr_needs_a_decision_and_the_ensemble() -> None:
    async def scenario(scene: Scene) -> None:
        coordinator = await scene.coordinator(GROUP, scene.group)
        assert await scene.commit(coordinator, 5) == 0
        for number in scene.cluster.brokers:
            scene.ensemble.cut(host_of(number))
        other = next(number for number in scene.cluster.brokers if number != coordinator)
        scene.cluster.brokers[other].kill(power=False)
        await scene.survey.pause_for(SESSION_TIMEOUT)
        assert await scene.committed(coordinator) is ErrorCode.NOT_COORDINATOR
        for number in scene.cluster.brokers:
            scene.ensemble.heal(host_of(number))
        await scene.survey.pause_for(2 * SESSION_TIMEOUT)
        coordinator = await scene.coordinator(GROUP, scene.group)
        assert await scene.committed(coordinator) == 5

    play(scenario)


def test_leader_alone_in_sync_cannot_have_been_replaced() -> None:
    async def scenario(scene: Scene) -> None:
        coordinator = await scene.coordinator(GROUP, scene.group)
        assert await scene.commit(coordinator, 5) == 0
        for number, broker in scene.cluster.brokers.items():
            if number != coordinator:
                broker.kill(power=True)
        await scene.survey.pause_for(3 * SESSION_TIMEOUT)
        offsets = scene.group_partition
        partition = scene.broker(coordinator).replicas.find(*offsets)
        assert partition.state.isr == (coordinator,)
        scene.ensemble.cut(host_of(coordinator))
        await scene.survey.pause_for(2 * SESSION_TIMEOUT)
        began = scene.survey.time()
        expected = 5 if not partition.successors else ErrorCode.NOT_COORDINATOR
        assert await scene.committed(coordinator) == expected
        assert partition.successors or scene.survey.time() - began < AT_ONCE

    play(scenario)


def test_broker_that_hears_of_its_later_registration_leads_and_coordinates_no_more() -> None:
    """STALE_BROKER_EPOCH is the answer to an ISR that the former leader proposes."""

    async def scenario(scene: Scene) -> None:
        deposed = await scene.coordinator_beside_controller()
        assert await scene.commit(deposed, 5) == 0
        scene.ensemble.cut(host_of(deposed))
        successor = await scene.successor(deposed)
        assert scene.leads(deposed, scene.group_partition)
        # What it appends is not copied, so it asks the controller for another ISR.
        assert await scene.commit(deposed, 6) == ErrorCode.NOT_COORDINATOR
        await scene.survey.pause_for(2 * SESSION_TIMEOUT)
        assert not scene.leads(deposed, scene.group_partition)
        assert list(scene.broker(deposed).groups.partitions()) == []
        assert list(scene.broker(deposed).transactions.partitions()) == []
        began = scene.survey.time()
        assert await scene.committed(deposed) is ErrorCode.NOT_COORDINATOR
        assert scene.survey.time() - began < AT_ONCE
        scene.ensemble.heal(host_of(deposed))
        await scene.survey.pause_for(2 * SESSION_TIMEOUT)
        state = scene.broker(successor).replicas.find(*scene.group_partition).state
        assert sorted(state.isr) == sorted(scene.cluster.brokers)

    play(scenario)
