"""The workloads of share groups (KIP-932): a queue's throughput, its latency, and what is in flight."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from bench.workloads import MEGABYTE, Sample, Target, Workload, finish, human_size, wait_ready


@dataclass(frozen=True)
class Drain:
    """Measures the rate at which the members of a share group accept the records of a topic."""

    members: int
    partitions: int
    records: int
    size: int = 1_000

    @property
    def name(self) -> str:
        return f"queue: {_members(self.members)}, {self.partitions}p, {human_size(self.size)}"

    def run(self, target: Target) -> Iterator[Sample]:
        with target.topic(self.partitions) as topic:
            target.drive("produce", topic=topic, size=self.size, codec="none", records=self.records)
            with target.driver(
                "share_drain", topic=topic, members=self.members, records=self.records
            ) as driver:
                before = target.peer.usage().cpu_seconds
                figures = finish(driver)
                cpu = target.peer.usage().cpu_seconds - before
        yield Sample(self.name, "records/s", figures["records/s"])
        yield Sample(self.name, "broker CPU µs/record", cpu * 1e6 / self.records)


@dataclass(frozen=True)
class Library:
    """Measures the rate at which one share consumer of librdkafka accepts the records of a topic."""

    partitions: int
    records: int
    size: int = 1_000

    @property
    def name(self) -> str:
        return f"queue: librdkafka's consumer, {self.partitions}p, {human_size(self.size)}"

    def run(self, target: Target) -> Iterator[Sample]:
        with target.topic(self.partitions) as topic:
            target.drive("produce", topic=topic, size=self.size, codec="none", records=self.records)
            figures, cpu = target.drive_weighed("share_library", topic=topic, records=self.records)
        yield Sample(self.name, "records/s", figures["records/s"])
        yield Sample(self.name, "broker CPU µs/record", cpu * 1e6 / self.records)


@dataclass(frozen=True)
class Paced:
    """Measures the time from a record's produce to the answer of its acceptance, at a steady rate in one
    partition.
    """

    members: int
    rate: int
    seconds: float

    @property
    def name(self) -> str:
        return f"queue: produce to acknowledge, {_members(self.members)} ({self.rate:,}/s of 1 KB)"

    def run(self, target: Target) -> Iterator[Sample]:
        uncounted = self.rate  # a second
        records = uncounted + int(self.rate * self.seconds)
        with target.topic(1) as topic:
            parameters = {"members": self.members, "records": records, "uncounted": uncounted}
            with target.driver("share_paced", topic=topic, **parameters) as members:
                _, cpu = target.drive_weighed(
                    "paced", topic=topic, size=1_000, rate=self.rate, records=records
                )
                figures = finish(members)
        for unit, value in figures.items():
            yield Sample(self.name, unit, value)
        yield Sample(self.name, "broker CPU µs/record", cpu * 1e6 / records)


@dataclass(frozen=True)
class InFlight:
    """Measures many records that are locked in many partitions. Every second one is released and delivered
    again.
    """

    members: int
    partitions: int
    records: int

    @property
    def name(self) -> str:
        return f"queue: {self.records:,} in flight in each of {self.partitions}p"

    def run(self, target: Target) -> Iterator[Sample]:
        records = self.partitions * self.records
        with (
            target.topic(self.partitions) as topic,
            target.driver(
                "share_in_flight",
                topic=topic,
                members=self.members,
                partitions=self.partitions,
                records=self.records,
            ) as driver,
        ):
            before = target.peer.usage()
            _go_on(driver)
            wait_ready(driver)
            held = target.peer.usage()
            _go_on(driver)
            figures = finish(driver)
            after = target.peer.usage()
        for unit, value in figures.items():
            yield Sample(self.name, unit, value)
        yield Sample(self.name, "MB more", max(0, held.rss - before.rss) / MEGABYTE)
        yield Sample(
            self.name, "broker CPU µs/record", (after.cpu_seconds - before.cpu_seconds) * 1e6 / records
        )


@dataclass(frozen=True)
class ShareMembers:
    """Measures members that join one share group at the same time, until each has partitions in one epoch."""

    members: int
    partitions: int = 10

    @property
    def name(self) -> str:
        return f"queue: {self.members:,} members settle"

    def run(self, target: Target) -> Iterator[Sample]:
        with target.topic(self.partitions) as topic:
            before = target.peer.usage().cpu_seconds
            with target.driver("share_settle", topic=topic, members=self.members) as driver:
                cpu = target.peer.usage().cpu_seconds - before
                figures = finish(driver)
        yield Sample(self.name, "s", figures["s"])
        yield Sample(self.name, "broker CPU ms/member", cpu * 1e3 / self.members)


def workloads() -> list[Workload]:
    """Return the rows for one broker."""
    return [
        *(Drain(members, partitions, 200_000) for partitions in (1, 10) for members in (1, 10, 100)),
        Library(10, 200_000),
        Paced(1, 300, 4.0),
        Paced(10, 1_000, 4.0),
        Paced(100, 1_000, 4.0),
        InFlight(10, 100, 2_000),
        ShareMembers(1_000),
    ]


def warm_up() -> list[Workload]:
    """Return the work that warms up a broker before these rows."""
    return [*(Drain(members, 10, 100_000) for members in (1, 10, 100)), Paced(10, 1_000, 4.0)]


def replicated() -> list[Workload]:
    """Return the rows for three brokers."""
    return [
        *(Drain(members, partitions, 60_000) for partitions in (1, 10) for members in (1, 10, 100)),
        Paced(10, 300, 4.0),
        Paced(10, 1_000, 4.0),
    ]


def _members(count: int) -> str:
    return f"{count} member{'s' if count > 1 else ''}"


def _go_on(driver: subprocess.Popen[str]) -> None:
    assert driver.stdin is not None
    driver.stdin.write("\n")
    driver.stdin.flush()
