"""Users and rules that are deleted while one broker cannot reach ZooKeeper."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.acl_broker import add_users, log_in, login_error
from tests.integration.acl_walk import ANY_RULE
from tests.integration.cluster.test_acls import within
from tests.integration.cluster.test_cut_off_from_zookeeper import Cuts, cuts  # noqa: F401
from tests.integration.conftest import Wire
from tests.ports import held_port

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from barnabas.kafka.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.kafka.protocol.messages.delete_acls import DeleteAclsRequest
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.kafka.security.acls import Operation, Permission, ResourceType
from barnabas.testing import BarnabasCluster
from barnabas.testing.running_broker import BrokerSettings


class GuardedCluster(BarnabasCluster):
    """Broker processes, each with a listener for users."""

    def __init__(self, ports: dict[int, int], data: Path) -> None:
        settings = {"zookeeper.session.timeout.ms": "8000"}
        super().__init__(2, settings, store="zookeeper", data=data)
        self._user_ports = ports

    def _settings_of(self, broker: int) -> BrokerSettings:
        node = super()._settings_of(broker)
        node.settings.update(
            {
                "listeners": f"{node.settings['listeners']},SASL_PLAINTEXT://127.0.0.1:{self._user_ports[broker]}",
                "sasl.enabled.mechanisms": "PLAIN",
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS",
            }
        )
        return node


@pytest.fixture
def ports() -> Iterator[dict[int, int]]:
    with contextlib.ExitStack() as held:
        sockets = {broker: held.enter_context(held_port()) for broker in (1, 2)}
        yield {broker: each.getsockname()[1] for broker, each in sockets.items()}


def allow(admin: Wire, user: str) -> None:
    rule = AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name="orders",
        resource_pattern_type=3,
        principal=f"User:{user}",
        host="*",
        operation=Operation.READ,
        permission_type=Permission.ALLOW,
    )
    assert admin(CreateAclsRequest(creations=[rule])).results[0].error_code == 0


def described(wire: Wire) -> int:
    code: int = wire(MetadataRequest(topics=[MetadataRequestTopic(name="orders")])).topics[0].error_code
    return code


def known_to(wire: Wire) -> set[int]:
    return {broker.node_id for broker in wire(MetadataRequest(topics=[])).brokers}


def test_broker_takes_away_what_was_taken_while_it_was_cut_off(
    cuts: Cuts,  # noqa: F811
    ports: dict[int, int],
    tmp_path: Path,
) -> None:
    with GuardedCluster(ports, tmp_path) as cluster, contextlib.ExitStack() as closed:
        cluster.create_topic("orders")

        def connect(broker: int, user: str | None = None) -> Wire:
            address = cluster.address_of(broker) if user is None else f"127.0.0.1:{ports[broker]}"
            wire = log_in(address, user) if user else Wire(address)
            closed.callback(wire.close)
            return wire

        def is_known(user: str) -> bool:
            return login_error(f"127.0.0.1:{ports[2]}", user) == ErrorCode.NONE

        admin = connect(1)
        add_users(admin, "alice", "bob")
        allow(admin, "alice")
        allow(admin, "bob")
        assert within(30, lambda: is_known("alice") and is_known("bob"))
        alice, bob = connect(2, "alice"), connect(2, "bob")
        assert within(30, lambda: {described(alice), described(bob)} == {ErrorCode.NONE})
        cuts.cut(2)
        assert within(30, lambda: known_to(connect(1)) == {1})
        gone = AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name="alice", mechanism=1)]
        )
        assert admin(gone).results[0].error_code == 0
        assert admin(DeleteAclsRequest(filters=[ANY_RULE])).filter_results[0].error_code == 0
        add_users(admin, "carol")
        allow(admin, "carol")
        cuts.heal(2)
        assert within(60, lambda: described(bob) == ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        assert alice.is_closed()
        assert login_error(f"127.0.0.1:{ports[2]}", "alice") == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert within(30, lambda: is_known("carol"))
        assert within(30, lambda: described(connect(2, "carol")) == ErrorCode.NONE)
