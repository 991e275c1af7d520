"""Random messages from our own declarations, and the list of all messages."""

import os
import random
from collections.abc import Callable
from typing import Any

from barnabas.kafka.protocol.records.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from barnabas.kafka.protocol.records.group_metadata import GroupMetadataKey, GroupMetadataValue
from barnabas.kafka.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from barnabas.kafka.protocol.registry import request_classes, response_class
from barnabas.kafka.protocol.schema import Field, Message, Primitive, Request, Response

#: How many random instances of each (message, version) are tried: raise it for a thorough run.
INSTANCES = int(os.environ.get("BARNABAS_CODEC_INSTANCES", "3"))

RECORDS: list[type[Message]] = [
    OffsetCommitKey, OffsetCommitValue, GroupMetadataKey, GroupMetadataValue,
    ConsumerProtocolSubscription, ConsumerProtocolAssignment,
]  # fmt: skip
API_MESSAGES: list[type[Request | Response]] = [
    message for request in request_classes() for message in (request, response_class(request.api_key))
]
_VALUES: dict[str, Callable[[random.Random], Any]] = {
    "bool": lambda rng: rng.random() < 0.5,
    "int8": lambda rng: rng.randint(-(2**7), 2**7 - 1),
    "int16": lambda rng: rng.randint(-(2**15), 2**15 - 1),
    "int32": lambda rng: rng.randint(-(2**31), 2**31 - 1),
    "int64": lambda rng: rng.randint(-(2**63), 2**63 - 1),
    "float64": lambda rng: rng.uniform(-1e300, 1e300),
    "string": lambda rng: "".join(rng.choices("ab-é€𐍈\0", k=rng.choice([0, 1, 5, 60, 300]))),
    "bytes": lambda rng: rng.randbytes(rng.choice([0, 1, 127, 200])),
    "records": lambda rng: rng.randbytes(rng.choice([0, 1, 127, 5000, 20000])),
    "uuid": lambda rng: rng.randbytes(16),
}


def _value(field: Field, version: int, rng: random.Random) -> Any:
    if field.nullable_in(version) and rng.random() < 0.2:
        return None
    if field.is_array:
        length = rng.choice([0, 1, 2, 3])
        if isinstance(field.type, Primitive) and rng.random() < 0.2:
            length = rng.choice([40, 200])
        single = field.element()
        return [_value(single, version, rng) for _ in range(length)]
    if isinstance(field.type, Primitive):
        return _VALUES[field.type.name](rng)
    return random_struct(field.type, version, rng)


def random_struct(cls: type[Any], version: int, rng: random.Random) -> Any:
    """Return an instance with random fields of `version`. Tagged fields sometimes keep their defaults."""
    return cls(
        **{
            field.name: _value(field, version, rng)
            for field in cls.__fields__
            if field.in_version(version) and (field.tag is None or rng.random() < 0.7)
        }
    )
