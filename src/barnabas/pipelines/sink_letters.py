"""Makes dead letters of the rows that a table rejects, and sends each of them once to the dead-letter topic.

A batch goes to the database, and its dead letters go to Kafka. Both must be written, or neither. So the
transaction of a batch also stores the dead letters in the database, as one value. After the commit, the sink
sends them to the topic and deletes the value. If the driver dies in between, the next attempt of the batch
finds the value, and sends the dead letters. The exactly-once writer of the topic skips a batch whose number
it has already written, so each dead letter is sent once.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from barnabas.pipelines.sink_options import SinkOptions
from barnabas.pipelines.sources import ORIGIN
from barnabas.spark.dead_letters import check_rejected, headers_of
from barnabas.spark.exactly_once import WriteId, close_batch, write_once
from barnabas.spark.formats import key_of
from barnabas.spark.options import WriteOptions

#: A dead letter may be larger than any record of the pipeline: the topic's own limit counts.
LIMITLESS = {"kafka.message.max.bytes": "1000000000"}

_REASON = "_barnabas_reason"
_PLACE = ("topic", "partition", "offset")

#: The clients that deliver are shared by all queries of this process, and serve one of them at a time.
_delivering = threading.Lock()


@dataclass
class Rejections:
    """The number of rows that a sink has rejected since the pipeline started, for its query's status.

    `reason` is the reason of the last rejected row; empty if there is none.
    """

    sink: str
    rows: int = 0
    reason: str = ""

    def add(self, rows: int, reason: str | None) -> None:
        self.rows += rows
        self.reason = reason or self.reason


class DeadLetters:
    """Makes and sends the dead letters of one sink's batches.

    Args:
        options: options of the sink, which name the dead-letter topic and its limit.
        client: ``kafka.*`` options of the pipeline.
        rejections: counts the rejected rows for the status of the sink's query.
    """

    def __init__(
        self, spark: SparkSession, options: SinkOptions, client: dict[str, str], rejections: Rejections
    ) -> None:
        self._spark = spark
        self._options = options
        self._client = client
        self._rejections = rejections

    def check(self, count: int, reason: str) -> None:
        """Raise TooManyRejectedError if `count` rejected rows of a batch are more than the limit.

        `reason` is the reason of the last rejected row, for the error's text.
        """
        check_rejected(count, self._options.dead_letter_limit, self._options.dead_letter, reason)

    def add(self, rejected: Mapping[int, str]) -> None:
        """Add the rejected rows of a written batch to the counts in the query's status.

        `rejected` has the reason of each of these rows, by the row's number.
        """
        self._rejections.add(len(rejected), next(reversed(list(rejected.values())), None))

    def made_of(self, rows: pa.Table, reasons: Sequence[str]) -> bytes:
        """Return one dead letter for each row, all packed as bytes for `deliver`.

        ``reasons[i]`` says why row i was rejected; it becomes a header of the dead letter. The dead letter's
        value is the row as JSON. Its key is made from the row's values in the sink's key columns. The key is
        null if the sink has no key columns, or the rows lack them.
        """
        given = self._spark.createDataFrame(rows.append_column(_REASON, pa.array(reasons, pa.string())))
        columns = [name for name in given.columns if name not in (ORIGIN, _REASON)]
        keys = [each for name in self._options.keys for each in columns if each.lower() == name.lower()]
        named = {"message": F.col(_REASON), "sink": F.lit(self._rejections.sink), **origin_of(given)}
        letters = given.select(
            (key_of(given, keys) if keys else F.lit(None)).cast("binary").alias("key"),
            F.to_json(F.struct(*(F.col(f"`{name}`") for name in columns))).cast("binary").alias("value"),
            headers_of(given, named).alias("headers"),
        )
        return _packed(letters.toArrow())

    def deliver(self, query: str, number: int, letters: bytes) -> None:
        """Send the dead letters of batch `number` of `query` to the topic, unless they were sent already.

        `letters` is a result of `made_of`.

        Raises:
            DeliveryError: the topic rejects the dead letters.
        """
        given = {
            **self._client,
            **LIMITLESS,
            "topic": self._options.dead_letter,
            "barnabas.delivery": "exactly-once",
            "barnabas.sinkId": f"{query}-rejected",
            "barnabas.batchId": str(number),
            # whoever has dealt with dead letters may delete their topic, and create it again
            "barnabas.adoptTopic": "true",
        }
        options = WriteOptions.parse(given, streaming=False)
        with _delivering:
            report = write_once(
                options, WriteId(f"{query}-rejected", number, 0), iter(_unpacked(letters).to_batches())
            )
            close_batch(options, [report])


def origin_of(rows: DataFrame) -> Mapping[str, Column]:
    """Return columns that say where each row was read, by name: topic, partition and offset, or file.

    Each column is a field of the struct column `ORIGIN`. The result is empty if `rows` do not have the column
    `ORIGIN`.
    """
    if ORIGIN not in rows.columns:
        return {}
    names = set(rows.select(f"{ORIGIN}.*").columns)
    return {name: F.col(f"{ORIGIN}.{name}") for name in (*_PLACE, "file") if name in names}


def without_origin(rows: pa.Table) -> pa.Table:
    """Return `rows` without the column `ORIGIN`, which says where each row was read."""
    return rows.drop_columns([ORIGIN]) if ORIGIN in rows.column_names else rows


def _packed(letters: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, letters.schema) as writer:
        writer.write_table(letters)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def _unpacked(packed: bytes) -> pa.Table:
    return pa.ipc.open_stream(packed).read_all()
