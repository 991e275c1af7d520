"""Divides a request about many items into pieces, which the broker serves like many small requests.

This is correct only if each item has its own answer. Such an API declares `handles(..., pieces=...)`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from copy import copy
from functools import cache
from operator import is_
from typing import Any, NamedTuple

from barnabas.base.errors import KafkaError
from barnabas.kafka.protocol.schema import Request, Struct

#: largest number of elements of one item, for example of a new topic with its settings
MAX_ITEM_ELEMENTS = 10_000

#: the fields that tell whether two parts of an answer are about the same
_NAMES = ("name", "topic", "topic_name", "topic_id", "group_id", "transactional_id", "producer_id")
#: the fields that an answer copies from its item
_IDENTITIES = {*_NAMES, "partition_index", "partition", "resource_type", "resource_name"}


class Piece(NamedTuple):
    """A request with some of the items of a larger request."""

    request: Request
    #: nesting depth at which this piece continues the last item of the previous piece
    continued: int
    #: whether the piece has an item with more than `MAX_ITEM_ELEMENTS`
    is_too_large: bool


class Pieces:
    """Divides the requests of an API into pieces, and joins the answers.

    Args:
        request: path of the arrays in the request, from outside to inside: ``topics.partitions``.
        response: path of the arrays with the answers in the response, from outside to inside; by default the
            path `request`.
        size: largest number of items in a piece.
        unique: whether to answer an item only once if the request repeats the item. This prevents a huge
            response to a small request. It applies only to divided requests.
        check: checks the whole request, and raises KafkaError to reject it.
    """

    def __init__(
        self,
        request: str,
        response: str = "",
        *,
        size: int,
        unique: bool = False,
        check: Callable[[Any], None] | None = None,
    ) -> None:
        self._request = request.split(".")
        self._response = (response or request).split(".")
        self.size = size
        self._unique = unique
        self._check = check

    def apply_to(self, request: Request) -> bool:
        """Whether `request` has items in the outermost array by which this object divides requests.

        For example, for the path ``topics.partitions``, the result says whether `request` has topics.

        Some APIs use different arrays in different versions. They have a `Pieces` for each of these arrays,
        and only one of them applies to a request.
        """
        return bool(getattr(request, self._request[0]))

    def count(self, request: Request) -> int:
        """Return the number of items in the arrays of a request. Count the items of all levels together."""
        return count_along(request, self._request)

    def divide(self, request: Request) -> list[Piece]:
        """Divide a request into pieces, in the order of its items.

        Raises:
            KafkaError: the API's `check` rejects the whole request.
        """
        if self._check is not None:
            self._check(request)
        first, *inner = self._request
        items = getattr(request, first) or []
        if self._unique:
            items = list(_once(items, inner, (), set()))
        return [
            Piece(piece := _with(request, first, part), continued, elements(piece) > MAX_ITEM_ELEMENTS)
            for part, continued in _divide(items, inner, self.size)
        ]

    def failed(self, request: Request, response: Any, error: KafkaError) -> None:
        """Add the error to `response` as the answer to each item of `request`."""
        _fail(getattr(request, self._request[0]) or (), response, self._request[1:], self._response, error)

    def join(self, whole: Any, part: Any, continued: int) -> None:
        """Add `part`, the response to a piece, to `whole`, the response to the earlier pieces.

        `whole` keeps its own error if it has one, and gets the longer throttle time of the two. It also gets
        the addresses of brokers that it does not have yet.

        Args:
            whole: the response that this method changes.
            part: the response to add.
            continued: number of levels on which the piece continues the previous piece (`Piece.continued`); 0
                if the piece begins with a new item. For example, it is 1 if requests are divided by
                ``topics.partitions``, and the piece begins with further partitions of the previous piece's
                last topic. This method then adds the answers for these partitions to the topic's answer in
                `whole`.
        """
        if getattr(part, "error_code", 0) and not whole.error_code:
            whole.error_code = part.error_code
        if getattr(part, "throttle_time_ms", 0):
            whole.throttle_time_ms = max(whole.throttle_time_ms, part.throttle_time_ms)
        if getattr(part, "node_endpoints", ()):
            found = {each.node_id: each for each in (*part.node_endpoints, *whole.node_endpoints)}
            whole.node_endpoints = [found[node] for node in sorted(found)]
        _join(whole, part, self._response, continued)


def count_along(message: Any, path: Sequence[str]) -> int:
    """Return the number of items in all arrays along a path, of all levels together.

    `path` has the names of array fields: the first in `message`, each other one in the items of the array
    before it.
    """
    return _count(getattr(message, path[0]) or (), path[1:])


def _count(items: Sequence[Any], inner: Sequence[str]) -> int:
    if not inner:
        return len(items)
    return len(items) + sum(_count(getattr(item, inner[0]) or (), inner[1:]) for item in items)


def _divide(items: Sequence[Any], inner: Sequence[str], size: int) -> Iterator[tuple[list[Any], int]]:
    if not inner:
        for start in range(0, len(items), size):
            yield list(items[start : start + size]), 0
        return
    part: list[Any] = []
    room = size
    for item in items:
        below = getattr(item, inner[0]) or ()
        cost = 1 + _count(below, inner[1:])
        if cost > room and part:
            yield part, 0
            part, room = [], size
        if cost <= room:
            part.append(item)
            room -= cost
            continue
        for number, (divided, continued) in enumerate(_divide(below, inner[1:], size)):
            yield [_with(item, inner[0], divided)], continued + 1 if number else 0
    if part:
        yield part, 0


def _with(item: Any, name: str, value: Any) -> Any:
    changed = copy(item)
    setattr(changed, name, value)
    return changed


def _once(items: Sequence[Any], inner: Sequence[str], above: Hashable, seen: set[Hashable]) -> Iterator[Any]:
    for item in items:
        below = getattr(item, inner[0]) if inner else None
        key = (above, _identity(item, inner[0] if inner else ""))
        if below:
            left = list(_once(below, inner[1:], key, seen))
            if left:
                is_same = len(left) == len(below) and all(map(is_, left, below))
                yield item if is_same else _with(item, inner[0], left)
        elif key not in seen:
            seen.add(key)
            yield item


def _identity(item: Any, without: str) -> Hashable:
    if not isinstance(item, Struct):
        return item  # type: ignore[no-any-return]
    return tuple(_hashable(getattr(item, f.name)) for f in item.__fields__ if f.name != without)


def _hashable(value: Any) -> Hashable:
    if isinstance(value, list):
        return tuple(_hashable(element) for element in value)
    return _identity(value, "")


def _join(whole: Any, part: Any, path: Sequence[str], continued: int) -> None:
    there, added = getattr(whole, path[0]), getattr(part, path[0])
    if continued and there and added and _name(there[-1]) == _name(added[0]):
        _join(there[-1], added[0], path[1:], continued - 1)
        added = added[1:]
    there.extend(added)


def _fail(
    items: Sequence[Any], whole: Any, inner: Sequence[str], answers: Sequence[str], error: KafkaError
) -> None:
    """Add an answer for each item, with the error on the innermost level, to `whole`.

    For example, for the path ``topics.partitions``, add an answer for each topic. This answer has the error
    for each partition of the topic.

    Args:
        items: items of the request at one level.
        whole: the response, or the answer to the item that contains `items`.
        inner: path of the arrays inside an item; empty on the innermost level.
        answers: path of the arrays with the answers, relative to `whole`.
        error: the error for each item of the innermost level.
    """
    cls: Any = next(f.type for f in whole.__fields__ if f.name == answers[0])
    names = [f.name for f in cls.__fields__ if not f.name.startswith("error")]
    for item in items:
        answer = cls()
        if isinstance(item, Struct):
            for name in names:
                if name in _IDENTITIES and hasattr(item, name):
                    setattr(answer, name, getattr(item, name))
        else:
            setattr(answer, names[0], item)
        if inner:
            _fail(getattr(item, inner[0]) or (), answer, inner[1:], answers[1:], error)
        else:
            answer.error_code = error.code
            if hasattr(answer, "error_message"):
                answer.error_message = error.message
        getattr(whole, answers[0]).append(answer)


def _name(item: Any) -> tuple[Any, ...]:
    return tuple(getattr(item, name, None) for name in _NAMES)


def elements(message: Struct) -> int:
    """Return the number of elements in all arrays of a message, at any depth."""
    return sum(
        len(value) + (sum(map(elements, value)) if is_nested else 0)
        for name, is_nested in _arrays(type(message))
        if (value := getattr(message, name))
    )


def has_more_elements(message: Struct, max_elements: int) -> bool:
    """Whether the arrays of a message have more than `max_elements` elements. Then it stops counting."""
    return _left(message, max_elements) < 0


def _left(message: Struct, left: int) -> int:
    for name, is_nested in _arrays(type(message)):
        value = getattr(message, name)
        if not value:
            continue
        left -= len(value)
        if is_nested:
            for item in value:
                if left < 0:
                    return left
                left = _left(item, left)
    return left


@cache
def _arrays(cls: type[Struct]) -> list[tuple[str, bool]]:
    return [(f.name, isinstance(f.type, type)) for f in cls.__fields__ if f.is_array]
