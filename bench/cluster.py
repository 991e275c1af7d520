"""Measures a cluster of three Barnabas brokers beside three of Apache Kafka: replication factor 3, acks=all.

Barnabas runs on a ZooKeeper from PySpark's jars, Kafka as three combined KRaft nodes. All brokers of a run
share this machine, and one cluster runs at a time. Memory and CPU time are those of the whole cluster. For
Barnabas they include ZooKeeper, because Kafka's brokers include their controllers.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from barnabas.broker.metadata.zookeeper.server import ZooKeeperMissingError, ZooKeeperServer
from bench import queues
from bench.artifacts import Unavailable
from bench.java import JavaClients
from bench.peers import Barnabas, Kafka, Peer, Usage, free_port, usage_of
from bench.report import Results
from bench.workloads import (
    Bulk,
    DriverFailed,
    EndToEnd,
    Sample,
    Synchronous,
    Target,
    Workload,
    finish,
    wait_ready,
    warm_up,
)

BROKERS = 3
#: seconds; what a dead broker goes unnoticed for, in both
SESSION_SECONDS = 6
#: seconds until a cluster has all it needs to be measured: the others' replicas caught up, and all warm
REST_SECONDS = 3.0
#: the name, for `--only`, of what all brokers of a cluster do together
_TOTAL = "cluster total"
_REPLICATED = (
    "offsets.topic.replication.factor=3",
    "transaction.state.log.replication.factor=3",
    "transaction.state.log.min.isr=2",
    "min.insync.replicas=2",
    "share.coordinator.state.topic.replication.factor=3",
    "share.coordinator.state.topic.min.isr=2",
)


class ClusterPeer:
    """Several brokers that are measured as one. It has the attributes of a `Peer` that `Target` uses."""

    def __init__(self, name: str, members: Sequence[Peer]) -> None:
        self.name = name
        self.members = list(members)

    @property
    def others(self) -> Sequence[int]:
        """The ids of other processes that the brokers need, for example ZooKeeper."""
        return ()

    @property
    def bootstrap(self) -> str:
        return ",".join(member.bootstrap for member in self.members)

    def start(self) -> None:
        for member in self.members:
            member.port = member.port or free_port()
        with ThreadPoolExecutor(len(self.members)) as threads:
            list(threads.map(lambda member: member.start(), self.members))
        self._await_brokers()

    def stop(self) -> None:
        with ThreadPoolExecutor(len(self.members)) as threads:
            list(threads.map(lambda member: member.stop(), self.members))

    def usage(self) -> Usage:
        found = [member.usage() for member in self.members if member.is_running]
        found += [usage_of(pid) for pid in self.others]
        return Usage(
            sum(each.cpu_seconds for each in found),
            sum(each.rss for each in found),
            sum(each.peak_rss for each in found),
        )

    def leader(self, topic: str) -> Peer:
        """Return the broker that leads the first partition."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        leader: int = admin.list_topics(topic, 10).topics[topic].partitions[0].leader
        return self.members[leader - 1]

    def _await_brokers(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        deadline = time.monotonic() + 30
        while len(admin.list_topics(timeout=10).brokers) < len(self.members):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name}: the brokers do not form a cluster")
            time.sleep(0.1)


class BarnabasCluster(ClusterPeer):
    """A cluster of Barnabas, with its own ZooKeeper."""

    def __init__(self, directory: Path, brokers: int = BROKERS) -> None:
        self._zookeeper = ZooKeeperServer(directory / "zookeeper")
        super().__init__("barnabas", [Barnabas(directory / str(n)) for n in range(1, brokers + 1)])

    def start(self) -> None:
        try:
            self._zookeeper.start()
        except ZooKeeperMissingError as error:
            raise Unavailable(str(error)) from error
        for number, member in enumerate(self.members, 1):
            member.settings = (
                f"node.id={number}",
                f"zookeeper.connect={self._zookeeper.address}",
                f"zookeeper.session.timeout.ms={1000 * SESSION_SECONDS}",
                *(_REPLICATED if len(self.members) >= BROKERS else ("offsets.topic.replication.factor=1",)),
            )
        super().start()

    @property
    def others(self) -> Sequence[int]:
        return () if self._zookeeper.pid is None else (self._zookeeper.pid,)

    def stop(self) -> None:
        super().stop()
        self._zookeeper.stop()


class KafkaCluster(ClusterPeer):
    """A cluster of Apache Kafka. Each node is a broker and one of the controllers."""

    def __init__(self, directory: Path, brokers: int = BROKERS) -> None:
        controllers = {number: free_port() for number in range(1, brokers + 1)}
        members = []
        for number in controllers:
            member = Kafka(directory / str(number))
            member.node_id, member.controllers = number, controllers
            member.settings = (*_REPLICATED, f"broker.session.timeout.ms={1000 * SESSION_SECONDS}")
            members.append(member)
        super().__init__("kafka", members)


#: by the name of the broker
CLUSTERS: dict[str, Callable[[Path], ClusterPeer]] = {"barnabas": BarnabasCluster, "kafka": KafkaCluster}


@dataclass(frozen=True)
class Gap:
    """Measures the longest wait of a record while the leader of its partition ends. 200 records a second are
    sent.
    """

    name: str
    #: takes the leader away
    take: Callable[[Peer], None]
    seconds: float

    def run(self, target: Target) -> Iterator[Sample]:
        cluster: ClusterPeer = target.peer  # type: ignore[assignment]
        with target.topic(6) as topic:
            time.sleep(REST_SECONDS)
            driver = target.start_driver("gap", topic=topic, seconds=self.seconds)
            try:
                wait_ready(driver)
                leader = cluster.leader(topic)
                self.take(leader)
                figures = finish(driver)
            finally:
                driver.kill()
            leader.start()
            time.sleep(SESSION_SECONDS)
        yield Sample(self.name, "ms", figures["longest ms"])


@dataclass(frozen=True)
class Roles:
    """Measures the CPU time of a leader and of its followers for a record of one partition, written with
    acks=all.
    """

    size: int
    records: int

    @property
    def name(self) -> str:
        return f"CPU by role, {self.size:,} B"

    def run(self, target: Target) -> Iterator[Sample]:
        cluster: ClusterPeer = target.peer  # type: ignore[assignment]
        with target.topic(1) as topic:
            time.sleep(REST_SECONDS)
            leader = cluster.leader(topic)
            before = [member.usage().cpu_seconds for member in cluster.members]
            finish(
                target.start_driver(
                    "produce", topic=topic, size=self.size, codec="none", records=self.records
                )
            )
            after = [member.usage().cpu_seconds for member in cluster.members]
        spent = [1e6 * (b - a) / self.records for a, b in zip(before, after, strict=True)]
        led = spent.pop(cluster.members.index(leader))
        yield Sample(self.name, "leader, CPU µs/record", led)
        yield Sample(self.name, "each follower, CPU µs/record", sum(spent) / len(spent))


def workloads() -> list[Workload]:
    """Return the rows. They are short, because three brokers and the clients share two cores."""
    return [
        *(
            Bulk(size, "none", partitions, records)
            for size, records in ((100, 200_000), (1_000, 60_000), (10_000, 8_000))
            for partitions in (1, 100)
        ),
        Roles(100, 1_000_000),
        Roles(1_000, 300_000),
        JavaClients(100, 100, 500_000),
        Synchronous(3.0),
        *(EndToEnd(4.0, rate) for rate in (100, 300, 1_000)),
        *queues.replicated(),
        Gap("longest wait, clean stop of a leader", lambda peer: peer.stop(), 6.0),
        Gap("longest wait, kill -9 of a leader", lambda peer: peer.kill(), 15.0),
    ]


def names() -> list[str]:
    """Return the names of the rows, for `--only`."""
    return [*(f"cluster {each.name}" for each in workloads()), _TOTAL]


def measure(
    rounds: int, only: str, peers: Sequence[str], directory: Path, say: Callable[[str], None]
) -> Results:
    """Measure all clusters in turn, each on an empty directory. Repeat this for each round."""
    results = Results(peers=[name for name in CLUSTERS if name in peers])
    chosen = [each for each in workloads() if only in f"cluster {each.name}"]
    for round_number in range(rounds):
        for name in results.peers[:: 1 if round_number % 2 == 0 else -1]:
            cluster = CLUSTERS[name](directory / name)

            def add(sample: Sample, name: str = name, round_number: int = round_number) -> None:
                kept = Sample(f"cluster: {sample.workload}", sample.unit, sample.value)
                results.add(name, round_number, kept)
                say(f"{name:9} {kept.workload}: {kept.value:,.4g} {kept.unit}")

            try:
                cluster.start()
                _measure(cluster, chosen, add, say)
            except (Unavailable, DriverFailed, KafkaException, RuntimeError, OSError) as error:
                results.failures.append(f"{name}: round {round_number}: {error}")
                say(results.failures[-1])
            finally:
                cluster.stop()
                shutil.rmtree(directory / name, ignore_errors=True)
    if "barnabas" in peers and only in _TOTAL:
        for brokers in (1, 2, 3):
            _measure_total(brokers, directory, results, say)
    return results


def _measure(
    cluster: ClusterPeer,
    chosen: Sequence[Workload],
    add: Callable[[Sample], None],
    say: Callable[[str], None],
) -> None:
    target = Target(cluster, replicas=BROKERS)  # type: ignore[arg-type]
    time.sleep(REST_SECONDS)
    add(Sample("idle memory of the cluster", "MB", cluster.usage().rss / 1e6))
    warm_up(target, say, requests=False, more=_warm_up_of(chosen))
    for workload in chosen:
        for sample in workload.run(target):
            add(sample)
    add(Sample("memory of the cluster at its most", "MB", cluster.usage().peak_rss / 1e6))


def _warm_up_of(chosen: Sequence[Workload]) -> Sequence[Workload]:
    return queues.warm_up() if any(each.name.startswith("queue") for each in chosen) else ()


def _measure_total(brokers: int, directory: Path, results: Results, say: Callable[[str], None]) -> None:
    """Measure the total rate of 1, 2 and 3 brokers, with a producer for each broker and one replica a
    partition.
    """
    cluster = BarnabasCluster(directory / "total", brokers)
    try:
        cluster.start()
        target = Target(cluster)  # type: ignore[arg-type]
        with target.topic(12) as topic:
            before = cluster.usage().cpu_seconds
            began = time.monotonic()
            drivers = [
                target.start_driver("produce", topic=topic, size=1_000, codec="none", records=60_000)
                for _ in range(brokers)
            ]
            total = sum(finish(driver)["records/s"] for driver in drivers)
            busy = (cluster.usage().cpu_seconds - before) / (time.monotonic() - began)
        row = f"cluster: produce 1 KB, RF 1, 12p, {brokers} brokers and producers"
        for unit, value in (("records/s", total), ("cores used by brokers", busy)):
            results.add("barnabas", 0, Sample(row, unit, value))
            say(f"barnabas  {row}: {value:,.4g} {unit}")
    except (Unavailable, DriverFailed, KafkaException, RuntimeError, OSError) as error:
        results.failures.append(f"barnabas: {brokers} brokers: {error}")
    finally:
        cluster.stop()
        shutil.rmtree(directory / "total", ignore_errors=True)
