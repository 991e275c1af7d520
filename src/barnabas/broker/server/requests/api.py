"""Declares the APIs of the broker: the versions, the handler, and the checks of each API.

The docstring of a handler's module begins with the versions served. It names the KIPs, and the parts of the
API that are left out. The module declares the handler like this::

    @handles(HeartbeatRequest, needs=[Group(Operation.READ)], confirmed_by=group_coordinator())
    def heartbeat(groups: GroupCoordinator, context: RequestContext, request: HeartbeatRequest)
        -> MaybeAwaitable[HeartbeatResponse]: ...

The last two arguments are the context and the request. The arguments before them are the handler's
dependencies: parts of the broker, or a dataclass `Ports` if many functions of the module share them. The
types of the arguments select the parts (`barnabas.broker.server.requests.parts`). No other module lists the
handlers or names their dependencies (`barnabas.broker.server.serving`).

A handler returns its response or an awaitable of it. A response is the fast path, because it needs no task.
The type of the awaitable decides which requests of the connection can begin meanwhile
(`barnabas.broker.awaitables`). None means that there is no response (Produce with acks=0).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import (
    Any,
    Generic,
    NamedTuple,
    Protocol,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from barnabas.base.errors import KafkaError
from barnabas.base.metrics import Durations
from barnabas.broker.awaitables import LongPoll, MaybeAwaitable, SecondPhase
from barnabas.broker.metadata import ImageDelta
from barnabas.broker.metadata.features import FinalizedFeatures
from barnabas.broker.server.requests.context import Chunks, Client, Handle, RequestContext
from barnabas.broker.server.requests.leadership import Leadership
from barnabas.broker.server.requests.needs import Need
from barnabas.broker.server.requests.new_names import BoundedNames
from barnabas.broker.server.requests.order import IN_TURN, Order
from barnabas.broker.server.requests.pieces import MAX_ITEM_ELEMENTS, Pieces
from barnabas.kafka.protocol.framing import RequestHeader
from barnabas.kafka.protocol.messages.api_versions import ApiVersion
from barnabas.kafka.protocol.schema import Request, Response
from barnabas.kafka.protocol.wire import Readable
from barnabas.kafka.security.acls import Access

Q = TypeVar("Q", bound=Request)

#: (its dependencies, context, request) -> the response, or None for no reply
Handler: TypeAlias = Callable[..., MaybeAwaitable[Response | None]]
#: the types of a handler's arguments: a process may start many brokers
_hints = cache(get_type_hints)

#: a request with more elements than this is not served in one turn of the event loop
DIRECT_ELEMENTS = 1000


class Begun(NamedTuple):
    """A request that a `Direct` function has decoded and passed to the API's handler.

    `answer` is the handler's result.
    """

    header: RequestHeader
    context: RequestContext
    request: Request
    answer: MaybeAwaitable[Response | None]


#: The encoded reply (a whole frame, in one or more chunks), or an awaitable of it. `Begun`: the handler has
#: continued with the request. None: nothing has changed, and the handler must execute the whole request.
Outcome: TypeAlias = bytes | Chunks | SecondPhase[Chunks] | LongPoll[Chunks] | Begun | None


class Direct(Protocol):
    """A function that answers simple requests of an API from their bytes, without decoding them (ADR 22)."""

    def __call__(self, frame: Readable, client: Client, access: Access, began: float, /) -> Outcome:
        """Answer a request, if it is simple enough.

        Return the encoded response with its size in front, or a future of it. If the future raises an
        exception, the request fails. Return a `Begun` if the function has begun the request, and has called
        the API's handler to complete it. Return None, without any effect, if the handler must execute the
        whole request.

        Args:
            frame: bytes of the request.
            client: connection of the request.
            access: permissions of the client.
            began: time at which the request began, by the clock of `LongWork`, in seconds.
        """


@dataclass(frozen=True, slots=True)
class Api(Generic[Q]):
    """The declaration of one API, from `handles`. `using` adds the handler's dependencies."""

    key: int
    name: str
    request: type[Q]
    response: type[Response]
    #: the lowest and highest version that are answered: all that the message has
    versions: tuple[int, int]
    #: the lowest version that ApiVersions names; below `versions` only where clients depend on it
    advertised_from: int
    handle: Handler
    #: (request, error) -> the response with this error for the whole request
    on_error: Callable[[Q, KafkaError], Response]
    #: whether to cancel an unanswered request when its connection ends
    cancel_on_disconnect: bool
    #: permissions that the client needs
    needs: tuple[Need, ...]
    #: divisions of a large request, one for each array that can have the items
    pieces: tuple[Pieces, ...] = ()
    #: a request with more elements than this may have to be divided; those of a small frame count as none
    large_from: int = DIRECT_ELEMENTS
    #: largest number of elements in a request that is not divided
    max_elements: int = MAX_ITEM_ELEMENTS
    #: the path of arrays in a response that may be long whatever the request
    listing: tuple[str, ...] = ()
    #: whether answers wait because clients ask for that, or for other clients
    is_held_back: bool = False
    #: whether requests of this API depend on each other
    order: Order = IN_TURN
    #: the partitions whose leader alone may answer
    confirmed_by: Leadership | None = None
    #: the reason why a broker in doubt about its leadership may answer; "" with `confirmed_by`
    unconfirmed: str = ""
    #: whether the controller answers, whichever broker is asked
    is_forwarded: bool = False
    #: whether the client must have logged in, and not by a delegation token
    needs_login: bool = False
    #: the kind of names that its requests may create, of which a principal may have so many
    new_names: type[BoundedNames] | None = None
    #: whether the audit log has its requests
    is_audited: bool = False
    #: feature that the cluster must use, so that brokers serve the API
    feature: str | None = None
    #: makes the function that answers usual requests, from the handler's dependencies
    direct: Callable[..., Direct] | None = None

    @property
    def parts(self) -> list[Any]:
        """Types of the handler's dependencies.

        Raises:
            TypeError: the handler's last argument does not have the type of the API's request.
        """
        *parts, _context, request, _answer = _hints(self.handle).values()
        if request is not self.request:
            raise TypeError(f"the handler of {self.request.__name__} takes {request}")
        return parts

    @property
    def has_second_phase(self) -> bool:
        """Whether the handler's return type contains `SecondPhase`."""
        answers = get_args(_hints(self.handle)["return"])
        return any(get_origin(kind) is SecondPhase for kind in answers)

    def using(self, *parts: Any) -> Served:
        """Return the API as a broker serves it, with `parts` as the first arguments of the handler.

        The arguments have the types, and the order, of the property `parts`.
        """
        direct = None if self.direct is None else self.direct(*parts)
        return Served(self, partial(self.handle, *parts), direct)

    def advertised(self) -> ApiVersion:
        """Return the entry for this API in a response to ApiVersions."""
        return ApiVersion(api_key=self.key, min_version=self.advertised_from, max_version=self.versions[1])


@dataclass(frozen=True, slots=True)
class Served:
    """An API that a broker serves. The dispatcher calls `handle` with each decoded request of the API."""

    api: Api[Any]
    handle: Handle
    #: answers requests of the usual shape in the place of `handle`
    direct: Direct | None = None
    #: durations of the API's requests, from arrival to response
    durations: Durations = field(default_factory=Durations)


class ServedApis(dict[int, Served]):
    """All APIs that a broker serves, by API key.

    `use` removes the APIs of features that the cluster does not use. The broker then rejects their requests
    in the same way as requests of an unknown API.
    """

    def __init__(self) -> None:
        super().__init__()
        self._unused: dict[int, Served] = {}

    def follow(self, delta: ImageDelta) -> None:
        """Call `use` with the features of a new metadata image, if they have changed."""
        if delta.before.features != delta.after.features:
            self.use(delta.after.features)

    def use(self, features: FinalizedFeatures) -> None:
        """Serve each API that has no feature, or whose feature is above level 0 in `features`.

        Remove all other APIs. A later call can serve them again.
        """
        all_apis = sorted({**self, **self._unused}.items())
        self.clear()
        self._unused.clear()
        for key, served in all_apis:
            feature = served.api.feature
            is_used = feature is None or features.level(feature) > 0
            (self if is_used else self._unused)[key] = served


def handles(
    request: type[Q],
    *,
    needs: Sequence[Need],
    advertised_from: int | None = None,
    on_error: Callable[[Q, KafkaError], Response] | None = None,
    cancel_on_disconnect: bool = False,
    pieces: Sequence[Pieces] = (),
    is_heavy: bool = False,
    max_elements: int = MAX_ITEM_ELEMENTS,
    listing: str = "",
    is_held_back: bool = False,
    order: Order = IN_TURN,
    confirmed_by: Leadership | None = None,
    unconfirmed: str = "",
    is_forwarded: bool = False,
    needs_login: bool = False,
    new_names: type[BoundedNames] | None = None,
    is_audited: bool = False,
    feature: str | None = None,
    direct: Callable[..., Direct] | None = None,
) -> Callable[[Handler], Api[Q]]:
    """Return a decorator that makes an `Api` of a handler for `request`.

    Exactly one of `confirmed_by`, `unconfirmed` and `is_forwarded` is necessary. The given one says whether
    the broker must confirm its leadership before it answers (ADR 15).

    Args:
        request: message class of the request; the response is the class of the same name in the same module.
        needs: permissions that the client must have, at least one item (`Anyone` if none is necessary).
        advertised_from: lowest version in ApiVersions, if it is not the lowest that the broker serves.
        on_error: makes the response for an error that the handler raises. Without it, the error goes into the
            response's own `error_code`, or into each item that `pieces` names. If the response has neither,
            an error closes the connection.
        cancel_on_disconnect: cancels the awaitable when the connection ends; not for handlers that may have
            begun to change something.
        pieces: arrays by which a large request is divided; each item must have its own answer.
        is_heavy: whether each item takes long. The broker then divides a request with many items even if its
            frame is small. For other APIs it does not count the items of small frames.
        max_elements: largest number of elements in a request that is not divided.
        listing: path of the arrays in the response that can be long even if the request is small, from
            outside to inside: ``topics.partitions``; "" for none.
        is_held_back: whether a response can wait because its client, or other clients, asked for that.
        order: says which requests can begin while a request of this API is unanswered; `IN_TURN` for none.
        confirmed_by: leadership that the broker must confirm before it answers, if it may have lost it.
        unconfirmed: reason why a broker that may have lost its leadership can answer without confirmation.
        is_forwarded: whether the controller answers the request, even if a client sends it to another broker.
        needs_login: whether the client must have logged in, and not with a delegation token.
        new_names: kind of names that the request can create; each principal has a limit for them.
        is_audited: whether the audit log records the request, because it changes topics, settings, users or
            ACLs.
        feature: name in `barnabas.broker.metadata.features`; at its level 0 the API is unknown to clients.
        direct: called with the handler's dependencies; returns a function that answers simple requests from
            their bytes (`Direct`). Only the authorizer checks a request before it.

    Raises:
        TypeError: none or more than one of `confirmed_by`, `unconfirmed` and `is_forwarded` is given; or
            `direct` is given without `unconfirmed`, or with `needs_login`, `new_names` or `is_audited`.
    """
    if (confirmed_by is not None) + bool(unconfirmed) + is_forwarded != 1:
        raise TypeError(f"{request.__name__}: give one of confirmed_by, unconfirmed and is_forwarded")
    if direct is not None and (not unconfirmed or needs_login or new_names is not None or is_audited):
        raise TypeError(f"{request.__name__}: `direct` passes by what stands before the handler")
    name = request.api_name
    response: type[Response] = getattr(sys.modules[request.__module__], name + "Response")

    def declare(handler: Handler) -> Api[Q]:
        return Api(
            key=request.api_key,
            name=name,
            request=request,
            response=response,
            versions=request.versions,
            advertised_from=request.versions[0] if advertised_from is None else advertised_from,
            handle=handler,
            on_error=on_error or _failure(response, pieces),
            cancel_on_disconnect=cancel_on_disconnect,
            needs=tuple(needs),
            pieces=tuple(pieces),
            large_from=-1 if is_heavy else min((DIRECT_ELEMENTS, *(p.size for p in pieces))),
            max_elements=max_elements,
            listing=tuple(listing.split(".")) if listing else (),
            is_held_back=is_held_back,
            order=order,
            confirmed_by=confirmed_by,
            unconfirmed=unconfirmed,
            is_forwarded=is_forwarded,
            needs_login=needs_login,
            new_names=new_names,
            is_audited=is_audited,
            feature=feature,
            direct=direct,
        )

    return declare


def _failure(response: type[Response], pieces: Sequence[Pieces]) -> Callable[[Request, KafkaError], Response]:
    def reply(request: Request, error: KafkaError) -> Response:
        answer: Any = response()
        if hasattr(answer, "error_code"):
            answer.error_code = error.code
            if hasattr(answer, "error_message"):
                answer.error_message = error.message
        elif pieces:
            for each in pieces:
                each.failed(request, answer, error)
        else:
            raise error
        return answer  # type: ignore[no-any-return]

    return reply
