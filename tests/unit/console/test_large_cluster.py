"""The requests of pages in a large cluster: a limited number of them, none of which is large."""

from __future__ import annotations

import threading
from types import SimpleNamespace

from tests.unit.console.clusters import PARTITIONS, SIZE, Cluster

from barnabas.base.errors import ErrorCode
from barnabas.base.types import TopicPartition
from barnabas.client.consumer_groups import offsets_of_groups
from barnabas.console.pages.brokers import brokers
from barnabas.console.pages.groups import groups
from barnabas.console.pages.overview import overview
from barnabas.console.pages.topics import topics
from barnabas.console.survey import AT_ONCE
from barnabas.console.view import MAX_GROUPS


def test_the_overview_of_a_large_cluster_waits_for_no_survey_of_all_partitions(view_of):
    cluster = Cluster(topics=3000, groups=20)
    view = view_of(cluster)
    cluster.answers.clear()
    told = overview(view, {})
    assert told["partitions"] == 30_000 and told["brokers"][0]["leads"] == 30_000
    assert told["lags"][0]["lag"] == 7 and told["groups"]["looked_at"] == 20


def test_the_survey_of_a_large_cluster_asks_a_few_partitions_at_a_time(view_of):
    cluster = Cluster(topics=400)
    view = view_of(cluster)
    cluster.answers.clear()
    assert view.totals().age_s is None, "it waited for what nobody has answered"
    cluster.answers.set()
    while view.totals().age_s is None:
        threading.Event().wait(0.01)
    assert cluster.largest["ListOffsets"] == cluster.largest["DescribeLogDirs"] == AT_ONCE
    totals = view.totals()
    assert totals.topics["topic-00399"] == (5 * PARTITIONS, SIZE * PARTITIONS)
    assert totals.directories[1, "/data"] == (4000, 4000 * SIZE)
    (directory,) = brokers(view, {})["brokers"][0]["log_dirs"]["directories"]
    assert (directory["replicas"], directory["bytes"]) == (4000, 4000 * SIZE)
    first = topics(view, {"sort": "bytes", "order": "down"})["topics"][0]
    assert (first["records"], first["bytes"]) == (50, 1000)


def test_the_page_says_why_a_broker_shows_no_log_directories(view_of, monkeypatch):
    cluster = Cluster(topics=1)
    refused = SimpleNamespace(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results=[])
    monkeypatch.setattr(cluster, "_DescribeLogDirs", lambda request: refused)
    shown = brokers(view_of(cluster), {})["brokers"][0]["log_dirs"]
    assert shown["directories"] == []
    assert shown["problem"]


def test_a_page_of_topics_asks_for_its_own_partitions_only(view_of):
    cluster = Cluster(topics=1000)
    assert len(topics(view_of(cluster), {})["topics"]) == 50
    # Starts, ends, and the ends again beside the groups; the sizes.
    assert cluster.partitions["ListOffsets"] <= 3 * 50 * PARTITIONS
    assert cluster.partitions["DescribeLogDirs"] == 50 * PARTITIONS


def test_a_page_of_groups_asks_where_the_partitions_end_that_they_read(view_of):
    cluster = Cluster(topics=3000, groups=2000)
    told = groups(view_of(cluster), {"page": "40"})
    assert [row["lag"] for row in told["groups"]] == [7] * 50
    assert cluster.partitions["OffsetFetch"] == MAX_GROUPS + 50
    assert cluster.partitions["ListOffsets"] == MAX_GROUPS + 50


def test_a_small_cluster_is_asked_at_once_and_then_not_before_the_answer_is_old(view_of):
    cluster = Cluster(topics=20)
    view = view_of(cluster)
    totals = view.totals()
    assert totals.age_s is not None and len(totals.topics) == 20
    asked = cluster.asked["ListOffsets"]
    view._survey._fresh_until += 3600
    view.totals()
    assert cluster.asked["ListOffsets"] == asked == 2


def test_nothing_is_asked_once_nobody_looks(view_of):
    cluster = Cluster(topics=400)
    view = view_of(cluster)
    cluster.answers.clear()
    view.totals()
    view._survey._looked -= 3600
    cluster.answers.set()
    thread = view._survey._thread
    if thread is not None:
        thread.join(60)
        assert not thread.is_alive()
    assert cluster.asked["DescribeLogDirs"] <= 1, "it went on without anybody who looks"


def test_no_topic_names_are_looked_up_for_the_offsets_of_groups():
    cluster = Cluster(topics=3, groups=2)
    found = offsets_of_groups(cluster, ["group-00000", "group-00001"])
    assert found["group-00001"] == {TopicPartition("topic-00001", 0): 0}
    assert cluster.asked == {"OffsetFetch": 1}
    assert cluster.max_version == 9, "later versions have the ids of topics"
