"""A task reads its offset ranges into Arrow batches."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa

from barnabas.errors import BarnabasError
from barnabas.spark.arrow import to_record_batch
from barnabas.spark.clients import Settings, kept, new_consumer
from barnabas.spark.open_ranges import OpenRanges
from barnabas.spark.ranges import OffsetRange

#: Records in an Arrow batch at most; more gains nothing.
_BATCH_ROWS = 10_000

#: How long to wait for a batch to fill, in seconds. Only a range that ends in a gap has to wait it out, since
#: no more records are asked for than the range can hold.
_FILL_TIMEOUT_S = 0.1

#: After this long without news, in seconds, it is asked whether what is read is still there: librdkafka does
#: not say when a topic that is assigned does not exist.
_SILENCE_S = 5.0

#: How long to wait for an answer about a topic or an offset, in seconds; not longer than for records.
_ASK_TIMEOUT_S = 10.0


class ReadTimeoutError(BarnabasError):
    """The brokers sent neither records nor the end of the log in time."""


def read_ranges(
    ranges: list[OffsetRange],
    settings: Settings,
    schema: pa.Schema,
    *,
    fail_on_data_loss: bool,
    poll_timeout_s: float,
) -> Iterator[pa.RecordBatch]:
    """The records of `ranges` (each of another partition), in batches of `schema`.

    Raises:
        DataLossError: records are gone, and `fail_on_data_loss`.
        ReadTimeoutError: for `poll_timeout_s` seconds the brokers sent nothing.
        BarnabasError: a broker refuses, such as for want of authorisation.
    """
    consumer = kept(new_consumer, settings)
    open_ranges = OpenRanges(consumer, ranges, fail_on_data_loss, min(_ASK_TIMEOUT_S, poll_timeout_s))
    try:
        open_ranges.assign()
        last_news = last_asked = time.monotonic()
        while open_ranges:
            asked = min(_BATCH_ROWS, open_ranges.remaining())
            messages = consumer.consume(asked, timeout=_FILL_TIMEOUT_S)
            now = time.monotonic()
            if messages:
                last_news = last_asked = now
            elif now - last_news > poll_timeout_s:
                raise ReadTimeoutError(
                    f"option kafkaConsumer.pollTimeoutMs={poll_timeout_s * 1000:.0f}: no broker of "
                    f"{settings['bootstrap.servers']} sent records of {open_ranges} in this time; "
                    "are they running?"
                )
            elif now - last_asked > _SILENCE_S:
                last_asked = now
                open_ranges.close_what_is_gone()
            records = open_ranges.take(messages)
            if records:
                yield to_record_batch(records, schema)
                last_news = time.monotonic()  # Spark may have taken its time with the batch
    finally:
        consumer.unassign()
