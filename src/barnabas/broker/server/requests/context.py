"""The context of a request: its header, its connection, and the permissions of its client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from barnabas import __version__
from barnabas.base.types import Chunk
from barnabas.broker.awaitables import MaybeAwaitable
from barnabas.broker.server.requests.order import NOTHING
from barnabas.kafka.protocol.framing import RequestHeader
from barnabas.kafka.protocol.schema import Response
from barnabas.kafka.security.acls import UNRESTRICTED, Access
from barnabas.kafka.security.principal import ITSELF, Principal

#: a reply's bytes, sent one after another
Chunks: TypeAlias = list[Chunk]


class ClientConnection(Protocol):
    """The connection of a request, with the attributes that handlers may use."""

    #: unique in the life of the broker
    connection_id: int
    #: the client's IP address
    client_host: str
    #: the port that the client sends from; 0 where that is not known
    client_port: int
    #: the client's principal
    principal: Principal
    #: the name of the listener that took it, as in ``listeners``
    listener: str
    #: the client's name and version from ApiVersions (KIP-511); empty if unknown
    client_software_name: str
    client_software_version: str

    def close(self, reason: str) -> None:
        """Close the connection and log the reason."""

    def when_closed(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the connection has closed, or at once if it already has.

        A `NoConnection` never closes.
        """


class ConnectionCache(Protocol):
    """Information that an API stores about the last request of a connection, to serve the next one faster."""

    def close(self) -> None:
        """Release the resources, because the connection has ended or another cache replaces this one."""


class Client(ClientConnection, Protocol):
    """The connection of a request, with the methods by which the dispatcher answers."""

    #: caches of the connection's last requests, by API key
    caches: dict[int, ConnectionCache]
    #: the principal's permissions, which the authorizer keeps here; None before that, and after a login
    access: Access | None

    def reply(self, chunks: Chunks) -> None:
        """Send a reply after the replies to all earlier requests."""

    def park(
        self,
        future: asyncio.Future[Any],
        finish: Callable[[asyncio.Future[Any]], Chunks | None],
        cancel: bool,
        beside: int = NOTHING,
    ) -> None:
        """Send the reply to a request when `future` is done.

        The replies to later requests wait, so that replies keep the order of the requests.

        Args:
            future: done when the reply can be made. If it is a `LongPoll`, a later request can end the wait.
            finish: called with the done future; returns the reply, or None if the request gets no reply.
            cancel: whether to cancel the future if the connection ends before the future is done.
            beside: key of the API whose requests can begin on this connection before `future` is done. With
                NOTHING, no request can begin.
        """

    def mute(self, seconds: float) -> None:
        """Begin no request of this connection for this number of seconds. Still answer earlier requests."""


class UsageMeter(Protocol):
    """Measures how much one request uses the broker, for the quotas of its client (`requests/usage.py`)."""

    def pause(self) -> None:
        """Stop the request's clock, because the event loop does other work until `resume`."""

    def resume(self) -> None:
        """Start the request's clock again, because the event loop continues with the request."""

    @property
    def max_fetch_bytes(self) -> float:
        """Largest number of bytes in one response to Fetch or ShareFetch; infinite without a quota."""

    def admits_fetch(self, size: int) -> bool:
        """Whether the client's quota allows `size` bytes of records now.

        If it allows them, charge them to the quota.
        """

    def charge_fetch(self, size: int) -> None:
        """Charge `size` bytes of records to the client's quota, because the response must have them."""

    def throttled(self, response: Any) -> Any:
        """Return the response with the throttle time, and mute the client for this time.

        The result can be a copy. `response` itself does not change.
        """


class NoConnection:
    """Replaces the connection in requests that a broker sends to itself."""

    connection_id = 0
    client_host = "127.0.0.1"
    client_port = 0
    principal = ITSELF
    client_software_name = "barnabas"
    client_software_version = __version__

    def __init__(self, listener: str) -> None:
        self.listener = listener

    def close(self, reason: str) -> None:
        pass

    def when_closed(self, callback: Callable[[], None]) -> None:
        pass


class RequestContext:
    """The header of a request, its connection, and the permissions of its client."""

    __slots__ = ("__dict__", "access", "api_version", "client_id", "connection")

    #: measures the request; None if no client has quotas
    usage: UsageMeter | None = None
    #: number of errors of single records in the response
    reported_errors = 0
    #: number of missing topics that the broker has created for the request
    made_topics = 0
    #: permissions of the client; all without an authorizer
    access: Access

    def __init__(self, header: RequestHeader, connection: ClientConnection) -> None:
        self.api_version = header.api_version
        self.client_id = header.client_id
        self.connection = connection
        self.access = UNRESTRICTED

    @property
    def client_host(self) -> str:
        """The client's address in Kafka's form: ``/127.0.0.1``."""
        return "/" + self.connection.client_host

    @property
    def listener(self) -> str:
        """Name of the listener that received the request.

        The name selects the addresses in Metadata responses.
        """
        return self.connection.listener


#: answers the requests of one API: (context, request) -> the response, or None for no reply
Handle: TypeAlias = Callable[[RequestContext, Any], MaybeAwaitable[Response | None]]
