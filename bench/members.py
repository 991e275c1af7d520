"""Simulates hundreds of consumer group members in one event loop, with the codecs of Barnabas.

Real clients have several threads each. One machine can run a thousand of these simulated members. A member
does what a client does: it finds its coordinator and joins. With the classic protocol, it joins again
with the assigned member id, the leader assigns partitions, and heartbeats tell it when to rejoin. With the
consumer protocol (KIP-848), it sends heartbeats at the interval that the broker sets. It also reports at once
which partitions it has taken over or given up.
"""

from __future__ import annotations

import asyncio
import sys
import time
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from contextlib import suppress
from random import Random
from typing import TypeVar

from barnabas.base.environment.network import SocketNetwork
from barnabas.base.errors import ErrorCode
from barnabas.broker.interbroker import Channel, ChannelSettings
from barnabas.kafka.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.kafka.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.kafka.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from barnabas.kafka.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from barnabas.kafka.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from barnabas.kafka.protocol.schema import Request, Response
from bench.descriptors import allow_descriptors
from bench.figures import Figures

#: the versions that librdkafka 2.16 speaks, by the API's number
VERSIONS = {10: 2, 11: 5, 12: 3, 13: 1, 14: 3, 68: 1}
HEARTBEAT_SECONDS = 1.0
SESSION_MS = 45_000
SETTLE_SECONDS = 90.0
SUBSCRIPTION = b"\0\1\0\0\0\1\0\5bench\xff\xff\xff\xff\0\0\0\0"
ASSIGNMENT = b"\0\1\0\0\0\1\0\5bench\0\0\0\1\0\0\0\0\xff\xff\xff\xff"

R = TypeVar("R", bound=Response)


class _Group:
    """The state that all members of one group share."""

    def __init__(self, size: int, partitions: int) -> None:
        self.id = f"bench-{uuid.uuid4()}"
        self.size = size
        self.partitions = partitions
        self.settled = asyncio.Event()
        #: generation or member epoch, and how many partitions it has, by member
        self._states: dict[object, tuple[int, int]] = {}
        self._generations: Counter[int] = Counter()
        self._count = 0

    def has(self, member: object, generation: int, partitions: int) -> None:
        """Note the assignment of a member. The group has settled when all members have one in the same
        generation.
        """
        before, count = self._states.get(member, (None, 0))
        if before is not None:
            self._generations[before] -= 1
        self._states[member] = generation, partitions
        self._generations[generation] += 1
        self._count += partitions - count
        if self._generations[generation] == self.size and self._count == self.partitions:
            self.settled.set()


class _Member(ABC):
    def __init__(self, group: _Group) -> None:
        self._group = group
        self._channel: Channel

    async def connect(self, bootstrap: str) -> None:
        """Connect, and create the internal topic of the groups."""
        host, _, port = bootstrap.rpartition(":")
        self._channel = Channel(
            SocketNetwork(),
            lambda: (host, int(port)),
            name=bootstrap,
            client_id="bench",
            rng=Random(0),
            settings=ChannelSettings(request_timeout=SETTLE_SECONDS),
        )
        find = FindCoordinatorRequest(key=self._group.id)
        while (await self._ask(find, FindCoordinatorResponse)).error_code:
            await asyncio.sleep(0.1)

    @abstractmethod
    async def take_part(self) -> None:
        """Join the group, and follow its protocol until all members have settled."""

    async def leave(self) -> None:
        """Leave the group."""
        await self._leave()
        await self._channel.close()

    @abstractmethod
    async def _leave(self) -> None: ...

    async def _ask(self, request: Request, answer: type[R]) -> R:
        response = await self._channel.send(request, max_version=VERSIONS[request.api_key])
        assert isinstance(response, answer)
        return response


class _ClassicMember(_Member):
    _id = ""
    _generation = -1

    async def take_part(self) -> None:
        while not self._group.settled.is_set():
            if await self._join():
                await self._heartbeat()

    async def _join(self) -> bool:
        """Run one round of joining. Return whether this member got an assignment."""
        joined = await self._ask(
            JoinGroupRequest(
                group_id=self._group.id,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=300_000,
                member_id=self._id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
            ),
            JoinGroupResponse,
        )
        if joined.error_code in _NOT_YET:
            await asyncio.sleep(0.1)
            return False
        self._id = joined.member_id
        if joined.error_code in _AGAIN:
            return False
        _check("JoinGroup", joined.error_code)
        self._generation = joined.generation_id
        synced = await self._ask(
            SyncGroupRequest(
                group_id=self._group.id,
                generation_id=self._generation,
                member_id=self._id,
                assignments=[
                    SyncGroupRequestAssignment(member_id=member.member_id, assignment=ASSIGNMENT)
                    for member in joined.members
                ],
            ),
            SyncGroupResponse,
        )
        if synced.error_code in _AGAIN:
            return False
        _check("SyncGroup", synced.error_code)
        self._group.has(self, self._generation, 1)
        return True

    async def _heartbeat(self) -> None:
        """Send heartbeats until the group rebalances or has settled."""
        request = HeartbeatRequest(
            group_id=self._group.id, generation_id=self._generation, member_id=self._id
        )
        while True:
            try:
                await asyncio.wait_for(self._group.settled.wait(), HEARTBEAT_SECONDS)
            except TimeoutError:
                error = (await self._ask(request, HeartbeatResponse)).error_code
                if error in _AGAIN:
                    return
                _check("Heartbeat", error)
            else:
                return

    async def _leave(self) -> None:
        await self._ask(LeaveGroupRequest(group_id=self._group.id, member_id=self._id), LeaveGroupResponse)


class _ConsumerMember(_Member):
    def __init__(self, group: _Group, topic: str) -> None:
        super().__init__(group)
        self._id = str(uuid.uuid4())
        self._topic = topic

    async def take_part(self) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group.id,
            member_id=self._id,
            rebalance_timeout_ms=300_000,
            subscribed_topic_names=[self._topic],
            topic_partitions=[],
        )
        owned: list[TopicPartitions] = []
        while not self._group.settled.is_set():
            told = await self._ask(request, ConsumerGroupHeartbeatResponse)
            if told.error_code in _NOT_YET:
                await asyncio.sleep(0.1)
                continue
            _check("ConsumerGroupHeartbeat", told.error_code)
            request = ConsumerGroupHeartbeatRequest(
                group_id=self._group.id, member_id=self._id, member_epoch=told.member_epoch
            )
            if told.assignment is not None:
                owned = request.topic_partitions = told.assignment.topic_partitions
            self._group.has(self, told.member_epoch, sum(len(topic.partitions) for topic in owned))
            if told.assignment is None:
                await self._rest(told.heartbeat_interval_ms / 1000)

    async def _rest(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._group.settled.wait(), seconds)

    async def _leave(self) -> None:
        request = ConsumerGroupHeartbeatRequest(group_id=self._group.id, member_id=self._id, member_epoch=-1)
        await self._ask(request, ConsumerGroupHeartbeatResponse)


_AGAIN = (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS)
_NOT_YET = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def _check(what: str, error: int) -> None:
    if error:
        raise RuntimeError(f"{what}: error {error}")


async def _settle(bootstrap: str, groups: int, members: int, topic: str | None, partitions: int) -> float:
    size = members // groups
    # By the classic protocol a member is given one partition, and nobody looks at it.
    opened = [_Group(size, size if topic is None else partitions) for _ in range(groups)]
    # One of each group after the other, as when many applications are rolled out at once.
    everybody: list[_Member] = [
        _ClassicMember(group) if topic is None else _ConsumerMember(group, topic)
        for _ in range(size)
        for group in opened
    ]
    for start in range(0, members, 50):
        await asyncio.gather(*(member.connect(bootstrap) for member in everybody[start : start + 50]))
    started = time.monotonic()
    async with asyncio.timeout(SETTLE_SECONDS):
        await asyncio.gather(*(member.take_part() for member in everybody))
    elapsed = time.monotonic() - started
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await asyncio.gather(*(member.leave() for member in everybody))
    return elapsed


def settle(
    bootstrap: str, groups: int, members: int, topic: str | None = None, partitions: int = 0
) -> Figures:
    """Measure the time until every group has settled, from the first join of a member.

    A group has settled when all its members are in one generation. It then prints `ready`, so that the parent
    can measure the broker's memory. It ends at the end of its input. With a `topic`, the members use the
    consumer protocol (KIP-848) and share its `partitions`.
    """
    allow_descriptors(members)
    began = time.process_time()
    elapsed = asyncio.run(_settle(bootstrap, groups, members, topic, partitions))
    return {"s": elapsed, "driver CPU s": time.process_time() - began}
