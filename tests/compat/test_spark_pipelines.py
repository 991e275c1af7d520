"""Spark's own declarative pipelines (`spark-pipelines`), with our data source as source and sink."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from barnabas.client import Consumer, Producer
from barnabas.testing import BarnabasBroker

pytest.importorskip("grpc", reason="spark-pipelines needs pyspark[pipelines]")

SPEC = """\
name: shop
storage: {folder}/storage
libraries:
  - glob:
      include: transformations/**
"""

FLOWS = """\
from pyspark import pipelines as dp
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.active()
servers = {{"kafka.bootstrap.servers": "{servers}"}}

@dp.temporary_view
def orders():
    reader = spark.readStream.format("barnabas").options(**servers, subscribe="orders")
    return reader.option("startingOffsets", "earliest").load()

dp.create_sink("loud", "barnabas", {{**servers, "topic": "loud"}})

@dp.append_flow(target="loud")
def shout():
    loud = F.upper(F.col("value").cast("string")).alias("value")
    return spark.readStream.table("orders").select("key", loud)
"""


def run(project: Path) -> None:
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [home / "bin" / "spark-pipelines", "run", "--conf", "spark.ui.enabled=false"]
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Run is COMPLETED" in done.stdout + done.stderr


@pytest.mark.timeout(600)
def test_a_spark_pipelines_project_reads_and_writes_topics_and_goes_on_where_it_was(tmp_path: Path) -> None:
    with BarnabasBroker() as broker:
        for topic in ("orders", "loud"):
            broker.create_topic(topic)
        servers = broker.bootstrap_servers
        (tmp_path / "transformations").mkdir()
        (tmp_path / "spark-pipeline.yaml").write_text(SPEC.format(folder=tmp_path.as_uri()))
        (tmp_path / "transformations" / "shop.py").write_text(FLOWS.format(servers=servers))
        for words in (["apple", "pear"], ["plum"]):
            with Producer(servers) as producer:
                for word in words:
                    producer.send("orders", word)
            run(tmp_path)
        found = []
        with Consumer(servers, "loud", group="reader") as consumer:
            while (record := consumer.poll(5)) is not None:
                found.append(record.value)
    assert found == [b"APPLE", b"PEAR", b"PLUM"]
