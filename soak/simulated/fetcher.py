"""Reads partitions from given positions, with or without fetch sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

from barnabas.base.errors import ErrorCode
from barnabas.base.types import Buffer
from barnabas.broker.interbroker.errors import ChannelError
from barnabas.kafka.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from barnabas.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.kafka.records.record import decode_records
from barnabas.spark.visible_batches import visible_payloads, whole_batches
from soak.checker.model import READ_COMMITTED
from soak.roles.common import identity
from soak.simulated.client import Client, Place

EARLIEST, LATEST = -2, -1
_PARTITION_BYTES = 8192
#: how often a poll asks the leaders again, as clients do whose metadata are old
_FORGET_NEARER = 0.03
_SESSION_LOST = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
_NO_SESSION = (0, -1)
_NEW_SESSION = (0, 0)


class Found(NamedTuple):
    """A record that a fetch returned."""

    place: Place
    offset: int
    id: str
    key: str | None
    headers: tuple[tuple[str, bytes], ...]


class _Session:
    """A fetch session with one broker. It sends a partition again if its position or its leader epoch has
    changed.
    """

    def __init__(self, *, is_wanted: bool) -> None:
        self._is_wanted = is_wanted
        self.id, self.epoch = _NEW_SESSION if is_wanted else _NO_SESSION
        #: what the broker has: the position that was last said
        self.said: dict[Place, tuple[int, int]] = {}

    def restart(self) -> None:
        self.said.clear()
        self.id, self.epoch = _NEW_SESSION if self._is_wanted else _NO_SESSION

    def answered(self, session_id: int) -> None:
        if self._is_wanted:
            self.id, self.epoch = (session_id, self.epoch + 1) if session_id else _NEW_SESSION

    def changes(self, positions: dict[Place, tuple[int, int]]) -> tuple[list[Place], list[Place]]:
        """Return the partitions to send in the next request, and those that the broker should forget."""
        if not self.id:
            self.said.clear()
        changed = [p for p, position in positions.items() if self.said.get(p) != position]
        forgotten = [p for p in self.said if p not in positions]
        asked = changed if self.id else list(positions)
        if self._is_wanted:
            self.said = dict(positions)
        return asked, forgotten


class Fetcher:
    """The positions of one consumer, and its fetch sessions.

    Attributes:
        positions: the next offset to read, by partition.
        ends: the end of each partition in the last answer: the high watermark or the last stable offset, by
            the isolation level.
    """

    def __init__(self, client: Client, isolation: str, *, with_session: bool) -> None:
        self._client = client
        self._is_committed = isolation == READ_COMMITTED
        self.positions: dict[Place, int] = {}
        self.ends: dict[Place, int] = {}
        self._with_session = with_session
        self._sessions: dict[int, _Session] = {}
        #: followers that leaders have named, since they are nearer (KIP-392)
        self._nearer: dict[Place, int] = {}

    async def seek(self, places: Iterable[Place], timestamp: int = EARLIEST) -> dict[Place, int]:
        """Set the positions to the offsets at `timestamp`, by default the log start. Return those that the
        brokers know.
        """
        found = await list_offsets(self._client, places, timestamp, committed=self._is_committed)
        self.positions.update(found)
        return found

    async def poll(self, max_wait: float = 0.5) -> list[Found]:
        """Return the records at the positions, and advance the positions. Return an empty list without an
        answer.
        """
        client = self._client
        if client.by_id and (unknown := {t for t, _ in self.positions if t not in client.topic_ids}):
            await client.learn(*sorted(unknown))
        if client.random.random() < _FORGET_NEARER:
            self._nearer.clear()
        brokers: dict[int, list[Place]] = {}
        for leader, places in (await client.by_leader(self.positions)).items():
            for place in places:
                brokers.setdefault(self._nearer.get(place, leader), []).append(place)
        if not brokers:
            await client.pause_for(max_wait)
            return []
        polls = [self._poll(broker, places, max_wait) for broker, places in brokers.items()]
        return [found for of_one in await asyncio.gather(*polls) for found in of_one]

    async def _poll(self, leader: int, places: list[Place], max_wait: float) -> list[Found]:
        client = self._client
        session = self._sessions.get(leader)
        if session is None:
            session = self._sessions[leader] = _Session(is_wanted=self._with_session)
        request = self._request(session, places, max_wait)
        try:
            response = await client.ask(
                request,
                broker=leader,
                purpose="fetch",
                timeout=max_wait + 4,
                max_version=18 if client.by_id else 12,
            )
        except ChannelError:
            session.restart()
            for place in places:
                client.routes.doubt_leader(place)
                self._nearer.pop(place, None)
            await client.back_off()
            return []
        if response.error_code:
            client.note_code(response.error_code, "Fetch")
            session.restart()
            for place in places:
                self._nearer.pop(place, None)
            if response.error_code not in _SESSION_LOST:
                await client.back_off()
            return []
        session.answered(response.session_id)
        return await self._take(session, response.responses)

    def _request(self, session: _Session, places: list[Place], max_wait: float) -> FetchRequest:
        session_id, epoch = session.id, session.epoch
        routes = self._client.routes
        positions = {
            place: (self.positions[place], routes.epoch_of(place))
            for place in places
            if place in self.positions
        }
        asked, forgotten = session.changes(positions)
        ids = self._client.topic_ids
        topics: dict[str, list[FetchPartition]] = {}
        for topic, partition in asked:
            topics.setdefault(topic, []).append(
                FetchPartition(
                    partition=partition,
                    current_leader_epoch=positions[topic, partition][1],
                    fetch_offset=positions[topic, partition][0],
                    partition_max_bytes=_PARTITION_BYTES,
                )
            )
        gone: dict[str, list[int]] = {}
        for topic, partition in forgotten:
            gone.setdefault(topic, []).append(partition)
        return FetchRequest(
            max_wait_ms=round(max_wait * 1000),
            min_bytes=1,
            isolation_level=1 if self._is_committed else 0,
            session_id=session_id,
            session_epoch=epoch,
            rack_id=self._client.rack,
            topics=[
                FetchTopic(topic=topic, topic_id=ids.get(topic, bytes(16)), partitions=partitions)
                for topic, partitions in topics.items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic=topic, topic_id=ids.get(topic, bytes(16)), partitions=numbers)
                for topic, numbers in gone.items()
            ],
        )

    async def _take(self, session: _Session, topics: Sequence[Any]) -> list[Found]:
        found: list[Found] = []
        strange = False
        for topic in topics:
            name = topic.topic or self._client.topic_names.get(topic.topic_id, "")
            for part in topic.partitions:
                place = (name, part.partition_index)
                if place not in self.positions:
                    continue
                if part.error_code:
                    strange = True
                    self._client.check_named_leader(topic.topic_id, part.partition_index, part.current_leader)
                    await self._fail(session, place, part)
                elif part.preferred_read_replica >= 0:
                    self._nearer[place] = part.preferred_read_replica
                else:
                    self.ends[place] = part.last_stable_offset if self._is_committed else part.high_watermark
                    self._check(place, part)
                    found.extend(self._read(place, part))
        if strange:
            await self._client.back_off()
        return found

    def _check(self, place: Place, part: PartitionData) -> None:
        """Check that the fields of a partition in an answer are consistent."""
        stable = part.last_stable_offset
        if not part.log_start_offset <= part.high_watermark or not -1 <= stable <= part.high_watermark:
            self._client.stage.complain(
                "bounds",
                f"a fetch of {place} was answered by start {part.log_start_offset}, "
                f"stable {stable}, high watermark {part.high_watermark}",
            )

    async def _fail(self, session: _Session, place: Place, part: PartitionData) -> None:
        self._client.judge_leader(place, part.error_code, "Fetch")
        was_nearer = self._nearer.pop(place, None) is not None
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and was_nearer:
            return  # a follower may be behind: the leader knows
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self.seek([place])
        elif part.error_code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            self._client.topic_ids.pop(place[0], None)
            session.restart()
            await self._client.learn(place[0])

    def _read(self, place: Place, part: PartitionData) -> list[Found]:
        data = memoryview(cast("Buffer", part.records or b""))  # what was decoded is one buffer
        batches = whole_batches(data)
        start = self.positions[place]
        found = []
        for payload in visible_payloads(
            data, batches, part.aborted_transactions or [], start=start, end=2**62, check_crcs=True
        ):
            header = payload.header
            records = decode_records(
                bytes(payload.data[payload.start : payload.end]),
                header.record_count,
                header.base_offset,
                header.base_timestamp,
            )
            for record in records:
                if record.offset >= start:
                    headers = tuple((name, value or b"") for name, value in record.headers)
                    key = None if record.key is None else record.key.decode()
                    found.append(Found(place, record.offset, identity(record.value, headers), key, headers))
        if batches:
            self.positions[place] = max(start, batches[-1][1].next_offset)
        return found


async def list_offsets(
    client: Client, places: Iterable[Place], timestamp: int, *, committed: bool = False
) -> dict[Place, int]:
    """Return the offset at a timestamp, for each partition that the brokers know."""
    asked = [
        _list_offsets_of(client, leader, led, timestamp, committed=committed)
        for leader, led in (await client.by_leader(places)).items()
    ]
    return {place: offset for of_one in await asyncio.gather(*asked) for place, offset in of_one.items()}


async def _list_offsets_of(
    client: Client, leader: int, places: Iterable[Place], timestamp: int, *, committed: bool
) -> dict[Place, int]:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(
            ListOffsetsPartition(
                partition_index=partition,
                current_leader_epoch=client.routes.epoch_of((topic, partition)),
                timestamp=timestamp,
            )
        )
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=1 if committed else 0,
        topics=[ListOffsetsTopic(name=topic, partitions=partitions) for topic, partitions in topics.items()],
    )
    try:
        response = await client.ask(request, broker=leader)
    except ChannelError:
        for place in places:
            client.routes.doubt_leader(place)
        return {}
    parts = [(topic.name, part) for topic in response.topics for part in topic.partitions]
    for name, part in parts:
        client.judge_leader((name, part.partition_index), part.error_code, "ListOffsets")
    return {(name, part.partition_index): part.offset for name, part in parts if not part.error_code}
