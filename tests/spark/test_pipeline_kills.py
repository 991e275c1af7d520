"""Pipelines whose processes are killed at moments that a seed determines: each row once, and no wrong count.

`make kills` runs many seeds.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.spark.committed import committed_values
from tests.spark.pipeline_process import PipelineProcess
from tests.spark.processes import TASKS, children, kill, workers_of

from barnabas.testing import BarnabasCluster

SEEDS = int(os.environ.get("BARNABAS_KILL_SEEDS", "1"))
ROWS = 9_000
#: Of sinks that refuse some: the table takes ten attempts to find each of them.
REFUSED_ROWS = 3_000
DEATHS = 3  # of the driver
BROKER_DEATHS = 6
KINDS = 10
EVERY_ROW = dict.fromkeys(range(KINDS), ROWS // KINDS)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not os.environ.get("BARNABAS_THOROUGH"), reason="BARNABAS_THOROUGH=1 runs it: it is slow"
    ),
]

PIPELINE = """
from barnabas.pipelines import pipeline, sink, source, step
from pyspark.sql import functions as F

pipeline(restarts=1000)

@source(topic="{source}", format="text", options={{"maxOffsetsPerTrigger": "500"}})
def lines(rows):
    return rows

@F.udf("string")
def same(value):
    return value

@step
def passed(lines):
    return lines.select(same("value").alias("value"))

@sink(topic="{copy}", format="text", delivery="exactly-once")
def copy(passed):
    return passed.repartition(3, "value")

@sink(topic="{counts}", key="kind", mode="update", delivery="exactly-once")
def counts(passed):
    return passed.groupBy(F.expr("int(value) % {kinds}").alias("kind")).count()
"""


#: One query writes the dead letters and what needs no state; the counts keep a query of their own.
SHARED = """
from barnabas.pipelines import pipeline, sink, source
from pyspark.sql import functions as F

pipeline(restarts=1000)

@source(
    topic="{source}", format="json", schema="id BIGINT NOT NULL", dead_letter="{bad}", shared=True,
    options={{"maxOffsetsPerTrigger": "500"}},
)
def records(rows):
    return rows

@F.udf("string")
def same(value):
    return str(value)

@sink(topic="{copy}", format="text", delivery="exactly-once")
def copy(records):
    return records.select(same("id").alias("value")).repartition(3, "value")

@sink(topic="{even}", format="text", delivery="exactly-once")
def even(records):
    return records.where("id % 2 = 0").select(F.col("id").cast("string").alias("value"))

@sink(topic="{counts}", key="kind", mode="update", delivery="exactly-once")
def counts(records):
    return records.groupBy((F.col("id") % {kinds}).alias("kind")).count()
"""


#: Both sinks refuse some of the rows: PostgreSQL an age, and a topic a text that is too long for it.
REJECTED = """
from barnabas.pipelines import pipeline, sink, source
from pyspark.sql import functions as F

pipeline(restarts=1000)

@source(
    topic="{source}", format="json", schema="id BIGINT NOT NULL, age BIGINT, text STRING",
    options={{"maxOffsetsPerTrigger": "500"}},
)
def people(rows):
    return rows

@sink(postgres="{server}", table="people", dead_letter="{rejected}")
def table(people):
    return people.select("id", "age", "_record")

@sink(topic="{copy}", key="id", delivery="exactly-once", dead_letter="{large}")
def copy(people):
    return people.select("id", "text", "_record").repartition(3, "id")
"""


@pytest.fixture
def process(servers: str, tmp_path: Path) -> Iterator[PipelineProcess]:
    process = PipelineProcess(tmp_path / "killed.py", "killed", servers, master="local[2]")
    yield process
    process.kill()
    print(process.said, process.spark_log[-20_000:])  # shown when the test fails


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_pipeline_killed_at_any_moment_gives_each_row_once(
    servers: str,
    make_topic: Callable[..., str],
    feed: Any,
    process: PipelineProcess,
    tmp_path: Path,
    seed: int,
) -> None:
    chance = random.Random(seed)
    source, copy, counts = make_topic(2), make_topic(2), make_topic(2)
    text = PIPELINE.format(source=source, copy=copy, counts=counts, kinds=KINDS)
    (tmp_path / "killed.py").write_text(text)
    for partition in range(2):
        feed(source, range(partition, ROWS, 2), partition)

    kill_and_finish(process, chance)

    assert committed_values(servers, copy) == sorted(map(str, range(ROWS)))
    check_counts(servers, counts)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_outputs_of_a_shared_source_killed_at_any_moment_get_each_row_once(
    servers: str,
    make_topic: Callable[..., str],
    feed: Any,
    process: PipelineProcess,
    tmp_path: Path,
    seed: int,
) -> None:
    chance = random.Random(seed)
    names = ("source", "bad", "copy", "even", "counts")
    topics = {name: make_topic(2) for name in names}
    (tmp_path / "killed.py").write_text(SHARED.format(**topics, kinds=KINDS))
    bad = set(chance.sample(range(ROWS), ROWS // 9))
    for partition in range(2):
        rows = range(partition, ROWS, 2)
        feed(topics["source"], [f"{n} is bad" if n in bad else f'{{"id": {n}}}' for n in rows], partition)

    kill_and_finish(process, chance)

    good = [number for number in range(ROWS) if number not in bad]
    assert committed_values(servers, topics["copy"]) == sorted(map(str, good))
    assert committed_values(servers, topics["even"]) == sorted(str(n) for n in good if n % 2 == 0)
    letters = committed_values(servers, topics["bad"])  # at least once
    assert set(letters) == {f"{number} is bad" for number in bad}
    check_counts(servers, topics["counts"], Counter(number % KINDS for number in good))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_sinks_that_refuse_rows_killed_at_any_moment_give_each_row_or_its_dead_letter_once(
    servers: str,
    make_topic: Callable[..., str],
    feed: Any,
    postgres_server: str,
    process: PipelineProcess,
    tmp_path: Path,
    seed: int,
) -> None:
    import psycopg

    chance = random.Random(seed)
    topics = {name: make_topic(2) for name in ("source", "rejected", "large")}
    topics["copy"] = make_topic(2, max_message_bytes="1000")
    (tmp_path / "killed.py").write_text(REJECTED.format(**topics, server=postgres_server))
    old, long = (set(chance.sample(range(REFUSED_ROWS), REFUSED_ROWS // 50)) for _ in range(2))
    for partition in range(2):
        rows = [
            {"id": n, "age": 999 if n in old else 40, "text": "x" * (2000 if n in long else 9)}
            for n in range(partition, REFUSED_ROWS, 2)
        ]
        feed(topics["source"], map(json.dumps, rows), partition)
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("CREATE TABLE people (id BIGINT, age SMALLINT CHECK (age < 100))")
        try:
            kill_and_finish(process, chance)
            written = [number for (number,) in connection.execute("SELECT id FROM people ORDER BY id")]
            left = connection.execute("SELECT count(*) FROM barnabas_rejected").fetchone()
        finally:
            connection.execute("DROP TABLE people; DROP TABLE IF EXISTS barnabas_batches, barnabas_rejected")

    assert written == [number for number in range(REFUSED_ROWS) if number not in old]
    assert left == (0,)
    assert ids_in(servers, topics["rejected"]) == sorted(old)
    assert ids_in(servers, topics["copy"]) == [number for number in range(REFUSED_ROWS) if number not in long]
    assert ids_in(servers, topics["large"]) == sorted(long)


def ids_in(servers: str, topic: str) -> list[int]:
    return sorted(json.loads(value)["id"] for value in committed_values(servers, topic))


def kill_and_finish(process: PipelineProcess, chance: random.Random) -> None:
    """Run a pipeline, kill it or its workers at random moments, and let the last run end."""
    for _ in range(DEATHS):
        process.start("--once")
        done = len(commits(process))
        while not process.ended and len(commits(process)) <= done + chance.randrange(3):
            time.sleep(0.05)
        time.sleep(chance.uniform(0, 1))
        for _ in range(chance.randrange(3)):
            workers = workers_of(process.pid, TASKS)
            if workers:
                kill(chance.choice(workers))
            time.sleep(chance.uniform(0, 2))
        driver, *others = [process.pid, *children(process.pid)]
        fate = chance.choice(["all", "driver", "JVM"])
        if fate == "all":
            process.kill()
        else:  # the other may live on for a moment, while the pipeline is run again
            kill(driver if fate == "driver" else chance.choice(others or [driver]))
        with contextlib.suppress(ProcessLookupError):
            process.wait()
    process.start("--once")
    assert process.wait(400) == 0, process.said


def check_counts(servers: str, topic: str, expected: Mapping[int, int] = EVERY_ROW) -> None:
    told = [json.loads(value) for value in committed_values(servers, topic)]
    pairs = Counter((each["kind"], each["count"]) for each in told)
    assert set(pairs.values()) == {1}, "what a batch comes to is told once"
    counted = {kind: max(count for each, count in pairs if each == kind) for kind in range(KINDS)}
    assert counted == expected


def commits(process: PipelineProcess) -> list[Path]:
    """Return the files with which Spark marks finished batches."""
    return list(process.folder.glob("checkpoints/*/commits/[0-9]*"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_pipeline_under_which_the_brokers_of_a_cluster_are_killed_gives_each_row_once(
    tmp_path: Path, seed: int
) -> None:
    """The killed brokers include leaders, coordinators and the controller. Others take over, and the pipeline
    continues.
    """
    chance = random.Random(seed)
    (tmp_path / "killed.py").write_text(
        PIPELINE.format(source="lines", copy="copies", counts="counts", kinds=KINDS)
    )
    with BarnabasCluster(3) as cluster:
        for topic in ("lines", "copies", "counts"):
            cluster.create_topic(topic, 2)
        with cluster.producer() as producer:
            for number in range(ROWS):
                producer.send("lines", str(number))
        process = PipelineProcess(tmp_path / "killed.py", "killed", cluster.bootstrap_servers, "local[2]")
        killed: list[int] = []
        failures: list[Exception] = []

        def kill_now_and_then() -> None:
            try:
                kill_brokers()
            except Exception as error:
                failures.append(error)

        def kill_brokers() -> None:
            while not commits(process):  # its first batches are done
                if process.ended:
                    return
                time.sleep(0.05)
            while len(killed) < BROKER_DEATHS and not process.ended:
                broker = chance.choice(cluster.brokers)
                cluster.kill(broker)
                killed.append(broker)
                time.sleep(chance.choice((0, 4)))  # sooner, or later, than its session ends
                cluster.restart(broker)
                with contextlib.suppress(TimeoutError):
                    cluster.wait_in_sync(timeout=10)

        process.start("--once")
        killer = threading.Thread(target=kill_now_and_then)
        killer.start()
        try:
            assert process.wait(600) == 0, process.said
        finally:
            process.kill()
            killer.join()
            print(process.said, process.spark_log[-20_000:])  # shown when the test fails
        assert killed and not failures, failures
        cluster.wait_in_sync()
        assert committed_values(cluster.bootstrap_servers, "copies") == sorted(map(str, range(ROWS)))
        check_counts(cluster.bootstrap_servers, "counts")
