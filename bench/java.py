"""Measures the Java clients, with the classes of kafka-producer-perf-test and kafka-consumer-perf-test."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from bench.artifacts import kafka_classpath
from bench.workloads import DRIVER_SECONDS, DriverFailed, Sample, Target, human_size

_TOOLS = "org.apache.kafka.tools"
#: as the tools' own scripts have it
_OPTIONS = ("-Xms512m", "-Xmx512m", "-XX:+UseG1GC")
_RATE = re.compile(r"([\d.,]+) records/sec")
#: of the line that ConsumerPerformance prints: records a second without the time of joining the group
_FETCH_RATE = 9
#: one batch a partition in turn: a request has a batch of each partition that has one
ROUND_ROBIN = "org.apache.kafka.clients.producer.RoundRobinPartitioner"


@dataclass(frozen=True)
class JavaClients:
    """Produce with the defaults of the Java client (idempotent, acks=all), then consume.

    A quarter of additional records comes first and does not count.

    Args:
        partitioner: a class name, or "" for the default, which fills a batch of one partition after the
            other.
    """

    size: int
    partitions: int
    records: int
    partitioner: str = ""

    @property
    def name(self) -> str:
        return f"java {self._shape}"

    @property
    def _shape(self) -> str:
        spread = ", round robin" if self.partitioner == ROUND_ROBIN else ""
        return f"{human_size(self.size)}, {self.partitions}p{spread}"

    def run(self, target: Target) -> Iterator[Sample]:
        servers = target.peer.bootstrap
        uncounted = self.records // 4
        total = self.records + uncounted
        properties = [f"partitioner.class={self.partitioner}"] if self.partitioner else []
        with target.topic(self.partitions) as topic:
            before = target.peer.usage().cpu_seconds
            said = _run(
                *("ProducerPerformance", "--topic", topic, "--bootstrap-server", servers),
                *("--num-records", str(total), "--warmup-records", str(uncounted)),
                *("--record-size", str(self.size), "--throughput", "-1"),
                *("--command-property", "acks=all", *properties),
            )
            cpu = target.peer.usage().cpu_seconds - before
            yield Sample(f"java produce {self._shape}", "records/s", _rate(said))
            yield Sample(f"java produce {self._shape}", "broker CPU µs/record", cpu * 1e6 / total)
            before = target.peer.usage().cpu_seconds
            said = _run(
                *("ConsumerPerformance", "--topic", topic, "--bootstrap-server", servers),
                *("--num-records", str(total), "--hide-header", "--timeout", "60000"),
            )
            cpu = target.peer.usage().cpu_seconds - before
            figures = said.strip().splitlines()[-1].split(", ")
            yield Sample(f"java consume {self._shape}", "records/s", float(figures[_FETCH_RATE]))
            yield Sample(f"java consume {self._shape}", "broker CPU µs/record", cpu * 1e6 / total)


def _rate(said: str) -> float:
    """Return the rate of the last summary that the producer's tool printed, without its warm-up."""
    rates = _RATE.findall(said)
    if not rates:
        raise DriverFailed(f"no figure in what the producer said: {said[-200:]}")
    return float(rates[-1].replace(",", ""))


def _run(tool: str, *arguments: str) -> str:
    """Run a tool and return its output.

    Raises:
        DriverFailed: the tool failed.
        Unavailable: Java or Kafka's jars are missing.
    """
    command = ["java", *_OPTIONS, "-cp", kafka_classpath(), f"{_TOOLS}.{tool}", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DRIVER_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise DriverFailed(f"{tool}: no end after {DRIVER_SECONDS:.0f} s") from error
    if done.returncode != 0 or "Exception" in done.stdout + done.stderr:
        raise DriverFailed(f"{tool}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout


def quick() -> list[JavaClients]:
    """Return the rows for which the targets are defined."""
    return [JavaClients(100, 100, 500_000)]


def full() -> list[JavaClients]:
    """Return rows with one partition, with many, and with many in each request."""
    return [
        JavaClients(100, 1, 2_000_000),
        JavaClients(100, 100, 2_000_000),
        JavaClients(100, 100, 1_000_000, ROUND_ROBIN),
        JavaClients(1_000, 100, 400_000),
    ]
