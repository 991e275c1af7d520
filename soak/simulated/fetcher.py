"""Reads partitions from positions on, with fetch sessions or without."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

from barnabas.errors import ErrorCode
from barnabas.interbroker.errors import ChannelError
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.records.record import decode_records
from barnabas.spark.visible_batches import visible_payloads, whole_batches
from barnabas.types import Buffer
from soak.checker.model import READ_COMMITTED
from soak.roles.common import identity
from soak.simulated.client import Client, Place

EARLIEST, LATEST = -2, -1
_PARTITION_BYTES = 8192
_SESSION_LOST = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
_NO_SESSION = (0, -1)
_NEW_SESSION = (0, 0)


class Found(NamedTuple):
    """A record that was fetched."""

    place: Place
    offset: int
    id: str
    key: str | None


class Fetcher:
    """The positions of one consumer, and its fetch session.

    Attributes:
        positions: the next offset of each partition to read.
        ends: the end that the last answer told of each partition, as the isolation level sees it.
    """

    def __init__(self, client: Client, isolation: str, *, with_session: bool) -> None:
        self._client = client
        self._is_committed = isolation == READ_COMMITTED
        self.positions: dict[Place, int] = {}
        self.ends: dict[Place, int] = {}
        self._with_session = with_session
        self._session = _NEW_SESSION if with_session else _NO_SESSION
        #: what the session has: the position that was last said
        self._said: dict[Place, int] = {}

    async def seek(self, places: Iterable[Place], timestamp: int = EARLIEST) -> dict[Place, int]:
        """Where partitions begin or end; those the broker does not tell are missing."""
        found = await list_offsets(self._client, places, timestamp, committed=self._is_committed)
        self.positions.update(found)
        return found

    async def poll(self, max_wait: float = 0.5) -> list[Found]:
        """What is there from the positions on, which move on behind it; nothing when there is no answer."""
        self._client.channel("fetch")
        if not self.positions:
            await self._client.pause_for(max_wait)
            return []
        if self._client.by_id and (
            unknown := {t for t, _ in self.positions if t not in self._client.topic_ids}
        ):
            await self._client.learn(*sorted(unknown))
        request = self._request(max_wait)
        try:
            response = await self._client.ask(
                request, purpose="fetch", timeout=max_wait + 4, at_most=18 if self._client.by_id else 12
            )
        except ChannelError:
            self._restart_session()
            await self._client.back_off()
            return []
        if response.error_code:
            self._client.note_code(response.error_code, "Fetch")
            self._restart_session()
            if response.error_code not in _SESSION_LOST:
                await self._client.back_off()
            return []
        if self._with_session:
            self._session = (
                (response.session_id, self._session[1] + 1) if response.session_id else _NEW_SESSION
            )
        return await self._take(response.responses)

    def _restart_session(self) -> None:
        self._said.clear()
        if self._with_session:
            self._session = _NEW_SESSION

    def _request(self, max_wait: float) -> FetchRequest:
        session_id, epoch = self._session
        if not session_id:
            self._said.clear()
        changed = [p for p, position in self.positions.items() if self._said.get(p) != position]
        forgotten = [p for p in self._said if p not in self.positions]
        asked = changed if session_id else list(self.positions)
        if session_id or self._with_session:
            self._said = dict(self.positions)
        ids = self._client.topic_ids
        topics: dict[str, list[FetchPartition]] = {}
        for topic, partition in asked:
            topics.setdefault(topic, []).append(
                FetchPartition(
                    partition=partition,
                    fetch_offset=self.positions[topic, partition],
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
            topics=[
                FetchTopic(topic=topic, topic_id=ids.get(topic, bytes(16)), partitions=partitions)
                for topic, partitions in topics.items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic=topic, topic_id=ids.get(topic, bytes(16)), partitions=numbers)
                for topic, numbers in gone.items()
            ],
        )

    async def _take(self, topics: Sequence[Any]) -> list[Found]:
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
                    await self._fail(place, part)
                else:
                    self.ends[place] = part.last_stable_offset if self._is_committed else part.high_watermark
                    self._check(place, part)
                    found.extend(self._read(place, part))
        if strange:
            await self._client.back_off()
        return found

    def _check(self, place: Place, part: PartitionData) -> None:
        """What one answer says of a partition fits together."""
        stable = part.last_stable_offset
        if not part.log_start_offset <= part.high_watermark or not -1 <= stable <= part.high_watermark:
            self._client.stage.complain(
                "bounds",
                f"a fetch of {place} was answered by start {part.log_start_offset}, "
                f"stable {stable}, high watermark {part.high_watermark}",
            )

    async def _fail(self, place: Place, part: PartitionData) -> None:
        self._client.note_code(part.error_code, "Fetch")
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self.seek([place])
        elif part.error_code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            self._client.topic_ids.pop(place[0], None)
            self._restart_session()
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
                    headers = [(name, value or b"") for name, value in record.headers]
                    key = None if record.key is None else record.key.decode()
                    found.append(Found(place, record.offset, identity(record.value, headers), key))
        if batches:
            self.positions[place] = max(start, batches[-1][1].next_offset)
        return found


async def list_offsets(
    client: Client, places: Iterable[Place], timestamp: int, *, committed: bool = False
) -> dict[Place, int]:
    """The offset at a timestamp, of each partition that the broker can tell; nothing without an answer."""
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(
            ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        )
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=1 if committed else 0,
        topics=[ListOffsetsTopic(name=topic, partitions=partitions) for topic, partitions in topics.items()],
    )
    try:
        response = await client.ask(request)
    except ChannelError:
        return {}
    for topic in response.topics:
        for part in topic.partitions:
            client.note_code(part.error_code, "ListOffsets")
    return {
        (topic.name, part.partition_index): part.offset
        for topic in response.topics
        for part in topic.partitions
        if not part.error_code
    }
