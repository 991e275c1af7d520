"""Declarations of metrics, and their text."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.metrics import BOUNDS, Durations, Meter, Percentages
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


@given(st.lists(st.integers(0, 100), min_size=1), st.floats(0.001, 1))
def test_a_quantile_of_percentages_is_exact(values, q):
    percentages = Percentages()
    for each in values:
        percentages.add(each)
    assert percentages.quantile(q) == sorted(values)[max(1, math.ceil(q * len(values))) - 1]
    assert (percentages.sum, percentages.count) == (sum(values), len(values))


def test_a_summary_of_percentages_is_written_as_they_are():
    percentages = Percentages()
    percentages.add(0)
    percentages.add(50)
    written_lines = lines(Metric("m", Kind.SUMMARY, ("group",), "Help."), (("g",), percentages))
    assert 'm{group="g",quantile="0.5"} 0' in written_lines
    assert 'm{group="g",quantile="0.99"} 50' in written_lines
    assert written_lines[-2:] == ['m_sum{group="g"} 50', 'm_count{group="g"} 2']


def test_a_meter_forgets_the_events_before_its_last_two_windows():
    now = 100.0
    meter = Meter(lambda: now)
    assert (meter.count, meter.rate) == (0, 0)
    for _ in range(60):
        meter.add()
    assert meter.rate == 2
    now = 145.0
    meter.add()
    assert meter.rate == 61 / 45
    now = 161.0
    assert meter.rate == 1 / 31
    now = 1000.0
    assert (meter.count, meter.rate) == (61, 0)


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
