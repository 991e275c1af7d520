"""Members of consumer groups of both protocols, and the offsets of their groups."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Protocol

from barnabas.base.environment.randomness import new_uuid
from barnabas.base.errors import ErrorCode
from barnabas.broker.interbroker.errors import ChannelError
from barnabas.kafka.protocol.codec import decode, encode
from barnabas.kafka.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from barnabas.kafka.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.kafka.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from barnabas.kafka.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.kafka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.kafka.protocol.records.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from soak.roles.common import SESSION_MS, Offsets
from soak.simulated.client import GROUP, Client, Place, is_retriable

_REBALANCE_MS = 6000
_HEARTBEAT_SECONDS = 1.0
_VERSION = struct.Struct(">h")

OnChange = Callable[[list[Place]], Awaitable[None]]


class Member(Protocol):
    """A member of a group of either protocol. It may read the partitions in `owned`."""

    owned: dict[Place, None]

    @property
    def identity(self) -> tuple[str, int]:
        """Return the member id, and the generation or the member epoch, which a commit needs."""
        ...

    async def step(self) -> None:
        """Execute the next step of the protocol: join, send a heartbeat, or take and give up partitions."""
        ...

    async def leave(self) -> None: ...


class ClassicMember:
    """A member of a classic group, with eager rebalances. As the group's leader it assigns the partitions.

    Args:
        on_assigned: called and awaited after the member has got partitions.
        on_revoked: called and awaited before the member gives up partitions, while it can still commit.
        on_lost: called and awaited after the member has lost partitions.
    """

    def __init__(
        self, client: Client, *, on_assigned: OnChange, on_revoked: OnChange, on_lost: OnChange
    ) -> None:
        self._client = client
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._on_lost = on_lost
        self._member_id = ""
        self._generation = -1
        self._is_joined = False
        self._next_beat = 0.0
        self.owned: dict[Place, None] = {}

    @property
    def identity(self) -> tuple[str, int]:
        return self._member_id, self._generation

    async def step(self) -> None:
        if not self._is_joined:
            await self._join()
        elif self._client.time() >= self._next_beat:
            await self._beat()

    async def leave(self) -> None:
        member = MemberIdentity(member_id=self._member_id)
        request = LeaveGroupRequest(group_id=self._client.task.group, members=[member])
        if self._member_id:
            with suppress(ChannelError):
                await self._client.ask_coordinator(GROUP, self._client.task.group, request, purpose="group")
        self._is_joined = False

    async def _beat(self) -> None:
        self._next_beat = self._client.time() + _HEARTBEAT_SECONDS
        try:
            response = await self._client.ask_coordinator(
                GROUP,
                self._client.task.group,
                HeartbeatRequest(
                    group_id=self._client.task.group,
                    generation_id=self._generation,
                    member_id=self._member_id,
                ),
                purpose="group",
            )
        except ChannelError:
            return
        code = response.error_code
        self._client.note_code(code, "Heartbeat")
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            await self._give_up_partitions(self._on_revoked)
            self._is_joined = False
        elif code and not is_retriable(code):
            await self._forget(code)

    async def _give_up_partitions(self, how: OnChange) -> None:
        gone, self.owned = list(self.owned), {}
        if gone:
            await how(gone)

    async def _forget(self, code: int) -> None:
        """Forget the member id, because the group has continued without this member."""
        self._is_joined = False
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self._member_id = ""
        await self._give_up_partitions(self._on_lost)

    async def _join(self) -> None:
        client = self._client
        topics = list(client.task.topics)
        subscription = _VERSION.pack(1) + encode(ConsumerProtocolSubscription(topics=topics), 1)
        try:
            response = await client.ask_coordinator(
                GROUP,
                client.task.group,
                JoinGroupRequest(
                    group_id=client.task.group,
                    session_timeout_ms=SESSION_MS,
                    rebalance_timeout_ms=_REBALANCE_MS,
                    member_id=self._member_id,
                    protocol_type="consumer",
                    protocols=[JoinGroupRequestProtocol(name="dealt", metadata=subscription)],
                ),
                purpose="group",
                timeout=_REBALANCE_MS / 1000 + 4,
            )
        except ChannelError:
            await client.back_off()
            return
        client.note_code(response.error_code, "JoinGroup")
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = response.member_id
            return
        if response.error_code:
            if response.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self._member_id = ""
            await client.back_off()
            return
        self._member_id = response.member_id
        self._generation = response.generation_id
        await self._sync(response)

    async def _sync(self, joined: JoinGroupResponse) -> None:
        client = self._client
        assignments = []
        if joined.leader == joined.member_id and not joined.skip_assignment:
            if not await client.learn():
                return
            assignments = _deal(client, joined)
        try:
            response = await client.ask_coordinator(
                GROUP,
                client.task.group,
                SyncGroupRequest(
                    group_id=client.task.group,
                    generation_id=self._generation,
                    member_id=self._member_id,
                    protocol_type="consumer",
                    protocol_name="dealt",
                    assignments=assignments,
                ),
                purpose="group",
                timeout=_REBALANCE_MS / 1000 + 4,
            )
        except ChannelError:
            return  # and join again
        client.note_code(response.error_code, "SyncGroup")
        if response.error_code:
            if response.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self._member_id = ""
            await client.back_off()
            return
        self._is_joined = True
        self._next_beat = client.time() + _HEARTBEAT_SECONDS
        data = response.assignment
        assigned = (
            decode(ConsumerProtocolAssignment, 1, data, _VERSION.size).assigned_partitions if data else []
        )
        self.owned = {(part.topic, number): None for part in assigned for number in part.partitions}
        if self.owned:
            await self._on_assigned(list(self.owned))


def _deal(client: Client, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
    """Assign the partitions of each topic to its subscribers, one after the other."""
    subscribers: dict[str, list[str]] = {}
    for member in sorted(joined.members, key=lambda member: member.member_id):
        subscription = decode(ConsumerProtocolSubscription, 1, member.metadata, _VERSION.size)
        for topic in subscription.topics:
            subscribers.setdefault(topic, []).append(member.member_id)
    dealt: dict[str, dict[str, list[int]]] = {member.member_id: {} for member in joined.members}
    turn = 0
    for topic, members in subscribers.items():
        for number in range(client.partitions.get(topic, 0) if topic in client.topic_ids else 0):
            dealt[members[turn % len(members)]].setdefault(topic, []).append(number)
            turn += 1
    found = []
    for member_id, topics in dealt.items():
        parts = [TopicPartition(topic=topic, partitions=numbers) for topic, numbers in topics.items()]
        assignment = _VERSION.pack(1) + encode(ConsumerProtocolAssignment(assigned_partitions=parts), 1)
        found.append(SyncGroupRequestAssignment(member_id=member_id, assignment=assignment))
    return found


class AssignedMember:
    """A consumer that is in no group. It reads all partitions of its topics, and only commits offsets for a
    group.

    The arguments are those of `ClassicMember`.
    """

    def __init__(
        self, client: Client, *, on_assigned: OnChange, on_revoked: OnChange, on_lost: OnChange
    ) -> None:
        self._client = client
        self._on_assigned = on_assigned
        self.owned: dict[Place, None] = {}

    @property
    def identity(self) -> tuple[str, int]:
        return "", -1

    async def step(self) -> None:
        if not self.owned:
            topics = self._client.task.topics
            self.owned = {(topic, number): None for topic, count in topics.items() for number in range(count)}
            await self._on_assigned(list(self.owned))

    async def leave(self) -> None:
        """Do nothing: there is no group to leave."""


class ConsumerMember:
    """A member of a group of the consumer protocol (KIP-848), in which the coordinator assigns the
    partitions.

    The arguments are those of `ClassicMember`.
    """

    def __init__(
        self, client: Client, *, on_assigned: OnChange, on_revoked: OnChange, on_lost: OnChange
    ) -> None:
        self._client = client
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._on_lost = on_lost
        self._member_id = str(new_uuid(client.random))
        self._epoch = 0
        self._interval = _HEARTBEAT_SECONDS
        self._next_beat = 0.0
        #: what the coordinator last knew us to own; None: tell it everything
        self._told: list[Place] | None = None
        self.owned: dict[Place, None] = {}

    @property
    def identity(self) -> tuple[str, int]:
        return self._member_id, self._epoch

    async def step(self) -> None:
        if self._client.time() >= self._next_beat or self._told != list(self.owned):
            await self._beat()

    async def leave(self) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._client.task.group, member_id=self._member_id, member_epoch=-1
        )
        with suppress(ChannelError):
            await self._client.ask_coordinator(GROUP, self._client.task.group, request, purpose="group")

    async def _beat(self) -> None:
        client = self._client
        self._next_beat = client.time() + self._interval
        telling = list(self.owned)
        request = ConsumerGroupHeartbeatRequest(
            group_id=client.task.group, member_id=self._member_id, member_epoch=self._epoch
        )
        if self._told is None:
            request.rebalance_timeout_ms = _REBALANCE_MS
            request.subscribed_topic_names = list(client.task.topics)
        if self._told != telling:
            await client.know(dict.fromkeys(topic for topic, _ in telling))
            request.topic_partitions = self._by_id(telling)
        try:
            response = await client.ask_coordinator(GROUP, client.task.group, request, purpose="group")
        except ChannelError:
            self._told = None
            return
        code = response.error_code
        client.note_code(code, "ConsumerGroupHeartbeat")
        if code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self._epoch, self._told, self._next_beat = 0, None, 0.0
            lost, self.owned = list(self.owned), {}
            if lost:
                await self._on_lost(lost)
            return
        if code:
            self._told = None
            await client.back_off()
            return
        self._told = telling
        self._epoch = response.member_epoch
        self._interval = min(response.heartbeat_interval_ms / 1000, _HEARTBEAT_SECONDS)
        if response.assignment is not None:
            await self._reconcile(response.assignment.topic_partitions)

    async def _reconcile(self, assigned: Iterable[TopicPartitions]) -> None:
        client = self._client
        target: dict[Place, None] = {}
        for topic in assigned:
            if topic.topic_id not in client.topic_names:
                await client.learn()
            name = client.topic_names.get(topic.topic_id)
            if name is None:
                self._told = None  # so that it is said again
                continue
            target.update({(name, number): None for number in topic.partitions})
        gone = [place for place in self.owned if place not in target]
        if gone:
            await self._on_revoked(gone)
            for place in gone:
                self.owned.pop(place, None)
        come = [place for place in target if place not in self.owned]
        self.owned.update(dict.fromkeys(come))
        if come:
            await self._on_assigned(come)

    def _by_id(self, places: list[Place]) -> list[TopicPartitions]:
        topics: dict[str, list[int]] = {}
        for topic, number in places:
            topics.setdefault(topic, []).append(number)
        ids = self._client.topic_ids
        return [TopicPartitions(topic_id=ids[topic], partitions=numbers) for topic, numbers in topics.items()]


# --- offsets ---


async def commit_offsets(client: Client, member: Member, offsets: Offsets) -> int | None:
    """Commit offsets. Return the worst error code of the answer; None without an answer."""
    member_id, epoch = member.identity
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, []).append(
            OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        )
    request = OffsetCommitRequest(
        group_id=client.task.group,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )
    try:
        response = await client.ask_coordinator(GROUP, client.task.group, request, max_version=9)
    except ChannelError:
        return None
    codes = [part.error_code for topic in response.topics for part in topic.partitions]
    for code in codes:
        client.note_code(code, "OffsetCommit")
    return next((code for code in codes if code), 0)


async def fetch_offsets(
    client: Client, places: Iterable[Place] | None, *, group: str, member: Member | None = None
) -> Offsets | None:
    """Return the committed offsets of a group; None if there is no valid answer.

    Args:
        places: the partitions; None for all.
    """
    member_id, epoch = member.identity if isinstance(member, ConsumerMember) else (None, -1)
    topics: dict[str, list[int]] = {}
    for topic, partition in places or ():
        topics.setdefault(topic, []).append(partition)
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=group,
                member_id=member_id,
                member_epoch=epoch,
                topics=None
                if places is None
                else [
                    OffsetFetchRequestTopics(name=topic, partition_indexes=numbers)
                    for topic, numbers in topics.items()
                ],
            )
        ],
        require_stable=True,
    )
    try:
        response = await client.ask_coordinator(GROUP, group, request, max_version=9)
    except ChannelError:
        return None
    answer = response.groups[0]
    parts = [(topic.name, part) for topic in answer.topics for part in topic.partitions]
    for code in [answer.error_code, *(part.error_code for _, part in parts)]:
        client.note_code(code, "OffsetFetch")
        if code:
            return None
    return {(name, p.partition_index): p.committed_offset for name, p in parts if p.committed_offset >= 0}
