"""What pages ask of a cluster that is large: a bounded number of requests, none of which is large itself."""

from __future__ import annotations

import threading
from collections import Counter
from types import SimpleNamespace

import pytest

from barnabas.console import survey
from barnabas.console.kafka import Kafka
from barnabas.console.pages.brokers import brokers
from barnabas.console.pages.groups import groups
from barnabas.console.pages.overview import overview
from barnabas.console.pages.topics import topics
from barnabas.console.survey import AT_ONCE, Survey
from barnabas.console.view import MOST_GROUPS, ClusterView

PARTITIONS = 10
SIZE = 100


class Cluster:
    """One broker with topics of ten partitions, and groups that have committed 0 in one; it notes what it is
    asked. Each partition ends at 7; what asks for many of them is answered when `answers` is set."""

    def __init__(self, topics: int, groups: int = 0) -> None:
        self.servers = "127.0.0.1:1"
        self.asked: Counter[str] = Counter()
        #: of how many partitions the largest request of a kind was, and all of them together
        self.largest: Counter[str] = Counter()
        self.partitions: Counter[str] = Counter()
        self.answers = threading.Event()
        self.answers.set()
        self._groups = [f"group-{n:05}" for n in range(groups)]
        self._topics = [
            SimpleNamespace(name=f"topic-{n:05}", topic_id=bytes(16), is_internal=False, partitions=_row())
            for n in range(topics)
        ]
        broker = SimpleNamespace(node_id=1, host="127.0.0.1", port=9092, rack=None)
        self._metadata = SimpleNamespace(
            cluster_id="c", controller_id=1, brokers=[broker], topics=self._topics
        )

    def metadata(self, names=None):
        return self._metadata

    def topic_names(self):
        return {topic.topic_id: topic.name for topic in self._topics}

    def coordinators(self, groups):
        return dict.fromkeys(groups, 1)

    def close(self):
        pass

    def ask_any(self, request):
        return self.ask(1, request)

    def ask(self, broker, request):
        kind = type(request).__name__.removesuffix("Request")
        self.asked[kind] += 1
        return getattr(self, f"_{kind}")(request)

    def _note(self, kind, count):
        self.largest[kind] = max(self.largest[kind], count)
        self.partitions[kind] += count

    def _DescribeCluster(self, request):
        return SimpleNamespace(error_code=0, controller_id=1)

    def _ListGroups(self, request):
        listed = [
            SimpleNamespace(group_id=g, group_state="Empty", group_type="classic", protocol_type="consumer")
            for g in self._groups
        ]
        return SimpleNamespace(groups=listed)

    def _OffsetFetch(self, request):
        self._note("OffsetFetch", len(request.groups))
        found = []
        for group in request.groups:
            number = int(group.group_id.rpartition("-")[2]) % len(self._topics)
            partition = SimpleNamespace(partition_index=0, committed_offset=0, error_code=0)
            topic = SimpleNamespace(name=f"topic-{number:05}", topic_id=bytes(16), partitions=[partition])
            found.append(SimpleNamespace(group_id=group.group_id, error_code=0, topics=[topic]))
        return SimpleNamespace(groups=found)

    def _ListOffsets(self, request):
        count = sum(len(topic.partitions) for topic in request.topics)
        assert count < AT_ONCE or self.answers.wait(60)
        self._note("ListOffsets", count)
        told = [
            SimpleNamespace(
                name=topic.name,
                partitions=[
                    SimpleNamespace(
                        partition_index=p.partition_index, error_code=0, offset=7 if p.timestamp == -1 else 2
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return SimpleNamespace(topics=told)

    def _DescribeLogDirs(self, request):
        assert request.topics is not None, "a page asks for every replica at once"
        self._note("DescribeLogDirs", sum(len(topic.partitions) for topic in request.topics))
        told = [
            SimpleNamespace(
                name=topic.topic,
                partitions=[
                    SimpleNamespace(partition_index=index, partition_size=SIZE) for index in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        directory = SimpleNamespace(
            log_dir="/data", error_code=0, topics=told, total_bytes=-1, usable_bytes=-1
        )
        return SimpleNamespace(results=[directory])

    def _ListPartitionReassignments(self, request):
        return SimpleNamespace(topics=[])


def _row():
    return [
        SimpleNamespace(partition_index=n, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1])
        for n in range(PARTITIONS)
    ]


@pytest.fixture
def view_of(monkeypatch):
    monkeypatch.setattr(survey, "BEFORE_S", 0)
    views = []

    def make(cluster):
        view = ClusterView(cluster.servers)
        view.kafka.close()
        view.kafka = cluster
        view._survey = Survey(cluster, view.rates, view._log_dirs)
        views.append(view)
        return view

    yield make
    for view in views:
        view.kafka.answers.set()
        view.close()


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
    assert cluster.partitions["OffsetFetch"] == MOST_GROUPS + 50
    assert cluster.partitions["ListOffsets"] == MOST_GROUPS + 50


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


def test_the_names_of_topics_are_looked_up_once_for_all_groups(monkeypatch):
    kafka = Kafka("127.0.0.1:1")
    metadata = Cluster(topics=3).metadata()
    monkeypatch.setattr(kafka, "metadata", lambda: metadata)
    assert kafka.topic_names() is kafka.topic_names()
    before = kafka.topic_names()
    metadata = Cluster(topics=2).metadata()
    assert kafka.topic_names() is not before
    kafka.close()
