"""Simulates the members of a share group (KIP-932) in one event loop, with the codecs of Barnabas.

Real share consumers have several threads each. One machine can run a thousand of these simulated members. A
member does what a client does: it joins through the coordinator and sends heartbeats. It opens a share
session with each leader of its partitions, and each fetch acknowledges the records of the fetch before.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count as numbers
from itertools import cycle, islice
from typing import TypeVar, cast

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.framing import (
    FrameDecoder,
    RequestHeader,
    encode_request,
    parse_response,
)
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.kafka.protocol.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from barnabas.kafka.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)
from barnabas.kafka.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from barnabas.kafka.protocol.schema import Request, Response
from barnabas.kafka.records import all_records
from bench.figures import STAMP

#: by the API's number: those of Apache Kafka 4.2's clients, or the last that ask for one group
VERSIONS = {3: 12, 10: 2, 44: 1, 76: 1, 78: 2, 79: 2}
GROUP_RESOURCE = 32
#: within which a group settles
SETTLE_SECONDS = 90.0
#: seconds between two tries of what the broker has not made ready yet
RETRY_SECONDS = 0.05
#: as the clients' default `max.poll.records`
MAX_RECORDS = 500
MAX_WAIT_MS = 500
ACCEPT, RELEASE = 1, 2
MAX_RESPONSE_BYTES = 64 << 20

R = TypeVar("R", bound=Response)
#: an acquired range: first and last offset, both inclusive
Range = tuple[int, int]

_NOT_YET = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)


class _Connection(asyncio.Protocol):
    """One request at a time, and its response."""

    def __init__(self) -> None:
        self._ids = numbers(1)
        self._decoder = FrameDecoder(MAX_RESPONSE_BYTES)
        self._answer: asyncio.Future[bytes] | None = None
        self._awaited = 0

    @classmethod
    async def open(cls, host: str, port: int) -> _Connection:
        _, connection = await asyncio.get_running_loop().create_connection(cls, host, port)
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            # The others are responses to heartbeats that were cancelled.
            if int.from_bytes(frame[:4]) == self._awaited and self._answer and not self._answer.done():
                self._answer.set_result(bytes(frame))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(RuntimeError(f"the broker closed a connection: {exc}"))

    async def ask(self, request: Request, answer: type[R]) -> R:
        header = RequestHeader(request.api_key, VERSIONS[request.api_key], next(self._ids), "bench")
        self._answer, self._awaited = asyncio.get_running_loop().create_future(), header.correlation_id
        self._transport.write(b"".join(map(bytes, encode_request(header, request))))
        response = parse_response(header, await self._answer)
        assert isinstance(response, answer)
        return response

    def close(self) -> None:
        self._transport.close()


@dataclass
class _Topic:
    name: str
    id: bytes
    #: host and port of the leader, by partition
    leaders: dict[int, tuple[str, int]]


@dataclass
class Group:
    """Totals of all members of one group."""

    id: str
    topic: _Topic
    #: records whose acceptance was answered
    accepted: int = 0
    #: seconds from the stamp in a record until its acceptance was answered
    latencies: list[float] = field(default_factory=list)
    #: number of members by member epoch
    epochs: Counter[int] = field(default_factory=Counter)


class Member:
    """A member of a share group: its heartbeats, and its share sessions."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._id = str(uuid.uuid4())
        self._coordinator: _Connection
        self._opened: list[_Connection] = []
        self.epoch = 0
        self.partitions: list[int] = []
        self.interval = 1.0

    async def connect(self, host: str, port: int) -> None:
        self._coordinator = await _Connection.open(host, port)
        self._opened.append(self._coordinator)

    async def heartbeat(self) -> None:
        """Join, or stay in the group."""
        joins = self.epoch == 0
        request = ShareGroupHeartbeatRequest(
            group_id=self._group.id,
            member_id=self._id,
            member_epoch=self.epoch,
            subscribed_topic_names=[self._group.topic.name] if joins else None,
        )
        while True:
            told = await self._coordinator.ask(request, ShareGroupHeartbeatResponse)
            if told.error_code not in _NOT_YET:
                break
            await asyncio.sleep(RETRY_SECONDS)
        _check("ShareGroupHeartbeat", told.error_code)
        self._group.epochs[self.epoch] -= 1
        self.epoch = told.member_epoch
        self._group.epochs[self.epoch] += 1
        self.interval = told.heartbeat_interval_ms / 1000
        if told.assignment is not None:
            self.partitions = sorted(n for each in told.assignment.topic_partitions for n in each.partitions)

    async def stay(self) -> None:
        """Send heartbeats until the task is cancelled."""
        while True:
            await asyncio.sleep(self.interval)
            await self.heartbeat()

    async def sessions(self) -> list[Session]:
        """Connect to the leaders of this member's partitions."""
        by_leader: dict[tuple[str, int], list[int]] = defaultdict(list)
        for partition in self.partitions:
            by_leader[self._group.topic.leaders[partition]].append(partition)
        sessions = []
        for (host, port), partitions in by_leader.items():
            connection = await _Connection.open(host, port)
            self._opened.append(connection)
            sessions.append(Session(self._group, self._id, connection, partitions))
        return sessions

    async def leave(self) -> None:
        request = ShareGroupHeartbeatRequest(group_id=self._group.id, member_id=self._id, member_epoch=-1)
        await self._coordinator.ask(request, ShareGroupHeartbeatResponse)
        for connection in self._opened:
            connection.close()


class Session:
    """A member's share session with one leader."""

    def __init__(self, group: Group, member: str, connection: _Connection, partitions: Sequence[int]) -> None:
        self._group = group
        self._member = member
        self._connection = connection
        self._partitions = partitions
        self._epoch = 0
        #: acquired and not acknowledged yet, by partition
        self.held: dict[int, list[Range]] = {}
        self._stamps: list[float] = []

    async def work(self) -> None:
        """Fetch records, and accept them with the next fetch, until the task is cancelled."""
        while True:
            held, self.held = self.held, {}
            await self.fetch(_acknowledged(held, [ACCEPT]))
            self._group.accepted += count(held)

    async def commit(self) -> None:
        """Fetch stamped records, and accept them before the next fetch, until the task is cancelled."""
        while True:
            await self.fetch({}, stamped=True)
            if self.held:
                await self._accept()

    async def _accept(self) -> None:
        held, stamps = self.held, self._stamps
        self.held, self._stamps = {}, []
        partitions = [
            AcknowledgePartition(partition_index=number, acknowledgement_batches=batches)
            for number, batches in _acknowledged(held, [ACCEPT]).items()
        ]
        request = ShareAcknowledgeRequest(
            group_id=self._group.id,
            member_id=self._member,
            share_session_epoch=self._epoch,
            topics=[AcknowledgeTopic(topic_id=self._group.topic.id, partitions=partitions)],
        )
        response = await self._connection.ask(request, ShareAcknowledgeResponse)
        _check("ShareAcknowledge", response.error_code)
        self._epoch += 1
        for topic in response.responses:
            for data in topic.partitions:
                _check(f"acknowledging partition {data.partition_index}", data.error_code)
        now = time.monotonic()
        self._group.latencies.extend(now - stamp for stamp in stamps)
        self._group.accepted += count(held)

    async def acquire(self, enough: asyncio.Event) -> None:
        """Fetch and hold records until `enough` is set."""
        while not enough.is_set():
            await self.fetch({}, max_wait_ms=100)

    async def accept_and_release(self) -> None:
        """Accept every other record held, and release the others."""
        held, self.held = self.held, {}
        await self.fetch(_acknowledged(held, [ACCEPT, RELEASE]), max_wait_ms=0)
        self._group.accepted += sum(
            (last - first) // 2 + 1 for ranges in held.values() for first, last in ranges
        )

    async def fetch(
        self,
        acknowledged: dict[int, list[AcknowledgementBatch]],
        stamped: bool = False,
        max_wait_ms: int = MAX_WAIT_MS,
    ) -> None:
        """Send the acknowledgements with a fetch, and hold what it acquires.

        Raises:
            RuntimeError: the leader refused an acknowledgement or a fetch.
        """
        partitions = self._partitions if self._epoch == 0 else acknowledged
        request = ShareFetchRequest(
            group_id=self._group.id,
            member_id=self._member,
            share_session_epoch=self._epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=50 << 20,
            max_records=MAX_RECORDS,
            batch_size=MAX_RECORDS,
            topics=[
                FetchTopic(
                    topic_id=self._group.topic.id,
                    partitions=[
                        FetchPartition(
                            partition_index=number, acknowledgement_batches=acknowledged.get(number, [])
                        )
                        for number in partitions
                    ],
                )
            ]
            if partitions
            else [],
        )
        response = await self._connection.ask(request, ShareFetchResponse)
        _check("ShareFetch", response.error_code)
        self._epoch += 1
        for topic in response.responses:
            for data in topic.partitions:
                _check(f"acknowledging partition {data.partition_index}", data.acknowledge_error_code)
                if data.error_code in _NOT_YET:
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                _check(f"fetching partition {data.partition_index}", data.error_code)
                ranges = [(each.first_offset, each.last_offset) for each in data.acquired_records]
                if ranges:
                    self.held.setdefault(data.partition_index, []).extend(ranges)
                if stamped:
                    self._stamps += _stamps(data.records, ranges)


def count(held: dict[int, list[Range]]) -> int:
    """Return the number of records in the ranges."""
    return sum(last - first + 1 for ranges in held.values() for first, last in ranges)


def _acknowledged(
    held: dict[int, list[Range]], types: Sequence[int]
) -> dict[int, list[AcknowledgementBatch]]:
    """Return a batch for each range held, whose records have the `types` in turn."""
    return {
        partition: [
            AcknowledgementBatch(
                first_offset=first,
                last_offset=last,
                # one type stands for all records
                acknowledge_types=list(types)
                if len(types) == 1
                else list(islice(cycle(types), last - first + 1)),
            )
            for first, last in ranges
        ]
        for partition, ranges in held.items()
    }


def _stamps(records: object, ranges: Sequence[Range]) -> Iterable[float]:
    """Yield the time, in seconds of the monotonic clock, in the value of each acquired record."""
    for record in all_records(cast(bytes, records)):
        if any(first <= record.offset <= last for first, last in ranges):
            (nanoseconds,) = STAMP.unpack_from(record.value or b"")
            yield nanoseconds / 1e9


def _check(what: str, error: int) -> None:
    if error:
        raise RuntimeError(f"{what}: error {error}")


@asynccontextmanager
async def settled(
    bootstrap: str, topic: str, members: int
) -> AsyncIterator[tuple[Group, list[Member], float]]:
    """Let a new group of `members` join and settle, and keep it alive. Its records start at the earliest.

    A group is settled when all members have one epoch, and partitions.

    Yields:
        the group, its members, and the seconds from the first heartbeat until it was settled.

    Raises:
        TimeoutError: it did not settle within `SETTLE_SECONDS`.
    """
    group, coordinator = await _new_group(bootstrap, topic)
    everybody = [Member(group) for _ in range(members)]
    for start in range(0, members, 50):
        await asyncio.gather(*(member.connect(*coordinator) for member in everybody[start : start + 50]))
    began = time.monotonic()
    async with asyncio.timeout(SETTLE_SECONDS):
        await asyncio.gather(*(member.heartbeat() for member in everybody))
        staying = [asyncio.create_task(member.stay()) for member in everybody]
        while max(group.epochs.values()) < members or not all(member.partitions for member in everybody):
            await asyncio.sleep(RETRY_SECONDS)
    elapsed = time.monotonic() - began
    try:
        yield group, everybody, elapsed
    finally:
        for task in staying:
            task.cancel()
        await asyncio.gather(*staying, return_exceptions=True)
        await asyncio.gather(*(member.leave() for member in everybody))


async def _new_group(bootstrap: str, topic: str) -> tuple[Group, tuple[str, int]]:
    """Return a new group, and the address of its coordinator."""
    host, _, port = bootstrap.partition(",")[0].rpartition(":")
    connection = await _Connection.open(host, int(port))
    name = f"bench-{uuid.uuid4()}"
    alter = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=GROUP_RESOURCE,
                resource_name=name,
                configs=[AlterableConfig(name="share.auto.offset.reset", value="earliest")],
            )
        ]
    )
    (altered,) = (await connection.ask(alter, IncrementalAlterConfigsResponse)).responses
    _check("IncrementalAlterConfigs", altered.error_code)
    metadata = await connection.ask(
        MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), MetadataResponse
    )
    brokers = {broker.node_id: (broker.host, broker.port) for broker in metadata.brokers}
    (found,) = metadata.topics
    leaders = {each.partition_index: brokers[each.leader_id] for each in found.partitions}
    find = FindCoordinatorRequest(key=name)
    while (coordinator := await connection.ask(find, FindCoordinatorResponse)).error_code:
        await asyncio.sleep(RETRY_SECONDS)
    connection.close()
    return Group(name, _Topic(topic, found.topic_id, leaders)), (coordinator.host, coordinator.port)
