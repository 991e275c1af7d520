"""Reads the committed records of a topic."""

from __future__ import annotations

from confluent_kafka import Consumer
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import TopicPartition as ClientPartition


def committed_values(servers: str, topic: str) -> list[str]:
    """Return every committed value of a topic up to the first open transaction, sorted."""
    consumer = _consumer(servers)
    try:
        partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        open_partitions = set(partitions)
        consumer.assign([ClientPartition(topic, partition, 0) for partition in partitions])
        values = []
        while open_partitions:
            messages = consumer.consume(10_000, timeout=0.1)
            for message in messages:
                if message.error() is None:
                    values.append(message.value().decode())
                elif message.error().code() == ClientError._PARTITION_EOF:
                    open_partitions.discard(message.partition())
        return sorted(values)
    finally:
        consumer.close()


def last_stable_offset(servers: str, topic: str) -> int:
    """Return the last stable offset of partition 0."""
    consumer = _consumer(servers)
    try:
        last_stable: int = consumer.get_watermark_offsets(ClientPartition(topic, 0), 30)[1]
        return last_stable
    finally:
        consumer.close()


def _consumer(servers: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
    )
