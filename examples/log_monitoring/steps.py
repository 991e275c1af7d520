"""Steps for log records. The stream and the replay of a day call the same functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

#: the topics that logs are shipped to, one for each kind of program
TOPICS = "appLogs,ingressLogs,dbLogs"

ERROR_LEVELS = ("ERROR", "FATAL")

#: A burst: in one minute a topic has at least so many errors ...
AT_LEAST = 10
#: ... and so many times as many as usual, ...
TIMES = 5
#: ... which is the mean of so many minutes before.
USUAL_MINUTES = 10

#: How late a record may come, in minutes, and still be counted.
LATE_MINUTES = 10


def placed(logs: DataFrame) -> DataFrame:
    """Return log records with two more columns: their position in the topic, and the day (UTC) of their
    archive folder.
    """
    return logs.select(
        "_record.topic",
        "_record.partition",
        "_record.offset",
        "source",
        "level",
        "message",
        "at",
        "fields",
        F.date_format("at", "yyyy-MM-dd").alias("day"),
    )


def error_rates(logs: DataFrame) -> DataFrame:
    """Return, for each topic and minute, the number of records, the number of errors,
    and the share of errors.
    """
    counted = logs.groupBy("topic", F.window("at", "1 minute").alias("window")).agg(
        F.count("*").alias("records"), F.count_if(F.col("level").isin(*ERROR_LEVELS)).alias("errors")
    )
    rate = F.round(F.col("errors") / F.col("records"), 4).alias("rate")
    return counted.select("topic", F.col("window.start").alias("minute"), "records", "errors", rate)


def bursts(logs: DataFrame) -> DataFrame:
    """Return a row for each burst of errors in a topic, as soon as its first minute has enough of them."""
    errors = logs.where(F.col("level").isin(*ERROR_LEVELS)).select(
        "topic", F.floor(F.unix_seconds("at") / 60).alias("minute"), "source", "message"
    )
    found = errors.groupBy("topic").transformWithStateInPandas(
        BurstAlarm(),
        "topic STRING, minute BIGINT, errors BIGINT, usual DOUBLE, source STRING, message STRING",
        "Append",
        "None",
    )
    return found.withColumn("minute", F.timestamp_seconds(F.col("minute") * 60))


def usual_errors(errors: Mapping[int, int], minute: int) -> float:
    """Return the mean number of errors in the minutes before this one. A minute
    without a count has 0 errors.
    """
    return sum(errors.get(minute - back, 0) for back in range(1, USUAL_MINUTES + 1)) / USUAL_MINUTES


def is_burst(errors: Mapping[int, int], minute: int) -> bool:
    return errors.get(minute, 0) >= max(AT_LEAST, TIMES * usual_errors(errors, minute))


def begins_burst(errors: Mapping[int, int], minute: int) -> bool:
    """Return whether a burst begins in this minute, and not before."""
    return is_burst(errors, minute) and not is_burst(errors, minute - 1)


class BurstAlarm(StatefulProcessor):
    """Keeps the number of errors in a topic's last minutes. Spark passes new records to it in each batch."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._minutes = handle.getMapState("minutes", "minute BIGINT", "errors BIGINT")

    def handleInputRows(
        self, key: tuple[str], rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        new = pd.concat(rows)
        before = Counter({minute: errors for (minute,), (errors,) in self._minutes.iterator()})
        after = before + Counter(new["minute"].tolist())
        for minute, of_minute in new.groupby("minute"):
            self._minutes.updateValue((minute,), (after[minute],))
            if begins_burst(after, minute) and not begins_burst(before, minute):
                first = of_minute.sort_values(["source", "message"]).iloc[0]
                found = {"errors": after[minute], "usual": usual_errors(after, minute)}
                yield pd.DataFrame([{"topic": key[0], **found, **first}])
        for minute in after:
            if minute < max(after) - USUAL_MINUTES - LATE_MINUTES:
                self._minutes.removeKey((minute,))

    def close(self) -> None:
        pass
