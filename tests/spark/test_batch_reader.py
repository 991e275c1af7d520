"""The range of a batch, compared with the contents of the logs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from barnabas.base.errors import ConfigError
from barnabas.spark.batch_reader import TopicReader
from barnabas.spark.open_ranges import DataLossError
from barnabas.spark.options import ReadOptions

MakeTopic = Callable[..., str]
Plan = Callable[..., list[tuple[int, int, int]]]


@pytest.fixture
def plan(servers: str) -> Plan:
    """Return the ranges that a batch with these options reads: partition, start, end."""

    def plan(**options: str) -> list[tuple[int, int, int]]:
        options |= {"kafka.bootstrap.servers": servers}
        tasks = TopicReader(ReadOptions.parse(options, streaming=False)).partitions()
        return sorted((each.partition, each.start, each.end) for task in tasks for each in task.ranges)

    return plan


@pytest.fixture
def topic(make_topic: MakeTopic, feed: Callable[..., None], admin: AdminClient) -> str:
    """Create a topic with the offsets 3 to 10. Earlier records are deleted."""
    name = make_topic()
    feed(name, range(10))
    partition = ClientPartition(name, 0, 3)
    admin.delete_records([partition])[partition].result(60)
    return name


def offsets(topic: str, offset: int) -> str:
    return f'{{"{topic}":{{"0":{offset}}}}}'


def test_a_batch_goes_from_the_start_of_the_log_to_its_end(topic: str, plan: Plan) -> None:
    assert plan(subscribe=topic) == [(0, 3, 10)]


def test_an_empty_batch_is_one_empty_task(make_topic: MakeTopic, plan: Plan) -> None:
    assert plan(subscribe=make_topic(2)) == []


def test_a_start_that_is_deleted_is_data_loss(topic: str, plan: Plan) -> None:
    start = offsets(topic, 1)
    with pytest.raises(
        DataLossError, match=f"{topic}-0: offsets 1 to 2 are gone; to continue with the remaining records"
    ):
        plan(subscribe=topic, startingOffsets=start)
    assert plan(subscribe=topic, startingOffsets=start, failOnDataLoss="false") == [(0, 3, 10)]
    assert plan(subscribe=topic, startingOffsets=start, endingOffsets=start) == [], "nothing is wanted of it"


def test_an_end_beyond_the_log_is_data_loss(topic: str, plan: Plan) -> None:
    end = offsets(topic, 99)
    with pytest.raises(DataLossError, match=f"{topic}-0: offsets 10 to 98 are gone"):
        plan(subscribe=topic, endingOffsets=end)
    assert plan(subscribe=topic, endingOffsets=end, failOnDataLoss="false") == [(0, 3, 10)]


def test_a_start_beyond_the_log_is_data_loss(topic: str, plan: Plan) -> None:
    start = offsets(topic, 99)
    with pytest.raises(DataLossError, match=f"{topic}-0: the log ends at 10, before 99"):
        plan(subscribe=topic, startingOffsets=start)
    assert plan(subscribe=topic, startingOffsets=start, failOnDataLoss="false") == []


def test_a_start_after_the_end_is_refused(topic: str, plan: Plan) -> None:
    with pytest.raises(
        ConfigError, match=f"startingOffsets=8 is not allowed: the read of {topic}-0 ends before that, at 5"
    ):
        plan(subscribe=topic, startingOffsets=offsets(topic, 8), endingOffsets=offsets(topic, 5))


def test_a_batch_may_start_where_a_group_has_come_to(topic: str, plan: Plan, admin: AdminClient) -> None:
    group = ConsumerGroupTopicPartitions(f"{topic}-group", [ClientPartition(topic, 0, 6)])
    admin.alter_consumer_group_offsets([group])[group.group_id].result(60)
    given = {"subscribe": topic, "startingOffsets": "group"}
    assert plan(**given, **{"kafka.group.id": group.group_id}) == [(0, 6, 10)]
    assert plan(**given, **{"kafka.group.id": f"{topic}-new"}) == [(0, 3, 10)]


def test_no_task_reads_more_than_it_may(topic: str, plan: Plan) -> None:
    assert plan(subscribe=topic, maxRecordsPerPartition="3") == [(0, 3, 5), (0, 5, 7), (0, 7, 10)]


def test_a_batch_may_end_at_a_time(make_topic: MakeTopic, feed: Callable[..., None], plan: Plan) -> None:
    topic = make_topic(2)
    for partition in range(2):
        for moment in (1000, 2000, 3000):
            feed.send(topic, value=b"v", partition=partition, timestamp=moment)
    assert plan(subscribe=topic, endingTimestamp="2000") == [(0, 0, 1), (1, 0, 1)]
    assert plan(subscribe=topic, endingTimestamp="9000") == [(0, 0, 3), (1, 0, 3)], "none is so late"
    each = f'{{"{topic}":{{"0":2001,"1":1001}}}}'
    assert plan(subscribe=topic, endingOffsetsByTimestamp=each) == [(0, 0, 2), (1, 0, 1)]
    late = f'{{"{topic}":{{"0":1,"1":2}}}}'
    with pytest.raises(
        ConfigError, match=f"startingOffsets=2 is not allowed: the read of {topic}-1 ends before"
    ):
        plan(subscribe=topic, startingOffsets=late, endingTimestamp="2000")


def test_a_batch_of_chosen_partitions_reads_no_others(
    make_topic: MakeTopic, feed: Callable[..., None], plan: Plan
) -> None:
    topic = make_topic(3)
    for partition in range(3):
        feed(topic, "ab", partition)
    assert plan(assign=f'{{"{topic}":[0,2]}}') == [(0, 0, 2), (2, 0, 2)]


def test_small_partitions_share_a_task_and_large_ones_are_split(
    servers: str, make_topic: MakeTopic, feed: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    topic = make_topic(6)
    for partition in range(6):
        feed(topic, range(100 if partition else 600), partition)

    def sizes(**options: str) -> list[int]:
        options |= {"kafka.bootstrap.servers": servers, "subscribe": topic}
        tasks = TopicReader(ReadOptions.parse(options, streaming=False)).partitions()
        return sorted(sum(each.size for each in task.ranges) for task in tasks)

    assert sizes() == [500, 600]
    assert sizes(minPartitions="6") == [100] * 5 + [600]
    assert sizes(minPartitions="11") == [100] * 11
