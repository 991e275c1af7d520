"""The columns of a topic as a DataFrame.

A read has ``key`` and ``value`` (both binary), ``topic``, ``partition``, ``offset``, ``timestamp`` and
``timestampType`` (0 for the producer's timestamp, 1 for the broker's). With ``includeHeaders`` it also has
``headers``, NULL for a record without headers. ``spark.read.schema(...)`` can select some of these columns.

A write needs ``value``. It also uses ``key``, ``headers``, ``topic`` and ``partition`` if the DataFrame has
these columns. It ignores other columns.
"""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from barnabas.base.errors import ConfigError

_SPARK_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_SPARK_COLUMNS = [
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
]

#: the allowed types of each written column; error messages suggest the first of them
_WRITABLE: dict[str, tuple[type[DataType], ...]] = {
    "value": (BinaryType, StringType),
    "key": (BinaryType, StringType),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "headers": (ArrayType,),
}


def read_schema(include_headers: bool) -> StructType:
    """Return the columns of ``load()``, unless ``schema()`` selects fewer.

    They have the column ``headers`` only if `include_headers` is true.
    """
    headers = [StructField("headers", _SPARK_HEADERS)] if include_headers else []
    return StructType(_SPARK_COLUMNS + headers)


def column_names(include_headers: bool) -> tuple[str, ...]:
    """Return the names of the columns of `read_schema`."""
    return tuple(read_schema(include_headers).names)


def chosen_columns(schema: StructType) -> tuple[str, ...]:
    """Return the names of the columns that a job selects with ``schema()``.

    Raises:
        ConfigError: a topic has no such column, or its type is different.
    """
    types = {each.name: each.dataType for each in read_schema(include_headers=True).fields}
    for each in schema.fields:
        if types.get(each.name) != each.dataType:
            there = ", ".join(f"{name} {kind.simpleString()}" for name, kind in types.items())
            raise ConfigError(
                f"a topic has no column {each.name} {each.dataType.simpleString()}: choose in .schema(...) "
                f"from {there}; take value apart with from_json"
            )
    return tuple(schema.names)


def check_writable(schema: StructType, topic_option: str | None) -> None:
    """Check that rows with the columns of `schema` can be written as records.

    `topic_option` is the option topic; if it is None, the rows need a column topic.

    Raises:
        ConfigError: a column is missing, or has a type that a record cannot have.
    """
    types = {field.name: field.dataType for field in schema.fields}
    if "value" not in types:
        raise ConfigError(
            f"column value is missing (there are: {', '.join(types)}): name the column to send value, "
            "such as with selectExpr('to_json(struct(*)) AS value')"
        )
    if topic_option is None and "topic" not in types:
        raise ConfigError(
            "option topic is missing: set it, or add a column topic that names each record's topic"
        )
    for name, allowed in _WRITABLE.items():
        found = types.get(name)
        if found is None:
            continue
        if not isinstance(found, allowed) or (name == "headers" and not _are_headers(found)):
            wanted = _SPARK_HEADERS.simpleString() if name == "headers" else allowed[0].typeName()
            raise ConfigError(f"column {name} is {found.simpleString()}: cast it to {wanted}")


def _are_headers(found: DataType) -> bool:
    element = found.elementType if isinstance(found, ArrayType) else None
    if not isinstance(element, StructType) or element.fieldNames() != ["key", "value"]:
        return False
    key, value = element.fields
    return isinstance(key.dataType, StringType) and isinstance(value.dataType, BinaryType)
