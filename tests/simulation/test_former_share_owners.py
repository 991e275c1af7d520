"""Former coordinators of share groups and former leaders of share partitions, which act late."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from soak.simulated.client import GROUP
from soak.simulated.plan import TOPICS
from soak.simulated.stage import LETTERS, host_of
from tests.simulation.scene import GROUPS, Scene, play

from barnabas.base.errors import ErrorCode
from barnabas.base.types import TopicPartition, topic_id_to_str
from barnabas.broker.sharing.share_partition import SharePartition
from barnabas.kafka.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from barnabas.kafka.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.kafka.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from barnabas.kafka.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from barnabas.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.kafka.protocol.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from barnabas.kafka.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
)
from barnabas.kafka.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

_SHARE = 2
_CONFIG_GROUP = 32
_REJECT = 3
_PATIENCE = 30.0


class Held:
    """Holds the calls of one asynchronous method of one object, as a pause of the broker would."""

    def __init__(self, owner: Any, name: str) -> None:
        self._release = asyncio.Event()
        self._is_called = asyncio.Event()
        method: Callable[..., Awaitable[Any]] = getattr(owner, name)

        async def held(*arguments: Any) -> Any:
            self._is_called.set()
            await self._release.wait()
            return await method(*arguments)

        setattr(owner, name, held)

    async def called(self) -> None:
        async with asyncio.timeout(_PATIENCE):
            await self._is_called.wait()

    def release(self) -> None:
        self._release.set()


class Sharing:
    """A share group of a scene, and one partition of `events`."""

    def __init__(self, scene: Scene, group: str, partition: int) -> None:
        self.scene = scene
        self.group = scene.group = group
        self.place = TopicPartition("events", partition)

    async def alter(self, broker: int, start: int) -> ErrorCode:
        """Set the start offset, and return the error of the partition or of the request."""
        part = AlterShareGroupOffsetsRequestPartition(
            partition_index=self.place.partition, start_offset=start
        )
        topic = AlterShareGroupOffsetsRequestTopic(topic_name="events", partitions=[part])
        response = await self._ask(AlterShareGroupOffsetsRequest(group_id=self.group, topics=[topic]), broker)
        return _code(response.error_code or response.responses[0].partitions[0].error_code)

    async def delete_offsets(self, broker: int) -> ErrorCode:
        topic = DeleteShareGroupOffsetsRequestTopic(topic_name="events")
        response = await self._ask(
            DeleteShareGroupOffsetsRequest(group_id=self.group, topics=[topic]), broker
        )
        return _code(response.error_code or response.responses[0].error_code)

    async def delete_group(self, broker: int) -> ErrorCode:
        response = await self._ask(DeleteGroupsRequest(groups_names=[self.group]), broker)
        return _code(response.results[0].error_code)

    async def start(self, broker: int) -> int:
        """Return the start offset that the group's coordinator describes."""
        wanted = DescribeShareGroupOffsetsRequestGroup(group_id=self.group, topics=None)
        response = await self._ask(DescribeShareGroupOffsetsRequest(groups=[wanted]), broker)
        offsets = {
            part.partition_index: part.start_offset
            for topic in response.groups[0].topics
            for part in topic.partitions
        }
        return int(offsets[self.place.partition])

    async def join(self, member_id: str) -> None:
        """Send heartbeats until the member has the partition."""
        epoch = 0
        async with asyncio.timeout(_PATIENCE):
            while True:
                broker = await self.scene.coordinator(GROUP, self.group)
                beat = ShareGroupHeartbeatRequest(
                    group_id=self.group,
                    member_id=member_id,
                    member_epoch=epoch,
                    subscribed_topic_names=["events"],
                )
                response = await self._ask(beat, broker)
                if not response.error_code:
                    epoch = response.member_epoch
                    assigned = [] if response.assignment is None else response.assignment.topic_partitions
                    if any(self.place.partition in topic.partitions for topic in assigned):
                        return
                await self.scene.survey.pause_for(0.5)

    async def reject_next(
        self, broker: int, member_id: str, *, wait: Callable[[], Any] = lambda: None
    ) -> int:
        """Open a session at a broker, acquire one record, call `wait`, and reject the record.

        Return the record's offset.
        """
        topic_id = self.scene.survey.topic_ids["events"]
        part = FetchPartition(partition_index=self.place.partition)
        session = {"group_id": self.group, "member_id": member_id}
        fetched: list[Any] = []
        epoch = 0
        async with asyncio.timeout(_PATIENCE):
            while not fetched:
                request = ShareFetchRequest(
                    **session,
                    share_session_epoch=epoch,
                    max_wait_ms=200,
                    min_bytes=1,
                    max_bytes=1000,
                    max_records=1,
                    batch_size=1,
                    share_acquire_mode=1,
                    topics=[] if epoch else [FetchTopic(topic_id=topic_id, partitions=[part])],
                )
                response = await self._ask(request, broker)
                epoch = 0 if response.error_code else epoch + 1
                fetched = [
                    acquired
                    for topic in response.responses
                    for part_of in topic.partitions
                    for acquired in part_of.acquired_records
                ]
        wait()
        (acquired,) = fetched
        batch = AcknowledgementBatch(
            first_offset=acquired.first_offset, last_offset=acquired.last_offset, acknowledge_types=[_REJECT]
        )
        acknowledged = AcknowledgePartition(
            partition_index=self.place.partition, acknowledgement_batches=[batch]
        )
        request = ShareAcknowledgeRequest(
            **session,
            share_session_epoch=epoch,
            topics=[AcknowledgeTopic(topic_id=topic_id, partitions=[acknowledged])],
        )
        response = await self._ask(request, broker)
        assert not response.error_code
        assert not response.responses[0].partitions[0].error_code
        return int(acquired.first_offset)

    async def set_configs(self, **configs: str) -> None:
        resource = AlterConfigsResource(
            resource_type=_CONFIG_GROUP,
            resource_name=self.group,
            configs=[
                AlterableConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()
            ],
        )
        response = await self.scene.survey.ask_controller(
            IncrementalAlterConfigsRequest(resources=[resource])
        )
        assert not response.responses[0].error_code, response.responses[0].error_message

    async def _ask(self, request: Any, broker: int) -> Any:
        return await self.scene.survey.ask(request, broker=broker, timeout=_PATIENCE)


async def sharing(scene: Scene, fits: Callable[[int, int, int], bool]) -> Sharing:
    """Return the first group and partition that fit.

    `fits` is called with three brokers: the group's coordinator, the leader of the partition, and the share
    coordinator of both.
    """
    await scene.survey.know(["events"])
    topic_id = topic_id_to_str(scene.survey.topic_ids["events"])
    for group in GROUPS:
        for partition in range(6):
            coordinator = await scene.coordinator(GROUP, group)
            leader = scene.leader_of(TopicPartition("events", partition))
            if fits(coordinator, leader, await scene.coordinator(_SHARE, f"{group}:{topic_id}:{partition}")):
                return Sharing(scene, group, partition)
    raise AssertionError("no group and partition fit")


def _code(code: int) -> ErrorCode:
    return ErrorCode(code)  # type: ignore[call-arg]


def _persister(scene: Scene, broker: int) -> Any:
    return scene.broker(broker).groups.share_groups._persister


def test_deletion_of_a_former_coordinator_does_not_delete_the_offsets_that_its_successor_has_set() -> None:
    """It was paused after it had stored that it deletes them. Its request then arrives late."""

    async def scenario(scene: Scene) -> None:
        shares = await sharing(scene, lambda coordinator, _, share: coordinator != share)
        former = await scene.coordinator(GROUP, shares.group)
        assert await shares.alter(former, 5) is ErrorCode.NONE
        deletion = Held(_persister(scene, former), "delete")
        deleting = asyncio.ensure_future(shares.delete_offsets(former))
        await deletion.called()
        scene.ensemble.cut(host_of(former))
        successor = await scene.successor(former)
        assert await shares.alter(successor, 7) is ErrorCode.NONE
        deletion.release()
        assert await deleting is ErrorCode.NOT_COORDINATOR
        assert await shares.start(successor) == 7
        scene.ensemble.heal(host_of(former))

    play(scenario)


def test_former_coordinator_does_not_initialize_the_states_of_a_group_that_was_created_again() -> None:
    """The deleted group had a higher epoch than the new one has."""

    async def scenario(scene: Scene) -> None:
        shares = await sharing(scene, lambda coordinator, _, share: coordinator != share)
        former = await scene.coordinator(GROUP, shares.group)
        for start in range(4):
            assert await shares.alter(former, start) is ErrorCode.NONE
        initialization = Held(_persister(scene, former), "initialize")
        altering = asyncio.ensure_future(shares.alter(former, 5))
        await initialization.called()
        scene.ensemble.cut(host_of(former))
        successor = await scene.successor(former)
        assert await shares.delete_group(successor) is ErrorCode.NONE
        assert await shares.alter(successor, 7) is ErrorCode.NONE
        initialization.release()
        assert await altering is ErrorCode.NOT_COORDINATOR
        assert await shares.start(successor) == 7
        scene.ensemble.heal(host_of(former))

    play(scenario)


def test_former_leader_that_coordinates_itself_writes_no_dead_letter_of_its_successor_again() -> None:
    """Only ZooKeeper is out of its reach. Its successor has written that letter, and one more after it."""

    async def scenario(scene: Scene) -> None:
        await scene.survey.create(LETTERS, 1, 3, TOPICS[LETTERS])
        shares = await sharing(scene, lambda _, leader, share: leader == share)
        place, former = shares.place, scene.leader_of(shares.place)
        await shares.set_configs(
            share_auto_offset_reset="earliest", errors_deadletterqueue_topic_name=LETTERS
        )
        for _ in range(2):
            assert await scene.produce(former, place) is ErrorCode.NONE
        await shares.join("a")
        letters: list[Held] = []

        def hold_letters() -> None:
            watchers = scene.broker(former).replicas.find(*place).watchers
            (share_partition,) = (each for each in watchers if isinstance(each, SharePartition))
            letters.append(Held(share_partition._letters._writer, "write"))  # type: ignore[union-attr]

        assert await shares.reject_next(former, "a", wait=hold_letters) == 0
        await letters[0].called()
        scene.ensemble.cut(host_of(former))
        successor = await scene.successor_of(former, place)
        assert await shares.reject_next(successor, "a") == 1
        await _letters(scene, 2)
        assert scene.leads(former, place)
        letters[0].release()
        await scene.survey.pause_for(1.0)
        assert _letter_count(scene) == 2
        scene.ensemble.heal(host_of(former))

    play(scenario)


def _letter_count(scene: Scene) -> int:
    queue = TopicPartition(LETTERS, 0)
    return scene.broker(scene.leader_of(queue)).replicas.find(*queue).log.log_end_offset


async def _letters(scene: Scene, count: int) -> None:
    """Wait until the dead-letter queue has `count` dead letters."""
    async with asyncio.timeout(_PATIENCE):
        while _letter_count(scene) < count:
            await scene.survey.pause_for(0.1)
