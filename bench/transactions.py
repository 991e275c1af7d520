"""Measures transactional producers: many with small transactions, and one with large transactions."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Producer

from bench.figures import Figures, percentiles_ms

SECONDS = 60.0  # for any one call


def _producer(bootstrap: str, transactional_id: str) -> Producer:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0}
    )
    producer.init_transactions(SECONDS)
    return producer


def _transaction(producer: Producer, topic: str, values: list[bytes]) -> float:
    """Write one transaction. Return the duration of its commit in seconds."""
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    began = time.monotonic()
    producer.commit_transaction(SECONDS)  # raises when a record was not stored
    return time.monotonic() - began


def small_transactions(bootstrap: str, topic: str, producers: int, rate: int, seconds: float) -> Figures:
    """Run several `producers` at a common `rate` of transactions a second. Each transaction has one record.

    A producer that falls behind begins its next transaction at once.
    """
    opened = [_producer(bootstrap, f"{topic}-{number}") for number in range(producers)]
    count = int(rate * seconds / producers)

    def run(producer: Producer) -> list[float]:
        _transaction(producer, topic, [b"the first one finds its way"])
        started = time.monotonic()
        latencies = []
        for index in range(count):
            if (ahead := started + index * producers / rate - time.monotonic()) > 0:
                time.sleep(ahead)
            latencies.append(_transaction(producer, topic, [b"x" * 100]))
        return latencies

    started = time.monotonic()
    with ThreadPoolExecutor(producers) as threads:
        latencies = [latency for found in threads.map(run, opened) for latency in found]
    elapsed = time.monotonic() - started
    return {"transactions/s": len(latencies) / elapsed, **percentiles_ms(latencies)}


def large_transactions(bootstrap: str, topic: str, records: int, transactions: int) -> Figures:
    """Run `transactions` of one producer, one after the other, each with `records` records of 100 bytes."""
    producer = _producer(bootstrap, topic)
    values = [b"x" * 100] * records
    _transaction(producer, topic, values)
    started = time.monotonic()
    latencies = [_transaction(producer, topic, values) for _ in range(transactions)]
    elapsed = time.monotonic() - started
    return {"records/s": records * transactions / elapsed, **percentiles_ms(latencies)}
