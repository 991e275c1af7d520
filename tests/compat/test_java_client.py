"""Applications with Apache Kafka's Java client. Each scenario is a method of a class in java/."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = sorted((Path(__file__).parent / "java").glob("*.java"))
SCENARIOS = [
    (source.stem, scenario)
    for source in SOURCES
    for scenario in re.findall(r"^    void (\w+)\(\)", source.read_text(), re.MULTILINE)
]


@pytest.fixture(scope="module")
def compiled(java, tmp_path_factory) -> str:
    """Compile the Java scenarios. Return their class path."""
    if shutil.which("javac") is None:
        pytest.skip("the Java scenarios need a JDK: there is no `javac` on the PATH")
    classes = tmp_path_factory.mktemp("classes")
    done = subprocess.run(
        ["javac", "-cp", java.classpath, "-d", classes, *SOURCES], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return f"{classes}{os.pathsep}{java.classpath}"


@pytest.mark.parametrize(("application", "scenario"), SCENARIOS)
def test_java_client(java, broker, compiled, application, scenario):
    java.run(application, scenario, broker.bootstrap, classpath=compiled)


@pytest.mark.parametrize(
    "scenario", [name for application, name in SCENARIOS if application == "Transactions"]
)
def test_java_client_on_three_brokers(java, barnabas_cluster, compiled, scenario):
    cluster = barnabas_cluster(brokers=3)
    java.run("Transactions", scenario, cluster.bootstrap_servers, classpath=compiled)


def test_java_client_goes_on_at_a_new_leader_before_it_requests_metadata(java, barnabas_cluster, compiled):
    cluster = barnabas_cluster(brokers=3)
    java.run("NewLeader", cluster.bootstrap_servers, classpath=compiled)
