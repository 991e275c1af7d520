"""Compares our encoding with kafka-python, an independent decoder."""

import uuid
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
from tests.unit.kafka.protocol.each_version import each_version

from barnabas.kafka.protocol.codec import decode, encode
from barnabas.kafka.protocol.messages.api_versions import ApiVersionsResponse
from barnabas.kafka.protocol.schema import Field, Primitive, Request, Response

_MODULES = [
    import_module(f"kafka.protocol.{name}")
    for name in (
        "producer.produce", "producer.transaction", "consumer.fetch", "consumer.group", "consumer.offsets",
        "metadata.metadata", "metadata.api_versions", "metadata.find_coordinator", "admin.cluster",
        "admin.configs", "admin.groups", "admin.topics", "admin.transactions",
    )
]  # fmt: skip


def _theirs(name: str, version: int) -> Any:
    cls = next((getattr(module, name) for module in _MODULES if hasattr(module, name)), None)
    if cls is None or version > cls.max_version:
        pytest.skip(f"kafka-python has no {name} v{version}")
    return cls[version]


def _in_our_terms(theirs: Any, field: Field, version: int) -> Any:
    """Convert a value that kafka-python has decoded to our representation."""
    if isinstance(theirs, list):
        single = field.element()
        return [_in_our_terms(item, single, version) for item in theirs]
    if theirs is None and field.tag is not None:
        return field.default
    if isinstance(field.type, Primitive):
        return theirs.bytes if isinstance(theirs, uuid.UUID) else theirs
    if theirs is None:
        return None
    values = {
        f.name: _field_in_our_terms(theirs, f, version)
        for f in field.type.__fields__
        if f.in_version(version)
    }
    return field.type(**values)


def _field_in_our_terms(theirs: Any, field: Field, version: int) -> Any:
    value = getattr(theirs, field.name if hasattr(theirs, field.name) else "authorized_operations")
    if field.name.endswith("authorized_operations") and not isinstance(value, int):  # a set of bits, or None
        return sum(-(2**31) if bit == 31 else 2**bit for bit in value or {31})
    return _in_our_terms(value, field, version)


@each_version
def test_kafka_python_reads_what_we_write(
    api_message: type[Request | Response], version: int, examples: Callable[..., list[Any]]
) -> None:
    kafka_python_class = _theirs(api_message.__name__, version)
    whole = Field("message", api_message, is_array=False, default=None)
    for message in examples(api_message, version):
        if api_message is ApiVersionsResponse:
            message.error_code = 0  # after an error they read version 0, as a client should (KIP-511)
        encoded = encode(message, version)
        assert _in_our_terms(kafka_python_class.decode(encoded), whole, version) == message
        assert decode(api_message, version, encoded) == message
