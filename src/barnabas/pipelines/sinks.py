"""Makes the writers of sinks, for streaming queries and for static rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter

from barnabas.client.schemas.registered import Reference
from barnabas.pipelines.options import REGISTERED
from barnabas.pipelines.sink_letters import DeadLetters, Rejections
from barnabas.pipelines.sink_options import SinkOptions, sink_kind
from barnabas.pipelines.sources import ORIGIN
from barnabas.pipelines.status import ROWS_REJECTED
from barnabas.pipelines.table_sink import TableSink
from barnabas.pipelines.topic_letters import (
    REJECTION,
    UNFIT,
    limits_of,
    mark_rejected,
    route,
    writer_options,
)
from barnabas.spark.debezium import DELETED
from barnabas.spark.formats import encode
from barnabas.spark.option_values import invalid_option
from barnabas.spark.options import WriteOptions


def writer_to(
    rows: DataFrame, options: SinkOptions, client: dict[str, str], registry: str, rejections: Rejections
) -> DataStreamWriter:
    """Return Spark's writer for streaming `rows`, without checkpoint and trigger.

    Args:
        client: ``kafka.*`` options of the pipeline.
        registry: URL of the schema registry.
        rejections: counts the rows that a table rejects. For topics, Spark counts them in its progress.

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
    table = _table(rows, options)
    letters = _letters(rows, options, client, rejections)

    def write(batch: DataFrame, number: int) -> None:
        table.write_batch(options, batch, _query_id(batch), number, letters)

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
    """Return a function that writes the rows of a DataFrame that is not a stream. Write nothing yet.

    A table, or a topic with exactly-once delivery, skips a batch if it has already written a batch with this
    `name` and this `number`. Batches with the same name need rising numbers.

    Args:
        client: ``kafka.*`` options of the pipeline.
        registry: URL of the schema registry.
        rejections: counts the rows that the sink rejects.
        name: id of the query whose batch the rows are, or an id of this single write.

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
    table = _table(rows, options)
    return partial(
        table.write_batch, options, rows, name, number, _letters(rows, options, client, rejections)
    )


def _with_origin(rows: DataFrame, options: SinkOptions) -> DataFrame:
    """Return `rows`, without the column `ORIGIN` if the sink has no dead letters.

    `ORIGIN` says where each row was read: a topic, partition and offset, or a file. Only dead letters have
    this information.
    """
    return rows if options.dead_letter else rows.drop(ORIGIN)


def _letters(
    rows: DataFrame, options: SinkOptions, client: dict[str, str], rejections: Rejections
) -> DeadLetters | None:
    """Return the object that sends the sink's dead letters; None without the option dead_letter."""
    return DeadLetters(rows.sparkSession, options, client, rejections) if options.dead_letter else None


def _table(rows: DataFrame, options: SinkOptions) -> TableSink:
    """Return the writer of a table.

    Raises ConfigError if `rows` have the column `DELETED`, but the sink has no key by which to delete rows.
    """
    table = sink_kind(options.kind)
    assert isinstance(table, TableSink)
    if DELETED in rows.columns and "key" in table.takes and not options.keys:
        raise invalid_option(
            "key", "", f"the sink needs it to delete rows ({DELETED}): name the key's columns"
        )
    return table


def _records(rows: DataFrame, options: SinkOptions, registry: str) -> DataFrame:
    """Encode rows as records, with the columns that the data source writes.

    Raises ConfigError if the columns do not fit the format.
    """
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
        error=UNFIT if options.dead_letter and options.format in REGISTERED else "",
    )


def _only_to(topics: list[str], rows: DataFrame) -> DataFrame:
    """Return `rows` with a check: a row whose column topic is not in `topics` fails the job.

    Raises ConfigError if `rows` have no column topic.
    """
    if "topic" not in rows.columns:
        raise invalid_option(
            "topic",
            ",".join(topics),
            "each row must name its topic in a column topic, and there is no such column",
        )
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
    """Write static records to the topic with the options `given`. Count rejected records in `rejections`."""
    seen = Observation()
    records, given = _apart(records, options, given, rejections.sink, seen)
    records.write.format("barnabas").options(**given).mode("append").save()
    if options.dead_letter:
        rejections.add(seen.get["rows"], seen.get["reason"])


def _apart(
    records: DataFrame, options: SinkOptions, given: dict[str, str], sink: str, seen: str | Observation
) -> tuple[DataFrame, dict[str, str]]:
    """Route rejected records to the dead-letter topic, if the sink has one.

    Return the records, and the data source's options for writing them.

    Args:
        given: the data source's options of the sink.
        sink: name of the sink, for a header of the dead letters.
        seen: Spark's observation that counts the rejected records, or its name.
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
    """Return the options by which an exactly-once writer identifies batch `number` of `query`.

    The result is empty for at-least-once delivery.
    """
    if options.delivery != "exactly-once":
        return {}
    return {"barnabas.sinkId": query, "barnabas.batchId": str(number)}


def _query_id(batch: DataFrame) -> str:
    """Return the id of the batch's streaming query, which stays the same as long as the checkpoint exists."""
    name: str = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    return name
