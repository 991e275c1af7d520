"""Lag from Spark's progress reports."""

from __future__ import annotations

from barnabas.base.types import TopicPartition
from barnabas.spark.progress import lag


def test_lag_is_what_lies_between_the_end_of_the_batch_and_the_end_of_the_log() -> None:
    topics = {"endOffset": '{"a": {"0": 5, "1": 7}}', "latestOffset": '{"a": {"0": 9, "1": 7, "2": 3}}'}
    rate = {"endOffset": "12", "latestOffset": "None"}
    files = {"endOffset": '{"logOffset": 3}', "latestOffset": "null"}
    assert lag({"sources": [rate, topics, files]}) == {
        TopicPartition("a", 0): 4,
        TopicPartition("a", 1): 0,
        TopicPartition("a", 2): 3,
    }


def test_of_two_sources_of_one_topic_the_one_further_behind_counts() -> None:
    ahead = {"endOffset": '{"a": {"0": 8}}', "latestOffset": '{"a": {"0": 9}}'}
    behind = {"endOffset": '{"a": {"0": 2}}', "latestOffset": '{"a": {"0": 9}}'}
    for sources in ([ahead, behind], [behind, ahead]):
        assert lag({"sources": sources}) == {TopicPartition("a", 0): 7}


def test_a_plan_of_a_later_version_does_not_hide_the_lag() -> None:
    end = '{"a": {"0": 5, "id": "Zm9v"}, "#plan": {"version": 99}}'
    assert lag({"sources": [{"endOffset": end, "latestOffset": '{"a": {"0": 9}}'}]}) == {
        TopicPartition("a", 0): 4
    }
