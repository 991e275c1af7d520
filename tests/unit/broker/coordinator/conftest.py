"""A group coordinator on a log in memory, in virtual time."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import struct
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from random import Random
from typing import Any

import pytest
from simulation.blocking import VirtualThreads
from simulation.clocks import VirtualClock
from simulation.virtual_time import run_virtual
from tests.views import view_of

from barnabas.base.environment.blocking import Pool
from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import ZERO_TOPIC_ID
from barnabas.broker.config import BrokerConfig
from barnabas.broker.coordinator import Caller, ConsumerGroup, GroupCoordinator, OffsetKey, ShareGroup
from barnabas.broker.coordinator.pattern_search import PatternSearch
from barnabas.broker.coordinator.share_state.persister import (
    UNKNOWN_POSITION,
    CoordinatorPosition,
    SharePartitionKey,
    ShareState,
)
from barnabas.broker.metadata.image import ClusterImage, PartitionState, TopicImage
from barnabas.kafka.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from barnabas.kafka.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.kafka.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from barnabas.kafka.protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity
from barnabas.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.kafka.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from barnabas.kafka.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from barnabas.kafka.records import batches

#: makes member ids unique, over restarts too
_numbers = itertools.count(1)


class MemoryLog:
    """The internal topic in memory. It commits at once, later (`hold`), or never (`failure`).

    Records that exist at an election are committed, unless followers lag (`lag`).
    """

    def __init__(self) -> None:
        self.batches: dict[int, list[bytes]] = {}
        #: how often somebody tried to append
        self.attempts = 0
        self.hold = False
        self.failure: KafkaError | None = None
        self.held: list[tuple[asyncio.Future[None], int, bytes]] = []
        #: who waits until all below an offset is committed: the partition, the offset, the epoch
        self.lag = False
        self.waiting: list[tuple[asyncio.Future[None], int, int, int]] = []
        #: why the partitions are not led here
        self.not_led: KafkaError | None = None

    def append(self, partition: int, batch: bytes, epoch: int, now_ms: int = 0) -> Awaitable[None] | None:
        self.attempts += 1
        if self.failure is not None:
            raise self.failure
        if self.hold:
            committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.held.append((committed, partition, batch))
            return committed
        self._write(partition, batch, epoch)
        return None

    def commit_next(self) -> None:
        committed, partition, batch = self.held.pop(0)
        self._write(partition, batch, 0)
        committed.set_result(None)

    def fail_next(self, error: KafkaError) -> None:
        self.held.pop(0)[0].set_exception(error)

    def max_bytes(self, partition: int) -> int:
        return 1 << 20

    def bounds(self, partition: int, epoch: int) -> tuple[int, int]:
        if self.not_led is not None:
            raise self.not_led
        return 0, self._end(partition)

    def committed(self, partition: int, end: int, epoch: int) -> Awaitable[None] | None:
        if not self.lag:
            return None
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append((waiting, partition, end, epoch))
        return waiting

    def read(self, partition: int, offset: int, max_bytes: int) -> Sequence[bytes]:
        assert not self.lag, "read before it is committed"
        chosen: list[bytes] = []
        for batch in self.batches[partition]:
            _, header = next(batches(batch))
            if header.next_offset > offset and (not chosen or sum(map(len, chosen)) < max_bytes):
                chosen.append(batch)
        return chosen

    def _write(self, partition: int, batch: bytes, epoch: int) -> None:
        placed = bytearray(batch)
        struct.pack_into(">q", placed, 0, self._end(partition))
        struct.pack_into(">i", placed, 12, epoch)
        self.batches.setdefault(partition, []).append(bytes(placed))

    def _end(self, partition: int) -> int:
        written = self.batches.get(partition)
        return next(batches(written[-1]))[1].next_offset if written else 0


class MemoryPersister:
    """The states of share partitions in memory. It answers at once, later (`open`), or with an error
    (`failure`).
    """

    def __init__(self) -> None:
        self.states: dict[SharePartitionKey, ShareState] = {}
        #: the positions of the group coordinators that have initialized a state
        self.positions: dict[SharePartitionKey, CoordinatorPosition] = {}
        self.failure: KafkaError | None = None
        self.open = asyncio.Event()
        self.open.set()
        #: what was asked, in the order of the answers
        self.log: list[tuple[Any, ...]] = []

    async def initialize(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        start_offset: int,
        position: CoordinatorPosition = UNKNOWN_POSITION,
        replaced: int = -1,
    ) -> None:
        await self._answer("initialize", key, state_epoch, start_offset)
        known = self.states.get(key)
        state = ShareState(state_epoch, -1, start_offset, 0, ())
        if known is not None and known.state_epoch >= state_epoch and known != state:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        if known is not None and (replaced == -1 or known.initialized_at != replaced):
            self._check_position(key, position)
        self.states[key] = state
        self.positions[key] = position

    async def delete(self, key: SharePartitionKey, position: CoordinatorPosition = UNKNOWN_POSITION) -> None:
        await self._answer("delete", key)
        self._check_position(key, position)
        self.states.pop(key, None)
        self.positions.pop(key, None)

    async def summary(self, key: SharePartitionKey, leader_epoch: int = -1) -> ShareState:
        await self._answer("summary", key)
        return self.states.get(key, ShareState(0, -1, -1, -1, ()))

    async def read(self, key: SharePartitionKey, leader_epoch: int, *, retries: bool = True) -> ShareState:
        raise NotImplementedError

    async def write(self, *arguments: Any) -> None:
        raise NotImplementedError

    def _check_position(self, key: SharePartitionKey, position: CoordinatorPosition) -> None:
        if position.is_before(self.positions.get(key, UNKNOWN_POSITION)):
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)

    async def _answer(self, *asked: Any) -> None:
        await asyncio.sleep(0)
        await self.open.wait()
        self.log.append(asked)
        if self.failure is not None:
            raise self.failure


def subscription(*topics: str) -> bytes:
    """Return a consumer's metadata, version 0."""
    names = b"".join(struct.pack(">h", len(t)) + t.encode() for t in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b".")


def told(
    response: ConsumerGroupHeartbeatResponse | ShareGroupHeartbeatResponse,
) -> dict[str, list[int]] | None:
    """Return the assignment in an answer by topic name; None if there is none."""
    if response.assignment is None:
        return None
    return {
        topic.topic_id.rstrip(b".").decode(): topic.partitions
        for topic in response.assignment.topic_partitions
    }


class Groups:
    """A coordinator with short methods for requests."""

    def __init__(
        self,
        log: MemoryLog | None = None,
        config: BrokerConfig | None = None,
        image: ClusterImage = ClusterImage(),  # noqa: B008 - immutable
        assigning: Pool | None = None,
        persister: MemoryPersister | None = None,
        **settings: Any,
    ) -> None:
        self.log = log or MemoryLog()
        self.persister = persister or MemoryPersister()
        defaults = {"group_initial_rebalance_delay_ms": 1000, "offsets_topic_num_partitions": 1}
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.view = view_of(image, config=config or BrokerConfig(**defaults | settings), clock=self.clock)
        self.coordinator = GroupCoordinator(
            self.view,
            self.log,
            unique=lambda: str(next(_numbers)),
            search=PatternSearch(VirtualThreads(Random(0), mean_delay=1e-9)),
            assigning=assigning or VirtualThreads(Random(0), mean_delay=0.001).pool("assigning", 1),
            persister=self.persister,
        )
        self.coordinator.elect(0, 0)

    @property
    def config(self) -> BrokerConfig:
        return self.view.config

    @property
    def image(self) -> ClusterImage:
        return self.view.image

    async def restart(self) -> Groups:
        """Start another broker on the same log, and load the log."""
        await self.coordinator.stop()
        again = Groups(self.log, self.config, self.image, persister=self.persister)
        await again.loaded()
        return again

    async def loaded(self) -> None:
        while self.coordinator.is_loading():
            await asyncio.sleep(0)

    def topics(self, **partitions: int) -> None:
        """Replace the topics of the cluster. A topic keeps its id."""
        state = PartitionState((1,), (1,), leader=1)
        topics = {
            name: TopicImage(name, topic_id(name), (state,) * count) for name, count in partitions.items()
        }
        self.view.image = self.image._replace(
            topics=topics, topic_names={topic.id: topic.name for topic in topics.values()}
        )

    def beat(
        self, member: str, epoch: int, owned: dict[str, Any] | None = None, *, group: str = "g", **more: Any
    ) -> asyncio.Task[ConsumerGroupHeartbeatResponse]:
        """Send a heartbeat of the consumer protocol. `owned` are partitions by topic."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            topic_partitions=None
            if owned is None
            else [
                TopicPartitions(topic_id=topic_id(topic), partitions=sorted(partitions))
                for topic, partitions in owned.items()
            ],
            **more,
        )
        return _ask(lambda: self.coordinator.consumer_heartbeat(request, Caller(1, "c", "/127.0.0.1")))

    def enter(
        self, member: str, *topics: str, regex: str | None = None, **more: Any
    ) -> asyncio.Task[ConsumerGroupHeartbeatResponse]:
        """Send the heartbeat that joins a group of the consumer protocol."""
        names = list(topics) if topics or regex is None else None
        more = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": names, **more}
        return self.beat(member, 0, {}, subscribed_topic_regex=regex, **more)

    def share_beat(
        self, member: str, epoch: int, *topics: str, group: str = "g", **more: Any
    ) -> asyncio.Task[ShareGroupHeartbeatResponse]:
        """Send a heartbeat of a member of a share group, with its subscription if there is one."""
        request = ShareGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            subscribed_topic_names=list(topics) or None,
            **more,
        )
        return _ask(lambda: self.coordinator.share_heartbeat(request, Caller(1, "c", "/127.0.0.1")))

    def share_group(self, group: str = "g") -> ShareGroup:
        found = self.coordinator.group(group)
        assert isinstance(found, ShareGroup)
        return found

    def consumer_group(self, group: str = "g") -> ConsumerGroup:
        found = self.coordinator.group(group)
        assert isinstance(found, ConsumerGroup)
        return found

    def join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        instance: str | None = None,
        client: str = "c",
        version: int = 9,
        session: int = 10_000,
        rebalance: int = 60_000,
        type: str = "consumer",
        protocols: dict[str, bytes] | None = None,
    ) -> asyncio.Task[JoinGroupResponse]:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session,
            rebalance_timeout_ms=rebalance,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in (protocols or {"range": subscription("t")}).items()
            ],
        )
        return _ask(lambda: self.coordinator.join(request, Caller(version, client, "/127.0.0.1")))

    async def new_member(self, **options: Any) -> tuple[str, asyncio.Task[JoinGroupResponse]]:
        """Let a dynamic member join in two steps. Return its id, and the task of the JoinGroup that waits."""
        first = await self.join(**options)
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return first.member_id, self.join(first.member_id, **options)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
        type: str | None = None,
        protocol: str | None = None,
    ) -> asyncio.Task[SyncGroupResponse]:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=type,
            protocol_name=protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=name, assignment=assignment)
                for name, assignment in (assignments or {}).items()
            ],
        )
        return _ask(lambda: self.coordinator.sync(request))

    async def heartbeat(
        self, member_id: str, generation: int, *, group: str = "g", instance: str | None = None
    ) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        return await self.error(_ask(lambda: self.coordinator.heartbeat(request)))

    async def error(self, task: asyncio.Task[Any]) -> ErrorCode:
        """Return the error of an answer, from the response or from an exception."""
        try:
            return ErrorCode((await task).error_code)
        except KafkaError as error:
            return error.code

    async def leave(self, *members: tuple[str, str | None], group: str = "g") -> LeaveGroupResponse:
        leavers = [MemberIdentity(member_id=m, group_instance_id=i) for m, i in members]
        return await _ask(lambda: self.coordinator.leave(group, leavers))

    async def commit(
        self,
        offsets: dict[tuple[str, int], int],
        member_id: str = "",
        generation: int = -1,
        *,
        group: str = "g",
        instance: str | None = None,
        metadata: str = "",
        retention_ms: int = -1,
        version: int = 9,
        topic_id: bytes = ZERO_TOPIC_ID,
    ) -> ErrorCode:
        """Commit offsets. Return the error of the whole commit, or else of its first partition."""
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=topic_id,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_metadata=metadata,
                        )
                    ],
                )
                for (topic, partition), offset in offsets.items()
            ],
        )
        try:
            response = await _ask(lambda: self.coordinator.commit(request, version))
        except KafkaError as error:
            return error.code
        codes = [p.error_code for t in response.topics for p in t.partitions]
        return ErrorCode(next((code for code in codes if code), 0))

    async def delete(self, group: str = "g") -> ErrorCode:
        try:
            await _ask(lambda: self.coordinator.delete_group(group))
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    async def delete_offsets(self, *partitions: tuple[str, int], group: str = "g") -> Any:
        """Delete offsets. Return the outcome of each partition, or the error of the whole request."""
        keys = [OffsetKey(group, topic, partition) for topic, partition in partitions]
        try:
            return list((await _ask(lambda: self.coordinator.delete_offsets(group, keys))).values())
        except KafkaError as error:
            return error.code

    def committed(self, topic: str = "t", partition: int = 0, group: str = "g") -> int | None:
        committed = self.coordinator.offsets(group).get(OffsetKey(group, topic, partition))
        return None if committed is None else committed.offset

    def state(self, group: str = "g") -> str:
        return self.coordinator.group(group).state.value

    async def stable(self, members: int = 1, **options: Any) -> tuple[list[str], int]:
        """Create a group of dynamic members in a stable generation. Return their ids (the leader first) and
        the generation.
        """
        parked = [await self.new_member(**options) for _ in range(members)]
        ids = [member_id for member_id, _ in parked]
        responses = [await join for _, join in parked]
        generation = responses[0].generation_id
        parts = {name: f"assignment of {name}".encode() for name in ids}
        syncs = [self.sync(name, generation, parts if name == ids[0] else {}) for name in ids]
        await asyncio.gather(*syncs)
        return ids, generation


def _ask(request: Callable[[], Any]) -> asyncio.Task[Any]:
    """Send a request at once, as a handler does. The task has the answer or the error."""
    try:
        answer = request()
    except KafkaError as error:
        failure = error

        async def fail() -> Any:
            raise failure

        return asyncio.ensure_future(fail())

    async def wait() -> Any:
        return await answer if inspect.isawaitable(answer) else answer

    return asyncio.ensure_future(wait())


@pytest.fixture
def coordinate() -> Callable[..., None]:
    """Run a scenario with a coordinator in virtual time: `coordinate(scenario, **settings)`."""

    def run(scenario: Callable[[Groups], Coroutine[Any, Any, None]], **settings: Any) -> None:
        async def main() -> None:
            groups = Groups(**settings)
            await scenario(groups)
            await groups.coordinator.stop()

        run_virtual(main())

    return run


@pytest.fixture(name="told", scope="session")
def told_fixture() -> Callable[[ConsumerGroupHeartbeatResponse], dict[str, list[int]] | None]:
    """Return the assignment in an answer, by topic name."""
    return told


@pytest.fixture(scope="session")
def memory_log() -> type[MemoryLog]:
    """Return the class of internal topics in memory."""
    return MemoryLog


@pytest.fixture(scope="session")
def make_groups() -> type[Groups]:
    """Return the class `Groups`, which makes group coordinators on the running event loop."""
    return Groups
