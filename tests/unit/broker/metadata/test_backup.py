"""Backups of a cluster's metadata, clusters restored from them, and the backup that each broker keeps."""

from __future__ import annotations

import asyncio
import errno
from random import Random
from typing import Any

import pytest
from simulation.clocks import VirtualClock
from simulation.environment import simulated_environment
from simulation.faulty_disk import FaultyDisk
from simulation.memory_store import MemoryServer, MemoryStore
from simulation.virtual_time import run_virtual

from barnabas.base.environment.filesystem import exists
from barnabas.base.errors import ConfigError
from barnabas.broker.logins.delegation_tokens import DelegationToken
from barnabas.broker.metadata import acl_nodes, token_nodes, znodes
from barnabas.broker.metadata.backup import (
    FILE_NAME,
    Backup,
    BackupError,
    back_up,
    decode,
    encode,
    is_kept,
    read_backup,
    restore,
)
from barnabas.broker.metadata.backup_keeper import BackupKeeper
from barnabas.broker.metadata.image import BrokerEndpoint, BrokerImage, PartitionState
from barnabas.broker.metadata.loader import MetadataLoader
from barnabas.broker.metadata.opening import check_not_lost, prepare
from barnabas.broker.metadata.store import StoreUnavailableError
from barnabas.kafka.security.acls import AclEntry, Operation, Permission, ResourcePattern, ResourceType
from barnabas.kafka.security.principal import Principal

ID = b"t" * 16


async def create(store: Any, name: str, *replicas: tuple[int, ...], epoch: int = 7) -> None:
    await store.create(znodes.topic(name), znodes.encode_topic(znodes.Assignment(ID, replicas)))
    await store.create(znodes.partitions(name))
    for number, each in enumerate(replicas):
        state = znodes.encode_partition_state(PartitionState(each, each, each[0], epoch), 1)
        await store.create(znodes.partition(name, number))
        await store.create(znodes.partition_state(name, number), state)


async def cluster() -> MemoryStore:
    store = MemoryStore(MemoryServer())
    await prepare(store, Random(1))
    await create(store, "t", (1, 2, 3), (2, 3, 1))
    await store.create(znodes.topic_config("t"), znodes.encode_config({"retention.ms": "5"}))
    await store.create(znodes.user_config("anna"), znodes.encode_config({"SCRAM-SHA-256": "salt=é"}))
    rule = AclEntry("User:anna", Permission.ALLOW, Operation.READ)
    await store.create(acl_nodes.path(ResourcePattern(ResourceType.TOPIC, "t")), acl_nodes.encode([rule]))
    token = DelegationToken("t1", Principal("anna"), Principal("anna"), (), 1, 3, 2)
    await store.create(token_nodes.path("t1"), token_nodes.encode(token))
    await store.create(znodes.deleted_topic(b"d" * 16), znodes.encode_deleted_topic([2]))
    await store.set(znodes.FEATURES, znodes.encode_features({"group.version": 1}))
    await store.create(znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_id_block(1, 4000, 4999))
    live = BrokerImage(1, (BrokerEndpoint("PLAINTEXT", "a", 1),))
    await store.create(znodes.broker(1), znodes.encode_broker(live, 0), ephemeral=True)
    return store


def test_a_restored_cluster_has_all_that_was_decided_and_elects_by_the_logs() -> None:
    async def scenario() -> None:
        before = await cluster()
        backup = decode(b"".join(encode(await back_up(before, 5))))
        target = MemoryStore(MemoryServer())
        await restore(backup, target)
        old, new = MetadataLoader(before), MetadataLoader(target)
        await old.start()
        await new.start()
        assert new.image.cluster_id == old.image.cluster_id
        assert old.image.acls and old.image.delegation_tokens
        decided = (
            "topic_names",
            "topic_configs",
            "user_configs",
            "deleted_topics",
            "acls",
            "delegation_tokens",
        )
        for name in decided:
            assert getattr(new.image, name) == getattr(old.image, name)
        assert new.image.features.levels == {"group.version": 1}
        assert dict(new.image.brokers) == {}
        first = new.image.topics["t"].partitions[0]
        assert (first.replicas, first.isr, first.leader) == ((1, 2, 3), (), -1)
        assert first.last_known_elr == (1, 2, 3)
        assert first.leader_epoch > 100_000
        epoch = znodes.decode_controller_epoch((await target.get(znodes.CONTROLLER_EPOCH)).data)
        assert epoch > 0
        block = znodes.decode_producer_id_block((await target.get(znodes.PRODUCER_ID_BLOCK)).data)
        assert block[1] > 2**32
        again = MemoryStore(MemoryServer())
        await restore(await back_up(target, 6), again)
        later = MetadataLoader(again)
        await later.start()
        assert later.image.topics["t"].partitions[0].leader_epoch >= first.leader_epoch + 1000
        for loader in (old, new, later):
            await loader.stop()

    asyncio.run(scenario())


def test_a_cluster_that_lives_is_not_overwritten_and_an_empty_one_is() -> None:
    async def scenario() -> None:
        backup = await back_up(await cluster(), 5)
        with pytest.raises(StoreUnavailableError, match="already"):
            await restore(backup, await cluster())
        empty = MemoryStore(MemoryServer())
        await prepare(empty, Random(2))
        await restore(backup, empty)
        assert znodes.decode_cluster_id((await empty.get(znodes.CLUSTER_ID)).data) == backup.cluster_id
        with pytest.raises(StoreUnavailableError, match="no cluster"):
            await back_up(MemoryStore(MemoryServer()), 5)

    asyncio.run(scenario())


def test_a_damaged_file_is_refused() -> None:
    backup = Backup("c", 5, 1, {"/cluster/id": '{"version":"1","id":"c"}', "/feature": "{}"})
    data = b"".join(encode(backup))
    assert decode(data) == backup
    for place in range(0, len(data), 7):
        for damaged in (data[:place], data[:place] + b"#" + data[place + 1 :]):
            with pytest.raises(BackupError):
                decode(damaged)


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("/brokers/topics/t", True),
        ("/brokers/topics/t/partitions/0/state", False),
        ("/brokers/ids/1", False),
        ("/controller", False),
        ("/controller_epoch", True),
        ("/config/topics/t", True),
        ("/anything/else", True),
    ],
)
def test_who_leads_is_not_in_it(path: str, kept: bool) -> None:
    assert is_kept(path) is kept


def test_a_broker_keeps_a_backup_that_follows_changes_but_not_the_loss_of_all() -> None:
    async def scenario() -> None:
        server = MemoryServer()
        store = MemoryStore(server)
        cluster_id = await prepare(store, Random(1))
        disk = FaultyDisk()
        disk.make_directory("/a")
        environment = simulated_environment(filesystem=disk)
        pool = environment.blocking.pool("disk", 1)
        clock = VirtualClock(asyncio.get_running_loop())
        keeper = BackupKeeper(store, cluster_id, lambda: ["/a"], disk, pool, clock)
        await keeper.start()
        await asyncio.sleep(10)
        assert read_backup(disk, "/a").topics == []
        await create(store, "t", (1, 2))
        await asyncio.sleep(10)
        assert read_backup(disk, "/a").topics == ["t"]
        written = read_backup(disk, f"/a/{FILE_NAME}")
        state = znodes.encode_partition_state(PartitionState((1, 2), (1,), 1, 8), 1)
        await store.set(znodes.partition_state("t", 0), state)
        await asyncio.sleep(10)
        assert read_backup(disk, "/a") == written
        await store.delete(znodes.CLUSTER_ID)
        await store.create(znodes.topic("u"), znodes.encode_topic(znodes.Assignment(ID, [])))
        await asyncio.sleep(100)
        assert read_backup(disk, "/a") == written
        await store.create(znodes.CLUSTER_ID, znodes.encode_cluster_id("another"))
        await asyncio.sleep(100)
        assert read_backup(disk, "/a") == written
        await keeper.stop()

    run_virtual(scenario())


def test_a_full_disk_keeps_no_backup_from_the_other_and_has_its_own_once_there_is_space() -> None:
    async def scenario() -> None:
        store = MemoryStore(MemoryServer())
        cluster_id = await prepare(store, Random(1))
        disk = FaultyDisk()
        for folder in "/a", "/b":
            disk.make_directory(folder)
        pool = simulated_environment(filesystem=disk).blocking.pool("disk", 1)
        clock = VirtualClock(asyncio.get_running_loop())
        keeper = BackupKeeper(store, cluster_id, lambda: ["/a", "/b"], disk, pool, clock)
        await keeper.start()
        await asyncio.sleep(10)
        full = OSError(errno.ENOSPC, "the disk is full")
        disk.refuse = lambda operation, path: full if operation == "write" and path.startswith("/a") else None
        await create(store, "t", (1, 2))
        await asyncio.sleep(10)
        assert (read_backup(disk, "/a").topics, read_backup(disk, "/b").topics) == ([], ["t"])
        disk.refuse = None
        await asyncio.sleep(100)
        assert read_backup(disk, "/a").topics == ["t"]
        await keeper.stop()

    run_virtual(scenario())


def test_a_broker_of_a_cluster_begins_no_other() -> None:
    async def scenario() -> None:
        disk = FaultyDisk()
        disk.make_directory("/a")
        store = MemoryStore(MemoryServer())
        await check_not_lost(store, disk, ["/a", "/b"])
        disk.open("/a/meta.properties", create=True).close()
        assert exists(disk, "/a/meta.properties")
        with pytest.raises(ConfigError, match="barnabas cluster restore"):
            await check_not_lost(store, disk, ["/a", "/b"])

    asyncio.run(scenario())
