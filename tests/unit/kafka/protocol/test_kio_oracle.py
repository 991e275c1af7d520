"""Compares our codecs with kio, which is generated from the protocol specification.

kio encodes random instances of its dataclasses. Our decoder must return the same value in each field. (A
round trip alone would not find two swapped fields of one type.) Our encoder must then return the same bytes.
"""

import dataclasses
import datetime
import io
import random
import types
import typing
import uuid
from importlib import import_module
from typing import Any

import pytest
from kio.index import load_payload_module
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_writer
from kio.static.constants import EntityType
from tests.unit.kafka.protocol.each_version import each_version
from tests.unit.kafka.protocol.examples import INSTANCES
from tools.docs.kafka_apis import KAFKA_APIS

from barnabas.kafka.protocol.codec import decode, encode
from barnabas.kafka.protocol.schema import Request, Response, Struct

MILLISECOND = datetime.timedelta(milliseconds=1)
_RESULTS = {
    *(f"kio.schema.alter_partition.v{version}.response" for version in (2, 3)),
    *(f"kio.schema.alter_client_quotas.v{version}.response" for version in (0, 1)),
}
_NULLS = {"uuid": bytes(16), "datetime_i64": -1}  # what kio shows as None though the wire has no null


def _random_entity(cls: Any, rng: random.Random) -> Any:
    values = {}
    for field in dataclasses.fields(cls):
        if "tag" in field.metadata and rng.random() < 0.3:
            continue  # the default, which is not written
        values[field.name] = _random_value(field.type, field.metadata.get("kafka_type"), rng)
    return cls(**values)


def _random_value(kind: Any, wire: str | None, rng: random.Random) -> Any:
    if isinstance(kind, types.UnionType):
        if rng.random() < 0.2:
            return None
        (kind,) = (arg for arg in typing.get_args(kind) if arg is not types.NoneType)
    if typing.get_origin(kind) is tuple:
        length = rng.choice([0, 1, 2, 3, 40 if wire else 2])
        return tuple(_random_value(typing.get_args(kind)[0], wire, rng) for _ in range(length))
    if dataclasses.is_dataclass(kind):
        return _random_entity(kind, rng)
    match wire:
        case "bool":
            return rng.random() < 0.5
        case "int8" | "int16" | "int32" | "int64":
            bits = int(wire[3:]) - 1
            return kind(rng.choice([0, -1, 1, rng.randint(-(2**bits), 2**bits - 1)]))
        case "float64":
            return rng.uniform(-1e300, 1e300)
        case "timedelta_i32" | "timedelta_i64":
            return kind.parse(rng.randint(0, 2**31 - 1) * MILLISECOND)
        case "datetime_i64":
            return datetime.datetime.fromtimestamp(rng.randint(0, 2**31), datetime.UTC)
        case "string":
            return kind("".join(rng.choices("ab-é€𐍈\0", k=rng.choice([0, 1, 5, 126, 127, 300]))))
        case "bytes" | "records":
            return kind(rng.randbytes(rng.choice([0, 1, 126, 127, 5000])))
        case "uuid":
            return uuid.UUID(bytes=rng.randbytes(16))
        case "error_code":
            return rng.choice(list(KioErrorCode))
    raise AssertionError(f"kio has a type that this test does not know: {wire} {kind}")


def _assert_same(ours: Any, kios: Any, wire: str | None = None) -> None:
    """Compare field by field. kio's names lack the unit (throttle_time for throttle_time_ms)."""
    if dataclasses.is_dataclass(kios):
        assert isinstance(ours, Struct)
        theirs = _our_name(type(kios))
        assert type(ours).__name__ in (theirs, theirs.removesuffix("Data"))
        names = [field.name for field in ours.__fields__]
        for field in dataclasses.fields(kios):
            name = field.name if field.name in names else field.name + "_ms"
            _assert_same(getattr(ours, name), getattr(kios, field.name), field.metadata.get("kafka_type"))
    elif isinstance(kios, tuple):
        assert isinstance(ours, list)
        assert len(ours) == len(kios)
        for mine, theirs in zip(ours, kios, strict=True):
            _assert_same(mine, theirs, wire)
    else:
        assert ours == (_NULLS.get(wire) if kios is None else _plain(kios))
        assert isinstance(ours, bool) == isinstance(kios, bool)


def _our_name(kio_class: Any) -> str:
    """Return our name of a struct. If a request and its response have structs of one name, ours in the
    response is a result.
    """
    name: str = kio_class.__name__
    if kio_class.__module__ in _RESULTS:
        return name.replace("Data", "Result")
    return name


def _plain(value: Any) -> Any:
    match value:
        case uuid.UUID():
            return value.bytes
        case datetime.timedelta():
            return value // MILLISECOND
        case datetime.datetime():
            return round(value.timestamp() * 1000)
        case KioErrorCode():
            return value.value
    return value


def _kio_class(message: type[Request | Response], version: int) -> Any:
    if message.api_key > max(KAFKA_APIS):
        pytest.skip(f"kio has no {message.__name__}, which is newer than Apache Kafka 4.2")
    kind = EntityType.request if issubclass(message, Request) else EntityType.response
    return getattr(load_payload_module(message.api_key, version, kind), message.__name__)


@each_version
def test_kio_writes_what_we_read_and_we_write_it_back(
    api_message: type[Request | Response], version: int
) -> None:
    kio_class = _kio_class(api_message, version)
    write = entity_writer(kio_class)
    rng = random.Random(f"{api_message.__name__} {version}")
    for _ in range(INSTANCES):
        theirs = _random_entity(kio_class, rng)
        buffer = io.BytesIO()
        write(buffer, theirs)
        ours = decode(api_message, version, buffer.getvalue())
        _assert_same(ours, theirs)
        assert encode(ours, version) == buffer.getvalue()


def _structs(kio_class: Any) -> Any:
    """Return a kio class and all classes that it contains."""
    yield kio_class
    for field in dataclasses.fields(kio_class):
        for part in (field.type, *typing.get_args(field.type)):
            for nested in (part, *typing.get_args(part)):
                if dataclasses.is_dataclass(nested):
                    yield from _structs(nested)


@each_version
def test_defaults_are_those_of_kio(api_message: type[Request | Response], version: int) -> None:
    module = import_module(api_message.__module__)
    for kio_class in _structs(_kio_class(api_message, version)):
        ours = getattr(module, _our_name(kio_class))()
        names = [field.name for field in ours.__fields__]
        for field in dataclasses.fields(kio_class):
            if field.default is not dataclasses.MISSING:
                name = field.name if field.name in names else field.name + "_ms"
                _assert_same(getattr(ours, name), field.default, field.metadata.get("kafka_type"))
