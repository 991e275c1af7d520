"""Decides which nodes of an Avro schema have a valid logical type.

Source: https://avro.apache.org/docs/1.12.0/specification/#logical-types. An invalid logical type is an
ordinary property.
"""

from __future__ import annotations

import math

from barnabas.registry.avro.nodes import SchemaNode

_TYPES = {
    "big-decimal": ("bytes",),
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "timestamp-nanos": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
    "local-timestamp-nanos": ("long",),
}
_SIZES = {"uuid": 16, "duration": 12}


def logical_properties(node: SchemaNode) -> tuple[str, ...]:
    """Return the names of the properties of the node's logical type; empty if it has no valid one.

    A property that the logical type may have can be missing in the node.
    """
    name = node.properties.get("logicalType")
    if not isinstance(name, str):
        return ()
    if name == "decimal":
        return ("logicalType", "precision", "scale") if _is_decimal(node) else ()
    is_valid = (
        node.kind in _TYPES.get(name, ())
        or (node.kind == "fixed" and node.size == _SIZES.get(name))
        or (name, node.kind) == ("uuid", "string")
    )
    return ("logicalType",) if is_valid else ()


def _is_decimal(node: SchemaNode) -> bool:
    precision, scale = node.properties.get("precision"), node.properties.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or precision == 0:
        return False
    if node.kind == "fixed":
        return precision <= math.floor((8 * node.size - 1) * math.log10(2))
    return node.kind == "bytes"
