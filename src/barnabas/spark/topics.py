"""Looks up the topics of a cluster: their ids, and the leaders of their partitions."""

from __future__ import annotations

import base64
import time
from collections.abc import Collection, Mapping
from typing import NamedTuple

from barnabas.base.errors import ErrorCode
from barnabas.base.types import BrokerId, TopicId
from barnabas.client.brokers import Brokers
from barnabas.client.connection_pool import RESPONSE_TIMEOUT
from barnabas.client.errors import error_code
from barnabas.client.repeated import Repeated
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse


class Topic(NamedTuple):
    """A topic in a cluster's metadata: its error, its id and the leaders of its partitions.

    `leaders` has the leader of each partition by the partition's number; -1 for a partition without a leader.
    """

    error: ErrorCode
    topic_id: TopicId
    #: leader of each partition; -1 if it has none now
    leaders: dict[int, BrokerId]


def id_as_text(topic_id: TopicId) -> str:
    """Return a topic id as base64 text without padding, as in checkpoints."""
    return base64.b64encode(topic_id).decode().rstrip("=")


def id_from_text(text: str) -> TopicId:
    """Parse the text of a topic id from `id_as_text`."""
    return base64.b64decode(text + "==")


class TopicLookup:
    """Looks up topics by Metadata requests. Only one thread may use an instance."""

    def __init__(self, brokers: Brokers, timeout_s: float) -> None:
        """Create a lookup. `timeout_s` is the time limit of one lookup, in seconds."""
        self.brokers = brokers
        self._timeout_s = timeout_s
        self._names: frozenset[str] | None = frozenset()
        self._request = Repeated(MetadataRequest(topics=[], allow_auto_topic_creation=False))
        self._decoded: MetadataResponse | None = None
        self._topics: Mapping[str, Topic] = {}

    def topics(self, names: Collection[str] | None) -> Mapping[str, Topic]:
        """Return the present metadata, by name, of the topics `names`; of all topics for None.

        A topic of `names` that does not exist is in the result, too, with UNKNOWN_TOPIC_OR_PARTITION.

        If the last call had the same `names`, and no metadata has changed, the result is the same object as
        the last call's.

        Raises:
            ClientError: no broker answers now.
            AuthenticationError: the broker rejects the login, or the client rejects the broker's certificate.
        """
        wanted = None if names is None else frozenset(names)
        if wanted != self._names:
            named = None if names is None else [MetadataRequestTopic(name=name) for name in sorted(names)]
            self._names = wanted
            self._request = Repeated(MetadataRequest(topics=named, allow_auto_topic_creation=False))
            self._topics = {}
        deadline = time.monotonic() + self._timeout_s
        answer = self.brokers.ask_once(self._request, response_timeout=RESPONSE_TIMEOUT, deadline=deadline)
        if answer is not self._decoded:
            self._decoded = answer
            topics = {
                each.name: Topic(
                    error_code(each.error_code),
                    each.topic_id,
                    {partition.partition_index: partition.leader_id for partition in each.partitions},
                )
                for each in answer.topics
                if each.name is not None
            }
            if topics != self._topics:  # an answer also tells of brokers
                self._topics = topics
        return self._topics
