"""The columns of a topic: those that can be written, and the equality of Arrow's and Spark's schemas."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from barnabas.base.errors import ConfigError
from barnabas.spark.arrow import arrow_schema
from barnabas.spark.batch_reader import TopicReader
from barnabas.spark.columns import check_writable, column_names, read_schema
from barnabas.spark.options import ReadOptions

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


def columns(**types: object) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


@pytest.mark.parametrize("headers", [False, True])
def test_arrow_batches_have_the_schema_that_spark_expects(headers: bool) -> None:
    assert arrow_schema(column_names(headers)) == to_arrow_schema(read_schema(headers), timezone="UTC")


def test_all_columns_of_a_record_may_be_written_and_others_ride_along_unsent() -> None:
    check_writable(
        columns(
            value=StringType(),
            key=BinaryType(),
            topic=StringType(),
            partition=IntegerType(),
            headers=HEADERS,
            id=LongType(),
        ),
        None,
    )
    check_writable(columns(value=BinaryType()), "topic")


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (columns(key=StringType()), "column value is missing"),
        (columns(value=StringType()), "option topic is missing"),
        (columns(value=LongType(), topic=StringType()), "column value is bigint: cast it to binary"),
        (columns(value=StringType(), topic=LongType()), "column topic is bigint: cast it to string"),
        (
            columns(value=StringType(), topic=StringType(), headers=ArrayType(StringType())),
            "column headers is",
        ),
    ],
)
def test_a_column_that_no_record_can_hold_is_refused(schema: StructType, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_writable(schema, None)


def test_a_reader_travels_to_executors() -> None:
    options = ReadOptions.parse({"kafka.bootstrap.servers": "a:1", "subscribe": "t"}, streaming=False)
    assert pickle.loads(pickle.dumps(TopicReader(options)))._options == options
