"""Reads the present contents of a topic as a read_committed consumer."""

from __future__ import annotations

from barnabas.client import Record
from barnabas.testing.cluster import Cluster


def committed(cluster: Cluster, topic: str) -> list[Record]:
    """Return the topic's records up to the first open transaction."""
    with cluster.consumer(topic) as consumer:
        ends = {place: consumer.watermarks(place)[1] for place in consumer.partitions(topic)}
        return [record for batch in consumer.read_until(ends) for record in batch]


def written(cluster: Cluster, topic: str) -> int:
    """Return the number of records ever written, including aborted ones and transaction markers."""
    with cluster.consumer(topic, isolation_level="read_uncommitted") as consumer:
        return sum(consumer.watermarks(place)[1] for place in consumer.partitions(topic))
