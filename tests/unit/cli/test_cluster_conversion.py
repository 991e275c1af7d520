"""A lone broker's folder becomes that of several brokers, and back, even if it is interrupted."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.ports import held_port

from barnabas.base.environment.environment import Environment
from barnabas.base.environment.randomness import system_random
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.embedded import EmbeddedStore
from barnabas.broker.metadata.image import Admission
from barnabas.broker.metadata.opening import prepare
from barnabas.broker.metadata.store import Create, NoNodeError, Set, StoreUnavailableError
from barnabas.broker.storage.checkpoints import decode_properties
from barnabas.cli.app import app
from barnabas.cli.cluster import commands, conversion
from barnabas.cli.cluster.folder import ClusterFolder, ClusterFolderError, Layout

SYSTEM = Environment.of_system()
#: of a lone broker with two log directories; a topic may be named as a folder of a broker
LONE = {
    "one/meta.properties": "node.id=7\n",
    "one/metadata-1.journal": "journal",
    "one/metadata.lock": "",
    "one/orders-0/00.log": "records",
    "one/broker-0/partition.metadata": "of the topic broker",
    "one/metadata-1.journal-0/00.log": "records of the topic metadata-1.journal",
    "two/meta.properties": "node.id=7\n",
    "two/metadata-2.journal": "journal",
    "two/orders-1/00.log": "more records",
}
MEMBER = {
    "one/metadata-1.journal": "journal",
    "one/metadata.lock": "",
    "one/broker-7/meta.properties": "node.id=7\n",
    "one/broker-7/orders-0/00.log": "records",
    "one/broker-7/broker-0/partition.metadata": "of the topic broker",
    "one/broker-7/metadata-1.journal-0/00.log": "records of the topic metadata-1.journal",
    "two/metadata-2.journal": "journal",
    "two/broker-7/meta.properties": "node.id=7\n",
    "two/broker-7/orders-1/00.log": "more records",
}


class Interrupted(Exception):
    """The process ends here."""


@pytest.fixture
def folder(tmp_path):
    for path, content in LONE.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content)
    return ClusterFolder(tmp_path / "one", tmp_path / "two")


@pytest.fixture
def interrupted(monkeypatch):
    """``interrupted(n, function, *args)``: call the function until its rename number `n`.
    Return whether it got that far.
    """

    def call(at, function, *arguments):
        left = iter(range(at))
        rename = Path.rename

        def count(path, target):
            if next(left, None) is None:
                raise Interrupted
            return rename(path, target)

        with monkeypatch.context() as patched:
            patched.setattr(Path, "rename", count)
            try:
                function(*arguments)
            except Interrupted:
                return True
        return False

    return call


def files(folder):
    root = folder.path.parent
    return {
        str(path.relative_to(root)): path.read_text()
        for directory in folder.log_dirs
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_a_lone_broker_becomes_a_member_and_is_lone_again(folder):
    assert conversion.lone_broker_of(folder, 1) == 7
    conversion.make_member(folder, 7)
    assert files(folder) == MEMBER
    folder.store_layout(Layout({7: "127.0.0.1:9092"}, is_embedded=True))
    assert conversion.lone_broker_of(folder, 1) is None
    conversion.make_lone(folder, 7, [])
    assert files(folder) == LONE


def test_a_conversion_that_is_interrupted_at_any_rename_goes_on(folder, interrupted):
    renames = 0
    while interrupted(renames, conversion.make_member, folder, 7):
        assert conversion.lone_broker_of(folder, 1) == 7, f"it is found after {renames} renames"
        conversion.make_member(folder, 7)
        assert files(folder) == MEMBER
        conversion.make_lone(folder, 7, [])
        assert files(folder) == LONE
        renames += 1
    assert renames > 6
    for at in range(renames):
        interrupted(at, conversion.make_lone, folder, 7, [])
        conversion.make_lone(folder, 7, [])
        assert files(folder) == LONE
        conversion.make_member(folder, 7)


def test_a_member_that_becomes_lone_leaves_the_cluster_and_its_lock_behind(folder):
    conversion.make_member(folder, 7)
    member = folder.data_of(7)
    (member / "meta.properties").write_text("node.id=7\nmetadata.store=zookeeper\n")
    (member / ".lock").touch()
    conversion.make_lone(folder, 7, [])
    assert decode_properties((folder.path / "meta.properties").read_bytes()) == {"node.id": "7"}
    assert not (folder.path / ".lock").exists()


def test_a_broker_does_not_become_lone_while_a_log_directory_is_not_mounted(folder):
    conversion.make_member(folder, 7)
    *_, last = folder.log_dirs
    shutil.move(folder.log_dir_of(last, 7), folder.path.parent / "unmounted")
    with pytest.raises(ClusterFolderError, match=r"has no files of broker 7: mount its disk"):
        conversion.make_lone(folder, 7, [])
    shutil.move(folder.path.parent / "unmounted", folder.log_dir_of(last, 7))
    conversion.make_lone(folder, 7, [])
    assert files(folder) == LONE


def test_folders_of_brokers_that_leave_are_kept_under_another_name(folder):
    for _ in range(2):
        (folder.data_of(8) / "orders-0").mkdir(parents=True)
        conversion.retire(folder, [8, 9])
    names = {path.name for path in folder.path.iterdir()}
    assert {"broker-8.old", "broker-8.old1"} <= names and "broker-8" not in names
    assert "broker-0" in names, "it is a partition's"


def test_a_folder_in_the_way_is_told_and_nothing_is_lost(folder):
    (folder.data_of(7) / "orders-0").mkdir(parents=True)
    with pytest.raises(ClusterFolderError, match=r"broker-7 is in the way of the files of broker 7"):
        conversion.make_member(folder, 7)
    assert sorted(files(folder).values()) == sorted(LONE.values())


def test_a_damaged_file_leaves_the_id_to_the_settings(folder):
    (folder.path / "meta.properties").write_bytes(b"node.id=\xff\n")
    assert conversion.lone_broker_of(folder, 3) == 3
    for directory in folder.log_dirs:
        (directory / "meta.properties").unlink()
    assert conversion.lone_broker_of(folder, 3) == 3, "the metadata is there"


def test_an_empty_folder_has_no_lone_broker_and_may_get_a_new_store(tmp_path):
    folder = ClusterFolder(tmp_path / "nowhere")
    assert conversion.lone_broker_of(folder, 1) is None
    conversion.check_new(folder)


def test_no_empty_store_is_made_beside_data(folder):
    with pytest.raises(StoreUnavailableError, match=f"cluster restore {folder.path} --data {folder.path}"):
        conversion.check_new(folder)
    conversion.make_member(folder, 7)
    with pytest.raises(StoreUnavailableError, match=f"cluster restore {folder.data_of(7)} --data"):
        conversion.check_new(folder)
    (folder.path / "metadata-1.journal.imported").touch()
    with pytest.raises(StoreUnavailableError, match="was moved to ZooKeeper"):
        conversion.check_new(folder)


def in_store(folder, work):
    async def scenario():
        store = await EmbeddedStore.open(SYSTEM, *folder.log_dirs)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(scenario())


def test_only_brokers_without_partitions_leave_the_metadata(tmp_path):
    folder = ClusterFolder(tmp_path)
    topic = znodes.topic("orders")
    admitted = {broker: Admission(broker + 3) for broker in (1, 2, 3)}

    async def fill(store):
        await prepare(store, system_random())
        assignment = znodes.Assignment(bytes(16), [(1, 2), (2, 3), (1, 3)])
        await store.multi(
            [
                Create(topic, znodes.encode_topic(assignment)),
                Set(znodes.BROKER_EPOCHS, znodes.encode_broker_epochs(admitted)),
                Create(f"{znodes.DELETED_TOPICS}/a", znodes.encode_deleted_topic([1, 3])),
                Create(f"{znodes.DELETED_TOPICS}/b", znodes.encode_deleted_topic([2, 3])),
            ]
        )

    async def drain(store):
        moved = znodes.Assignment(bytes(16), [(1,), (1,), (1,)])
        await store.multi([Set(topic, znodes.encode_topic(moved))])

    async def left(store):
        epochs = znodes.decode_broker_epochs((await store.get(znodes.BROKER_EPOCHS)).data)
        deleted = znodes.decode_deleted_topic((await store.get(f"{znodes.DELETED_TOPICS}/a")).data)
        with pytest.raises(NoNodeError):
            await store.get(f"{znodes.DELETED_TOPICS}/b")
        return epochs, deleted

    in_store(folder, fill)
    with pytest.raises(
        ClusterFolderError,
        match=r"broker 2 holds 2 partitions: .* plan --brokers 1 --replication-factor 1 \|",
    ):
        conversion.require_drained(folder, [3, 2], [1])
    with pytest.raises(ClusterFolderError, match=r"broker 3 holds 2 partitions: .* plan --brokers 1,2 \|"):
        conversion.require_drained(folder, [3], [1, 2])
    in_store(folder, drain)
    conversion.require_drained(folder, [3, 2], [1])
    assert in_store(folder, left) == ({1: Admission(4)}, {1})


def test_an_import_says_at_once_that_no_zookeeper_answers(tmp_path):
    (tmp_path / "metadata-1.journal").write_bytes(b"")
    with held_port() as held:
        address = f"127.0.0.1:{held.getsockname()[1]}/c"
        called = CliRunner().invoke(app, ["cluster", "import", str(tmp_path), "--zookeeper", address])
    assert called.exit_code == 1
    assert "no ZooKeeper answers: 127.0.0.1:" in called.output


@pytest.mark.parametrize("is_shared", [False, True], ids=["lone", "several"])
def test_an_import_of_secured_data_says_what_its_start_needs(tmp_path, monkeypatch, is_shared):
    async def imported(folders, address):
        return "cluster-id"

    monkeypatch.setattr(commands, "_import", imported)
    folder = ClusterFolder(tmp_path)
    folder.secure.mkdir()
    (folder.secure / "admin.properties").touch()
    if is_shared:
        folder.store_layout(Layout({1: "127.0.0.1:9092"}, is_own_zookeeper=False, is_embedded=True))
    said = CliRunner().invoke(app, ["cluster", "import", str(tmp_path), "--zookeeper", "zk:2181/c"]).output
    if is_shared:
        assert f"`barnabas cluster start --data {tmp_path} --zookeeper zk:2181/c --secure`" in said
    else:
        assert "Start the broker with --secure --set zookeeper.connect=zk:2181/c\n" in said
        assert f"ssl.truststore.location={folder.secure}/ca.pem" in said
