"""Reads the offset ranges of a task into Arrow batches."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple, cast

import pyarrow as pa

from barnabas.base.errors import BarnabasError, KafkaError
from barnabas.base.types import Buffer, Offset, TopicPartition
from barnabas.kafka.protocol.messages.fetch import AbortedTransaction
from barnabas.kafka.records.batch import BatchHeader
from barnabas.spark.arrow import to_record_batches
from barnabas.spark.clients import Settings, kept
from barnabas.spark.fetch_settings import FETCH_DEFAULTS, FetchSettings
from barnabas.spark.fetcher import Fetched, RangeFetcher
from barnabas.spark.kafka_brokers import new_brokers
from barnabas.spark.open_ranges import OpenRanges
from barnabas.spark.ranges import OffsetRange
from barnabas.spark.topics import TopicLookup
from barnabas.spark.visible_batches import visible_payloads, whole_batches


class ReadTimeoutError(BarnabasError):
    """The brokers sent no records within the time limit."""


def read_ranges(
    ranges: list[OffsetRange],
    settings: Settings,
    schema: pa.Schema,
    *,
    topic_ids: Mapping[str, str] | None = None,
    fail_on_data_loss: bool,
    poll_timeout_s: float,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of `ranges`, as Arrow batches of `schema`. Each range is of a different partition.

    Args:
        settings: of librdkafka, with ``bootstrap.servers``.
        topic_ids: the ids of the topics when the task was planned, by name. A topic that has another id now
            is not read. A topic that is missing in `topic_ids` is read, whatever its id is.
        fail_on_data_loss: whether missing records are an error. If not, they are skipped.
        poll_timeout_s: longest time without records, in seconds.

    Raises:
        DataLossError: records are missing, and `fail_on_data_loss` is set.
        ReadTimeoutError: the brokers sent nothing for `poll_timeout_s` seconds.
        BarnabasError: a broker rejects the read, for example because of missing permissions, or its data is
            damaged.
    """
    settings = {**settings, "socket.timeout.ms": _milliseconds(settings, poll_timeout_s)}
    fetch_settings = kept(FetchSettings.parse, settings)
    open_ranges = OpenRanges(ranges, fail_on_data_loss)
    fetcher = RangeFetcher(kept(_new_lookup, settings), fetch_settings, open_ranges, topic_ids)
    try:
        last_news = time.monotonic()
        while open_ranges:
            fetcher.request()
            pieces = [
                piece for fetched in fetcher.receive() for piece in _take(fetched, fetcher, open_ranges)
            ]
            if open_ranges:
                fetcher.request()  # the next, to be on its way while this one is decoded
            for piece in pieces:
                yield from _decode(piece, fetch_settings.check_crcs, schema)
            if pieces:
                last_news = time.monotonic()  # Spark may have taken its time with the batches
            elif time.monotonic() - last_news > poll_timeout_s:
                raise ReadTimeoutError(
                    f"option kafkaConsumer.pollTimeoutMs={poll_timeout_s * 1000:.0f}: no broker of "
                    f"{settings['bootstrap.servers']} sent records of {open_ranges} in this time; "
                    f"are they running? {fetcher.last_problem}".rstrip()
                )
    finally:
        fetcher.close()


class _Piece(NamedTuple):
    """The complete batches in a response for one partition, and the range of offsets to decode."""

    tp: TopicPartition
    records: memoryview
    aborted: list[AbortedTransaction]
    batches: list[tuple[int, BatchHeader]]
    start: Offset
    end: Offset


def _new_lookup(settings: Settings) -> TopicLookup:
    timeout_s = kept(FetchSettings.parse, settings).timeout_s
    return TopicLookup(new_brokers(settings, timeout_s), timeout_s)


def _milliseconds(settings: Settings, poll_timeout_s: float) -> int:
    """Return the timeout of one response in milliseconds, at most `poll_timeout_s`."""
    timeout = settings.get("socket.timeout.ms", FETCH_DEFAULTS["socket.timeout.ms"])
    return min(int(timeout), int(poll_timeout_s * 1000))


def _take(fetched: Fetched, fetcher: RangeFetcher, open_ranges: OpenRanges) -> Iterator[_Piece]:
    """Yield one piece with the complete batches of a partition's response, `fetched`.

    Advance the partition's range in `open_ranges` past these batches. If all batches are before the range, or
    there is none, yield nothing, and check whether the log ends before the end of the range.

    Raises BarnabasError if the response is damaged, and DataLossError if records are lost and failOnDataLoss
    is true.
    """
    tp, data = fetched
    records = memoryview(cast("Buffer", data.records or b""))  # what was decoded is one buffer
    try:
        batches = whole_batches(records)
    except KafkaError as error:
        raise _unreadable(tp, error) from error
    start, end = open_ranges.position(tp), open_ranges.end(tp)
    if batches and (position := batches[-1][1].next_offset) > start:
        open_ranges.advance(tp, position)
        yield _Piece(tp, records, data.aborted_transactions or [], batches, start, end)
    else:
        fetcher.check_end(tp, data)


def _decode(piece: _Piece, check_crcs: bool, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    tp, records, aborted, batches, start, end = piece
    payloads = visible_payloads(records, batches, aborted, start=start, end=end, check_crcs=check_crcs)
    try:
        yield from to_record_batches(tp, payloads, start, end, schema)
    except KafkaError as error:
        raise _unreadable(tp, error) from error


def _unreadable(tp: TopicPartition, error: KafkaError) -> BarnabasError:
    return BarnabasError(f"cannot read {tp}: {error.message}")
