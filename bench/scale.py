"""Measures costs that grow with the number of partitions: 100, 1,000 and 10,000 on one broker.

Topics have ten partitions with one record each. One client fetches from all partitions and waits, once with a
fetch session and once without one, with all partitions in each request. A record is written to one partition,
and the fetch response brings it. `bench.stalls` counts the long turns of the event loop of Barnabas, in a
second run with the same requests.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from barnabas.kafka.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.kafka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.kafka.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.kafka.records import Record, encode_batch
from bench.artifacts import CACHE
from bench.connection import Connection
from bench.peers import Barnabas, Peer, cpu_nanoseconds
from bench.workloads import DriverFailed, Sample, Target

TOPIC_PARTITIONS = 10
TOPICS_A_REQUEST = 10
IDLE_SECONDS = 12.0
#: after so long a broker has done what follows from the last requests
REST_SECONDS = 2.0
WAKE_UPS = 100
PAUSE = 0.02


@dataclass(frozen=True)
class Scale:
    """The measurement of one broker with this number of partitions, from its first
    start to a clean restart.
    """

    partitions: int

    @property
    def name(self) -> str:
        return f"scale, {self.partitions:,}p"

    def run(self, target: Target) -> Iterator[Sample]:
        peer = type(target.peer)(target.peer.directory / "scale")
        try:
            for what, unit, value in self._measure(peer):
                yield Sample(f"scale: {what}, {self.partitions:,}p", unit, value)
        finally:
            peer.stop()
            shutil.rmtree(peer.directory, ignore_errors=True)

    def _measure(self, peer: Peer) -> Iterator[tuple[str, str, float]]:
        peer.start()
        time.sleep(REST_SECONDS)
        empty = peer.usage().rss
        began = time.monotonic()
        with Connection(peer.bootstrap) as connection:
            topics = self._create(connection)
            yield "create all", "s", time.monotonic() - began
            yield "create one more topic", "ms", _last_topics(connection)
            write_records(connection, topics)
        time.sleep(REST_SECONDS)
        yield "memory", "KB a partition", (peer.usage().rss - empty) / 1000 / self.partitions
        yield "idle", "% of a core", 100 * _cpu(peer, lambda: time.sleep(IDLE_SECONDS)) / IDLE_SECONDS
        for kind in (_SessionFetch, _FullFetch):
            with Connection(peer.bootstrap) as reader, Connection(peer.bootstrap) as writer:
                fetch = kind(reader, topics)
                waits: list[float] = []
                spent = _cpu(peer, lambda: waits.extend(_wake_ups(fetch, writer, topics)))  # noqa: B023
            yield f"wake-up of {kind.NAME}", "CPU ms", 1000 * spent / WAKE_UPS
            yield f"wake-up of {kind.NAME}", "p50 ms", 1000 * median(waits)
        began = time.monotonic()
        peer.stop()
        yield "clean stop", "s", time.monotonic() - began
        if isinstance(peer, Barnabas):
            peer.stall_report = peer.directory / "stalls.json"
        peer.start()
        yield "clean start", "s", peer.startup_seconds
        if isinstance(peer, Barnabas):
            yield from self._stalls(peer, topics)

    def _create(self, connection: Connection) -> list[str]:
        topics = [f"scale-{number}" for number in range(self.partitions // TOPIC_PARTITIONS)]
        for start in range(0, len(topics), TOPICS_A_REQUEST):
            create_topics(connection, topics[start : start + TOPICS_A_REQUEST])
        return topics

    def _stalls(self, peer: Barnabas, topics: Sequence[str]) -> Iterator[tuple[str, str, float]]:
        """Repeat all work while the long turns of the event loop are counted. Yield the figures."""
        with (
            peer.counted_stalls(),
            Connection(peer.bootstrap) as reader,
            Connection(peer.bootstrap) as writer,
        ):
            time.sleep(IDLE_SECONDS)
            for number in range(3):
                create_topics(writer, [f"more-{number}-{topic}" for topic in range(TOPICS_A_REQUEST)])
            _last_topics(writer, "stalls")
            write_records(writer, topics)
            for kind in (_SessionFetch, _FullFetch):
                _wake_ups(kind(reader, topics), writer, topics)
            for number in range(3):
                _delete_topics(writer, [f"more-{number}-{topic}" for topic in range(TOPICS_A_REQUEST)])
            time.sleep(IDLE_SECONDS)
        assert peer.stall_report is not None
        found = json.loads(peer.stall_report.read_text())
        CACHE.mkdir(exist_ok=True)
        shutil.copy(peer.stall_report, CACHE / f"stalls-{self.partitions}.json")
        yield "longest turn of the event loop", "ms", found["longest_ms"]
        yield "turns over 5 ms", "turns", found["stalls"]
        yield "longest turn of the event loop", "CPU ms", found["longest_cpu_ms"]
        yield "turns over 5 ms of CPU time", "turns", found["cpu_stalls"]


def _cpu(peer: Peer, work: Callable[[], object]) -> float:
    """Return the CPU seconds that the broker uses during `work`."""
    before = cpu_nanoseconds(peer.pid)
    work()
    return (cpu_nanoseconds(peer.pid) - before) / 1e9


def create_topics(
    connection: Connection, names: Sequence[str], partitions: int = TOPIC_PARTITIONS, replicas: int = 1
) -> None:
    wanted = [
        CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas) for name in names
    ]
    request = CreateTopicsRequest(topics=wanted, timeout_ms=60_000)
    for topic in connection.ask(request, CreateTopicsResponse).topics:
        if topic.error_code:
            raise DriverFailed(f"{topic.name} was not created: error {topic.error_code}")


def _delete_topics(connection: Connection, names: Sequence[str]) -> None:
    request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=60_000)
    for topic in connection.ask(request, DeleteTopicsResponse).responses:
        if topic.error_code:
            raise DriverFailed(f"{topic.name} was not deleted: error {topic.error_code}")


def _last_topics(connection: Connection, prefix: str = "last") -> float:
    """Return the median time to create one more topic, in milliseconds."""
    took = []
    for number in range(10):
        began = time.monotonic()
        create_topics(connection, [f"{prefix}-{number}"])
        took.append(1000 * (time.monotonic() - began))
    return median(took)


def write_records(connection: Connection, topics: Sequence[str]) -> None:
    """Write one record to each partition, with 100 topics in a request."""
    for start in range(0, len(topics), 100):
        _produce(connection, topics[start : start + 100], range(TOPIC_PARTITIONS))


def _produce(connection: Connection, topics: Sequence[str], partitions: Sequence[int]) -> None:
    records = encode_batch([Record(None, bytes(100), int(time.time() * 1000))])
    data = [
        TopicProduceData(
            name=topic,
            partition_data=[PartitionProduceData(index=index, records=records) for index in partitions],
        )
        for topic in topics
    ]
    request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=data)
    for topic in connection.ask(request, ProduceResponse).responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                raise DriverFailed(f"produce: error {partition.error_code}")


class _Fetch:
    """A client that waits for new records of all partitions."""

    NAME: str

    def __init__(self, connection: Connection, topics: Sequence[str]) -> None:
        self._connection = connection
        self._offsets = {(topic, index): 0 for topic in topics for index in range(TOPIC_PARTITIONS)}
        self._session_id = 0
        self._epoch = 0
        self._begin()
        while self._take():  # to where nothing is left
            pass

    def send(self) -> None:
        raise NotImplementedError

    def receive(self) -> int:
        """Return the number of partitions in the next answer that have records."""
        response = self._connection.receive(self._header, FetchResponse)
        if response.error_code:
            raise DriverFailed(f"fetch: error {response.error_code}")
        self._session_id = response.session_id
        self._moved: list[tuple[str, int]] = []
        for topic in response.responses:
            for partition in topic.partitions:
                if partition.error_code:
                    raise DriverFailed(f"fetch: error {partition.error_code}")
                if partition.records:
                    key = topic.topic, partition.partition_index
                    self._offsets[key] = partition.high_watermark
                    self._moved.append(key)
        return len(self._moved)

    def _begin(self) -> None:
        self._ask(list(self._offsets), 0)
        self.receive()

    def _take(self) -> int:
        raise NotImplementedError

    def _ask(self, keys: Sequence[tuple[str, int]], max_wait_ms: int = 30_000) -> None:
        by_topic: dict[str, list[FetchPartition]] = {}
        for topic, index in keys:
            wanted = FetchPartition(
                partition=index, fetch_offset=self._offsets[topic, index], partition_max_bytes=1 << 20
            )
            by_topic.setdefault(topic, []).append(wanted)
        self._header = self._connection.send(
            FetchRequest(
                max_wait_ms=max_wait_ms,
                min_bytes=1,
                max_bytes=50 << 20,
                session_id=self._session_id,
                session_epoch=self._epoch,
                topics=[FetchTopic(topic=topic, partitions=wanted) for topic, wanted in by_topic.items()],
            )
        )


class _SessionFetch(_Fetch):
    """Fetches with a fetch session: each request has only the partitions with a new position."""

    NAME = "a fetch session"

    def send(self, max_wait_ms: int = 30_000) -> None:
        self._epoch += 1
        self._ask(self._moved, max_wait_ms)

    def _take(self) -> int:
        self.send(0)
        return self.receive()


class _FullFetch(_Fetch):
    """Fetches without a session: each request has all partitions."""

    NAME = "a fetch without a session"

    def _begin(self) -> None:
        self._epoch = -1
        super()._begin()

    def send(self) -> None:
        self._ask(list(self._offsets))

    def _take(self) -> int:
        self._ask(list(self._offsets), 0)
        return self.receive()


def _wake_ups(fetch: _Fetch, writer: Connection, topics: Sequence[str]) -> list[float]:
    """Return the seconds from the send of a record to its receipt by the waiting client, for some partitions
    in turn.
    """
    waits = []
    for number in range(WAKE_UPS):
        fetch.send()
        time.sleep(PAUSE)  # until the fetch waits
        began = time.monotonic()
        _produce(writer, [topics[number * 7 % len(topics)]], [number % TOPIC_PARTITIONS])
        while not fetch.receive():
            fetch.send()
        waits.append(time.monotonic() - began)
    return waits


def scales() -> list[Scale]:
    """Return the measurements with few to many partitions. `bench.report.growth` compares them."""
    return [Scale(100), Scale(1_000), Scale(10_000)]
