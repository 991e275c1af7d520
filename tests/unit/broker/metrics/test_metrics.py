"""Declarations of metrics, and their text."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.metrics import BOUNDS, Durations
from barnabas.base.metrics.declaration import Kind, Metric, Page, written
from barnabas.broker.metrics.catalogue import METRICS
from barnabas.broker.metrics.traffic import TopicTraffic
from barnabas.broker.server.monitoring import broker_page, partition_page


def lines(metric, *samples):
    return "".join(written(metric, samples)).splitlines()


def test_label_values_cannot_end_their_line_or_quotes():
    metric = Metric("m", Kind.GAUGE, ("group",), "Help.")
    assert lines(metric, (('a"b\\c\nd',), 1)) == [
        "# HELP m Help.",
        "# TYPE m gauge",
        'm{group="a\\"b\\\\c\\nd"} 1',
    ]


def test_empty_labels_are_left_out():
    assert lines(Metric("m", Kind.COUNTER, ("topic",), "Help."), (("",), 3))[-1] == "m 3"


def test_a_metric_without_samples_is_not_written():
    assert lines(Metric("m", Kind.COUNTER, (), "Help.")) == []


@given(st.lists(st.floats(0, 100)))
def test_a_histogram_counts_each_duration_once(seconds):
    durations = Durations()
    for each in seconds:
        durations.add(each)
    buckets = dict(durations.buckets())
    assert durations.count == buckets["+Inf"] == len(seconds)
    assert math.isclose(durations.seconds, sum(seconds))
    for bound in BOUNDS:
        assert buckets[repr(bound)] == sum(each <= bound for each in seconds)


@given(st.lists(st.floats(0, BOUNDS[-1]), min_size=1), st.floats(0, 1))
def test_a_quantile_lies_in_the_bucket_where_it_belongs(seconds, q):
    durations = Durations()
    for each in seconds:
        durations.add(each)
    rank = max(1, math.ceil(q * len(seconds)))
    exact = sorted(seconds)[rank - 1]
    upper = next(bound for bound in BOUNDS if exact <= bound)
    lower = max((bound for bound in BOUNDS if bound < upper), default=0)
    assert lower <= durations.quantile(q) <= upper or q == 0


def test_a_histogram_is_written_with_its_buckets_sum_and_count():
    durations = Durations()
    durations.add(0.002)
    written_lines = lines(Metric("m", Kind.HISTOGRAM, ("request",), "Help."), (("Fetch",), durations))
    assert 'm_bucket{request="Fetch",le="0.001"} 0' in written_lines
    assert 'm_bucket{request="Fetch",le="+Inf"} 1' in written_lines
    assert written_lines[-2:] == ['m_sum{request="Fetch"} 0.002', 'm_count{request="Fetch"} 1']


def test_a_summary_has_milliseconds():
    durations = Durations()
    durations.add(0.002)
    written_lines = lines(Metric("m", Kind.SUMMARY, (), "Help."), ((), durations))
    assert 'm{quantile="0.99"} 2.485' in written_lines
    assert written_lines[-2:] == ["m_sum 2", "m_count 1"]


def test_every_declared_metric_is_sampled_and_no_other():
    by_page = {page: {m.name for m in METRICS.values() if m.page is page} for page in Page}
    assert by_page[Page.BROKER] == set(broker_page.SAMPLERS)
    assert by_page[Page.PARTITIONS] == set(partition_page.SAMPLERS)


@pytest.mark.parametrize("metric", list(METRICS.values()), ids=lambda metric: metric.name)
def test_a_declaration_follows_the_rules_of_prometheus(metric):
    assert metric.help.endswith(".")
    assert "\n" not in metric.help
    assert len(set(metric.labels)) == len(metric.labels)
    if metric.name.endswith("_total"):
        assert metric.kind is Kind.COUNTER


def test_the_traffic_of_a_deleted_topic_is_added_up():
    gone, one = TopicTraffic(), TopicTraffic()
    one.bytes_in = 3
    gone.add(one)
    gone.add(one)
    assert gone.bytes_in == 6
    assert gone.bytes_out == 0
