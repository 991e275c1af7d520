"""Opens sources as DataFrames: the rows that can be parsed, and the records that cannot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from barnabas.pipelines.model import Source
from barnabas.pipelines.stateless import mark
from barnabas.spark.dead_letters import letters
from barnabas.spark.formats import decode_columns
from barnabas.spark.options import ReadOptions
from barnabas.spark.pyspark_versions import require_limits
from barnabas.spark.session import let_streams_start_together
from barnabas.spark.text_formats import parse_schema

#: The column with a row's origin: the record's key, topic, partition, offset and timestamp, or the file.
ORIGIN = "_record"

#: Columns of a parsed record: its row, and the reason if it cannot be parsed.
_ROW, _REASON = "_row", "_reason"

_LINE_FORMATS = ("json", "csv", "text")
_TOPIC_ORIGIN = ("key", "topic", "partition", "offset", "timestamp")


@dataclass(frozen=True)
class Opened:
    """The rows of an open source, and the records for its dead-letter topic if it has one."""

    rows: DataFrame
    dead_letters: DataFrame | None
    #: the parsed records, if the source is shared; `rows` and `dead_letters` are made from them
    parsed: Parsed | None = None


@dataclass(frozen=True)
class Parsed:
    """The records of a shared source, which one query reads and parses for several outputs.

    Call the functions `rows` and `dead_letters` with `records`, or with one batch of these records:

    - `rows` returns the rows of the records that can be parsed.
    - `dead_letters` returns a dead letter for each record that cannot be parsed. It is None if the source has
      no dead-letter topic.
    """

    records: DataFrame
    rows: Callable[[DataFrame], DataFrame]
    dead_letters: Callable[[DataFrame], DataFrame] | None = None


def open_source(spark: SparkSession, source: Source, client: dict[str, str], registry: str) -> Opened:
    """Open `source` as a DataFrame of its parsed rows.

    Args:
        client: ``kafka.*`` options of the pipeline.
        registry: URL of the schema registry.

    Raises:
        ConfigError: the schema is invalid, or an option of the source is not allowed.
        RegistryError, SchemaError: the registry has no such schema, or does not answer.
    """
    options = source.options
    if options.kind == "topic":
        raw = _read_topic(spark, source, client)
        if options.format == "raw":
            return _as_they_are(raw, source)
        origin = [F.col(name) for name in _TOPIC_ORIGIN]
        said = ["topic", "partition", "offset"]
        location = F.concat_ws(" ", F.concat_ws("-", "topic", "partition"), F.lit("offset"), F.col("offset"))
    else:
        raw = _read_files(spark, source)
        if options.format not in _LINE_FORMATS:
            return _as_they_are(raw, source)
        origin = [F.col("file")]
        said = ["file"]
        location = F.col("file")
    has_letters = bool(options.dead_letter)
    needed = raw.columns if has_letters else said
    raw, decoded = decode_columns(
        raw,
        options.format,
        schema=options.schema,
        registry=registry,
        subject=options.subject,
        message=options.message,
        envelope=options.envelope,
        time_unit=options.time_unit,
        options=_format_options(source),
    )
    columns = [column.alias(name) for name, column in decoded.columns.items()]
    columns.append(F.struct(*origin).alias(ORIGIN))
    if options.shared:

        def pick(records: DataFrame) -> DataFrame:
            good = records.where(_is_good(F.col(_REASON), location, has_letters)).select(f"{_ROW}.*")
            return _with_watermark(good, source)

        def reject(records: DataFrame) -> DataFrame:
            return letters(records, F.col("value"), F.col(_REASON), said)

        records = raw.select(*needed, F.struct(*columns).alias(_ROW), decoded.reason.alias(_REASON))
        return _opened(Parsed(mark(records, source.name), pick, reject if has_letters else None))
    bad = letters(raw, F.col("value"), decoded.reason, said) if has_letters else None
    good = raw.where(_is_good(decoded.reason, location, has_letters))
    return Opened(_with_watermark(good.select(*columns), source), bad)


def _as_they_are(raw: DataFrame, source: Source) -> Opened:
    if source.options.shared:
        return _opened(Parsed(mark(raw, source.name), lambda records: _with_watermark(records, source)))
    return Opened(_with_watermark(raw, source), None)


def _opened(parsed: Parsed) -> Opened:
    reject = parsed.dead_letters
    return Opened(parsed.rows(parsed.records), reject(parsed.records) if reject else None, parsed)


def _read_topic(spark: SparkSession, source: Source, client: dict[str, str]) -> DataFrame:
    options = source.options
    cluster = {"parallelism": str(spark.sparkContext.defaultParallelism)}
    named = {name.lower() for name in options.options}
    given = {"startingOffsets": "earliest", **client, **options.options, "subscribe": options.topic}
    given |= {name: value for name, value in cluster.items() if name not in named}
    if options.dead_letter:
        given["includeHeaders"] = "true"  # they go along with a dead letter
    ReadOptions.parse(given, streaming=not options.static)  # what is wrong is told now, and not by a job
    if not options.static:
        require_limits(given)
        let_streams_start_together(spark)
    reader = spark.read if options.static else spark.readStream
    return reader.format("barnabas").options(**given).load()


def _read_files(spark: SparkSession, source: Source) -> DataFrame:
    """Read the files of a source.

    For json, csv and text, return each line as the column value, and the URI of its file as the column file.
    Empty lines of json and csv are left out. With the option header, the header of a CSV file is left out,
    too. For other formats, return the columns of the schema.
    """
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
    """Return the options for parsing json and csv in files; for a topic, there are none."""
    return source.options.options if source.options.kind == "files" else {}


def _is_good(reason: Column, location: Column, has_dead_letters: bool) -> Column:
    if has_dead_letters:
        return reason.isNull()
    hint = "; name a topic for such records with dead_letter"
    complaint = F.concat(location, F.lit(" does not parse: "), reason, F.lit(hint))
    return F.when(reason.isNull(), F.lit(True)).otherwise(F.raise_error(complaint).cast("boolean"))


def _with_watermark(rows: DataFrame, source: Source) -> DataFrame:
    parts = source.options.watermark_parts
    return rows.withWatermark(*parts) if parts and not source.options.static else rows
