"""Apache Kafka's own tools and clients, and a broker for them.

`make compat` runs these tests. They are skipped with a reason if Apache Kafka's jars are not available.
`BARNABAS_COMPAT_BROKER=kafka make compat` runs the same tests with Apache Kafka. A test that fails there
demands something that Kafka does not do. `BARNABAS_KAFKA_VERSION=4.4.0` chooses the version of Kafka's tools,
clients and broker.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bench.artifacts import KAFKA_VERSION, Unavailable, kafka_classpath, spark_connector_jars
from bench.peers import PEERS, Kafka, Peer
from confluent_kafka.admin import AdminClient, NewTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: time limit of a tool or a Java scenario: the slowest ones take 30 s on a busy machine
TOOL_SECONDS = 180
#: tools that Kafka 4.4 has in another package: for settings, and for the contents of segments
_TOOLS = ("kafka.admin", "kafka.tools") if KAFKA_VERSION < "4.4" else ("org.apache.kafka.tools",) * 2
CONFIGS, DUMP = f"{_TOOLS[0]}.ConfigCommand", f"{_TOOLS[1]}.DumpLogSegments"
# A tool lives for a second or two: start fast, do not optimise.
JAVA = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]
LOG_CONFIGURATION = (
    '<Configuration><Appenders><Console name="c" target="SYSTEM_ERR"/></Appenders>'
    '<Loggers><Root level="error"><AppenderRef ref="c"/></Root></Loggers></Configuration>'
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.compat)


class ToolFailed(AssertionError):
    """A tool ended with another exit code than 0. The message is its output."""


class Java:
    """Runs main classes of Apache Kafka's jars, and our own classes compiled beside them."""

    def __init__(self, classpath: str, directory: Path) -> None:
        self.classpath = classpath
        configuration = directory / "log4j2.xml"
        configuration.write_text(LOG_CONFIGURATION)
        self.options = [f"-Dlog4j2.configurationFile={configuration}"]

    def start(self, main: str, *arguments: str, classpath: str = "") -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*JAVA, *self.options, "-cp", classpath or self.classpath, main, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, main: str, *arguments: str, stdin: str = "", classpath: str = "") -> str:
        """Run a class to its end, and return its standard output.

        Raises:
            ToolFailed: the exit code is not 0.
        """
        process = self.start(main, *arguments, classpath=classpath)
        try:
            out, err = process.communicate(stdin, timeout=TOOL_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise ToolFailed(f"{main} {arguments}: no end after {TOOL_SECONDS} s\n{out}\n{err}") from None
        if process.returncode != 0:
            raise ToolFailed(f"{main} {arguments}: exit code {process.returncode}\n{out}\n{err}")
        return out


@pytest.fixture(scope="session")
def classpath() -> str:
    try:
        return kafka_classpath()
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def java(classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Java:
    return Java(classpath, tmp_path_factory.mktemp("java"))


def _running(peer: Peer) -> Iterator[Peer]:
    peer.start()
    try:
        yield peer
    finally:
        peer.stop()


@pytest.fixture(scope="session")
def broker(classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """Start the broker under test."""
    kind = PEERS[os.environ.get("BARNABAS_COMPAT_BROKER", "barnabas")]
    yield from _running(kind(tmp_path_factory.mktemp(kind.name)))


@pytest.fixture(scope="session")
def kafka(classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """Start Apache Kafka, to compare the broker with it."""
    yield from _running(Kafka(tmp_path_factory.mktemp("kafka")))


@pytest.fixture(scope="session")
def node_id(broker: Peer) -> int:
    """Return the broker's id."""
    metadata = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0}).list_topics(timeout=30)
    (node,) = metadata.brokers
    return int(node)


@pytest.fixture
def topic(broker: Peer) -> Callable[..., str]:
    """Create a topic for the test: `topic(partitions=1, **config)`."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})

    def make(partitions: int = 1, **config: str) -> str:
        name = f"t-{uuid.uuid4().hex[:12]}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(30)
        return name

    return make


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Start a Spark session that has Spark's own Kafka connector in addition to our data source."""
    from pyspark.sql import SparkSession

    from barnabas.spark.worker_python import worker_python

    try:
        jars = spark_connector_jars()
    except Unavailable as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = worker_python(folder)
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.jars": ",".join(map(str, jars)),
        "spark.local.dir": str(folder / "scratch"),
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("compat")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
