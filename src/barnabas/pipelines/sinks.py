"""Sinks: how a streaming query that writes its rows is begun, and how rows that are no stream are written."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter

from barnabas.base.installation import pip_install
from barnabas.client.schemas.registered import Reference
from barnabas.pipelines.options import WRITTEN_BY_EXECUTORS, SinkOptions
from barnabas.pipelines.sink_letters import DeadLetters, Rejections
from barnabas.pipelines.sources import ORIGIN
from barnabas.pipelines.status import ROWS_REJECTED
from barnabas.pipelines.topic_letters import (
    REJECTION,
    limits_of,
    mark_rejected,
    route,
    writer_options,
)
from barnabas.spark.debezium import DELETED
from barnabas.spark.formats import encode
from barnabas.spark.option_values import refuse
from barnabas.spark.options import WriteOptions


def writer_to(
    rows: DataFrame, options: SinkOptions, client: dict[str, str], registry: str, rejections: Rejections
) -> DataStreamWriter:
    """A writer of `rows`, wanting but its checkpoint and trigger; `client` and `registry` as for sources.

    Rows that the sink rejects are counted in `rejections`, unless Spark counts them.

    Raises:
        ConfigError: the columns do not fit the sink.
    """
    rows = _with_origin(rows, options)
    if options.kind == "topic":
        return _to_topic(_records(rows, options, registry), options, client, rejections)
    if options.kind == "console":
        shown = {"truncate": "false", **options.options}
        return rows.writeStream.format("console").outputMode(options.mode).options(**shown)
    if options.kind == "parquet":
        writer = rows.writeStream.format("parquet").option("path", options.parquet).options(**options.options)
        writer = writer.outputMode(options.mode)
        return writer.partitionBy(*options.partitions) if options.partitions else writer
    _check_deletions(rows, options)
    tables = _tables(options)
    letters = _letters(rows, options, client, rejections)

    def write(batch: DataFrame, number: int) -> None:
        # read even when it was written before: operators before the sink keep their state only then
        tables.write_batch(options, _handed(options, batch), _query_id(batch), number, *letters)

    return rows.writeStream.outputMode(options.mode).foreachBatch(write)


def static_writer(
    rows: DataFrame,
    options: SinkOptions,
    client: dict[str, str],
    registry: str,
    rejections: Rejections,
    name: str,
    number: int = 0,
) -> Callable[[], None]:
    """What writes rows that are no stream; exactly once, where the sink does, however often with this `name`.

    Of several batches of that name `number` tells which; it must rise. Rows that the sink rejects are counted
    in `rejections`.

    Raises:
        ConfigError: the columns do not fit the sink.
    """
    rows = _with_origin(rows, options)
    if options.kind == "topic":
        given = {**_topic_options(options, client), **_numbered(options, name, number)}
        WriteOptions.parse(given, streaming=False)  # what is wrong is told now, and not by a job
        return partial(_save, _records(rows, options, registry), options, given, rejections)
    if options.kind == "console":
        shown = {"numRows": "20", "truncate": "false", **options.options}
        return partial(rows.show, int(shown["numRows"]), truncate=shown["truncate"].lower() == "true")
    if options.kind == "parquet":
        writer = rows.write.mode("overwrite" if options.mode == "complete" else "append")
        return partial(
            writer.options(**options.options).partitionBy(*options.partitions).parquet, options.parquet
        )
    _check_deletions(rows, options)
    tables = _tables(options)
    letters = _letters(rows, options, client, rejections)
    return lambda: tables.write_batch(options, _handed(options, rows), name, number, *letters)


def _with_origin(rows: DataFrame, options: SinkOptions) -> DataFrame:
    """`rows` as the sink takes them; dead letters name the record that a row was read from."""
    return rows if options.dead_letter else rows.drop(ORIGIN)


def _letters(
    rows: DataFrame, options: SinkOptions, client: dict[str, str], rejections: Rejections
) -> list[DeadLetters]:
    """The sink's dead letters, if it has any."""
    return [DeadLetters(rows.sparkSession, options, client, rejections)] if options.dead_letter else []


def _handed(options: SinkOptions, rows: DataFrame) -> Any:
    """The rows of a batch as its writer takes it: a plan for the executors, or the rows themselves."""
    return rows if options.kind in WRITTEN_BY_EXECUTORS else rows.toArrow()


def _check_deletions(rows: DataFrame, options: SinkOptions) -> None:
    """A table loses rows by their key."""
    if options.kind in ("postgres", "jdbc") and DELETED in rows.columns and not options.keys:
        raise refuse("key", "", f"rows are deleted by it ({DELETED}): name the key's columns")


def _tables(options: SinkOptions) -> ModuleType:
    """What writes to a table of this kind; the driver needs the package, and only for such a sink."""
    try:
        return import_module(f"barnabas.pipelines.{options.kind}")
    except ModuleNotFoundError as error:
        cure = pip_install(options.kind)
        raise refuse(
            options.kind, getattr(options, options.kind), f"{error.name} is missing: {cure}"
        ) from None


def _records(rows: DataFrame, options: SinkOptions, registry: str) -> DataFrame:
    """Rows as the data source writes them. Raises ConfigError when the columns do not fit the format."""
    if options.format == "raw":
        return rows if len(options.topics) == 1 else _only_to(options.topics, rows)
    return encode(
        rows,
        options.format,
        key=options.keys,
        schema=options.schema,
        registry=registry,
        subject=options.subject,
        message=options.message,
        references=[Reference.parse(*each) for each in options.references.items()],
        keep=[ORIGIN] if ORIGIN in rows.columns else [],
    )


def _only_to(topics: list[str], rows: DataFrame) -> DataFrame:
    """`rows` to one of `topics` each; a name that is none of them is a slip, not a new topic."""
    if "topic" not in rows.columns:
        raise refuse("topic", ",".join(topics), "the column topic has to say which, and there is none")
    topic = F.col("topic")
    slip = F.concat(
        F.lit("column topic is "),
        F.coalesce(topic, F.lit("NULL")),
        F.lit(f": choose from {', '.join(topics)}"),
    )
    return rows.withColumn("topic", F.when(topic.isin(topics), topic).otherwise(F.raise_error(slip)))


def _to_topic(
    records: DataFrame, options: SinkOptions, client: dict[str, str], rejections: Rejections
) -> DataStreamWriter:
    given = _topic_options(options, client)
    WriteOptions.parse(given, streaming=True)  # what is wrong is told now, and not by a job
    if options.mode != "update":
        records, given = _apart(records, options, given, rejections.sink, ROWS_REJECTED)
        return records.writeStream.format("barnabas").options(**given).outputMode(options.mode)

    # Spark refuses output mode update to Python data sources, but hands a batch's updates to a function
    def write(batch: DataFrame, number: int) -> None:
        _save(batch, options, {**given, **_numbered(options, _query_id(batch), number)}, rejections)

    return records.writeStream.outputMode("update").foreachBatch(write)


def _save(records: DataFrame, options: SinkOptions, given: dict[str, str], rejections: Rejections) -> None:
    """Write records that are no stream."""
    seen = Observation()
    records, given = _apart(records, options, given, rejections.sink, seen)
    records.write.format("barnabas").options(**given).mode("append").save()
    if options.dead_letter:
        rejections.add(seen.get["rows"], seen.get["reason"])


def _apart(
    records: DataFrame, options: SinkOptions, given: dict[str, str], sink: str, seen: str | Observation
) -> tuple[DataFrame, dict[str, str]]:
    """Records that go to the topics that take them, if the sink has dead letters, and options to write them.

    Spark counts those that are rejected, as `seen`.
    """
    if not options.dead_letter:
        return records, given
    limits = limits_of(given, [*options.topics, options.dead_letter])
    marked = mark_rejected(records, options, given, limits)
    marked = marked.observe(seen, F.count(REJECTION).alias("rows"), F.max(REJECTION).alias("reason"))
    return route(marked, options, limits, sink), writer_options(given, options, limits)


def _topic_options(options: SinkOptions, client: dict[str, str]) -> dict[str, str]:
    given = {**client, **options.options}
    if len(options.topics) == 1:
        given["topic"] = options.topic
    if options.delivery == "exactly-once":
        given["barnabas.delivery"] = options.delivery
    return given


def _numbered(options: SinkOptions, query: str, number: int) -> dict[str, str]:
    """What tells a batch from others to a writer that is to write it exactly once."""
    if options.delivery != "exactly-once":
        return {}
    return {"barnabas.sinkId": query, "barnabas.batchId": str(number)}


def _query_id(batch: DataFrame) -> str:
    """What numbers batches: it lives as long as the checkpoint, and no longer."""
    name: str = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    return name
