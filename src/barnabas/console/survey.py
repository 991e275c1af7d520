"""Counts records and bytes of all topics, a few topics at a time; for a large cluster in the background."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from barnabas.base.errors import KafkaError
from barnabas.base.text import logger_of
from barnabas.base.types import TopicPartition
from barnabas.client.brokers import Brokers
from barnabas.client.errors import ClientError
from barnabas.client.leaders import live_leaders
from barnabas.client.offset_calls import EARLIEST, LATEST, offsets_at
from barnabas.console.rates import Rates

log = logger_of(__name__)

#: in a cluster with more partitions, pages do not wait for the totals of all topics
SMALL = 2000
#: the most partitions in a request
AT_ONCE = 200
#: in seconds: the shortest and the longest time for which pages share the totals of a small cluster, the time
#: that the thread works after the last `look`, and its shortest pause between two requests
_FRESH_S, _MAX_REST_S, _LOOKED_AT_S, _MIN_REST_S = 1.0, 30.0, 30.0, 0.005
#: seconds that the thread waits at first, so that the open page comes before it
BEFORE_S = 2.0
#: after the first pass, the seconds that the thread pauses for each second of requests
_REST = 19.0

#: function that returns, by broker, its log directories with the given topics, or an error text
LogDirs = Callable[[Collection[str]], Mapping[int, Any]]


class TopicTotals(NamedTuple):
    """The records (offsets between start and end) and the bytes (largest replicas) of a topic."""

    records: int
    bytes: int


class DirectoryTotals(NamedTuple):
    """The number of replicas in a log directory, and their bytes."""

    replicas: int
    bytes: int


@dataclass(slots=True)
class Totals:
    """The results of a `Survey`, which counts all topics again and again.

    Attributes:
        topics: records and bytes of each topic that the survey has counted so far, by name.
        directories: replicas and bytes of each log directory, by broker id and path, from the last complete
            count of all topics. Empty before the first complete count.
        age_s: seconds since the last complete count of all topics began; None before the first such
            count has ended.
    """

    topics: Mapping[str, TopicTotals] = field(default_factory=dict)
    directories: Mapping[tuple[int, str], DirectoryTotals] = field(default_factory=dict)
    age_s: float | None = None


class Survey:
    """Counts the records and bytes of all topics, and passes end offsets to `rates`. Any thread can use it.

    In a small cluster, `look` requests all data. In a large cluster, `look` starts a thread, which counts all
    topics again and again. The thread ends when no page has called `look` for 30 seconds. During the first
    count, the thread hardly pauses. In later counts, it pauses after the requests for each group of topics:
    nineteen times as long as these requests took.
    """

    def __init__(
        self, brokers: Brokers, metadata: Callable[[], Any], rates: Rates, log_dirs: LogDirs
    ) -> None:
        """Create a survey.

        Args:
            brokers: connections to the cluster.
            metadata: returns the MetadataResponse for all topics.
            rates: receives the end offsets of the topics.
            log_dirs: called with names of topics. For each broker id, it returns the log directories of a
                DescribeLogDirs response about these topics, or the text of an error.
        """
        self._brokers = brokers
        self._metadata = metadata
        self._rates = rates
        self._log_dirs = log_dirs
        self._topics: dict[str, TopicTotals] = {}
        self._directories: dict[tuple[int, str], DirectoryTotals] = {}
        #: the start of the last complete pass, and the time until which pages share its totals
        self._began: float | None = None
        self._fresh_until = 0.0
        self._looked = 0.0
        self._round = threading.Lock()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def look(self) -> Totals:
        """Return the present totals.

        In a small cluster, the totals are of all topics. In a large cluster, they are of the topics that the
        survey has counted so far.

        Raises:
            KafkaError: a broker rejects a request. ClientError: no broker answers in time.
        """
        metadata = self._metadata()
        self._looked = time.monotonic()
        if sum(len(topic.partitions) for topic in metadata.topics) > SMALL:
            self._go_on()
        else:
            with self._round:
                if time.monotonic() > self._fresh_until:
                    began = time.monotonic()
                    for _ in self._steps(metadata):
                        pass
                    ended = time.monotonic()
                    self._fresh_until = ended + rest(_FRESH_S, ended - began, _MAX_REST_S)
        age = None if self._began is None else time.monotonic() - self._began
        return Totals(self._topics, self._directories, age)

    def close(self) -> None:
        """Stop the thread after its present request."""
        self._closed.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _go_on(self) -> None:
        with self._lock:
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._work, name="console survey", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        self._closed.wait(BEFORE_S)
        while not self._closed.is_set():
            with self._lock:
                if time.monotonic() > self._looked + _LOOKED_AT_S:
                    self._thread = None
                    return
            try:
                with self._round:
                    self._ask_in_the_background()
            except (ClientError, KafkaError) as error:
                if not self._closed.is_set():
                    log.warning("the console asks about all topics again after an error: %s", error)
            self._closed.wait(_FRESH_S)

    def _ask_in_the_background(self) -> None:
        """Make one pass. It ends early when no page calls `look` any more."""
        steps = self._steps(self._metadata())
        while True:
            began = time.monotonic()
            if next(steps, None) is None:
                return
            took = time.monotonic() - began
            pause = _MIN_REST_S if self._began is None else max(_MIN_REST_S, _REST * took)
            if self._closed.wait(pause) or time.monotonic() > self._looked + _LOOKED_AT_S:
                return

    def _steps(self, metadata: Any) -> Iterator[bool]:
        """Count all topics: in each step, request the data of some topics, and yield True.

        When the iteration ends, the totals of log directories change, and the totals of deleted topics
        disappear.
        """
        began = time.monotonic()
        directories: dict[tuple[int, str], DirectoryTotals] = {}
        for topics in _divided(metadata.topics):
            self._topics.update(self._asked(topics, directories))
            yield True
        names = {topic.name for topic in metadata.topics}
        self._topics = {name: totals for name, totals in self._topics.items() if name in names}
        self._directories = directories
        self._began = began

    def _asked(
        self, topics: Sequence[Any], directories: dict[tuple[int, str], DirectoryTotals]
    ) -> dict[str, TopicTotals]:
        leaders = live_leaders(topics)
        starts = offsets_at(self._brokers, leaders, EARLIEST)
        ends = offsets_at(self._brokers, leaders, LATEST)
        self._rates.note(ends)
        names = [topic.name for topic in topics]
        sizes = note_sizes(self._log_dirs(names), directories)
        records = dict.fromkeys(names, 0)
        for partition, end in ends.items():
            records[partition.topic] += max(0, end - starts.get(partition, end))
        size = dict.fromkeys(names, 0)
        for partition, each in sizes.items():
            if partition.topic in size:
                size[partition.topic] += each
        return {name: TopicTotals(records[name], size[name]) for name in names}


def note_sizes(
    answers: Mapping[int, Any], directories: dict[tuple[int, str], DirectoryTotals]
) -> dict[TopicPartition, int]:
    """Return the bytes of each partition's largest replica.

    Add the numbers and bytes of replicas to `directories`, by broker and path.

    Args:
        answers: by broker, the log directories in a DescribeLogDirs response, or the text of an error, which
            is ignored.
        directories: the totals so far.
    """
    found: dict[TopicPartition, int] = {}
    for broker, answered in answers.items():
        if isinstance(answered, str):
            continue
        for directory in answered:
            replicas = size = 0
            for topic in directory.topics:
                for each in topic.partitions:
                    partition = TopicPartition(topic.name, each.partition_index)
                    found[partition] = max(found.get(partition, 0), each.partition_size)
                    replicas += 1
                    size += each.partition_size
            before = directories.get((broker, directory.log_dir), DirectoryTotals(0, 0))
            directories[broker, directory.log_dir] = DirectoryTotals(
                before.replicas + replicas, before.bytes + size
            )
    return found


def rest(fresh_s: float, took_s: float, max_s: float) -> float:
    """Return for how many seconds pages share an answer that took `took_s` seconds: nine times `took_s`.

    The result is at least `fresh_s`. It is at most `max_s`, unless `fresh_s` is more.
    """
    return min(max(fresh_s, 9 * took_s), max(fresh_s, max_s))


def _divided(topics: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield groups of topics with at most `AT_ONCE` partitions together, or a single larger topic."""
    some: list[Any] = []
    count = 0
    for topic in topics:
        if some and count + len(topic.partitions) > AT_ONCE:
            yield some
            some, count = [], 0
        some.append(topic)
        count += len(topic.partitions)
    if some:
        yield some
