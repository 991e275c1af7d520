"""Selects the fields of requests and responses for the audit log: names and numbers, never a secret.

The log contains a field if the field is a number, or if this module lists it as a name. The log does not
contain the values of settings, or any bytes (salts, salted passwords, keyed hashes). So a new message type
cannot bring a secret into the log. Field names are those of Kafka's protocol.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, TypeAlias

from barnabas.base.errors import ErrorCode, error_code
from barnabas.base.text import shown
from barnabas.base.types import ZERO_TOPIC_ID, Json, JsonObject, topic_id_to_str
from barnabas.kafka.protocol.schema import Struct
from barnabas.kafka.security.acls import Operation, PatternType, Permission, ResourceType

#: largest number of items of an array in an entry; the rest is only counted
MAX_NAMED = 20
#: largest number of structs of a request in an entry
_MAX_TOLD = 200
#: largest number of structs of a response that are searched for errors
_MAX_SEARCHED = 2_000
_MAX_NAME_LENGTH = 300

_NAMES = frozenset(
    {
        "entity_name",
        "entity_type",
        "feature",
        "group",
        "group_id",
        "host",
        "host_filter",
        "key",
        "name",
        "owner_principal_name",
        "path",
        "principal",
        "principal_filter",
        "principal_name",
        "resource_name",
        "resource_name_filter",
        "topic",
        "topic_name",
        "transactional_id",
        "user",
    }
)
#: arrays of names
_LISTS_OF_NAMES = frozenset({"groups_names", "topic_names"})
#: fields that do not describe a change
_LEFT_OUT = frozenset({"timeout_ms", "throttle_time_ms", "error_code", "error_message"})


def _names(codes: type[IntEnum]) -> dict[int, str]:
    return {int(code): code.name for code in codes}


_Codes: TypeAlias = Mapping[str, Mapping[int, str]]

_ACL_CODES: _Codes = {
    "resource_type": _names(ResourceType),
    "resource_type_filter": _names(ResourceType),
    "resource_pattern_type": _names(PatternType),
    "pattern_type": _names(PatternType),
    "pattern_type_filter": _names(PatternType),
    "operation": _names(Operation),
    "permission_type": _names(Permission),
}
_CODES: _Codes = {
    "resource_type": {2: "TOPIC", 4: "BROKER", 8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: "GROUP"},
    "config_operation": {0: "SET", 1: "DELETE", 2: "APPEND", 3: "SUBTRACT"},
    "mechanism": {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"},
}


def outline(request: Struct) -> JsonObject:
    """Return the fields of a request that may be logged, as a JSON object of limited size."""
    codes = _ACL_CODES if "Acls" in type(request).__name__ else _CODES
    return _outline(request, codes, [_MAX_TOLD])


def failures(response: Struct, among: frozenset[int] | None = None) -> list[JsonObject]:
    """Return a JSON object for each failed item of a response, at most `MAX_NAMED`.

    The object has the item's names and ids, and the name of its error code as `error`. For example
    ``{"name": "orders", "error": "TOPIC_AUTHORIZATION_FAILED"}``.

    Args:
        response: a response to a client.
        among: error codes to select; None selects all errors.
    """
    found: list[JsonObject] = []
    for labels, code in _coded(response, {}, [_MAX_SEARCHED]):
        if code and (among is None or code in among):
            found.append({**labels, "error": error_name(code)})
            if len(found) == MAX_NAMED:
                break
    return found


def error_name(code: int) -> str:
    """Return the name of an error code, for example ``TOPIC_AUTHORIZATION_FAILED``."""
    return error_code(code).name


def _outline(struct: Struct, codes: _Codes, left: list[int]) -> JsonObject:
    outlined: JsonObject = {}
    for field in struct.__fields__:
        name = field.name
        value = getattr(struct, name)
        if isinstance(value, list):
            if value:
                outlined[name] = _outline_of_array(name, value, codes, left)
        elif name not in _LEFT_OUT:
            scalar = _scalar(name, value, codes)
            if scalar is not None:
                outlined[name] = scalar
    return outlined


def _outline_of_array(name: str, values: list[Any], codes: _Codes, left: list[int]) -> list[Json]:
    outlined: list[Json] = []
    for value in values[: min(MAX_NAMED, max(left[0], 0))]:
        left[0] -= 1
        if isinstance(value, Struct):
            outlined.append(_outline(value, codes, left))
        elif name in _LISTS_OF_NAMES:
            outlined.append(shown(value, _MAX_NAME_LENGTH))
        elif isinstance(value, int):
            outlined.append(value)
    if len(values) > len(outlined):
        outlined.append(f"... {len(values) - len(outlined)} more")
    return outlined


def _scalar(name: str, value: object, codes: _Codes) -> Json:
    """Return a field's value as JSON; None to leave the field out of the log.

    The log leaves out secrets: all texts and bytes that are not names or ids. It also leaves out False, ""
    and numbers that are not finite.

    Args:
        name: name of the field.
        value: value of the field.
        codes: texts for the numbers of some fields, by name of the field.
    """
    if isinstance(value, bool):
        return value or None  # a switch that is off says nothing
    if isinstance(value, int):
        return codes[name].get(value, value) if name in codes else value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return shown(value, _MAX_NAME_LENGTH) if name in _NAMES and value else None
    if name == "topic_id" and value != ZERO_TOPIC_ID and isinstance(value, bytes):
        return topic_id_to_str(value)
    return None


def _coded(struct: Struct, labels: JsonObject, budget: list[int]) -> Iterator[tuple[JsonObject, int]]:
    """Yield (names, error code) for `struct` and each struct in it that has the field ``error_code``.

    For example, a CreateTopics response yields ``({"name": "orders"}, 36)`` for a topic that already exists.
    The code is 0 if there was no error.

    Args:
        struct: the response, or a struct in it.
        labels: names and ids from the structs that contain `struct`. The yielded names include them.
        budget: `budget[0]` is the number of array items that may still be read. The function subtracts the
            items that it reads. At 0, it reads no further items.
    """
    own = dict(labels)
    arrays = []
    for field in struct.__fields__:
        name = field.name
        value = getattr(struct, name)
        if isinstance(value, list):
            arrays.append(value)
        elif name in _NAMES or name in ("partition_index", "partition_id", "topic_id", "index"):
            outlined = _scalar(name, value, _CODES)
            if outlined is not None:
                own[name] = outlined
    code = getattr(struct, "error_code", None)
    if code is not None:
        yield own, code
    for array in arrays:
        for item in array:
            budget[0] -= 1
            if not isinstance(item, Struct) or budget[0] < 0:
                break
            yield from _coded(item, own, budget)


#: authorization errors
DENIALS = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)
