"""Brokers that can reach the ensemble and their clients, but no other broker."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from soak.simulated.plan import SESSION_TIMEOUT
from soak.simulated.stage import host_of
from tests.simulation.scene import Scene, play

from barnabas.base.errors import ErrorCode
from barnabas.base.types import TopicPartition
from barnabas.broker.metadata import znodes


def part(scene: Scene, broker: int, *, heal: bool = False) -> None:
    """Cut a broker off from all others, in both directions."""
    network = scene.survey.stage.network
    for other in scene.cluster.brokers:
        if other != broker:
            (network.heal if heal else network.cut)(host_of(broker), host_of(other))


def controllers(scene: Scene, brokers: Iterable[int]) -> list[int]:
    return [number for number in brokers if scene.broker(number).controller.active]


@pytest.mark.parametrize("leads", [False, True], ids=["another-is-controller", "it-is-the-controller"])
@pytest.mark.parametrize("is_damaged", [False, True], ids=["no-damage", "a-node-is-damaged"])
def test_leader_that_reaches_no_broker_makes_way_for_another(leads: bool, is_damaged: bool) -> None:
    async def scenario(scene: Scene) -> None:
        everyone = list(scene.cluster.brokers)
        (controller,) = controllers(scene, everyone)
        isolated = controller if leads else next(each for each in everyone if each != controller)
        events = scene.partition_led_by(isolated)
        others = [each for each in everyone if each != isolated]
        if is_damaged:
            store = await scene.ensemble.open("user")
            await store.create(znodes.topic_config("other"), b"{")
            await store.close()
        part(scene, isolated)
        began = scene.survey.time()
        successor = await scene.successor_of(isolated, events, within=4 * SESSION_TIMEOUT)
        while await scene.produce(successor, events) is not ErrorCode.NONE:
            await scene.survey.pause_for(0.2)
            assert scene.survey.time() - began < 4 * SESSION_TIMEOUT
        assert len(controllers(scene, others)) == 1
        state = scene.broker(successor).replicas.find(*events).state
        assert sorted(state.isr) == others
        part(scene, isolated, heal=True)
        await scene.survey.pause_for(2 * SESSION_TIMEOUT)
        state = scene.broker(successor).replicas.find(*events).state
        assert sorted(state.isr) == everyone
        assert not any(broker.is_isolated for broker in scene.broker(successor).image.brokers.values())

    play(scenario)


@pytest.mark.parametrize("after", [number / 12 for number in range(12)], ids="{:.2f}".format)
def test_only_the_controller_makes_way_when_it_is_cut_off_whenever_the_others_look(after: float) -> None:
    """Each broker makes its checks at other times than the controller, and none takes itself for isolated."""

    async def scenario(scene: Scene) -> None:
        everyone = list(scene.cluster.brokers)
        (controller,) = controllers(scene, everyone)
        others = [each for each in everyone if each != controller]
        await scene.survey.pause_for(after * SESSION_TIMEOUT)
        part(scene, controller)
        deadline = scene.survey.time() + 6 * SESSION_TIMEOUT
        while scene.survey.time() < deadline:
            await scene.survey.pause_for(0.05)
            brokers = scene.broker(others[0]).image.brokers
            assert not any(brokers[other].is_isolated for other in others)
        assert len(controllers(scene, others)) == 1

    play(scenario)


def test_two_brokers_that_reach_each_other_go_on_after_all_were_isolated() -> None:
    async def scenario(scene: Scene) -> None:
        everyone = list(scene.cluster.brokers)
        for broker in everyone:
            part(scene, broker)
        await scene.survey.pause_for(6 * SESSION_TIMEOUT)
        (controller,) = controllers(scene, everyone)
        others = [each for each in everyone if each != controller]
        network = scene.survey.stage.network
        network.heal(host_of(others[0]), host_of(others[1]))
        network.heal(host_of(others[1]), host_of(others[0]))
        await scene.survey.pause_for(8 * SESSION_TIMEOUT)
        assert len(controllers(scene, others)) == 1
        for number in range(6):
            events = TopicPartition("events", number)
            assert await scene.produce(scene.leader_of(events), events) is ErrorCode.NONE

    play(scenario)


def test_leader_whose_followers_are_dead_leads_on() -> None:
    async def scenario(scene: Scene) -> None:
        everyone = list(scene.cluster.brokers)
        (controller,) = controllers(scene, everyone)
        leader = next(each for each in everyone if each != controller)
        events = scene.partition_led_by(leader)
        follower = next(each for each in everyone if each not in (leader, controller))
        scene.cluster.brokers[follower].kill(power=False)
        scene.cluster.brokers[controller].kill(power=False)
        await scene.survey.pause_for(6 * SESSION_TIMEOUT)
        decided = scene.survey.stage.decided(*events)
        assert decided is not None and decided.leader == leader
        assert not scene.broker(leader).image.brokers[leader].is_isolated

    play(scenario)


def test_nobody_makes_way_while_the_ensemble_is_away() -> None:
    async def scenario(scene: Scene) -> None:
        everyone = list(scene.cluster.brokers)
        (controller,) = controllers(scene, everyone)
        leader = next(each for each in everyone if each != controller)
        for number in everyone:
            scene.ensemble.cut(host_of(number))
        part(scene, leader)
        await scene.survey.pause_for(4 * SESSION_TIMEOUT)
        part(scene, leader, heal=True)
        for number in everyone:
            scene.ensemble.heal(host_of(number))
        await scene.survey.pause_for(SESSION_TIMEOUT)
        assert not any(broker.is_isolated for broker in scene.broker(leader).image.brokers.values())

    play(scenario)


def test_link_that_breaks_for_less_than_a_session_moves_nothing() -> None:
    async def scenario(scene: Scene) -> None:
        everyone = list(scene.cluster.brokers)
        (controller,) = controllers(scene, everyone)
        leader = next(each for each in everyone if each != controller)
        events = scene.partition_led_by(leader)
        before = scene.survey.stage.decided(*events)
        for _ in range(5):
            part(scene, leader)
            await scene.survey.pause_for(SESSION_TIMEOUT / 2)
            part(scene, leader, heal=True)
            await scene.survey.pause_for(SESSION_TIMEOUT)
        assert scene.survey.stage.decided(*events) == before

    play(scenario)
