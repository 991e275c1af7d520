"""A pipeline on a cluster whose machines have Spark and Python, but not Barnabas.

The test follows docs/use/pipelines.md about packed environments: the executors get one as an archive.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.spark.committed import committed_values
from tests.spark.standalone import StandaloneCluster

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(
        not os.environ.get("BARNABAS_THOROUGH"), reason="BARNABAS_THOROUGH=1 runs it: it is slow"
    ),
]

ROOT = Path(__file__).parents[2]
#: of `barnabas[spark,registry]` without PySpark, which Spark itself brings
PACKAGES = (f"{ROOT}[registry]", "pandas<3", "pyarrow", "numpy", "protobuf", "regex", "venv-pack")

PIPELINE = """
from barnabas.pipelines import sink, source
from pyspark.sql import functions as F

@source(topic="{source}", format="text"{more})
def words(rows):
    return rows

@F.udf("string")
def where(word):
    import barnabas
    return word + (" packed" if "/environment/" in barnabas.__file__ else barnabas.__file__)

@sink(topic="{target}", format="text", delivery="exactly-once")
def copy(words):
    return words.select(where("value").alias("value"))
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the archive that BARNABAS_PACKED_ENVIRONMENT names; without it, make one with venv-pack."""
    if made := os.environ.get("BARNABAS_PACKED_ENVIRONMENT"):
        return Path(made)
    folder = tmp_path_factory.mktemp("packed")
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*command: object) -> None:
        done = subprocess.run(
            [str(each) for each in command], cwd=folder, env=clean, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr

    run(sys.executable, "-m", "venv", "env")
    run(folder / "env/bin/pip", "install", "-q", "-c", ROOT / "constraints.txt", *PACKAGES)
    run(folder / "env/bin/venv-pack", "-q", "-p", "env", "-o", "barnabas.tar.gz")
    return folder / "barnabas.tar.gz"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StandaloneCluster]:
    cluster = StandaloneCluster(tmp_path, workers=1, with_our_packages=False)
    yield cluster
    cluster.stop()


@pytest.mark.parametrize("more", ["", ", static=True"], ids=["stream", "batch"])
def test_executors_without_barnabas_are_given_a_packed_environment(
    cluster: StandaloneCluster,
    archive: Path,
    servers: str,
    make_topic: Callable[..., str],
    feed: Any,
    tmp_path: Path,
    more: str,
) -> None:
    with tarfile.open(archive) as packed:  # the driver starts Python by the same relative path
        packed.extractall(tmp_path / "environment", filter="fully_trusted")
    source, target = make_topic(), make_topic()
    feed(source, ["apple", "pear"])
    file = tmp_path / "words.py"
    file.write_text(PIPELINE.format(source=source, target=target, more=more))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "barnabas.cli", "pipeline", "run", file.name, "--once"),
            *("--bootstrap-server", servers, "--master", cluster.url),
            *("--conf", f"spark.archives={archive}#environment"),
            *("--conf", "spark.executor.memory=512m"),
        ],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PYSPARK_PYTHON": "./environment/bin/python",
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        },
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert committed_values(servers, target) == ["apple packed", "pear packed"]
