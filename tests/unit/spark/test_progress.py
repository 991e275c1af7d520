"""Lag by Spark's progress reports."""

from __future__ import annotations

from barnabas.spark.progress import lag
from barnabas.types import TopicPartition


def test_lag_is_what_lies_between_the_end_of_the_batch_and_the_end_of_the_log() -> None:
    topics = {"endOffset": '{"a": {"0": 5, "1": 7}}', "latestOffset": '{"a": {"0": 9, "1": 7, "2": 3}}'}
    rate = {"endOffset": "12", "latestOffset": "None"}
    files = {"endOffset": '{"logOffset": 3}', "latestOffset": "null"}
    assert lag({"sources": [rate, topics, files]}) == {
        TopicPartition("a", 0): 4,
        TopicPartition("a", 1): 0,
        TopicPartition("a", 2): 3,
    }
