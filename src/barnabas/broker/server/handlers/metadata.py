"""Metadata v0-13: returns brokers, and topics with the leaders of their partitions; creates missing topics.

Clients can name topics by id (KIP-516) from v12 on. As in Kafka, v10 and v11 reject ids. The broker creates a
missing topic before it answers. (Apache Kafka returns an error, and the client retries.) As with KRaft, the
"controller" in the response is a broker that forwards requests to the controller (KIP-590): this broker
itself. DescribeCluster names the real controller. The broker never asks clients to rebootstrap (KIP-1102).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import INTERNAL_TOPICS, ZERO_TOPIC_ID, TopicId
from barnabas.broker.awaitables import LongResponse, MaybeAwaitable, resolve
from barnabas.broker.controller.auto_creation import AutoCreation
from barnabas.broker.controller.names import check_topic_name
from barnabas.broker.metadata.image import TopicImage
from barnabas.broker.server.requests.api import DIRECT_ELEMENTS, handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.broker.server.requests.needs import checked_by_handler
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.broker.server.responses.acls import NOT_ASKED
from barnabas.broker.server.responses.topic_encoder import TopicEncoder
from barnabas.broker.server.responses.topics import EncodedTopics, TopicCache
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.encoder import EncodedItems
from barnabas.kafka.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from barnabas.kafka.security.acls import Operation, ResourceType


@dataclass(frozen=True, slots=True)
class Ports:
    """The parts of the broker that this module's handler uses."""

    view: BrokerView
    topic_cache: TopicCache
    auto_creation: AutoCreation
    long_work: LongWork


#: the missing topics that one request creates; clients ask again for the others
MAX_CREATED = 100
#: the topics of a listing that are encoded between two readings of the clock
_ENCODED_AT_ONCE = 20


def _failed(request: MetadataRequest, error: KafkaError) -> MetadataResponse:
    topics = [
        MetadataResponseTopic(name=topic.name or "", topic_id=topic.topic_id, error_code=error.code)
        for topic in request.topics or ()
    ]
    return MetadataResponse(topics=topics, error_code=error.code)


@handles(
    MetadataRequest,
    needs=[
        checked_by_handler("topic DESCRIBE; to create missing topics: also cluster CREATE or topic CREATE")
    ],
    on_error=_failed,
    pieces=[Pieces("topics", size=256, unique=True)],
    listing="topics.partitions",
    unconfirmed="it tells what the image shows",
)
def metadata(
    ports: Ports, context: RequestContext, request: MetadataRequest
) -> MaybeAwaitable[MetadataResponse]:
    listing = _Listing(ports, context, request)
    if request.topics is None or (context.api_version == 0 and not request.topics):
        if ports.long_work.is_long(listing.image.topics):
            return LongResponse(_list_many(ports, context, listing))
        topics = ports.topic_cache.in_order(listing.image)
        return ports.long_work.listed(topics, listing.describe_if_allowed, listing.respond)
    ids = list(dict.fromkeys(t.topic_id for t in request.topics if t.topic_id != ZERO_TOPIC_ID))
    if ids and context.api_version < 12:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "topic ids can be asked for from version 12 on")
    if ids:
        return listing.make_by_id(ids)
    names = list(dict.fromkeys(topic.name for topic in request.topics if topic.name is not None))
    if any(topic.name is None for topic in request.topics):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic is named neither by its name nor by its id")
    if listing.makes_topics:
        missing = [name for name in names if name not in listing.image.topics and listing.may_make(name)]
        missing = missing[: max(0, MAX_CREATED - context.made_topics)]
        context.made_topics += len(missing)
        if missing:
            return listing.make_after_creation(names, missing)
    return listing.make(names)


async def _list_many(ports: Ports, context: RequestContext, listing: _Listing) -> MetadataResponse:
    """Return the response with all topics that the client may describe, for a cluster with many topics.

    The event loop serves other requests meanwhile. If ACLs do not restrict the client, the encoded topics
    come from a cache. Topics that are not in the cache are encoded, and added to it.

    Args:
        ports: the broker's cache of topics, and its threads and time slices for long work.
        context: the connection, the client's permissions and the version of the request.
        listing: builds the response from one cluster image.
    """
    topics = await ports.long_work.run(ports.topic_cache.in_order, listing.image)
    if not context.access.is_unrestricted:
        return await resolve(ports.long_work.listed(topics, listing.describe_if_allowed, listing.respond))
    known = listing.encoded()
    encode = listing.encoder().encode
    contents: list[bytes] = []
    async for start in ports.long_work.slices(range(0, len(topics), _ENCODED_AT_ONCE)):
        for topic in topics[start : start + _ENCODED_AT_ONCE]:
            found = known.get(topic.name)
            if found is None or found[0] is not topic:
                is_large = len(topic.partitions) > DIRECT_ELEMENTS
                content = await ports.long_work.run(encode, topic) if is_large else encode(topic)
                found = known[topic.name] = topic, content
            contents.append(found[1])
    return listing.respond(EncodedItems(len(topics), b"".join(contents)))


class _Listing:
    """Builds the response to one Metadata request, from the cluster image at the time of the request.

    The image is the broker's copy of the cluster's metadata.
    """

    def __init__(self, ports: Ports, context: RequestContext, request: MetadataRequest) -> None:
        self._ports = ports
        self._context = context
        self._request = request
        self.image = ports.view.image
        #: whether to create missing topics
        self.makes_topics = request.allow_auto_topic_creation and ports.view.config.auto_create_topics_enable

    def may_make(self, name: str) -> bool:
        """Whether the client may describe and create the missing topic `name`."""
        return self._may_describe(name) and self._may_create(name)

    def _may_describe(self, name: str) -> bool:
        return self._context.access.on_topic(Operation.DESCRIBE, name)

    def _may_create(self, name: str) -> bool:
        access = self._context.access
        return access.on_cluster(Operation.CREATE) or access.on_topic(Operation.CREATE, name)

    async def make_after_creation(self, names: list[str], missing: list[str]) -> MetadataResponse:
        errors = await self._ports.auto_creation.create(missing)
        self.image = self._ports.view.image
        return self.make(names, errors)

    def make(self, names: Iterable[str], errors: dict[str, KafkaError] | None = None) -> MetadataResponse:
        topics = []
        for name in names:
            topic = self.image.topics.get(name)
            if not self._may_describe(name):
                refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                topics.append(MetadataResponseTopic(name=name, error_code=refused))
            elif topic is not None:
                topics.append(self.describe(topic))
            elif errors and name in errors:
                topics.append(self._absent(name, errors[name].code))
            elif self.makes_topics and not self._may_create(name):
                refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                topics.append(MetadataResponseTopic(name=name, error_code=refused))
            else:
                topics.append(self._absent(name, _absence(name)))
        return self.respond(topics)

    def _absent(self, name: str, code: ErrorCode) -> MetadataResponseTopic:
        """Return a topic that does not exist, with the operations that the client may do on this name."""
        asked = self._request.include_topic_authorized_operations
        return MetadataResponseTopic(
            name=name,
            error_code=code,
            is_internal=name in INTERNAL_TOPICS,
            topic_authorized_operations=(
                self._context.access.operations(ResourceType.TOPIC, name) if asked else NOT_ASKED
            ),
        )

    def make_by_id(self, ids: Iterable[TopicId]) -> MetadataResponse:
        topics = []
        for topic_id in ids:
            topic = self.image.topic_by_id(topic_id)
            if topic is not None and self._may_describe(topic.name):
                topics.append(self.describe(topic))
            else:
                code = ErrorCode.UNKNOWN_TOPIC_ID if topic is None else ErrorCode.TOPIC_AUTHORIZATION_FAILED
                topics.append(MetadataResponseTopic(name=None, topic_id=topic_id, error_code=code))
        return self.respond(topics)

    def encoded(self) -> EncodedTopics:
        """Return the cache of encoded topics for requests with the same listener, version and options."""
        return self._ports.topic_cache.encoded(
            self.image,
            self._context.listener,
            self._context.api_version,
            operations=self._request.include_topic_authorized_operations,
        )

    def encoder(self) -> TopicEncoder:
        """Return an encoder of topics for this request, if ACLs do not restrict its client."""
        return TopicEncoder(
            self.image,
            self._context.listener,
            self._context.api_version,
            operations=self._request.include_topic_authorized_operations,
        )

    def respond(self, topics: list[MetadataResponseTopic] | EncodedItems) -> MetadataResponse:
        brokers = []
        for broker in self.image.brokers.values():
            endpoint = broker.endpoint(self._context.listener)
            if endpoint is not None:
                brokers.append(
                    MetadataResponseBroker(
                        node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
                    )
                )
        node_id = self._ports.view.config.node_id
        asked = self._request.include_cluster_authorized_operations
        return MetadataResponse(
            brokers=brokers,
            cluster_id=self.image.cluster_id,
            controller_id=node_id if node_id in self.image.brokers else self.image.controller_id,
            topics=topics,  # type: ignore[arg-type]
            cluster_authorized_operations=self._context.access.cluster_operations() if asked else NOT_ASKED,
        )

    def describe_if_allowed(self, topic: TopicImage) -> MetadataResponseTopic | None:
        """Return a topic for the response; None if the client may not describe the topic."""
        return self.describe(topic) if self._may_describe(topic.name) else None

    def describe(self, topic: TopicImage) -> MetadataResponseTopic:
        return self._ports.topic_cache.get(
            self.image,
            topic,
            self._context.listener,
            self._context.api_version,
            operations=self._request.include_topic_authorized_operations,
            access=self._context.access,
        )


def _absence(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
