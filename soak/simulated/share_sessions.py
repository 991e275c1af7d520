"""The share sessions of one member: it acquires records from brokers and acknowledges them (KIP-932)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias, cast

from barnabas.base.types import Buffer
from barnabas.broker.interbroker.errors import ChannelError
from barnabas.kafka.protocol.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from barnabas.kafka.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ShareFetchRequest,
)
from barnabas.kafka.records.record import decode_records
from barnabas.spark.visible_batches import visible_payloads, whole_batches
from soak.checker.deliveries import GAP, RENEW
from soak.roles.common import identity
from soak.simulated.client import Client, Place, name_of

Verdicts: TypeAlias = Mapping[Place, Mapping[int, int]]
"""The acknowledgement type of each offset, by partition."""

_MAX_BYTES = 8192
_FINAL_EPOCH = -1
#: seconds
_ANSWER_TIMEOUT = 4.0


class Delivered(NamedTuple):
    """A record that the member has acquired."""

    broker: int
    place: Place
    offset: int
    id: str
    deliveries: int


class _Session:
    """A share session with one broker."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.epoch = 0
        #: the partitions that the broker knows to be in the session
        self.told: dict[Place, None] = {}


class ShareSessions:
    """Fetches and acknowledges. It notes each request before it is sent, and each response.

    Args:
        client: the member's client.
        member_id: the id of the member.
        max_version: the highest version of ShareFetch and ShareAcknowledge.
    """

    def __init__(self, client: Client, member_id: str, *, max_version: int) -> None:
        self._client = client
        self._member_id = member_id
        self._max_version = max_version
        self._sessions: dict[int, _Session] = {}
        self._numbers = 0

    # --- requests ---

    async def fetch(
        self, places: Iterable[Place], verdicts: Mapping[int, Verdicts], max_wait: float
    ) -> list[Delivered]:
        """Acquire records from the leaders of `places`. The requests also contain `verdicts`, by broker.

        Verdicts without an open session are dropped.
        """
        client = self._client
        leaders = await client.by_leader(places)
        # A broker whose partitions have moved away must forget them.
        left = [broker for broker, session in self._sessions.items() if session.told]
        brokers = dict.fromkeys([*leaders, *left, *verdicts])
        if not brokers:
            await client.pause_for(max_wait)
            return []
        fetches = [
            self._fetch(broker, leaders.get(broker, []), verdicts.get(broker, {}), max_wait)
            for broker in brokers
        ]
        return [delivered for of_one in await asyncio.gather(*fetches) for delivered in of_one]

    async def acknowledge(self, verdicts: Mapping[int, Verdicts]) -> None:
        """Send acknowledgements, or renewals of locks, apart from a fetch: to the brokers that delivered."""
        await asyncio.gather(*(self._acknowledge(broker, of_one) for broker, of_one in verdicts.items()))

    async def close(self) -> None:
        """Close all sessions. The brokers release the records that the member has not acknowledged."""
        open_sessions = [broker for broker, session in self._sessions.items() if session.epoch]
        await asyncio.gather(*(self._acknowledge(broker, {}, is_final=True) for broker in open_sessions))
        self._sessions.clear()

    # --- one broker ---

    async def _fetch(
        self, broker: int, places: list[Place], verdicts: Verdicts, max_wait: float
    ) -> list[Delivered]:
        client = self._client
        await self._know(places)
        session = self._session(broker)
        if not session.epoch:
            verdicts = {}
        is_strict = self._max_version >= 2 and client.random.random() < 0.3
        request = ShareFetchRequest(
            group_id=client.task.group,
            member_id=self._member_id,
            share_session_epoch=session.epoch,
            max_wait_ms=round(max_wait * 1000),
            min_bytes=1,
            max_bytes=_MAX_BYTES,
            max_records=client.random.choice([1, 5, 50]),
            batch_size=client.random.choice([1, 10]),
            share_acquire_mode=1 if is_strict else 0,
            topics=self._topics(FetchTopic, FetchPartition, self._added(session, places), verdicts),
            forgotten_topics_data=[
                ForgottenTopic(topic_id=client.topic_ids[topic], partitions=[number])
                for topic, number in session.told
                if (topic, number) not in places and topic in client.topic_ids
            ],
        )
        before = self._leases(broker, places)
        number = self._note_request(broker, session, verdicts)
        response = await self._ask(broker, session, request, max_wait + _ANSWER_TIMEOUT)
        if response is None:
            return []
        session.told = dict.fromkeys(places)
        parts = self._parts(response)
        self._note_response(number, verdicts, {p: part.acknowledge_error_code for p, part in parts.items()})
        after = self._leases(broker, parts)
        delivered = []
        gaps: dict[Place, dict[int, int]] = {}
        for place, part in parts.items():
            client.judge_leader(place, part.error_code or part.acknowledge_error_code, "ShareFetch")
            records, missing = _records(broker, place, part)
            delivered += records
            if missing:
                gaps[place] = dict.fromkeys(missing, GAP)
        client.recorder.note(
            "acquired",
            number=number,
            leases=[
                (*place, lease)
                for place, lease in after.items()
                if lease is not None and before.get(place) == lease
            ],
            records=[(*each.place, each.offset, each.id, each.deliveries) for each in delivered],
        )
        if gaps:
            await self._acknowledge(broker, gaps)
        return delivered

    async def _acknowledge(self, broker: int, verdicts: Verdicts, *, is_final: bool = False) -> None:
        client = self._client
        await self._know(verdicts)
        session = self._session(broker)
        if not session.epoch:
            return
        request = ShareAcknowledgeRequest(
            group_id=client.task.group,
            member_id=self._member_id,
            share_session_epoch=_FINAL_EPOCH if is_final else session.epoch,
            is_renew_ack=any(RENEW in of_one.values() for of_one in verdicts.values()),
            topics=self._topics(AcknowledgeTopic, AcknowledgePartition, verdicts, verdicts),
        )
        number = self._note_request(broker, session, verdicts)
        response = await self._ask(broker, session, request, _ANSWER_TIMEOUT)
        if response is None:
            return
        parts = self._parts(response)
        self._note_response(number, verdicts, {p: part.error_code for p, part in parts.items()})
        client.recorder.note("acquired", number=number, leases=[], records=[])
        for place, part in parts.items():
            client.judge_leader(place, part.error_code, "ShareAcknowledge")

    async def _ask(self, broker: int, session: _Session, request: Any, timeout: float) -> Any:
        """Send a request of a session. Return None if there is no answer, or the session has ended."""
        client = self._client
        try:
            response = await client.ask(
                request, broker=broker, purpose="share", timeout=timeout, max_version=self._max_version
            )
        except ChannelError:
            for place in session.told:
                client.routes.doubt_leader(place)
            self._forget(broker, session)
            await client.back_off()
            return None
        if response.error_code:
            client.note_code(response.error_code, type(request).__name__)
            self._forget(broker, session)
            await client.back_off()
            return None
        session.epoch += 1
        return response

    # --- inside ---

    def _session(self, broker: int) -> _Session:
        session = self._sessions.get(broker)
        if session is None:
            self._numbers += 1
            session = self._sessions[broker] = _Session(self._numbers)
        return session

    def _forget(self, broker: int, session: _Session) -> None:
        if self._sessions.get(broker) is session:
            del self._sessions[broker]

    async def _know(self, places: Iterable[Place]) -> None:
        """Learn the ids of topics, which these requests name."""
        await self._client.know(dict.fromkeys(topic for topic, _ in places))

    def _added(self, session: _Session, places: list[Place]) -> list[Place]:
        return [place for place in places if place not in session.told]

    def _topics(
        self, topic_kind: Any, partition_kind: Any, places: Iterable[Place], verdicts: Verdicts
    ) -> list[Any]:
        topics: dict[str, Any] = {}
        for topic, partition in dict.fromkeys([*places, *verdicts]):
            found = topics.setdefault(
                topic, topic_kind(topic_id=self._client.topic_ids[topic], partitions=[])
            )
            batches = list(_batches(verdicts.get((topic, partition), {})))
            found.partitions.append(
                partition_kind(partition_index=partition, acknowledgement_batches=batches)
            )
        return list(topics.values())

    def _parts(self, response: Any) -> dict[Place, Any]:
        names = self._client.topic_names
        return {
            (names[topic.topic_id], part.partition_index): part
            for topic in response.responses
            if topic.topic_id in names
            for part in topic.partitions
        }

    def _leases(self, broker: int, places: Iterable[Place]) -> dict[Place, str | None]:
        return {place: self._client.stage.lease(broker, *place) for place in places}

    def _note_request(self, broker: int, session: _Session, verdicts: Verdicts) -> int:
        self._numbers += 1
        self._client.recorder.note(
            "share_request",
            number=self._numbers,
            session=f"{broker}.{session.number}",
            verdicts=[
                (*place, offset, kind)
                for place, of_one in verdicts.items()
                for offset, kind in of_one.items()
            ],
        )
        return self._numbers

    def _note_response(self, number: int, verdicts: Verdicts, codes: Mapping[Place, int]) -> None:
        if verdicts:
            self._client.recorder.note(
                "acknowledged",
                number=number,
                results=[
                    (*place, name_of(codes[place]) if codes[place] else None)
                    for place in verdicts
                    if place in codes
                ],
            )


def _records(broker: int, place: Place, part: PartitionData) -> tuple[list[Delivered], list[int]]:
    """Return the acquired records, and the acquired offsets without a record."""
    counts = {
        offset: acquired.delivery_count
        for acquired in part.acquired_records
        for offset in range(acquired.first_offset, acquired.last_offset + 1)
    }
    if not counts:
        return [], []
    data = memoryview(cast("Buffer", part.records or b""))  # what was decoded is one buffer
    found = []
    for payload in visible_payloads(
        data, whole_batches(data), [], start=min(counts), end=max(counts) + 1, check_crcs=True
    ):
        header = payload.header
        for record in decode_records(
            bytes(payload.data[payload.start : payload.end]),
            header.record_count,
            header.base_offset,
            header.base_timestamp,
        ):
            if record.offset in counts:
                headers = [(name, value or b"") for name, value in record.headers]
                identifier = identity(record.value, headers)
                found.append(Delivered(broker, place, record.offset, identifier, counts.pop(record.offset)))
    return found, list(counts)


def _batches(verdicts: Mapping[int, int]) -> Iterator[AcknowledgementBatch]:
    """Yield a batch for each run of contiguous offsets, in their order."""
    run: list[int] = []
    for offset in sorted(verdicts):
        if run and offset != run[-1] + 1:
            yield _batch(run, verdicts)
            run = []
        run.append(offset)
    if run:
        yield _batch(run, verdicts)


def _batch(offsets: list[int], verdicts: Mapping[int, int]) -> AcknowledgementBatch:
    kinds = [verdicts[offset] for offset in offsets]
    if len(set(kinds)) == 1:
        kinds = kinds[:1]
    return AcknowledgementBatch(first_offset=offsets[0], last_offset=offsets[-1], acknowledge_types=kinds)
