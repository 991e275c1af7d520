"""Checkpoints that are copied, older, deleted or used for another topic: no row is silently lost or
duplicated.

A `Query` replaces a streaming query of Spark. It numbers its batches as the checkpoint does, writes each with
its tasks, and closes it. `test_exactly_once_jobs.py` does the same with Spark.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient
from tests.spark.committed import committed_values

from barnabas.spark.exactly_once import ReplayError, TaskReport, WriteId, close_batch, write_once
from barnabas.spark.options import WriteOptions
from barnabas.spark.task_content import KeysContent

MakeTopic = Callable[..., str]

ROWS = 50


class Query:
    """A checkpoint (a sink's id and the next batch), and the query's operations. Each
    task has `ROWS` rows.
    """

    def __init__(self, servers: str, topic: str | None, tasks: int = 2) -> None:
        client = {"bootstrap.servers": servers, "log_level": "0"}
        self.options = WriteOptions(client, topic, exactly_once=True)
        self.sink = uuid.uuid4().hex
        self.next = 0
        self.tasks = tasks

    def copy(self, **changes: object) -> Query:
        """Return a query on a copy of the checkpoint, with other options."""
        made = Query("", None, self.tasks)
        made.sink, made.next = self.sink, self.next
        made.options = replace(self.options, **changes)
        return made

    def rows(self, batch: int, task: int, count: int = ROWS) -> Iterator[pa.RecordBatch]:
        values = [f"{batch}-{task}-{number}" for number in range(count)]
        yield pa.RecordBatch.from_pydict({"value": values})

    def write(self, task: int, count: int = ROWS) -> TaskReport:
        """Write one task of the next batch."""
        what = WriteId(self.sink, self.next, task, is_stream=True)
        return write_once(self.options, what, self.rows(self.next, task, count))

    def run(self, batches: int = 1, count: int = ROWS) -> None:
        for _ in range(batches):
            close_batch(self.options, [self.write(task, count) for task in range(self.tasks)])
            self.next += 1


def everything(batches: int, tasks: int = 2) -> list[str]:
    return sorted(
        f"{batch}-{task}-{number}"
        for batch in range(batches)
        for task in range(tasks)
        for number in range(ROWS)
    )


@pytest.fixture
def query(servers: str, make_topic: MakeTopic) -> Query:
    return Query(servers, make_topic())


def delete(admin: AdminClient, topic: str) -> None:
    admin.delete_topics([topic])[topic].result(60)


def marked(query: Query, group: str) -> list[ClientPartition]:
    """Return the offsets of a group of the sink for its topic."""
    settings = {"bootstrap.servers": query.options.client["bootstrap.servers"], "group.id": group}
    with Consumer(settings) as consumer:
        found = consumer.committed([ClientPartition(query.options.topic or "", 0)], timeout=30)
    return [each for each in found if each.offset >= 0]


def test_a_copied_checkpoint_in_another_topic_is_refused_and_the_original_goes_on(
    servers: str, make_topic: MakeTopic, query: Query
) -> None:
    other = make_topic()
    query.run()
    copy = query.copy(topic=other)
    for task in range(2):
        with pytest.raises(
            ReplayError, match=f"up to batch 0 to topic {query.options.topic}, and nothing to"
        ):
            copy.write(task)
    assert committed_values(servers, other) == []
    query.run()
    assert committed_values(servers, query.options.topic or "") == everything(2)


def test_a_copied_checkpoint_may_adopt_its_topic_and_both_go_on(
    servers: str, make_topic: MakeTopic, query: Query
) -> None:
    """The error message names this hint: each topic then has its own progress."""
    other = make_topic()
    query.run()
    copy = query.copy(topic=other, adopt_topic=True)
    copy.run()
    copy.options = replace(copy.options, adopt_topic=False)  # it was for one start
    copy.run(2)
    query.run(3)
    assert committed_values(servers, query.options.topic or "") == everything(4)
    assert committed_values(servers, other) == sorted(set(everything(4)) - set(everything(1)))


def test_an_attempt_of_a_copy_does_not_fence_the_original(
    servers: str, make_topic: MakeTopic, query: Query
) -> None:
    query.run()
    copy = query.copy(topic=make_topic())

    def interrupted() -> Iterator[pa.RecordBatch]:
        yield from query.rows(1, 0)
        with pytest.raises(ReplayError, match="has the topic changed, or is the checkpoint a copy"):
            copy.write(0)

    write_once(query.options, WriteId(query.sink, 1, 0, is_stream=True), interrupted())
    query.run()
    assert committed_values(servers, query.options.topic or "") == everything(2)


def test_batches_that_went_to_another_topic_are_not_left_out_when_the_first_one_comes_back(
    servers: str, make_topic: MakeTopic, query: Query
) -> None:
    query.run()
    first, other = query.options.topic, make_topic()
    query.options = replace(query.options, topic=other, adopt_topic=True)
    query.run(2)
    query.options = replace(query.options, topic=first, adopt_topic=False)
    with pytest.raises(ReplayError, match=f"up to batch 2 to topic {other}, and the batches up to 0 only"):
        query.run()
    query.options = replace(query.options, adopt_topic=True)
    query.run()
    assert committed_values(servers, first or "") == sorted(
        [*everything(1), *(row for row in everything(4) if row.startswith("3-"))]
    )


def test_a_copy_that_writes_the_same_batches_to_the_same_topic_writes_none_twice(
    servers: str, query: Query
) -> None:
    query.run()
    query.copy().run()
    query.run()
    query.copy().run()
    query.run()
    assert committed_values(servers, query.options.topic or "") == everything(3)


def test_a_copy_that_writes_other_batches_to_the_same_topic_is_refused(servers: str, query: Query) -> None:
    """The second of the two fails, even if its rows or their number differ."""
    query.run()
    query.copy().run()
    with pytest.raises(ReplayError, match=r"was written with 50 rows and now has 20.*copy of the checkpoint"):
        query.run(count=20)
    query.rows = lambda batch, task, count=ROWS: iter(  # type: ignore[method-assign]
        [pa.RecordBatch.from_pydict({"value": ["other"] * count})]
    )
    with pytest.raises(
        ReplayError, match=r"with 50 rows of other content than it now has.*copy of the check"
    ):
        query.run()
    assert committed_values(servers, query.options.topic or "") == everything(2)


def test_a_copy_whose_batch_has_other_tasks_is_refused(servers: str, query: Query) -> None:
    """The rows of its second task would otherwise be written again in the next batch."""
    query.run()
    query.copy().run()
    query.tasks = 1
    with pytest.raises(ReplayError, match=r"batch 1 of sink \w+ is not as it was written.*copy of the check"):
        query.run()
    query.tasks = 3
    with pytest.raises(ReplayError, match=r"task 2 of batch 1 .* was written without rows and now has 50"):
        query.run()
    assert committed_values(servers, query.options.topic or "") == everything(2)


def test_an_older_checkpoint_that_is_restored_is_refused_before_any_task_writes(
    servers: str, query: Query
) -> None:
    older = query.copy()
    query.run(3)
    older.tasks = 3  # one of them has never written
    for task in range(3):
        with pytest.raises(ReplayError, match=r"batch 2 is written already.* an old one or a copy"):
            older.write(task)
    older.next = 2  # the last one only: it was perhaps not noted
    older.tasks = 2
    older.run(2)
    assert committed_values(servers, query.options.topic or "") == everything(4)


def test_a_query_whose_checkpoint_is_deleted_is_a_new_sink(servers: str, query: Query) -> None:
    """The broker cannot distinguish it from another query to the same topic, as
    docs/reference/spark.md says.
    """
    query.run()
    again = Query(servers, query.options.topic)
    again.run()
    assert committed_values(servers, query.options.topic or "") == sorted(everything(1) * 2)


def test_a_topic_that_was_deleted_and_created_again_is_refused_until_it_is_adopted(
    servers: str, make_topic: MakeTopic, admin: AdminClient, query: Query
) -> None:
    topic = query.options.topic or ""
    query.run()
    delete(admin, topic)
    make_topic(name=topic)
    for task in range(2):
        with pytest.raises(ReplayError, match=r"deleted and created again.*adoptTopic=true for one start"):
            query.write(task)
    assert committed_values(servers, topic) == []
    query.options = replace(query.options, adopt_topic=True)
    query.run()
    query.options = replace(query.options, adopt_topic=False)
    query.run()
    assert committed_values(servers, topic) == sorted(set(everything(3)) - set(everything(1)))


def test_marks_that_outlive_their_topic_are_not_taken_for_those_of_the_next_one(
    servers: str, make_topic: MakeTopic, admin: AdminClient, query: Query
) -> None:
    """Not every broker deletes a group's offsets with the topic. The test restores them."""
    topic = query.options.topic or ""
    query.run()
    groups = [f"barnabas-spark-{query.sink}-{each}" for each in ("batches", 0, 1)]
    kept = {group: marked(query, group) for group in groups}
    delete(admin, topic)
    make_topic(name=topic)
    for group, offsets in kept.items():
        with Consumer({"bootstrap.servers": servers, "group.id": group, "log_level": 0}) as consumer:
            consumer.commit(offsets=offsets, asynchronous=False)
    with pytest.raises(ReplayError, match=f"topic {topic} was deleted and created again after batch 0"):
        query.run()
    query.next = 0
    with pytest.raises(ReplayError, match=f"topic {topic} was deleted and created again after batch 0"):
        query.run()
    query.options = replace(query.options, adopt_topic=True)
    query.run()
    assert committed_values(servers, topic) == everything(1)


def test_a_batch_without_rows_counts_as_a_batch(servers: str, query: Query) -> None:
    query.run(2, count=0)
    query.run()
    query.run(count=0)
    query.run()
    rows = [row for row in everything(5) if row[0] in "24"]
    assert committed_values(servers, query.options.topic or "") == rows


def test_a_query_whose_marks_have_expired_goes_on(servers: str, admin: AdminClient, query: Query) -> None:
    """The offsets expire after offsets.retention.minutes without a batch. The records show that the topic is
    not new.
    """
    query.run()
    groups = [f"barnabas-spark-{query.sink}-{each}" for each in ("batches", 0, 1)]
    for done in admin.delete_consumer_groups(groups).values():
        done.result(60)
    query.run()
    assert committed_values(servers, query.options.topic or "") == everything(2)


@pytest.mark.parametrize("batch_is_half_written", [False, True])
def test_marks_of_the_last_release_are_read(servers: str, query: Query, batch_is_half_written: bool) -> None:
    """It marked only tasks, by the number of rows and keys, and without topic ids."""
    topic = query.options.topic or ""
    for task in range(1 if batch_is_half_written else 2):
        old = KeysContent()
        rows = list(old.of(query.rows(0, task), topic))
        name = f"barnabas-spark-{query.sink}-{task}"
        producer = Producer({"bootstrap.servers": servers, "transactional.id": name, "log_level": 0})
        producer.init_transactions(60)
        producer.begin_transaction()
        for value in rows[0].column("value").to_pylist():
            producer.produce(topic, value)
        with Consumer({"bootstrap.servers": servers, "group.id": name, "log_level": 0}) as consumer:
            mark = ClientPartition(topic, 0, 1, metadata=str(old))
            producer.send_offsets_to_transaction([mark], consumer.consumer_group_metadata(), 30)
        producer.commit_transaction(60)
    query.next = 0 if batch_is_half_written else 1
    query.run(2)
    assert committed_values(servers, topic) == everything(2 if batch_is_half_written else 3)


def test_a_changed_batch_of_the_last_release_is_refused(servers: str, query: Query) -> None:
    topic = query.options.topic or ""
    name = f"barnabas-spark-{query.sink}-0"
    old = KeysContent()
    list(old.of(query.rows(0, 0), topic))
    with Consumer({"bootstrap.servers": servers, "group.id": name, "log_level": 0}) as consumer:
        consumer.commit(offsets=[ClientPartition(topic, 0, 1, metadata=str(old))], asynchronous=False)
    with pytest.raises(ReplayError, match="was written with 50 rows and now has 20"):
        query.run(count=20)


def test_rows_that_name_their_topics_go_to_new_ones_and_a_copy_that_names_others_is_refused(
    servers: str, make_topic: MakeTopic
) -> None:
    first, second, other = make_topic(), make_topic(), make_topic()
    query = Query(servers, None)

    def to(*topics: str) -> Callable[..., Iterator[pa.RecordBatch]]:
        def rows(batch: int, task: int, count: int = ROWS) -> Iterator[pa.RecordBatch]:
            for topic in topics:
                values = [f"{batch}-{task}-{number}" for number in range(count)]
                yield pa.RecordBatch.from_pydict({"value": values, "topic": [topic] * count})

        return rows

    query.rows = to(first)  # type: ignore[method-assign]
    query.run()
    query.rows = to(first, second)  # type: ignore[method-assign]
    copy = query.copy()
    copy.rows = to(first, other)  # type: ignore[method-assign]
    query.run()
    with pytest.raises(ReplayError, match=r"with 100 rows of other content than it now has"):
        copy.run()
    copy.rows = query.rows  # type: ignore[method-assign]
    copy.run()
    query.run()
    assert committed_values(servers, first) == everything(3)
    assert committed_values(servers, second) == sorted(set(everything(3)) - set(everything(1)))
    assert committed_values(servers, other) == []


def test_a_topic_that_rows_name_and_that_was_created_again_is_refused_until_it_is_adopted(
    servers: str, make_topic: MakeTopic, admin: AdminClient
) -> None:
    topic, other = make_topic(), make_topic()
    query = Query(servers, None, tasks=1)
    query.rows = lambda batch, task, count=ROWS: iter(  # type: ignore[method-assign]
        [pa.RecordBatch.from_pydict({"value": [str(batch)] * 2, "topic": [other, topic]})]
    )
    query.write(0)  # and Spark has not noted it
    delete(admin, topic)
    make_topic(name=topic)
    with pytest.raises(ReplayError, match="written to a topic that was deleted and created again since"):
        query.run()


def test_a_number_of_a_sink_is_for_one_topic(servers: str, make_topic: MakeTopic) -> None:
    """This is as if a function of foreachBatch wrote to two topics under one name."""
    topic, other = make_topic(), make_topic()
    what = WriteId(uuid.uuid4().hex, 7, 0)
    given = WriteOptions({"bootstrap.servers": servers, "log_level": "0"}, topic, exactly_once=True)
    rows = pa.RecordBatch.from_pydict({"value": ["v"]})
    close_batch(given, [write_once(given, what, iter([rows]))])
    with pytest.raises(ReplayError, match=f"up to batch 7 to topic {topic}, and nothing to topic {other}"):
        write_once(replace(given, topic=other), what, iter([rows]))
