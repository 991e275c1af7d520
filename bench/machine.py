"""Measures one broker beside several brokers of `barnabas start --brokers` on the same machine.

    python -m bench.machine [--brokers 1,2,4,8] [--rounds 1] [--seconds 4] [--kafka]

The rows are small requests, requests of 100 partitions, bulk by librdkafka without and with TLS, and memory.
Each broker leads 100 partitions of a topic, so that a request can name 100 partitions of one broker. All
brokers get the same load: 16 connections for requests, and one librdkafka client for bulk. The load has its
own process, which competes with the brokers for the cores. In each round, the candidates run one after the
other. The table has medians of the rounds, and in brackets the ratio to one broker.

With `--kafka`, Apache Kafka runs beside them. `bench.workloads.warm_up` warms it once, so it starts only
once.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from barnabas.base.system.orphans import environment_that_ends
from barnabas.base.tls.certificates import Authority
from bench import report
from bench.peers import BarnabasMachine, Peer, tree_memory
from bench.security import SecuredKafka
from bench.workloads import Bulk, DriverFailed, Requests, Sample, Target, Workload, warm_up

CONNECTIONS = 16
IN_FLIGHT = 5
PARTITIONS = 100
BULK = (Bulk(100, "none", PARTITIONS, 1_000_000), Bulk(1_000, "none", PARTITIONS, 200_000))
BULK_WITH_TLS = BULK[1]
KAFKA = "kafka"


class Machine(BarnabasMachine):
    """The brokers of one `barnabas start`, with or without TLS."""

    def __init__(self, directory: Path, brokers: int, authority: Authority | None = None) -> None:
        super().__init__(directory)
        self.brokers = brokers
        self.name = "1 broker" if brokers == 1 else f"{brokers} brokers"
        self._authority = authority

    @property
    def listener(self) -> list[str]:
        return super().listener if self._authority is None else ["--set", f"listeners=SSL://{self.bootstrap}"]

    def prepare(self) -> None:
        super().prepare()
        if self._authority is not None:
            keystore, truststore = self.directory / "broker.pem", self.directory / "ca.pem"
            keystore.write_bytes(keystore_of(self._authority))
            truststore.write_bytes(self._authority.certificate)
            self.settings = (
                "security.inter.broker.protocol=SSL",
                f"ssl.keystore.location={keystore}",
                f"ssl.truststore.location={truststore}",
                "ssl.truststore.type=PEM",
            )

    def answers(self) -> bool:
        return self._authority is not None or super().answers()  # with TLS, `ready` says it


def keystore_of(authority: Authority) -> bytes:
    """Return a new key and its certificate, for brokers on 127.0.0.1."""
    return authority.issue("broker", ["127.0.0.1"], datetime.now(UTC)).pem


def requests(brokers: int, seconds: float) -> Iterator[Requests]:
    """Requests of one record, and of 100 partitions, whose leaders are `brokers` brokers."""
    for partitions, records in ((1, 1), (PARTITIONS, 10)):
        yield Requests(partitions, records, CONNECTIONS, IN_FLIGHT, PARTITIONS * brokers, seconds)


class MachineBench:
    """One run of the benchmark."""

    def __init__(self, folder: Path, seconds: float, names: list[str]) -> None:
        self.results = report.Results(names)
        self._folder = folder
        self._seconds = seconds
        self.authority = Authority.create("bench", datetime.now(UTC))
        self._ca = folder / "ca.pem"
        self._ca.write_bytes(self.authority.certificate)

    def measure_brokers(self, brokers: int, number: int) -> None:
        """Start the brokers and measure them, first without TLS and then with it."""
        folder = self._folder / f"{brokers}-{number}"
        for authority in (None, self.authority):
            peer = Machine(folder / ("tls" if authority else "plain"), brokers, authority)
            try:
                peer.start()
                if authority is None:
                    self._measure(peer, number, brokers)
                else:
                    self._measure_tls(peer, number)
            except RuntimeError as error:
                self.results.failures.append(str(error))
            finally:
                peer.stop()

    def measure_kafka(self, kafka: SecuredKafka, number: int) -> None:
        self._measure(kafka, number, 1)
        self._measure_tls(kafka, number, f"127.0.0.1:{kafka.tls_port}")

    def _measure(self, peer: Peer, number: int, brokers: int) -> None:
        target = Target(peer)
        self._add(peer, number, [Sample("memory at the start", "MB", tree_memory(peer.pid) / 1e6)])
        workloads: list[Workload] = [*requests(brokers, self._seconds), *BULK]
        for workload in workloads:
            self._add(peer, number, workload.run(target))
        self._add(peer, number, [Sample("memory after the load", "MB", tree_memory(peer.pid) / 1e6)])

    def _measure_tls(self, peer: Peer, number: int, bootstrap: str | None = None) -> None:
        target = Target(peer, ca=str(self._ca), address=bootstrap)
        samples = BULK_WITH_TLS.run(target)
        self._add(peer, number, (replace(each, workload=f"{each.workload}, TLS") for each in samples))

    def _add(self, peer: Peer, number: int, samples: Iterable[Sample]) -> None:
        try:
            for sample in samples:
                self.results.add(peer.name, number, sample)
                print(f"{peer.name}: {sample.workload}: {sample.value:,.4g} {sample.unit}", file=sys.stderr)
        except DriverFailed as error:
            self.results.failures.append(f"{peer.name}: round {number}: {error}")


def table(results: report.Results) -> Iterator[str]:
    """Yield the lines of a Markdown table: a row for each figure, a column for each candidate."""
    yield "| | unit | " + " | ".join(results.peers) + " |"
    yield "| --- | --- |" + " ---: |" * len(results.peers)
    for row in results.values:
        values = [results.middle(row, name) for name in results.peers]
        cells = [_number(values[0]), *(f"{_number(each)}{_ratio(each, values[0])}" for each in values[1:])]
        yield f"| {row[0]} | {row[1]} | {' | '.join(cells)} |"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.4g}" if value < 1_000 else f"{value:,.0f}"


def _ratio(value: float | None, first: float | None) -> str:
    return f" ({value / first:.2f})" if value is not None and first else ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.machine", description=__doc__)
    parser.add_argument("--brokers", default="1,2,4,8", help="numbers of brokers (%(default)s)")
    parser.add_argument("--rounds", type=int, default=1, help="(%(default)s)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each row of requests (%(default)s)")
    parser.add_argument("--kafka", action="store_true", help="beside a warm Apache Kafka")
    options = parser.parse_args()
    os.environ.update(environment_that_ends())  # even a run that is killed leaves no broker behind
    counts = [int(count) for count in options.brokers.split(",")]
    began = time.monotonic()
    with ExitStack() as exits:
        folder = Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="barnabas-bench-")))
        names = [Machine(folder, count).name for count in counts]
        bench = MachineBench(folder, options.seconds, [*names, *([KAFKA] if options.kafka else [])])
        for number in range(options.rounds):
            for count in counts:
                bench.measure_brokers(count, number)
        if options.kafka:
            (folder / "kafka.pem").write_bytes(keystore_of(bench.authority))
            kafka = SecuredKafka(folder / KAFKA, folder / "kafka.pem")
            exits.callback(kafka.kill)
            kafka.start()
            warm_up(Target(kafka), print)
            for number in range(options.rounds):
                bench.measure_kafka(kafka, number)
    print(f"{report.machine()}; {time.monotonic() - began:.0f} s\n")
    print("\n".join(table(bench.results)))
    print("\n".join(bench.results.failures))
    return 1 if bench.results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
