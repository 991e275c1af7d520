"""Encodes and decodes the formats of the pipelines except raw, for jobs that use Spark without a pipeline.

    from barnabas.spark.formats import dead_letters, decode, encode

    orders = decode(topic_rows, "json", schema="id BIGINT NOT NULL, price DOUBLE")
    good = orders.where("error IS NULL").select("record.*")
    bad = dead_letters(orders)          # for a topic of their own, each with its reason
    records = encode(good, "avro", key=["id"], registry="http://127.0.0.1:8081", subject="dear-value")

| format | decode needs | encode needs | packages |
|---|---|---|---|
| json, csv | schema: columns as in CREATE TABLE | | |
| text | | the column value | |
| log | | (there is no encoder) | |
| avro, jsonschema | registry; schema or subject | registry and subject | `barnabas[registry]` |
| protobuf | registry; schema or subject | registry and subject | |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from barnabas.base.errors import ConfigError
from barnabas.client.schemas.registered import Reference
from barnabas.spark.dead_letters import dead_letters
from barnabas.spark.debezium import DELETED, decode_debezium_json, unwrap
from barnabas.spark.exact_fields import TIME_UNITS
from barnabas.spark.option_values import invalid_option
from barnabas.spark.registered import REGISTERED, decode_registered, encode_registered
from barnabas.spark.text_formats import Decoded, decode_log, decode_text

__all__ = ["DELETED", "READABLE", "WRITABLE", "dead_letters", "decode", "decode_columns", "encode"]

READABLE = ("json", "csv", "text", "log", *REGISTERED)
WRITABLE = ("json", "csv", "text", *REGISTERED)
_ENVELOPES = ("", "debezium")

_REGISTERED, _REGISTERED_ERROR = "_registered", "_registered_error"
_TEXT_PARSED = "_parsed"


def decode(
    rows: DataFrame,
    format: str,
    *,
    record: str = "record",
    error: str = "error",
    **options: Any,
) -> DataFrame:
    """Decode the column value of `rows`: add the columns `record` and `error`.

    `record` is the decoded value as a struct, and `error` the reason if it cannot be decoded. In each row,
    exactly one of the two is NULL. A NULL value cannot be decoded, except in the formats text and log.
    `options` are the keyword arguments of `decode_columns`.

    Raises:
        ConfigError: an option is not allowed, or a package is missing.
        RegistryError, SchemaError: the registry has no such schema, or does not answer.
    """
    rows, decoded = decode_columns(rows, format, **options)
    made = F.struct(*(column.alias(name) for name, column in decoded.columns.items()))
    return rows.withColumns({record: F.when(decoded.reason.isNull(), made), error: decoded.reason}).drop(
        _TEXT_PARSED, _REGISTERED, _REGISTERED_ERROR
    )


def decode_columns(
    rows: DataFrame,
    format: str,
    *,
    schema: str = "",
    registry: str = "",
    subject: str = "",
    message: str = "",
    envelope: str = "",
    time_unit: str = "",
    options: dict[str, str] | None = None,
) -> tuple[DataFrame, Decoded]:
    """Decode the column value of `rows`.

    Return a DataFrame, and the decoded columns as expressions over this DataFrame. The DataFrame has the
    columns of `rows`, and columns that these expressions need.

    Args:
        format: one of `READABLE`.
        schema: for json and csv, columns as in CREATE TABLE; those with NOT NULL must exist in each record.
            For avro and jsonschema, the reader's schema as JSON. For protobuf, the reader's schema as a
            FileDescriptorProto in base64. If the schema of these three formats is empty, the newest schema of
            `subject` applies. text and log have no schema.
        registry: URL of the schema registry, for avro, jsonschema and protobuf.
        subject: subject of the schema, for avro, jsonschema and protobuf.
        message: for protobuf, the name of the message; by default the first one of the schema.
        envelope: `debezium` for Debezium's change events. The columns are then those of the table, and
            `_deleted`. Records without a value, which follow deletions, are left out.
        time_unit: for debezium as json: ms, us or ns, the unit of times that are numbers, if the event has no
            schema with the unit.
        options: Spark's own options for json and csv.

    Raises:
        ConfigError: an option is not allowed, or a package is missing.
        RegistryError, SchemaError: the registry has no such schema, or does not answer.
    """
    if format not in READABLE:
        raise invalid_option("format", format, f"choose from {', '.join(READABLE)}")
    if envelope not in _ENVELOPES or (envelope and format not in ("json", *REGISTERED)):
        allowed = f"it is debezium, of json, {', '.join(REGISTERED)}"
        raise invalid_option("envelope", envelope, allowed)
    if time_unit not in ("", *TIME_UNITS):
        raise invalid_option("time_unit", time_unit, f"choose from {', '.join(TIME_UNITS)}")
    if envelope:
        rows = rows.where(F.col("value").isNotNull())
    if format == "log":
        return decode_log(rows)
    if format in REGISTERED:
        return _decode_registered(rows, format, schema, registry, subject, message, envelope)
    if format != "text" and not schema:
        raise ConfigError(f"option schema is missing: {format} needs one, as `id BIGINT, at TIMESTAMP`")
    if envelope:
        return decode_debezium_json(rows, schema, options or {}, time_unit)
    return decode_text(rows, format, schema, options or {})


def encode(
    rows: DataFrame,
    format: str = "json",
    *,
    key: Sequence[str] = (),
    schema: str = "",
    registry: str = "",
    subject: str = "",
    message: str = "",
    references: Sequence[Reference] = (),
    keep: Sequence[str] = (),
    error: str = "",
) -> DataFrame:
    """Encode rows as records, with the columns that the data source writes.

    The result has the column `value`, and `key` if `key` names columns. One key column becomes text, unless
    it is binary. Several key columns become a JSON object. If the column `_deleted` of a row is true, the
    value is NULL: a tombstone. The column `_deleted` itself is not written.

    Args:
        format: json or csv, of all columns; text, of the column value; or avro, jsonschema or protobuf.
        schema: for the last three formats, the schema, which is registered under `subject` if necessary. If
            it is empty, the newest schema of `subject` applies.
        registry: for the last three formats, the URL of the schema registry.
        subject: for the last three formats, the name under which the registry has the schema.
        message: for protobuf, the name of the message; by default the first one of the schema.
        references: schemas that `schema` refers to.
        keep: columns that are not part of the record, and stay in the result.
        error: for avro, jsonschema and protobuf, the name of a column to add. If the schema does not allow a
            row, this column has the reason, and the value is the row as JSON. Without this column, such a row
            fails the job.

    Raises:
        ConfigError: an option is not allowed, or the columns do not fit the format.
        RegistryError, SchemaError: the registry has no such schema, or does not answer.
    """
    if format not in WRITABLE:
        raise invalid_option("format", format, f"choose from {', '.join(WRITABLE)}")
    names = [name for name in rows.columns if name not in (DELETED, *keep)]
    deletes = DELETED in rows.columns
    if not set(key) <= set(names):
        raise invalid_option("key", ",".join(key), f"the columns are {', '.join(names)}")
    if deletes and not key:
        raise invalid_option(
            "key", "", f"a tombstone for a row with {DELETED} needs a key: name the key's columns"
        )
    row = F.struct(*(F.col(f"`{name}`") for name in names))
    if format == "text":
        if "value" not in names:
            raise ConfigError(f"format text writes the column value; there are {', '.join(names)}")
        value = rows["value"].cast("string")
    elif format in REGISTERED:
        rows = encode_registered(
            rows,
            format,
            schema or None,
            registry=registry,
            subject=subject,
            message=message,
            references=references,
            into=_REGISTERED,
            error=error,
            where=~_is_deleted(rows) if deletes else None,
        )
        value = rows[_REGISTERED]
        if error:
            value = F.when(rows[error].isNull(), value).otherwise(F.to_json(row).cast("binary"))
            keep = [*keep, error]
    else:
        value = F.to_json(row) if format == "json" else F.to_csv(row)
    if deletes:
        value = F.when(~_is_deleted(rows), value)
    columns = [value.alias("value")]
    if key:
        columns.append(key_of(rows, key).alias("key"))
    return rows.select(*columns, *keep)


def _decode_registered(
    rows: DataFrame, format: str, schema: str, registry: str, subject: str, message: str, envelope: str
) -> tuple[DataFrame, Decoded]:
    if not registry:
        raise ConfigError(f"option registry is missing: {format} needs the registry's URL")
    rows = decode_registered(
        rows,
        format,
        registry=registry,
        schema=schema or None,
        subject=None if schema else subject,
        message=message,
        record=_REGISTERED,
        error=_REGISTERED_ERROR,
    )
    found = rows.schema[_REGISTERED].dataType
    reason = F.when(F.col("value").isNull(), F.lit("the value is NULL")).otherwise(F.col(_REGISTERED_ERROR))
    decoded = Decoded({name: F.col(_REGISTERED)[name] for name in found.fieldNames()}, reason)
    return rows, unwrap(decoded, found) if envelope else decoded


def _is_deleted(rows: DataFrame) -> Column:
    return F.coalesce(rows[DELETED], F.lit(False))


def key_of(rows: DataFrame, names: Sequence[str]) -> Column:
    """Return a column with the key of each row, made from the columns `names` (at least one).

    Several columns become a JSON object, as text. A single column becomes plain text, or stays binary. A
    plain key is not in JSON quotes, so that any client can make the same key.
    """
    if len(names) > 1:
        return F.to_json(F.struct(*(rows[f"`{name}`"] for name in names)))
    (name,) = names
    column = rows[f"`{name}`"]
    return column if dict(rows.dtypes)[name] == "binary" else column.cast("string")
