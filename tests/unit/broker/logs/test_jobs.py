"""Periodic jobs: each runs at its interval, whatever the result of an earlier run."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from simulation.virtual_time import run_virtual

from barnabas.base.types import TopicPartition
from barnabas.broker.config import BrokerConfig
from barnabas.broker.logs.jobs import Job, stop_all, upkeep


def test_a_job_that_fails_is_logged_and_runs_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> list[float]:
        loop = asyncio.get_running_loop()
        runs: list[float] = []

        async def work() -> None:
            runs.append(loop.time())
            if len(runs) == 1:
                raise OSError("the disk is slow")

        began = loop.time()
        job = Job("retention", 300, work)
        job.start()
        await asyncio.sleep(1.0)
        await stop_all([job])
        await asyncio.sleep(1.0)
        return [run - began for run in runs]

    assert run_virtual(scenario()) == pytest.approx([0.3, 0.6, 0.9])
    assert caplog.text.count("retention failed") == 1
    assert "the disk is slow" in caplog.text


def test_a_run_is_over_before_the_next_interval_begins() -> None:
    async def scenario() -> int:
        running = peak = 0

        async def work() -> None:
            nonlocal running, peak
            running += 1
            peak = max(peak, running)
            await asyncio.sleep(5.0)
            running -= 1

        job = Job("checkpoint", 100, work)
        job.start()
        await asyncio.sleep(30.0)
        await stop_all([job])
        return peak

    assert run_virtual(scenario()) == 1


def test_the_upkeep_of_logs_follows_the_brokers_settings_and_reports_logs_that_open_late() -> None:
    config = BrokerConfig.from_text(
        {
            "log.retention.check.interval.ms": "3000",
            "producer.id.expiration.check.interval.ms": "4000",
            "producer.id.expiration.ms": "77",
            "log.flush.offset.checkpoint.interval.ms": "60000",
            "log.flush.start.offset.checkpoint.interval.ms": "60000",
            "replica.high.watermark.checkpoint.interval.ms": "5000",
        }
    )
    late = {TopicPartition("orders", 0)}
    calls: list[Any] = []
    opened: list[Any] = []
    postponed = [late, set()]

    class Logs:
        directories = (SimpleNamespace(path="/a"),)

        async def drop_expired(self, _directory: object) -> None:
            calls.append("retention")

        async def expire_producers(self, expiration_ms: int) -> None:
            calls.append(("producers", expiration_ms))

        async def checkpoint(self, _directory: object, of: Any) -> None:
            calls.append(of.__name__)

        async def open_postponed(self) -> set[TopicPartition]:
            return postponed.pop(0)

    async def scenario() -> None:
        jobs = upkeep(SimpleNamespace(config=config), Logs(), opened.append)  # type: ignore[arg-type]
        for job in jobs:
            job.start()
        await asyncio.sleep(24.5)
        await stop_all(jobs)

    run_virtual(scenario())
    assert calls.count("retention") == 8
    assert calls.count(("producers", 77)) == 6
    assert calls.count("high_watermark_checkpoint") == 4
    assert "recovery_point_checkpoint" not in calls
    assert opened == [late]


def test_a_disk_that_hangs_stops_no_job_of_another_disk() -> None:
    calls: list[tuple[str, str]] = []

    async def work(directory: Any, what: str) -> None:
        calls.append((directory.path, what))
        if directory.path == "/a":
            await asyncio.get_running_loop().create_future()

    class Logs:
        directories = (SimpleNamespace(path="/a"), SimpleNamespace(path="/b"))

        async def drop_expired(self, directory: Any) -> None:
            await work(directory, "retention")

        async def checkpoint(self, directory: Any, of: Any) -> None:
            await work(directory, of.__name__)

    async def scenario() -> None:
        config = BrokerConfig()
        jobs = upkeep(SimpleNamespace(config=config), Logs(), lambda _: None)  # type: ignore[arg-type]
        jobs = [job for job in jobs if "producer" not in job._name and "postponed" not in job._name]
        for job in jobs:
            job.start()
        await asyncio.sleep(1000)
        await stop_all(jobs)

    run_virtual(scenario())
    for what, count in Counter(what for directory, what in calls if directory == "/b").items():
        assert count >= 3, what
        assert calls.count(("/a", what)) == 1
    assert {what for directory, what in calls if directory == "/b"} == {
        "retention",
        "recovery_point_checkpoint",
        "log_start_checkpoint",
        "high_watermark_checkpoint",
    }


@pytest.mark.parametrize(
    ("paths", "messages"),
    [(["/a"], {"retention failed"}), (["/a", "/b"], {"retention of /a failed", "retention of /b failed"})],
)
def test_a_failed_job_names_its_log_directory_if_there_are_several(
    paths: list[str], messages: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    class Logs:
        directories = tuple(SimpleNamespace(path=path) for path in paths)

        async def drop_expired(self, _directory: Any) -> None:
            raise RuntimeError("a bug")

        async def checkpoint(self, _directory: Any, _of: Any) -> None:
            pass

    async def scenario() -> None:
        jobs = upkeep(SimpleNamespace(config=BrokerConfig()), Logs(), lambda _: None)  # type: ignore[arg-type]
        jobs = [job for job in jobs if "producer" not in job._name and "postponed" not in job._name]
        for job in jobs:
            job.start()
        await asyncio.sleep(400)
        await stop_all(jobs)

    run_virtual(scenario())
    assert set(caplog.messages) == messages
