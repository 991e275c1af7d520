"""A broker and a real ZooKeeper that trust only each other: TLS, creator-only nodes,
rules during an outage.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import ACL, ANYONE_ID_UNSAFE, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, Permissions
from tests import certificates
from tests.certificates import Certificates
from tests.integration.acl_broker import AclBroker
from tests.integration.conftest import Wire
from tests.zookeeper import PATIENT, new_chroot, until_true

from barnabas.base.environment.environment import Environment
from barnabas.base.errors import ConfigError, ErrorCode
from barnabas.base.tls.certificates import Authority
from barnabas.broker.config import BrokerConfig
from barnabas.broker.metadata.opening import check_store, open_store, prepare
from barnabas.broker.metadata.store import Create, NotAllowedError
from barnabas.broker.metadata.zookeeper.address import parse_address
from barnabas.broker.metadata.zookeeper.server import ZooKeeperServer
from barnabas.broker.metadata.zookeeper.store import ZooKeeperStore
from barnabas.kafka.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(pem: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """Start a ZooKeeper that requires certificates of its clients."""
    folder = tmp_path_factory.mktemp("zookeeper")
    server = ZooKeeperServer(folder, fsync=False, tls=pem.server, client_authority=pem.authority)
    with server.start(PATIENT * 4):
        yield server


def settings_of(server: ZooKeeperServer, pem: Certificates, **more: str) -> dict[str, str]:
    return {
        "metadata.store": "zookeeper",
        "zookeeper.connect": str(new_chroot(server.tls_address)),
        "zookeeper.connection.timeout.ms": "120000",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": str(pem.authority),
        "zookeeper.ssl.keystore.location": str(pem.client),
        **more,
    }


def test_rules_hold_over_tls_while_zookeeper_is_away_and_its_nodes_are_the_brokers_alone(
    pem: Certificates, tmp_path: Path
) -> None:
    zookeeper = ZooKeeperServer(tmp_path / "zookeeper", fsync=False, tls=pem.server)
    with zookeeper.start(PATIENT * 4):
        settings = settings_of(
            zookeeper, pem, **{"zookeeper.set.acl": "true", "zookeeper.digest": "broker:of-the-brokers"}
        )
        with AclBroker(tmp_path / "data", **settings, **{"offsets.topic.replication.factor": "1"}) as broker:
            broker.add("alice")
            admin, alice = Wire(broker.open_address), broker.connect("alice")
            topics = [
                CreatableTopic(name=name, num_partitions=1, replication_factor=1)
                for name in ("mine", "theirs")
            ]
            assert [each.error_code for each in admin(CreateTopicsRequest(topics=topics)).topics] == [0, 0]
            rule = AclCreation(
                resource_type=2,
                resource_name="mine",
                principal="User:alice",
                host="*",
                operation=3,
                permission_type=3,
            )
            assert admin(CreateAclsRequest(creations=[rule])).results[0].error_code == 0
            expected = [0, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
            assert [_ask(alice, name) for name in ("mine", "theirs")] == expected
            _look_around(zookeeper.address, settings["zookeeper.connect"].partition("/")[2])
            zookeeper.kill()
            assert [_ask(alice, name) for name in ("mine", "theirs")] == expected
            late = broker.connect("alice")  # logins go on, by the passwords known last
            assert [_ask(late, name) for name in ("mine", "theirs")] == expected
            for wire in (admin, alice, late):
                wire.close()
            zookeeper.start(PATIENT * 4)


def _ask(wire: Wire, topic: str) -> int:
    """Return the error of a request that needs DESCRIBE on a topic."""
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
    code: int = wire(request).topics[0].partitions[0].error_code
    return code


def _look_around(server: str, chroot: str) -> None:
    """Check what another client can read on ZooKeeper's other port."""
    client = KazooClient(server, timeout=PATIENT)
    client.start(PATIENT)
    try:
        with pytest.raises(NoAuthError):
            client.get(f"/{chroot}/config/users/alice")
        for path in ("kafka-acl/Topic/mine", "brokers/topics/mine"):
            with pytest.raises(NoAuthError):
                client.set(f"/{chroot}/{path}", b"{}")
        with pytest.raises(NoAuthError):
            client.create(f"/{chroot}/kafka-acl/Topic/theirs", b"{}")
        with pytest.raises(NoAuthError):
            client.create(f"/{chroot}/config/users/mallory", b"{}")
        with pytest.raises(NoAuthError):
            client.set_acls(f"/{chroot}/config/users/alice", OPEN_ACL_UNSAFE)
    finally:
        client.stop()
        client.close()


def test_a_large_answer_comes_whole_over_tls(server: ZooKeeperServer, pem: Certificates) -> None:
    """The answer spans many TLS records, and ends inside one that also has the next answer."""

    async def scenario() -> None:
        store = await open_store(BrokerConfig.from_text(settings_of(server, pem)), Environment.of_system())
        try:
            data = bytes(range(256)) * 3000
            await store.multi([Create("/large", data), Create("/small", b"s")])
            found = await store.read(["/large", "/small"] * 3)
            assert [node and node.data for node in found] == [data, b"s"] * 3
            both = await asyncio.gather(*(store.get("/large" if n % 3 else "/small") for n in range(20)))
            assert [len(node.data) for node in both] == [len(data) if n % 3 else 1 for n in range(20)]
        finally:
            await store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("host", "trust", "reason"),
    [
        ("127.0.0.1", "authority", None),
        ("127.0.0.1", "stranger", "certificate"),
        ("zk.example.org", "authority", "IP address mismatch"),
    ],
    ids=["trusted", "of another authority", "for another name"],
)
@pytest.mark.parametrize("checks_name", [True, False])
def test_only_a_zookeeper_that_can_be_trusted_is_spoken_to(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    host: str,
    trust: str,
    reason: str | None,
    checks_name: bool,
) -> None:
    authority, stranger = (Authority.create(name, datetime.now(UTC)) for name in ("tests", "strangers"))
    (tmp_path / "authority").write_bytes(authority.certificate)
    (tmp_path / "stranger").write_bytes(stranger.certificate)
    issued = authority.issue("zookeeper", [host], datetime.now(UTC))
    (tmp_path / "server").write_bytes(issued.pem)
    settings = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": str(tmp_path / trust),
        "zookeeper.ssl.endpoint.identification.algorithm": "HTTPS" if checks_name else "",
    }

    async def scenario() -> None:
        spoken_to = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if await reader.read(1):
                spoken_to.set()
            writer.close()

        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(tmp_path / "server")
        listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        port = listening.sockets[0].getsockname()[1]
        settings["zookeeper.connect"] = f"127.0.0.1:{port}"
        config = BrokerConfig.from_text({**settings, "zookeeper.connection.timeout.ms": "120000"})
        opening = asyncio.ensure_future(open_store(config, Environment.of_system()))
        expected = reason if checks_name or trust == "stranger" else None
        try:
            if expected is None:
                await asyncio.wait_for(spoken_to.wait(), PATIENT)
            else:
                await until_true(lambda: "TLS with ZooKeeper at" in caplog.text)
                assert expected in caplog.text
                assert not spoken_to.is_set()
        finally:
            opening.cancel()
            await asyncio.wait([opening])
            listening.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"zookeeper.ssl.truststore.location": "x"}, "set zookeeper.ssl.client.enable=true, or remove"),
        ({"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.truststore.location": "x"}, "cannot be used"),
        ({"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.keystore.location": "x"}, "cannot be used"),
        ({"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.enabled.protocols": ""}, "name TLSv1.2"),
    ],
)
def test_what_cannot_be_honoured_stops_the_start(settings: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        check_store(BrokerConfig.from_text({"zookeeper.connect": "127.0.0.1:1", **settings}))


AUTH = [("digest", "broker:of-the-brokers")]


async def _stranger(address: str, path: str) -> dict[str, bool]:
    """Return what a client without authentication can do to a node and its parent."""
    client = KazooClient(address, timeout=PATIENT)
    client.start(PATIENT)
    found = {}
    try:
        for name, attempt in {
            "delete": lambda: client.delete(path),
            "set": lambda: client.set(path, b"7"),
            "acl": lambda: client.set_acls(path, OPEN_ACL_UNSAFE),
            "acl of parent": lambda: client.set_acls(path.rpartition("/")[0] or "/", OPEN_ACL_UNSAFE),
        }.items():
            try:
                attempt()
                found[name] = True
            except NoAuthError:
                found[name] = False
    finally:
        client.stop()
        client.close()
    return found


@pytest.mark.parametrize("chroot", ["", "/a/b"])
def test_a_cluster_that_was_open_is_closed_with_all_that_is_above_and_below(
    tmp_path: Path, chroot: str
) -> None:
    with ZooKeeperServer(tmp_path / "zookeeper", fsync=False).start(PATIENT * 4) as zookeeper:
        address = parse_address(zookeeper.address + chroot)

        async def scenario() -> None:
            plain = await ZooKeeperStore.open(address, session_timeout=PATIENT)
            await prepare(plain, Random(1))
            await plain.create("/config/users/alice", b"secret")
            await plain.close()
            store = await ZooKeeperStore.open(address, session_timeout=PATIENT, set_acl=True, auth=AUTH)
            try:
                assert await store.is_root_open()
                assert await store.close_off(parents=True) > 20
                assert not await store.is_root_open()
                assert await store.close_off(parents=True) == 0
                await store.set("/controller_epoch", b"8")
                await store.create("/late")
            finally:
                await store.close()

        asyncio.run(scenario())
        for path in ("/controller_epoch", "/late", "/brokers/ids"):
            found = asyncio.run(_stranger(zookeeper.address, chroot + path))
            assert not any(found.values()), found
        client = KazooClient(zookeeper.address, timeout=PATIENT)
        client.start(PATIENT)
        try:
            with pytest.raises(NoAuthError):
                client.get(f"{chroot}/config/users/alice")
            assert client.get(f"{chroot}/controller_epoch")[0] == b"8"  # what is no secret can be read
        finally:
            client.stop()
            client.close()


def test_a_node_that_somebody_else_has_taken_is_named(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path / "zookeeper", fsync=False).start(PATIENT * 4) as zookeeper:

        async def scenario() -> None:
            taker = await ZooKeeperStore.open(
                parse_address(zookeeper.address + "/a"), session_timeout=PATIENT, auth=[("digest", "x:y")]
            )
            await taker.close()
            client = KazooClient(zookeeper.address, timeout=PATIENT, auth_data=[("digest", "x:y")])
            await asyncio.to_thread(client.start, PATIENT)
            mine = ACL(Permissions.ALL & ~Permissions.ADMIN, ANYONE_ID_UNSAFE), *CREATOR_ALL_ACL
            await asyncio.to_thread(client.set_acls, "/a", mine)
            await asyncio.to_thread(client.stop)
            client.close()
            store = await ZooKeeperStore.open(
                parse_address(zookeeper.address + "/a"), session_timeout=PATIENT, set_acl=True, auth=AUTH
            )
            try:
                with pytest.raises(NotAllowedError, match="/a"):
                    await store.close_off(parents=False)
            finally:
                await store.close()

        asyncio.run(scenario())
