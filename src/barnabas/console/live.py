"""Events for the live pages of topics. All watchers of a topic share one reader."""

from __future__ import annotations

import asyncio
import json
import time
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from barnabas.base.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.base.text import logger_of
from barnabas.base.types import TopicPartition
from barnabas.client.consumer_groups import offsets_of_groups
from barnabas.client.errors import ClientError, error_text
from barnabas.client.fetching import Chunk, fetch, next_offset, records_in
from barnabas.client.leaders import LeaderRequests, live_leaders
from barnabas.client.offset_calls import EARLIEST, LATEST, offsets_at
from barnabas.client.share_groups import in_flight
from barnabas.client.transactions import producers_request
from barnabas.console.pages.queue import counts
from barnabas.console.pages.topic import found_in
from barnabas.console.view import ClusterView
from barnabas.kafka.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

log = logger_of(__name__)

#: seconds between two looks; data that changes slowly is read once in this number of looks
_EVERY_S, _SLOWLY = 0.5, 4
#: the most records of a partition that one look shows one by one: 30 a second
_ONE_BY_ONE = 15
#: if a partition gets more records than this between two looks, the next look reads only its end offset
_COUNTED = 4 * _ONE_BY_ONE
#: the number of existing records that the first look shows
_BEGIN_WITH = 40
_MAX_PARTITIONS, _MAX_BYTES = 50, 128 << 10
#: the most share groups, and the most ranges of their records in a partition, that a look has
_MAX_SHARING, _MAX_RANGES = 5, 100
#: the most events that wait for a slow watcher
_BEHIND = 8


class TopicReader:
    """Reads one topic repeatedly. Only one thread at a time can use this object."""

    def __init__(self, view: ClusterView, topic: str) -> None:
        self._view = view
        self._topic = topic
        self._positions: dict[int, int] = {}
        #: partitions that get too many records to show one by one
        self._counted: set[int] = set()
        self._starts: dict[int, int] = {}
        self._groups: list[str] = []
        self._offsets: dict[str, dict[TopicPartition, int]] = {}
        self._producers: list[dict[str, Any]] = []
        #: the share groups that read the topic, and their members that have had locks: each has a number
        self._sharing: dict[str, list[str]] = {}
        self._behind: dict[int, dict[int, int]] = {}
        self._ensemble: list[str] = []
        self._looks = 0

    def look(self) -> dict[str, Any]:
        """Return the topic's present state and its records since the last call, as JSON data for a page.

        The first call returns only the newest records. If a partition gets more than 60 records between two
        calls, later calls return only the range of offsets of its new records. When the partition
        gets fewer records again, later calls return its records again.

        Raises:
            BarnabasError: the cluster does not answer, or has no such topic.
        """
        metadata = self._view.metadata([self._topic])  # of a large cluster all of it is megabytes
        topic = found_in(metadata, self._topic)
        partitions = sorted(topic.partitions, key=lambda p: int(p.partition_index))[:_MAX_PARTITIONS]
        shown = {p.partition_index for p in partitions}
        leaders = {p: leader for p, leader in live_leaders([topic]).items() if p.partition in shown}
        if self._looks % _SLOWLY == 0:
            self._look_around(leaders)
        self._looks += 1
        chunks = self._read(topic, leaders)
        if self._groups:
            self._offsets = offsets_of_groups(self._view.brokers, self._groups, self._offsets)
        return {
            "at": self._view.clock.now_ms(),
            "topic": self._topic,
            "partition_count": len(topic.partitions),
            "controller": self._view.controller(),
            "ensemble": self._ensemble,
            "brokers": _brokers(metadata, partitions),
            "lanes": [self._lane(p, chunks.get(p.partition_index)) for p in partitions],
            "groups": {
                group: {p.partition: offset for p, offset in own.items() if p.topic == self._topic}
                for group, own in self._offsets.items()
                if group in self._groups
            },
            "queues": {
                group: self._queue(group, members, leaders) for group, members in self._sharing.items()
            },
            "producers": self._producers,
        }

    def _look_around(self, leaders: dict[TopicPartition, int]) -> None:
        """Read the data that changes slowly: log starts, producers, groups and the lag of followers.

        Keep them in this object. `leaders` has the partitions with a leader, and their leaders.
        """
        brokers = self._view.brokers
        self._starts = {p.partition: offset for p, offset in offsets_at(brokers, leaders, EARLIEST).items()}
        for number, start in self._starts.items():  # retention may have overtaken the picture
            if number in self._positions:
                self._positions[number] = max(self._positions[number], start)
        self._groups = [
            group for group, own in self._view.committed().items() if any(p.topic == self._topic for p in own)
        ][:20]
        sharing = self._view.share_groups_of(self._topic)[:_MAX_SHARING]
        self._sharing = {group: self._sharing.get(group, []) for group in sharing}
        if not self._positions:
            ends = offsets_at(brokers, leaders, LATEST)
            for partition, end in ends.items():
                start = self._starts.get(partition.partition, 0)
                self._positions[partition.partition] = max(start, end - _BEGIN_WITH)
        self._producers = self._describe_producers(leaders)
        self._behind = self._describe_replicas(leaders)
        self._ensemble = self._view.ensemble()

    def _describe_producers(self, leaders: dict[TopicPartition, int]) -> list[dict[str, Any]]:
        answers = LeaderRequests(self._view.brokers, leaders, leaders, producers_request).ask()
        found = [
            {
                "id": producer.producer_id,
                "partition": partition.partition,
                "last": producer.last_timestamp,
                "began": producer.current_txn_start_offset
                if producer.current_txn_start_offset >= 0
                else None,
            }
            for partition, result in answers.results.items()
            for producer in result.active_producers
        ]
        return found[:200]

    def _describe_replicas(self, leaders: dict[TopicPartition, int]) -> dict[int, dict[int, int]]:
        """Return the lag of replicas behind the high watermark, in records, by broker and partition.

        `leaders` has the partitions with a leader, and their leaders.
        """
        request = DescribeLogDirsRequest(
            topics=[
                DescribableLogDirTopic(topic=self._topic, partitions=[p.partition for p in sorted(leaders)])
            ]
        )
        return {
            broker: {
                p.partition_index: p.offset_lag
                for directory in response.results
                for topic in directory.topics
                for p in topic.partitions
                if not p.is_future_key
            }
            for broker, response in self._view.brokers.ask_every(request).responses.items()
        }

    def _queue(
        self, group: str, members: list[str], leaders: dict[TopicPartition, int]
    ) -> dict[int, dict[str, Any]]:
        """Return a share group's records in flight, by partition number.

        `leaders` has the partitions and their leaders. For each partition, the result has ``start`` (the
        start offset), the numbers that `queue.counts` returns, and ``batches``: the last `_MAX_RANGES` ranges
        of records. A range is [first offset, last offset, delivery state, deliveries, member].

        `members` is a list of member ids, to which the function adds new members. The member in a range is a
        position in this list, from 1; None if no member has locked the range.
        """
        described = in_flight(self._view.brokers, group, leaders, leaders) or {}
        shown = {}
        for topic_partition, records in described.items():
            batches = []
            for batch in records.batches[-_MAX_RANGES:]:
                if batch.member is not None and batch.member not in members:
                    members.append(batch.member)
                number = None if batch.member is None else members.index(batch.member) + 1
                batches.append([*batch[:4], number])
            shown[topic_partition.partition] = {"start": records.start, **counts(records), "batches": batches}
        return shown

    def _read(self, topic: Any, leaders: dict[TopicPartition, int]) -> dict[int, Chunk]:
        """Read the records since the last call of `look`, by partition number.

        For partitions with too many new records, read only offsets. `topic` is the topic in a
        MetadataResponse; `leaders` has its partitions with a leader, and their leaders.
        """
        by_number = {p.partition: leader for p, leader in leaders.items() if p.partition in self._positions}
        counted = {number: leader for number, leader in by_number.items() if number in self._counted}
        chunks = self._ends(counted)
        self._counted &= {number for number, chunk in chunks.items() if self._is_busy(number, chunk)}
        shown = {number: leader for number, leader in by_number.items() if number not in self._counted}
        return chunks | self._fetch(topic, shown, _MAX_BYTES)

    def _ends(self, leaders: dict[int, int]) -> dict[int, Chunk]:
        of_partition = {TopicPartition(self._topic, number): leader for number, leader in leaders.items()}
        ends = offsets_at(self._view.brokers, of_partition, LATEST)
        stable = offsets_at(self._view.brokers, of_partition, LATEST, committed=True)
        return {p.partition: Chunk(-1, stable.get(p, -1), end, b"", ()) for p, end in ends.items()}

    def _fetch(self, topic: Any, leaders: dict[int, int], max_bytes: int) -> dict[int, Chunk]:
        chunks: dict[int, Chunk] = {}
        for leader in sorted(set(leaders.values())):
            wanted = {number: self._positions[number] for number in leaders if leaders[number] == leader}
            try:
                chunks |= fetch(self._view.brokers, leader, topic, wanted, max_bytes)
            except (ClientError, KafkaError):
                continue  # the next look asks the leader of then
        return chunks

    def _is_busy(self, number: int, chunk: Chunk) -> bool:
        return chunk.end - self._positions[number] > _COUNTED

    def _lane(self, partition: Any, chunk: Chunk | None) -> dict[str, Any]:
        number = partition.partition_index
        lane: dict[str, Any] = {
            "partition": number,
            "leader": partition.leader_id if partition.leader_id >= 0 else None,
            "replicas": partition.replica_nodes,
            "in_sync": partition.isr_nodes,
            "behind": {b: lag[number] for b, lag in self._behind.items() if lag.get(number)},
        }
        if chunk is None:
            return lane
        first = self._positions[number]
        if first > chunk.end:  # the log was truncated, or the topic made anew
            first = self._positions[number] = chunk.end
        start = chunk.start if chunk.start >= 0 else self._starts.get(number, 0)
        cells, next_one, readable = (
            ([], first, False) if number in self._counted else self._cells(chunk, first)
        )
        if self._is_busy(number, chunk):
            self._counted.add(number)
        lane |= {"start": start, "stable": chunk.stable, "end": chunk.end, "cells": cells}
        # A few that the answer had no room for come with the next look; of many only their number is shown.
        if next_one < chunk.end and not (readable and chunk.end - next_one <= _ONE_BY_ONE):
            lane["block"] = [next_one, chunk.end]
            next_one = chunk.end
        self._positions[number] = next_one
        return lane

    def _cells(self, chunk: Chunk, first: int) -> tuple[list[list[Any]], int, bool]:
        """Return a partition's records from the offset `first` on, as cells of the page.

        The first result is a list [offset, hue, timestamp, kind] for each record or marker. The hue is a hash
        of the key from 0 to 359; -1 without a key. The kind of a marker is "commit", "abort" or "control".
        The kind of a record is "aborted" or "open" if its transaction is aborted or open, else "".

        The second result is the offset after these records. The third result is False if the batch at that
        offset cannot be decoded.
        """
        cells: list[list[Any]] = []
        next_one = first
        max_cells = _BEGIN_WITH if self._looks <= 1 else _ONE_BY_ONE
        try:
            for found in records_in(chunk, first):
                if len(cells) == max_cells:
                    return cells, next_one, True
                record = found.record
                hue = -1 if record.key is None else zlib.crc32(record.key) % 360
                what = found.marker or ("aborted" if found.aborted else "open" if found.open else "")
                cells.append([record.offset, hue, record.timestamp, what])
                next_one = record.offset + 1
        except KafkaError:  # damaged, or of an unknown compression
            return cells, next_one, False
        return cells, max(next_one, next_offset(chunk, first)), True


def _refusal(error: BarnabasError) -> dict[str, Any]:
    """Return the event that reports an error. It has ``code`` only if the topic does not exist any more."""
    is_gone = isinstance(error, KafkaError) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return {
        "problem": error_text(error),
        **({"code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name} if is_gone else {}),
    }


def _brokers(metadata: Any, partitions: list[Any]) -> list[dict[str, Any]]:
    """Return the live brokers in `metadata`, and brokers that hold replicas and are not live, sorted by id.

    `partitions` has a topic's partitions from a MetadataResponse. Each result has ``id``, ``rack`` and
    ``gone``.
    """
    alive = {b.node_id: b.rack for b in metadata.brokers}
    known = {*alive, *(replica for p in partitions for replica in p.replica_nodes)}
    return [{"id": b, "rack": alive.get(b), "gone": b not in alive} for b in sorted(known)]


Run = Callable[..., Any]


class Live:
    """Reads topics that pages watch, and passes each event to all watchers of the topic.

    One `TopicReader` reads a topic for all of its watchers. Only the event loop should use this object.

    Args:
        view: cluster of the topics.
        run: runs a function in a thread; ``await run(function)`` returns its result.
    """

    def __init__(self, view: ClusterView, run: Run) -> None:
        self._view = view
        self._run = run
        self._watched: dict[str, _Watched] = {}

    async def watch(self, topic: str) -> AsyncIterator[str]:
        """Yield events of a topic as JSON, until the caller closes the iterator.

        An event is a result of `TopicReader.look`, or an error (``problem``).

        If `_BEHIND` events wait for a slow caller, it misses the events after them. The next event that it
        gets has the number of missed events (``missed``).
        """
        watched = self._watched.get(topic)
        if watched is None:
            watched = self._watched[topic] = _Watched(TopicReader(self._view, topic), self._run)
        queue = watched.join()
        try:
            while True:
                yield await queue.get()
        finally:
            if watched.leave(queue):
                del self._watched[topic]

    async def stop(self) -> None:
        """Stop all readers."""
        for watched in self._watched.values():
            watched.end()


class _Watched:
    def __init__(self, reader: TopicReader, run: Run) -> None:
        self._reader = reader
        self._run = run
        self._queues: dict[asyncio.Queue[str], int] = {}
        #: recent events, which a later watcher needs to draw the whole page
        self._recent: list[str] = []
        self._task = asyncio.create_task(self._go_on(), name="live topic")

    def join(self) -> asyncio.Queue[str]:
        queue: asyncio.Queue[str] = asyncio.Queue(_BEHIND + len(self._recent))
        for event in self._recent:
            queue.put_nowait(event)
        self._queues[queue] = 0
        return queue

    def leave(self, queue: asyncio.Queue[str]) -> bool:
        """Remove a watcher. If it was the last one, stop the reader and return True."""
        del self._queues[queue]
        if self._queues:
            return False
        self.end()
        return True

    def end(self) -> None:
        self._task.cancel()

    async def _go_on(self) -> None:
        while True:
            began = time.monotonic()
            try:
                event = json.dumps(await self._run(self._reader.look))
            except BarnabasError as error:
                event = json.dumps(_refusal(error))
            except Exception as error:  # a bug: whoever watches is told, and the next look is tried
                log.exception("cannot read a topic for its live page")
                event = json.dumps({"problem": f"the console met an error: {type(error).__name__}"})
            self._recent = [*self._recent[-_BEHIND:], event]
            for queue, missed in self._queues.items():
                if queue.full():
                    self._queues[queue] = missed + 1
                    continue
                self._queues[queue] = 0
                queue.put_nowait(json.dumps({"missed": missed, **json.loads(event)}) if missed else event)
            await asyncio.sleep(max(0.05, _EVERY_S - (time.monotonic() - began)))
