"""A query's source from trigger to trigger, called as Spark calls it, without the waits of Spark."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from barnabas.base.types import TopicPartition
from barnabas.spark.admission import Admission
from barnabas.spark.open_ranges import DataLossError
from barnabas.spark.options import ReadOptions
from barnabas.spark.plan import Plan
from barnabas.spark.position import Position, PositionJson
from barnabas.spark.ranges import Offsets, to_json
from barnabas.spark.stream_reader import TopicStreamReader

MakeTopic = Callable[..., str]
Feed = Callable[..., None]
Open = Callable[..., TopicStreamReader]


@pytest.fixture
def open_reader(servers: str) -> Iterator[Open]:
    readers = []

    def open_reader(**options: str) -> TopicStreamReader:
        options |= {"kafka.bootstrap.servers": servers}
        readers.append(TopicStreamReader(ReadOptions.parse(options, streaming=True)))
        return readers[-1]

    yield open_reader
    for reader in readers:
        reader.stop()


def numbers(position: PositionJson) -> dict[str, dict[str, int]]:
    """Return a position's offsets, without its topic ids."""
    return to_json(Position.from_json(position).offsets)


def batch(reader: TopicStreamReader, start: PositionJson, end: PositionJson) -> list[bytes]:
    tasks = reader.partitions(start, end)
    tables = [pa.Table.from_batches([each]) for task in tasks for each in reader.read(task)]
    return sorted(value for table in tables for value in table["value"].to_pylist())


def test_a_micro_batch_holds_what_came_since_the_last(
    make_topic: MakeTopic, feed: Feed, open_reader: Open
) -> None:
    topic = make_topic(2)
    feed(topic, "ab")
    reader = open_reader(subscribe=topic)
    start = reader.initialOffset()
    assert numbers(start) == {topic: {"0": 2, "1": 0}}
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    feed(topic, "cd", partition=1)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert batch(reader, start, end) == [b"c", b"d"]
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert batch(reader, end, end) == []
    assert reader.reportLatestOffset() == numbers(end)


@pytest.mark.parametrize("limit", [ReadAllAvailable(), ReadMaxRows(10), ReadMaxBytes(1000)])
def test_only_partitions_with_news_are_asked_for_their_earliest_offsets(
    make_topic: MakeTopic,
    feed: Feed,
    open_reader: Open,
    limit: ReadAllAvailable | ReadMaxRows | ReadMaxBytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = make_topic(3)
    feed(topic, "ab")
    sizes = {"maxBytesPerTrigger": "1000"} if isinstance(limit, ReadMaxBytes) else {}
    reader = open_reader(subscribe=topic, startingOffsets="earliest", **sizes)
    first = reader.latestOffset(reader.initialOffset(), limit)
    asked, ask = [], reader._lookup.earliest

    def earliest(partitions: list[TopicPartition]) -> Offsets:
        asked.extend(partitions)
        return ask(partitions)

    monkeypatch.setattr(reader._lookup, "earliest", earliest)
    for _ in range(2):
        assert reader.latestOffset(first, limit) == first
    assert asked == []
    feed(topic, "c", partition=2)
    assert batch(reader, first, reader.latestOffset(first, limit)) == [b"c"]
    assert set(asked) == {TopicPartition(topic, 2)}


@pytest.mark.parametrize(
    "start", [{}, {"startingTimestamp": "9999999999999", "startingOffsetsByTimestampStrategy": "latest"}]
)
def test_a_new_query_starts_at_the_end_as_it_was_when_it_first_looked(
    make_topic: MakeTopic, feed: Feed, open_reader: Open, start: dict[str, str]
) -> None:
    topic = make_topic()
    feed(topic, "ab")
    reader = open_reader(subscribe=topic, **start)
    begin = reader.initialOffset()
    feed(topic, "cd")
    noted = reader.latestOffset(begin, ReadAllAvailable())
    feed(topic, "ef")
    # Spark asks again when it plans the first batch, of which the checkpoint has nothing but the end
    assert batch(reader, reader.initialOffset(), noted) == []
    assert batch(reader, noted, reader.latestOffset(noted, ReadAllAvailable())) == [b"c", b"d", b"e", b"f"]


def test_available_now_has_nothing_to_read_when_it_starts_at_the_end(
    make_topic: MakeTopic, feed: Feed, open_reader: Open
) -> None:
    topic = make_topic()
    feed(topic, "ab")
    reader = open_reader(subscribe=topic)
    reader.prepareForTriggerAvailableNow()
    feed(topic, "cd")
    start = reader.initialOffset()
    for _ in range(2):
        assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert numbers(start) == {topic: {"0": 2}}


def test_a_query_that_is_killed_in_its_first_batch_still_starts_where_it_first_looked(
    make_topic: MakeTopic, feed: Feed, open_reader: Open
) -> None:
    topic = make_topic()
    feed(topic, "ab")
    killed = open_reader(subscribe=topic)
    noted = killed.latestOffset(killed.initialOffset(), ReadAllAvailable())
    feed(topic, "cd")
    again = open_reader(subscribe=topic)
    assert batch(again, again.initialOffset(), noted) == []
    assert batch(again, noted, again.latestOffset(noted, ReadAllAvailable())) == [b"c", b"d"]


def test_a_replayed_batch_reads_the_same_again(make_topic: MakeTopic, feed: Feed, open_reader: Open) -> None:
    topic = make_topic()
    feed(topic, "abc")
    start, end = {topic: {"0": 0}}, {topic: {"0": 2}}
    assert batch(open_reader(subscribe=topic), start, end) == [b"a", b"b"]
    feed(topic, "de")
    reader = open_reader(subscribe=topic)
    assert batch(reader, start, end) == [b"a", b"b"]
    assert reader.reportLatestOffset() == {topic: {"0": 5}}, "its lag can be told all the same"


def test_a_limit_holds_for_each_trigger_until_all_is_read(
    make_topic: MakeTopic, feed: Feed, open_reader: Open
) -> None:
    topic = make_topic(2)
    feed(topic, range(30))
    feed(topic, range(10), partition=1)
    reader = open_reader(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="20")
    assert reader.getDefaultReadLimit() == ReadMaxRows(20)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert numbers(end) == {topic: {"0": 15, "1": 5}}
    assert numbers(reader.latestOffset(end, ReadMaxRows(20))) == {topic: {"0": 30, "1": 10}}
    assert numbers(reader.latestOffset(start, ReadAllAvailable())) == {topic: {"0": 30, "1": 10}}


def test_a_stream_starts_where_a_group_has_come_to(
    make_topic: MakeTopic, feed: Feed, open_reader: Open, admin: AdminClient
) -> None:
    topic, group = make_topic(3), f"resumed-{uuid.uuid4()}"
    for partition in range(3):
        feed(topic, range(9), partition)
    committed = [ClientPartition(topic, 0, 4), ClientPartition(topic, 1, 9)]
    admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, committed)])[group].result(60)
    reader = open_reader(**{"subscribe": topic, "startingOffsets": "group", "kafka.group.id": group})
    assert numbers(reader.initialOffset()) == {topic: {"0": 4, "1": 9, "2": 0}}


def test_a_micro_batch_waits_for_the_least_it_is_to_have_but_not_too_long(
    make_topic: MakeTopic, feed: Feed, open_reader: Open
) -> None:
    topic, now = make_topic(2), [100.0]
    reader = open_reader(
        subscribe=topic, startingOffsets="earliest", minOffsetsPerTrigger="10", maxTriggerDelay="30s"
    )
    reader._admission = Admission(reader._options, clock=lambda: now[0])
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(10)
    start = reader.initialOffset()
    feed(topic, "a")
    first = reader.latestOffset(start, limit)
    assert numbers(first) == {topic: {"0": 1, "1": 0}}, "the first does not wait"
    feed(topic, range(5))
    feed(topic, range(4), partition=1)
    now[0] += 29
    assert reader.latestOffset(first, limit) == first
    now[0] += 2
    late = reader.latestOffset(first, limit)
    assert numbers(late) == {topic: {"0": 6, "1": 4}}
    feed(topic, range(10), partition=1)
    assert numbers(reader.latestOffset(late, limit)) == {topic: {"0": 6, "1": 14}}, "there are enough"


def test_available_now_does_not_wait_for_what_will_not_come(
    make_topic: MakeTopic, feed: Feed, open_reader: Open
) -> None:
    topic = make_topic()
    reader = open_reader(subscribe=topic, startingOffsets="earliest", minOffsetsPerTrigger="10")
    start = reader.initialOffset()
    reader.latestOffset(start, ReadMinRows(10))
    feed(topic, "abc")
    reader.prepareForTriggerAvailableNow()
    assert numbers(reader.latestOffset(start, ReadMinRows(10))) == {topic: {"0": 3}}


def test_bytes_are_limited_by_the_size_of_the_records_to_come(
    make_topic: MakeTopic, feed: Feed, open_reader: Open
) -> None:
    topic = make_topic(2)
    feed(topic, [f"{number:0100}" for number in range(300)])
    feed(topic, [f"{number:01000}" for number in range(30)], partition=1)
    reader = open_reader(subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger="12000")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxBytes(12_000)
    start = reader.initialOffset()
    # both have 30,000 bytes, so both give 6,000: 60 records of 100 bytes and 6 of 1,000
    assert numbers(reader.latestOffset(start, limit)) == {topic: {"0": 60, "1": 6}}
    rest = {topic: {"0": 290, "1": 30}}
    assert numbers(reader.latestOffset(rest, limit)) == {topic: {"0": 300, "1": 30}}
    both = open_reader(subscribe=topic, maxBytesPerTrigger="12000", maxOffsetsPerTrigger="11")
    assert both.getDefaultReadLimit() == ReadMaxRows(11)
    assert numbers(both.latestOffset(start, ReadMaxRows(11))) == {topic: {"0": 10, "1": 1}}


def test_a_record_larger_than_the_limit_is_read_all_the_same(
    make_topic: MakeTopic, feed: Feed, open_reader: Open
) -> None:
    topic = make_topic()
    feed(topic, ["x" * 5000, "y" * 5000])
    reader = open_reader(subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger="100")
    assert numbers(reader.latestOffset(reader.initialOffset(), ReadMaxBytes(100))) == {topic: {"0": 1}}


def test_records_that_are_gone_are_named_all_at_once(
    make_topic: MakeTopic, feed: Feed, open_reader: Open, admin: AdminClient
) -> None:
    topic = make_topic(2)
    for partition in range(2):
        feed(topic, range(10), partition)
    deleted = [ClientPartition(topic, 0, 7), ClientPartition(topic, 1, 10)]
    for future in admin.delete_records(deleted).values():
        future.result(60)
    start = {topic: {"0": 2, "1": 3}}
    end = Position(Position.from_json({topic: {"0": 10, "1": 8}}).offsets, plan=Plan(2)).to_json()
    gone = f"{topic}-0: offsets 2 to 6 are gone; {topic}-1: offsets 3 to 7 are gone"
    cause = f"{gone}; to continue with the remaining records"
    with pytest.raises(DataLossError, match=cause):
        open_reader(subscribe=topic).partitions(start, end)
    assert batch(open_reader(subscribe=topic), start, start) == [], "it has none of them to lose"
    lenient = open_reader(subscribe=topic, failOnDataLoss="false")
    assert batch(lenient, start, end) == [b"7", b"8", b"9"]


def test_committed_records_only_end_at_the_first_open_transaction(
    servers: str, make_topic: MakeTopic, open_reader: Open
) -> None:
    topic = make_topic()
    committed = {"subscribe": topic, "startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
    reader, dirty = open_reader(**committed), open_reader(subscribe=topic, startingOffsets="earliest")
    start = reader.initialOffset()
    producer = Producer({"bootstrap.servers": servers, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(60)
    for value, end in ((b"a", "commit"), (b"b", "abort"), (b"c", None)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(60)
        if end == "commit":
            producer.commit_transaction(60)
        elif end == "abort":
            producer.abort_transaction(60)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert numbers(end) == {topic: {"0": 4}}  # two records, two markers
    assert batch(reader, start, end) == [b"a"]
    assert batch(dirty, start, dirty.latestOffset(start, ReadAllAvailable())) == [b"a", b"b", b"c"]
    producer.abort_transaction(60)


def test_available_now_leaves_later_records_to_the_next_run(
    make_topic: MakeTopic, feed: Feed, open_reader: Open
) -> None:
    topic = make_topic()
    feed(topic, "ab")
    reader = open_reader(subscribe=topic, startingOffsets="earliest")
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    feed(topic, "cd")
    end = reader.latestOffset(start, ReadAllAvailable())
    assert numbers(end) == {topic: {"0": 2}}
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_a_new_partition_is_read_from_its_start(
    make_topic: MakeTopic, feed: Feed, open_reader: Open, admin: AdminClient
) -> None:
    topic = make_topic()
    reader = open_reader(subscribe=topic, startingOffsets="earliest")
    start = reader.initialOffset()
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(60)
    while len(admin.list_topics(topic, timeout=60).topics[topic].partitions) < 2:
        pass  # Apache Kafka answers before all know of it
    feed(topic, "ab", partition=1)
    limited = reader.latestOffset(start, ReadMaxRows(1))
    assert numbers(limited) == {topic: {"0": 0, "1": 1}}
    end = reader.latestOffset(start, ReadAllAvailable())
    assert batch(reader, start, end) == [b"a", b"b"]


def test_a_new_partition_that_has_lost_records_before_they_were_read_is_data_loss(
    make_topic: MakeTopic, feed: Feed, open_reader: Open, admin: AdminClient
) -> None:
    topic = make_topic(2)
    feed(topic, "abcd", partition=1)
    deleted = ClientPartition(topic, 1, 3)
    admin.delete_records([deleted])[deleted].result(60)
    start, end = {topic: {"0": 0}}, {topic: {"0": 0, "1": 4}}  # the second was not there when it started
    with pytest.raises(DataLossError, match=f"{topic}-1: offsets 0 to 2 are gone"):
        open_reader(subscribe=topic).partitions(start, end)
    assert batch(open_reader(subscribe=topic, failOnDataLoss="false"), start, end) == [b"d"]


def test_a_new_topic_that_matches_the_pattern_joins_the_stream(
    make_topic: MakeTopic, feed: Feed, open_reader: Open
) -> None:
    mark = uuid.uuid4().hex[:8]
    make_topic(name=f"{mark}-old")
    reader = open_reader(subscribePattern=f"{mark}-.*", startingOffsets="earliest")
    start = reader.initialOffset()
    feed(make_topic(name=f"{mark}-new"), "ab")
    end = reader.latestOffset(start, ReadAllAvailable())
    assert batch(reader, start, end) == [b"a", b"b"]


def test_a_topic_made_anew_is_data_loss_and_then_read_from_its_start(
    make_topic: MakeTopic, feed: Feed, open_reader: Open, admin: AdminClient
) -> None:
    topic = make_topic()
    feed(topic, "abcd")
    start = {topic: {"0": 4}}
    admin.delete_topics([topic])[topic].result(60)
    make_topic(name=topic)
    feed(topic, "xy")
    strict, lenient = open_reader(subscribe=topic), open_reader(subscribe=topic, failOnDataLoss="false")
    end = lenient.latestOffset(start, ReadMaxRows(10))
    assert numbers(end) == {topic: {"0": 2}}
    with pytest.raises(
        DataLossError,
        match=f"{topic}-0: the topic was deleted and re-created; its records from offset 4 on are",
    ):
        strict.partitions(start, end)
    assert batch(lenient, start, end) == [b"x", b"y"]


def test_a_topic_made_anew_is_noticed_by_any_reader_though_its_log_is_longer_than_before(
    make_topic: MakeTopic, feed: Feed, open_reader: Open, admin: AdminClient
) -> None:
    topic = make_topic()
    feed(topic, "abcd")
    start = open_reader(subscribe=topic).initialOffset()
    admin.delete_topics([topic])[topic].result(60)
    make_topic(name=topic)
    feed(topic, "uvwxyz")
    # a query that was restarted meanwhile, from the same checkpoint
    strict, lenient = open_reader(subscribe=topic), open_reader(subscribe=topic, failOnDataLoss="false")
    end = lenient.latestOffset(start, ReadMaxRows(5))
    assert numbers(end) == {topic: {"0": 5}}
    with pytest.raises(
        DataLossError, match=f"{topic}-0: the topic was deleted and re-created; its records from offset 4"
    ):
        strict.partitions(start, end)
    assert batch(lenient, start, end) == [b"u", b"v", b"w", b"x", b"y"]
    later = lenient.latestOffset(end, ReadMaxRows(5))
    assert batch(strict, end, later) == [b"z"]


def test_a_task_reads_nothing_of_a_topic_that_was_made_anew_after_it_was_planned(
    make_topic: MakeTopic, feed: Feed, open_reader: Open, admin: AdminClient
) -> None:
    topic = make_topic()
    feed(topic, "abcd")
    lenient = open_reader(subscribe=topic, startingOffsets="earliest", failOnDataLoss="false")
    start = lenient.initialOffset()
    (task,) = lenient.partitions(start, lenient.latestOffset(start, ReadAllAvailable()))
    admin.delete_topics([topic])[topic].result(60)
    make_topic(name=topic)
    feed(topic, "uvwxyz")
    assert list(lenient.read(task)) == []
    with pytest.raises(DataLossError, match=f"{topic}-0 is gone"):
        list(open_reader(subscribe=topic).read(task))


def test_a_batch_planned_before_its_topic_was_made_anew_reads_nothing_of_the_new_one(
    make_topic: MakeTopic, feed: Feed, open_reader: Open, admin: AdminClient
) -> None:
    topic = make_topic()
    feed(topic, "abcd")
    planner = open_reader(subscribe=topic, startingOffsets="earliest")
    start = planner.initialOffset()
    end = planner.latestOffset(start, ReadAllAvailable())
    admin.delete_topics([topic])[topic].result(60)
    make_topic(name=topic)
    feed(topic, "uvwxyz")
    strict, lenient = open_reader(subscribe=topic), open_reader(subscribe=topic, failOnDataLoss="false")
    with pytest.raises(
        DataLossError, match=f"{topic}-0: the topic was deleted and re-created; its records from offset 0"
    ):
        strict.partitions(start, end)
    assert batch(lenient, start, end) == []
    later = lenient.latestOffset(end, ReadAllAvailable())
    assert batch(lenient, end, later) == [b"u", b"v", b"w", b"x", b"y", b"z"]


def test_a_query_goes_on_from_a_checkpoint_of_before_topics_had_ids(
    make_topic: MakeTopic, feed: Feed, open_reader: Open
) -> None:
    topic = make_topic()
    feed(topic, "abcd")
    reader = open_reader(subscribe=topic)
    end = reader.latestOffset({topic: {"0": 2}}, ReadAllAvailable())
    assert set(end[topic]) == {"0", "id"}
    assert batch(reader, {topic: {"0": 2}}, end) == [b"c", b"d"]


def test_a_topic_deleted_under_a_stream_is_data_loss_and_the_others_go_on(
    make_topic: MakeTopic, feed: Feed, open_reader: Open, admin: AdminClient
) -> None:
    deleted, kept = make_topic(), make_topic()
    both = {"subscribe": f"{deleted},{kept}", "startingOffsets": "earliest"}
    strict, lenient = open_reader(**both), open_reader(**both, failOnDataLoss="false")
    start = strict.initialOffset()
    admin.delete_topics([deleted])[deleted].result(60)
    feed(kept, "ab")
    end = lenient.latestOffset(start, ReadAllAvailable())
    assert numbers(end) == {kept: {"0": 2}}
    with pytest.raises(DataLossError, match=f"{deleted}-0: the partition is gone"):
        strict.partitions(start, end)
    assert batch(lenient, start, end) == [b"a", b"b"]


def test_a_batch_planned_before_its_topic_was_deleted_is_data_loss_and_the_others_go_on(
    make_topic: MakeTopic, feed: Feed, open_reader: Open, admin: AdminClient
) -> None:
    deleted, kept = make_topic(), make_topic()
    feed(deleted, "ab")
    feed(kept, "cd")
    both = {"subscribe": f"{deleted},{kept}", "startingOffsets": "earliest"}
    planner = open_reader(**both)
    start = planner.initialOffset()
    end = planner.latestOffset(start, ReadAllAvailable())
    admin.delete_topics([deleted])[deleted].result(60)
    with pytest.raises(DataLossError, match=f"{deleted}-0: the partition is gone"):
        open_reader(**both).partitions(start, end)
    assert batch(open_reader(**both, failOnDataLoss="false"), start, end) == [b"c", b"d"]


def test_a_partition_that_is_gone_is_data_loss(make_topic: MakeTopic, feed: Feed, open_reader: Open) -> None:
    topic = make_topic()
    feed(topic, "ab")
    start, end = {topic: {"0": 0, "1": 5}}, {topic: {"0": 2}}
    with pytest.raises(DataLossError, match=f"{topic}-1: the partition is gone"):
        open_reader(subscribe=topic).partitions(start, end)
    assert batch(open_reader(subscribe=topic, failOnDataLoss="false"), start, end) == [b"a", b"b"]


@pytest.mark.parametrize("limit", [ReadAllAvailable(), ReadMaxRows(10)])
def test_a_log_that_was_cut_is_read_on_from_its_end(
    make_topic: MakeTopic, feed: Feed, open_reader: Open, limit: ReadAllAvailable | ReadMaxRows
) -> None:
    """This happens after an unclean election: the topic is the same, and it ends
    before the query's position.
    """
    topic = make_topic()
    feed(topic, range(900))
    earliest = {"subscribe": topic, "startingOffsets": "earliest"}
    strict, lenient = open_reader(**earliest), open_reader(**earliest, failOnDataLoss="false")
    start = {topic: {**strict.initialOffset()[topic], "0": 1000}}
    end = lenient.latestOffset(start, limit)
    assert numbers(end) == {topic: {"0": 900}}
    lost = f"{topic}-0: the log was cut, and offsets 900 to 999 are gone"
    with pytest.raises(DataLossError, match=lost):
        strict.partitions(start, end)
    assert batch(lenient, start, end) == []
    feed(topic, "ab")
    later = lenient.latestOffset(end, limit)
    assert batch(lenient, end, later) == [b"a", b"b"]


def test_what_was_appended_to_a_log_after_it_was_cut_is_read_from_the_cut_that_is_seen(
    make_topic: MakeTopic, feed: Feed, open_reader: Open
) -> None:
    topic = make_topic()
    feed(topic, range(900))
    lenient = open_reader(subscribe=topic, startingOffsets="earliest", failOnDataLoss="false")
    start = {topic: {**lenient.initialOffset()[topic], "0": 1000}}
    end = lenient.latestOffset(start, ReadAllAvailable())
    feed(topic, range(50))
    assert batch(lenient, start, end) == []
    assert len(batch(lenient, end, lenient.latestOffset(end, ReadAllAvailable()))) == 50
