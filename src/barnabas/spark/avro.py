"""Registered Avro in DataFrames; `barnabas.spark.formats` has all formats behind one function.

    from barnabas.spark.avro import dead_letters, decode_avro, encode_avro

    orders = decode_avro(topic_rows, registry="http://127.0.0.1:8081", subject="orders-value")
    good = orders.where("error IS NULL").select("record.*")
    bad = dead_letters(orders)          # to a topic of their own, each with its reason

It needs the extras `spark` and `registry`, on the executors too.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from barnabas.spark.dead_letters import dead_letters
from barnabas.spark.registered import decode_registered, encode_registered

__all__ = ["dead_letters", "decode_avro", "encode_avro"]


def decode_avro(
    rows: DataFrame,
    *,
    registry: str,
    schema: str | None = None,
    subject: str | None = None,
    column: str = "value",
    record: str = "record",
    error: str = "error",
) -> DataFrame:
    """`decode_registered` of Avro: the columns `record` and `error` of the payloads in `column`."""
    return decode_registered(
        rows,
        "avro",
        registry=registry,
        schema=schema,
        subject=subject,
        column=column,
        record=record,
        error=error,
    )


def encode_avro(
    rows: DataFrame, schema: str, *, registry: str, subject: str, into: str = "value"
) -> DataFrame:
    """`encode_registered` of Avro: the column `into` with each row as a payload."""
    return encode_registered(rows, "avro", schema, registry=registry, subject=subject, into=into)
