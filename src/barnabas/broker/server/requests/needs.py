"""The permissions that a client needs for a request, declared with each handler (KIP-11).

    @handles(HeartbeatRequest, needs=[Group(READ)])

Some needs are for the whole request: without the permission, the broker rejects the request. Others are for
each item (`each_topic`): the broker serves the allowed items, and the API's `on_error` makes the answers to
the others. If only the handler can check a permission, the handler uses `context.access`. Then the API
declares a text for docs/reference/protocol.md (`checked_by_handler`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import ZERO_TOPIC_ID, TopicId
from barnabas.kafka.protocol.schema import Request
from barnabas.kafka.security.acls import CLUSTER_NAME, Access, Operation, ResourceType

_KINDS = {
    ResourceType.TOPIC: ("topic", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ResourceType.GROUP: ("group", ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ResourceType.CLUSTER: ("cluster", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ResourceType.TRANSACTIONAL_ID: ("transactional id", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
}

#: the names of the topics, by their ids
TopicNames = Mapping[TopicId, str]


def refusal(kind: ResourceType) -> KafkaError:
    """Return the authorization error for a kind of resource."""
    return KafkaError(_KINDS[kind][1])


class Refused(NamedTuple):
    """Items of a request that the client is not authorised for, and their error."""

    items: list[Any]
    error: KafkaError


class Need(ABC):
    """A permission that a client needs for the requests of an API."""

    #: text for the documentation
    text: str = ""
    #: whether the authorizer has to check anything
    is_checked = True

    @abstractmethod
    def check(self, access: Access, request: Request) -> None:
        """Raise KafkaError if the client lacks this permission for the whole request."""


class Anyone(Need):
    """Declares that clients need no permission."""

    is_checked = False

    def __init__(self, why: str = "") -> None:
        self.text = f"nothing{f' ({why})' if why else ''}"

    def check(self, access: Access, request: Request) -> None:
        pass


class checked_by_handler(Need):
    """Declares a permission that the handler itself checks with `context.access`."""

    is_checked = False

    def __init__(self, text: str) -> None:
        self.text = text

    def check(self, access: Access, request: Request) -> None:
        pass


class Cluster(Need):
    """Requires permission on the cluster for at least one of the operations in the arguments."""

    def __init__(self, *operations: Operation) -> None:
        self._operations = operations
        self.text = f"cluster {' or '.join(operation.name for operation in operations)}"

    def check(self, access: Access, request: Request) -> None:
        if not any(access.on_cluster(operation) for operation in self._operations):
            raise refusal(ResourceType.CLUSTER)


class _Named(Need):
    """Requires a permission on the resource that a field of the request names, if the field is not null."""

    def __init__(self, kind: ResourceType, operation: Operation, field: str) -> None:
        self._kind = kind
        self._operation = operation
        self._field = field
        self.text = f"{_KINDS[kind][0]} {operation.name}"

    def check(self, access: Access, request: Request) -> None:
        name = getattr(request, self._field)
        if name is not None and not access.allows(self._operation, self._kind, name):
            raise refusal(self._kind)


def Topic(operation: Operation, field: str = "topic") -> Need:
    """Require permission for `operation` on the topic that the request names in `field`."""
    return _Named(ResourceType.TOPIC, operation, field)


def Group(operation: Operation, field: str = "group_id") -> Need:
    """Require permission for `operation` on the group that the request names in `field`."""
    return _Named(ResourceType.GROUP, operation, field)


def TransactionalId(operation: Operation, field: str = "transactional_id") -> Need:
    """Require permission for `operation` on the transactional id in the request's `field`.

    If the field is null, require nothing.
    """
    return _Named(ResourceType.TRANSACTIONAL_ID, operation, field)


class Each(Need):
    """Requires a permission on each resource that an array of the request names.

    Args:
        kind: type of the resources.
        operation: operation that must be allowed.
        request: name of the array in the request.
        response: name of the array of answers, if it differs.
        name: field of an item that has the resource's name; "" if the items are names. If the field is
            empty, the item's `topic_id` selects the topic. `sort_out` leaves an unknown id to the handler.
        unless: operation on the cluster that makes this permission unnecessary.
        text: text for the documentation, if the declaration alone is not enough.
    """

    def __init__(
        self,
        kind: ResourceType,
        operation: Operation,
        request: str,
        response: str = "",
        *,
        name: str = "name",
        unless: Operation | None = None,
        text: str = "",
    ) -> None:
        self._kind = kind
        self._operation = operation
        self.array = request
        self.answers = response or request
        self._name = name
        self._unless = unless
        alternative = f" or cluster {unless.name}" if unless is not None else ""
        self.text = text or f"{_KINDS[kind][0]} {operation.name}{alternative}"

    def check(self, access: Access, request: Request) -> None:
        pass

    def sort_out(self, access: Access, request: Request, topic_names: TopicNames) -> list[Refused]:
        """Return the items of `request` that the client is not authorised for, grouped by their error.

        The request does not change. The result is empty if the client may use all items. It never has an item
        with an unknown topic id: the handler answers these items.

        Args:
            access: permissions of the client.
            request: request with the array `self.array`.
            topic_names: names of the cluster's topics, by topic id.
        """
        items = getattr(request, self.array)
        if not items or (self._unless is not None and access.on_cluster(self._unless)):
            return []
        operation, kind, field = self._operation, self._kind, self._name
        known = access.known.get((operation, kind), ())
        refused = []
        for item in items:
            # `name_of`, without the call for what has a name
            name = getattr(item, field) if field else item
            if name in known:
                continue
            if not name:
                name = name_of(item, field, topic_names)
                if name is None:
                    continue
            if not access.allows(operation, kind, name):
                refused.append(item)
        return [Refused(refused, refusal(kind))] if refused else []


def name_of(item: Any, field: str, topic_names: TopicNames) -> str | None:
    """Return the name of the resource that an item of a request is about.

    Return None if the item has only a topic id, and the id is unknown.

    Args:
        item: an item of an array in a request.
        field: field of the item with the name; "" if the item itself is the name.
        topic_names: names of the cluster's topics, by topic id.
    """
    if not field:
        return item  # type: ignore[no-any-return]
    name: str | None = getattr(item, field)
    if name:
        return name
    topic_id = getattr(item, "topic_id", ZERO_TOPIC_ID)
    return name if topic_id == ZERO_TOPIC_ID else topic_names.get(topic_id)


def each_topic(operation: Operation, request: str, response: str = "", **options: Any) -> Each:
    """Require permission for `operation` on each topic in an array of the request.

    `request`, `response` and `options` are arguments of `Each`.
    """
    return Each(ResourceType.TOPIC, operation, request, response, **options)


def each_group(operation: Operation, request: str, response: str = "", **options: Any) -> Each:
    """Require permission for `operation` on each group in an array of the request.

    `request`, `response` and `options` are arguments of `Each`.
    """
    return Each(ResourceType.GROUP, operation, request, response, **options)


def each_transactional_id(operation: Operation, request: str, response: str = "") -> Each:
    """Require permission for `operation` on each transactional id in an array of the request.

    The items of the array are the ids. `request` and `response` are arguments of `Each`.
    """
    return Each(ResourceType.TRANSACTIONAL_ID, operation, request, response, name="")


#: the ACL resource type for each type of resource that has settings; the keys are the codes of the settings'
#: types (`barnabas.broker.controller.ResourceType`)
_CONFIG_KINDS = {
    2: ResourceType.TOPIC,
    4: ResourceType.CLUSTER,
    8: ResourceType.CLUSTER,
    16: ResourceType.CLUSTER,
    32: ResourceType.GROUP,
}


class EachConfigResource(Each):
    """Requires a permission on each resource whose settings the request names.

    For the settings of a broker or of client metrics, this is a permission on the cluster.
    """

    def __init__(self, operation: Operation, response: str) -> None:
        super().__init__(
            ResourceType.TOPIC,
            operation,
            "resources",
            response,
            text=f"topic, group or (for brokers) cluster {operation.name}",
        )

    def sort_out(self, access: Access, request: Any, topic_names: TopicNames) -> list[Refused]:
        refused: dict[ResourceType, list[Any]] = {}
        for resource in request.resources:
            kind = _CONFIG_KINDS.get(resource.resource_type)
            if kind is None:
                continue  # what is unknown is refused by the handler
            name = CLUSTER_NAME if kind is ResourceType.CLUSTER else resource.resource_name
            if not access.allows(self._operation, kind, name):
                refused.setdefault(kind, []).append(resource)
        return [Refused(items, refusal(kind)) for kind, items in refused.items()]


def without(request: Request, array: str, refused: Sequence[Refused]) -> Any:
    """Return a copy of `request` whose array with the name `array` lacks the items in `refused`."""
    gone = {id(item) for each in refused for item in each.items}
    return with_items(request, array, [item for item in getattr(request, array) if id(item) not in gone])


def with_items(request: Request, array: str, items: list[Any]) -> Any:
    """Return a copy of `request` whose array with the name `array` is `items`."""
    changed = copy(request)
    setattr(changed, array, items)
    return changed


#: the permission for requests between brokers
BETWEEN_BROKERS = Cluster(Operation.CLUSTER_ACTION)
