"""Registered Protobuf, linked without a compiler."""

from __future__ import annotations

import base64

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

from barnabas.client.schemas.protobuf import ProtobufSchema
from barnabas.client.schemas.protobuf_file import ProtobufFile
from barnabas.client.schemas.registered import PROTOBUF, Registered


def text(file):
    return base64.b64encode(file.SerializeToString()).decode()


def file_of(*imports, **types):
    """Return a file with one message, whose fields are of these messages."""
    file = FileDescriptorProto(name="x", package="p", syntax="proto3", dependency=imports)
    message = file.message_type.add(name="M")
    for number, (name, type_) in enumerate(types.items(), 1):
        kind = FieldDescriptorProto.TYPE_MESSAGE
        message.field.add(name=name, number=number, type=kind, type_name=type_, label=1)
    return file


def schema(file, *references):
    return Registered(1, PROTOBUF, text(file), references)


def test_confluents_types_need_no_reference():
    imports = ("confluent/meta.proto", "confluent/type/decimal.proto", "confluent/type/variant.proto")
    file = file_of(*imports, price=".confluent.type.Decimal", more=".confluent.type.Variant")
    made = ProtobufSchema(schema(file))
    value = {
        "price": {"value": "AQ==", "precision": 5, "scale": 2},
        "more": {"metadata": "AA==", "value": "AA=="},
    }
    assert made.read(made.write(value, "value")) == value


def test_a_registered_file_overrides_a_known_one():
    own = FileDescriptorProto(name="y", package="confluent.type", syntax="proto3")
    own.message_type.add(name="Decimal").field.add(name="text", number=1, type=9, label=1)
    name = "confluent/type/decimal.proto"
    made = ProtobufSchema(schema(file_of(name, price=".confluent.type.Decimal"), (name, text(own))))
    assert made.read(made.write({"price": {"text": "1"}}, "value")) == {"price": {"text": "1"}}


@pytest.mark.parametrize("name", ["schema.proto", "x", "z/../y.proto"])
def test_a_reference_may_have_any_name(name):
    referred = FileDescriptorProto(package="q", syntax="proto3")
    referred.message_type.add(name="Q")
    file = ProtobufFile(schema(file_of(name, q=".q.Q"), (name, text(referred))))
    assert file.message("q.Q").full_name == "q.Q"
    with pytest.raises(ValueError, match=r"q\.Q is of an import"):
        file.indexes_of(file.message("q.Q"))


def test_an_import_that_is_missing_is_named():
    with pytest.raises(ValueError, match=r"imports other\.proto, for which it has no reference"):
        ProtobufFile(schema(file_of("other.proto")))


def test_files_that_do_not_fit_are_an_error():
    with pytest.raises(ValueError, match="Nothing"):
        ProtobufFile(schema(file_of(q=".q.Nothing")))


@pytest.mark.parametrize("content", ["?", "AAAA", 'syntax = "proto3";'])
def test_text_that_is_not_serialized_is_an_error(content):
    with pytest.raises(ValueError, match="does not know the format serialized"):
        ProtobufFile(Registered(1, PROTOBUF, content))


@pytest.mark.parametrize("indexes", [(-1,), (1,), (0, 0)])
def test_indexes_of_no_message_are_an_error(indexes):
    with pytest.raises(ValueError, match="no message at"):
        ProtobufFile(schema(file_of())).at(indexes)
