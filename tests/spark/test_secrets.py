"""The traces of a pipeline with a password: Spark's log at DEBUG, its events and plans, the status."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not os.environ.get("BARNABAS_THOROUGH"), reason="BARNABAS_THOROUGH=1 runs it: it is slow"
    ),
]

PASSWORD = "hunter2-opensesame"

PIPELINE = """
from barnabas.pipelines import sink, source

@source(files="{folder}/people.json", format="json", schema="id BIGINT", static=True)
def people(rows):
    jvm = rows.sparkSession._jvm
    connection = jvm.java.sql.DriverManager.getConnection("jdbc:derby:{folder}/db;create=true")
    if not connection.getMetaData().getTables(None, None, "PEOPLE", None).next():
        connection.createStatement().execute("CREATE TABLE people (id BIGINT)")
    connection.close()
    return rows

@sink(jdbc="jdbc:derby:{folder}/db", table="people", user="APP", password_env="SHOP_PASSWORD")
def copy(people):
    return people

@sink(jdbc="jdbc:derby:{folder}/db", table="nobody", user="APP", password_env="SHOP_PASSWORD")
def refused(people):
    return people
"""


def test_a_password_is_in_no_log_and_no_plan(tmp_path: Path) -> None:
    (tmp_path / "people.json").write_text('{"id": 1}\n{"id": 2}\n')
    (tmp_path / "events").mkdir()
    (tmp_path / "shop.py").write_text(
        "from barnabas.pipelines import pipeline\npipeline(restarts=1)\n" + PIPELINE.format(folder=tmp_path)
    )
    settings = {
        "spark.log.level": "DEBUG",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (tmp_path / "events").as_uri(),
        "spark.eventLog.compress": "false",
    }
    done = subprocess.run(
        [
            *(sys.executable, "-m", "barnabas.cli", "pipeline", "run", "shop.py", "--once"),
            *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
        ],
        cwd=tmp_path,
        env={**os.environ, "SHOP_PASSWORD": PASSWORD, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "'NOBODY' does not exist" in done.stderr
    assert PASSWORD not in done.stdout + done.stderr
    files = [each for each in tmp_path.rglob("*") if each.is_file() and "db" not in each.parts]
    with_secret = [str(each) for each in files if PASSWORD.encode() in each.read_bytes()]
    assert with_secret == []
    (log,) = tmp_path.rglob("spark.log")
    assert b" DEBUG " in log.read_bytes(), "the log was searched at its most talkative"
    assert any(
        b"SparkListenerSQLExecutionStart" in each.read_bytes()
        for each in (tmp_path / "events").rglob("*")
        if each.is_file()
    )
