"""The folder of a broker whose metadata is in ZooKeeper: all commands distinguish it from that of a single
broker.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.integration.test_zookeeper import broker_on, values
from tests.zookeeper import PATIENT, new_chroot

from barnabas.broker.metadata.zookeeper.address import ZooKeeperAddress
from barnabas.broker.metadata.zookeeper.server import ZooKeeperServer
from barnabas.cli.app import app
from barnabas.testing import BarnabasBroker

VALUES = [b"a", b"b"]


@pytest.fixture
def address(zookeeper: ZooKeeperServer, tmp_path: Path) -> ZooKeeperAddress:
    """Run a broker with ZooKeeper, write some records, and stop it. Return the address of its ZooKeeper."""
    where = new_chroot(zookeeper.address)
    with broker_on(where, tmp_path) as broker:
        broker.create_topic("t")
        broker.produce("t", *VALUES)
        deadline = time.monotonic() + PATIENT
        while not (tmp_path / "barnabas-metadata-backup").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
    return where


def command(*arguments: object) -> tuple[int, str]:
    outcome = CliRunner().invoke(app, list(map(str, arguments)), prog_name="barnabas")
    return outcome.exit_code, outcome.output


def without_mark(data: Path) -> None:
    """Change `meta.properties` to its state before the broker's first start in the cluster."""
    properties = (data / "meta.properties").read_text()
    assert "metadata.store=zookeeper\n" in properties
    (data / "meta.properties").write_text(properties.replace("metadata.store=zookeeper\n", ""))


@pytest.mark.parametrize("has_mark", [True, False])
def test_a_store_in_the_folder_of_a_clusters_broker_is_neither_used_nor_imported(
    address: ZooKeeperAddress, tmp_path: Path, has_mark: bool
) -> None:
    if not has_mark:
        without_mark(tmp_path)
    for name in ("metadata-1.journal", "metadata-2.journal"):
        (tmp_path / name).write_bytes(b"made up")
    code, output = command("cluster", "import", tmp_path, "--zookeeper", address)
    assert code == 1
    assert "belongs to a broker of a cluster" in output
    with pytest.raises(Exception, match="remove") as refused:
        broker_on(address, tmp_path).start()
    assert "cluster import" not in str(refused.value)
    if has_mark:
        code, output = command("log", "check", tmp_path)
        assert code == 1
        assert "a broker of a cluster has no such file" in output
        assert command("log", "repair", tmp_path)[0] == 0
    else:
        for journal in tmp_path.glob("metadata-*.journal"):
            journal.unlink()
    assert not list(tmp_path.glob("*.journal"))
    with broker_on(address, tmp_path) as broker:
        assert values(broker, "t", 2) == VALUES


@pytest.mark.parametrize("has_mark", [True, False])
def test_a_whole_folder_is_found_whole_with_or_without_its_mark(
    address: ZooKeeperAddress, tmp_path: Path, has_mark: bool
) -> None:
    if not has_mark:
        without_mark(tmp_path)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert command("log", "check", tmp_path)[0] == 0
    assert command("log", "repair", tmp_path) == (0, "nothing to repair\n")
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


def test_a_damaged_meta_properties_is_made_again(address: ZooKeeperAddress, tmp_path: Path) -> None:
    file = tmp_path / "meta.properties"
    before = dict(line.split("=") for line in file.read_text().splitlines())
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(Exception, match="barnabas log repair"):
        broker_on(address, tmp_path).start()
    assert command("log", "check", tmp_path)[0] == 1
    assert command("log", "repair", tmp_path)[0] == 0
    with broker_on(address, tmp_path) as broker:
        assert values(broker, "t", 2) == VALUES
    after = dict(line.split("=") for line in file.read_text().splitlines())
    assert before | {"directory.id": after["directory.id"]} == after


def test_a_folder_is_not_started_alone_and_its_advice_does_not_make_metadata_up(
    address: ZooKeeperAddress, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match=r"is in ZooKeeper: set zookeeper\.connect") as refused:
        BarnabasBroker(data=tmp_path).start()
    assert "log repair" not in str(refused.value)


def test_a_lone_broker_has_nobody_to_copy_a_discarded_replica_from(tmp_path: Path) -> None:
    with BarnabasBroker(data=tmp_path) as broker:
        broker.create_topic("t")
        broker.produce("t", *VALUES)
        assert "a broker runs on" in command("log", "discard", "t-0", tmp_path)[1]
    code, output = command("log", "discard", "t-0", tmp_path)
    assert code == 1
    assert "no other broker has t-0" in output
    assert list((tmp_path / "t-0").glob("*.log"))


@pytest.mark.parametrize(
    ("partition", "why"), [("t", "TOPIC-PARTITION"), ("u-0", "u-0 is not in"), ("t-7", "t-7 is not in")]
)
def test_a_replica_that_is_not_there_cannot_be_discarded(
    address: ZooKeeperAddress, tmp_path: Path, partition: str, why: str
) -> None:
    code, output = command("log", "discard", partition, tmp_path)
    assert code != 0
    assert why in output
    assert not list(tmp_path.glob("damaged.*"))


def test_a_lone_broker_that_a_clusters_backup_is_restored_to_is_one(
    address: ZooKeeperAddress, tmp_path: Path
) -> None:
    backup = tmp_path / "barnabas-metadata-backup"
    assert command("cluster", "restore", backup, "--data", tmp_path)[0] == 0
    assert "metadata.store" not in (tmp_path / "meta.properties").read_text()
    code, output = command("log", "check", tmp_path)
    assert code == 0, output
    with BarnabasBroker(data=tmp_path) as broker:
        assert values(broker, "t", 2) == VALUES
