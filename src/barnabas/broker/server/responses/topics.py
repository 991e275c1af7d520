"""Topics in the responses of Metadata and DescribeTopicPartitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TypeAlias

from barnabas.base.errors import ErrorCode
from barnabas.base.types import INTERNAL_TOPICS, BrokerId
from barnabas.broker.metadata.image import BrokerImage, ClusterImage, PartitionState, TopicImage
from barnabas.broker.server.responses.acls import NOT_ASKED
from barnabas.kafka.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from barnabas.kafka.security.acls import UNRESTRICTED, Access, ResourceType

#: the first version of Metadata that knows LISTENER_NOT_FOUND
_LISTENER_NOT_FOUND_SINCE = 6


def leader_error(image: ClusterImage, state: PartitionState, listener: str) -> ErrorCode:
    """Return a partition's error code in metadata responses to clients of `listener`.

    The code is LEADER_NOT_AVAILABLE without a live leader, LISTENER_NOT_FOUND if the leader has no such
    listener, and NONE in every other case.

    Args:
        image: the latest cluster image, which has the live brokers.
        state: the partition in this image.
        listener: name of the listener to which the client has connected.
    """
    leader = image.brokers.get(state.leader)
    if leader is None:
        return ErrorCode.LEADER_NOT_AVAILABLE
    if leader.endpoint(listener) is None:
        return ErrorCode.LISTENER_NOT_FOUND
    return ErrorCode.NONE


def metadata_error(image: ClusterImage, state: PartitionState, listener: str, version: int) -> ErrorCode:
    """Return a partition's error code in a Metadata response. It depends only on the leader.

    Versions before 6 do not know LISTENER_NOT_FOUND. For the arguments, see `leader_error`.
    """
    error = leader_error(image, state, listener)
    if error is ErrorCode.LISTENER_NOT_FOUND and version < _LISTENER_NOT_FOUND_SINCE:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return error


#: the listeners and versions for which encoded answers are kept
_MAX_KINDS = 4
#: the authorized operations on a topic of a client without restrictions
TOPIC_OPERATIONS = UNRESTRICTED.operations(ResourceType.TOPIC, "")


#: topics by their names, each with the bytes that encode its answer
EncodedTopics: TypeAlias = dict[str, tuple[TopicImage, bytes]]


@dataclass(slots=True)
class TopicCache:
    """Caches the topics of Metadata responses, until the topic or the brokers change in the cluster image.

    So a client that often requests all topics costs little. Callers must not change a cached topic.
    """

    _brokers: Mapping[BrokerId, BrokerImage] = field(default_factory=dict, init=False)
    _made: dict[tuple[str, str, bool, bool], tuple[TopicImage, MetadataResponseTopic]] = field(
        default_factory=dict, init=False
    )
    #: by listener, version, and whether they have the topics' operations
    _encoded: dict[tuple[str, int, bool], EncodedTopics] = field(default_factory=dict, init=False)
    #: all topics of an image in the order of their names
    _in_order: tuple[Mapping[str, TopicImage], list[TopicImage]] = field(default=({}, []), init=False)

    def in_order(self, image: ClusterImage) -> list[TopicImage]:
        """Return all topics, sorted by name. Any thread can call this: 10,000 topics take milliseconds."""
        topics, found = self._in_order
        if topics is not image.topics:
            found = sorted(image.topics.values(), key=attrgetter("name"))
            self._in_order = image.topics, found
        return found

    def encoded(self, image: ClusterImage, listener: str, version: int, *, operations: bool) -> EncodedTopics:
        """Return the cache of encoded topics, to which the caller can add.

        The cache has (topic image, encoded topic) by topic name. An entry is valid only if its topic image is
        the same object as the one in `image`.

        Args:
            image: the latest cluster image.
            listener: listener of the client.
            version: version of the request.
            operations: whether the encoded topics contain the authorized operations.
        """
        self._forget_old(image)
        if len(self._encoded) > _MAX_KINDS:
            self._encoded.clear()
        found = self._encoded.setdefault((listener, version, operations), {})
        if len(found) > 100 + 4 * len(image.topics):
            found.clear()
        return found

    def get(
        self,
        image: ClusterImage,
        topic: TopicImage,
        listener: str,
        version: int,
        *,
        operations: bool,
        access: Access = UNRESTRICTED,
    ) -> MetadataResponseTopic:
        """Return a topic for a Metadata response, from the cache if possible.

        Args:
            image: the latest cluster image.
            topic: the topic in this image.
            listener: listener of the client.
            version: version of the request.
            operations: whether to add the operations that the client may use on the topic.
            access: permissions of the client.
        """
        self._forget_old(image)
        modern = version >= _LISTENER_NOT_FOUND_SINCE
        key = (topic.name, listener, modern, operations)
        made = self._made.get(key)
        if made is None or made[0] is not topic:
            maker = TopicMaker(image, listener, version, operations=operations)
            made = self._made[key] = topic, maker.make(topic, made)
        if not operations or access.is_unrestricted:
            return made[1]
        answer = copy(made[1])
        answer.topic_authorized_operations = access.operations(ResourceType.TOPIC, topic.name)
        return answer

    def _forget_old(self, image: ClusterImage) -> None:
        if image.brokers is not self._brokers or len(self._made) > 100 + 4 * len(image.topics):
            self._brokers = image.brokers
            self._made.clear()
            self._encoded.clear()


class TopicMaker:
    """Makes the topics of Metadata responses from one image, for clients of one listener.

    Args:
        image: cluster image with the topics.
        listener: listener of the clients.
        version: version of the requests.
        operations: whether to add the operations that any client may use on a topic.
    """

    def __init__(self, image: ClusterImage, listener: str, version: int, *, operations: bool) -> None:
        self._image = image
        self._listener = listener
        self._version = version
        self._operations = TOPIC_OPERATIONS if operations else NOT_ASKED
        self._errors: dict[BrokerId, ErrorCode] = {}
        self._offline: dict[Sequence[BrokerId], list[BrokerId]] = {}

    def make(
        self, topic: TopicImage, last: tuple[TopicImage, MetadataResponseTopic] | None = None
    ) -> MetadataResponseTopic:
        """Return a topic for a Metadata response.

        Args:
            topic: the topic in the image.
            last: an earlier image of the topic, and the result of this method for that image. The new result
                has the same partition objects for all partitions that have not changed since. With None, the
                result has new objects for all partitions.
        """
        states, answers = ((), ()) if last is None else (last[0].partitions, last[1].partitions)
        errors, offline = self._errors, self._offline
        partitions = []
        for number, state in enumerate(topic.partitions):
            if number < len(states) and state is states[number]:
                partitions.append(answers[number])
                continue
            error = errors.get(state.leader)
            if error is None:
                error = errors[state.leader] = metadata_error(
                    self._image, state, self._listener, self._version
                )
            gone = offline.get(state.replicas)
            if gone is None:
                brokers = self._image.brokers
                gone = [replica for replica in state.replicas if replica not in brokers]
                offline[state.replicas] = gone
            partitions.append(
                MetadataResponsePartition(
                    error_code=error,
                    partition_index=number,
                    leader_id=state.leader,
                    leader_epoch=state.leader_epoch,
                    # Of the image, and shared: copies for a hundred thousand partitions take 0.1 s.
                    replica_nodes=state.replicas,  # type: ignore[arg-type]
                    isr_nodes=state.isr,  # type: ignore[arg-type]
                    offline_replicas=gone,
                )
            )
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=partitions,
            topic_authorized_operations=self._operations,
        )
