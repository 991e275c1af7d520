"""A query continues from its checkpoint after the cluster has lost its ZooKeeper. It needs no Spark."""

from __future__ import annotations

import uuid
from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.integration.cluster.test_lost_metadata import RestoredCluster, latest_backup
from tests.spark.committed import committed_values
from tests.spark.test_exactly_once import options
from tests.spark.test_stream_reader import numbers

from barnabas.spark.exactly_once import WriteId, write_once
from barnabas.spark.options import ReadOptions
from barnabas.spark.position import PositionJson
from barnabas.spark.stream_reader import TopicStreamReader
from barnabas.testing import BarnabasCluster

SOURCE, SINK = "orders", "copies"


class Query:
    """Copies one topic to another as Spark does. Its checkpoint outlives the cluster."""

    def __init__(self) -> None:
        self.sink = uuid.uuid4().hex
        #: the offsets before each batch, as Spark writes them down before it runs the batch
        self.checkpoint: list[PositionJson] = []

    def run(self, cluster: BarnabasCluster, *, again: bool = False) -> None:
        """Run the next batch; with `again`, the last one, whose end the driver does not know."""
        given = {"subscribe": SOURCE, "kafka.bootstrap.servers": cluster.bootstrap_servers}
        reader = TopicStreamReader(
            ReadOptions.parse({**given, "startingOffsets": "earliest"}, streaming=True)
        )
        try:
            if not self.checkpoint:
                self.checkpoint.append(reader.initialOffset())
            if again:
                *_, start, end = self.checkpoint
            else:
                start = self.checkpoint[-1]
                end = reader.latestOffset(start, ReadAllAvailable())
                assert numbers(end) != numbers(start)
                self.checkpoint.append(end)
            rows = (batch for task in reader.partitions(start, end) for batch in reader.read(task))
            values = (batch.select(["value"]) for batch in rows)
            into = options(cluster.bootstrap_servers, SINK)
            write_once(into, WriteId(self.sink, len(self.checkpoint) - 2, 0), values)
        finally:
            reader.stop()


def leave_open(cluster: BarnabasCluster) -> None:
    """Leave an open transaction of a dead producer."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": "dies",
            "transaction.timeout.ms": 5000,
            "log_level": 0,
        }
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(SINK, b"never committed")
    producer.flush(60)


def test_query_goes_on_from_its_checkpoint_after_a_lost_zookeeper(tmp_path: Path) -> None:
    query, expected = Query(), []

    def feed(cluster: BarnabasCluster, batch: str) -> None:
        values = [f"{batch}-{number}" for number in range(20)]
        cluster.produce(SOURCE, *values)
        expected.extend(values)

    with BarnabasCluster(brokers=3, data=tmp_path) as cluster:
        for topic in SOURCE, SINK:
            cluster.create_topic(topic)
            cluster.wait_in_sync(topic)
        for batch in "ab":
            feed(cluster, batch)
            query.run(cluster)
        backup = latest_backup(tmp_path, cluster.brokers, "__transaction_state")
        feed(cluster, "c")
        query.run(cluster)
        leave_open(cluster)
        for broker in cluster.brokers:
            cluster.kill(broker)
    restored = RestoredCluster(brokers=3, data=tmp_path)
    restored.backup = backup
    with restored:
        for topic in SOURCE, SINK, "__transaction_state":
            restored.wait_in_sync(topic)
        query.run(restored, again=True)
        feed(restored, "d")
        query.run(restored)
        leave_open(restored)  # its first transaction is aborted, so that readers go on
        query.run(restored, again=True)
        assert committed_values(restored.bootstrap_servers, SINK) == sorted(expected)
