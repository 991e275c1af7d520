"""A cluster whose ZooKeeper has lost all data, restored from the copies of its brokers."""

from __future__ import annotations

import asyncio
import contextlib
import time

from confluent_kafka import AcknowledgeType, ShareConsumer
from tests.integration.test_dead_letters import EXPLICIT, GROUP_RESOURCE, MINE, TOPIC_RESOURCE, configure
from tests.integration.test_share_consumer import PATIENCE

from barnabas.base.environment.os_filesystem import OsFileSystem
from barnabas.broker.metadata.backup import Backup, read_backup, restore
from barnabas.testing import BarnabasCluster
from barnabas.testing.barnabas_cluster import _Threads
from barnabas.testing.shared_store import SharedStore


def latest_backup(folder, brokers, topic) -> Backup:
    """Return the latest backup in the brokers' folders, when it contains the topic."""
    deadline = time.monotonic() + 60
    while True:
        found = []
        for broker in brokers:
            with contextlib.suppress(FileNotFoundError):
                found.append(read_backup(OsFileSystem(), str(folder / f"broker-{broker}")))
        if found and topic in max(found, key=lambda each: each.age).topics:
            return max(found, key=lambda each: each.age)
        assert time.monotonic() < deadline
        time.sleep(0.1)


class RestoredCluster(BarnabasCluster):
    """A cluster with a new store, to which a backup was restored."""

    backup: Backup

    def _beginner(self, folder):
        threads = _Threads(int(self._settings["zookeeper.session.timeout.ms"]) / 1000)

        async def fill() -> None:
            store = SharedStore(threads._server)
            try:
                await restore(self.backup, store)
            finally:
                await store.close()

        asyncio.run(fill())
        return threads


def test_all_records_and_offsets_are_there_after_a_lost_zookeeper(tmp_path, barnabas_cluster):
    with BarnabasCluster(brokers=3, data=tmp_path) as cluster:
        cluster.create_topic("t", 3)
        cluster.wait_in_sync("t")
        cluster.produce("t", *map(str, range(300)))
        backup = latest_backup(tmp_path, cluster.brokers, "t")
        # A replica that falls behind after the backup must not lead when the cluster is made again.
        cluster.kill(3)
        cluster.produce("t", *map(str, range(300, 400)))
        cluster.kill(1)
        cluster.kill(2)
    again = RestoredCluster(brokers=3, data=tmp_path)
    again.backup = backup
    with again:
        again.wait_in_sync("t")
        assert sorted(int(record.value) for record in again.consume("t", 400)) == list(range(400))
        again.produce("t", "more")


def answer(cluster: BarnabasCluster, *values: str) -> None:
    """Send records to the topic "t". The group accepts the values "good", and rejects all others."""
    cluster.produce("t", *values)
    consumer = ShareConsumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", **EXPLICIT})
    consumer.subscribe(["t"])
    left = sorted(values)
    for _ in range(PATIENCE * 10):
        for message in consumer.poll(0.1):
            assert not message.error()
            value = message.value().decode()
            left.remove(value)  # no other record comes
            good = value == "good"
            consumer.acknowledge(message, AcknowledgeType.ACCEPT if good else AcknowledgeType.REJECT)
        assert not any(consumer.commit_sync().values())
        if not left:
            break
    consumer.close()
    assert left == []


def dead(cluster: BarnabasCluster, count: int) -> list[str]:
    return sorted(letter.text for letter in cluster.consume("dlq.t", count, timeout=PATIENCE))


def test_dead_letters_that_wait_are_written_once_after_a_lost_zookeeper(tmp_path):
    settings = {"share.coordinator.state.topic.num.partitions": "1"}
    group = {
        "share_auto_offset_reset": "earliest",
        "errors_deadletterqueue_topic_name": "dlq.t",
        "errors_deadletterqueue_copy_record_enable": "true",
    }
    with BarnabasCluster(brokers=3, data=tmp_path, settings=settings) as cluster:
        cluster.create_topic("t", 1)
        cluster.create_topic("dlq.t", 1, configs=MINE)
        assert configure(cluster, GROUP_RESOURCE, "g", **group) == 0
        answer(cluster, "written", "good")
        assert dead(cluster, 1) == ["written"]
        assert configure(cluster, TOPIC_RESOURCE, "dlq.t", errors_deadletterqueue_group_enable="false") == 0
        cluster.create_topic("last", 1)
        answer(cluster, "waits", "good", "waits, too")
        backup = latest_backup(tmp_path, cluster.brokers, "last")
        for broker in cluster.brokers:
            cluster.kill(broker)
    again = RestoredCluster(brokers=3, data=tmp_path, settings=settings)
    again.backup = backup
    with again:
        again.wait_in_sync("t", "dlq.t")
        answer(again, "good", "new")
        assert dead(again, 1) == ["written"]
        assert configure(again, TOPIC_RESOURCE, "dlq.t", errors_deadletterqueue_group_enable="true") == 0
        assert dead(again, 4) == ["new", "waits", "waits, too", "written"]
        answer(again, "last")
        assert dead(again, 5) == ["last", "new", "waits", "waits, too", "written"]
