"""A live broker for the data source, and one Spark session for each worker with such tests.

The data source works with any broker of the Kafka protocol. `--barnabas-servers HOST:PORT` runs the tests
with another one.
"""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.client.brokers import Brokers
from barnabas.spark import clients
from barnabas.spark.topics import TopicLookup

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.spark.pipeline_run import PipelineRunner

    from barnabas.testing.cluster import Cluster as TestCluster


_COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}

#: the number of workers with a Spark session; fewer would end long after the others
_SESSIONS = 3


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    ours = [
        item for item in items if "spark" in getattr(item, "fixturenames", ()) and here in item.path.parents
    ]
    counts = Counter(item.path for item in ours)
    tests = [0] * _SESSIONS
    session_of: dict[Path, int] = {}
    for file, count in counts.most_common():
        session_of[file] = tests.index(min(tests))
        tests[session_of[file]] += count
    for item in ours:
        item.add_marker(pytest.mark.spark)
        item.add_marker(pytest.mark.timeout(300))
        item.add_marker(pytest.mark.xdist_group(f"spark-{session_of[item.path]}"))


@pytest.fixture(scope="session")
def servers(barnabas_broker: TestCluster) -> Iterator[str]:
    yield barnabas_broker.bootstrap_servers
    for client in clients._kept.values():  # what this process, standing in for a worker, has kept
        if isinstance(client, Brokers):
            client.close()
        if isinstance(client, TopicLookup):
            client.brokers.close()
    clients._kept.clear()


@pytest.fixture(scope="session")
def admin(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers, "log_level": 0})


_numbers = itertools.count()


@pytest.fixture
def make_topic(admin: AdminClient, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Create a topic whose name begins with the test's name."""

    def make(partitions: int = 1, name: str | None = None, **config: str) -> str:
        name = name or f"{request.function.__name__[5:45]}-{os.getpid()}-{next(_numbers)}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(60)
        return name

    return make


class Feeder:
    """Produces records and waits for their acknowledgements."""

    def __init__(self, servers: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": servers, "linger.ms": 0, "enable.idempotence": True, "log_level": 0}
        )

    def __call__(self, topic: str, values: Iterable[object], partition: int = 0) -> None:
        self._produce(topic, ({"value": str(value).encode(), "partition": partition} for value in values))

    def send(self, topic: str, **record: object) -> None:
        """Send one record, with any arguments of `Producer.produce`."""
        self._produce(topic, [record])

    def _produce(self, topic: str, records: Iterable[dict[str, object]]) -> None:
        self._producer.list_topics(topic, timeout=60)  # its partitions, as they are now
        failures: list[object] = []
        for record in records:
            self._producer.produce(
                topic, on_delivery=lambda error, _: failures.append(error) if error else None, **record
            )
        assert self._producer.flush(60) == 0
        assert failures == []


@pytest.fixture(scope="session")
def feed(servers: str) -> Feeder:
    return Feeder(servers)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from tests.spark.session import local_session

    session = local_session("barnabas tests", tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture
def compiled(spark: SparkSession) -> Iterator[None]:
    """Let Spark compile stages and expressions, as it does by default. Other tests go without
    (`tests/spark_quick.py`).
    """
    for name, value in _COMPILED.items():
        spark.conf.set(name, value)
    yield
    for name in _COMPILED:
        spark.conf.unset(name)


@pytest.fixture(scope="session")
def barnabas_spark(spark: SparkSession) -> SparkSession:
    """Replace the fixture of the pytest plugin, so that there is only one Spark session."""
    return spark


@pytest.fixture
def pipeline(spark: SparkSession, servers: str, tmp_path: Path) -> Iterator[PipelineRunner]:
    """Run pipeline files."""
    from tests.spark.pipeline_run import PipelineRunner

    runner = PipelineRunner(spark, servers, tmp_path)
    yield runner
    runner.close()


@pytest.fixture
def records(servers: str) -> Callable[[str, int], list[Message]]:
    """Return `count` committed records of a topic's only partition, and any records after them."""

    def records(topic: str, count: int) -> list[Message]:
        settings = {"bootstrap.servers": servers, "group.id": "reader", "isolation.level": "read_committed"}
        consumer = Consumer(settings)
        consumer.assign([ClientPartition(topic, 0, 0)])
        found = consumer.consume(count, timeout=60)
        found += consumer.consume(1, timeout=0.3)
        consumer.close()
        return found

    return records


def _programs() -> Path | None:
    """Return the folder of PostgreSQL's programs, from Debian's package or from PATH;
    None if there is none.
    """
    found = shutil.which("initdb")
    homes = [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return homes[-1] if homes else None


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """Start a PostgreSQL server for this run of the tests. Return its URL."""
    programs = _programs()
    if programs is None:
        pytest.skip("no PostgreSQL server: install Debian's package postgresql")
    user: dict[str, Any] = {}
    folder = Path(tempfile.mkdtemp(prefix="barnabas-pg-"))
    if os.geteuid() == 0:  # which the server refuses to run as
        user = {"user": "nobody"}
        os.chown(folder, pwd.getpwnam("nobody").pw_uid, -1)
    quiet: dict[str, Any] = {"cwd": folder, "stdout": subprocess.DEVNULL, "check": True, **user}
    control = [programs / "pg_ctl", "-D", folder / "data", "-l", folder / "log", "-w"]
    subprocess.run([programs / "initdb", "-D", folder / "data", "-U", "tester", "-N"], **quiet)
    # no network: a socket in the folder, which no other server can have
    options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
    try:
        subprocess.run([*control, "-o", options, "start"], **quiet)
        yield f"postgresql://tester@/postgres?host={folder}"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], **{**quiet, "check": False})
        shutil.rmtree(folder)
