"""Makes rows for a dead-letter topic from undecodable records and rejected rows, each with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, StringType, StructField, StructType

from barnabas.base.errors import BarnabasError

#: The prefix of a dead letter's headers. The rest of each name is as in KIP-1034.
PREFIX = "__barnabas.errors."

_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


class TooManyRejectedError(BarnabasError):
    """One batch has more rows for the dead-letter topic than the limit allows."""


def check_rejected(count: int, limit: int, topic: str, reason: str = "") -> None:
    """Raise TooManyRejectedError if `count`, the number of dead letters of a batch, exceeds `limit`.

    `topic` is the dead-letter topic, and `reason` is the reason of the last dead letter. The error's text
    has both.
    """
    if count > limit:
        last = f"; the last reason: {reason}" if reason else ""
        raise TooManyRejectedError(
            f"more than {limit} rows of one batch would go to the dead-letter topic {topic} "
            f"(dead_letter_limit): correct the cause, or raise the limit{last}"
        )


def letters(rows: DataFrame, value: Column, reason: Column, origin: Iterable[str]) -> DataFrame:
    """Return the rows whose `reason` is not NULL, as records for a dead-letter topic.

    A record has `value`, and the row's `key` and `headers` if these columns exist. Additional headers have
    the reason (``__barnabas.errors.message``) and the columns of `origin` as text, for example
    ``__barnabas.errors.offset``.
    """
    named = {"message": reason, **{name: F.col(name) for name in origin}}
    key = F.col("key") if "key" in rows.columns else F.lit(None).cast("binary")
    return rows.where(reason.isNotNull()).select(
        key.alias("key"), value.alias("value"), headers_of(rows, named).alias("headers")
    )


def headers_of(rows: DataFrame, named: Mapping[str, Column]) -> Column:
    """Return a column with the headers of dead letters for `rows`.

    The headers of a row come first, if `rows` has the column headers. Then each entry of `named` becomes the
    header ``__barnabas.errors.NAME``, unless its value is NULL.
    """
    said = [F.when(value.isNotNull(), _header(name, value.cast("string"))) for name, value in named.items()]
    added = F.filter(F.array(*said), lambda header: header.isNotNull()).cast(_HEADERS)
    if "headers" not in rows.columns:
        return added
    return F.concat(F.coalesce("headers", F.array().cast(_HEADERS)), added)


def dead_letters(decoded: DataFrame, *, column: str = "value", error: str = "error") -> DataFrame:
    """Return the rows of a decoded DataFrame that have an error, as rows for a dead-letter topic.

    `column` names the column with the payloads, and `error` the column with the reasons. The headers of the
    result contain the reason, and the values of the columns topic, partition, offset and file, if they exist.
    """
    origin = [name for name in ("topic", "partition", "offset", "file") if name in decoded.columns]
    return letters(decoded, F.col(column), F.col(error), origin)


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(PREFIX + name).alias("key"), value.cast("binary").alias("value"))
