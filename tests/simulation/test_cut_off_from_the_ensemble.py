"""Brokers that cannot reach the ensemble, and clients that know only such a broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from soak.roles.common import Task
from soak.simulated.client import GROUP, TRANSACTION
from soak.simulated.cluster import SimulatedCluster
from soak.simulated.fetcher import LATEST
from soak.simulated.plan import SESSION_TIMEOUT, TOPICS
from soak.simulated.stage import Stage, Trace, host_of
from soak.simulated.survey import Survey

from barnabas.errors import ErrorCode
from barnabas.metadata.store import SessionState
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.server.broker import Broker
from barnabas.simulation.ensemble import SimulatedEnsemble
from barnabas.simulation.virtual_time import run_virtual
from barnabas.types import TopicPartition

#: one of them is coordinated by a broker that is not the controller
_GROUPS = [f"copies-{number}" for number in range(20)]
#: seconds within which an answer comes that has nothing to wait for
_AT_ONCE = 0.5


class Scene:
    """A cluster of three with one topic, and a client that chooses whom it asks."""

    def __init__(self, cluster: SimulatedCluster, survey: Survey) -> None:
        self.cluster = cluster
        self.survey = survey
        self.group = _GROUPS[0]

    @property
    def ensemble(self) -> SimulatedEnsemble:
        assert self.cluster.ensemble is not None
        return self.cluster.ensemble

    def broker(self, broker_id: int) -> Broker:
        return self.cluster.running[broker_id]

    async def coordinator_beside_controller(self) -> int:
        """Who coordinates `group`, which is another one from now on, and is not the controller."""
        for self.group in _GROUPS:
            coordinator = await self.coordinator(GROUP, self.group)
            if not self.broker(coordinator).controller.active:
                return coordinator
        raise AssertionError("the controller coordinates all groups")

    async def coordinator(self, kind: int, key: str) -> int:
        await self.survey.find_coordinator(key, kind)
        found = self.survey.routes.coordinator_of((kind, key))
        assert found is not None
        return found

    async def commit(self, broker: int, offset: int) -> int:
        topic = OffsetCommitRequestTopic(
            name="events",
            partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)],
        )
        request = OffsetCommitRequest(
            group_id=self.group, generation_id_or_member_epoch=-1, member_id="", topics=[topic]
        )
        response = await self.survey.ask(request, broker=broker, at_most=9)
        return int(response.topics[0].partitions[0].error_code)

    async def committed(self, broker: int, timeout: float = 10.0) -> int | ErrorCode:
        """The offset that a broker says is committed, or the error that it answers with."""
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=self.group, topics=None)], require_stable=True
        )
        response = await self.survey.ask(request, broker=broker, at_most=9, timeout=timeout)
        group = response.groups[0]
        if group.error_code:
            return ErrorCode(group.error_code)  # type: ignore[call-arg]
        return int(group.topics[0].partitions[0].committed_offset)

    async def latest(self, broker: int) -> int | ErrorCode:
        topic = ListOffsetsTopic(
            name="events", partitions=[ListOffsetsPartition(partition_index=0, timestamp=LATEST)]
        )
        response = await self.survey.ask(ListOffsetsRequest(topics=[topic]), broker=broker, timeout=10.0)
        part = response.topics[0].partitions[0]
        return ErrorCode(part.error_code) if part.error_code else int(part.offset)  # type: ignore[call-arg]

    async def init(self, broker: int, transactional_id: str) -> int | ErrorCode:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=5000)
        response = await self.survey.ask(request, broker=broker, timeout=10.0)
        code = response.error_code
        return ErrorCode(code) if code else int(response.producer_epoch)  # type: ignore[call-arg]

    def leads(self, broker: int, partition: TopicPartition) -> bool:
        return self.broker(broker).replicas.find(*partition).is_leader

    def state(self, broker: int) -> SessionState:
        return self.ensemble.store_of(host_of(broker)).state

    @property
    def group_partition(self) -> TopicPartition:
        """Where the group's offsets are."""
        groups = next(iter(self.cluster.running.values())).groups
        return TopicPartition("__consumer_offsets", groups.partition_for(self.group))

    async def successor(self, of: int) -> int:
        """Who coordinates the group in a broker's stead, once the others have elected it."""
        return await self.successor_of(of, self.group_partition)

    async def successor_of(self, of: int, partition: TopicPartition) -> int:
        """Who leads a partition in a broker's stead."""
        while True:
            decided = self.survey.stage.decided(*partition)
            if decided is not None and decided.leader not in (of, -1):
                break
            await self.survey.pause_for(0.1)
        await self.survey.pause_for(1.0)
        return decided.leader


def play(scenario: Callable[[Scene], Awaitable[None]]) -> None:
    async def run() -> None:
        stage = Stage(1, Trace(), 3)
        cluster = SimulatedCluster(stage, durable=False)
        assert await cluster.up()
        survey = Survey(stage, Task("survey", "survey", "simulated", "", "", 1, {}))
        await survey.create("events", 1, 3, TOPICS["events"])
        await scenario(Scene(cluster, survey))
        assert stage.violations == []
        for each in cluster.brokers.values():
            each.kill(power=False)

    run_virtual(run())


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
        deposed = await scene.survey.find_leader(place)
        assert deposed is not None
        assert await scene.latest(deposed) == 0
        scene.ensemble.cut(host_of(deposed))
        await scene.successor_of(deposed, place)
        assert await scene.latest(deposed) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    play(scenario)


def test_ensemble_that_is_away_stops_nothing_that_needs_no_decision() -> None:
    async def scenario(scene: Scene) -> None:
        coordinator = await scene.coordinator(GROUP, scene.group)
        of_transactions = await scene.coordinator(TRANSACTION, "writer")
        leader = await scene.survey.find_leader(TopicPartition("events", 0))
        assert leader is not None
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
            assert scene.survey.time() - began < _AT_ONCE
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
        assert partition.successors or scene.survey.time() - began < _AT_ONCE

    play(scenario)


def test_broker_that_hears_of_its_later_registration_leads_and_coordinates_no_more() -> None:
    """STALE_BROKER_EPOCH: the answer to an ISR that the deposed leader proposes."""

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
        assert list(scene.broker(deposed).groups.coordinated()) == []
        assert list(scene.broker(deposed).transactions.coordinated()) == []
        began = scene.survey.time()
        assert await scene.committed(deposed) is ErrorCode.NOT_COORDINATOR
        assert scene.survey.time() - began < _AT_ONCE
        scene.ensemble.heal(host_of(deposed))
        await scene.survey.pause_for(2 * SESSION_TIMEOUT)
        state = scene.broker(successor).replicas.find(*scene.group_partition).state
        assert sorted(state.isr) == sorted(scene.cluster.brokers)

    play(scenario)
