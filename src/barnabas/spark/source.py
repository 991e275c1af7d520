"""The entry point of the data source: gives Spark its schema, readers and writers.

Readers and writers are imported only when Spark requests them. Every Spark session on a machine imports this
module to find the data source, and imports it again for each schema, in a separate process. These imports
must not load librdkafka and Arrow.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from barnabas.base.errors import ConfigError
from barnabas.spark.columns import check_writable, chosen_columns, read_schema
from barnabas.spark.options import ReadOptions, WriteOptions
from barnabas.spark.worker_heap import count_use

if TYPE_CHECKING:
    from barnabas.spark.batch_reader import TopicReader
    from barnabas.spark.stream_reader import TopicStreamReader
    from barnabas.spark.writer import TopicStreamWriter, TopicWriter


_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class BarnabasDataSource(DataSource):
    """The data source with the short name ``barnabas``. `barnabas.spark.options` has its options."""

    @classmethod
    def name(cls) -> str:
        return "barnabas"

    def schema(self) -> StructType:
        """Return the columns of a read without ``schema()``. They are the same for every topic.

        The readers check the options, because only they know whether the query is a batch or a stream.
        """
        return read_schema(self.options.get("includeHeaders", "false").strip().lower() == "true")

    def reader(self, schema: StructType) -> TopicReader:
        """Return a reader for batch queries. Raises ConfigError for invalid options or columns.

        The reader accepts filters only in the separate process in which Spark pushes filters down. Elsewhere
        Spark would reject such a reader unless spark.sql.python.filterPushdown.enabled is set, which a data
        source cannot read.
        """
        from barnabas.spark.batch_reader import FilteredTopicReader, TopicReader

        kind = FilteredTopicReader if _PUSHDOWN_WORKER in sys.modules else TopicReader
        return kind(self._read_options(schema, streaming=False))

    def streamReader(self, schema: StructType) -> TopicStreamReader:
        from barnabas.spark.pyspark_versions import HAS_LIMITS, require_limits
        from barnabas.spark.stream_reader import TopicStreamReader, UnlimitedStreamReader

        options = self._read_options(schema, streaming=True)
        require_limits(self.options)
        return TopicStreamReader(options) if HAS_LIMITS else UnlimitedStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> TopicWriter:
        """Return a writer for batch queries.

        Raises ConfigError for invalid options, and for ``mode("overwrite")``: a topic can only be appended
        to.
        """
        from barnabas.spark.writer import TopicWriter

        if overwrite:
            raise ConfigError(
                'mode("overwrite") is not allowed: a topic is only appended to, use mode("append")'
            )
        return TopicWriter(self._write_options(schema, streaming=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> TopicStreamWriter:
        """Return a writer for streams. Raises ConfigError for invalid options.

        `overwrite` is true for the output mode complete. Then each micro-batch appends the whole result
        again.
        """
        from barnabas.spark.writer import TopicStreamWriter

        count_use()  # a micro-batch is planned and committed in a process each

        return TopicStreamWriter(self._write_options(schema, streaming=True))

    def _read_options(self, schema: StructType, *, streaming: bool) -> ReadOptions:
        from barnabas.spark.fetch_settings import FetchSettings

        options = ReadOptions.parse(self.options, streaming=streaming)
        FetchSettings.parse(options.client)  # refuse here and not first in an executor
        return dataclasses.replace(options, columns=chosen_columns(schema))

    def _write_options(self, schema: StructType, *, streaming: bool) -> WriteOptions:
        from barnabas.spark.clients import check_producer_settings, producer_settings, transaction_settings

        options = WriteOptions.parse(self.options, streaming=streaming)
        check_writable(schema, options.topic)
        check_producer_settings(
            transaction_settings(options.client, "barnabas-spark")
            if options.exactly_once
            else producer_settings(options.client)
        )
        return options
