"""Sinks: how a streaming query that writes its rows is begun."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from pyspark.sql import DataFrame
from pyspark.sql.streaming import DataStreamWriter

from barnabas.pipelines.formats import encode
from barnabas.pipelines.options import SinkOptions
from barnabas.pipelines.sources import ORIGIN
from barnabas.spark.option_values import refuse


def writer_to(
    rows: DataFrame, options: SinkOptions, client: dict[str, str], registry: str
) -> DataStreamWriter:
    """A writer of `rows`, wanting but its checkpoint and trigger; `client` and `registry` as for sources.

    Raises:
        ConfigError: the columns do not fit the sink.
    """
    rows = rows.drop(ORIGIN)
    if options.kind == "topic":
        return _to_topic(encode(rows, options, registry), options, client)
    if options.kind == "console":
        shown = {"truncate": "false", **options.options}
        return rows.writeStream.format("console").outputMode(options.mode).options(**shown)
    if options.kind == "parquet":
        writer = rows.writeStream.format("parquet").option("path", options.parquet).options(**options.options)
        return writer.partitionBy(*options.partitions) if options.partitions else writer
    return rows.writeStream.outputMode(options.mode).foreachBatch(_table_writer(options))


def _table_writer(options: SinkOptions) -> Callable[[DataFrame, int], None]:
    """What writes a batch to PostgreSQL or Delta; the driver needs the package, and only for such a sink."""
    try:
        tables = import_module(f"barnabas.pipelines.{options.kind}")
    except ModuleNotFoundError as error:
        cure = f"pip install 'barnabas[{options.kind}]'"
        raise refuse(
            options.kind, getattr(options, options.kind), f"{error.name} is missing: {cure}"
        ) from None

    def write(batch: DataFrame, number: int) -> None:
        # read even when it was written before: operators before the sink keep their state only then
        tables.write_batch(options, batch.toArrow(), _query_id(batch), number)

    return write


def _to_topic(records: DataFrame, options: SinkOptions, client: dict[str, str]) -> DataStreamWriter:
    once = options.delivery == "exactly-once"
    given = {**client, **options.options, "topic": options.topic}
    if once:
        given["barnabas.delivery"] = options.delivery
    if options.mode != "update":
        return records.writeStream.format("barnabas").options(**given).outputMode(options.mode)

    # Spark refuses output mode update to Python data sources, but hands a batch's updates to a function
    def write(batch: DataFrame, number: int) -> None:
        named = {"barnabas.sinkId": _query_id(batch), "barnabas.batchId": str(number)} if once else {}
        batch.write.format("barnabas").options(**given, **named).mode("append").save()

    return records.writeStream.outputMode("update").foreachBatch(write)


def _query_id(batch: DataFrame) -> str:
    """What numbers batches: it lives as long as the checkpoint, and no longer."""
    name: str = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    return name
