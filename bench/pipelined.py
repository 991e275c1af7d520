"""Sends produce requests of one shape over several connections, with several requests in flight on each.

It uses no client library: to a topic with 100 partitions, librdkafka and Java mostly send requests with one
partition. The requests are encoded once. Of several brokers each gets the same number of connections, and
requests for partitions that it leads. The benchmark checks each response for errors. At the end it checks
that the partitions contain all acknowledged records.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections import deque
from typing import cast

import uvloop

from barnabas.kafka.protocol.framing import RequestHeader, encode_request
from barnabas.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.records import Record, encode_batch
from bench.connection import VERSIONS, Connection
from bench.figures import Figures, percentiles_ms

DRAIN_SECONDS = 60.0
#: within which a new topic's partitions have leaders
LEADER_SECONDS = 10.0
#: within which each connection has its first answer: a cold Kafka took up to 5 s for those of a new topic
FIRST_ANSWER_SECONDS = 30.0
#: seconds between the first answers and the counted time
LEAD_SECONDS = 1.0
RECORD_BYTES = 100
#: a partition's part of the response, in the version of `VERSIONS`: index, error code, base offset, log
#: append time, log start offset
_PARTITION = struct.Struct(">ihqqq")
_LATEST = -1


def pipelined(
    bootstrap: str,
    topic: str,
    topic_partitions: int,
    partitions: int,
    records: int,
    connections: int,
    in_flight: int,
    seconds: float,
) -> Figures:
    """Keep `in_flight` requests on each connection, each with `records` records to each of `partitions`
    partitions.

    It prints `ready` when it begins to count. Connections take the brokers in turn, and the partitions of
    their broker in turn.

    Raises:
        RuntimeError: the broker rejected a record, or lost one; or a broker leads too few partitions.
    """
    leaders = _await_leaders(bootstrap, topic, topic_partitions)
    load = _Load(in_flight, seconds)
    sent = []
    for number in range(connections):
        turn, place = divmod(number, len(leaders))
        address, led = sorted(leaders.items())[place]
        if len(led) < partitions:
            raise RuntimeError(f"{address} leads {len(led)} partitions, of {partitions} that a request has")
        places = sorted(led[(turn * partitions + each) % len(led)] for each in range(partitions))
        sent.append((address, _frame(topic, places, records)))
    uvloop.run(load.run(sent, len(topic), partitions))
    stored, expected = _stored(topic, leaders), load.answered * partitions * records
    if stored != expected:
        raise RuntimeError(f"{expected} records were acknowledged, and the topic contains {stored}")
    if not load.latencies:
        raise RuntimeError(f"no request was answered in {seconds:g} s")
    return {
        "requests/s": len(load.latencies) / load.elapsed,
        **percentiles_ms(load.latencies),
        "requests": load.answered - load.uncounted,
    }


class _Load:
    """The connections of a run, and their common counters."""

    def __init__(self, in_flight: int, seconds: float) -> None:
        self._seconds = seconds
        self.in_flight = in_flight
        #: of the requests that were answered in the counted time
        self.latencies: list[float] = []
        self.elapsed = 0.0
        self.answered = self.uncounted = 0
        self.ends = False
        self.counts = False

    async def run(self, frames: list[tuple[str, bytes]], name_size: int, partitions: int) -> None:
        """Send each frame to its address, for `LEAD_SECONDS` and for the counted time.

        Wait for the last answers.
        """
        loop = asyncio.get_running_loop()
        connections = []
        for address, frame in frames:
            host, _, port = address.rpartition(":")
            _, connection = await loop.create_connection(
                lambda frame=frame: _Requests(self, frame, name_size, partitions),  # type: ignore[misc]
                host,
                int(port),
            )
            connections.append(connection)
        ended = [each.ended for each in connections]
        first_answers = [each.answered for each in connections]
        await asyncio.wait(first_answers, timeout=FIRST_ANSWER_SECONDS)
        await asyncio.sleep(LEAD_SECONDS)
        self.uncounted = self.answered
        self.counts = True
        print("ready", flush=True)
        began = time.monotonic()
        await asyncio.wait(ended, timeout=self._seconds, return_when=asyncio.FIRST_EXCEPTION)
        self.elapsed = time.monotonic() - began
        self.counts, self.ends = False, True
        await asyncio.wait_for(asyncio.gather(*ended), DRAIN_SECONDS)


class _Requests(asyncio.Protocol):
    """One connection. It sends a new request after each answer."""

    def __init__(self, load: _Load, frame: bytes, name_size: int, partitions: int) -> None:
        self._load = load
        self._frame = frame
        # size, correlation id, number of topics; the name; the number of partitions
        self._first = 4 + 4 + 4 + 2 + name_size + 4
        self._partitions_end = self._first + partitions * _PARTITION.size
        self._received = bytearray()
        self._sent: deque[float] = deque()
        loop = asyncio.get_running_loop()
        #: done at the first answer
        self.answered: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send(self._load.in_flight)

    def data_received(self, data: bytes) -> None:
        self._received += data
        begin, answers = 0, 0
        view = memoryview(self._received)
        while len(view) - begin >= 4:
            end = begin + 4 + int.from_bytes(view[begin : begin + 4], "big")
            if end > len(view):
                break
            self._check(view[begin + self._first : begin + self._partitions_end])
            begin, answers = end, answers + 1
        view.release()
        del self._received[:begin]
        self._count(answers)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self._fail(f"the broker closed a connection: {exc}")

    def _check(self, partitions: memoryview) -> None:
        for index, error, *_ in _PARTITION.iter_unpack(partitions):
            if error and not self.ended.done():
                self._fail(f"partition {index} refused records: error {error}")

    def _fail(self, reason: str) -> None:
        self.ended.set_exception(RuntimeError(reason))
        if not self.answered.done():
            self.answered.set_result(None)  # so that the wait for the first answers ends

    def _count(self, answers: int) -> None:
        now = time.monotonic()
        load = self._load
        load.answered += answers
        if answers and not self.answered.done():
            self.answered.set_result(None)
        for _ in range(answers):
            sent = self._sent.popleft()
            if load.counts:
                load.latencies.append(now - sent)
        if not load.ends:
            self._send(answers)
        elif not self._sent and not self.ended.done():
            self.ended.set_result(None)
            self._transport.close()

    def _send(self, requests: int) -> None:
        now = time.monotonic()
        self._sent.extend([now] * requests)
        self._transport.writelines([self._frame] * requests)


def _frame(topic: str, partitions: list[int], records: int) -> bytes:
    now_ms = int(time.time() * 1000)
    batch = bytes(encode_batch([Record(None, bytes(RECORD_BYTES), now_ms)] * records))
    data = [PartitionProduceData(index=index, records=batch) for index in partitions]
    topics = [TopicProduceData(name=topic, partition_data=data)]
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics)
    header = RequestHeader(request.api_key, VERSIONS[request.api_key], 1, "bench")
    return b"".join(map(bytes, encode_request(header, request)))


def _await_leaders(bootstrap: str, topic: str, partitions: int) -> dict[str, list[int]]:
    """Wait until the brokers lead the partitions: CreateTopics returns earlier.

    Return the partitions that each broker leads, by its address.
    """
    deadline = time.monotonic() + LEADER_SECONDS
    while True:
        leaders = _leaders(bootstrap, topic)
        count = sum(map(len, leaders.values()))
        if count == partitions and not any(each.error_code for each in _ends(topic, leaders)):
            return leaders
        if time.monotonic() > deadline:
            return leaders  # the first request says what is wrong
        time.sleep(0.1)


def _leaders(bootstrap: str, topic: str) -> dict[str, list[int]]:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    with Connection(bootstrap.split(",")[0]) as connection:
        answer = connection.ask(request, MetadataResponse)
    addresses = {broker.node_id: f"{broker.host}:{broker.port}" for broker in answer.brokers}
    leaders: dict[str, list[int]] = {}
    for partition in sorted(answer.topics[0].partitions, key=lambda each: each.partition_index):
        if partition.leader_id in addresses:
            leaders.setdefault(addresses[partition.leader_id], []).append(partition.partition_index)
    return leaders


def _stored(topic: str, leaders: dict[str, list[int]]) -> int:
    """Return the sum of the ends of all partitions."""
    return sum(each.offset for each in _ends(topic, leaders))


def _ends(topic: str, leaders: dict[str, list[int]]) -> list[ListOffsetsPartitionResponse]:
    found = []
    for address, led in leaders.items():
        asked = [ListOffsetsPartition(partition_index=number, timestamp=_LATEST) for number in led]
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=asked)])
        with Connection(address) as connection:
            found += connection.ask(request, ListOffsetsResponse).topics[0].partitions
    return found
