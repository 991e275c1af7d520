"""Requests the data that the console's pages show from the brokers: topics, groups, offsets and sizes.

It caches many answers for a second or more. So several open pages cause only one request to the brokers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from barnabas.base.environment.clock import SystemClock
from barnabas.base.errors import KafkaError
from barnabas.base.types import BrokerId, TopicPartition
from barnabas.client import Admin
from barnabas.client.brokers import Brokers
from barnabas.client.connection_pool import RESPONSE_TIMEOUT
from barnabas.client.consumer_groups import offsets_of_groups
from barnabas.client.errors import ClientError, check_code, error_text
from barnabas.client.leaders import live_leaders
from barnabas.client.offset_calls import LATEST, offsets_at
from barnabas.client.repeated import Repeated
from barnabas.client.servers import servers_of
from barnabas.client.share_groups import ShareOffset
from barnabas.console.events import Events
from barnabas.console.rates import Rates
from barnabas.console.record_ages import Ages
from barnabas.console.shown import Decode
from barnabas.console.survey import Survey, Totals, note_sizes, rest
from barnabas.kafka.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.kafka.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas.kafka.protocol.messages.list_groups import ListGroupsRequest
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

T = TypeVar("T")
#: the most groups whose committed offsets are read for all pages
MAX_GROUPS = 1000
#: the most share groups among which those of a topic are searched
_MAX_SHARE_GROUPS = 50
_MAX_REST_S, _MAX_METADATA_S = 30.0, 5.0
#: seconds that the cluster has for an answer
_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Privacy:
    """The parts of records that the console hides.

    Attributes:
        hide_values: whether to hide keys, values and headers.
        masks: by topic (``*`` for all), paths in JSON values to hide.
    """

    hide_values: bool = False
    masks: dict[str, list[list[str]]] = field(default_factory=dict)

    def paths(self, topic: str) -> Sequence[Sequence[str]]:
        return [*self.masks.get(topic, ()), *self.masks.get("*", ())]


class ClusterView:
    """The data of one cluster for the console's pages, requested from its brokers. It is thread-safe.

    Every method raises KafkaError if a broker rejects a request, and ClientError if no broker answers in
    time.

    Args:
        servers: the brokers to connect to first, and the connection settings.
        decode: decodes keys and values by the schema registry, for the page of records; None without a
            registry.
        privacy: the parts of records that pages hide; None to hide nothing.
    """

    def __init__(self, servers: str, *, decode: Decode | None = None, privacy: Privacy | None = None) -> None:
        self.servers = servers
        self.brokers = Brokers(servers_of(servers, {"client.id": "barnabas-console"}), _TIMEOUT_S)
        #: megabytes in a large cluster, and mostly the same each time
        self._everything = Repeated(MetadataRequest(topics=None, allow_auto_topic_creation=False))
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
        self._survey = Survey(self.brokers, self.metadata, self.rates, self._log_dirs)

    @property
    def admin(self) -> Admin:
        """The client that changes the cluster, and describes groups and settings."""
        with self._lock:
            if self._admin is None:
                self._admin = Admin(self.servers)
            return self._admin

    def close(self) -> None:
        self._survey.close()
        self.brokers.close()
        with self._lock:
            if self._admin is not None:
                self._admin.close()
            self._admin = None

    def metadata(self, topics: Iterable[str] | None = None) -> Any:
        """Return the response to a Metadata request for some topics or all. The request creates no topic.

        Pages share the response for all topics for a second or more. If the cluster's next answer is equal,
        the result is the same object as before.
        """
        if topics is None:
            return self.shared("metadata", 1.0, lambda: self._ask_metadata(self._everything), _MAX_METADATA_S)
        named = [MetadataRequestTopic(name=name) for name in topics]
        return self._ask_metadata(MetadataRequest(topics=named, allow_auto_topic_creation=False))

    def leaders(self, topics: Iterable[str]) -> dict[TopicPartition, BrokerId]:
        """Return the partitions of some topics that have a leader, with their leaders."""
        return live_leaders(self.metadata(topics).topics)

    def groups(self) -> tuple[list[Any], str | None]:
        """Return the groups of all brokers, sorted by name, and the text of an error.

        Each group is an entry of a ListGroups response. If a broker does not list its groups, the result
        lacks them, and the text says why. The text is None if every broker has listed its groups.
        """
        return self.shared("groups", 1.0, self._listed_groups)

    def committed(self) -> dict[str, dict[TopicPartition, int]]:
        """Return the committed offsets of the first `MAX_GROUPS` groups, by name of the group."""
        return self.shared("committed", 2.0, self._committed)

    def share_offsets(self, group: str) -> dict[TopicPartition, ShareOffset]:
        """Return a share group's start offsets and lags; empty if the request fails."""

        def ask() -> dict[TopicPartition, ShareOffset]:
            with suppress(ClientError, KafkaError):
                return self.admin.share_offsets(group)
            return {}

        return self.shared(f"share offsets {group}", 2.0, ask)

    def share_groups_of(self, topic: str) -> list[str]:
        """Return the share groups that read a topic, if they are among the first `_MAX_SHARE_GROUPS`."""
        groups = [each.group_id for each in self.groups()[0] if each.group_type == "share"]
        return [
            group
            for group in groups[:_MAX_SHARE_GROUPS]
            if any(each.topic == topic for each in self.share_offsets(group))
        ]

    def committed_ends(self) -> dict[TopicPartition, int]:
        """Return the end offset of each partition for which a group in `committed` has a committed offset."""
        return self.shared("ends", 1.0, self._asked_ends)

    def ends_of(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end offsets of some partitions.

        Partitions without a leader, and those whose leader does not answer, are left out.
        """
        wanted = set(partitions)
        topics = {partition.topic for partition in wanted}
        leaders = live_leaders(topic for topic in self.metadata().topics if topic.name in topics)
        asked = {partition: leaders[partition] for partition in wanted & leaders.keys()}
        ends = offsets_at(self.brokers, asked, LATEST)
        self.rates.note(ends)
        return ends

    def volumes(self) -> dict[int, Any]:
        """Return, by broker, the log directories in a DescribeLogDirs response, or the text of an error.

        The log directories are without their partitions.
        """
        return self.shared("volumes", 5.0, lambda: self._log_dirs(()))

    def totals(self) -> Totals:
        """Return the numbers of records and bytes of all topics, as far as they are counted (`Totals`).

        In a large cluster they may be minutes old.
        """
        return self._survey.look()

    def controller(self) -> int:
        """Return the controller's id from DescribeCluster; from Metadata if DescribeCluster fails.

        In Metadata, Apache Kafka may return the id of any broker.
        """
        with suppress(ClientError, KafkaError):
            response = self.brokers.ask_once(DescribeClusterRequest())
            if not response.error_code:
                return int(response.controller_id)
        return int(self.metadata().controller_id)

    def ensemble(self) -> list[str]:
        """Return the addresses of ZooKeeper's servers; none if brokers have none or do not report them."""
        return self.shared("ensemble", 60.0, self._ensemble)

    def topic_sizes(self, topics: Collection[str]) -> dict[TopicPartition, int]:
        """Return the bytes of the largest replica of each partition of some topics."""
        return note_sizes(self._log_dirs(topics), {})

    def shared(self, name: str, fresh_s: float, ask: Callable[[], T], max_s: float = _MAX_REST_S) -> T:
        """Return the cached answer with this name if it is fresh. If it is not, call `ask` for a new answer.

        While `ask` runs, other callers with this name wait for its answer. If `ask` raises an error, only its
        own caller gets the error, and the next caller calls `ask` again.

        Args:
            name: name of the answer in the cache.
            fresh_s: the seconds for which an answer is fresh. If `ask` was slow, its answer is fresh for nine
                times as long as `ask` took.
            ask: requests the answer from the brokers.
            max_s: the longest time for which the answer of a slow `ask` is fresh, in seconds.
        """
        with self._lock:
            lock = self._asking.setdefault(name, threading.Lock())
        with lock:
            known = self._answers.get(name)
            if known is None or time.monotonic() > known[0]:
                began = time.monotonic()
                answer = ask()
                ended = time.monotonic()
                known = self._answers[name] = (ended + rest(fresh_s, ended - began, max_s), answer)
            answered: T = known[1]
            return answered

    def _ask_metadata(self, request: MetadataRequest | Repeated) -> Any:
        return self.brokers.ask_once(request, response_timeout=RESPONSE_TIMEOUT)

    def _asked_ends(self) -> dict[TopicPartition, int]:
        return self.ends_of({partition for offsets in self.committed().values() for partition in offsets})

    def _listed_groups(self) -> tuple[list[Any], str | None]:
        responses, failures = self.brokers.ask_every(ListGroupsRequest())
        found = {group.group_id: group for response in responses.values() for group in response.groups}
        problem = next((error_text(error) for error in failures.values()), None)
        return [found[name] for name in sorted(found)], problem

    def _ensemble(self) -> list[str]:
        try:
            settings = self.admin.configs("broker", str(self.controller()))
        except (ClientError, KafkaError):
            return []
        connect = next((each.value for each in settings if each.name == "zookeeper.connect"), None) or ""
        return [address for address in connect.partition("/")[0].split(",") if address]

    def _committed(self) -> dict[str, dict[TopicPartition, int]]:
        groups = [group.group_id for group in self.groups()[0][:MAX_GROUPS]]
        _, before = self._answers.get("committed", (0.0, {}))
        return offsets_of_groups(self.brokers, groups, before) if groups else {}

    def _described(self, names: Collection[str]) -> list[DescribableLogDirTopic]:
        topics = set(names)
        return [
            DescribableLogDirTopic(topic=t.name, partitions=[p.partition_index for p in t.partitions])
            for t in self.metadata().topics
            if t.name in topics
        ]

    def _log_dirs(self, topics: Collection[str]) -> dict[int, Any]:
        request = DescribeLogDirsRequest(topics=self._described(topics))
        responses, failures = self.brokers.ask_every(request)
        found: dict[int, Any] = {broker: error_text(error) for broker, error in failures.items()}
        for broker, response in responses.items():
            try:
                check_code(response.error_code)
                found[broker] = response.results
            except KafkaError as error:
                found[broker] = error_text(error)
        return found
