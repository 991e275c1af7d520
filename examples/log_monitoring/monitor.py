"""Monitors logs: error rates by the minute, alerts, and an archive.

barnabas pipeline run examples/log_monitoring/monitor.py
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from barnabas.pipelines import parameter, sink, source
from steps import LATE_MINUTES, TOPICS, bursts, error_rates, placed

ARCHIVE = parameter("archive", "archive")
ARCHIVE_EVERY = parameter("archive_every", "1 minute")


@source(topic=TOPICS, format="log", watermark=f"at {LATE_MINUTES} minutes")
def logs(rows: DataFrame) -> DataFrame:
    return placed(rows)


@sink(topic="errorRates", key="topic,minute", mode="update")
def rates(logs: DataFrame) -> DataFrame:
    return error_rates(logs)


@sink(topic="alerts", key="topic,minute")
def alerts(logs: DataFrame) -> DataFrame:
    return bursts(logs)


# a file for every batch would be very many small ones
@sink(parquet=ARCHIVE, partition_by="day", trigger=ARCHIVE_EVERY)
def archive(logs: DataFrame) -> DataFrame:
    return logs
