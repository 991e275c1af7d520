"""Damaged, missing and discarded replicas of a cluster, and the documented commands that repair them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from barnabas.cli.app import app
from barnabas.testing import BarnabasCluster

TOPIC = "orders"
#: several segments, so that damage lies in one that a start takes at its word
SETTINGS = {"log.segment.bytes": "20000"}
COUNT = 600
VALUES = [f"value {number} ".encode() + b"x" * 100 for number in range(COUNT)]


def barnabas(*arguments: object, code: int = 0) -> str:
    """Run a command in this process, and return its output."""
    result = CliRunner().invoke(app, list(map(str, arguments)), prog_name="barnabas")
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result.output


def filled(cluster: BarnabasCluster, topic: str = TOPIC) -> tuple[int, Path]:
    """Write values to a topic of one partition, and stop a follower. Return the follower's id and its data
    folder.
    """
    cluster.create_topic(topic)
    cluster.wait_in_sync(topic)
    for start in range(0, COUNT, 50):
        cluster.produce(topic, *VALUES[start : start + 50])
    follower = next(broker for broker in cluster.brokers if broker != cluster.leader_of(topic))
    cluster.stop(follower)
    return follower, cluster.data / f"broker-{follower}"


def flip_a_bit(partition: Path) -> None:
    """Flip a bit in the second segment of a partition's log."""
    segment = sorted(partition.glob("*.log"))[1]
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)


def lead_alone(cluster: BarnabasCluster, broker: int, topic: str = TOPIC) -> None:
    """Make an in-sync broker the leader: stop the others."""
    cluster.wait_in_sync(topic)
    for other in cluster.brokers:
        if other != broker and cluster.leader_of(topic) != broker:
            cluster.stop(other)
    assert cluster.leader_of(topic) == broker


def stored(cluster: BarnabasCluster, topic: str = TOPIC) -> list[bytes]:
    return [record.value for record in cluster.consume(topic, COUNT)]


def test_a_damaged_replica_that_is_repaired_by_the_book_loses_nothing(barnabas_cluster):
    cluster = barnabas_cluster(brokers=3, settings=SETTINGS)
    follower, data = filled(cluster)
    flip_a_bit(data / f"{TOPIC}-0")
    barnabas("log", "check", data, code=1)
    barnabas("log", "repair", data)
    cluster.restart(follower)
    lead_alone(cluster, follower)
    assert stored(cluster) == VALUES


def test_a_replica_whose_folder_is_gone_and_repaired_by_the_book_loses_nothing(barnabas_cluster):
    cluster = barnabas_cluster(brokers=3, settings=SETTINGS)
    follower, data = filled(cluster)
    shutil.rmtree(data / f"{TOPIC}-0")
    barnabas("log", "repair", data)
    cluster.restart(follower)
    lead_alone(cluster, follower)
    assert stored(cluster) == VALUES


def files_of(data: Path) -> set[str]:
    return {str(file.relative_to(data)) for file in data.rglob("*") if file.is_file()}


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_whole_broker_of_a_cluster_is_found_whole_and_nothing_is_written_into_its_folder(
    barnabas_cluster, how
):
    cluster = barnabas_cluster(brokers=3, settings=SETTINGS)
    broker, data = filled(cluster)
    if how == "killed":
        cluster.restart(broker)
        cluster.wait_in_sync()
        cluster.kill(broker)
    before = files_of(data)
    barnabas("log", "check", data)
    assert barnabas("log", "repair", data) == "nothing to repair\n"
    assert files_of(data) == before
    cluster.restart(broker)
    cluster.wait_in_sync()


def test_a_damaged_replica_that_is_discarded_is_copied_again(barnabas_cluster):
    cluster = barnabas_cluster(brokers=3, settings=SETTINGS)
    follower, data = filled(cluster)
    flip_a_bit(data / f"{TOPIC}-0")
    assert "barnabas log discard" in barnabas("log", "check", data, code=1)
    before = files_of(data)
    barnabas("log", "discard", f"{TOPIC}-0", data, "--dry-run")
    assert files_of(data) == before
    barnabas("log", "discard", f"{TOPIC}-0", data)
    barnabas("log", "check", data)
    (aside,) = data.glob("damaged.*")
    assert sorted((aside / f"{TOPIC}-0").glob("*.log"))
    cluster.restart(follower)
    lead_alone(cluster, follower)
    assert stored(cluster) == VALUES


def test_a_replica_whose_folder_is_gone_is_copied_again_without_a_word(barnabas_cluster):
    cluster = barnabas_cluster(brokers=3, settings=SETTINGS)
    follower, data = filled(cluster)
    shutil.rmtree(data / f"{TOPIC}-0")
    assert "copies it again" in barnabas("log", "check", data, code=1)
    cluster.restart(follower)
    lead_alone(cluster, follower)
    assert stored(cluster) == VALUES
    assert not (data / f"{TOPIC}-0" / "barnabas-incomplete").exists()
