"""What a topic holds, to a reader of committed records, as of now."""

from __future__ import annotations

from barnabas.client import Record
from barnabas.testing.cluster import Cluster


def committed(cluster: Cluster, topic: str) -> list[Record]:
    """Its records up to the first transaction that is open."""
    with cluster.consumer(topic) as consumer:
        ends = {place: consumer.watermarks(place)[1] for place in consumer.partitions(topic)}
        return [record for batch in consumer.read_until(ends) for record in batch]


def written(cluster: Cluster, topic: str) -> int:
    """How many records it has ever had, aborted ones and the markers of transactions included."""
    with cluster.consumer(topic, isolation_level="read_uncommitted") as consumer:
        return sum(consumer.watermarks(place)[1] for place in consumer.partitions(topic))
