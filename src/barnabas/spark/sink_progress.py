"""Reads, stores and checks the progress of an exactly-once sink, which brokers store as committed offsets.

The progress consists of marks of two kinds. A mark is a committed offset for partition 0 of the sink's topic,
and its value is the number of a batch plus 1:

- A task's mark (group ``barnabas-spark-SINK-TASK``) is the last batch in which the task wrote rows. The task
  commits the mark in the transaction of these rows.
- A batch's mark (group ``barnabas-spark-SINK-batches``) is the last batch that all tasks have written. The
  driver commits the mark after the batch, and before the next one.

A mark's metadata contains a digest of the rows, and the id of the topic, because progress belongs to a sink
and a topic. So a task detects, before it writes a row, that its checkpoint is a copy, is older than the sink,
or belongs to another topic.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from xxhash import xxh3_64_hexdigest

from barnabas.base.errors import BarnabasError, ErrorCode
from barnabas.base.types import TopicPartition
from barnabas.client.brokers import Brokers
from barnabas.client.consumer_groups import Committed, commit_offsets
from barnabas.client.offset_calls import LATEST, list_offsets
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.spark.kafka_brokers import group_offsets
from barnabas.spark.task_content import KeysContent, TaskContent
from barnabas.spark.topics import id_as_text

#: Attempts to find a topic that is being created, and the pause between them, in seconds.
_ATTEMPTS = 30
_RETRY_S = 0.5

_TASK_MARK = re.compile(r"(rows=\d+ content=\w+) topics=(\S*)")
_BATCH_MARK = re.compile(r"tasks=(\w+) topic=(\S*)")

#: The end of each error message whose hint is barnabas.adoptTopic.
_ADOPT = (
    "to write all rows to it, start with a new checkpoint (or a new barnabas.sinkId); to go on in it with "
    "this batch, set the option barnabas.adoptTopic=true for one start"
)


class ReplayError(BarnabasError):
    """A batch does not follow the sink's last batch, or differs from the batch that was written."""


class WriteId(NamedTuple):
    """The identity of one task's part of one batch. Each such part is written once.

    A stream numbers its batches one by one. In other writes, each batch needs a higher number than the last.

    Attributes:
        sink: id of the sink: the query id of a stream, or the option barnabas.sinkId.
        partition: number of the task in the batch.
    """

    sink: str
    batch: int
    partition: int
    is_stream: bool = False

    @property
    def name(self) -> str:
        """The task's transactional id, which is the same for every batch.

        The group of this name has the committed offset that stores the task's last batch.
        """
        return f"barnabas-spark-{self.sink}-{self.partition}"

    def __str__(self) -> str:
        return f"task {self.partition} of batch {self.batch} of sink {self.sink}"


class TaskMark(NamedTuple):
    """The last batch in which a task wrote rows, and the content of those rows.

    `topics` is the text from `identity` for the topics of the rows; empty in marks of older versions.
    """

    batch: int
    content: TaskContent
    #: result of `identity` for the topics; empty in marks of Barnabas 0.1 and earlier
    topics: str


class BatchMark(NamedTuple):
    """The last batch that all tasks have written to a topic, and the digest of their rows (`tasks`)."""

    batch: int
    tasks: str
    #: the topic's id; empty where the brokers have no ids
    topic_id: str


class SinkProgress:
    """Reads and stores the marks of one sink: the progress of its tasks and batches.

    `sink` is the query id of a stream, or the option barnabas.sinkId. Every method that sends a request
    raises BarnabasError if a broker rejects it, or does not answer.
    """

    def __init__(self, brokers: Brokers, sink: str) -> None:
        self._brokers = brokers
        self._sink = sink
        self._group = f"barnabas-spark-{sink}-batches"

    def topic_id(self, topic: str, *, create: bool = False) -> str | None:
        """Return the topic's id as text; empty if the brokers have no ids, None if the topic does not exist.

        The result is also None if a broker rejects the request, or the topic has no leader after 15 seconds.

        Args:
            create: whether brokers with ``auto.create.topics.enable`` create a missing topic.
        """
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=create)
        for attempts_left in reversed(range(_ATTEMPTS)):
            (found,) = self._brokers.ask_any(request).topics
            if found.error_code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
                return None
            if found.error_code == ErrorCode.NONE:
                return id_as_text(found.topic_id) if any(found.topic_id) else ""
            if attempts_left:
                time.sleep(_RETRY_S)
        return None

    def tasks(self, name: str, some_topic: str | None) -> dict[str, TaskMark]:
        """Return the last batch that the task `name` (`WriteId.name`) has written to each topic, by topic.

        Args:
            some_topic: a topic that the task writes to. If it is not None, the method waits until no open
                transaction can change the result.

        Raises:
            ReplayError: another program uses `name` as its consumer group.
        """
        # `stable` is necessary even if the transaction has ended already. Before 4.0, Apache Kafka's
        # coordinator stores an offset a moment after it has announced the end of the transaction.
        stable = some_topic is not None
        found = group_offsets(self._brokers, name, stable=stable)
        if not found and some_topic is not None:
            # asked for all, brokers do not tell of one that waits where none was before
            found = group_offsets(self._brokers, name, only=[TopicPartition(some_topic, 0)], stable=True)
        return {tp.topic: _task_mark(name, each) for tp, each in found.items() if each.offset > 0}

    def batches(self) -> dict[str, BatchMark]:
        """Return the last batch that all tasks of the sink have written to each topic, by topic.

        Raises ReplayError if another program uses the group in which the sink stores its batches.
        """
        group = self._group
        found = group_offsets(self._brokers, group)
        marks = {}
        for tp, each in found.items():
            parts = _BATCH_MARK.fullmatch(each.metadata)
            if parts is None or each.offset < 1:
                raise ReplayError(_in_use(group))
            marks[tp.topic] = BatchMark(each.offset - 1, parts[1], parts[2])
        return marks

    def mark_batch(self, batch: int, tasks: str, topics: Mapping[str, str]) -> None:
        """Store that all tasks have written the batch with the number `batch`.

        Args:
            tasks: digest of the tasks' rows.
            topics: ids of the sink's topics, by name.
        """
        group = self._group
        offsets = {TopicPartition(topic, 0): batch + 1 for topic in topics}
        notes = {TopicPartition(topic, 0): f"tasks={tasks} topic={name}" for topic, name in topics.items()}
        self._brokers.ask_coordinator(group, lambda to, _: commit_offsets(to, group, offsets, notes))

    def has_held_records(self, topic: str) -> bool:
        """Whether any partition of the topic has ever had a record."""
        names = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        (found,) = self._brokers.ask_any(names).topics
        wanted = {TopicPartition(topic, each.partition_index): LATEST for each in found.partitions}
        return any(list_offsets(self._brokers, wanted, skip_failed=False).values())


def task_metadata(content: TaskContent, topics: Mapping[str, str]) -> str:
    """Return the metadata of the committed offset that stores which batch a task has written.

    The text has about 70 characters for any number of topics.

    `content` is the summary of the task's rows. `topics` has the ids of the rows' topics, by name.
    """
    return f"{content} topics={identity(topics)}"


def identity(topics: Mapping[str, str]) -> str:
    """Return a short text that identifies topics with their ids.

    For one topic, it is the topic's id. For several topics, it is a digest of their names and ids.
    """
    if len(topics) == 1:
        return next(iter(topics.values()))
    return xxh3_64_hexdigest("\n".join(f"{name}={topics[name]}" for name in sorted(topics)).encode())


def _task_mark(name: str, found: Committed) -> TaskMark:
    text = found.metadata.rstrip("\0")  # `BatchProducer.send_offset` ends it so
    parts = _TASK_MARK.fullmatch(text)
    content: TaskContent | None = TaskContent.parse(parts[1]) if parts else KeysContent.parse(text)
    if content is None:
        raise ReplayError(_in_use(name))
    return TaskMark(found.offset - 1, content, parts[2] if parts else "")


def _in_use(group: str) -> str:
    return f"group {group} is in use by something else: its offsets are not batch numbers of a sink"


# --- checks of a batch before the sink writes a row of it ---


def check_topic(what: WriteId, topic: str, topic_id: str, mark: BatchMark | None) -> None:
    """Raise ReplayError if `mark` is from a deleted topic of the same name.

    `mark` is the sink's last batch in `topic`; None if there is none. `topic_id` is the present id of the
    topic.
    """
    if mark is not None and mark.topic_id != topic_id:
        raise ReplayError(_created_again(what, topic, mark.batch))


def check_goes_on(
    what: WriteId,
    topic: str | None,
    topic_id: str,
    marks: Mapping[str, BatchMark],
    *,
    adopt: bool,
    has_held_records: Callable[[str], bool],
) -> int | None:
    """Check that the sink may write the batch of `what` next.

    Return the number of the last batch that the sink has written; None if there is none. This number can be
    that of `what`: then the batch is repeated.

    Raises ReplayError if the last batch has a higher number. Unless `adopt` is true, also raises ReplayError
    in these cases:

    - The sink wrote its last batches to another topic, or to a deleted topic of this name.
    - A stream is not at its first batch, and `topic` has never had a record. So `topic` was probably created
      again.

    Args:
        what: a task's part of the batch that will be written.
        topic: topic of the sink; None if each row names its own. Then only the batch numbers are checked.
        topic_id: id of `topic`; not used if `topic` is None.
        marks: the last batch in each topic, by topic.
        adopt: whether to accept a topic that the sink has not written to, or not recently, and a topic that
            was deleted and created again.
        has_held_records: is called with `topic`, and returns whether this topic has ever had a record.
    """
    if topic is None:
        last = max((mark.batch for mark in marks.values()), default=None)
    else:
        if not adopt:
            check_topic(what, topic, topic_id, marks.get(topic))
        last = next((m.batch for n, m in marks.items() if n == topic and m.topic_id == topic_id), None)
    if last is not None and last > what.batch:
        raise ReplayError(
            f"{what}: batch {last} is written already, and the batch numbers of a sink must increase; if the "
            "checkpoint is an old one or a copy, start the query with a new checkpoint"
        )
    if topic is not None and not adopt:
        _check_not_elsewhere(what, topic, last, marks)
        if last is None and what.is_stream and what.batch > 0 and not has_held_records(topic):
            raise ReplayError(
                f"{what}: topic {topic} has never held a record, and the checkpoint has batches before this "
                "one: was the topic deleted and created again, is this another cluster, or is the checkpoint "
                f"a copy? If topic {topic} is right: {_ADOPT}"
            )
    return last


def _check_not_elsewhere(what: WriteId, topic: str, last: int | None, marks: Mapping[str, BatchMark]) -> None:
    """Raise ReplayError if the sink wrote earlier batches to another topic, and not to `topic`.

    `last` is the last batch in `topic`; None if there is none. `marks` has the last batch of each topic.
    """
    others = {name: mark for name, mark in marks.items() if name != topic}
    if not others:
        return
    elsewhere, newest = max(others.items(), key=lambda each: each[1].batch)
    if last is None or (last < newest.batch and last + 1 < what.batch):
        so_far = "nothing" if last is None else f"the batches up to {last} only"
        raise ReplayError(
            f"{what}: the sink has written up to batch {newest.batch} to topic {elsewhere}, and {so_far} to "
            f"topic {topic}: has the topic changed, or is the checkpoint a copy? Name topic {elsewhere} "
            f"again; or, if topic {topic} is right: {_ADOPT}"
        )


def own_mark(
    what: WriteId, topic: str | None, topic_id: str, marks: Mapping[str, TaskMark], *, adopt: bool
) -> TaskMark | None:
    """Return the last batch that the task has written to `topic`; None if there is none.

    `marks` has the last batch in each topic, by topic, and `topic_id` is the present id of `topic`. If the
    batch was written to a deleted topic of this name, and `adopt` is true, also return None. If `topic` is
    None, each row names its topic, and the result is the last batch in any topic.

    Raises:
        ReplayError: the batch was written to a deleted topic of this name, and `adopt` is false.
    """
    if topic is None:
        return max(marks.values(), key=lambda mark: mark.batch, default=None)
    mark = marks.get(topic)
    if mark is None or mark.topics in ("", topic_id):
        return mark
    if not adopt:
        raise ReplayError(_created_again(what, topic, mark.batch))
    return None


def _created_again(what: WriteId, topic: str, batch: int) -> str:
    return (
        f"{what}: topic {topic} was deleted and created again after batch {batch} was written to it, and the "
        f"rows of that batch are gone; {_ADOPT}"
    )
