"""A whole broker whose metadata is in a real ZooKeeper."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.relay import Relay
from tests.zookeeper import PATIENT, new_chroot, opened

from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.store import MetadataStore
from barnabas.broker.metadata.zookeeper.address import ZooKeeperAddress
from barnabas.broker.metadata.zookeeper.server import ZooKeeperServer
from barnabas.cli.app import app
from barnabas.client import Admin
from barnabas.testing import BarnabasBroker

#: a session timeout that is over soon, and is longer than a busy machine stands still
SESSION_MS = 8000


def broker_on(
    address: ZooKeeperAddress, data: Path, mode: str = "thread", timeout_ms: int = 30_000
) -> BarnabasBroker:
    settings = {
        "zookeeper.connect": str(address),
        "zookeeper.session.timeout.ms": str(timeout_ms),
        "offsets.topic.replication.factor": "1",
    }
    return BarnabasBroker(settings, data=data, mode=mode)


def look(address: ZooKeeperAddress, question: Callable[[MetadataStore], Any]) -> Any:
    """Return the answer of a new store to a question."""

    async def ask() -> Any:
        async with opened(address) as store:
            return await question(store)

    return asyncio.run(ask())


def eventually(attempt: Callable[[], Any]) -> Any:
    """Repeat an attempt until it does not fail, and return its result."""
    deadline = time.monotonic() + PATIENT
    while True:
        try:
            return attempt()
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def values(broker: BarnabasBroker, topic: str, count: int) -> list[bytes]:
    return sorted(bytes(record.value or b"") for record in broker.consume(topic, count, timeout=PATIENT))


def test_topics_and_records_are_there_after_a_restart_of_the_broker(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    address = new_chroot(zookeeper.address)
    with broker_on(address, tmp_path) as broker:
        broker.create_topic("t", 3, configs={"retention.ms": "123456"})
        broker.produce("t", "a", "b")
        registration = look(address, lambda store: store.get(znodes.broker(1)))
        assert json.loads(registration.data)["port"] == int(broker.bootstrap_servers.rpartition(":")[2])
        broker.restart()
        again = look(address, lambda store: store.get(znodes.broker(1)))
        assert again.created > registration.created
        assert json.loads(again.data)["previous_epoch"] == registration.created
        assert json.loads(again.data)["state"] == "running"
        broker.produce("t", "c")
        assert values(broker, "t", 3) == [b"a", b"b", b"c"]
        configs = look(address, lambda store: store.get(znodes.topic_config("t")))
        assert znodes.decode_config(configs.data) == {"retention.ms": "123456"}
        assert not list(tmp_path.glob("metadata-*.journal"))
    assert look(address, lambda store: store.children(znodes.BROKER_IDS)) == []


def test_broker_serves_while_zookeeper_is_away_and_goes_on_with_its_session_when_it_is_back(
    own_zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    address = new_chroot(own_zookeeper.address)
    with broker_on(address, tmp_path) as broker:
        broker.create_topic("t", 2)
        broker.produce("t", "before")
        assert values(broker, "t", 1) == [b"before"]
        registration = look(address, lambda store: store.get(znodes.broker(1)))
        own_zookeeper.kill()
        broker.produce("t", "meanwhile")
        assert values(broker, "t", 2) == [b"before", b"meanwhile"]
        assert set(broker.admin().topics()) >= {"t"}
        with pytest.raises(Exception, match=r"."):
            Admin(broker.bootstrap_servers, timeout=2).create_topic("refused")
        own_zookeeper.start(120)
        eventually(lambda: broker.create_topic("after"))
        broker.produce("t", "after")
        assert values(broker, "t", 3) == [b"after", b"before", b"meanwhile"]
        assert set(broker.admin().topics()) >= {"t", "after"}
        assert "refused" not in broker.admin().topics()
        assert look(address, lambda store: store.get(znodes.broker(1))) == registration


def test_broker_whose_session_has_ended_registers_again_and_nothing_is_lost(
    own_zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    address = new_chroot(own_zookeeper.address)
    with Cut(own_zookeeper.port) as cut:
        through = ZooKeeperAddress((cut.address,), address.chroot)
        with broker_on(through, tmp_path, timeout_ms=SESSION_MS) as broker:
            broker.create_topic("t")
            broker.produce("t", "before")
            before = look(address, lambda store: store.get(znodes.broker(1)))
            cut.cut()
            eventually(lambda: look(address, gone))
            broker.produce("t", "meanwhile")
            cut.heal()
            eventually(lambda: broker.create_topic("after"))
            broker.produce("t", "after")
            assert values(broker, "t", 3) == [b"after", b"before", b"meanwhile"]
            after = look(address, lambda store: store.get(znodes.broker(1)))
            assert after.created > before.created


async def gone(store: MetadataStore) -> None:
    assert await store.exists(znodes.broker(1)) is None


class Cut:
    """A relay in its own thread, which a blocking test can cut."""

    def __init__(self, port: int) -> None:
        self._runner = asyncio.Runner()
        self._relay = Relay(port)
        self._loop = self._runner.get_loop()

    @property
    def address(self) -> str:
        return self._relay.address

    def cut(self) -> None:
        self._loop.call_soon_threadsafe(self._relay.cut)

    def heal(self) -> None:
        self._loop.call_soon_threadsafe(self._relay.heal)

    def __enter__(self) -> Cut:
        self._runner.run(self._relay.start())
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._relay.stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._runner.close()


def test_lone_broker_moves_to_zookeeper_with_its_topics_offsets_and_records(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    address = new_chroot(zookeeper.address)
    with BarnabasBroker(data=tmp_path) as alone:
        alone.create_topic("t", 2, configs={"retention.ms": "123456"})
        alone.produce("t", "a", "b")
        with alone.consumer("t", group="g") as consumer:
            consumer.take(2, PATIENT)
            consumer.commit()
        cluster_id = alone.admin().cluster().cluster_id
    with pytest.raises(Exception, match="barnabas cluster import"):
        broker_on(address, tmp_path).start()
    called = CliRunner().invoke(app, ["cluster", "import", str(tmp_path), "--zookeeper", str(address)])
    assert called.exit_code == 0, called.output
    assert cluster_id is not None and cluster_id in called.output
    again = CliRunner().invoke(app, ["cluster", "import", str(tmp_path), "--zookeeper", str(address)])
    assert again.exit_code == 1
    assert "was moved to ZooKeeper before" in again.output + again.stderr + str(again.exception)
    with broker_on(address, tmp_path) as broker:
        assert broker.admin().cluster().cluster_id == cluster_id
        broker.produce("t", "c")
        assert values(broker, "t", 3) == [b"a", b"b", b"c"]
        with broker.consumer("t", group="g") as consumer:
            assert [bytes(record.value or b"") for record in consumer.take(1, PATIENT)] == [b"c"]
    with pytest.raises(Exception, match=r"is in ZooKeeper: set zookeeper.connect"):
        BarnabasBroker(data=tmp_path).start()


def test_lost_zookeeper_is_made_again_from_a_backup_with_topics_settings_offsets_and_records(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    lost, empty = new_chroot(zookeeper.address), new_chroot(zookeeper.address)
    file, data = tmp_path / "shop.backup", tmp_path / "data"

    def call(*arguments: object, code: int = 0) -> str:
        called = CliRunner().invoke(app, ["cluster", *map(str, arguments)])
        assert called.exit_code == code, called.output
        return called.output

    with broker_on(lost, data) as broker:
        broker.create_topic("t", 2, configs={"retention.ms": "123456"})
        broker.produce("t", "a", "b")
        with broker.consumer("t", group="g") as consumer:
            consumer.take(2, PATIENT)
            consumer.commit()
        cluster_id = broker.admin().cluster().cluster_id
        assert "Wrote 2 topics" in call("backup", file, "--zookeeper", lost)  # with the groups' offsets
        kept = data / "barnabas-metadata-backup"
        eventually(lambda: kept.read_text().index(znodes.topic("t")))
    with pytest.raises(Exception, match="barnabas cluster restore"):
        broker_on(empty, data).start()
    assert "Restored 2 topics" in call("restore", file, data, "--zookeeper", empty)
    assert "already" in call("restore", file, "--zookeeper", empty, code=1)
    with broker_on(empty, data) as broker:
        assert broker.admin().cluster().cluster_id == cluster_id
        broker.produce("t", "c")
        assert values(broker, "t", 3) == [b"a", b"b", b"c"]
        with broker.consumer("t", group="g") as consumer:
            assert [bytes(record.value or b"") for record in consumer.take(1, PATIENT)] == [b"c"]
        configs = look(empty, lambda store: store.get(znodes.topic_config("t")))
        assert znodes.decode_config(configs.data) == {"retention.ms": "123456"}


def test_broker_stops_while_zookeeper_stands_still(own_zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    broker = broker_on(new_chroot(own_zookeeper.address), tmp_path, timeout_ms=600_000).start()
    broker.create_topic("t")
    own_zookeeper.pause()
    stopping = threading.Thread(target=broker.stop, daemon=True)
    stopping.start()
    stopping.join(PATIENT)
    assert not stopping.is_alive()
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_topic_too_large_for_zookeeper_is_refused_with_the_reason_and_leaves_nothing(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    address = new_chroot(zookeeper.address)
    with broker_on(address, tmp_path) as broker:
        with pytest.raises(Exception, match=r"ZooKeeper takes 1000000 in one"):
            broker.create_topic("large", 10_000)
        assert broker.admin().topics() == []
        assert look(address, lambda store: store.children(znodes.TOPICS)) == []


def test_killed_broker_waits_for_the_end_of_its_earlier_session_and_starts(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    address = new_chroot(zookeeper.address)
    with broker_on(address, tmp_path, mode="process", timeout_ms=SESSION_MS) as broker:
        broker.create_topic("t")
        broker.produce("t", "before")
        before = look(address, lambda store: store.get(znodes.broker(1)))
        broker.kill()
        broker.start()
        after = look(address, lambda store: store.get(znodes.broker(1)))
        assert after.created > before.created
        assert json.loads(after.data)["previous_epoch"] == -1
        assert values(broker, "t", 1) == [b"before"]


def test_second_broker_of_one_id_is_refused(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    address = new_chroot(zookeeper.address)
    with (
        broker_on(address, tmp_path / "first", timeout_ms=SESSION_MS) as first,
        pytest.raises(Exception, match=r"/brokers/ids/1 belongs to another session"),
    ):
        first.create_topic("t")
        broker_on(address, tmp_path / "second", timeout_ms=SESSION_MS).start()


def test_a_broker_joins_a_cluster_that_another_one_has_begun(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    address = new_chroot(zookeeper.address)
    second = BarnabasBroker(
        {"zookeeper.connect": str(address), "node.id": "2"}, data=tmp_path / "2", mode="process"
    )
    with broker_on(address, tmp_path / "1") as first:
        first.create_topic("alone", 1)
        with second:
            eventually(lambda: first.admin().create_topic("shared", 1, replication_factor=2))
            first.produce("shared", "a")
            assert values(second, "shared", 1) == [b"a"]
            assert values(second, "alone", 0) == []
            assert look(address, lambda store: store.children(znodes.BROKER_IDS)) == ["1", "2"]


def test_two_clusters_in_one_zookeeper_do_not_meet(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    one, other = new_chroot(zookeeper.address), new_chroot(zookeeper.address)
    with broker_on(one, tmp_path / "1") as first, broker_on(other, tmp_path / "2") as second:
        first.create_topic("of-the-first")
        second.create_topic("of-the-second")
        assert first.admin().topics() == ["of-the-first"]
        assert second.admin().topics() == ["of-the-second"]
        assert first.admin().cluster().cluster_id != second.admin().cluster().cluster_id
        assert len(first.admin().cluster().nodes) == 1
