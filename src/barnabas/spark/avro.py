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
    """Decode the Avro payloads in the column `value` of `rows`: add the columns `record` and `error`.

    `record` is the decoded payload as a struct. `error` is the reason if it cannot be decoded, or NULL.

    Args:
        rows: any DataFrame with a binary column of payloads.
        options: `registry` (URL of the schema registry) is required, and either `schema` (the reader's
            schema, as JSON) or `subject` (whose newest schema is used). `column` names another column of
            payloads. `record` and `error` give the new columns other names.

    Raises:
        ConfigError: not exactly one of `schema` and `subject` is given, the column is missing or not binary,
            no column can hold the schema's records, or a package for Avro is missing.
        RegistryError: the registry does not answer, or the subject has no schema (`RegistryRefused`).
        SchemaError: the subject's schema is not an Avro schema.
    """
    return decode_registered(rows, "avro", **options)


def encode_avro(rows: DataFrame, schema: str, **options: Any) -> DataFrame:
    """Encode each row as an Avro record: add the column `value` with the payloads.

    Each field of the record is taken from the column of the same name.

    Args:
        rows: any DataFrame with a column for each required field of the schema.
        schema: the Avro schema as JSON. It is registered if the subject does not have it.
        options: `registry` (URL of the schema registry) and `subject` (of the schema) are required.
            `references` has the schemas that `schema` refers to. `into` is another name for the column
            `value`. `error` is the name of a column to add: the reason why the schema does not allow a row.
            Without it, such a row fails the job. `where` is a condition for rows to encode; all other rows
            get the payload NULL.

    Raises:
        ConfigError: the subject does not accept the schema, a required field has no column, or a package for
            Avro is missing.
        RegistryError: the registry does not answer.
    """
    return encode_registered(rows, "avro", schema, **options)
