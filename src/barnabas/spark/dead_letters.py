"""Records that cannot be understood, on their way to a dead-letter topic: as they came, and why."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, StringType, StructField, StructType

#: The headers of a dead letter begin so; the names after it are those of KIP-1034.
PREFIX = "__barnabas.errors."

_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


def letters(rows: DataFrame, value: Column, reason: Column, origin: Iterable[str]) -> DataFrame:
    """The rows of which `reason` is not NULL, as the data source writes them.

    `value` and, where there are such columns, `key` and `headers` are as they came. Further headers say why
    (``__barnabas.errors.message``) and hold the columns of `origin` as text, such as
    ``__barnabas.errors.offset``.
    """
    said = [_header("message", reason), *(_header(name, F.col(name).cast("string")) for name in origin)]
    headers = F.array(*said).cast(_HEADERS)
    if "headers" in rows.columns:
        headers = F.concat(F.coalesce("headers", F.array().cast(_HEADERS)), headers)
    key = F.col("key") if "key" in rows.columns else F.lit(None).cast("binary")
    return rows.where(reason.isNotNull()).select(
        key.alias("key"), value.alias("value"), headers.alias("headers")
    )


def dead_letters(decoded: DataFrame, *, column: str = "value", error: str = "error") -> DataFrame:
    """The rows of a decoded DataFrame that have an error, ready to be written to a topic for them.

    They are as `letters` makes them, with the reason and where the record lies.
    """
    origin = [name for name in ("topic", "partition", "offset", "file") if name in decoded.columns]
    return letters(decoded, F.col(column), F.col(error), origin)


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(PREFIX + name).alias("key"), value.cast("binary").alias("value"))
