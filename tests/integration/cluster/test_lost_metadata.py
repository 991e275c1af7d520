"""A cluster whose ZooKeeper has lost all data, restored from the copies of its brokers."""

from __future__ import annotations

import asyncio
import contextlib
import time

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
