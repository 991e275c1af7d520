"""The log monitoring example: its results while logs arrive, and the replay of a day from two sources."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from demo.logs import by_topic
from examples.log_monitoring.steps import AT_LEAST, ERROR_LEVELS, TOPICS, begins_burst, is_burst
from pyspark.sql import SparkSession
from tests.spark import conftest
from tests.spark.pipeline_process import PipelineProcess
from tests.spark.pipeline_run import supervise

from barnabas.client import Admin, Consumer
from barnabas.client.ship import Shipper
from barnabas.pipelines.build import Run, build
from barnabas.pipelines.read import read_pipeline
from barnabas.pipelines.session import DEFAULTS
from barnabas.testing import BarnabasBroker

spark = conftest.spark  # the session that all tests share

EXAMPLE = Path(__file__).parents[2] / "examples" / "log_monitoring"

#: On a machine that does nothing else it takes one or two; this one may do much else.
PATIENCE_S = 300


def test_a_burst_is_many_errors_and_many_more_than_usual() -> None:
    assert is_burst({100: AT_LEAST}, 100)
    assert not is_burst({100: AT_LEAST - 1}, 100)
    usual = dict.fromkeys(range(90, 100), 4)
    assert is_burst(usual | {100: 20}, 100)
    assert not is_burst(usual | {100: 19}, 100)


def test_a_burst_that_goes_on_is_no_new_one() -> None:
    errors = {100: 20, 101: 40, 103: 90}
    assert [minute for minute in range(99, 105) if begins_burst(errors, minute)] == [100, 103]


def made_up_logs(folder: Path) -> list[Path]:
    """Write three logs of the same day. The database's log has a burst in its second hour."""
    began = datetime(2005, 12, 4, tzinfo=UTC)
    files = [folder / name for name in ("orders.log", "nginx.log", "postgres.log")]
    for file in files:
        with file.open("w") as out:
            for second in range(0, 4 * 3600, 4):
                burst = file.name == "postgres.log" and second // 600 == 8
                level = "ERROR" if burst or second % 900 == 0 else "INFO"
                out.write(f"{began + timedelta(seconds=second):%Y-%m-%d %H:%M:%S} {level} query {second}\n")
    return files


def ship(servers: str, topic: str, files: list[Path], state: Path) -> int:
    """Ship the files to their end, and return the number of records."""
    return Shipper(servers, topic, files, state_dir=state).run().acknowledged if files else 0


def append(log: Path, level: str, times: list[datetime]) -> None:
    with log.open("a") as out:
        for number, at in enumerate(times):
            out.write(f"{at:%Y-%m-%dT%H:%M:%SZ} {level} the database does not answer {number}\n")


@pytest.fixture
def monitor(barnabas_fresh_broker: BarnabasBroker, tmp_path: Path) -> Iterator[PipelineProcess]:
    """Run monitor.py in a folder for its files."""
    here = shutil.copytree(EXAMPLE, tmp_path / "log_monitoring")
    servers = barnabas_fresh_broker.bootstrap_servers
    monitor = PipelineProcess(here / "monitor.py", "monitor", servers, master="local[2]")
    yield monitor
    monitor.kill()


def read_all(servers: str, topic: str) -> list[dict[str, Any]]:
    """Return the last record of each key."""
    with Consumer(servers, topic, group="test") as consumer:
        (place,) = consumer.partitions(topic)
        left = consumer.watermarks(place)[1]
        found: dict[bytes | None, dict[str, Any]] = {}
        while left > 0:
            record = consumer.poll(60)
            assert record is not None and record.value is not None
            found[record.key] = json.loads(record.value)
            left = 0 if record.offset + 1 >= left else left
    return list(found.values())


@contextmanager
def state_store(spark: SparkSession) -> Iterator[None]:
    """Set the state store that pipelines use, in a session that tests share."""
    name = "spark.sql.streaming.stateStore.providerClass"
    before = spark.conf.get(name)
    spark.conf.set(name, DEFAULTS[name])
    yield
    spark.conf.set(name, before)


def replay(spark: SparkSession, servers: str, day: str, source: str, archive: Path, result: Path) -> Any:
    """Run replay.py in this process, and return its result."""
    chosen = {"day": day, "from": source, "archive": str(archive), "result": str(result)}
    pipeline = read_pipeline(EXAMPLE / "replay.py", chosen)
    queries = build(spark, pipeline, Run(servers, (result / "checkpoints").as_uri(), once=True))
    (kept,) = (query for query in queries if query.name == "kept")
    assert supervise(kept).failed is None
    return pyarrow.parquet.read_table(result).to_pylist()


@pytest.mark.spark
@pytest.mark.xdist_group("spark-0")  # whose worker has a session
@pytest.mark.timeout(1500)
def test_a_burst_raises_an_alert_and_a_day_replayed_from_archive_and_topic_is_the_same(
    barnabas_fresh_broker: BarnabasBroker,
    monitor: PipelineProcess,
    spark: SparkSession,
    tmp_path: Path,
    real_logs: list[Path],
) -> None:
    servers = barnabas_fresh_broker.bootstrap_servers
    admin = Admin(servers)
    for topic in TOPICS.split(","):
        admin.create_topic(topic, partitions=3)
    for topic in ("errorRates", "alerts"):
        admin.create_topic(topic, partitions=1)
    logs = by_topic(real_logs or made_up_logs(tmp_path))
    shipped = sum(ship(servers, topic, files, tmp_path / "ship") for topic, files in logs.items())
    shop = tmp_path / "shop.log"
    append(shop, "ERROR", [datetime.now(UTC) - timedelta(minutes=minute) for minute in range(9, 1, -1)])
    shipped += ship(servers, "appLogs", [shop], tmp_path / "ship")

    archive = tmp_path / "archive"
    monitor.start("--set", f"archive={archive}", "--set", "archive_every=1 second")
    monitor.await_queries(rows_read=shipped)
    # from here on: bursts in what had been shipped before have raised their alerts
    with Consumer(servers, "alerts", start="latest") as on_call:
        append(shop, "ERROR", [datetime.now(UTC)] * 40)
        began = time.monotonic()
        shipped += ship(servers, "appLogs", [shop], tmp_path / "ship")
        alert = on_call.poll(PATIENCE_S)
        took = time.monotonic() - began
    assert alert is not None and alert.value is not None
    said = json.loads(alert.value)
    assert (said["topic"], said["source"]) == ("appLogs", str(shop))
    assert AT_LEAST <= said["errors"] <= 40  # those that came with the first of them
    assert said["message"].startswith("the database does not answer")
    assert 0 < said["usual"] <= 1
    print(f"alerted {took:.1f} s after the burst was written")

    monitor.await_queries(rows_read=shipped)
    monitor.stop()
    assert monitor.wait() == 0, monitor.said
    rates = read_all(servers, "errorRates")
    assert sum(rate["records"] for rate in rates) == shipped
    stored = pyarrow.parquet.read_table(archive).to_pylist()
    assert len(stored) == shipped

    alerts = read_all(servers, "alerts")
    day = min(alert["minute"] for alert in alerts)[:10]  # of the old logs
    with state_store(spark):
        from_archive, from_topic = (
            replay(spark, servers, day, source, archive, tmp_path / f"of-{source}")
            for source in ("archive", "topic")
        )
    assert from_archive == from_topic
    errors = [row for row in stored if row["day"] == day and row["level"] in ERROR_LEVELS]
    assert sum(row["errors"] for row in from_archive) == len(errors) > 0
    replayed = {(row["topic"], f"{row['minute']:%Y-%m-%dT%H:%M}") for row in from_archive if row["burst"]}
    alerted = {(alert["topic"], alert["minute"][:16]) for alert in alerts if alert["minute"][:10] == day}
    assert replayed == alerted
