"""The fields of requests in the audit log: names and numbers, and never a secret."""

from __future__ import annotations

import json
from typing import Any

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.broker.server.auditing.outline import DENIALS, failures, outline
from barnabas.broker.server.handlers import load
from barnabas.kafka.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from barnabas.kafka.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from barnabas.kafka.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.kafka.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.kafka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

BY_NAME = {api.name: api for api in load().values()}


def test_a_topic_is_told_with_its_settings_names_and_not_their_values():
    topic = CreatableTopic(
        name="orders",
        num_partitions=3,
        replication_factor=1,
        configs=[CreatableTopicConfig(name="retention.ms", value="12345")],
    )
    told = outline(CreateTopicsRequest(topics=[topic], timeout_ms=1, validate_only=True))
    (named,) = told["topics"]
    assert named["name"] == "orders" and named["num_partitions"] == 3
    assert named["configs"] == [{"name": "retention.ms"}]
    assert told["validate_only"] is True
    assert "12345" not in json.dumps(told)


def test_codes_are_told_by_their_names():
    rule = AclCreation(
        resource_type=2,
        resource_name="orders",
        resource_pattern_type=3,
        principal="User:bob",
        host="*",
        operation=3,
        permission_type=3,
    )
    assert outline(CreateAclsRequest(creations=[rule]))["creations"] == [
        {
            "resource_type": "TOPIC",
            "resource_name": "orders",
            "resource_pattern_type": "LITERAL",
            "principal": "User:bob",
            "host": "*",
            "operation": "READ",
            "permission_type": "ALLOW",
        }
    ]
    resource = AlterConfigsResource(
        resource_type=4, resource_name="1", configs=[AlterableConfig(name="ssl.key.password", value="hush")]
    )
    assert outline(IncrementalAlterConfigsRequest(resources=[resource]))["resources"] == [
        {
            "resource_type": "BROKER",
            "resource_name": "1",
            "configs": [{"name": "ssl.key.password", "config_operation": "SET"}],
        }
    ]


def test_a_user_is_told_without_salt_and_password():
    upsertion = ScramCredentialUpsertion(
        name="bob", mechanism=2, iterations=4096, salt=b"salt", salted_password=b"hush"
    )
    assert outline(AlterUserScramCredentialsRequest(upsertions=[upsertion])) == {
        "upsertions": [{"name": "bob", "mechanism": "SCRAM-SHA-512", "iterations": 4096}]
    }


def test_a_quota_is_told_with_its_value():
    entry = EntryData(
        entity=[EntityData(entity_type="user", entity_name="bob")],
        ops=[OpData(key="producer_byte_rate", value=1e6), OpData(key="request_percentage", remove=True)],
    )
    assert outline(AlterClientQuotasRequest(entries=[entry]))["entries"] == [
        {
            "entity": [{"entity_type": "user", "entity_name": "bob"}],
            "ops": [
                {"key": "producer_byte_rate", "value": 1e6},
                {"key": "request_percentage", "value": 0.0, "remove": True},
            ],
        }
    ]


def test_an_id_is_told_as_kafkas_tools_print_it():
    told = outline(DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=bytes(range(16)))]))
    assert told["topics"] == [{"topic_id": "AAECAwQFBgcICQoLDA0ODw"}]


def test_of_many_things_some_are_named_and_the_rest_is_counted():
    names = [f"group-{number}" for number in range(100_000)]
    told = outline(BY_NAME["DeleteGroups"].request(groups_names=names))
    assert told["groups_names"] == [*names[:20], "... 99980 more"]
    topics = [
        CreatableTopic(name=name, configs=[CreatableTopicConfig(name="x")] * 500) for name in names[:500]
    ]
    assert len(json.dumps(outline(CreateTopicsRequest(topics=topics)))) < 20_000


def test_failures_are_told_with_what_names_them():
    results = [
        CreatableTopicResult(name="good"),
        CreatableTopicResult(name="bad", error_code=ErrorCode.TOPIC_ALREADY_EXISTS),
        CreatableTopicResult(name="theirs", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ]
    response = CreateTopicsResponse(topics=results)
    assert failures(response) == [
        {"name": "bad", "error": "TOPIC_ALREADY_EXISTS"},
        {"name": "theirs", "error": "TOPIC_AUTHORIZATION_FAILED"},
    ]
    assert failures(response, DENIALS) == [{"name": "theirs", "error": "TOPIC_AUTHORIZATION_FAILED"}]
    assert len(failures(CreateTopicsResponse(topics=results[1:2] * 100_000))) == 20


@pytest.mark.parametrize("api", BY_NAME.values(), ids=lambda api: api.name)
def test_of_no_message_text_or_bytes_are_told_that_are_no_names(api):
    """Fields for values and secrets contain a certain word, which must not appear in the log."""
    request = _filled(api.request)
    assert "hush" not in json.dumps(outline(request), default=str)


def test_what_changes_something_is_known_to_the_audit_log():
    """A new API with such a name must declare `is_audited`, or be in the list here with the reason."""
    begin = ("Create", "Delete", "Alter", "Update", "Elect", "Unregister", "Incremental", "Expire", "Renew")
    of_brokers = {"AlterPartition", "DeleteShareGroupState"}  # brokers decide it among themselves
    unaudited = {name for name, api in BY_NAME.items() if name.startswith(begin) and not api.is_audited}
    assert unaudited == of_brokers


#: fields that hold text which is somebody's secret, or may be
_VALUES = {"value", "auth_bytes", "salt", "salted_password", "metadata", "hmac", "assignment", "password"}


def _filled(struct: type) -> Any:
    """Return a message with one item in each field, and with a certain word in all
    texts that are not names.
    """
    made = struct()
    for field in struct.__fields__:
        value = _value(field)
        if value is not None:
            setattr(made, field.name, [value] if field.is_array else value)
    return made


def _value(field: Any) -> Any:
    if isinstance(field.type, type):
        return _filled(field.type)
    if field.type.name in ("string", "bytes") and field.name in _VALUES:
        return "hush" if field.type.name == "string" else b"hush"
    return b"hush" if field.type.name in ("bytes", "records") else None
