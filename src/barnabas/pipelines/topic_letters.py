"""Sends records that a topic would reject to the sink's dead-letter topic.

A topic rejects a record that is too large, or that has no key if the topic is compacted. The sink reads these
limits, and sends such a record to the dead-letter topic instead. A row that the sink's format cannot encode
goes there as JSON. The same tasks write good records and dead letters, with `delivery="exactly-once"` in the
same transactions. All sizes are sizes before compression, as Java's clients count them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from barnabas.base.errors import BarnabasError
from barnabas.client.config_calls import describe_settings
from barnabas.pipelines.sink_letters import LIMITLESS, origin_of
from barnabas.pipelines.sink_options import SinkOptions
from barnabas.spark.dead_letters import headers_of
from barnabas.spark.kafka_brokers import new_brokers
from barnabas.spark.options import WriteOptions

#: The column with the reason why a record is rejected; NULL for accepted records.
REJECTION = "_barnabas_rejection"

#: The column with the reason why the sink's format cannot encode a row.
UNFIT = "_barnabas_unfit"

#: librdkafka's default of message.max.bytes, and of batch.size.
_DEFAULT_BYTES = 1_000_000
#: A request has no more than this beside the bytes that batch.size counts.
_BESIDE = 512
_BATCH_OVERHEAD = 61
_PATIENCE_S = 30.0


@dataclass(frozen=True)
class TopicLimits:
    """The limits of a topic. `largest` is max.message.bytes, or None if it is unknown.

    `is_compacted` says whether cleanup.policy contains compact, so that records need a key.
    """

    largest: int | None = None
    is_compacted: bool = False


def limits_of(client: Mapping[str, str], topics: Iterable[str]) -> dict[str, TopicLimits]:
    """Read the limits of `topics` from the brokers, and return them by topic. This blocks.

    `client` has the options of the data source, such as kafka.bootstrap.servers.

    If a topic does not exist, or its settings cannot be read, its limits are unknown. The topic then counts
    as not compacted, and no record is too large for it.
    """
    settings = WriteOptions.parse(client, streaming=False).client
    found = {}
    with closing(new_brokers(settings, _PATIENCE_S)) as brokers:
        for topic in topics:
            try:
                said = {each.name: each.value or "" for each in describe_settings(brokers, "topic", topic)}
            except BarnabasError:
                found[topic] = TopicLimits()
                continue
            largest = said.get("max.message.bytes", "")
            is_compacted = "compact" in said.get("cleanup.policy", "")
            found[topic] = TopicLimits(int(largest) if largest.isdecimal() else None, is_compacted)
    return found


def writer_options(
    given: Mapping[str, str], options: SinkOptions, limits: Mapping[str, TopicLimits]
) -> dict[str, str]:
    """Return the options of the data source with which a sink writes both its records and its dead letters.

    `options` are the options of the sink in the pipeline, with its dead-letter topic. `given` are the options
    of the data source for a sink without dead letters. The result is a copy of `given` with these changes:

    - There is no option topic, because each record has its topic in a column.
    - The dead-letter topic and the limit of dead letters are added.
    - The producer accepts records of any size.
    - The producer's requests are small enough for all topics in `limits`.
    """
    kept = {name: value for name, value in given.items() if name != "topic" and not _is_size(name)}
    sizes = [limit.largest for limit in limits.values() if limit.largest is not None]
    batch = int(WriteOptions.parse(given, streaming=False).client.get("batch.size", _DEFAULT_BYTES))
    return {
        **kept,
        **LIMITLESS,
        # librdkafka fills its requests by this alone, and a topic rejects one that is too large for it
        "kafka.batch.size": str(max(1, min(batch, *(size - _BESIDE for size in sizes)) if sizes else batch)),
        "barnabas.deadLetterTopic": options.dead_letter,
        "barnabas.deadLetterLimit": str(options.dead_letter_limit),
    }


def mark_rejected(
    records: DataFrame, options: SinkOptions, given: Mapping[str, str], limits: Mapping[str, TopicLimits]
) -> DataFrame:
    """Add the column `REJECTION`: the reason why a record cannot be written to its topic.

    The column is NULL for a record that the topic accepts. Reasons are:

    - The format cannot encode the row: the column `UNFIT` of `records`, if there is one, has this reason.
    - The record is larger than message.max.bytes of the producer, or max.message.bytes of its topic.
    - The record has no key, and its topic is compacted.

    Args:
        records: the sink's records with the columns that the data source writes.
        options: the options of the sink in the pipeline.
        given: the options of the data source "barnabas" with which the sink writes.
        limits: must contain each topic of the sink.
    """
    largest = int(WriteOptions.parse(given, streaming=False).client.get("message.max.bytes", _DEFAULT_BYTES))
    size = _size(records, F.col("headers") if "headers" in records.columns else None)
    text = size.cast("string")
    to = _destination(options)
    rejection = F.when(F.col(UNFIT).isNotNull(), F.col(UNFIT)) if UNFIT in records.columns else F
    rejection = rejection.when(
        size > largest,
        F.concat(F.lit("the record has "), text, F.lit(f" bytes; message.max.bytes={largest}")),
    )
    has_key = F.col("key").isNotNull() if "key" in records.columns else F.lit(False)
    for topic in options.topics:
        limit = limits[topic]
        is_its = to == topic if len(options.topics) > 1 else F.lit(True)
        if limit.largest is not None:
            words = F.lit(f" bytes; max.message.bytes={limit.largest} of topic {topic}")
            too_large = is_its & (size > limit.largest)
            rejection = rejection.when(too_large, F.concat(F.lit("the record has "), text, words))
        if limit.is_compacted:
            words = F.lit(f"the record has no key, and topic {topic} is compacted")
            rejection = rejection.when(is_its & ~has_key, words)
    return records.withColumn(REJECTION, rejection)


def route(marked: DataFrame, options: SinkOptions, limits: Mapping[str, TopicLimits], sink: str) -> DataFrame:
    """Set the topic of each record. A rejected record gets the dead-letter topic, and the reason as a header.

    `marked` is the result of `mark_rejected`. `limits` has the limits of the sink's topics and of the
    dead-letter topic. `sink` is the sink's name, for a header of dead letters. A record that is too large for
    the dead-letter topic fails the job.
    """
    rejection, to = F.col(REJECTION), _destination(options)
    named = {"message": rejection, "sink": F.lit(sink), "destination": to, **origin_of(marked)}
    of_letter = headers_of(marked, named)
    own = F.col("headers") if "headers" in marked.columns else F.lit(None)
    topic = F.lit(options.dead_letter)
    room = limits[options.dead_letter].largest
    if room is not None:
        slip = F.concat(
            rejection,
            F.lit(f". Topic {options.dead_letter} takes {room} bytes: raise its max.message.bytes"),
        )
        is_too_large = _size(marked, of_letter) > room
        topic = F.when(is_too_large, F.raise_error(slip).cast("string")).otherwise(topic)
    others = [name for name in ("partition",) if name in marked.columns]
    return marked.select(
        F.when(rejection.isNull(), to).otherwise(topic).alias("topic"),
        *([F.col("key")] if "key" in marked.columns else []),
        F.col("value"),
        F.when(rejection.isNull(), own).otherwise(of_letter).alias("headers"),
        *(F.when(rejection.isNull(), F.col(name)).alias(name) for name in others),
    )


def _is_size(name: str) -> bool:
    return name.lower() in ("kafka.message.max.bytes", "kafka.max.request.size", "kafka.batch.size")


def _destination(options: SinkOptions) -> Column:
    return F.lit(options.topics[0]) if len(options.topics) == 1 else F.col("topic")


def _size(records: DataFrame, headers: Column | None) -> Column:
    """Return the size in bytes of an uncompressed batch that contains only this record (message format 2).

    `headers` is the column of the record's headers; None if records have no headers.
    """
    body = F.lit(3)  # the attributes, and the differences of its time and of its offset
    for name in ("key", "value"):
        body = body + (_of_bytes(F.col(name)) if name in records.columns else F.lit(1))
    if headers is None:
        body = body + F.lit(1)
    else:
        listed = F.coalesce(F.size(headers), F.lit(0))
        listed = F.greatest(listed, F.lit(0))  # the size of NULL is -1
        each = F.transform(headers, lambda one: _of_bytes(one["key"]) + _of_bytes(one["value"]))
        summed = F.aggregate(each, F.lit(0), lambda before, size: before + size)
        body = body + _varint(listed) + F.coalesce(summed, F.lit(0))
    return body + _varint(body) + F.lit(_BATCH_OVERHEAD)


def _of_bytes(value: Column) -> Column:
    size = F.octet_length(value)
    return F.coalesce(_varint(size) + size, F.lit(1))


def _varint(number: Column) -> Column:
    """Return the number of bytes of a non-negative number as a zigzag varint."""
    steps = F.when(number < 1 << 6, 1).when(number < 1 << 13, 2).when(number < 1 << 20, 3)
    steps = steps.when(number < 1 << 27, 4)
    return F.when(number.isNull(), F.lit(None)).otherwise(steps.otherwise(5))
