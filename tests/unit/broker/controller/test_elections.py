"""Elections that a client requests, and those of the controller that balance the leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

import pytest
from simulation.virtual_time import VirtualTimeLoop
from tests.unit.broker.controller.conftest import Member, Play, broker_image, until
from tests.views import view_of

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import NO_BROKER, TopicPartition
from barnabas.broker.config import BrokerConfig
from barnabas.broker.controller import NewTopic
from barnabas.broker.controller.elections import ElectionType
from barnabas.broker.controller.leader_balance import LeaderBalance, imbalanced
from barnabas.broker.controller.replica_logs import ReplicaLog
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.image import BrokerState, ClusterImage, PartitionState, TopicImage
from barnabas.broker.metadata.store import StoreUnavailableError
from barnabas.broker.storage.log_end import LogEnd
from barnabas.kafka.protocol.messages.get_replica_log_info import (
    EpochStart,
    GetReplicaLogInfoResponse,
    PartitionLogInfo,
    TopicPartitionLogInfo,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN


async def create(member: Member, *replicas: list[int]) -> None:
    topic = NewTopic("t", assignments=list(enumerate(replicas)))
    made = (await member.controller.topics.create([topic]))["t"]
    assert not isinstance(made, KafkaError), made


async def become(member: Member, partition: TopicPartition, **changes: object) -> None:
    state = member.image.partition(partition)
    assert state is not None
    data = znodes.encode_partition_state(state._replace(**changes), 1)  # type: ignore[arg-type]
    await member.store.set(znodes.partition_state(*partition), data, state.partition_epoch)
    await member.loader.settled()


async def elect(
    member: Member, kind: ElectionType, partitions: Collection[TopicPartition] | None
) -> dict[TopicPartition, ErrorCode]:
    results = await member.controller.elections.elect(kind, partitions)
    return {p: error.code if error is not None else ErrorCode.NONE for p, error in results.items()}


def state(member: Member, partition: TopicPartition = T0) -> PartitionState:
    found = member.image.partition(partition)
    assert found is not None
    return found


def test_preferred_leaders_are_elected_where_they_do_not_lead(play: Play) -> None:
    async def scenario(member: Member) -> None:
        await create(member, [1, 2], [2, 1])
        await become(member, T0, leader=2)
        assert await elect(member, PREFERRED, [T0, T1, TopicPartition("t", 2)]) == {
            T0: ErrorCode.NONE,
            T1: ErrorCode.ELECTION_NOT_NEEDED,
            TopicPartition("t", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert (state(member).leader, state(member).leader_epoch) == (1, 1)

    play(scenario, others=1)


def test_of_all_partitions_only_those_are_told_of_that_had_something_to_elect(play: Play) -> None:
    async def scenario(member: Member) -> None:
        await create(member, [1, 2], [2, 1])
        await become(member, T0, leader=2)
        assert await elect(member, PREFERRED, None) == {T0: ErrorCode.NONE}
        assert await elect(member, PREFERRED, None) == {}

    play(scenario, others=1)


def test_a_preferred_leader_that_is_not_in_sync_is_not_available(play: Play) -> None:
    async def scenario(member: Member) -> None:
        await create(member, [1, 2])
        await become(member, T0, leader=2, isr=(2,))
        assert await elect(member, PREFERRED, [T0]) == {T0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}

    play(scenario, others=1)


def has_replicas(
    member: Member,
    ends: Mapping[int, int | ReplicaLog],
    meanwhile: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Let brokers answer with the logs of t-0, or with their end offsets in leader epoch 0.

    A broker that is not in `ends` does not answer. Before the first answer, `meanwhile` runs.
    """
    pending = [meanwhile] if meanwhile is not None else []

    async def ask(broker: int, request: Any) -> Any:
        while pending:
            await pending.pop()()
        if broker not in ends:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        found = ends[broker]
        end, epoch_starts = found if isinstance(found, ReplicaLog) else ReplicaLog(LogEnd(0, found))
        info = PartitionLogInfo(
            partition=0,
            last_written_leader_epoch=end.epoch,
            log_end_offset=end.end,
            epoch_starts=[
                EpochStart(leader_epoch=epoch, start_offset=start) for epoch, start in epoch_starts
            ],
        )
        infos = [
            TopicPartitionLogInfo(topic_id=request.topic_partitions[0].topic_id, partition_log_info=[info])
        ]
        epoch = member.image.brokers[broker].epoch
        return GetReplicaLogInfoResponse(broker_epoch=epoch, topic_partition_log_info_list=infos)

    member.controller.elections._ask = ask


@pytest.mark.parametrize(
    ("ends", "leader"), [({1: 5, 3: 9}, 3), ({1: 5, 3: 4}, 1), ({1: 5}, 1), ({}, NO_BROKER)]
)
def test_where_there_is_no_leader_the_replica_that_reaches_furthest_is_elected(
    play: Play, ends: dict[int, int], leader: int
) -> None:
    async def scenario(member: Member) -> None:
        has_replicas(member, ends)
        await create(member, [2, 1, 3])
        assert await elect(member, UNCLEAN, [T0]) == {T0: ErrorCode.ELECTION_NOT_NEEDED}
        await become(member, T0, isr=(2,))
        await member.store.delete(znodes.broker(2))
        await member.controller.partitions.caught_up()
        assert state(member).leader == NO_BROKER
        code = ErrorCode.NONE if ends else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        assert await elect(member, UNCLEAN, [T0]) == {T0: code}
        assert (state(member).leader, state(member).recovering) == (leader, bool(ends))

    play(scenario, others=2)


def test_of_equally_long_logs_that_of_a_replica_that_was_in_sync_is_elected(play: Play) -> None:
    async def scenario(member: Member) -> None:
        has_replicas(member, {1: 5, 3: 5})
        await create(member, [2, 1, 3])
        await member.store.delete(znodes.broker(2))
        await member.controller.partitions.caught_up()
        await become(member, T0, leader=NO_BROKER, isr=(), elr=(), last_known_elr=(2, 3))
        assert await elect(member, UNCLEAN, [T0]) == {T0: ErrorCode.NONE}
        assert state(member).leader == 3

    play(scenario, others=2)


def test_former_leader_with_records_that_were_never_committed_is_not_elected(play: Play) -> None:
    """The automatic election of simulation seed 600112 has the same rule."""

    async def scenario(member: Member) -> None:
        stale = ReplicaLog(LogEnd(3, 21), ((2, 0), (3, 14)))
        has_replicas(member, {1: stale, 3: ReplicaLog(LogEnd(2, 19), ((2, 0),))})
        await create(member, [2, 1, 3])
        await member.store.delete(znodes.broker(2))
        await member.controller.partitions.caught_up()
        await become(member, T0, leader=NO_BROKER, isr=(), elr=(), last_known_elr=(2, 3))
        assert await elect(member, UNCLEAN, [T0]) == {T0: ErrorCode.NONE}
        assert state(member).leader == 3

    play(scenario, others=2)


def test_nobody_is_elected_by_logs_from_before_a_change_of_the_partition(play: Play) -> None:
    """A cancelled reassignment removed the replica with the longest log. Another election could follow."""

    async def scenario(member: Member) -> None:
        await create(member, [2, 1])
        await become(member, T0, isr=(2,))
        assert await member.controller.reassignments.alter({T0: [2, 1, 3]}) == {}
        await member.store.delete(znodes.broker(2))
        await member.controller.partitions.caught_up()

        async def cancel() -> None:
            assert await member.controller.reassignments.alter({T0: None}) == {}

        has_replicas(member, {1: 5, 3: 9}, cancel)
        assert await elect(member, UNCLEAN, [T0]) == {T0: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
        assert await elect(member, UNCLEAN, [T0]) == {T0: ErrorCode.NONE}
        assert state(member).leader == 1

    play(scenario, others=2)


def test_nobody_is_elected_where_no_replica_runs(play: Play) -> None:
    async def scenario(member: Member) -> None:
        await create(member, [2])
        await member.store.delete(znodes.broker(2))
        await member.controller.partitions.caught_up()
        assert await elect(member, UNCLEAN, None) == {T0: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}

    play(scenario, others=1)


class Elections:
    """Notes the requested elections."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    async def elect(self, kind: ElectionType, partitions: Collection[TopicPartition] | None) -> object:
        self.asked.append((kind, partitions))
        return {}


@pytest.mark.parametrize(("is_enabled", "is_controller"), [(True, True), (True, False), (False, True)])
def test_the_controller_evens_leaders_out_now_and_then(is_enabled: bool, is_controller: bool) -> None:
    async def scenario() -> None:
        topic = TopicImage("t", bytes(16), (PartitionState((1, 2), (1, 2), 2),))
        image = ClusterImage(brokers={n: broker_image(n) for n in (1, 2)}, topics={"t": topic})
        config = BrokerConfig(auto_leader_rebalance_enable=is_enabled)
        elections: Any = Elections()
        balance = LeaderBalance(elections, lambda: is_controller, view_of(image, config=config))
        balance.start()
        await asyncio.sleep(299)
        assert elections.asked == []
        await asyncio.sleep(2)
        assert elections.asked == ([(PREFERRED, [T0])] if is_enabled and is_controller else [])
        await balance.stop()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(scenario())


def test_leaders_are_balanced_again_after_the_metadata_store_could_not_be_reached(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection breaks between the first step of an election and the next one."""

    async def scenario(member: Member) -> None:
        await create(member, [1, 2])
        await become(member, T0, leader=2)
        caught_up, answers = asyncio.Event(), member.loader.settled

        async def breaks() -> None:
            caught_up.set()

            async def fails() -> ClusterImage:
                monkeypatch.setattr(member.loader, "settled", answers)
                raise StoreUnavailableError("on purpose")

            monkeypatch.setattr(member.loader, "settled", fails)
            member.controller.elections._caught_up = member.controller.partitions.caught_up

        member.controller.elections._caught_up = breaks
        config = BrokerConfig(auto_leader_rebalance_enable=True, leader_imbalance_check_interval_seconds=1)
        view = view_of(member.image, config=config)
        balance = LeaderBalance(member.controller.elections, lambda: True, view)
        balance.start()
        await caught_up.wait()
        await until(lambda: state(member).leader == 1)
        await balance.stop()

    play(scenario, others=1)


def test_brokers_that_lead_most_of_what_they_should_are_left_alone() -> None:
    own = PartitionState((1, 2), (1, 2), 1)
    others = PartitionState((1, 2), (1, 2), 2)
    behind = PartitionState((1, 2), (2,), 2)
    moving = others._replace(replicas=(1, 2, 3), adding=(1,), removing=(3,))

    def found(*states: PartitionState, state: BrokerState = BrokerState.RUNNING) -> list[int]:
        brokers = {1: broker_image(1)._replace(state=state), 2: broker_image(2)}
        image = ClusterImage(brokers=brokers, topics={"t": TopicImage("t", bytes(16), states)})
        return [partition.partition for partition in imbalanced(image, 10)]

    assert found(*[own] * 9, others) == []
    assert found(*[own] * 8, others) == [8]
    assert found(others, behind, moving) == [0]
    assert found(others, state=BrokerState.SHUTTING_DOWN) == []
