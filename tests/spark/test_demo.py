"""The demo as a user runs it, and its parts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow.dataset
import pytest
from confluent_kafka import Producer
from demo import APP, DB, INGRESS, LOG_TOPICS, STATS_TOPIC, report
from demo.report import Count, read_counts, reconcile
from demo.shipping import Shipped

ROOT = Path(__file__).parents[2]


def made_up_logs(folder: Path) -> list[Path]:
    """Write three logs with 300 lines each. The database's log has a burst of 40
    errors in its second hour.
    """
    began = datetime(2026, 3, 1)
    files = []
    for name in ("orders.log", "nginx.log", "postgres.log"):
        lines = []
        for minute in range(300):
            burst = name == "postgres.log" and 60 <= minute < 100
            level, message = ("ERROR", f"lock timeout {minute}") if burst else ("INFO", f"request {minute}")
            lines.append(f"{began + timedelta(minutes=minute)} {level} {message}\n")
        files.append(folder / name)
        files[-1].write_text("".join(lines))
    return files


def cells(row: str) -> list[str]:
    """Return the cells of a table's row, for any widths of the columns."""
    return [cell.strip() for cell in row.strip().strip("│").split("│")]


def run_demo(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the demo of this checkout in a folder."""
    return subprocess.run(
        [sys.executable, "-m", "demo", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_demo_ends_well_and_its_totals_agree_even_after_a_former_run(
    tmp_path: Path, real_logs: list[Path]
) -> None:
    files = real_logs or made_up_logs(tmp_path)
    lines = sum(len(path.read_text().splitlines()) for path in files)
    folder = tmp_path / "demo"
    (folder / "records").mkdir(parents=True)
    (folder / "records" / "left-over.parquet").write_text("of a former run")
    (folder / ".barnabas-demo").touch()
    done = run_demo(tmp_path, "--folder", str(folder), *map(str, files))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The totals agree: shipped = stored = in Parquet = sum of the counts" in done.stdout
    (sums,) = (cells(line) for line in done.stdout.splitlines() if line.startswith("│ all "))
    assert sums == ["all", str(len(files)), *[f"{lines:,}"] * 5]
    assert pyarrow.dataset.dataset(folder / "records", partitioning="hive").count_rows() == lines
    assert "Bursts of errors" in done.stdout
    assert done.stderr == ""


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_totals_agree_though_a_leader_is_killed_half_way(tmp_path: Path) -> None:
    files = made_up_logs(tmp_path)
    folder = tmp_path / "demo"
    done = run_demo(tmp_path, "--brokers", "3", "--folder", str(folder), *map(str, files))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The totals agree: shipped = stored = in Parquet = sum of the counts" in done.stdout
    (sums,) = (cells(line) for line in done.stdout.splitlines() if line.startswith("│ all "))
    assert sums == ["all", "3", *["900"] * 5]
    (told,) = (line for line in done.stdout.splitlines() if "was killed half way" in line)
    assert re.search(r"the longest that a write had to wait is \d+\.\d s .*from a write to its read", told)
    assert "writes were acknowledged, and read back once each, in order." in told
    assert done.stderr == ""


def test_the_demo_says_in_one_line_what_it_lacks(tmp_path: Path) -> None:
    done = run_demo(tmp_path, "--folder", "demo", "none.log")
    assert done.returncode == 1
    expected = f"The demo cannot go on: {tmp_path}/none.log: there is no file of that name that can be read\n"
    assert done.stdout == expected
    assert list(tmp_path.iterdir()) == []


def test_counts_are_read_by_a_group_and_the_last_of_a_key_holds(
    servers: str, make_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in LOG_TOPICS:
        make_topic(3, name=topic)
    make_topic(name=STATS_TOPIC)
    monkeypatch.setattr(report, "GROUP", "demo-test")
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})
    for records in (3, 5):
        for topic in (APP, INGRESS):
            value = {
                "topic": topic,
                "level": "INFO",
                "from": 1_700_000_000,
                "to": 1_700_000_060,
                "records": records,
            }
            producer.produce(STATS_TOPIC, json.dumps(value), key=f"{topic}|INFO")
    for number in range(5):
        producer.produce(APP, b"x", partition=number % 3)
    producer.flush()
    counts = read_counts(servers)
    assert [(count.topic, count.records) for count in counts] == [(APP, 5), (INGRESS, 5)]
    assert all(isinstance(count, Count) and count.start.year == 2023 for count in counts)
    nothing = Shipped(0, 0, 0)
    shipped = {APP: Shipped(1, 6, 5), INGRESS: nothing, DB: nothing}
    app, ingress, db = reconcile(servers, shipped, {APP: 5}, counts)
    assert (app.agree, ingress.agree, db.agree) == (True, False, True)
