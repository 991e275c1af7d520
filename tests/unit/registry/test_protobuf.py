"""Protobuf schemas: one text for both forms, imports, and rejected schemas with their reasons."""

from __future__ import annotations

import base64
import errno
import importlib.util
import os
import subprocess
import sys

import pytest
from confluent_kafka.schema_registry.confluent import meta_pb2
from confluent_kafka.schema_registry.confluent.type import decimal_pb2, variant_pb2
from confluent_kafka.schema_registry.confluent.types import decimal_pb2 as old_decimal_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.type import date_pb2

from barnabas.registry import formats
from barnabas.registry.errors import InvalidSchemaError, RegistryError
from barnabas.registry.formats import parse, types
from barnabas.registry.protobuf import ProtobufSchema
from barnabas.registry.protobuf import protoc as compiler
from barnabas.registry.schema import Schema

ADDRESS = ("shop/address.proto", 'syntax = "proto3"; package shop; message Address { string city = 1; }')
ORDER = """
syntax = "proto3";
package shop;
import "shop/address.proto";
// What was bought.
message Order {
    message Item { string name = 1; }
    map<string, Item> items = 1;   Address to = 2;
    optional int32 vat = 3;
}
"""
WRITTEN = """\
syntax = "proto3";
package shop;

import "shop/address.proto";

message Order {
  message Item {
    string name = 1;
  }
  map<string, Order.Item> items = 1;
  Address to = 2;
  optional int32 vat = 3;
}
"""


def test_both_forms_come_to_one_text():
    order = ProtobufSchema(ORDER, [ADDRESS])
    assert order.text == WRITTEN
    assert ProtobufSchema(order.text, [ADDRESS]).text == WRITTEN
    assert ProtobufSchema(order.serialized, [ADDRESS]).text == WRITTEN


def test_the_serialized_form_is_what_protoc_makes():
    file = FileDescriptorProto.FromString(base64.b64decode(ProtobufSchema(ORDER, [ADDRESS]).serialized))
    assert (file.name, file.package, list(file.dependency)) == ("default", "shop", ["shop/address.proto"])
    (order,) = file.message_type
    # a reader finds messages by their index, so their order must stay
    assert [nested.name for nested in order.nested_type] == ["Item", "ItemsEntry"]


@pytest.mark.parametrize("generated", [meta_pb2, decimal_pb2, variant_pb2, old_decimal_pb2, date_pb2])
def test_what_clients_never_register_is_known_as_they_know_it(generated):
    name = generated.DESCRIPTOR.name
    files = compiler.compile_files(f'syntax = "proto3"; import "{name}";', [])
    known = FileDescriptorProto()
    generated.DESCRIPTOR.CopyToProto(known)
    for file in (known, files[name]):
        file.ClearField("options")  # what code is called in this or that language
        for field in [*file.extension, *(f for m in _messages(file) for f in m.field)]:
            field.ClearField("json_name")
    assert files[name] == known


def _messages(declaring):
    inside = getattr(declaring, "message_type", None) or getattr(declaring, "nested_type", ())
    for message in inside:
        yield message
        yield from _messages(message)


def test_options_of_an_import_are_kept():
    text = """
    syntax = "proto3";
    import "confluent/meta.proto";
    import "google/protobuf/timestamp.proto";
    message M {
      option (confluent.message_meta).doc = "of \\"M\\"";
      string secret = 1 [(confluent.field_meta) = { tags: "PII" }];
      google.protobuf.Timestamp at = 2 [deprecated = true];
    }
    """
    written = ProtobufSchema(text).text
    assert 'option (confluent.message_meta) = { doc: "of \\"M\\"" };' in written
    assert 'string secret = 1 [(confluent.field_meta) = { tags: "PII" }];' in written
    assert "google.protobuf.Timestamp at = 2 [deprecated = true];" in written


def test_options_that_protoc_leaves_out_for_programs_are_kept():
    option = "option features.default_symbol_visibility = EXPORT_ALL;"
    part = ProtobufSchema(f'edition = "2024"; {option} message Part {{ message Inner {{}} }}').text
    # without the option, what uses the nested message would not be compiled
    ProtobufSchema('edition = "2024"; import "p"; message M { Part.Inner i = 1; }', [("p", part)])


def test_normalized_imports_are_in_order():
    one, other = (
        f'syntax = "proto3"; {first} {second} message M {{}}'
        for first, second in [
            ('import public "shop/address.proto";', 'import "google/protobuf/any.proto";'),
            ('import "google/protobuf/any.proto";', 'import public "shop/address.proto";'),
        ]
    )
    assert ProtobufSchema(one, [ADDRESS]).text != ProtobufSchema(other, [ADDRESS]).text
    normalized = ProtobufSchema(one, [ADDRESS], normalize=True)
    assert normalized.text == ProtobufSchema(other, [ADDRESS], normalize=True).text
    assert 'import public "shop/address.proto";' in normalized.text
    assert ProtobufSchema(normalized.serialized, [ADDRESS]).text == normalized.text


def test_a_name_that_would_mean_another_one_is_written_in_full():
    other = ("shop.proto", 'syntax = "proto3"; package shop; message M {}')
    text = (
        'syntax = "proto3"; package a.shop; import "shop.proto"; message M { .shop.M m = 1; a.shop.M n = 2; }'
    )
    written = ProtobufSchema(text, [other]).text
    assert "  .shop.M m = 1;\n  M n = 2;\n" in written


def test_an_import_may_have_any_name():
    for name in ("schema.proto", "default", "order"):
        part = (name, 'syntax = "proto3"; message Part {}')
        order = ProtobufSchema(f'syntax = "proto3"; import "{name}"; message M {{ Part p = 1; }}', [part])
        assert f'import "{name}";' in order.text


def test_a_text_that_would_say_something_else_is_not_kept(monkeypatch):
    monkeypatch.setattr("barnabas.registry.protobuf.text._WORDS", set())
    with pytest.raises(InvalidSchemaError, match="not one that protoc makes"):
        ProtobufSchema('syntax = "proto3"; message string {} message M { .string s = 1; }')


# --- what is refused ---


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("int x", '1:1: Expected top-level statement (e.g. "message").'),
        (
            'syntax = "proto3"; message M { int32 a = 1; Gone b = 2; int32 c = 1; }',
            'Invalid schema: 1:45: "Gone" is not defined.; 1:67: Field number 1 has already been used',
        ),
        ('syntax = "proto3"; import "gone.proto";', "gone.proto: File not found.; 1:20: Import"),
        ('syntax = "proto3"; import "/etc/passwd";', "not found or had errors"),
        ("AAAA", "neither .proto text nor a FileDescriptorProto in base64"),
        ("abcde", "neither .proto text nor a FileDescriptorProto in base64"),
        ("message M { \ud800 }", "surrogates not allowed"),
        ("message M {" * 1000, "nested"),
        (r'message M { optional string s = 1 [default = "\xff"]; }', "not UTF-8"),
        (r'message M { reserved "\xff"; }', "not UTF-8"),
    ],
)
def test_a_schema_that_protoc_refuses_has_its_reason_in_one_line(text, reason):
    with pytest.raises(InvalidSchemaError) as refused:
        ProtobufSchema(text)
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "barnabas-protoc" not in str(refused.value)


def _encoded(**fields):
    return base64.b64encode(FileDescriptorProto(**fields).SerializeToString()).decode()


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (_encoded(dependency=["gone.proto"]), "gone.proto: File not found"),
        (_encoded(dependency=['x";import "y']), "not found or had errors"),
        (
            _encoded(message_type=[{"name": "M", "field": [{"name": "f", "number": 1, "type_name": "X"}]}]),
            "X",
        ),
        (_encoded(message_type=[{"name": "no name"}]), "no name"),
        (_encoded(message_type=[{"name": "M"}, {"name": "M"}]), "M"),
        (_encoded(options={"uninterpreted_option": [{"string_value": b"x"}]}), "uninterpreted_option"),
    ],
)
def test_a_descriptor_that_no_text_gives_is_refused(schema, reason):
    with pytest.raises(InvalidSchemaError, match=reason):
        ProtobufSchema(schema)


def test_an_option_that_no_import_defines_is_refused():
    file = FileDescriptorProto(message_type=[{"name": "M"}])
    file.message_type[0].options.MergeFromString(b"\xca\x3e\x01x")  # a field of the number 1001
    with pytest.raises(InvalidSchemaError, match="option 1001 of MessageOptions is defined by no import"):
        ProtobufSchema(base64.b64encode(file.SerializeToString()).decode())


def test_an_option_of_a_value_without_a_name_is_refused():
    option = 'import "google/protobuf/descriptor.proto"; extend google.protobuf.FileOptions { E e = 50001; }'
    text = f'syntax = "proto3"; {option} enum E {{ A = 0; B = 1; }} option (e) = B;'
    file = FileDescriptorProto.FromString(base64.b64decode(ProtobufSchema(text).serialized))
    file.options.Clear()
    file.options.MergeFromString(b"\x88\xb5\x18\x07")  # the field 50001 is 7
    with pytest.raises(InvalidSchemaError, match="7 is not a value of E"):
        ProtobufSchema(base64.b64encode(file.SerializeToString()).decode())


@pytest.mark.parametrize(
    "name", ["../x.proto", "/x.proto", "a//b.proto", "a/./b", "a\\b", "a\nb", "", "x" * 300]
)
def test_a_reference_leads_nowhere_but_into_the_folder(name, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(InvalidSchemaError):
        ProtobufSchema('syntax = "proto3";', [(name, 'syntax = "proto3";')])
    assert list(tmp_path.rglob("*")) == []


def test_a_reference_is_no_python_that_is_run(tmp_path, monkeypatch):
    ran = tmp_path / "ran"
    trap = f"open({str(ran)!r}, 'w')"
    names = ("grpc_tools/__init__.py", "grpc_tools/protoc.py", "site.py", "sitecustomize.py", "importlib.py")
    ProtobufSchema('syntax = "proto3";', [(name, trap) for name in names])
    assert not ran.exists()


def test_nobody_is_given_another_file_by_the_name_of_a_known_one():
    fake = ("google/type/date.proto", 'syntax = "proto3"; package google.type; message Fake {}')
    text = 'syntax = "proto3"; import "google/type/date.proto"; message M { google.type.Fake f = 1; }'
    with pytest.raises(InvalidSchemaError, match="Fake"):
        ProtobufSchema(text, [fake])


def test_protoc_writes_nothing_but_into_a_folder_that_goes_away(tmp_path):
    # in a process of its own: clients that other tests left behind may write to this one's stderr
    program = f"""
from barnabas.registry.errors import InvalidSchemaError
from barnabas.registry.protobuf import ProtobufSchema

ProtobufSchema({ORDER!r}, [{ADDRESS!r}])
ProtobufSchema('message M {{}} import "google/protobuf/any.proto";')  # protoc warns: unused import, no syntax
try:
    ProtobufSchema("int x")
except InvalidSchemaError:
    print("refused")
"""
    (tmp_path / "temporary").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "refused\n", "")
    assert [path.name for path in tmp_path.rglob("*")] == ["temporary"]


def test_a_protoc_that_does_not_end_is_ended(monkeypatch):
    monkeypatch.setattr(compiler, "_RUN", "import time; time.sleep(60)")
    monkeypatch.setattr(compiler, "_TIMEOUT_S", 0.2)
    with pytest.raises(RegistryError, match=r"protoc is not done with the schema in 0\.2 s"):
        ProtobufSchema("message M {}")


def test_a_protoc_that_crashes_takes_nothing_along(monkeypatch):
    monkeypatch.setattr(compiler, "_RUN", "import os; os.kill(os.getpid(), 9)")
    with pytest.raises(RegistryError, match="protoc died of signal 9"):
        ProtobufSchema("message M {}")


def test_a_protoc_that_cannot_run_is_no_fault_of_the_schema(monkeypatch):
    monkeypatch.setattr(compiler, "_RUN", "import no_such_module")
    with pytest.raises(RegistryError, match="protoc cannot run: ModuleNotFoundError") as failed:
        ProtobufSchema("message M {}")
    assert failed.value.status == 500


def test_a_full_disk_is_no_fault_of_the_schema(monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", full)
    with pytest.raises(OSError, match="No space left"):
        ProtobufSchema("message M {}")


# --- as one of a registry's formats ---


def test_a_registry_without_protoc_refuses_and_names_the_extra(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(formats, "find_spec", lambda name: None if name == "grpc_tools" else find(name))
    assert types() == ["JSON", "AVRO"]
    with pytest.raises(InvalidSchemaError, match=r"pip install '\.\[protobuf\]'"):
        parse(Schema("PROTOBUF", "message M {}"))


def test_protobuf_is_not_imported_before_a_schema_is_read():
    code = "import sys, barnabas.registry.rest.app; print([m for m in sys.modules if 'google.protobuf' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
