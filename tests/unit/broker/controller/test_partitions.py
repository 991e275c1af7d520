"""Leaders and in-sync replicas while brokers die, restart, start and stop, and while controllers die."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any

import pytest
from simulation.ensemble import EnsembleConditions, SimulatedEnsemble
from simulation.memory_store import MemoryServer, MemoryStore
from simulation.virtual_time import run_virtual
from tests.unit.broker.controller.conftest import Member, join_by, until

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.broker.config import BrokerConfig
from barnabas.broker.controller import ConfigChange, ConfigResource, NewTopic, partition_changes
from barnabas.broker.controller.configs import AlterOperation, ResourceType
from barnabas.broker.controller.elections import ElectionType
from barnabas.broker.controller.partition_changes import Eligibility
from barnabas.broker.controller.partitions import IsrProposal
from barnabas.broker.controller.replica_logs import ReplicaLog, choose_leader
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.image import BrokerState, PartitionState, TopicImage
from barnabas.broker.metadata.store import UnknownOutcomeError
from barnabas.broker.storage.log_end import LogEnd
from barnabas.kafka.protocol.messages.get_replica_log_info import (
    GetReplicaLogInfoResponse,
    PartitionLogInfo,
    TopicPartitionLogInfo,
)

P0 = TopicPartition("t", 0)


class Cluster:
    """Brokers that share a store in memory, or an ensemble with faults. The first
    broker is the controller.
    """

    def __init__(self, ensemble: SimulatedEnsemble | None = None) -> None:
        self.server = MemoryServer()
        self.ensemble = ensemble
        self.members: dict[int, Member] = {}
        self.topic: Any = None
        #: how far brokers' logs reach: the last epoch and the end; who is missing does not answer
        self.reach: dict[int, tuple[int, int]] = {}
        #: of each request for log ends: whether it asked for leader epochs
        self.asked_for_epochs: list[bool] = []
        #: the partitions of a broker that lie in a failed directory
        self.failed: dict[int, set[int]] = {}
        self.asked: list[int] = []

    async def start(self, node: int, **registered: Any) -> Member:
        config = BrokerConfig(node_id=node)
        if self.ensemble is None:
            store: Any = MemoryStore(self.server)
        else:
            store = await self.ensemble.open(f"broker-{node}")
        member = await join_by(store, config, ask=self.ask, **registered)
        self.members[node] = member
        return member

    async def ask(self, broker: int, request: Any) -> Any:
        if broker not in self.reach:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
        self.asked.append(broker)
        self.asked_for_epochs.append(request.include_epoch_starts)
        epoch, end = self.reach[broker]
        failed = self.failed.get(broker, set())
        infos = [
            TopicPartitionLogInfo(
                topic_id=asked.topic_id,
                partition_log_info=[
                    PartitionLogInfo(
                        partition=number,
                        last_written_leader_epoch=epoch,
                        log_end_offset=end,
                        error_code=ErrorCode.KAFKA_STORAGE_ERROR if number in failed else ErrorCode.NONE,
                    )
                    for number in asked.partitions
                ],
            )
            for asked in request.topic_partitions
        ]
        broker_epoch = self.members[broker].controller.registration.epoch
        return GetReplicaLogInfoResponse(broker_epoch=broker_epoch, topic_partition_log_info_list=infos)

    async def stop(self, node: int, *, clean: bool = True) -> int:
        """Stop a broker. Return its broker epoch, as its next start knows it."""
        member = self.members.pop(node)
        epoch = member.controller.registration.clean_epoch if clean else -1
        await member.store.close()
        await member.controller.stop()
        return epoch

    async def bounce(self, node: int, *, clean: bool = True) -> Member:
        return await self.start(node, previous_epoch=await self.stop(node, clean=clean))

    @property
    def controller(self) -> Member:
        return next(member for member in self.members.values() if member.controller.active)

    async def make_topic(self, *assignments: Sequence[int], min_isr: int | None = 1) -> None:
        made = await self.controller.controller.topics.create(
            [
                NewTopic(
                    "t",
                    assignments=list(enumerate(assignments)),
                    configs={} if min_isr is None else {"min.insync.replicas": str(min_isr)},
                )
            ]
        )
        assert isinstance(made["t"], TopicImage), made
        self.topic = made["t"]

    def state(self, number: int = 0, *, seen_by: int | None = None) -> PartitionState:
        member = self.members[seen_by] if seen_by is not None else next(iter(self.members.values()))
        state = member.image.partition(TopicPartition("t", number))
        assert state is not None
        return state

    def state_of(self, node: int) -> BrokerState | None:
        registered = self.controller.image.brokers.get(node)
        return registered and registered.state

    async def has(self, number: int = 0, **fields: Any) -> PartitionState:
        """Wait until the state of a partition has these values."""

        def holds() -> bool:
            state = self.state(number)
            return all(getattr(state, name) == value for name, value in fields.items())

        try:
            await until(holds)
        except TimeoutError:
            raise AssertionError(f"{self.state(number)} is not {fields}") from None
        return self.state(number)

    async def propose(self, leader: int, *isr: int, **changed: Any) -> PartitionState | KafkaError:
        """Let a leader propose an ISR, based on the cluster's image. `changed`
        replaces values of the image.
        """
        image = await self.members[leader].loader.settled()
        state = image.partition(P0)
        assert state is not None
        epochs = [(broker, changed.pop(f"epoch_{broker}", image.brokers[broker].epoch)) for broker in isr]
        proposal = IsrProposal(self.topic.id, 0, state.leader_epoch, state.partition_epoch, epochs)
        epoch = changed.pop("broker_epoch", image.brokers[leader].epoch)
        by = changed.pop("by", leader)
        asked = (changed.pop("at", None) or self.controller).controller.partitions
        (outcome,) = await asked.alter(by, epoch, [proposal._replace(**changed)])
        return outcome  # type: ignore[no-any-return]


Scenario = Callable[[Cluster], Awaitable[None]]


def play(scenario: Scenario, brokers: int = 3, *, in_virtual_time: bool = False) -> None:
    async def run() -> None:
        cluster = Cluster()
        for node in range(1, brokers + 1):
            await cluster.start(node)
        await scenario(cluster)

    (run_virtual if in_virtual_time else asyncio.run)(run())


def code(outcome: object) -> ErrorCode:
    assert isinstance(outcome, KafkaError), outcome
    return outcome.code


# --- brokers go ---


def test_leaders_of_a_broker_that_dies_move_and_it_leaves_every_isr() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((3, 1, 2), (1, 3, 2))
        await cluster.stop(3)
        await cluster.has(0, leader=1, isr=(1, 2), leader_epoch=1)
        await cluster.has(1, leader=1, isr=(1, 2), leader_epoch=0)

    play(scenario)


def test_last_in_sync_is_waited_for_in_the_elr() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((2, 3), min_isr=2)
        await cluster.stop(3)
        await cluster.has(leader=2, isr=(2,), elr=(3,))
        epoch = await cluster.stop(2)
        await cluster.has(leader=-1, isr=(), elr=(2, 3))
        await cluster.start(2, previous_epoch=epoch)
        await cluster.has(leader=2, isr=(2,), elr=(3,))

    play(scenario)


def test_unclean_restart_leaves_isr_and_elr() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((2, 3), min_isr=2)
        await cluster.stop(3)
        await cluster.has(isr=(2,), elr=(3,))
        await cluster.stop(2)
        await cluster.has(isr=(), elr=(2, 3))
        await cluster.start(3, previous_epoch=-1)
        await cluster.has(leader=-1, elr=(2,), last_known_elr=(3,))

    play(scenario)


@pytest.mark.parametrize(("incarnation", "elr"), [("a", (3,)), ("b", ()), ("", ())])
def test_broker_that_missed_its_last_admission_has_lost_nothing_if_its_process_is_the_same(
    incarnation: str, elr: tuple[int, ...]
) -> None:
    """Simulation seed 1201110: the session of a paused broker ended before it saw that it was admitted."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((2, 3), min_isr=2)
        epoch = await cluster.stop(3)
        await cluster.start(3, previous_epoch=epoch, incarnation="a")
        await until(lambda: cluster.controller.image.is_admitted(3))
        await cluster.has(isr=(2,), elr=(3,))
        await cluster.stop(3)
        await cluster.start(3, previous_epoch=epoch, incarnation=incarnation)
        await until(lambda: cluster.controller.image.is_admitted(3))
        await cluster.has(isr=(2,), elr=elr)

    play(scenario)


def test_only_replica_leads_again_after_an_unclean_stop() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((2,))
        await cluster.bounce(2, clean=False)
        state = await cluster.has(leader=2, isr=(2,))
        assert state.leader_epoch > 0
        assert not state.recovering

    play(scenario)


def test_bounce_that_nobody_saw_ends_leadership_and_isr_membership() -> None:
    """KIP-380: the broker registers again with another epoch, before any broker sees
    that the old one is gone.
    """

    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((2, 3, 1), (1, 2, 3))
        await cluster.bounce(2)
        await cluster.has(0, leader=3, isr=(3, 1))
        await cluster.has(1, leader=1, isr=(1, 3), leader_epoch=0)

    play(scenario)


def test_epoch_of_an_older_clean_stop_does_not_count_as_clean() -> None:
    """The disk is from before the broker's last process."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((2, 3), min_isr=2)
        await cluster.stop(3)
        old = cluster.members[2].controller.registration.clean_epoch
        await cluster.bounce(2)
        await cluster.has(leader=2)
        await cluster.stop(2)
        await cluster.has(leader=-1, elr=(2, 3))
        await cluster.start(2, previous_epoch=old)
        await cluster.has(leader=-1, elr=(3,), last_known_elr=(2,))

    play(scenario)


def test_live_broker_whose_session_expired_has_lost_nothing() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((2,), min_isr=1)
        member = cluster.members[2]
        member.store.expire()
        await cluster.has(leader=-1, elr=(2,))
        member.store.begin_again()
        await cluster.has(leader=2, isr=(2,), leader_epoch=2)

    play(scenario)


# --- brokers start and shut down ---


def test_broker_that_starts_is_not_elected_before_it_runs() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((2, 3))
        await cluster.stop(3)
        await cluster.has(isr=(2,))
        epoch = await cluster.stop(2)
        await cluster.has(leader=-1, elr=(2,))
        starting = await cluster.start(2, previous_epoch=epoch, state=BrokerState.STARTING)
        await cluster.controller.controller.partitions.caught_up()
        assert cluster.state().leader == -1
        assert not starting.image.is_admitted(2)
        await starting.controller.enter()
        assert starting.image.is_admitted(2)
        assert cluster.state(seen_by=2).leader == 2, "an admitted broker knows what it leads"

    play(scenario)


def test_lone_broker_writes_each_state_once_when_it_starts() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((1,), (1,))
        before = cluster.state()
        epoch = await cluster.stop(1)
        again = await cluster.start(1, previous_epoch=epoch, state=BrokerState.STARTING)
        assert cluster.state() == before
        await again.controller.enter()
        assert cluster.state() == before._replace(leader_epoch=1, partition_epoch=1)

    play(scenario, brokers=1)


def test_controller_passes_over_the_partitions_once_for_a_broker_that_returns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settled: list[PartitionState] = []

    def settle(state: PartitionState, min_isr: int, eligible: Eligibility) -> PartitionState:
        settled.append(state)
        return partition_changes.settle(state, min_isr, eligible)

    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((1, 2), (2, 3))
        await cluster.stop(3)
        await cluster.has(1, isr=(2,))
        await cluster.controller.controller.partitions.caught_up()
        monkeypatch.setattr("barnabas.broker.controller.partitions.settle", settle)
        await cluster.start(3)
        await until(lambda: cluster.controller.image.is_admitted(3))
        await cluster.controller.controller.partitions.caught_up()
        assert settled == [cluster.state(0), cluster.state(1)]

    play(scenario)


def test_broker_that_may_have_lost_records_leaves_the_isr_though_the_leader_is_still_starting() -> None:
    """All brokers were killed. The state waits for its leader, and must not keep a broker that is admitted
    meanwhile.
    """

    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((2, 3), min_isr=2)
        killed, cluster.members = list(cluster.members.values()), {}
        for member in killed:
            await member.controller.stop()
        for member in killed:
            await member.store.close()
        starting = await cluster.start(2, state=BrokerState.STARTING)
        await starting.controller.partitions.caught_up()
        assert cluster.state().isr == (2, 3)
        await cluster.start(3)
        await until(lambda: starting.image.is_admitted(3))
        assert cluster.state().isr == ()
        assert cluster.state().last_known_elr == (2, 3)

    play(scenario)


def test_leaders_move_before_a_broker_stops() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((3, 1), (1, 3), (3, 2))
        await cluster.stop(2)
        await cluster.has(2, isr=(3,))
        await cluster.members[3].controller.leave(60.0)
        assert cluster.state(0, seen_by=3).leader == 1
        assert cluster.state(2, seen_by=3).leader == 3, "nobody else could"
        await cluster.controller.controller.partitions.caught_up()
        assert cluster.state(0).isr == (1,)
        assert cluster.state(1).isr == (1,)

    play(scenario)


def test_controller_that_shuts_down_moves_its_own_leaders() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((1, 2))
        await cluster.members[1].controller.leave(60.0)
        assert cluster.state(seen_by=1).leader == 2

    play(scenario)


def test_brokers_that_shut_down_together_do_not_wait_for_each_other() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((2, 3))
        both = [cluster.members[node].controller.leave(60.0) for node in (1, 2, 3)]
        async with asyncio.timeout(5):
            await asyncio.gather(*both)

    play(scenario)


def test_new_partitions_are_given_to_brokers_that_run() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.members[3].controller.leave(0.0)
        await until(lambda: cluster.state_of(3) is BrokerState.SHUTTING_DOWN)
        made = await cluster.controller.controller.topics.create([NewTopic("u", 6, 2)])
        assert {broker for s in made["u"].partitions for broker in s.replicas} == {1, 2}
        await cluster.make_topic((3, 1))
        assert (cluster.state().isr, cluster.state().leader) == ((1,), 1)
        refused = await cluster.controller.controller.topics.create([NewTopic("v", assignments=[(0, [3])])])
        assert code(refused["v"]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT

    play(scenario)


# --- controllers go ---


def test_broker_that_dies_with_the_controller_leaves_every_isr() -> None:
    """KAFKA-3096, KAFKA-3143."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((2, 3, 1), (3, 1, 2))
        dead = cluster.members[2]
        await cluster.stop(1)
        await dead.store.close()
        del cluster.members[2]
        await cluster.has(0, leader=3, isr=(3,))
        await cluster.has(1, leader=3, isr=(3,))

    play(scenario)


def test_new_controller_leaves_those_who_run_where_they_are() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((2, 3), (3, 2), min_isr=2)
        before = [cluster.state(0), cluster.state(1)]
        await cluster.stop(1)
        await until(lambda: any(member.controller.active for member in cluster.members.values()))
        await cluster.controller.controller.partitions.caught_up()
        assert [cluster.state(0), cluster.state(1)] == before

    play(scenario)


def test_bounce_that_a_controller_did_not_finish_is_dealt_with_by_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((2, 3, 1))
        first = cluster.controller

        async def fail(image: object) -> None:
            raise UnknownOutcomeError("on purpose")

        monkeypatch.setattr(first.controller.partitions, "_admit", fail)
        await cluster.bounce(2)
        await cluster.has(leader=3, isr=(3, 1))
        assert not cluster.members[3].image.is_admitted(2)
        await cluster.stop(1)
        await until(lambda: cluster.members[3].image.is_admitted(2))
        assert cluster.state().isr == (3,)

    play(scenario)


# --- AlterPartition ---


def test_leader_shrinks_and_grows_its_isr() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((1, 2, 3), min_isr=2)
        first = await cluster.propose(1, 1, 3)
        assert isinstance(first, PartitionState)
        assert (first.isr, first.elr, first.partition_epoch) == ((1, 3), (), 1)
        second = await cluster.propose(1, 1)
        assert isinstance(second, PartitionState)
        assert (second.isr, second.elr, second.partition_epoch) == ((1,), (3,), 2)
        third = await cluster.propose(1, 2, 1)
        assert isinstance(third, PartitionState)
        assert (third.isr, third.elr, third.leader_epoch) == ((1, 2), (), 0)
        assert await cluster.has(isr=(1, 2)) == third

    play(scenario)


def test_proposal_that_changes_nothing_writes_nothing() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((1, 2, 3))
        same = await cluster.propose(1, 3, 2, 1)
        assert isinstance(same, PartitionState)
        assert same.partition_epoch == 0

    play(scenario)


REFUSED: list[tuple[str, tuple[int, ...], dict[str, Any], ErrorCode]] = [
    ("unknown topic", (1,), {"topic_id": bytes(16)}, ErrorCode.UNKNOWN_TOPIC_ID),
    ("unknown partition", (1,), {"partition": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ("newer leader epoch", (1,), {"leader_epoch": 9}, ErrorCode.NOT_CONTROLLER),
    ("newer partition epoch", (1,), {"partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
    ("older leader epoch", (1,), {"leader_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
    ("older partition epoch", (1,), {"partition_epoch": 0}, ErrorCode.INVALID_UPDATE_VERSION),
    ("not the leader", (1, 2), {"leader": 2}, ErrorCode.INVALID_REQUEST),
    ("without the leader", (2, 3), {}, ErrorCode.INVALID_REQUEST),
    ("nobody", (), {}, ErrorCode.INVALID_REQUEST),
    ("no replica", (1, 4), {}, ErrorCode.INVALID_REQUEST),
    ("twice", (1, 1), {}, ErrorCode.INVALID_REQUEST),
    ("recovering who does not", (1,), {"is_recovering": True}, ErrorCode.INVALID_REQUEST),
    ("epoch of an earlier life", (1, 2), {"epoch_2": 1}, ErrorCode.INELIGIBLE_REPLICA),
    ("stale leader", (1,), {"broker_epoch": 1}, ErrorCode.STALE_BROKER_EPOCH),
]


@pytest.mark.parametrize(("name", "isr", "changed", "expected"), REFUSED, ids=[case[0] for case in REFUSED])
def test_proposal_is_refused_with_the_code_of_kafka(
    name: str, isr: tuple[int, ...], changed: dict[str, Any], expected: ErrorCode
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((2, 1, 3))
        await cluster.stop(2)
        await cluster.has(leader=1, leader_epoch=1)
        await cluster.start(2)
        await until(lambda: cluster.controller.image.is_admitted(2))
        before = cluster.state()
        changed_now = dict(changed)
        leader = changed_now.pop("leader", 1)
        if leader != 1:
            changed_now["broker_epoch"] = cluster.controller.image.brokers[leader].epoch
        try:
            outcome = await cluster.propose(1, *isr, by=leader, **changed_now)
        except KafkaError as error:
            outcome = error
        assert code(outcome) is expected
        assert cluster.state() == before

    play(scenario, brokers=4)


def test_leader_that_can_write_no_more_leaves_and_another_in_sync_leads() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((1, 2, 3), min_isr=2)
        left = await cluster.propose(1, 2, 3)
        assert isinstance(left, PartitionState)
        assert (left.leader, left.leader_epoch, left.isr, left.elr) == (2, 1, (2, 3), ())
        left = await cluster.propose(2, 3)
        assert isinstance(left, PartitionState)
        assert (left.leader, left.leader_epoch, left.isr, left.elr) == (3, 2, (3,), (2,))
        assert code(await cluster.propose(3)) is ErrorCode.INVALID_REQUEST

    play(scenario)


def test_follower_that_can_write_no_more_leaves_by_itself_alone() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((1, 2, 3))
        as_follower = {"by": 3, "broker_epoch": cluster.controller.image.brokers[3].epoch}
        assert code(await cluster.propose(1, 1, **as_follower)) is ErrorCode.INVALID_REQUEST
        left = await cluster.propose(1, 1, 2, **as_follower)
        assert isinstance(left, PartitionState)
        assert (left.leader, left.leader_epoch, left.isr) == (1, 0, (1, 2))
        assert code(await cluster.propose(1, 1, 2, **as_follower)) is ErrorCode.INVALID_REQUEST

    play(scenario)


def test_leader_stays_while_nobody_else_in_sync_can_lead() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((1, 2))
        await cluster.members[2].controller.registration.update(state=BrokerState.STARTING)
        await until(lambda: cluster.state_of(2) is BrokerState.STARTING)
        assert isinstance(await cluster.propose(1, 2), KafkaError)
        assert cluster.state().leader == 1

    play(scenario)


def test_who_does_not_run_joins_no_isr() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((1, 2, 3))
        await cluster.bounce(2)
        await cluster.has(isr=(1, 3))
        await until(lambda: cluster.controller.image.is_admitted(2))
        await cluster.members[2].controller.leave(0.0)
        await until(lambda: cluster.state_of(2) is BrokerState.SHUTTING_DOWN)
        assert code(await cluster.propose(1, 1, 2, 3)) is ErrorCode.INELIGIBLE_REPLICA

    play(scenario)


def test_controller_that_was_replaced_changes_no_isr() -> None:
    """KAFKA-6082."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((1, 2, 3))
        zombie = cluster.members[1]
        await zombie.store.delete("/controller")
        await until(lambda: any(cluster.members[node].controller.active for node in (2, 3)))
        with pytest.raises(KafkaError) as refused:
            await cluster.propose(1, 1, 2, at=zombie)
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
        assert cluster.state().isr == (1, 2, 3)

    play(scenario)


def test_one_partition_refused_does_not_keep_the_others_from_being_changed() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((1, 2, 3), (1, 2, 3))
        epoch = cluster.controller.image.brokers[1].epoch
        isr = [(1, -1), (2, -1)]
        proposals = [IsrProposal(cluster.topic.id, number, 0, 0, isr) for number in (0, 7, 1, 0)]
        first, missing, second, twice = await cluster.controller.controller.partitions.alter(
            1, epoch, proposals
        )
        assert isinstance(first, PartitionState)
        assert isinstance(second, PartitionState)
        assert (first.isr, second.isr) == ((1, 2), (1, 2))
        assert code(missing) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert code(twice) is ErrorCode.INVALID_REQUEST

    play(scenario)


# --- ELR and min.insync.replicas ---


@pytest.mark.parametrize(
    ("kind", "name", "minimum"), [(ResourceType.TOPIC, "t", "1"), (ResourceType.BROKER, "", "1")]
)
def test_lower_minimum_empties_the_elr_first(kind: ResourceType, name: str, minimum: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        if kind is ResourceType.TOPIC:
            await cluster.make_topic((1, 2), min_isr=2)
        else:
            two = ConfigChange("min.insync.replicas", AlterOperation.SET, "2")
            everywhere = ConfigResource(kind, name)
            assert await cluster.controller.controller.configs.alter({everywhere: [two]}) == {}
            await cluster.make_topic((1, 2), min_isr=None)
        await cluster.propose(1, 1)
        await cluster.has(isr=(1,), elr=(2,))
        change = ConfigChange("min.insync.replicas", AlterOperation.SET, minimum)
        resource = ConfigResource(kind, name)
        writes: list[str] = []
        cancel = await cluster.members[2].store.watch("/", lambda event, path: writes.append(path))
        assert await cluster.controller.controller.configs.alter({resource: [change]}) == {}
        cancel()
        await cluster.has(isr=(1,), elr=())
        assert writes[0] == "/brokers/topics/t/partitions/0/state", "the leader must not commit by it before"

    play(scenario)


@pytest.mark.parametrize("is_topic", [False, True])
def test_lower_minimum_is_refused_only_where_it_concerns_a_damaged_partition(is_topic: bool) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((1, 2), min_isr=2)
        await cluster.propose(1, 1)
        good = await cluster.has(isr=(1,), elr=(2,))
        controller = cluster.controller.controller
        assert isinstance((await controller.topics.create([NewTopic("u")]))["u"], TopicImage)
        path = znodes.topic("t") if is_topic else znodes.partition_state("t", 0)
        data = (await cluster.members[2].store.get(path)).data
        await cluster.members[2].store.set(path, b"{")
        one = [ConfigChange("min.insync.replicas", AlterOperation.SET, "1")]
        damaged = ConfigResource(ResourceType.TOPIC, "t")
        others = [ConfigResource(ResourceType.TOPIC, "u"), ConfigResource(ResourceType.BROKER, "")]
        errors = await controller.configs.alter(dict.fromkeys([damaged, *others], one))
        assert errors.keys() == {damaged}
        assert code(errors[damaged]) is ErrorCode.KAFKA_STORAGE_ERROR
        assert path in errors[damaged].message
        image = cluster.controller.image
        assert image.topic_config("t") == {"min.insync.replicas": "2"}
        assert image.topic_config("u") == {"min.insync.replicas": "1"}
        assert cluster.state() == good._replace(is_damaged=True)
        await cluster.members[2].store.set(path, data)
        assert await controller.configs.alter({damaged: one}) == {}
        await cluster.has(isr=(1,), elr=())

    play(scenario)


def test_new_controller_elects_leaders_although_a_damaged_partition_postpones_the_clusters_minimum(
    caplog: pytest.LogCaptureFixture,
) -> None:
    everywhere = znodes.broker_config("<default>")

    async def scenario(cluster: Cluster) -> None:
        two = ConfigChange("min.insync.replicas", AlterOperation.SET, "2")
        resource = ConfigResource(ResourceType.BROKER, "")
        assert await cluster.controller.controller.configs.alter({resource: [two]}) == {}
        await cluster.make_topic((3, 2), (1, 3), min_isr=None)
        await cluster.propose(3, 3)
        await cluster.has(isr=(3,), elr=(2,))
        store = cluster.members[3].store
        path = znodes.partition_state("t", 0)
        good = (await store.get(path)).data
        await store.set(path, b"{")
        await store.delete(everywhere)
        await cluster.stop(1)
        await cluster.has(1, leader=3)
        assert f"the data of {path}" in caplog.text
        assert cluster.controller.image.broker_config("<default>") == {}
        controller = cluster.controller.controller
        assert isinstance((await controller.topics.create([NewTopic("u")]))["u"], TopicImage)
        one = ConfigChange("min.insync.replicas", AlterOperation.SET, "1")
        assert await controller.configs.alter({ConfigResource(ResourceType.TOPIC, "u"): [one]}) == {}
        await store.set(path, good)
        await until(lambda: cluster.controller.image.broker_config("<default>"))
        await cluster.has(isr=(3,), elr=())

    play(scenario)
    assert caplog.text.count("is not stored yet") == 1


async def postpone_minimum(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> bytes:
    """Let a damaged partition postpone the removal of broker 3's own minimum, as after an upgrade.

    Return the partition's state node before the damage.
    """
    two = ConfigChange("min.insync.replicas", AlterOperation.SET, "2")
    resource = ConfigResource(ResourceType.BROKER, "")
    assert await cluster.controller.controller.configs.alter({resource: [two]}) == {}
    await cluster.make_topic((3, 2), min_isr=None)
    await cluster.propose(3, 3)
    await cluster.has(isr=(3,), elr=(2,))
    store = cluster.members[3].store
    path = znodes.partition_state("t", 0)
    good = (await store.get(path)).data
    await store.set(path, b"{")
    await store.set(znodes.broker_config("<default>"), znodes.encode_config({"min.insync.replicas": "1"}))
    await store.create(znodes.broker_config("3"), znodes.encode_config({"min.insync.replicas": "2"}))
    await cluster.stop(1)
    await until(lambda: "is not stored yet" in caplog.text)
    assert cluster.controller.image.broker_config("3") == {"min.insync.replicas": "2"}
    return good


def own_minimum_is_gone(cluster: Cluster) -> bool:
    return not cluster.controller.image.broker_config("3")


def test_one_brokers_minimum_is_removed_when_the_damaged_partition_is_mended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(cluster: Cluster) -> None:
        good = await postpone_minimum(cluster, caplog)
        await cluster.members[3].store.set(znodes.partition_state("t", 0), good)
        await until(lambda: own_minimum_is_gone(cluster))
        await cluster.has(isr=(3,), elr=())

    play(scenario)


def test_one_brokers_minimum_is_removed_when_the_damaged_partition_is_deleted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await postpone_minimum(cluster, caplog)
        assert await cluster.controller.controller.topics.delete([cluster.topic.id]) == {}
        await until(lambda: own_minimum_is_gone(cluster))

    play(scenario)


def test_controller_does_not_try_to_store_the_minimum_at_each_change_while_a_partition_is_damaged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(cluster: Cluster) -> None:
        good = await postpone_minimum(cluster, caplog)
        controller = cluster.controller.controller
        await cluster.members[3].store.delete(znodes.broker_config("<default>"))
        await until(lambda: not cluster.controller.image.broker_config("<default>"))
        await controller.partitions.caught_up()
        begin, begun = controller._begin_join, list[int]()

        def counted() -> None:
            begun.append(1)
            begin()

        monkeypatch.setattr(controller, "_begin_join", counted)
        for name in "uvw":
            assert isinstance((await controller.topics.create([NewTopic(name)]))[name], TopicImage)
        await controller.partitions.caught_up()
        assert begun == []
        await cluster.members[3].store.set(znodes.partition_state("t", 0), good)
        await until(lambda: own_minimum_is_gone(cluster))
        assert cluster.controller.image.broker_config("<default>") == {"min.insync.replicas": "1"}

    play(scenario)


# --- log directories fail ---


def test_replicas_in_a_failed_directory_lead_nothing_that_others_can() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((2, 3, 1), (3, 2, 1), (2, 1, 3))
        cluster.reach[2] = (0, 0)
        cluster.failed[2] = {0, 1}
        await cluster.members[2].controller.registration.update(failed_log_dirs=("dir",))
        await cluster.has(0, leader=3, isr=(3, 1), leader_epoch=1)
        await cluster.has(1, leader=3, isr=(3, 1), leader_epoch=0)
        assert cluster.state(2).isr == (2, 1, 3)
        # The next controller asks, too; and what is left alone with the directory is still read from it.
        await cluster.stop(1)
        await cluster.stop(3)
        del cluster.failed[2]
        await cluster.has(2, leader=2, isr=(2,))
        assert not any(cluster.asked_for_epochs)

    play(scenario)


def test_failed_replica_of_a_deleted_topic_says_nothing_of_the_next_topic_with_its_name() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((2, 3, 1))
        cluster.reach[2] = (0, 0)
        cluster.failed[2] = {0}
        await cluster.members[2].controller.registration.update(failed_log_dirs=("dir",))
        await cluster.has(leader=3, isr=(3, 1))
        cluster.failed[2] = set()
        assert await cluster.controller.controller.topics.delete([cluster.topic.id]) == {}
        await cluster.make_topic((2, 3, 1))
        await cluster.has(leader=2, isr=(2, 3, 1))
        await cluster.stop(3)
        await cluster.has(leader=2, isr=(2, 1))

    play(scenario)


def test_only_replica_leads_on_in_a_failed_directory() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((2,), (3,))
        cluster.reach[2] = (0, 0)
        cluster.failed[2] = {0}
        asked = len(cluster.asked)
        await cluster.members[2].controller.registration.update(failed_log_dirs=("dir",))
        await until(lambda: len(cluster.asked) > asked)
        await cluster.controller.controller.partitions.caught_up()
        assert cluster.state().leader == 2

    play(scenario)


# --- nobody is sure to have everything ---


async def power_cut(cluster: Cluster) -> None:
    """Brokers 2 to 4 have the partition, and 4 lags. All of them stop uncleanly."""
    await cluster.make_topic((2, 3, 4), min_isr=2)
    await cluster.propose(2, 2, 3)
    for node in (2, 3, 4):
        await cluster.stop(node)
    await cluster.has(leader=-1, isr=(), elr=(2, 3))


def test_replica_that_reaches_furthest_leads_when_all_of_the_last_known_are_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await power_cut(cluster)
        cluster.reach = {2: (0, 17), 3: (1, 5), 4: (0, 99)}
        await cluster.start(4)
        await cluster.start(2)
        await cluster.has(leader=-1, elr=(3,), last_known_elr=(2,))
        await cluster.start(3)
        state = await cluster.has(leader=3, isr=(3,), elr=(), last_known_elr=(2,))
        assert state.recovering
        await until(lambda: "t-0 by broker 3 up to offset 5" in caplog.text)
        assert "lost:" not in caplog.text  # all that were in sync are back

    caplog.set_level("INFO", "barnabas.broker.controller")
    play(scenario, brokers=4)


def test_brokers_that_do_not_come_back_in_time_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: Cluster) -> None:
        await power_cut(cluster)
        cluster.reach = {2: (0, 17), 3: (1, 5), 4: (0, 99)}
        await cluster.start(4)
        await cluster.start(2)
        await cluster.has(leader=-1, elr=(3,), last_known_elr=(2,))
        await asyncio.sleep(9)
        assert "--unclean" not in caplog.text
        await asyncio.sleep(2)
        assert "1 partitions have no leader and wait for broker 3," in caplog.text
        await asyncio.sleep(600)
        assert caplog.text.count("`barnabas topics elect --unclean --all`") == 1
        await cluster.start(3)
        await cluster.has(leader=3, isr=(3,))

    play(scenario, brokers=4, in_virtual_time=True)


def test_brokers_that_come_back_one_after_another_in_a_start_are_not_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await power_cut(cluster)
        cluster.reach = {2: (0, 17), 3: (1, 5)}
        for node in (2, 3):
            await asyncio.sleep(9)
            await cluster.start(node)
        await cluster.has(leader=3, isr=(3,))
        await asyncio.sleep(600)
        assert "--unclean" not in caplog.text

    play(scenario, brokers=4, in_virtual_time=True)


def test_broker_that_recovers_its_logs_is_not_named(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: Cluster) -> None:
        await power_cut(cluster)
        cluster.reach = {2: (0, 17), 3: (1, 5)}
        await cluster.start(2)
        starting = await cluster.start(3, state=BrokerState.STARTING)
        await asyncio.sleep(600)
        assert cluster.state().leader == -1
        assert "--unclean" not in caplog.text
        await starting.controller.enter()
        await cluster.has(leader=3, isr=(3,))

    play(scenario, brokers=4, in_virtual_time=True)


def test_replica_that_was_out_of_sync_leads_if_it_reaches_furthest() -> None:
    async def scenario(cluster: Cluster) -> None:
        await power_cut(cluster)
        cluster.reach = {2: (0, 17), 3: (0, 5), 4: (0, 99)}
        for node in (4, 3, 2):
            await cluster.start(node)
        await cluster.has(leader=4, isr=(4,))
        assert all(cluster.asked_for_epochs)

    play(scenario, brokers=4)


def test_of_equally_long_logs_that_of_a_replica_that_was_in_sync_leads() -> None:
    """The other one can lack the last deletions (DeleteRecords), and comes first among the replicas."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((2, 3, 4), min_isr=2)
        await cluster.stop(2)
        await cluster.propose(3, 3, 4)
        for node in (3, 4):
            await cluster.stop(node)
        cluster.reach = dict.fromkeys((2, 3, 4), (0, 7))
        for node in (2, 4, 3):
            await cluster.start(node)
        await cluster.has(leader=3, isr=(3,))

    play(scenario, brokers=4)


@pytest.mark.parametrize(
    ("stale", "leader"),
    [
        (ReplicaLog(LogEnd(3, 21), ((2, 0), (3, 14))), 1),  # its records of epoch 3 were never committed
        (ReplicaLog(LogEnd(3, 21), ((3, 14),)), 1),  # seed 1300011: it knows epoch 3 alone
        (ReplicaLog(LogEnd(3, 21), ((2, 0), (3, 19))), 2),
        (ReplicaLog(LogEnd(3, 21), ((3, 19),)), 1),
        (ReplicaLog(LogEnd(2, 21), ((2, 0),)), 2),
        (ReplicaLog(LogEnd(3, 21)), 1),  # a broker of 0.2.0 tells no epochs: others are not known
        (ReplicaLog(LogEnd(2, 21)), 2),
    ],
)
def test_replica_that_was_out_of_sync_leads_only_with_all_records_of_those_that_were_in_sync(
    stale: ReplicaLog, leader: int
) -> None:
    """Simulation seeds 600112 and 1300011: after a crash of all brokers, a former leader led again. A later
    leader had appended nothing, and had committed records of an earlier epoch.
    """
    lost = PartitionState((2, 3, 1), (), -1, leader_epoch=9, last_known_elr=(3, 1))
    logs = {1: ReplicaLog(LogEnd(2, 19)), 2: stale, 3: ReplicaLog(LogEnd(2, 15))}
    assert choose_leader(lost, logs) == leader


@pytest.mark.parametrize(
    ("in_sync", "other", "leader"),
    [
        (LogEnd(4, 90), LogEnd(5, 140), 2),
        (LogEnd(-1, 100), LogEnd(5, 140), 2),  # retention removed all of its records
        (LogEnd(4, 150), LogEnd(5, 140), 1),  # it can have committed records that the other one lacks
        (LogEnd(3, 90), LogEnd(4, 140), 1),  # it has followed an earlier leader
    ],
)
def test_replica_that_has_followed_the_last_leader_further_than_those_in_sync_leads(
    in_sync: LogEnd, other: LogEnd, leader: int
) -> None:
    """All in sync lost their last records in a power cut. The other one knows no older epoch any more."""
    lost = PartitionState((2, 3, 1), (), -1, leader_epoch=6, last_known_elr=(3, 1))
    logs = {1: ReplicaLog(in_sync), 2: ReplicaLog(other, (other,)), 3: ReplicaLog(LogEnd(3, 15))}
    assert choose_leader(lost, logs) == leader


@pytest.mark.parametrize(
    ("in_sync", "leader"),
    [
        (LogEnd(-1, 19), 1),  # all of its records were deleted: those of the other may be others
        (LogEnd(-1, 0), 2),  # it has lost its records, and deleted none
    ],
)
def test_replica_that_was_out_of_sync_does_not_bring_back_others_for_deleted_records(
    in_sync: LogEnd, leader: int
) -> None:
    """A model of elections: the last in-sync replica had deleted all records, and knew no epoch of them."""
    lost = PartitionState((2, 1), (), -1, last_known_elr=(1,))
    stale = ReplicaLog(LogEnd(1, 21), ((1, 0),))
    assert choose_leader(lost, {1: ReplicaLog(in_sync), 2: stale}) == leader


@pytest.mark.parametrize(
    ("reach", "leader"),
    [
        ({2: (5, 17), 3: (-1, 20), 4: (5, 3)}, 3),  # 3 has removed all records up to 20
        ({2: (5, 21), 3: (-1, 20), 4: (5, 3)}, 2),
        ({2: (5, 20), 3: (-1, 20), 4: (5, 3)}, 2),
        ({2: (5, 3), 3: (-1, 20), 4: (6, 2)}, 3),
        ({2: (5, 3), 3: (-1, 0), 4: (6, 2)}, 2),  # 3 has lost its disk, and 4 may lack records of 2
        ({2: (-1, 3), 3: (-1, 7), 4: (-1, 5)}, 3),
    ],
)
def test_replica_whose_records_were_all_removed_leads_unless_another_reaches_beyond_its_end(
    reach: dict[int, tuple[int, int]], leader: int
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await power_cut(cluster)
        cluster.reach = reach
        for node in (4, 3, 2):
            await cluster.start(node)
        await cluster.has(leader=leader, isr=(leader,))

    play(scenario, brokers=4)


def test_nobody_is_elected_while_one_that_may_have_most_does_not_answer() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        for node in (1, 2, 3, 4):
            await cluster.start(node)
        await power_cut(cluster)
        cluster.reach = {2: (0, 17), 4: (0, 99)}
        for node in (2, 3, 4):
            await cluster.start(node)
        await cluster.has(leader=-1, elr=(), last_known_elr=(2, 3))
        await asyncio.sleep(30)
        assert cluster.state().leader == -1
        cluster.reach[3] = (0, 18)
        await asyncio.sleep(30)
        assert cluster.state().leader == 4
        for member in cluster.members.values():
            await member.loader.stop()
            await member.controller.stop()

    run_virtual(scenario())


def test_whoever_is_there_leads_where_loss_is_allowed(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: Cluster) -> None:
        await power_cut(cluster)
        cluster.reach = {2: (0, 17), 4: (0, 3)}
        await cluster.start(4)
        await cluster.controller.controller.partitions.caught_up()
        assert cluster.state().leader == -1
        change = ConfigChange("unclean.leader.election.enable", AlterOperation.SET, "true")
        resource = ConfigResource(ResourceType.TOPIC, "t")
        assert await cluster.controller.controller.configs.alter({resource: [change]}) == {}
        await cluster.has(leader=4, isr=(4,), elr=())
        await until(lambda: "later records may be lost: t-0 by broker 4 up to offset 3" in caplog.text)

    play(scenario, brokers=4)


# --- the store fails ---


@pytest.mark.parametrize("seed", range(20))
def test_cluster_settles_whatever_answers_are_lost_and_sessions_expire(seed: int) -> None:
    """No write is repeated blindly, and at the end each partition has a running leader."""
    rng = Random(seed)

    async def run() -> None:
        ensemble = SimulatedEnsemble(Random(seed), EnsembleConditions(session_timeout=6.0))
        cluster = Cluster(ensemble)
        for node in (1, 2, 3):
            await cluster.start(node)
        while not all(cluster.members[1].image.is_admitted(node) for node in (1, 2, 3)):
            await asyncio.sleep(0.1)
        await cluster.make_topic(*[rng.sample((1, 2, 3), 3) for _ in range(20)], min_isr=2)
        while not all("t" in member.image.topics for member in cluster.members.values()):
            await asyncio.sleep(0.1)
        epochs: dict[tuple[int, int], int] = {}

        def watch(number: int, state: PartitionState) -> None:
            led = epochs.setdefault((number, state.leader_epoch), state.leader)
            assert led == state.leader, "one leader an epoch"

        for member in cluster.members.values():
            member.loader.subscribe(
                lambda delta: (
                    [watch(number, state) for number, state in enumerate(delta.after.topics["t"].partitions)]
                    and None
                )
            )
        for _ in range(8):
            name = f"broker-{rng.randrange(1, 4)}"
            fault = rng.choice((ensemble.lose_answer, ensemble.expire, ensemble.reset, ensemble.cut))
            fault(name)
            await asyncio.sleep(rng.uniform(0.0, 9.0))
            ensemble.heal(name)
        await asyncio.sleep(60)
        states = cluster.members[1].image.topics["t"].partitions
        assert all(state.leader in (1, 2, 3) for state in states), states
        for member in cluster.members.values():
            assert member.image.topics["t"].partitions == states
            assert all(member.image.is_admitted(node) for node in (1, 2, 3))
        assert sum(member.controller.active for member in cluster.members.values()) == 1
        for member in cluster.members.values():
            await member.loader.stop()
            await member.controller.stop()
            await member.store.close()

    run_virtual(run())


# --- replicas that lack records which they had acknowledged ---


async def comes_back_incomplete(cluster: Cluster, node: int, *numbers: int) -> Member:
    """Stop a broker cleanly, and start it with discarded or repaired replicas of the topic."""
    epoch = await cluster.stop(node)
    lacking = frozenset((cluster.topic.id, number) for number in numbers)
    return await cluster.start(node, previous_epoch=epoch, incomplete_replicas=lacking)


def test_incomplete_replica_of_a_clean_broker_leaves_the_elr_and_the_brokers_other_replicas_do_not() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((2, 3), (2, 3), min_isr=2)
        await cluster.stop(3)
        await cluster.has(0, isr=(2,), elr=(3,))
        await comes_back_incomplete(cluster, 2, 0)
        await cluster.has(0, leader=-1, isr=(), elr=(3,), last_known_elr=(2,))
        await cluster.has(1, leader=2, isr=(2,), elr=(3,))

    play(scenario)


def test_last_in_sync_that_comes_back_incomplete_is_elected_only_by_whoever_asks_for_it() -> None:
    """The setting that allows unclean elections does not elect it, nor another replica."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((2, 3), min_isr=1)
        await cluster.stop(3)
        await cluster.has(isr=(2,), elr=())
        cluster.reach = {2: (0, 0), 3: (0, 5)}
        incomplete = await comes_back_incomplete(cluster, 2, 0)
        await cluster.start(3)
        await until(lambda: incomplete.image.is_admitted(3) and incomplete.image.is_admitted(2))
        await cluster.controller.controller.partitions.caught_up()
        await cluster.has(leader=-1, isr=(), elr=(), last_known_elr=(2,))
        assert cluster.asked == []
        outcome = await cluster.controller.controller.elections.elect(ElectionType.UNCLEAN, [P0])
        assert outcome == {P0: None}
        await cluster.has(leader=3, isr=(3,), recovering=True)

    play(scenario)


def test_only_replica_that_comes_back_incomplete_waits_for_an_election_that_is_asked_for() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((2,))
        cluster.reach = {2: (0, 3)}
        await comes_back_incomplete(cluster, 2, 0)
        await cluster.has(leader=-1, isr=(), last_known_elr=(2,))
        assert await cluster.controller.controller.elections.elect(ElectionType.UNCLEAN, [P0]) == {P0: None}
        await cluster.has(leader=2, isr=(2,))

    play(scenario)


def test_of_two_replicas_that_reach_as_far_an_unclean_election_takes_the_complete_one() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((2, 3), min_isr=1)
        await cluster.stop(3)
        await cluster.has(isr=(2,))
        cluster.reach = {2: (0, 5), 3: (0, 5)}
        await comes_back_incomplete(cluster, 2, 0)
        await cluster.start(3)
        await cluster.has(leader=-1, last_known_elr=(2,))
        await until(lambda: cluster.controller.image.is_admitted(3))
        assert await cluster.controller.controller.elections.elect(ElectionType.UNCLEAN, [P0]) == {P0: None}
        await cluster.has(leader=3)

    play(scenario)


def test_replica_that_was_incomplete_joins_the_isr_once_its_leader_says_that_it_has_everything() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((1, 2), min_isr=1)
        again = await comes_back_incomplete(cluster, 2, 0)
        await cluster.has(leader=1, isr=(1,))
        await until(lambda: cluster.controller.image.is_admitted(2))
        assert isinstance(await cluster.propose(1, 1, 2), PartitionState)
        await cluster.has(isr=(1, 2))
        await cluster.stop(3)  # has everything settled again, before the broker has said that it is complete
        await cluster.controller.controller.partitions.caught_up()
        assert cluster.state().isr == (1, 2)
        await again.controller.registration.update(incomplete_replicas=frozenset())
        await cluster.bounce(2)
        await cluster.has(leader=1, isr=(1,))

    play(scenario)


def test_damaged_state_of_one_partition_delays_no_decision_about_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic([2, 3], [2, 3])
        epoch = cluster.controller.controller._writes.epoch
        path = znodes.partition_state("t", 1)
        good = cluster.state(1)
        await cluster.members[3].store.set(path, b"{")
        await cluster.stop(2)
        await until(lambda: cluster.state().leader == 3)
        assert cluster.state(1) == good._replace(is_damaged=True)
        controller = cluster.controller.controller
        proposal = IsrProposal(cluster.topic.id, 1, good.leader_epoch, good.partition_epoch, [(3, -1)])
        third = cluster.members[3].controller.registration.epoch
        (refused,) = await controller.partitions.alter(3, third, [proposal])
        asked = [P0._replace(partition=1)]
        errors = await controller.elections.elect(ElectionType.PREFERRED, asked)
        moved = await controller.reassignments.alter({asked[0]: (1, 3)})
        for error in (refused, errors[asked[0]], moved[asked[0]]):
            assert isinstance(error, KafkaError) and error.code is ErrorCode.KAFKA_STORAGE_ERROR
            assert path in error.message
        assert isinstance((await controller.topics.create([NewTopic("u")]))["u"], TopicImage)
        assert cluster.controller.controller._writes.epoch == epoch, "no controller has resigned"
        await cluster.members[3].store.set(path, znodes.encode_partition_state(good, epoch))
        await until(lambda: cluster.state(1).leader == 3)

    play(scenario)
    assert "resigns" not in caplog.text


def test_damaged_state_does_not_delay_the_stop_of_its_leader() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic([2, 1], [2, 1])
        await cluster.members[1].store.set(znodes.partition_state("t", 1), b"{")
        async with asyncio.timeout(60):
            await cluster.members[2].controller.leave(600.0)
        assert (cluster.state(0).leader, cluster.state(1).leader) == (1, 2)

    play(scenario, brokers=2)


def test_damaged_controller_epoch_is_named_and_the_election_takes_place_once_it_is_mended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(cluster: Cluster) -> None:
        store = cluster.members[2].store
        good = (await store.get(znodes.CONTROLLER_EPOCH)).data
        await store.set(znodes.CONTROLLER_EPOCH, b"x")
        await cluster.stop(1)
        await until(lambda: f"the data of {znodes.CONTROLLER_EPOCH} is damaged" in caplog.text)
        assert not cluster.members[2].controller.active
        await store.set(znodes.CONTROLLER_EPOCH, good)
        await until(lambda: cluster.members[2].controller.active)

    play(scenario, brokers=2)
    assert f"the data of {znodes.CONTROLLER_EPOCH} is damaged" in caplog.text


def test_damaged_block_of_producer_ids_is_named_to_the_broker_that_asks() -> None:
    async def scenario(cluster: Cluster) -> None:
        member = cluster.members[1]
        before = await member.controller.producer_ids.allocate(1)
        good = (await member.store.get(znodes.PRODUCER_ID_BLOCK)).data
        await member.store.set(znodes.PRODUCER_ID_BLOCK, b"{}")
        with pytest.raises(KafkaError, match=f"the data of {znodes.PRODUCER_ID_BLOCK} is damaged"):
            await member.controller.producer_ids.allocate(1)
        await member.store.set(znodes.PRODUCER_ID_BLOCK, good)
        assert (await member.controller.producer_ids.allocate(1)).start == before.stop

    play(scenario, brokers=1)
