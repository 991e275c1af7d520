"""Encodes and decodes Avro with schemas of a registry. `barnabas.spark.formats` does so for all formats.

    from barnabas.spark.avro import dead_letters, decode_avro, encode_avro

    orders = decode_avro(topic_rows, registry="http://127.0.0.1:8081", subject="orders-value")
    good = orders.where("error IS NULL").select("record.*")
    bad = dead_letters(orders)          # to a topic of their own, each with its reason

The driver and the executors need the extras `spark` and `registry`.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from barnabas.spark.dead_letters import dead_letters
from barnabas.spark.registered import decode_registered, encode_registered

__all__ = ["dead_letters", "decode_avro", "encode_avro"]


def decode_avro(rows: DataFrame, **options: Any) -> DataFrame:
    """Decode Avro payloads: add the columns `record` and `error`.

    `options` are those of `barnabas.spark.registered.decode_registered`.
    """
    return decode_registered(rows, "avro", **options)


def encode_avro(rows: DataFrame, schema: str, **options: Any) -> DataFrame:
    """Encode rows as Avro: add the column `value` with the payloads.

    `schema` is the Avro schema as JSON; it is registered if necessary.

    `options` are those of `barnabas.spark.registered.encode_registered`.
    """
    return encode_registered(rows, "avro", schema, **options)
