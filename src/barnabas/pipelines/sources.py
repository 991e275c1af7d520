"""Sources as DataFrames: the rows that parse, and the records that do not."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from barnabas.pipelines.model import Source
from barnabas.spark.dead_letters import letters
from barnabas.spark.formats import decode_columns
from barnabas.spark.session import let_streams_start_together
from barnabas.spark.text_formats import Decoded, parse_schema

#: The column with where a row comes from: of a topic its key, topic, partition, offset and timestamp.
ORIGIN = "_record"

_LINE_FORMATS = ("json", "csv", "text")
_TOPIC_ORIGIN = ("key", "topic", "partition", "offset", "timestamp")


@dataclass(frozen=True)
class Opened:
    """A source's rows, and the records for its dead-letter topic when it has one."""

    rows: DataFrame
    dead_letters: DataFrame | None


def open_source(spark: SparkSession, source: Source, client: dict[str, str], registry: str) -> Opened:
    """Read `source`; `client` are the ``kafka.*`` options of the pipeline, `registry` is its schemas' URL.

    Raises:
        ConfigError: the schema cannot be read.
    """
    options = source.options
    if options.kind == "topic":
        raw = _read_topic(spark, source, client)
        if options.format == "raw":
            return Opened(_with_watermark(raw, source), None)
        origin = [F.col(name) for name in _TOPIC_ORIGIN]
        said = ["topic", "partition", "offset"]
        place = F.concat_ws(" ", F.concat_ws("-", "topic", "partition"), F.lit("offset"), F.col("offset"))
    else:
        raw = _read_files(spark, source)
        if options.format not in _LINE_FORMATS:
            return Opened(_with_watermark(raw, source), None)
        origin = [F.col("file")]
        said = ["file"]
        place = F.col("file")
    raw, decoded = decode_columns(
        raw,
        options.format,
        schema=options.schema,
        registry=registry,
        subject=options.subject,
        message=options.message,
        envelope=options.envelope,
        options=_format_options(source),
    )
    bad = letters(raw, F.col("value"), decoded.reason, said) if options.dead_letter else None
    good = raw.where(_is_good(decoded, place, bool(options.dead_letter)))
    columns = [column.alias(name) for name, column in decoded.columns.items()]
    return Opened(_with_watermark(good.select(*columns, F.struct(*origin).alias(ORIGIN)), source), bad)


def _read_topic(spark: SparkSession, source: Source, client: dict[str, str]) -> DataFrame:
    options = source.options
    cluster = {"parallelism": str(spark.sparkContext.defaultParallelism)}
    named = {name.lower() for name in options.options}
    given = {"startingOffsets": "earliest", **client, **options.options, "subscribe": options.topic}
    given |= {name: value for name, value in cluster.items() if name not in named}
    if options.dead_letter:
        given["includeHeaders"] = "true"  # they go along with a dead letter
    if not options.static:
        let_streams_start_together(spark)
    reader = spark.read if options.static else spark.readStream
    return reader.format("barnabas").options(**given).load()


def _read_files(spark: SparkSession, source: Source) -> DataFrame:
    """Lines as the column value, with their file; or the columns of a format that knows its own."""
    options = source.options
    reader = (spark.read if options.static else spark.readStream).options(**options.options)
    if options.format not in _LINE_FORMATS:
        return reader.format(options.format).schema(parse_schema(options.schema)).load(options.files)
    lines = reader.format("text").load(options.files)
    lines = lines.select("value", F.col("_metadata.file_path").alias("file"))
    if options.format == "text":
        return lines
    if options.format == "csv" and options.options.get("header", "").lower() == "true":
        names = parse_schema(options.schema).fieldNames()
        lines = lines.where(F.col("value") != options.options.get("sep", ",").join(names))
    return lines.where(F.trim("value") != "")


def _format_options(source: Source) -> dict[str, str]:
    """Of a topic the options are the reader's; of files they also say how a line is to be understood."""
    return source.options.options if source.options.kind == "files" else {}


def _is_good(decoded: Decoded, place: Column, has_dead_letters: bool) -> Column:
    if has_dead_letters:
        return decoded.reason.isNull()
    cure = "; name a topic for such records with dead_letter"
    complaint = F.concat(place, F.lit(" does not parse: "), decoded.reason, F.lit(cure))
    return F.when(decoded.reason.isNull(), F.lit(True)).otherwise(F.raise_error(complaint).cast("boolean"))


def _with_watermark(rows: DataFrame, source: Source) -> DataFrame:
    parts = source.options.watermark_parts
    return rows.withWatermark(*parts) if parts and not source.options.static else rows
