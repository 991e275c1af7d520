"""One client process of the benchmark: `python -m bench.driver KIND '{"bootstrap": ...}'`.

A driver does not know which broker it uses. At its end it prints one JSON object of figures. A driver for
which another driver must wait first prints the line `ready`. All clients are librdkafka's, with the same
settings for every broker.
"""

from __future__ import annotations

import json
import random
import socket
import struct
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from bench.descriptors import allow_descriptors
from bench.figures import STAMP, Figures, percentiles_ms, tls_settings
from bench.members import settle
from bench.pipelined import pipelined
from bench.share_driver import share_drain, share_in_flight, share_library, share_paced, share_settle
from bench.transactions import large_transactions, small_transactions

DRAIN_SECONDS = 60.0
IDLE_SECONDS = 10.0  # a consumer that gets nothing for so long has lost something
BATCH = 500  # records handed to the producer at once; the number of records is a multiple of it


class _Deliveries:
    """Counts the records that the broker rejects, so that no figure contains records that were not stored."""

    def __init__(self) -> None:
        self.failed: KafkaError | None = None
        self.count = 0

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        self.count += 1
        if error is not None:
            self.failed = error

    def check(self, undelivered: int) -> None:
        if self.failed is not None:
            raise RuntimeError(f"the broker refused records: {self.failed}")
        if undelivered:
            raise RuntimeError(f"{undelivered} records were not acknowledged in {DRAIN_SECONDS:.0f} s")


def _payloads(size: int, count: int) -> list[bytes]:
    """Return distinct values. Half of their bytes are random, as in the OpenMessaging benchmark, so lz4 can
    compress them in part.
    """
    source = random.Random(size)
    return [source.randbytes(size // 2).ljust(size, b"x") for _ in range(count)]


def _producer(bootstrap: str, deliveries: _Deliveries, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "acks": "all", "on_delivery": deliveries, **settings})


def _consumer(bootstrap: str, **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"bench-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **settings,
        }
    )


def produce(
    bootstrap: str, topic: str, size: int, codec: str, records: int, ca: str | None = None
) -> Figures:
    """Produce records as fast as possible, to random partitions, and wait for all acknowledgements.

    With the file of a certificate authority, `ca`, it uses TLS.
    """
    deliveries = _Deliveries()
    producer = _producer(
        bootstrap,
        deliveries,
        **{
            "compression.type": codec,
            "linger.ms": 5,
            "sticky.partitioning.linger.ms": 0,
            "delivery.report.only.error": True,
            "queue.buffering.max.messages": 1_000_000,
            **tls_settings(ca),
        },
    )
    producer.list_topics(topic, timeout=DRAIN_SECONDS)  # connecting is not what is measured
    batch = [{"value": value} for value in _payloads(size, BATCH)]
    in_flight = max(2_000, min(200_000, 64_000_000 // size))
    sent = 0
    started = time.monotonic()
    while sent < records:
        if len(producer) > in_flight:
            producer.poll(0.001)
        else:
            sent += producer.produce_batch(topic, batch)
    deliveries.check(producer.flush(DRAIN_SECONDS))
    elapsed = time.monotonic() - started
    return {"records/s": sent / elapsed}


def consume(bootstrap: str, topic: str, partitions: int, records: int, ca: str | None = None) -> Figures:
    """Consume all `records` of a topic from its beginning. Measure from the first
    request to the last record. With the file of a certificate authority, `ca`, use TLS.
    """
    # With its defaults the client stops fetching for a second whenever it holds 100,000 records: that would
    # measure the client's pauses.
    settings = {"queued.min.messages": 1_000_000, "fetch.queue.backoff.ms": 1, **tls_settings(ca)}
    consumer = _consumer(bootstrap, **settings)
    consumer.list_topics(topic, timeout=DRAIN_SECONDS)
    started = last = time.monotonic()
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    received = 0
    while received < records:
        # It waits for as many as it is asked for: ask for no more than there are.
        messages = consumer.consume(min(5_000, records - received), 1.0)
        now = time.monotonic()
        if messages:
            last = now
            if (error := messages[-1].error()) is not None:
                raise RuntimeError(f"the consumer was told: {error}")
            received += len(messages)
        elif now - last > IDLE_SECONDS:
            raise RuntimeError(f"only {received} of {records} records came back")
    elapsed = last - started
    consumer.close()
    return {"records/s": received / elapsed}


def sync(bootstrap: str, topic: str, size: int, seconds: float) -> Figures:
    """Send one record at a time. All replicas acknowledge it before the next one is sent."""
    deliveries = _Deliveries()
    producer = _producer(bootstrap, deliveries, **{"linger.ms": 0})
    value = _payloads(size, 1)[0]
    latencies: list[float] = []
    ends: float | None = None  # the first records make the connection: they are not counted
    while ends is None or time.monotonic() < ends:
        before = deliveries.count
        began = time.monotonic()
        producer.produce(topic, value, partition=0)
        while deliveries.count == before:
            producer.poll(DRAIN_SECONDS)
        latencies.append(time.monotonic() - began)
        if ends is None and len(latencies) == 200:
            ends = time.monotonic() + seconds
            latencies.clear()
    deliveries.check(0)
    figures = percentiles_ms(latencies)
    return {**figures, "records/s": len(latencies) / sum(latencies), "records": deliveries.count}


def paced(bootstrap: str, topic: str, size: int, rate: int, records: int) -> Figures:
    """Produce at a steady `rate` of records a second. The value of each record has the time of its `produce`
    call.
    """
    deliveries = _Deliveries()
    producer = _producer(bootstrap, deliveries, **{"linger.ms": 0})
    producer.list_topics(topic, timeout=DRAIN_SECONDS)
    filler = _payloads(size - STAMP.size, 1)[0]
    started = time.monotonic()
    for index in range(records):
        if (ahead := started + index / rate - time.monotonic()) > 0:
            time.sleep(ahead)
        producer.produce(topic, STAMP.pack(time.monotonic_ns()) + filler, partition=0)
        producer.poll(0)
    deliveries.check(producer.flush(DRAIN_SECONDS))
    return {"records": records, "records/s": records / (time.monotonic() - started)}


def gap(bootstrap: str, topic: str, seconds: float) -> Figures:
    """Produce 200 records a second to all partitions, as an idempotent producer. Measure the longest wait of
    a record.
    """
    failed: list[KafkaError] = []
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
    )
    longest = 0.0

    def told(error: KafkaError | None, began: float) -> None:
        nonlocal longest
        longest = max(longest, time.monotonic() - began)
        if error is not None:
            failed.append(error)

    def send(number: int) -> None:
        began = time.monotonic()
        key = str(number).encode()
        producer.produce(topic, key, key, on_delivery=lambda error, _: told(error, began))
        producer.poll(0.005)

    for number in range(200):  # the first records make the connections: they are not counted
        send(number)
    producer.flush(DRAIN_SECONDS)
    longest = 0.0
    print("ready", flush=True)
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        send(random.randrange(1_000_000))
    if producer.flush(DRAIN_SECONDS) or failed:
        raise RuntimeError(f"records were lost: {failed[:1]}")
    return {"longest ms": 1000 * longest}


def latency(bootstrap: str, topic: str, records: int, uncounted: int) -> Figures:
    """Consume the records of `paced`, and measure the time from `produce` to the receipt on the shared clock.

    The first `uncounted` records do not count: they open connections and warm up all three processes.
    """
    consumer = _consumer(bootstrap)
    consumer.assign([TopicPartition(topic, 0, 0)])
    consumer.poll(0.5)  # the first fetch waits at the broker before the producer starts
    print("ready", flush=True)
    latencies: list[float] = []
    last = time.monotonic()
    while len(latencies) < records:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            last = time.monotonic()
            (sent_ns,) = STAMP.unpack_from(message.value() or b"")
            latencies.append((time.monotonic_ns() - sent_ns) / 1e9)
        elif time.monotonic() - last > IDLE_SECONDS:
            raise RuntimeError(f"only {len(latencies)} of {records} records came back")
    consumer.close()
    return percentiles_ms(latencies[uncounted:])


def first_record(bootstrap: str, topic: str) -> Figures:
    """Measure the time from the creation of a consumer in a new group to the first record of a topic."""
    began = time.monotonic()
    consumer = _consumer(bootstrap)
    consumer.subscribe([topic])
    while time.monotonic() - began < DRAIN_SECONDS:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            elapsed = time.monotonic() - began
            consumer.close()
            return {"s": elapsed}
    raise RuntimeError(f"no record in {DRAIN_SECONDS:.0f} s")


def join(bootstrap: str, topic: str, partitions: int, groups: int, members: int) -> Figures:
    """Measure the time until each of `groups` has settled, from the creation of the first of `members`
    consumers.

    A group has settled when all partitions are assigned, and each member has the same number.
    """
    fair = partitions * groups // members
    began = time.monotonic()
    consumers = [
        _consumer(bootstrap, **{"group.id": f"{topic}-{number % groups}", "heartbeat.interval.ms": 1000})
        for number in range(members)
    ]
    for consumer in consumers:
        consumer.subscribe([topic])
    while any(len(consumer.assignment()) != fair for consumer in consumers):
        if time.monotonic() - began > DRAIN_SECONDS:
            raise RuntimeError(f"{members} members did not settle in {DRAIN_SECONDS:.0f} s")
        for consumer in consumers:
            consumer.poll(0)
        time.sleep(0.02)
    elapsed = time.monotonic() - began
    for consumer in consumers:
        consumer.close()
    return {"s": elapsed}


def connections(bootstrap: str, count: int) -> Figures:
    """Open `count` connections one after the other, each with one answered request, and keep them open.

    It prints `ready` when all are open, so that the parent can measure the broker's memory. It ends at the
    end of its input.
    """
    allow_descriptors(count)
    host, _, port = bootstrap.rpartition(":")
    request = struct.pack(">ihhih", 10, 18, 0, 1, -1)
    started = time.monotonic()
    opened: list[socket.socket] = []
    for _ in range(count):
        connection = socket.create_connection((host, int(port)), timeout=DRAIN_SECONDS)
        opened.append(connection)
        connection.sendall(request)
        if not connection.recv(4):
            raise RuntimeError("the broker closed a connection it had accepted")
    elapsed = time.monotonic() - started
    print("ready", flush=True)
    sys.stdin.read()
    for connection in opened:
        connection.close()
    return {"connections/s": count / elapsed}


KINDS: dict[str, Callable[..., Figures]] = {
    kind.__name__: kind
    for kind in (
        *(produce, consume, sync, paced, gap, latency, first_record, join, connections),
        *(settle, pipelined, small_transactions, large_transactions),
        *(share_drain, share_paced, share_in_flight, share_settle, share_library),
    )
}


def main() -> None:
    kind, parameters = sys.argv[1], json.loads(sys.argv[2])
    try:
        figures = KINDS[kind](**parameters)
    except Exception as error:
        # The runner shows this line in the broker's column.
        sys.exit(f"{kind}: {error}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
