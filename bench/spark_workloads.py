"""The workloads for Spark: the data source of Barnabas and Spark's own connector, each with each broker.

Topics and values are the same for both connectors, and all settings are the defaults.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from bench.figures import Figures
from bench.workloads import Sample, Target, human_size

OURS, THEIRS = "barnabas", "kafka"  # the short names of the data sources
PARTITIONS = 2  # a task a core


class SparkProcess(Protocol):
    """A Spark process that runs the jobs of bench.spark_driver."""

    def ask(self, kind: str, **parameters: object) -> Figures:
        """Run a job and return its figures.

        Raises:
            DriverFailed: the job failed; the text is Spark's error.
        """
        ...

    def cpu_seconds(self) -> float:
        """Return the CPU seconds that Spark, its JVM and its Python workers have used so far."""
        ...


@dataclass(frozen=True)
class Connection:
    """A connector in Spark, and the broker that it uses."""

    spark: SparkProcess
    connector: str
    target: Target

    def row(self, name: str) -> str:
        """Return the row's name, with the broker or the number of brokers."""
        brokers = self.target.replicas
        return f"{name} ({self.target.peer.name}{f', {brokers} brokers' if brokers > 1 else ''})"

    def ask(self, kind: str, topic: str, **parameters: object) -> Figures:
        bootstrap = self.target.peer.bootstrap
        return self.spark.ask(kind, connector=self.connector, bootstrap=bootstrap, topic=topic, **parameters)

    def ask_weighed(self, kind: str, topic: str, records: int, **parameters: object) -> Figures:
        """Run a job. Also return Spark's CPU time for each record, which is more reliable on a busy machine
        than its duration.
        """
        before = self.spark.cpu_seconds()
        figures = self.ask(kind, topic, records=records, **parameters)
        cpu = self.spark.cpu_seconds() - before
        return {**figures, "Spark CPU µs/record": cpu * 1e6 / records}


class SparkWorkload(Protocol):
    """A measurement of a connector with a broker."""

    @property
    def name(self) -> str: ...

    def measure(self, connection: Connection) -> Iterator[Sample]:
        """Measure once.

        Raises:
            DriverFailed: the job failed.
        """
        ...


@dataclass(frozen=True)
class Read:
    """A batch query that reads a whole topic and discards the rows."""

    size: int
    records: int

    @property
    def name(self) -> str:
        return f"spark read {human_size(self.size)}"

    def measure(self, connection: Connection) -> Iterator[Sample]:
        with connection.target.topic(PARTITIONS) as topic:
            connection.target.drive(
                "produce", topic=topic, size=self.size, codec="none", records=self.records
            )
            yield from _samples(self.name, connection, connection.ask_weighed("read", topic, self.records))


@dataclass(frozen=True)
class Write:
    """A batch query that writes generated rows to a topic."""

    size: int
    records: int

    @property
    def name(self) -> str:
        return f"spark write {human_size(self.size)}"

    def measure(self, connection: Connection) -> Iterator[Sample]:
        with connection.target.topic(PARTITIONS) as topic:
            figures = connection.ask_weighed("write", topic, self.records, size=self.size)
        yield from _samples(self.name, connection, figures)


@dataclass(frozen=True)
class StreamWrite:
    """Large micro-batches that write to a topic: at least once and, if the connector can, exactly once."""

    batches: int
    rows: int = 100_000
    size: int = 100

    @property
    def name(self) -> str:
        return f"spark stream write, {self.rows:,} rows of {human_size(self.size)} a batch"

    def measure(self, connection: Connection) -> Iterator[Sample]:
        ways = ("at-least-once", "exactly-once") if connection.connector == OURS else ("at-least-once",)
        took = []
        for delivery in ways:
            with connection.target.topic(PARTITIONS) as topic:
                shape = {"size": self.size, "rows": self.rows, "batches": self.batches}
                figures = connection.ask("stream_write", topic, delivery=delivery, **shape)
            took.append(figures["ms/batch"])
            yield from _samples(f"{self.name}, {delivery}", connection, figures)
        for once, exactly in pairwise(took):
            name = f"spark exactly-once over at-least-once, {self.rows:,} rows"
            yield from _samples(name, connection, {"% more time": (exactly / once - 1) * 100})


@dataclass(frozen=True)
class MicroBatch:
    """The shortest possible micro-batch: few records, and the next batch begins at once."""

    batches: int
    rate: int = 200

    @property
    def name(self) -> str:
        return f"spark micro-batch, {self.rate} records/s"

    def measure(self, connection: Connection) -> Iterator[Sample]:
        with connection.target.topic(PARTITIONS) as source, connection.target.topic(PARTITIONS) as sink:
            feeder = connection.target.start_driver(
                "paced", topic=source, size=100, rate=self.rate, records=self.rate * 600
            )
            try:
                for where, sink_topic in (("nowhere", None), ("a topic", sink)):
                    figures = connection.ask("latency", source, sink_topic=sink_topic, batches=self.batches)
                    yield from _samples(f"{self.name} to {where}", connection, figures)
            finally:
                feeder.kill()
                feeder.communicate()


def _samples(name: str, connection: Connection, figures: Figures) -> Iterator[Sample]:
    for unit, value in figures.items():
        yield Sample(connection.row(name), unit, value)


def _batches(records: dict[int, int]) -> list[SparkWorkload]:
    """Return the workloads that read and write this number of records, for each size."""
    return [kind(size, count) for kind in (Read, Write) for size, count in records.items()]


def quick() -> list[SparkWorkload]:
    """Return the workloads of a quick run (a few minutes)."""
    return [
        *_batches({100: 500_000, 1_000: 200_000}),
        StreamWrite(5),
        MicroBatch(10),
    ]


def full() -> list[SparkWorkload]:
    """Return all workloads."""
    return [
        *_batches({100: 2_000_000, 1_000: 500_000}),
        StreamWrite(10),
        MicroBatch(25),
    ]
