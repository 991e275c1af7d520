"""A connected producer's requests follow changes of rules, quotas, settings and its login.

The broker answers such requests from their bytes (ADR 22). So what it remembers about a connection must not
outlive a change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.acl_broker import PASSWORD, AclBroker
from tests.integration.conftest import Wire

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from barnabas.kafka.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.kafka.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.kafka.security.acls import Operation, PatternType, Permission, ResourceType

TOPIC = "orders"
#: a version with topic names, whose requests of the usual shape the broker answers from their bytes
VERSION = 9
_TOPIC_RESOURCE = 2
_SET, _DELETE = 0, 1


@pytest.fixture
def broker(tmp_path) -> Iterator[AclBroker]:
    with AclBroker(tmp_path, **{"connections.max.reauth.ms": "3600000"}) as broker:
        broker.add("alice", "bob")
        yield broker


@pytest.fixture
def admin(broker: AclBroker) -> Iterator[Wire]:
    admin = Wire(broker.open_address)
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    admin(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
    yield admin
    admin.close()


@pytest.fixture
def alice(broker: AclBroker) -> Iterator[Wire]:
    alice = broker.connect("alice")
    yield alice
    alice.close()


def allow(admin: Wire, user: str) -> None:
    rule = AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name=TOPIC,
        resource_pattern_type=PatternType.LITERAL,
        principal=f"User:{user}",
        host="*",
        operation=Operation.WRITE,
        permission_type=Permission.ALLOW,
    )
    assert admin(CreateAclsRequest(creations=[rule])).results[0].error_code == 0


def forbid(admin: Wire, user: str) -> None:
    rules = DeleteAclsFilter(
        resource_type_filter=ResourceType.TOPIC,
        resource_name_filter=TOPIC,
        pattern_type_filter=PatternType.LITERAL,
        principal_filter=f"User:{user}",
        host_filter=None,
        operation=Operation.ANY,
        permission_type=Permission.ANY,
    )
    assert len(admin(DeleteAclsRequest(filters=[rules])).filter_results[0].matching_acls) == 1


def limit(admin: Wire, user: str, bytes_a_second: float | None) -> None:
    is_lifted = bytes_a_second is None
    change = OpData(key="producer_byte_rate", value=bytes_a_second or 0.0, remove=is_lifted)
    entity = [EntityData(entity_type="user", entity_name=user)]
    answer = admin(AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=[change])]))
    assert answer.entries[0].error_code == 0


def set_topic(admin: Wire, name: str, value: str | None) -> None:
    change = AlterableConfig(name=name, config_operation=_DELETE if value is None else _SET, value=value)
    resource = AlterConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name=TOPIC, configs=[change])
    assert admin(IncrementalAlterConfigsRequest(resources=[resource])).responses[0].error_code == 0


@pytest.fixture
def produce(batch: Any) -> Any:
    """Return a function that sends two equal requests. It returns a part of the second answer.

    This part is the answer for the partition, and the throttle time in ms. For the second request, the broker
    uses what it remembers from the first.
    """

    def send(client: Wire, value: bytes = b"x") -> Any:
        for _ in range(2):
            data = [PartitionProduceData(index=0, records=batch(value))]
            topics = [TopicProduceData(name=TOPIC, partition_data=data)]
            answer = client(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics), VERSION)
        return answer.responses[0].partition_responses[0], answer.throttle_time_ms

    return send


def error(answered: Any) -> int:
    part, _ = answered
    return part.error_code


def test_rules_that_change_apply_to_the_next_produce_of_a_connection(admin, alice, produce):
    assert error(produce(alice)) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for _ in range(2):
        allow(admin, "alice")
        assert error(produce(alice)) == 0
        allow(admin, "bob")
        assert error(produce(alice)) == 0
        forbid(admin, "alice")
        assert error(produce(alice)) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        forbid(admin, "bob")


def test_connection_that_logs_in_again_keeps_its_rules(admin, alice, produce):
    allow(admin, "alice")
    assert error(produce(alice)) == 0
    alice(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert alice(SaslAuthenticateRequest(auth_bytes=f"\0alice\0{PASSWORD}".encode()), 2).error_code == 0
    assert error(produce(alice)) == 0
    forbid(admin, "alice")
    assert error(produce(alice)) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_quotas_that_change_apply_to_the_next_produce_of_a_connection(admin, alice, produce):
    allow(admin, "alice")
    assert produce(alice)[1] == 0
    limit(admin, "alice", 1000)
    assert produce(alice, bytes(5_200))[1] > 0
    limit(admin, "alice", None)
    assert produce(alice)[1] == 0
    forbid(admin, "alice")
    assert error(produce(alice)) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_settings_of_a_topic_that_change_apply_to_the_next_produce_of_a_connection(admin, alice, produce):
    allow(admin, "alice")
    assert produce(alice)[0].log_append_time_ms == -1
    set_topic(admin, "message.timestamp.type", "LogAppendTime")
    assert produce(alice)[0].log_append_time_ms > 0
    set_topic(admin, "message.timestamp.type", None)
    assert produce(alice)[0].log_append_time_ms == -1
    set_topic(admin, "max.message.bytes", "100")
    assert error(produce(alice, bytes(200))) == ErrorCode.MESSAGE_TOO_LARGE
    set_topic(admin, "max.message.bytes", None)
    assert error(produce(alice, bytes(200))) == 0
    set_topic(admin, "cleanup.policy", "compact")
    assert error(produce(alice)) == ErrorCode.INVALID_RECORD
    set_topic(admin, "cleanup.policy", None)
    assert error(produce(alice)) == 0
