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
    """Decode the Avro payloads in the column value of `rows`: add the columns `record` and `error`.

    `record` is the decoded payload as a struct, and `error` the reason if it cannot be decoded.

    `options` are the keyword arguments of `barnabas.spark.registered.decode_registered`, such as `registry`
    and `subject`, except `format`. The option `column` names another column of payloads.
    """
    return decode_registered(rows, "avro", **options)


def encode_avro(rows: DataFrame, schema: str, **options: Any) -> DataFrame:
    """Encode each row as an Avro record: add the column `value` with the payloads.

    Each field of the record is taken from the column of the same name. `schema` is the Avro schema as JSON;
    it is registered if necessary.

    `options` are the keyword arguments of `barnabas.spark.registered.encode_registered`, such as `registry`
    and `subject`, except `format`. It raises the same errors as that function.
    """
    return encode_registered(rows, "avro", schema, **options)
