"""Kafka Streams with exactly-once processing, while the application and the brokers end."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
from bench.artifacts import Unavailable, kafka_streams_jar

SOURCE = Path(__file__).parent / "streams" / "Counter.java"
WORDS = ("a", "b", "c")
#: seconds
PATIENCE = 120

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def application(java, tmp_path) -> str:
    """Compile the application. Return its class path."""
    if shutil.which("javac") is None:
        pytest.skip("this needs a JDK: there is no `javac` on the PATH")
    try:
        classpath = f"{kafka_streams_jar()}{os.pathsep}{java.classpath}"
    except Unavailable as error:
        pytest.skip(str(error))
    command = ["javac", "-cp", classpath, "-d", tmp_path, SOURCE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return f"{tmp_path}{os.pathsep}{classpath}"


def test_each_count_is_written_once_while_the_application_and_the_brokers_end(
    barnabas_cluster, java, application, tmp_path
):
    cluster = barnabas_cluster(brokers=3)
    for topic in ("words", "counts"):
        cluster.create_topic(topic, 2)
    cluster.wait_in_sync("words", "counts")

    def start() -> subprocess.Popen[str]:
        state = str(tmp_path / "state")
        return java.start("Counter", cluster.bootstrap_servers, state, classpath=application)

    running = start()
    try:
        cluster.produce("words", *WORDS * 20)
        with cluster.consumer("counts") as counts:
            found = counts.take(30, PATIENCE)
            running.kill()
            running.communicate()
            running = start()
            cluster.produce("words", *WORDS * 20)
            found += counts.take(60, PATIENCE)
            cluster.restart(cluster.leader_of("counts"))
            cluster.produce("words", *WORDS * 20)
            cluster.kill(cluster.leader_of("words"))
            cluster.produce("words", *WORDS * 20)
            found += counts.take(150, PATIENCE)
            assert counts.poll(1) is None
    finally:
        running.kill()
        running.communicate()
    by_word = defaultdict(list)
    for record in found:
        by_word[record.key].append(int(record.text))
    assert by_word == {word.encode(): list(range(1, 81)) for word in WORDS}
