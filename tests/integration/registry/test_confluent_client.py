"""Confluent's own client and serializers, unchanged, against the registry."""

from __future__ import annotations

import json

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, ServerConfig
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.schema_registry_client import ConfigCompatibilityLevel
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.integration.registry.conftest import B_REQUIRED, A, B, record

VALUE = SerializationContext("orders", MessageField.VALUE)


def avro(*fields, name="R", references=()):
    return Schema(json.dumps(record(*fields, name=name)), "AVRO", list(references))


def test_the_client_administers_subjects(registry):
    client = registry.client()
    assert client.register_schema("s", avro(A)) == 1
    assert client.get_schema(1).schema_str == client.get_version("s", 1).schema.schema_str
    assert client.lookup_schema("s", avro(A)).version == 1
    assert client.test_compatibility("s", avro(A, B)) is True
    assert client.test_compatibility("s", avro(A, B_REQUIRED)) is False
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema("s", avro(A, B_REQUIRED))
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 409)
    assert client.set_compatibility("s", "NONE") == {"compatibility": "NONE"}
    assert client.get_compatibility("s") == "NONE"
    assert client.register_schema("s", avro(A, B_REQUIRED)) == 2
    assert client.get_subjects() == ["s"]
    assert client.get_versions("s") == [1, 2]
    assert client.get_latest_version("s").schema_id == 2
    assert client.get_subjects_by_schema_id(2) == ["s"]
    assert [(v.subject, v.version) for v in client.get_schema_versions(2)] == [("s", 2)]
    assert client.get_schema_types() == ["JSON", "PROTOBUF", "AVRO"]
    assert client.get_contexts() == ["."]
    assert client.get_config("s").compatibility_level == ConfigCompatibilityLevel.NONE
    client.set_config("s", ServerConfig(compatibility=ConfigCompatibilityLevel.FULL))
    assert client.get_compatibility("s") == "FULL"
    client.delete_config("s")
    assert client.update_mode("s", "READONLY") == client.get_mode("s") == "READONLY"
    assert client.delete_mode("s") == "READONLY"
    assert client.get_global_mode() == "READWRITE"
    assert client.delete_version("s", 1) == 1
    assert client.delete_subject("s") == [2]
    assert client.delete_subject("s", permanent=True) == [1, 2]
    with pytest.raises(SchemaRegistryError, match="40401"):
        registry.client().get_versions("s")


def test_avro_is_written_and_read_with_an_evolving_schema(registry):
    old, new = avro(A), avro(A, B)
    writer = AvroSerializer(registry.client(), old.schema_str)
    payload = writer({"a": 1}, VALUE)
    assert payload[:5] == b"\0" + (1).to_bytes(4, "big")
    reader = AvroDeserializer(registry.client(), new.schema_str)
    assert reader(payload, VALUE) == {"a": 1, "b": ""}
    newer = AvroSerializer(registry.client(), new.schema_str)({"a": 2, "b": "x"}, VALUE)
    assert reader(newer, VALUE) == {"a": 2, "b": "x"}
    assert AvroDeserializer(registry.client(), old.schema_str)(newer, VALUE) == {"a": 2}
    assert registry("GET", "/subjects/orders-value/versions").body == [1, 2]
    with pytest.raises(SchemaRegistryError, match="incompatible"):
        AvroSerializer(registry.client(), avro(A, B, {"name": "c", "type": "int"}).schema_str)(
            {"a": 1, "b": "", "c": 1}, VALUE
        )


def test_avro_with_references_is_written_and_read(registry):
    client = registry.client()
    client.register_schema("base", avro(A, name="Base"))
    user = avro(
        {"name": "base", "type": "Base"}, name="User", references=[SchemaReference("Base", "base", 1)]
    )
    payload = AvroSerializer(client, user)({"base": {"a": 5}}, VALUE)
    assert AvroDeserializer(registry.client())(payload, VALUE) == {"base": {"a": 5}}


def test_only_registered_schemas_without_auto_registration(registry):
    settings = {"auto.register.schemas": False}
    serializer = AvroSerializer(registry.client(), avro(A).schema_str, conf=settings)
    with pytest.raises(SchemaRegistryError, match="40401"):
        serializer({"a": 1}, VALUE)
    registry.client().register_schema("orders-value", avro(A))
    assert serializer({"a": 1}, VALUE)
    latest = {**settings, "use.latest.version": True}
    assert AvroSerializer(registry.client(), avro(A).schema_str, conf=latest)({"a": 1}, VALUE)


def test_json_is_written_and_read(registry):
    schema = json.dumps(
        {
            "title": "Order",
            "type": "object",
            "properties": {"a": {"type": "integer"}},
            "required": ["a"],
        }
    )
    payload = JSONSerializer(schema, registry.client())({"a": 1}, VALUE)
    assert JSONDeserializer(schema, schema_registry_client=registry.client())(payload, VALUE) == {"a": 1}
    found = registry("GET", "/subjects/orders-value/versions/1").body
    assert found["schemaType"] == "JSON"
