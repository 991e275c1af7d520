"""The cluster as pages see it. Pages within seconds of each other share answers that take many requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from barnabas.base.environment.clock import SystemClock
from barnabas.base.errors import KafkaError
from barnabas.base.types import TopicPartition
from barnabas.client import Admin
from barnabas.client.errors import ClientError
from barnabas.client.offset_requests import LATEST
from barnabas.console.events import Events
from barnabas.console.kafka import Kafka, rest, said
from barnabas.console.lag import Ages
from barnabas.console.offsets import committed_offsets, leaders_of, offsets_at
from barnabas.console.rates import Rates
from barnabas.console.shown import Decode
from barnabas.console.survey import Survey, Totals, note_sizes
from barnabas.kafka.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.kafka.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas.kafka.protocol.messages.list_groups import ListGroupsRequest

T = TypeVar("T")
#: of how many groups the offsets are asked
MOST_GROUPS = 1000
_LONGEST_REST_S = 30.0


@dataclass(frozen=True, slots=True)
class Privacy:
    """Parts of records that the console hides.

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
        self.events = Events()
        self.ages = Ages()
        self.clock = SystemClock()
        self.decode = decode
        self.privacy = privacy or Privacy()
        self._admin: Admin | None = None
        self._lock = threading.Lock()
        #: by name until when it is shown to others, and the answer
        self._answers: dict[str, tuple[float, Any]] = {}
        self._asking: dict[str, threading.Lock] = {}
        self._survey = Survey(self.kafka, self.rates, self._log_dirs)

    @property
    def admin(self) -> Admin:
        """The client that changes the cluster, and describes groups and settings."""
        with self._lock:
            if self._admin is None:
                self._admin = Admin(self.kafka.servers)
            return self._admin

    def close(self) -> None:
        self._survey.close()
        self.kafka.close()
        with self._lock:
            if self._admin is not None:
                self._admin.close()
            self._admin = None

    def groups(self) -> tuple[list[Any], str | None]:
        """All groups by name, and the error of a broker that does not list its own."""
        return self.shared("groups", 1.0, self._listed_groups)

    def committed(self) -> dict[str, dict[TopicPartition, int]]:
        """The committed offsets of the first `MOST_GROUPS` groups."""
        return self.shared("committed", 2.0, self._committed)

    def committed_ends(self) -> dict[TopicPartition, int]:
        """The ends of all partitions in `committed`."""
        return self.shared("ends", 1.0, self._asked_ends)

    def ends_of(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The ends of some partitions."""
        wanted = set(partitions)
        topics = {partition.topic for partition in wanted}
        led = leaders_of(topic for topic in self.kafka.metadata().topics if topic.name in topics)
        ends = offsets_at(self.kafka, {place: led[place] for place in wanted & led.keys()}, LATEST)
        self.rates.note(ends)
        return ends

    def volumes(self) -> dict[int, Any]:
        """Each broker's log directories, without their partitions, or its error."""
        return self.shared("volumes", 5.0, lambda: self._log_dirs(()))

    def totals(self) -> Totals:
        """The known totals of all topics; in a large cluster they may be minutes old."""
        return self._survey.look()

    def controller(self) -> int:
        """The controller where the cluster tells; Apache Kafka names any broker in Metadata."""
        with suppress(ClientError, KafkaError):
            response = self.kafka.ask_any(DescribeClusterRequest())
            if not response.error_code:
                return int(response.controller_id)
        return int(self.kafka.metadata().controller_id)

    def ensemble(self) -> list[str]:
        """The addresses of ZooKeeper's servers, where the brokers have them and tell; else none."""
        return self.shared("ensemble", 60.0, self._ensemble)

    def topic_sizes(self, topics: Collection[str]) -> dict[TopicPartition, int]:
        """The bytes of the largest replica of each partition of some topics."""
        return note_sizes(self._log_dirs(topics), {})

    def shared(self, name: str, fresh_s: float, ask: Callable[[], T]) -> T:
        """The last answer of `ask`, if it is fresh. Callers at the same time wait for the same answer."""
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

    def _asked_ends(self) -> dict[TopicPartition, int]:
        return self.ends_of({place for offsets in self.committed().values() for place in offsets})

    def _listed_groups(self) -> tuple[list[Any], str | None]:
        found: dict[str, Any] = {}
        problem = None
        for broker in self.kafka.metadata().brokers:
            try:
                response = self.kafka.ask(broker.node_id, ListGroupsRequest())
            except (ClientError, KafkaError) as error:
                problem = said(error)
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

    def _described(self, names: Collection[str]) -> list[DescribableLogDirTopic]:
        topics = set(names)
        return [
            DescribableLogDirTopic(topic=t.name, partitions=[p.partition_index for p in t.partitions])
            for t in self.kafka.metadata().topics
            if t.name in topics
        ]

    def _log_dirs(self, topics: Collection[str]) -> dict[int, Any]:
        wanted = self._described(topics)
        found: dict[int, Any] = {}
        for broker in self.kafka.metadata().brokers:
            try:
                response = self.kafka.ask(broker.node_id, DescribeLogDirsRequest(topics=wanted))
                found[broker.node_id] = response.results
            except (ClientError, KafkaError) as error:
                found[broker.node_id] = said(error)
        return found
