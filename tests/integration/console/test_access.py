"""Users, rules and quotas, where the cluster has them."""

from __future__ import annotations

import pytest
from tests.integration.acl_broker import AclBroker

from barnabas.client import Admin
from barnabas.client.acls import create_acls
from barnabas.client.quotas import alter_quotas
from barnabas.security.acls import (
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    with AclBroker(tmp_path_factory.mktemp("access")) as broker:
        yield broker.open_address


def test_users_rules_and_quotas_are_told(start_console, guarded):
    Admin(guarded).set_password("alice", "secret")
    entry = AclEntry("User:alice", Permission.ALLOW, Operation.READ, "*")
    about = [
        (ResourceType.TOPIC, "orders-", PatternType.PREFIXED),
        (ResourceType.GROUP, "g", PatternType.LITERAL),
    ]
    create_acls(guarded, 60, [AclBinding(ResourcePattern(t, n, p), entry) for t, n, p in about])
    alter_quotas(guarded, 60, {"user": "alice", "client-id": None}, {"producer_byte_rate": 1024.0})
    console = start_console(guarded)
    told = console.get("access")
    assert {"name": "alice", "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"]} in told["users"]["rows"]
    quota = {"of": {"user": "alice", "client-id": None}, "name": "producer_byte_rate", "value": 1024.0}
    assert quota in told["quotas"]["rows"]
    rule = {
        "principal": "User:alice",
        "permission": "ALLOW",
        "operation": "READ",
        "resource": "TOPIC",
        "pattern": "PREFIXED",
        "name": "orders-",
        "host": "*",
    }
    assert rule in told["rules"]["rows"]
    assert console.get("access", topic="orders-7")["rules"]["rows"] == [rule]
    assert console.get("access", topic="other")["rules"]["rows"] == []
    assert "secret" not in str(told)


def test_what_a_cluster_does_not_have_is_said_and_the_rest_is_shown(console):
    told = console.get("access")
    assert "authorizer" in told["rules"]["problem"].lower()
    assert told["users"]["problem"] is None and told["quotas"]["problem"] is None
