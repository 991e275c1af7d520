"""Decodes Debezium's change events: each event becomes the row after the change, or the deleted row.

An event has the field ``op``. For c (create), r (read) and u (update), the row is ``after``. For d (delete),
the deleted row is ``before``. In Kafka Connect's JSON with schemas, the event is the ``payload``. Source:
Debezium's documentation of its connectors, "Data change events".
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from barnabas.base.errors import ConfigError
from barnabas.spark.exact_fields import UNIT_OF_TYPE, epoch_time, exact_decimal, parsed_type
from barnabas.spark.text_formats import Decoded, decode_text, parse_schema

#: The part of Kafka Connect's ``schema`` (beside ``payload``) that has the semantic types of columns.
_FIELD = StructType([StructField("field", StringType()), StructField("name", StringType())])
_SIDE = StructType([StructField("field", StringType()), StructField("fields", ArrayType(_FIELD))])
_SCHEMA = StructField("schema", StructType([StructField("fields", ArrayType(_SIDE))]))

#: The boolean column that is true for a deleted row. Sinks with a key delete the row with this key.
DELETED = "_deleted"


def decode_debezium_json(
    rows: DataFrame, schema: str, options: dict[str, str], time_unit: str = ""
) -> tuple[DataFrame, Decoded]:
    """Decode change events in JSON from the column value of `rows`.

    Return a DataFrame, and a `Decoded` with expressions over this DataFrame. The DataFrame has the columns of
    `rows`, and columns that these expressions need. The `Decoded` has the columns of the changed table, the
    column `DELETED`, and the reason why an event cannot be decoded.

    Args:
        schema: the columns of the table, as in CREATE TABLE.
        options: options of Spark's JSON parser.
        time_unit: ms, us or ns: the unit of numbers for TIMESTAMP columns, if the event has no schema with
            the unit. Without any unit, such a number cannot be decoded.

    Raises:
        ConfigError: the schema is invalid.
    """
    table = parse_schema(schema)
    row = StructType([StructField(each.name, _parsed_type(each.dataType)) for each in table.fields])
    event = [StructField("before", row), StructField("after", row), StructField("op", StringType())]
    rows, decoded = decode_text(
        rows, "json", StructType([*event, _SCHEMA, StructField("payload", StructType(event))]), options
    )
    payload = decoded.columns["payload"]
    before, after, op = (
        F.when(payload.isNotNull(), payload[name]).otherwise(decoded.columns[name])
        for name in ("before", "after", "op")
    )
    made = _changes(decoded.reason, before, after, op, table.fieldNames())
    reason = made.reason
    columns = dict(made.columns)
    for each in table.fields:
        misfit = None
        if isinstance(each.dataType, DecimalType):
            columns[each.name], misfit = exact_decimal(columns[each.name], each.name, each.dataType)
        elif isinstance(each.dataType, DateType | TimestampType):
            unit = F.coalesce(_unit(decoded.columns["schema"], each.name), F.lit(time_unit or None))
            columns[each.name], misfit = epoch_time(columns[each.name], each.name, each.dataType, unit)
        if misfit is not None:
            reason = reason.when(misfit.isNotNull(), misfit)
        if not each.nullable:  # of a row that is gone, a database may give the key only
            lacking = (op != "d") & after[each.name].isNull()
            reason = reason.when(lacking, F.lit(f"field {each.name} is missing"))
    return rows, replace(made, columns=columns, reason=reason)


def _parsed_type(declared: DataType) -> DataType:
    """Return the type with which Spark parses a column of type `declared`.

    Dates and times are parsed as text, because numbers can have different units.
    """
    return StringType() if isinstance(declared, DateType | TimestampType) else parsed_type(declared)


def _unit(schema: Column, name: str) -> Column:
    """Return the unit of the times in the table's column `name`: ms, us, ns, or d for days.

    `schema` is the column with the event's schema. The result is NULL if this schema has no unit.
    """
    rows = F.filter(schema["fields"], lambda side: side["field"].isin("before", "after"))
    fields = F.flatten(F.transform(rows, lambda side: side["fields"]))
    kind = F.get(F.filter(fields, lambda field: field["field"] == name), F.lit(0))["name"]
    units = [F.lit(text) for pair in UNIT_OF_TYPE.items() for text in pair]
    return F.try_element_at(F.create_map(*units), kind)


def unwrap(decoded: Decoded, record: StructType) -> Decoded:
    """Convert decoded change events to rows of the table. `record` is the schema of the events.

    Raises:
        ConfigError: the events are not Debezium's.
    """
    row = record["after"].dataType if "after" in record.fieldNames() else None
    if not isinstance(row, StructType) or not {"before", "op"} <= set(record.fieldNames()):
        raise ConfigError(
            f"envelope=debezium: events have before, after and op; the schema has {', '.join(record.names)}"
        )
    before, after, op = (decoded.columns[name] for name in ("before", "after", "op"))
    return _changes(decoded.reason, before, after, op, row.fieldNames())


def _changes(reason: Column, before: Column, after: Column, op: Column, names: list[str]) -> Decoded:
    deleted = op == "d"
    columns = {name: F.when(deleted, before[name]).otherwise(after[name]) for name in names}
    why = (
        F.when(reason.isNotNull(), reason)
        .when(op.isNull(), F.lit("it is not a change event of Debezium: it has no op"))
        .when(~op.isin("c", "r", "u", "d"), F.concat(F.lit("no row can say a change of op "), op))
        .when(deleted & before.isNull(), F.lit("it deletes a row and does not say which: before is NULL"))
        .when(~deleted & after.isNull(), F.lit("it changes a row and does not say to what: after is NULL"))
    )
    return Decoded({**columns, DELETED: deleted}, why)
