"""JSON values as registered Protobuf: equal to the library's result, and errors have the path to the wrong
part.
"""

from __future__ import annotations

import json

import pytest

from barnabas.client.schemas.protobuf import ProtobufSchema
from barnabas.client.schemas.protobuf_file import ProtobufFile
from barnabas.client.schemas.registered import PROTOBUF, Registered
from barnabas.client.schemas.unfit import UnfitError
from barnabas.registry.protobuf import ProtobufSchema as Compiled

SHOP = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/wrappers.proto";
message Order {
  string id = 1;
  int32 small = 2;
  uint64 large = 3;
  float single = 4;
  double both = 5;
  bool yes = 6;
  bytes raw = 7;
  Colour colour = 8;
  repeated Line lines = 9;
  map<string, Line> by_name = 10;
  map<int32, string> by_number = 11;
  map<bool, sint64> by_bool = 12;
  oneof choice { string word = 13; int32 number = 14; }
  google.protobuf.Timestamp at = 15;
  google.protobuf.Value any = 16;
  google.protobuf.Int32Value boxed = 17;
  optional string perhaps = 18;
  repeated fixed32 numbers = 19;
  message Line { int32 n = 1; }
  enum Colour { RED = 0; GREEN = 1; }
}
message Refund { string order_id = 1; }
"""


def schema(text, *references):
    compiled = [(name, Compiled(each).serialized) for name, each in references]
    return Registered(1, PROTOBUF, Compiled(text, references).serialized, tuple(compiled))


@pytest.fixture(scope="module")
def shop():
    return schema(SHOP)


VALUES = [
    {},
    {"id": "a", "small": -1, "large": str(2**64 - 1), "single": 1.5, "both": "NaN", "yes": True},
    {"small": 1.0, "both": "1e3", "large": 5, "single": "-Infinity"},
    {"raw": "AP8=", "colour": "GREEN", "lines": [{"n": 1}, {}], "numbers": [1, "2"]},
    {"colour": 7, "by_name": {"x y": {"n": 2}}, "byNumber": {"-3": "c"}, "by_bool": {"true": "9"}},
    {"word": "w", "at": "2026-11-27T00:00:00Z", "any": {"a": [None, 1]}, "boxed": 5, "perhaps": ""},
    {"any": None, "word": None, "number": 3, "id": None},
]


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_the_bytes_are_those_that_the_library_writes(shop, value):
    from google.protobuf.json_format import ParseDict
    from google.protobuf.message_factory import GetMessageClass

    made = ProtobufSchema(shop)
    file = ProtobufFile(shop)
    message = GetMessageClass(file.message("Order"))()
    ParseDict(json.loads(json.dumps(value)), message, descriptor_pool=file.pool)
    written = made.write(value, "value")
    assert written == b"\0" + message.SerializeToString(deterministic=True)
    assert made.write(made.read(written), "value") == written


def test_bytes_may_be_an_object_as_the_console_shows_them(shop):
    made = ProtobufSchema(shop)
    assert made.write({"raw": {"base64": "_w"}}, "value") == b"\0" + b"\x3a\x01\xff"


def test_a_message_is_chosen_by_its_name(shop):
    assert ProtobufSchema(shop).messages == ["shop.Order", "shop.Order.Line", "shop.Refund"]
    assert ProtobufSchema(shop, "Refund").write({"order_id": "a"}, "value") == b"\x02\x02" + b"\x0a\x01a"
    # the entries of the three maps are messages before it
    assert ProtobufSchema(shop, "shop.Order.Line").write({"n": 1}, "value") == b"\x04\x00\x06" + b"\x08\x01"
    with pytest.raises(
        ValueError, match=r"no message Bill in it; its messages are shop.Order, shop.Order.Line"
    ):
        ProtobufSchema(shop, "Bill").write({}, "value")


def test_references_define_messages():
    money = ("money.proto", 'syntax = "proto3"; package shop; message Money { sint64 cents = 1; }')
    text = 'syntax = "proto3"; import "money.proto"; message Bill { shop.Money total = 1; }'
    made = ProtobufSchema(schema(text, money))
    assert made.read(made.write({"total": {"cents": -5}}, "value")) == {"total": {"cents": "-5"}}
    with pytest.raises(
        UnfitError, match=r'^value.total.cents: "x" does not fit; write a whole number from -9'
    ):
        made.write({"total": {"cents": "x"}}, "value")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([], "value: [] does not fit; write an object (shop.Order)"),
        ({"ids": 1}, "value.ids: shop.Order has no such field; its fields are id, small, large"),
        ({"id": 5}, "value.id: 5 does not fit; write a string"),
        (
            {"small": 2**31},
            "value.small: 2147483648 does not fit; write a whole number from -2147483648 to 2147483647",
        ),
        ({"large": -1}, "value.large: -1 does not fit; write a whole number from 0 to 18446744073709551615"),
        ({"small": True}, "value.small: true does not fit"),
        ({"small": 1.5}, "value.small: 1.5 does not fit"),
        ({"single": 1e300}, "value.single: 1e+300 is too large for a float"),
        ({"both": 10**400}, "value.both"),
        ({"both": "1_0"}, 'value.both: "1_0" does not fit; write a number'),
        ({"yes": "true"}, 'value.yes: "true" does not fit; write true or false'),
        ({"raw": "?"}, 'value.raw: "?" does not fit; write bytes as base64'),
        (
            {"colour": "BLUE"},
            'value.colour: "BLUE" does not fit; write one of RED, GREEN (shop.Order.Colour)',
        ),
        ({"lines": {}}, "value.lines: {} does not fit; write an array"),
        ({"lines": [{}, {"n": "x"}]}, 'value.lines[1].n: "x" does not fit'),
        ({"lines": [None]}, "value.lines[0]: null does not fit; write an object (shop.Order.Line)"),
        ({"by_name": {"x y": {"m": 1}}}, 'value.by_name["x y"].m: shop.Order.Line has no such field'),
        ({"by_number": {"x": ""}}, 'value.by_number.x: "x" does not fit; write a whole number'),
        ({"by_bool": {"yes": 1}}, 'value.by_bool.yes: "yes" does not fit; write "true" or "false"'),
        ({"word": "w", "number": 1}, "value.number: it excludes word; write one of them"),
        ({"by_name": {}, "byName": {}}, "value.byName: it excludes by_name; write one of them"),
        ({"at": "yesterday"}, 'value.at: "yesterday" is no google.protobuf.Timestamp'),
        ({"boxed": "x"}, 'value.boxed: "x" is no google.protobuf.Int32Value'),
        ({"id": "\ud800"}, "value.id: it has half of a surrogate pair"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_named_with_its_place_and_what_is_allowed(shop, value, says):
    with pytest.raises(UnfitError) as error:
        ProtobufSchema(shop).write(value, "value")
    assert str(error.value).startswith(says)
    assert len(str(error.value)) < 500 and "\n" not in str(error.value)


def test_a_required_field_of_proto2_must_be_there():
    made = ProtobufSchema(
        schema('syntax = "proto2"; message A { optional B b = 1; message B { required int32 n = 1; } }')
    )
    with pytest.raises(UnfitError, match=r"^value.b.n: it is missing, and required"):
        made.write({"b": {}}, "value")
