"""Payloads of registered Avro to Arrow and back, without Spark and without a registry."""

from __future__ import annotations

import datetime
import io
import json
import re
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import ConfigError
from barnabas.client.schemas.registered import AVRO, Registered
from barnabas.client.schemas.registry import RegistryRefused
from barnabas.spark.avro_codec import AvroSchema, Decoder, Encoder
from barnabas.spark.payloads import RowUnfitError


class Schemas:
    """A fake registry. Its schemas are in a dict, and it counts the requests."""

    def __init__(self, schemas):
        self.schemas = schemas
        self.asked = 0

    def by_id(self, id_):
        self.asked += 1
        if id_ not in self.schemas:
            raise RegistryRefused(f"schema id {id_} is not registered", is_missing=True)
        return self.schemas[id_]


def schema(*fields, name="R", references=()):
    form = {"type": "record", "name": name, "fields": list(fields)}
    named = tuple((str(n), reference.text) for n, reference in enumerate(references))
    return Registered(1, AVRO, json.dumps(form), named)


def field(name, type_, **more):
    return {"name": name, "type": type_, **more}


def payload(written, record, id_=1):
    names = {}
    for text in (*(text for _, text in written.references), written.text):
        parsed = fastavro.parse_schema(json.loads(text), names)
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, parsed, record)
    return b"\0" + id_.to_bytes(4, "big") + stream.getvalue()


def decode(reader, schemas, *payloads):
    records, reasons = Decoder(reader, Schemas(schemas).by_id).decode(pa.array(payloads, pa.binary()))
    assert len(records) == len(reasons) == len(payloads)
    return records.to_pylist(), reasons.to_pylist()


OLD = schema(field("a", "int"))
NEW = schema(field("a", "long"), field("b", ["null", "string"], default=None))


def test_records_of_every_version_have_the_readers_columns():
    payloads = payload(OLD, {"a": 1}, 1), payload(NEW, {"a": 2**40, "b": "x"}, 2)
    records, reasons = decode(NEW, {1: OLD, 2: NEW}, *payloads)
    assert records == [{"a": 1, "b": None}, {"a": 2**40, "b": "x"}]
    assert reasons == [None, None]


def test_each_bad_payload_has_its_reason_and_the_others_are_read():
    other = schema(field("a", "string"))
    good = payload(OLD, {"a": 7})
    bad = {
        b"": "begins with nothing",
        b'{"a":1}': "begins with 7b 22 61 22 3a",
        b"\0\0\0\0": "begins with 00 00 00 00",
        b"\0\0\0\0\x63\x02": "schema id 99 is not registered",
        good[:-1]: "does not fit its schema",
        good + b"!": "1 bytes are left over",
        payload(other, {"a": "x"}, 2): "does not fit its schema",
    }
    records, reasons = decode(OLD, {1: OLD, 2: other}, good, *bad, None, good)
    assert records == [{"a": 7}, *[None] * (len(bad) + 1), {"a": 7}]
    assert [reasons[0], *reasons[-2:]] == [None] * 3
    for reason, expected in zip(reasons[1:-2], bad.values(), strict=True):
        assert expected in reason


@pytest.mark.parametrize(
    ("type_", "written_as", "good", "bad", "column"),
    [
        ("int", "long", 7, 2**31, pa.int32()),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            "long",
            0,
            2**63 - 1,
            pa.timestamp("us", tz="UTC"),
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            "bytes",
            b"\1",
            (123456).to_bytes(3, "big"),
            pa.decimal128(4, 2),
        ),
    ],
)
def test_a_value_that_its_column_has_no_room_for_is_a_bad_payload_among_good_ones(
    type_, written_as, good, bad, column
):
    reader, written = schema(field("a", type_)), schema(field("a", written_as))
    payloads = [payload(written, {"a": value}) for value in (good, bad, good)]
    decoder = Decoder(reader, Schemas({1: reader}).by_id, pa.struct([("a", column)]))
    records, reasons = decoder.decode(pa.array([*payloads, b"bad"], pa.binary()))
    assert records.type == pa.struct([("a", column)])
    assert [record is None for record in records.to_pylist()] == [False, True, False, True]
    assert [reason is None for reason in reasons.to_pylist()] == [True, False, True, False]
    assert reasons[1].as_py().startswith("its columns have no room for it: ")


def test_a_schema_is_asked_for_once_and_an_unknown_one_once_a_batch():
    schemas = Schemas({1: OLD})
    decoder = Decoder(OLD, schemas.by_id)
    batch = pa.array([payload(OLD, {"a": 1})] * 5 + [b"\0\0\0\0\x09\x02"] * 5, pa.binary())
    decoder.decode(batch)
    assert schemas.asked == 2
    schemas.schemas[9] = OLD
    records, _ = decoder.decode(batch)
    assert schemas.asked == 3
    assert records.to_pylist()[-1] == {"a": 1}


def test_references_are_resolved():
    base = schema(field("a", "int"), name="Base")
    user = schema(field("base", "Base"), name="User", references=[base])
    records, _ = decode(user, {1: user}, payload(user, {"base": {"a": 3}}))
    assert records == [{"base": {"a": 3}}]


LOGICAL = schema(
    field("day", {"type": "int", "logicalType": "date"}),
    field("millis", {"type": "long", "logicalType": "timestamp-millis"}),
    field("micros", ["null", {"type": "long", "logicalType": "timestamp-micros"}]),
    field("local", {"type": "long", "logicalType": "local-timestamp-millis"}),
    field("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
    field("id", {"type": "string", "logicalType": "uuid"}),
    field("at", {"type": "array", "items": {"type": "long", "logicalType": "timestamp-millis"}}),
)


def test_dates_times_and_decimals_are_columns_of_these_types():
    utc = datetime.UTC
    at = datetime.datetime(2026, 11, 21, 3, 6, 0, 123_000, tzinfo=utc)
    record = {
        "day": datetime.date(2026, 11, 21),
        "millis": at,
        "micros": at.replace(microsecond=123_456),
        "local": at.replace(tzinfo=None),
        "price": Decimal("12.34"),
        "id": "7d0c2c0e-0000-4000-8000-000000000000",
        "at": [at],
    }
    written = payload(LOGICAL, record)
    assert decode(LOGICAL, {1: LOGICAL}, written) == ([record], [None])
    arrow = AvroSchema.parse(LOGICAL).arrow
    assert Encoder(LOGICAL).encode(pa.array([record], arrow)).to_pylist() == [written]


def test_a_row_that_the_schema_does_not_allow_is_named_with_the_cause():
    rows = pa.array([{"a": 1}, {"a": None}], pa.struct([("a", pa.int32())]))
    with pytest.raises(RowUnfitError, match=r"does not allow \{'a': None\}: .*int"):
        Encoder(OLD).encode(rows)


def test_fields_without_a_column_get_their_default():
    encoded = Encoder(NEW._replace(id=2)).encode(pa.array([{"a": 5}, None], pa.struct([("a", pa.int64())])))
    assert encoded.to_pylist() == [payload(NEW, {"a": 5, "b": None}, 2), None]


@pytest.mark.parametrize(
    ("type_", "reason"),
    [
        (["int", "string"], "a union of int, string in R has no column type"),
        (["null", "R"], "R contains itself"),
    ],
)
def test_what_no_column_can_hold_is_refused_by_name(type_, reason):
    with pytest.raises(ConfigError, match=reason):
        AvroSchema.parse(schema(field("a", type_)))


def test_what_is_no_schema_is_refused():
    for text in ("{", '{"type": "nothing"}', "5"):
        with pytest.raises(ConfigError, match="not an Avro schema"):
            AvroSchema.parse(Registered(1, AVRO, text))


_values = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "string": st.text(max_size=20),
    "bytes": st.binary(max_size=20),
}


@st.composite
def _records(draw):
    names = draw(st.lists(st.sampled_from("abcdef"), unique=True, max_size=4))
    fields, values = [], {}
    for name in names:
        kind = draw(st.sampled_from(sorted(_values)))
        shape = draw(st.sampled_from(["plain", "null", "array", "map"]))
        value = _values[kind]
        if shape == "null":
            fields.append(field(name, ["null", kind]))
            values[name] = draw(st.none() | value)
        elif shape == "array":
            fields.append(field(name, {"type": "array", "items": kind}))
            values[name] = draw(st.lists(value, max_size=3))
        elif shape == "map":
            fields.append(field(name, {"type": "map", "values": kind}))
            values[name] = draw(st.dictionaries(st.text(max_size=3), value, max_size=3))
        else:
            fields.append(field(name, kind))
            values[name] = draw(value)
    return schema(*fields), values


@given(_records())
def test_what_is_encoded_is_decoded(made):
    written, record = made
    arrow = AvroSchema.parse(written).arrow
    encoded = Encoder(written._replace(id=3)).encode(pa.array([record], arrow))
    records, reasons = Decoder(written, Schemas({3: written}).by_id).decode(encoded)
    assert reasons.to_pylist() == [None]
    assert records.to_pylist(maps_as_pydicts="strict") == [record]


@given(st.binary(max_size=30))
def test_any_bytes_are_a_record_or_have_a_reason(noise):
    written = schema(field("a", {"type": "array", "items": "string"}), field("b", ["null", "double"]))
    records, reasons = decode(written, {1: written}, b"\0\0\0\0\1" + noise)
    assert (records[0] is None) != (reasons[0] is None)


@pytest.mark.parametrize(
    ("type_", "column", "said"),
    [
        ("int", pa.array([7, 2**31]), "2147483648 not in range"),
        (["null", "int"], pa.array([None, 2**31]), "2147483648 not in range"),
        ("long", pa.array([1.0, 1.7]), "1.7"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            pa.array([Decimal("1.230"), Decimal("1.239")]),
            "data loss",
        ),
    ],
)
def test_a_value_that_its_field_has_no_room_for_is_refused_and_not_bent(type_, column, said):
    written = schema(field("a", type_))
    rows = pa.StructArray.from_arrays([column], ["a"])
    encoder = Encoder(written)
    assert len(encoder.encode(rows.slice(0, 1))) == 1
    with pytest.raises(RowUnfitError, match=f"the schema does not allow a value of a row: .*{said}"):
        encoder.encode(rows)


def test_each_row_that_the_schema_does_not_allow_has_a_reason_with_its_column_and_the_others_a_payload():
    enum = {"type": "enum", "name": "E", "symbols": ["X"]}
    encoder = Encoder(schema(field("a", "int"), field("e", enum)))
    rows = [{"a": 1, "e": "X"}, {"a": 2**40, "e": "X"}, None, {"a": 2, "e": "Y"}, {"a": None, "e": "X"}]
    payloads, reasons = encoder.encode_each(
        pa.array(rows, pa.struct([("a", pa.int64()), ("e", pa.string())]))
    )
    assert [payload is not None for payload in payloads.to_pylist()] == [True, False, False, False, False]
    none, large, null, unknown, missing = reasons.to_pylist()
    assert none is null is None
    assert re.search(r"column a: .*1099511627776.*the row is \{'a': 1099511627776, 'e': 'X'\}", large)
    assert re.search(r"\{'a': 2, 'e': 'Y'\}: field \w+\.e: ", unknown)
    assert re.search(r"field \w+\.a: ", missing)
