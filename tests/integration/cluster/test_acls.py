"""ACLs in a cluster: every broker applies a change, and the controller checks forwarded requests."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import pytest
from tests.integration.acl_broker import add_users, log_in, login_error
from tests.integration.acl_walk import ANY_RULE
from tests.integration.conftest import Wire

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.kafka.protocol.messages.delete_acls import DeleteAclsRequest
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.kafka.security.acls import Operation, Permission, ResourceType
from barnabas.testing import BarnabasCluster
from barnabas.testing.running_broker import BrokerSettings


class AclCluster(BarnabasCluster):
    """A cluster with a listener for the brokers, which are super users, and another one for users."""

    def __init__(self) -> None:
        super().__init__(brokers=3, store="memory", mode="thread")

    def _settings_of(self, broker: int) -> BrokerSettings:
        node = super()._settings_of(broker)
        node.settings.update(
            {
                "listeners": f"{node.settings['listeners']},SASL_PLAINTEXT://127.0.0.1:0",
                "sasl.enabled.mechanisms": "PLAIN",
                "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
                "super.users": "User:ANONYMOUS",
            }
        )
        return node


@pytest.fixture(scope="module")
def cluster() -> Iterator[AclCluster]:
    with AclCluster() as cluster:
        yield cluster


def within(seconds: float, holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.02)
    return False


def test_every_broker_obeys_a_change_and_judges_what_another_one_forwards(cluster):
    admin = Wire(cluster.bootstrap_servers.split(",")[0])
    with contextlib.ExitStack() as closed:
        closed.callback(admin.close)
        add_users(admin, "alice")
        addresses = [
            next(e.address for e in cluster._node(number)._broker.bound if e.name == "SASL_PLAINTEXT")
            for number in cluster.brokers
        ]
        assert within(30, lambda: not any(login_error(address, "alice") for address in addresses))
        alices = [log_in(address, "alice") for address in addresses]
        for alice in alices:
            closed.callback(alice.close)

        def codes() -> set[int]:
            request = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
            return {alice(request).topics[0].error_code for alice in alices}

        def create(alice: Wire, name: str) -> int:
            topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            return alice(CreateTopicsRequest(topics=[topic], timeout_ms=10_000)).topics[0].error_code

        refused = {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        assert codes() == refused
        assert {create(alice, "orders") for alice in alices} == refused
        rule = AclCreation(
            resource_type=ResourceType.TOPIC,
            resource_name="ord",
            resource_pattern_type=4,
            principal="User:alice",
            host="*",
            operation=Operation.ALL,
            permission_type=Permission.ALLOW,
        )
        assert admin(CreateAclsRequest(creations=[rule])).results[0].error_code == 0
        assert within(10, lambda: not codes() & refused)
        assert [create(alice, f"orders-{number}") for number, alice in enumerate(alices)] == [0, 0, 0]
        assert {create(alice, "bills") for alice in alices} == refused
        assert admin(DeleteAclsRequest(filters=[ANY_RULE])).filter_results[0].error_code == 0
        assert within(10, lambda: codes() == refused)
