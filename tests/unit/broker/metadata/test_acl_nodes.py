"""ACL rules in the store, with the paths and formats of Apache Kafka on ZooKeeper."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation.memory_store import MemoryStore
from simulation.virtual_time import run_virtual

from barnabas.broker.metadata import MetadataLoader, acl_nodes, znodes
from barnabas.broker.metadata.store import Create
from barnabas.kafka.security.acls import (
    AclEntry,
    Authorizer,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    SubjectRules,
)
from barnabas.kafka.security.principal import Principal

ORDERS = ResourcePattern(ResourceType.TOPIC, "orders")
READ = AclEntry("User:alice", Permission.ALLOW, Operation.READ)


def test_rules_lie_where_kafka_had_them_as_kafka_wrote_them():
    prefixed = ResourcePattern(ResourceType.TRANSACTIONAL_ID, "pay", PatternType.PREFIXED)
    assert acl_nodes.path(ORDERS) == "/kafka-acl/Topic/orders"
    assert acl_nodes.path(ResourcePattern(ResourceType.GROUP, "*")) == "/kafka-acl/Group/*"
    assert acl_nodes.path(prefixed) == "/kafka-acl-extended/prefixed/TransactionalId/pay"
    deny = AclEntry("User:*", Permission.DENY, Operation.DESCRIBE_CONFIGS, "10.0.0.1")
    assert json.loads(acl_nodes.encode([READ, deny])) == {
        "version": 1,
        "acls": [
            {"principal": "User:alice", "permissionType": "Allow", "operation": "Read", "host": "*"},
            {
                "principal": "User:*",
                "permissionType": "Deny",
                "operation": "DescribeConfigs",
                "host": "10.0.0.1",
            },
        ],
    }


@given(
    st.builds(
        ResourcePattern,
        st.sampled_from([kind for kind in ResourceType if kind is not ResourceType.ANY]),
        st.text(min_size=1) | st.sampled_from([".", "..", "a/b", "%2F", "*"]),
        st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    )
)
def test_a_path_names_its_resource_whatever_it_is_called(resource):
    path = acl_nodes.path(resource)
    assert acl_nodes.resource_of(path) == resource
    assert path.count("/") == (3 if resource.pattern is PatternType.LITERAL else 4)
    assert path.rpartition("/")[2] not in (".", "..")


@pytest.mark.parametrize("path", ["/kafka-acl", "/kafka-acl/Topic", "/kafka-acl/Nothing/a", "/brokers/ids/1"])
def test_a_path_of_something_else_names_no_resource(path):
    assert acl_nodes.resource_of(path) is None


def test_brokers_follow_the_nodes_and_close_what_they_cannot_read():
    async def scenario() -> None:
        store = MemoryStore()
        await store.multi([Create(folder) for folder in znodes.FOLDERS])
        loader = MetadataLoader(store)
        await loader.start()
        authorizer = Authorizer(lambda: loader.image.acls, SubjectRules(frozenset(), True))
        access = authorizer.access(Principal("alice"), "10.0.0.1")
        bob = authorizer.access(Principal("bob"), "10.0.0.1")
        path = acl_nodes.path(ORDERS)

        async def may() -> tuple[bool, bool]:
            await loader.settled()
            return tuple(each.on_topic(Operation.READ, "orders") for each in (access, bob))  # type: ignore[return-value]

        assert await may() == (True, True)  # no rule of anybody is about it
        await store.create(path, acl_nodes.encode([READ]))
        assert await may() == (True, False)
        await store.set(path, b'{"version":1,"acls":[{"principal":"User:bob"}]}')
        assert await may() == (False, False)
        await store.delete(path)
        assert await may() == (True, True)
        await loader.stop()

    run_virtual(scenario())
