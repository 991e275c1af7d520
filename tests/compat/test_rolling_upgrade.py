"""The previous version and this one run as one cluster: an upgrade of each broker under load, and back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from tests.compat.versions import ROOT, checkout, last_release
from tests.integration.cluster.load import LOADS, await_progress, check, stored_in

from barnabas.testing import BarnabasCluster

#: what counts as the version before while there is no tag: the first commit with clusters in this history
_FIRST = "0359a92"


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkout of the newest tag; without tags, of the first commit that has clusters."""
    sources = checkout(last_release(_FIRST), tmp_path_factory.mktemp("earlier"))
    child = sources / "barnabas/testing/process_broker.py"
    if not child.exists():  # the module's name before it was renamed
        child.write_text((child.parent / "process_node.py").read_text())
    return sources


def restart(cluster: BarnabasCluster, broker: int, sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Restart a broker with other sources. A broker is a separate process, which imports them."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(sources), str(ROOT)]))
    cluster.restart(broker)


def test_a_cluster_is_upgraded_broker_by_broker_under_load(
    earlier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(earlier), str(ROOT)]))
    upgraded = BarnabasCluster(brokers=3, store="zookeeper", data=tmp_path)
    # The earlier version refuses settings of features that it does not have.
    upgraded._settings = {
        name: value for name, value in upgraded._settings.items() if not name.startswith("share.")
    }
    with upgraded as cluster:
        cluster.create_topic("t", 6)
        cluster.wait_in_sync("t")
        load = LOADS["confluent-kafka"](cluster.bootstrap_servers, "t")
        await_progress(load)
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "g",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["t"])
        read = 0
        now = ROOT / "src"
        # All go forward, and one back again while the others stay.
        for broker, sources in ((1, now), (2, now), (3, now), (2, earlier), (2, now)):
            restart(cluster, broker, sources, monkeypatch)
            cluster.wait_in_sync()
            await_progress(load)
            read += sum(message.error() is None for message in consumer.consume(500, 2))
        load.finish()
        consumer.close()
        assert read
        check(load, stored_in(cluster, "t"))
        # The version that is not there any more must not be needed: all start again as they are now.
        for broker in cluster.brokers:
            cluster.kill(broker)
        cluster._begin_nodes(cluster.brokers)
        cluster.wait_in_sync("t")
        check(load, stored_in(cluster, "t"))
