"""Whole jobs that write exactly once. Workers, drivers and brokers are killed at moments that a seed
determines.

BARNABAS_KILL_SEEDS=50 kills many more.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.spark import copy_job
from tests.spark.committed import committed_values
from tests.spark.processes import TASKS, children, executors_of, kill, workers_of

from barnabas.spark.pyspark_versions import HAS_LIMITS
from barnabas.testing import BarnabasBroker, BarnabasCluster

MakeTopic = Callable[..., str]
Feed = Callable[..., None]

SEEDS = int(os.environ.get("BARNABAS_KILL_SEEDS", "1"))
KILLS = 3 if SEEDS > 1 else 1  # of one job
ROWS = 10_000
#: The moments of a batch to kill a driver at; with no limits the only batch is all there is, and is longer.
LONGEST_WAIT_S = 0.6 if HAS_LIMITS else 3
ROOT = Path(__file__).parents[2]

thorough = pytest.mark.skipif(
    not os.environ.get("BARNABAS_THOROUGH"), reason="BARNABAS_THOROUGH=1 runs it: it is slow"
)


@pytest.fixture
def source(make_topic: MakeTopic, feed: Feed) -> str:
    topic = make_topic(3)
    for partition in range(3):
        feed(topic, range(partition, ROWS, 3), partition)
    return topic


def everything() -> list[str]:
    return sorted(map(str, range(ROWS)))


def batches_to_kill(chance: random.Random, count: int) -> list[int]:
    """Return the batches in which to kill the job's driver. Without limits there is only one batch."""
    return chance.sample(range(5), count) if HAS_LIMITS else [0] * count


def copy(spark: SparkSession, servers: str, source: str, target: str, folder: Path) -> str | None:
    """Run the copying query to its end. Return the error that stopped it; None when all is copied."""
    try:
        query = copy_job.start_copy(spark, servers, source, target, folder)
        assert query.awaitTermination(120), "the query hangs"
    except (PySparkException, Py4JJavaError) as error:
        return str(error)
    return None


def test_a_job_killed_after_its_last_commit_and_before_sparks_writes_nothing_twice(
    spark: SparkSession, servers: str, source: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    """Spark marks a finished batch with a file. Without the last file, it runs the batch once more."""
    target = make_topic(2)
    assert copy(spark, servers, source, target, tmp_path) is None
    commits = tmp_path / "checkpoint" / "commits"
    last = max(commits.iterdir(), key=lambda path: int(path.name) if path.name.isdecimal() else -1)
    last.unlink()
    (commits / f".{last.name}.crc").unlink()
    assert copy(spark, servers, source, target, tmp_path) is None
    assert last.exists()
    assert committed_values(servers, target) == everything()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_python_workers_killed_at_any_moment_give_each_row_once(
    spark: SparkSession, servers: str, source: str, make_topic: MakeTopic, tmp_path: Path, seed: int
) -> None:
    target, chance = make_topic(2), random.Random(seed)
    # Without limits of a batch the job is a single batch, which a fast machine copies within a second.
    moments = (0.2, 1.5) if HAS_LIMITS else (0.02, 0.2)
    runs = 0
    while runs < KILLS:  # in local mode a task that dies ends the query
        with killing(lambda: workers_of(os.getpid()), chance, moments) as killed:
            stopped_by = copy(spark, servers, source, target, tmp_path)
        runs += 1
        if not killed or stopped_by is None:
            break
    assert runs > 1 or killed, stopped_by
    assert copy(spark, servers, source, target, tmp_path) is None
    assert committed_values(servers, target) == everything()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_broker_killed_at_any_moment_under_a_job_gives_each_row_once(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    with BarnabasBroker(mode="process") as broker:
        broker.create_topic("source", 2)
        broker.create_topic("target", 2)
        with broker.producer() as producer:
            for number in range(ROWS):
                producer.send("source", str(number))
        stop = threading.Event()

        def kill_now_and_then() -> None:
            for _ in range(20):  # no more: a slow machine has to come to an end too
                if stop.wait(chance.uniform(0.5, 3)):
                    return
                broker.kill()
                broker.start()

        killer = threading.Thread(target=kill_now_and_then)
        killer.start()
        servers = broker.bootstrap_servers
        try:
            while (stopped_by := copy(spark, servers, "source", "target", tmp_path)) is not None:
                print(stopped_by)
        finally:
            stop.set()
            killer.join()
        assert committed_values(broker.bootstrap_servers, "target") == everything()


@thorough
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_brokers_of_a_cluster_killed_at_any_moment_under_a_job_give_each_row_once(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """The killed brokers include leaders, coordinators and the controller. Others take over, and the job
    continues.
    """
    chance = random.Random(seed)
    with BarnabasCluster(3) as cluster:
        cluster.create_topic("source", 2)
        cluster.create_topic("target", 2)
        with cluster.producer() as producer:
            for number in range(ROWS):
                producer.send("source", str(number))
        stop = threading.Event()

        def kill_now_and_then() -> None:
            for _ in range(10):  # no more: a slow machine has to come to an end too
                if stop.wait(chance.uniform(0.5, 3)):
                    return
                broker = chance.choice(cluster.brokers)
                cluster.kill(broker)
                stop.wait(chance.choice((0, 4)))  # sooner, or later, than its session ends
                cluster.restart(broker)
                with contextlib.suppress(TimeoutError):
                    cluster.wait_in_sync(timeout=10)

        killer = threading.Thread(target=kill_now_and_then)
        killer.start()
        servers = cluster.bootstrap_servers
        try:
            while (stopped_by := copy(spark, servers, "source", "target", tmp_path)) is not None:
                print(stopped_by)
        finally:
            stop.set()
            killer.join()
        assert committed_values(servers, "target") == everything()


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_drivers_killed_at_any_moment_give_each_row_once(
    servers: str, source: str, make_topic: MakeTopic, tmp_path: Path, seed: int
) -> None:
    """Its Python workers end with the driver's JVM, at once or a little later."""
    target, chance = make_topic(2), random.Random(seed)
    for batch in sorted(batches_to_kill(chance, KILLS)):
        with job("local[2]", servers, source, target, tmp_path) as process:
            wait_for(tmp_path / "checkpoint" / "offsets" / str(batch))
            time.sleep(chance.uniform(0, LONGEST_WAIT_S))
            if chance.random() < 0.5:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                kill(chance.choice(children(process.pid)))  # the JVM
    with job("local[2]", servers, source, target, tmp_path) as process:
        assert process.wait(240) == 0
    assert committed_values(servers, target) == everything()


@thorough
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_drivers_killed_and_moved_to_other_machines_give_each_row_once(
    servers: str, source: str, make_topic: MakeTopic, tmp_path: Path, seed: int
) -> None:
    """Each driver assumes another number of cores in the cluster. The job has no shuffle."""
    target, chance = make_topic(2), random.Random(seed)
    for batch in sorted(batches_to_kill(chance, 2)):
        cores = str(chance.randint(1, 4))
        with job("local[2]", servers, source, target, tmp_path, cores) as process:
            wait_for(tmp_path / "checkpoint" / "offsets" / str(batch))
            time.sleep(chance.uniform(0, LONGEST_WAIT_S))
            os.killpg(process.pid, signal.SIGKILL)
    with job("local[2]", servers, source, target, tmp_path, str(chance.randint(1, 4))) as process:
        assert process.wait(240) == 0
    assert committed_values(servers, target) == everything()


@thorough
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_executors_killed_at_any_moment_give_each_row_once(
    servers: str, source: str, make_topic: MakeTopic, tmp_path: Path, seed: int
) -> None:
    """The cluster is small and has executors. The tasks of a killed one run again on another."""
    target, chance = make_topic(2), random.Random(seed)
    with (
        job("local-cluster[2,1,512]", servers, source, target, tmp_path) as process,
        killing(lambda: executors_of(process.pid), chance, moments=(1, 10), times=2) as killed,
    ):
        code = process.wait(240)
    assert killed
    if code != 0:
        with job("local-cluster[2,1,512]", servers, source, target, tmp_path) as process:
            assert process.wait(240) == 0
    assert committed_values(servers, target) == everything()


@thorough
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_tasks_killed_at_any_moment_and_tried_again_by_spark_give_each_row_once(
    servers: str, source: str, make_topic: MakeTopic, tmp_path: Path, seed: int
) -> None:
    target, chance = make_topic(2), random.Random(seed)
    with (
        job("local[2,20]", servers, source, target, tmp_path) as process,
        killing(lambda: workers_of(process.pid, TASKS), chance, moments=(0.2, 1.5), times=15) as killed,
    ):
        assert process.wait(400) == 0
    assert killed
    assert committed_values(servers, target) == everything()


@contextlib.contextmanager
def job(
    master: str, servers: str, source: str, target: str, folder: Path, *more: str
) -> Iterator[subprocess.Popen[str]]:
    """Run the copying job in its own process session. Yield it when its query has started."""
    arguments = [master, servers, source, target, str(folder), *more]
    command = [sys.executable, "-m", "tests.spark.copy_job", *arguments]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    with (folder / "job.log").open("ab") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment, start_new_session=True
        )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n", (folder / "job.log").read_text()
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


@contextlib.contextmanager
def killing(
    candidates: Callable[[], list[int]],
    chance: random.Random,
    moments: tuple[float, float],
    times: int = 1000,
) -> Iterator[list[int]]:
    """Kill some of `candidates` (SIGKILL) at random moments, at most `times` times. Yield the killed ones."""
    stop = threading.Event()
    killed: list[int] = []

    def run() -> None:
        while len(killed) < times and not stop.wait(chance.uniform(*moments)):
            found = candidates()
            if found:
                killed.append(chance.choice(found))
                kill(killed[-1])

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield killed
    finally:
        stop.set()
        thread.join()


def wait_for(path: Path) -> None:
    end = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < end, f"{path} does not appear"
        time.sleep(0.01)


def test_a_numbered_batch_is_written_once_however_often_it_is_tried(
    spark: SparkSession, servers: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)

    def save(rows: DataFrame, **options: str) -> None:
        given = {"kafka.bootstrap.servers": servers, "topic": topic, "barnabas.delivery": "exactly-once"}
        given |= {f"barnabas.{name}": value for name, value in options.items()}
        rows.selectExpr("string(id) AS value").write.format("barnabas").options(**given).mode("append").save()

    rows = spark.range(0, 100, numPartitions=2)
    for _ in range(2):
        save(rows, sinkId=topic, batchId="7")
    save(spark.range(100, 110), sinkId=topic, batchId="8")
    assert committed_values(servers, topic) == sorted(map(str, range(110)))
    with pytest.raises(
        PySparkException, match="batch 8 is written already, and the batch numbers of a sink must increase"
    ):
        save(rows, sinkId=topic, batchId="7")
    for _ in range(2):  # without a number each is a write of its own
        save(spark.range(110, 111))
    assert committed_values(servers, topic) == sorted([*map(str, range(111)), "110"])


@pytest.mark.spark
def test_a_copied_checkpoint_in_another_topic_takes_nothing_from_the_original(
    spark: SparkSession, servers: str, make_topic: MakeTopic, feed: Feed, tmp_path: Path
) -> None:
    source, first, other = make_topic(), make_topic(), make_topic()
    original, copied = tmp_path / "original", tmp_path / "copied"
    feed(source, range(100))
    assert copy(spark, servers, source, first, original) is None
    shutil.copytree(original, copied)
    feed(source, range(100, 200))
    stopped_by = copy(spark, servers, source, other, copied)
    assert copy(spark, servers, source, first, original) is None
    assert committed_values(servers, first) == sorted(map(str, range(200)))
    assert f"up to batch 0 to topic {first}, and nothing to topic {other}" in (stopped_by or "")
    assert committed_values(servers, other) == []


@pytest.mark.spark
def test_a_topic_that_is_new_to_a_stream_that_began_at_the_latest_offset_is_written_to(
    spark: SparkSession, servers: str, make_topic: MakeTopic, feed: Feed, tmp_path: Path
) -> None:
    """The batch that only notes the start has no records, and counts as written."""
    source, target = make_topic(), make_topic()
    reader = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", servers)
    writer = reader.option("subscribe", source).load().select("value").writeStream.format("barnabas")
    writer = writer.options(**{"kafka.bootstrap.servers": servers, "barnabas.delivery": "exactly-once"})
    query = writer.option("topic", target).option("checkpointLocation", str(tmp_path)).start()
    query.processAllAvailable()
    feed(source, range(10))
    query.processAllAvailable()
    query.stop()
    assert committed_values(servers, target) == sorted(map(str, range(10)))
