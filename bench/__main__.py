"""`python -m bench`: starts and measures the brokers in turn, then Spark. It prints
tables and writes JSON.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from confluent_kafka import KafkaException

from barnabas.base.system.orphans import environment_that_ends
from bench import cluster, java, queues, report, scale, spark_workloads, workloads
from bench.artifacts import CACHE, Unavailable
from bench.peers import PEERS, USUAL_PEERS
from bench.spark import PEERS_OF_SPARK, SparkBench
from bench.workloads import DriverFailed, Sample, Target


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about ten minutes, not up to an hour")
    parser.add_argument(
        "--peers", default=",".join(USUAL_PEERS), help="which brokers, with commas (%(default)s)"
    )
    parser.add_argument("--only", default="", help="only workloads whose name contains this")
    parser.add_argument(
        "--clusters", action="store_true", help="run Spark against three brokers of each, not one"
    )
    parser.add_argument("--rounds", type=int, help="how often everything is measured (quick: 2, full: 5)")
    parser.add_argument(
        "--minutes",
        type=float,
        help="start no new round of either part after this (quick: 3, full: 22)",
    )
    parser.add_argument("--json", type=Path, default=CACHE / "results.json", help="(%(default)s)")
    options = parser.parse_args(arguments)
    options.peers = options.peers.split(",")
    if unknown := set(options.peers) - set(PEERS):
        parser.error(f"unknown broker {', '.join(sorted(unknown))}: known are {', '.join(PEERS)}")
    names = [each.name for each in _offered(options.quick)]
    names += [each.name for each in _offered_of_spark(options.quick)]
    of_cluster = cluster.names()
    if not any(
        options.only in name for name in (of_cluster if options.only.startswith("cluster") else names)
    ):
        more = "; without --quick there are more" if options.quick else ""
        parser.error(
            f"--only {options.only!r} is part of none of these names{more}: {'; '.join(names + of_cluster)}"
        )
    options.rounds = options.rounds or (2 if options.quick else 5)
    options.minutes = options.minutes or (3 if options.quick else 22)
    return options


def _offered(quick: bool) -> Sequence[workloads.Workload]:
    if quick:
        return [*workloads.quick(), *java.quick()]
    return [*workloads.full(), *java.full(), *queues.workloads(), *scale.scales()]


def _offered_of_spark(quick: bool) -> Sequence[spark_workloads.SparkWorkload]:
    return spark_workloads.quick() if quick else spark_workloads.full()


class Bench:
    """One run: the brokers on this machine, and their results."""

    def __init__(self, peers: list[str], directory: Path) -> None:
        self.results = report.Results(peers=peers)
        self.targets: list[Target] = []
        for name in peers:
            self.targets.append(Target(PEERS[name](directory / name)))

    def start(self, round_number: int) -> None:
        """Start every broker on an empty directory, one after the other. Leave out brokers that this machine
        does not have.
        """
        self.stop()
        for target in list(self.targets):
            shutil.rmtree(target.peer.directory, ignore_errors=True)
            fresh = Target(target.peer)
            self.targets[self.targets.index(target)] = fresh
            if not self._measure(fresh, round_number, workloads.fresh_start(fresh)):
                self.targets.remove(fresh)
                self.results.peers.remove(target.peer.name)

    def warm_up(self, chosen: Sequence[workloads.Workload]) -> None:
        """Repeat the work of the `chosen` rows without counting it, so that a JVM compiles the code."""
        more = queues.warm_up() if any(each.name.startswith("queue") for each in chosen) else []
        for target in self.targets:
            say(f"{target.peer.name:9} warms up")
            workloads.warm_up(target, say, more=more)

    def measure(self, workload: workloads.Workload, round_number: int) -> None:
        """Measure all brokers, one after the other. Each round begins with a different broker."""
        shift = round_number % len(self.targets)
        for target in self.targets[shift:] + self.targets[:shift]:
            self._measure(target, round_number, workload.run(target))

    def peak_memory(self) -> None:
        for target in self.targets:
            self.results.add(target.peer.name, 0, workloads.peak_memory(target))

    def stop(self) -> None:
        for target in self.targets:
            target.peer.stop()

    def _measure(self, target: Target, round_number: int, samples: Iterable[Sample]) -> bool:
        """Store the samples, or the error: if one broker cannot do the work, the run continues. Return
        whether it could.
        """
        name = target.peer.name
        try:
            for sample in samples:
                self.results.add(name, round_number, sample)
                say(f"{name:9} {sample.workload}: {sample.value:,.4g} {sample.unit}")
        except Unavailable as error:
            say(f"{name} is left out: {error}")
            return False
        except (DriverFailed, KafkaException, RuntimeError, OSError) as error:
            failure = f"{name}: round {round_number}: {error}"
            self.results.failures.append(failure)
            say(failure)
        return True


def measure_brokers(options: argparse.Namespace, directory: Path) -> Iterator[report.Results]:
    """Run the rows of single brokers, if any are chosen. Yield their results."""
    chosen = [workload for workload in _offered(options.quick) if options.only in workload.name]
    if not chosen:
        return
    started = time.monotonic()
    bench = Bench(options.peers, directory)
    try:
        for round_number in range(options.rounds):
            bench.start(round_number)
        bench.measure(workloads.FirstRecord("group join to first record, fresh broker"), 0)
        bench.warm_up(chosen)
        for round_number in range(options.rounds):
            if time.monotonic() - started > options.minutes * 60:
                say(f"time is up after {round_number} of {options.rounds} rounds")
                break
            for workload in chosen:
                bench.measure(workload, round_number)
        bench.peak_memory()
    finally:
        bench.stop()
    yield bench.results


def measure_cluster(options: argparse.Namespace, directory: Path) -> Iterator[report.Results]:
    """Run the rows of clusters with three brokers, only if the user asked for them. Yield their results."""
    if options.only.startswith("cluster"):
        yield cluster.measure(options.rounds, options.only, options.peers, directory, say)


def measure_spark(options: argparse.Namespace, directory: Path) -> Iterator[report.Results]:
    """Run the rows of Spark, if any are chosen. Yield their results."""
    chosen = [workload for workload in _offered_of_spark(options.quick) if options.only in workload.name]
    brokers = [name for name in options.peers if name in PEERS_OF_SPARK]
    if not chosen or not brokers:
        return
    try:
        bench = SparkBench(brokers, options.clusters, directory, say)
    except Unavailable as error:
        say(f"Spark is left out: {error}")
        return
    try:
        bench.run(chosen, options.rounds, options.minutes * 60)
    finally:
        bench.stop()
    yield bench.results


def main() -> int:
    options = parse()
    os.environ.update(environment_that_ends())  # even a run that is killed leaves no broker behind
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as directory:
        parts = [
            *measure_brokers(options, Path(directory) / "brokers"),
            *measure_cluster(options, Path(directory) / "cluster"),
            *measure_spark(options, Path(directory) / "spark"),
        ]
    print(f"{report.machine()}; {time.monotonic() - started:.0f} s")
    for results in parts:
        print("\n" + report.table(results), end="\n\n")
        print("\n".join([*report.growth(results), *report.targets(results)]))
        if results.failures:
            print("\nfailed:\n" + "\n".join(results.failures))
    report.write_json(parts, options.json)
    print(f"\nall samples: {options.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
