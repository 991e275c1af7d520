"""Users and rules of a single broker whose metadata is damaged, repaired, or moved to ZooKeeper."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.integration.acl_broker import PASSWORD, AclBroker
from tests.integration.acl_walk import ANY_RULE
from tests.integration.conftest import Wire
from tests.zookeeper import new_chroot

from barnabas.base.errors import ErrorCode
from barnabas.broker.metadata.zookeeper.server import ZooKeeperServer
from barnabas.cli.app import app
from barnabas.kafka.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from barnabas.kafka.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.kafka.protocol.messages.delete_acls import DeleteAclsRequest
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.kafka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.kafka.security.acls import Operation, Permission, ResourceType

EMBEDDED = {"metadata.store": "embedded"}
#: alice may read orders, carol logs in and may not, bob's login was taken away last
EXPECTED = {
    "alice": ErrorCode.NONE,
    "bob": ErrorCode.SASL_AUTHENTICATION_FAILED,
    "carol": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
}


def rule(user: str) -> AclCreation:
    return AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name="orders",
        resource_pattern_type=3,
        principal=f"User:{user}",
        host="*",
        operation=Operation.READ,
        permission_type=Permission.ALLOW,
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return the log directory of a stopped broker whose last change removed a user's password."""
    folder = tmp_path / "data"
    with AclBroker(folder, **EMBEDDED) as broker, contextlib.closing(Wire(broker.open_address)) as admin:
        topic = CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
        assert admin(CreateTopicsRequest(topics=[topic], timeout_ms=10_000)).topics[0].error_code == 0
        broker.add(*EXPECTED)
        admin(CreateAclsRequest(creations=[rule("carol")]))
        admin(DeleteAclsRequest(filters=[ANY_RULE]))
        admin(CreateAclsRequest(creations=[rule("alice"), rule("bob")]))
        gone = ScramCredentialDeletion(name="bob", mechanism=1)
        assert admin(AlterUserScramCredentialsRequest(deletions=[gone])).results[0].error_code == 0
    return folder


def served(broker: AclBroker) -> dict[str, int]:
    """Return the broker's answer to each user who requests the topic."""
    found = {}
    for user in EXPECTED:
        with contextlib.closing(Wire(broker.address)) as wire:
            wire(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            login = wire(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{PASSWORD}".encode()), 2)
            asked = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
            found[user] = login.error_code or wire(asked).topics[0].error_code
    return found


def run(*arguments: object, code: int = 0) -> str:
    called = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert called.exit_code == code, called.output
    return called.output


def flip_last_change(journal: Path) -> None:
    """Damage the record of the last change."""
    content = bytearray(journal.read_bytes())
    content[content.rindex(b"bob") + 1] ^= 1
    journal.write_bytes(content)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("harm", [flip_last_change, Path.unlink], ids=["damaged", "gone"])
def test_login_that_was_taken_away_stays_so_after_a_copy_of_the_metadata_was_repaired(
    data: Path, number: int, harm: Callable[[Path], None]
) -> None:
    harm(data / f"metadata-{number}.journal")
    assert f"metadata-{number}.journal" in run("log", "check", data, code=1)
    run("log", "repair", data)
    with AclBroker(data, **EMBEDDED) as broker:
        assert served(broker) == EXPECTED
    run("log", "check", data)


def test_repair_of_both_copies_says_that_logins_may_be_valid_again(data: Path) -> None:
    """The damaged part has the change that removed the last login, so no tool can restore it."""
    for number in 1, 2:
        flip_last_change(data / f"metadata-{number}.journal")
    with pytest.raises(Exception, match="barnabas log repair"), AclBroker(data, **EMBEDDED):
        pass
    assert "a login, rule or token that they removed is valid again" in run("log", "repair", data)
    with AclBroker(data, **EMBEDDED) as broker:
        assert served(broker) == {**EXPECTED, "bob": ErrorCode.NONE}


def test_logins_and_rules_move_to_zookeeper(data: Path, zookeeper: ZooKeeperServer) -> None:
    address = new_chroot(zookeeper.address)
    run("cluster", "import", data, "--zookeeper", address)
    settings = {
        "metadata.store": "zookeeper",
        "zookeeper.connect": str(address),
        "offsets.topic.replication.factor": "1",
    }
    with AclBroker(data, **settings) as broker:
        assert served(broker) == EXPECTED
