"""Spark's exactly-once sink on an Apache Kafka with new coordinators."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from bench.artifacts import Unavailable
from bench.peers import Kafka
from confluent_kafka.admin import AdminClient, NewTopic

WRITE = """
import sys
import pyarrow as pa
from barnabas.spark.exactly_once import WriteId, write_once
from barnabas.spark.options import WriteOptions

options = WriteOptions({"bootstrap.servers": sys.argv[1], "log_level": "0"}, "t", exactly_once=True)
rows = pa.RecordBatch.from_pydict({"value": ["v"]})
for batch in range(2):
    assert write_once(options, WriteId("s", batch, 0), iter([rows])).rows == 1
"""


def test_the_first_group_of_a_cluster_can_be_a_sinks(tmp_path: Path) -> None:
    """This runs in its own process, because a defect of librdkafka ended the process."""
    kafka = Kafka(tmp_path / "kafka")
    try:
        kafka.start()
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(30)
        command = [sys.executable, "-c", WRITE, kafka.bootstrap]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
        assert (done.returncode, done.stderr) == (0, "")
    except Unavailable as error:
        pytest.skip(str(error))
    finally:
        kafka.stop()
