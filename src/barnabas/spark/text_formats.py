"""Parses JSON, CSV, text and logs to columns. A record that cannot be parsed stays, and gets a reason."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType, StringType, StructField, StructType

from barnabas.spark.exact_fields import exact_decimal, parsed_type
from barnabas.spark.option_values import invalid_option

#: the fields that `barnabas ship` writes of every line
_LOG = "source STRING, level STRING, message STRING, timestamp STRING"

_PARSED, _CORRUPT = "_parsed", "_corrupt"


@dataclass(frozen=True)
class Decoded:
    """The result of parsing records: Spark column expressions, which have a value for each record.

    Attributes:
        columns: the parsed columns, by name.
        reason: why a record cannot be parsed; NULL for a record that can be parsed.
    """

    columns: dict[str, Column]
    reason: Column


def decode_text(
    rows: DataFrame, format: str, schema: str | StructType, options: dict[str, str]
) -> tuple[DataFrame, Decoded]:
    """Parse the column `value` of each row as JSON, CSV or text.

    Example::

        rows, decoded = decode_text(rows, "json", "id BIGINT, at TIMESTAMP", {})
        parsed = rows.where(decoded.reason.isNull()).select(decoded.columns["id"])

    Args:
        rows: a DataFrame whose column `value` is binary or a string.
        format: json, csv or text. Text has one parsed column, `value`.
        schema: the parsed columns, as in CREATE TABLE or as a StructType; not used for text.
        options: options of Spark's parser of the format.

    Returns:
        A DataFrame, and the parsed columns. They are expressions for this DataFrame only. It has all rows and
        columns of `rows`; for json and csv, it has a further column that the expressions use. A row that
        cannot be parsed is not left out: `Decoded.reason` says why, for example ``it is not JSON``.

    Raises:
        ConfigError: the schema is invalid.
    """
    value = F.col("value")
    text = value.cast("string")
    not_text = F.when(~F.is_valid_utf8(text), F.lit("it is not UTF-8"))
    if format == "text":
        return rows, Decoded({"value": text}, not_text)
    declared = parse_schema(schema) if isinstance(schema, str) else schema
    wide = [StructField(each.name, parsed_type(each.dataType)) for each in declared.fields]
    columns = [*wide, StructField(_CORRUPT, StringType())]
    options = {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = F.col(_PARSED)
    if format == "json":
        made = F.from_json(text, StructType(columns), options)
        misfit = F.when(F.try_parse_json(text).isNull(), F.lit("it is not JSON")).otherwise(
            _misfit_fields(text, parsed, declared)
        )
    else:
        made = F.from_csv(text, StructType(columns).toDDL(), options)
        misfit = F.lit(f"it is not CSV of {schema}")
    reason = (
        F.when(value.isNull(), F.lit("the value is NULL"))
        .when(not_text.isNotNull(), not_text)
        .when(F.trim(text) == "", F.lit("the value is empty"))
        .when(parsed.isNull() | parsed[_CORRUPT].isNotNull(), misfit)
    )
    if format == "json":
        reason = reason.when(~_is_alone(text, options), F.lit("something follows the JSON object"))
    found = {}
    for field in declared.fields:
        found[field.name] = parsed[field.name]
        if isinstance(field.dataType, DecimalType):
            found[field.name], misfit = exact_decimal(parsed[field.name], field.name, field.dataType)
            reason = reason.when(misfit.isNotNull(), misfit)
        if not field.nullable:
            reason = reason.when(parsed[field.name].isNull(), F.lit(f"field {field.name} is missing"))
    return _parse_once(rows, made), Decoded(found, reason)


def decode_log(rows: DataFrame) -> tuple[DataFrame, Decoded]:
    """Decode records of a topic to which `barnabas ship` writes log lines. Every record can be decoded.

    `rows` must have the columns key, value and timestamp of the records.

    Return a DataFrame, and the decoded columns as expressions for this DataFrame only. It has the rows and
    columns of `rows`, and one more column that these expressions use. The decoded columns are:

    - source: from the JSON of `barnabas ship`, or else the key of the record.
    - level: from the JSON, or else UNKNOWN.
    - message: from the JSON, or else the whole value.
    - at: the time in the JSON. If it has no time, or a time after the record's timestamp, at is the record's
      timestamp.
    - fields: the whole value as text.
    """
    text = F.make_valid_utf8(F.col("value").cast("string"))
    log = F.col(_PARSED)
    columns = {
        "source": F.coalesce(log["source"], F.col("key").cast("string")),
        "level": F.coalesce(log["level"], F.lit("UNKNOWN")),
        "message": F.coalesce(log["message"], text),
        "at": F.least(F.try_to_timestamp(log["timestamp"]), F.col("timestamp")),
        "fields": text,
    }
    return _parse_once(rows, F.from_json(text, _LOG)), Decoded(columns, F.lit(None).cast("string"))


def _parse_once(rows: DataFrame, made: Column) -> DataFrame:
    """Return `rows` with the new column `_PARSED`, so that Spark parses each record once.

    `made` is the expression that parses a record of `rows`; its value becomes the column.

    Spark copies the expression of a column to each place that uses the column, and would parse a record
    several times. Spark does not copy an exploded column. So this function explodes an array that contains
    only `made`. A query then takes a third of the time.
    """
    return rows.select("*", F.explode(F.array(made)).alias(_PARSED))


def parse_schema(schema: str) -> StructType:
    """Parse a schema with columns as in CREATE TABLE. Raises ConfigError if it is invalid."""
    try:
        return StructType.fromDDL(schema)
    except Exception as error:
        first = str(error).strip().splitlines()[0]
        raise invalid_option(
            "schema", schema, f"write columns as `id BIGINT, at TIMESTAMP` ({first})"
        ) from None


def _is_alone(text: Column, options: dict[str, str]) -> Column:
    """Return a boolean column: true if no text follows the JSON object in `text`.

    Spark's parser stops at the end of the object. So the column parses the text in brackets, as an array, and
    counts the elements.
    """
    listed = F.from_json(F.concat(F.lit("["), text, F.lit("]")), "array<struct<_: string>>", options)
    return F.coalesce(F.size(listed) == 1, F.lit(False))


def _misfit_fields(text: Column, parsed: Column, declared: StructType) -> Column:
    """Return a column with the reason why a value does not fit the schema `declared`. It is never NULL.

    Use the reason only for values that Spark cannot parse. `text` has the values as text, and `parsed` the
    structs that Spark has parsed from `text`. The reason names each field whose value has not the declared
    type. If there is no such field, the reason is "it is not a JSON object".
    """
    wrong = [
        F.when(
            parsed[field.name].isNull() & F.get_json_object(text, f"$['{field.name}']").isNotNull(),
            F.lit(f"field {field.name} is not {field.dataType.simpleString()}"),
        )
        for field in declared.fields
    ]
    named = F.concat_ws(", ", *wrong)
    return F.when(named != "", named).otherwise(F.lit("it is not a JSON object"))
