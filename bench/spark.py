"""Measures Spark: the data source of Barnabas beside Spark's own Kafka connector.

One Spark session (`bench.spark_driver`) runs all workloads. A row of the table is a broker, a column is a
connector. The connectors take turns at being first.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from confluent_kafka import KafkaException

from bench.artifacts import Unavailable, spark_connector_jars
from bench.cluster import BROKERS, CLUSTERS
from bench.figures import Figures
from bench.peers import PEERS, tree_cpu_seconds
from bench.report import Results
from bench.spark_workloads import OURS, THEIRS, Connection, SparkWorkload
from bench.workloads import DriverFailed, Sample, Target

PEERS_OF_SPARK = frozenset(CLUSTERS)  # those that Spark is run against


class Spark:
    """The Spark process of a run. It executes jobs."""

    def __init__(self, jars: list[Path]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.spark_driver", *map(str, jars)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        if self._read_line() != "ready":
            raise Unavailable("Spark does not start: does `pyspark` run here?")

    def ask(self, kind: str, **parameters: object) -> Figures:
        """Run a job and return its figures.

        Raises:
            DriverFailed: the job failed; the text is Spark's error.
        """
        assert self._process.stdin is not None
        print(json.dumps([kind, parameters]), file=self._process.stdin, flush=True)
        answer = json.loads(self._read_line() or '{"error": "Spark has ended"}')
        if "error" in answer:
            raise DriverFailed(answer["error"])
        figures: Figures = answer
        return figures

    def cpu_seconds(self) -> float:
        """Return the CPU seconds that Spark, its JVM and its Python workers have used so far."""
        return tree_cpu_seconds(self._process.pid)

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(30)
        self._process.kill()
        self._process.wait()

    def _read_line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


class SparkBench:
    """One run: the brokers, Spark with its connectors, and the results.

    Args:
        brokers: the names of the brokers; all of them run at the same time.
        on_clusters: run three brokers of each kind as a cluster, with three replicas of each topic.
        say: called with a line about the progress.

    Raises:
        Unavailable: this machine has no Spark. A broker that is missing is only left out.
    """

    def __init__(
        self, brokers: list[str], on_clusters: bool, directory: Path, say: Callable[[str], None]
    ) -> None:
        self._say = say
        self._targets: list[Target] = []
        try:
            jars = spark_connector_jars()
        except Unavailable as error:
            say(f"Spark's own connector is left out: {error}")
            jars = []
        self.results = Results(peers=[OURS, THEIRS] if jars else [OURS])
        self._spark = Spark(jars)
        for name in brokers:
            peer = (CLUSTERS if on_clusters else PEERS)[name](directory / name)
            try:
                peer.start()
            except Unavailable as error:
                say(f"{name} is left out: {error}")
            else:
                replicas = BROKERS if on_clusters else 1
                self._targets.append(Target(peer, replicas=replicas))  # type: ignore[arg-type]

    def run(self, workloads: list[SparkWorkload], rounds: int, seconds: float) -> None:
        """Measure all workloads in each round. A first round does not count, so that
        the JVM compiles the code.
        """
        started = time.monotonic()
        for number in range(-1, rounds):
            if time.monotonic() - started > seconds:
                self._say(f"time is up after {number} of {rounds} rounds")
                return
            for workload in workloads:
                for target in self._targets:
                    for connector in self.results.peers[:: -1 if number % 2 else 1]:
                        self._measure(workload, Connection(self._spark, connector, target), number)

    def stop(self) -> None:
        self._spark.stop()
        for target in self._targets:
            target.peer.stop()

    def _measure(self, workload: SparkWorkload, connection: Connection, number: int) -> None:
        """Store the samples, or the error: the run continues after an error."""
        try:
            for sample in workload.measure(connection):
                if number >= 0:
                    self._keep(connection.connector, number, sample)
        except (DriverFailed, KafkaException) as error:
            name = connection.row(workload.name)
            failure = f"{connection.connector}: round {number}: {name}: {error}"
            self.results.failures.append(failure)
            self._say(failure)

    def _keep(self, connector: str, number: int, sample: Sample) -> None:
        self.results.add(connector, number, sample)
        self._say(f"{connector:9} {sample.workload}: {sample.value:,.4g} {sample.unit}")
