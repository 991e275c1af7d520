"""The cluster as pages see it: what takes many requests is asked once for all who look within seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from barnabas.client import Admin
from barnabas.client.errors import ClientError
from barnabas.console.kafka import Kafka, rest
from barnabas.console.offsets import EARLIEST, LATEST, committed_offsets, leaders, offsets_at
from barnabas.console.rates import Rates
from barnabas.console.shown import Decode
from barnabas.environment.clock import SystemClock
from barnabas.errors import KafkaError
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.types import TopicPartition

T = TypeVar("T")
#: of how many groups the offsets are asked
MOST_GROUPS = 1000
_LONGEST_REST_S = 30.0


@dataclass(frozen=True, slots=True)
class Privacy:
    """What of records nobody sees.

    Attributes:
        hide_values: neither keys, values nor headers.
        masks: by topic (``*`` for all) paths into JSON values whose ends are hidden.
    """

    hide_values: bool = False
    masks: dict[str, list[list[str]]] = field(default_factory=dict)

    def paths(self, topic: str) -> Sequence[Sequence[str]]:
        return [*self.masks.get(topic, ()), *self.masks.get("*", ())]


class ClusterView:
    """One cluster, from any thread.

    Raises (every method): as `Kafka`.
    """

    def __init__(self, servers: str, *, decode: Decode | None = None, privacy: Privacy | None = None) -> None:
        self.kafka = Kafka(servers)
        self.rates = Rates()
        self.clock = SystemClock()
        self.decode = decode
        self.privacy = privacy or Privacy()
        self._admin: Admin | None = None
        self._lock = threading.Lock()
        #: by name until when it is shown to others, and the answer
        self._answers: dict[str, tuple[float, Any]] = {}
        self._asking: dict[str, threading.Lock] = {}
        self._led: tuple[Any, dict[TopicPartition, int]] | None = None

    @property
    def admin(self) -> Admin:
        """What changes the cluster, and describes groups and settings."""
        with self._lock:
            if self._admin is None:
                self._admin = Admin(self.kafka.servers)
            return self._admin

    def close(self) -> None:
        self.kafka.close()

    def groups(self) -> tuple[list[Any], str | None]:
        """All groups by name, and why those of some broker are missing."""
        return self._shared("groups", 1.0, self._listed_groups)

    def committed(self) -> dict[str, dict[TopicPartition, int]]:
        """By group what it has committed, of the first `MOST_GROUPS`."""
        return self._shared("committed", 2.0, self._committed)

    def ends(self) -> dict[TopicPartition, int]:
        """Where each partition ends."""
        return self._shared("ends", 1.0, self._asked_ends)

    def starts(self) -> dict[TopicPartition, int]:
        """Where each partition begins."""
        return self._shared("starts", 5.0, lambda: offsets_at(self.kafka, self._leaders(), EARLIEST))

    def sizes(self) -> dict[int, Any]:
        """By broker its log directories, or the reason why they are not told."""
        return self._shared("sizes", 5.0, lambda: self._log_dirs())

    def controller(self) -> int:
        """The controller where the cluster tells; Apache Kafka names any broker in Metadata."""
        metadata = self.kafka.metadata()
        try:
            response = self.kafka.ask_any(DescribeClusterRequest())
        except (ClientError, KafkaError):
            return int(metadata.controller_id)
        return int(metadata.controller_id if response.error_code else response.controller_id)

    def ensemble(self) -> list[str]:
        """The addresses of ZooKeeper's servers, where the brokers have them and tell; else none."""
        return self._shared("ensemble", 60.0, self._ensemble)

    def topic_sizes(self, topics: Collection[str] | None = None) -> dict[TopicPartition, int]:
        """By partition the bytes of its largest replica; of some topics, or of all."""
        found: dict[TopicPartition, int] = {}
        for directories in (self.sizes() if topics is None else self._log_dirs(topics)).values():
            if isinstance(directories, str):
                continue
            for directory in directories:
                for topic in directory.topics:
                    for each in topic.partitions:
                        place = TopicPartition(topic.name, each.partition_index)
                        found[place] = max(found.get(place, 0), each.partition_size)
        return found

    def _shared(self, name: str, fresh_s: float, ask: Callable[[], T]) -> T:
        """What `ask` has answered lately; who asks meanwhile waits for the same answer."""
        with self._lock:
            lock = self._asking.setdefault(name, threading.Lock())
        with lock:
            known = self._answers.get(name)
            if known is None or time.monotonic() > known[0]:
                began = time.monotonic()
                answer = ask()
                ended = time.monotonic()
                known = self._answers[name] = (ended + rest(fresh_s, ended - began, _LONGEST_REST_S), answer)
            answered: T = known[1]
            return answered

    def _leaders(self) -> dict[TopicPartition, int]:
        """Of all partitions, counted once for all who look while the metadata is the same."""
        metadata = self.kafka.metadata()
        known = self._led
        if known is None or known[0] is not metadata:
            known = self._led = (metadata, leaders(metadata))
        return known[1]

    def _asked_ends(self) -> dict[TopicPartition, int]:
        ends = offsets_at(self.kafka, self._leaders(), LATEST)
        self.rates.note(ends)
        return ends

    def _listed_groups(self) -> tuple[list[Any], str | None]:
        found: dict[str, Any] = {}
        problem = None
        for broker in self.kafka.metadata().brokers:
            try:
                response = self.kafka.ask(broker.node_id, ListGroupsRequest())
            except (ClientError, KafkaError) as error:
                problem = str(error)
                continue
            found |= {group.group_id: group for group in response.groups}
        return [found[name] for name in sorted(found)], problem

    def _ensemble(self) -> list[str]:
        try:
            settings = self.admin.configs("broker", str(self.controller()))
        except (ClientError, KafkaError):
            return []
        connect = next((each.value for each in settings if each.name == "zookeeper.connect"), None) or ""
        return [address for address in connect.partition("/")[0].split(",") if address]

    def _committed(self) -> dict[str, dict[TopicPartition, int]]:
        groups = [group.group_id for group in self.groups()[0][:MOST_GROUPS]]
        _, before = self._answers.get("committed", (0.0, {}))
        return committed_offsets(self.kafka, groups, before) if groups else {}

    def _described(self, topics: Collection[str]) -> list[DescribableLogDirTopic]:
        return [
            DescribableLogDirTopic(topic=t.name, partitions=[p.partition_index for p in t.partitions])
            for t in self.kafka.metadata().topics
            if t.name in topics
        ]

    def _log_dirs(self, topics: Collection[str] | None = None) -> dict[int, Any]:
        wanted = None if topics is None else self._described(topics)
        found: dict[int, Any] = {}
        for broker in self.kafka.metadata().brokers:
            try:
                response = self.kafka.ask(broker.node_id, DescribeLogDirsRequest(topics=wanted))
                found[broker.node_id] = response.results
            except (ClientError, KafkaError) as error:
                found[broker.node_id] = str(error)
        return found
