"""Runs the commands of docs/use/damage.md for a cluster: real brokers, and a real ZooKeeper."""

from __future__ import annotations

from click.testing import CliRunner
from tests.docs.blocks import blocks_of
from tests.docs.pages import ROOT
from tests.integration.cluster.test_damaged_replicas import SETTINGS, VALUES, flip_a_bit
from tests.integration.cluster.test_discarded_replicas import leader_and_isr

from barnabas.cli.app import app
from barnabas.testing import BarnabasCluster

TOPIC = "orders"


class Reader:
    """Runs the commands of the page's blocks, in the folder with the brokers' data."""

    def __init__(self, cluster: BarnabasCluster) -> None:
        self._servers = cluster.bootstrap_servers

    def run(self, first: str, *, code: int = 0) -> list[str]:
        """Run the commands of the block that begins with `first`, and return their outputs.

        The first command exits with `code`, and all others with 0.
        """
        page = ROOT / "docs" / "use" / "damage.md"
        (block,) = [block for block in blocks_of(page) if block.text.startswith(first + "\n")]
        outputs = []
        for number, line in enumerate(block.text.splitlines()):
            result = CliRunner().invoke(
                app, line.split()[1:], env={"BARNABAS_BOOTSTRAP_SERVER": self._servers}, prog_name="barnabas"
            )
            expected = code if number == 0 else 0
            assert result.exit_code == expected, f"{line}: {result.output}\n{result.exception!r}"
            outputs.append(result.output)
        return outputs


def test_a_damaged_replica_is_mended_as_the_page_says(barnabas_cluster, monkeypatch):
    cluster = barnabas_cluster(brokers=3, mode="process", settings=SETTINGS)
    monkeypatch.chdir(cluster.data)
    cluster.admin().create_topic(TOPIC, assignments=[[1, 2]], configs={"min.insync.replicas": "1"})
    with cluster.producer(batch_num_messages=10) as producer:
        for value in VALUES:
            producer.send(TOPIC, value)
    cluster.wait_in_sync(TOPIC)
    data, reader = cluster.data / "broker-2", Reader(cluster)

    cluster.stop(2)
    flip_a_bit(data / f"{TOPIC}-0")
    checked, planned, done = reader.run("barnabas log check broker-2", code=1)
    assert "barnabas log discard" in checked
    assert "moved to" in planned
    assert done == planned or len(done.splitlines()) == len(planned.splitlines())
    cluster.restart(2)
    cluster._wait("it is in sync", 60.0, lambda: leader_and_isr(cluster) == (1, {1, 2}))

    # it is the last one in sync now, and damaged
    cluster.stop(1)
    assert cluster.leader_of(TOPIC) == 2
    assert [record.value for record in cluster.consume(TOPIC, len(VALUES))] == VALUES
    cluster.produce(TOPIC, "only broker 2 has it")
    cluster.stop(2)
    flip_a_bit(data / f"{TOPIC}-0")
    reader.run("barnabas log repair broker-2 --dry-run")
    cluster.restart(2)
    assert leader_and_isr(cluster) == (-1, set())
    cluster.restart(1)
    assert leader_and_isr(cluster) == (-1, set())
    reader.run("barnabas topics elect orders:0 --unclean")
    assert cluster.leader_of(TOPIC) == 2, "its log reaches furthest"
    cluster.wait_in_sync(TOPIC)
    with cluster.consumer(TOPIC) as consumer:
        records = consumer.take(len(VALUES) - 20)
    assert {record.value for record in records} <= {*VALUES, b"only broker 2 has it"}
