"""The workloads: the shapes of the OpenMessaging benchmark, and the times for which a person waits.

A workload measures one running broker once and yields samples. It creates the topic that it needs and deletes
it afterwards. So earlier records do not count in the memory of a broker that keeps records in memory.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from bench import commits
from bench.figures import Figures, tls_settings
from bench.peers import Peer

DRIVER_SECONDS = 100.0
MEGABYTE = 1e6
#: what a broker has to do before anything is counted, both of them
WARM_RECORDS, WARM_SECONDS = 500_000, 30.0


class DriverFailed(Exception):
    """A client could not do its work with this broker; the message is the last line of its output."""


@dataclass(frozen=True)
class Sample:
    """One measured value. The unit determines whether more is better (bench.report)."""

    workload: str
    unit: str
    value: float


@dataclass
class Target:
    """A running broker, with what the workloads need to know of it."""

    peer: Peer
    #: of each topic
    replicas: int = 1
    #: file of the certificate authority, if clients use TLS; only `Bulk` can
    ca: str | None = None
    #: if it is not the peer's usual one
    address: str | None = None
    _admin: AdminClient | None = field(default=None, repr=False)

    @property
    def bootstrap(self) -> str:
        return self.address or self.peer.bootstrap

    @contextmanager
    def topic(self, partitions: int) -> Iterator[str]:
        """Create a new topic for the context, and delete it afterwards."""
        if self._admin is None:
            tls = tls_settings(self.ca)
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, **tls})
        name = f"bench-{uuid.uuid4()}"
        self._admin.create_topics([NewTopic(name, partitions, self.replicas)])[name].result(30)
        try:
            yield name
        finally:
            self._admin.delete_topics([name])[name].result(30)

    def start_driver(self, kind: str, **parameters: object) -> subprocess.Popen[str]:
        request = json.dumps({"bootstrap": self.bootstrap, **parameters})
        return subprocess.Popen(
            [sys.executable, "-m", "bench.driver", kind, request],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @contextmanager
    def driver(self, kind: str, **parameters: object) -> Iterator[subprocess.Popen[str]]:
        """Run a driver process that is ready. Kill it at the end if it still runs."""
        driver = self.start_driver(kind, **parameters)
        try:
            wait_ready(driver)
            yield driver
        finally:
            driver.kill()
            with driver:  # closes its pipes
                pass

    def drive(self, kind: str, **parameters: object) -> Figures:
        """Run a driver to its end, and return its figures."""
        return finish(self.start_driver(kind, **parameters))

    def drive_weighed(self, kind: str, **parameters: object) -> tuple[Figures, float]:
        """Run a driver to its end. Return its figures and the CPU seconds that the broker used meanwhile."""
        before = self.peer.usage().cpu_seconds
        figures = self.drive(kind, **parameters)
        return figures, self.peer.usage().cpu_seconds - before


def finish(driver: subprocess.Popen[str]) -> Figures:
    """Wait for the end of a driver and return its figures.

    Raises:
        DriverFailed: it failed, or took longer than DRIVER_SECONDS.
    """
    try:
        out, err = driver.communicate(timeout=DRIVER_SECONDS)
    except subprocess.TimeoutExpired as error:
        driver.kill()
        driver.communicate()
        raise DriverFailed(f"no end after {DRIVER_SECONDS:.0f} s") from error
    if driver.returncode != 0:
        raise DriverFailed((err.strip() or f"exit code {driver.returncode}").splitlines()[-1])
    figures: Figures = json.loads(out.splitlines()[-1])
    return figures


def wait_ready(driver: subprocess.Popen[str]) -> None:
    """Wait until the driver prints `ready`.

    Raises:
        DriverFailed: it ended before.
    """
    assert driver.stdout is not None
    if driver.stdout.readline().strip() != "ready":
        finish(driver)
        raise DriverFailed("ended without saying ready")


class Workload(Protocol):
    """A measurement of a broker."""

    @property
    def name(self) -> str: ...

    def run(self, target: Target) -> Iterator[Sample]:
        """Measure once.

        Raises:
            DriverFailed: the broker cannot do the work.
        """
        ...


@dataclass(frozen=True)
class Bulk:
    """Produce records as fast as possible, then consume all of them from the beginning.

    The number of records is the same for every broker, because the size of a partition affects the size of
    fetch responses.
    """

    size: int
    codec: str
    partitions: int
    records: int

    @property
    def name(self) -> str:
        return f"{human_size(self.size)}, {self.codec}, {self.partitions}p"

    def run(self, target: Target) -> Iterator[Sample]:
        with target.topic(self.partitions) as topic:
            produced, cpu = target.drive_weighed(
                "produce", topic=topic, size=self.size, codec=self.codec, records=self.records, ca=target.ca
            )
            yield from self._samples("produce", produced, cpu)
            consumed, cpu = target.drive_weighed(
                "consume", topic=topic, partitions=self.partitions, records=self.records, ca=target.ca
            )
            yield from self._samples("consume", consumed, cpu)

    def _samples(self, way: str, figures: Figures, cpu: float) -> Iterator[Sample]:
        yield Sample(f"{way} {self.name}", "records/s", figures["records/s"])
        yield Sample(f"{way} {self.name}", "broker CPU µs/record", cpu * 1e6 / self.records)


@dataclass(frozen=True)
class Requests:
    """Produce requests of one shape, several in flight on several connections, without a client library.

    Args:
        partitions: the number of partitions in each request.
        records: the number of records of 100 bytes for each partition of a request.
        topic_partitions: the number of partitions of the topic. The connections use them in turn.
    """

    partitions: int
    records: int
    connections: int
    in_flight: int
    topic_partitions: int
    seconds: float

    @property
    def name(self) -> str:
        partitions = "1 partition" if self.partitions == 1 else f"{self.partitions} partitions"
        records = "1 record" if self.records == 1 else f"{self.records} records each"
        return f"requests of {partitions}, {records}, {self.connections} connections"

    def run(self, target: Target) -> Iterator[Sample]:
        with (
            target.topic(self.topic_partitions) as topic,
            target.driver("pipelined", topic=topic, **asdict(self)) as driver,
        ):
            before = target.peer.usage().cpu_seconds
            figures = finish(driver)
            cpu = target.peer.usage().cpu_seconds - before
        requests = figures.pop("requests")
        for unit, value in figures.items():
            yield Sample(self.name, unit, value)
        yield Sample(self.name, "broker CPU µs/request", cpu * 1e6 / requests)


@dataclass(frozen=True)
class Synchronous:
    """Send one record of 100 bytes, wait for its acknowledgement, and repeat."""

    seconds: float
    name: str = "synchronous produce"

    def run(self, target: Target) -> Iterator[Sample]:
        with target.topic(1) as topic:
            figures, cpu = target.drive_weighed("sync", topic=topic, size=100, seconds=self.seconds)
        records = figures.pop("records")
        for unit, value in figures.items():
            yield Sample(self.name, unit, value)
        yield Sample(self.name, "broker CPU µs/record", cpu * 1e6 / records)


@dataclass(frozen=True)
class EndToEnd:
    """The time from a produce in one process to the poll in another, at a steady rate far below a broker's
    limit.
    """

    seconds: float
    rate: int

    @property
    def name(self) -> str:
        return f"end-to-end latency ({self.rate}/s of 1 KB)"

    def run(self, target: Target) -> Iterator[Sample]:
        uncounted = self.rate  # a second
        records = uncounted + int(self.rate * self.seconds)
        with target.topic(1) as topic:
            waiting = target.driver("latency", topic=topic, records=records, uncounted=uncounted)
            with waiting as consumer:
                paced = {"size": 1_000, "rate": self.rate, "records": records}
                _, cpu = target.drive_weighed("paced", topic=topic, **paced)
                figures = finish(consumer)
        for unit, value in figures.items():
            yield Sample(self.name, unit, value)
        yield Sample(self.name, "broker CPU µs/record", cpu * 1e6 / records)


@dataclass(frozen=True)
class SmallTransactions:
    """Ten transactional producers at a steady common rate, with one record in each transaction."""

    rate: int
    seconds: float
    name: str = "small transactions"

    def run(self, target: Target) -> Iterator[Sample]:
        with target.topic(10) as topic:
            figures, cpu = target.drive_weighed(
                "small_transactions", topic=topic, producers=10, rate=self.rate, seconds=self.seconds
            )
        name = f"{self.name} (10 producers, {self.rate:,}/s asked for)"
        for unit, value in figures.items():
            yield Sample(name, unit, value)
        yield Sample(name, "broker CPU ms/transaction", cpu * 1e3 / (self.rate * self.seconds))


@dataclass(frozen=True)
class LargeTransactions:
    """Transactions of many records, one after the other."""

    transactions: int
    records: int = 1_000
    name: str = "large transactions"

    def run(self, target: Target) -> Iterator[Sample]:
        with target.topic(1) as topic:
            figures, cpu = target.drive_weighed(
                "large_transactions", topic=topic, records=self.records, transactions=self.transactions
            )
        name = f"{self.name} ({self.records:,} records of 100 B)"
        for unit, value in figures.items():
            yield Sample(name, unit, value)
        yield Sample(name, "broker CPU ms/transaction", cpu * 1e3 / self.transactions)


@dataclass(frozen=True)
class FirstRecord:
    """The time until a new consumer group gets the first record of a topic."""

    name: str = "group join to first record"

    def run(self, target: Target) -> Iterator[Sample]:
        with target.topic(1) as topic:
            target.drive("paced", topic=topic, size=100, rate=1_000, records=10)
            yield Sample(self.name, "s", target.drive("first_record", topic=topic)["s"])


@dataclass(frozen=True)
class Members:
    """Consumers that all join at the same time, as when a company restarts many applications, until all
    groups settle.

    Two processes simulate all members with the codecs of Barnabas. A member learns of a rebalance from its
    next heartbeat: after a second (classic protocol), or after the broker's interval (consumer protocol).
    """

    members: int
    groups: int
    protocol: str

    @property
    def name(self) -> str:
        return f"{self.members:,} {self.protocol} members of {self.groups} groups settle"

    def run(self, target: Target) -> Iterator[Sample]:
        with target.topic(10) as topic:
            half: dict[str, object] = {"members": self.members // 2, "groups": self.groups // 2}
            if self.protocol == "consumer":
                half.update(topic=topic, partitions=10)
            before = target.peer.usage().cpu_seconds
            drivers = [target.start_driver("settle", **half) for _ in range(2)]
            try:
                for driver in drivers:
                    wait_ready(driver)
                cpu = target.peer.usage().cpu_seconds - before
                seconds = max(finish(driver)["s"] for driver in drivers)
            finally:
                for driver in drivers:
                    driver.kill()
        yield Sample(self.name, "s", seconds)
        yield Sample(self.name, "broker CPU ms/member", cpu * 1e3 / self.members)


@dataclass(frozen=True)
class RealMembers:
    """The same as `Members` with real clients, ten in each group. One machine can run fewer of them."""

    members: int

    @property
    def name(self) -> str:
        return f"{self.members} librdkafka members of {self.members // 10} groups settle"

    def run(self, target: Target) -> Iterator[Sample]:
        with target.topic(10) as topic:
            figures, cpu = target.drive_weighed(
                "join", topic=topic, partitions=10, groups=self.members // 10, members=self.members
            )
        yield Sample(self.name, "s", figures["s"])
        yield Sample(self.name, "broker CPU ms/member", cpu * 1e3 / self.members)


@dataclass(frozen=True)
class Connections:
    """The broker's time and memory for each connection."""

    count: int
    name: str = "connections"

    def run(self, target: Target) -> Iterator[Sample]:
        before = target.peer.usage().rss
        with target.driver("connections", count=self.count) as driver:
            growth = target.peer.usage().rss - before
            figures = finish(driver)
        yield Sample(f"{self.count} connections", "connections/s", figures["connections/s"])
        yield Sample(f"{self.count} connections", "MB more", max(0, growth) / MEGABYTE)


@dataclass(frozen=True)
class RestartWithCommits:
    """The time from a broker's start until every group gets its committed offsets. A million commits were
    written.

    It measures the offsets once as written, and once after compaction. The broker of this row has its offsets
    in one partition with small segments, so that compaction can process all except the last.
    """

    commits: int
    groups: int = 100
    partitions: int = 100
    name: str = "restart with commits"

    SEGMENT_BYTES: ClassVar[int] = 1 << 20

    def run(self, target: Target) -> Iterator[Sample]:
        peer = type(target.peer)(target.peer.directory / "restart")
        shape = ("offsets.topic.num.partitions=1", f"offsets.topic.segment.bytes={self.SEGMENT_BYTES}")
        peer.settings = (*shape, "log.cleaner.enable=false")
        try:
            peer.start()
            rounds = self.commits // self.groups // self.partitions
            with Target(peer).topic(self.partitions) as topic:
                commits.commit(peer.bootstrap, topic, self.partitions, self.groups, rounds)
                for state in ("as written", "compacted"):
                    if state == "compacted":
                        peer.stop()
                        peer.settings = (*shape, "log.cleaner.backoff.ms=1000")
                        peer.start()
                        self._wait_until_compacted(peer)
                    peer.stop()
                    peer.start()
                    began = time.monotonic()
                    commits.wait_for(peer.bootstrap, topic, self.groups, rounds - 1)
                    seconds = peer.startup_seconds + time.monotonic() - began
                    yield Sample(f"restart with {self.commits:,} commits, {state}", "s", seconds)
        finally:
            peer.stop()
            shutil.rmtree(peer.directory, ignore_errors=True)

    def _wait_until_compacted(self, peer: Peer) -> None:
        """Wait until compaction leaves only the active segment, one more segment and
        one record for each key.
        """
        deadline = time.monotonic() + DRIVER_SECONDS
        max_bytes = 2 * self.SEGMENT_BYTES + 250 * self.groups * self.partitions
        while _size(peer.directory.rglob("__consumer_offsets-0/*.log")) > max_bytes:
            if time.monotonic() > deadline:
                raise DriverFailed(f"not compacted after {DRIVER_SECONDS:.0f} s")
            time.sleep(0.5)


def _size(files: Iterable[Path]) -> int:
    """Return the size of files in bytes. A file that is deleted meanwhile has none."""
    size = 0
    for file in files:
        with suppress(FileNotFoundError):
            size += file.stat().st_size
    return size


def fresh_start(target: Target) -> Iterator[Sample]:
    """Start the broker. Measure the time until it answers, and its memory while idle."""
    target.peer.start()
    yield Sample("start-up", "s", target.peer.startup_seconds)
    time.sleep(1.0)
    yield Sample("idle memory", "MB", target.peer.usage().rss / MEGABYTE)


def peak_memory(target: Target) -> Sample:
    """Return the highest memory use of the broker since its start."""
    return Sample("peak memory under all of the above", "MB", target.peer.usage().peak_rss / MEGABYTE)


def human_size(size: int) -> str:
    """Return the size of a record as the names of rows have it."""
    return f"{size // 1000} KB" if size >= 1000 else f"{size} B"


def _bulk(shapes: Iterable[tuple[str, int]], records: dict[int, int]) -> Iterator[Bulk]:
    """Yield a row for each pair of codec and partitions, and each record size. Many partitions get a quarter
    of the records.
    """
    for codec, partitions in shapes:
        for size, count in records.items():
            yield Bulk(size, codec, partitions, count if partitions == 1 else count // 4)


def warm_up(
    target: Target, say: Callable[[str], None], requests: bool = True, more: Sequence[Workload] = ()
) -> None:
    """Run work without counting it, so that a JVM compiles the code.

    It repeats all kinds of work until it has reached `WARM_RECORDS` and `WARM_SECONDS`.

    Args:
        target: a running broker. If it can do none of the work, nothing happens.
        say: called with each failure; the broker is then not warm for this kind of work.
        requests: whether one broker leads all partitions, which `Requests` needs.
        more: further work to repeat.
    """
    bulk = [Bulk(100, "none", 1, 200_000), Bulk(1_000, "lz4", 100, 200_000)]
    others: list[Workload] = [Synchronous(2.0), EndToEnd(2.0, 1_000), SmallTransactions(500, 2.0), *more]
    if requests:
        others += [*_requests(2.0)]
    ends = time.monotonic() + WARM_SECONDS
    records = 0
    while records < WARM_RECORDS or time.monotonic() < ends:
        done = [each for each in bulk if _succeeds(each, target, say)]
        if not done:
            return
        records += sum(each.records for each in done)
        for each in others:
            _succeeds(each, target, say)


def _succeeds(workload: Workload, target: Target, say: Callable[[str], None]) -> bool:
    try:
        list(workload.run(target))
    except (DriverFailed, KafkaException, OSError) as error:
        say(f"{target.peer.name} is not warmed by {workload.name}: {error}")
        return False
    return True


def _requests(seconds: float) -> Iterator[Requests]:
    """Yield rows with many partitions in a request, and with as few as possible."""
    yield Requests(100, 10, 4, 5, 100, seconds)
    yield Requests(1, 1, 20, 5, 20, seconds)


def quick() -> list[Workload]:
    """Return the rows for which the targets are defined (a few minutes)."""
    return [
        *_bulk((("none", 1), ("lz4", 1), ("none", 100)), {100: 500_000, 1_000: 200_000}),
        *_requests(2.0),
        Synchronous(1.0),
        EndToEnd(1.5, 500),
        SmallTransactions(1_000, 2.0),
        LargeTransactions(50),
        FirstRecord(),
        Members(200, 20, "classic"),
        Members(200, 20, "consumer"),
        RealMembers(20),
        Connections(200),
    ]


def full() -> list[Workload]:
    """Return all rows."""
    return [
        *_bulk(
            [(codec, partitions) for partitions in (1, 100) for codec in ("none", "lz4")],
            {100: 1_000_000, 1_000: 400_000, 10_000: 50_000},
        ),
        *_requests(5.0),
        Synchronous(3.0),
        *(EndToEnd(4.0, rate) for rate in (100, 300, 1_000)),
        SmallTransactions(1_000, 5.0),
        LargeTransactions(200),
        FirstRecord(),
        Members(1_000, 100, "classic"),
        Members(1_000, 100, "consumer"),
        RealMembers(100),
        Connections(500),
        RestartWithCommits(1_000_000),
    ]
