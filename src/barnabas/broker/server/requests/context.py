"""The context of a request: its header, its connection and what its client may do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from barnabas import __version__
from barnabas.base.types import Chunk
from barnabas.broker.answers import Answer
from barnabas.broker.server.requests.order import NOTHING
from barnabas.kafka.protocol.framing import RequestHeader
from barnabas.kafka.protocol.schema import Response
from barnabas.kafka.security.acls import UNRESTRICTED, Access
from barnabas.kafka.security.principal import ITSELF, Principal

#: a reply's bytes, sent one after another
Chunks: TypeAlias = list[Chunk]


class Connection(Protocol):
    """The connection a request came by, as handlers may see it."""

    #: unique in the life of the broker
    connection_id: int
    #: the client's IP address
    client_host: str
    #: the port that the client sends from; 0 where that is not known
    client_port: int
    #: who the client is
    principal: Principal
    #: the name of the listener that took it, as in ``listeners``
    listener: str
    #: what the client called itself in ApiVersions (KIP-511); empty when it did not
    client_software_name: str
    client_software_version: str

    def close(self, reason: str) -> None:
        """Close the connection, saying why in the log."""


class Client(Connection, Protocol):
    """The connection a request came by, as the dispatcher answers it."""

    def reply(self, chunks: Chunks) -> None:
        """Send a finished reply as soon as those before it are sent."""

    def park(
        self,
        future: asyncio.Future[Any],
        finish: Callable[[asyncio.Future[Any]], Chunks | None],
        cancel: bool,
        beside: int = NOTHING,
    ) -> None:
        """Keep the place of a request that `future` will answer; `finish` makes its reply.

        With `cancel`, the future is cancelled when the connection ends before it. Of this connection, only
        requests of the API with the key `beside` begin meanwhile. A `LongPoll` gives way to others.
        """

    def mute(self, seconds: float) -> None:
        """Serve nothing more of this connection for so long; what is being served is answered."""


class Metered(Protocol):
    """The use of the broker by one request, which its client's quotas limit (`requests/usage.py`)."""

    def pause(self) -> None:
        """The event loop does something else until `resume`."""

    def resume(self) -> None:
        """The event loop goes on with the request."""

    @property
    def most_fetched(self) -> float:
        """The number of bytes that the client may fetch at once; infinite without a quota."""

    def admits_fetch(self, size: int) -> bool:
        """Count the records that the client is to get, in bytes; False if it has to wait for them."""

    def settle(self, response: Any) -> Any:
        """The response with the time that its client has to wait; from now on it is not listened to."""


class NoConnection:
    """Replaces a connection for the requests that a broker sends to itself."""

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


class RequestContext:
    """The header of a request, and its connection."""

    __slots__ = ("__dict__", "access", "api_version", "client_id", "connection")

    #: what the request uses of the broker, while quotas ask for it
    usage: Metered | None = None
    #: how many errors of single records the answer has
    reported_errors = 0
    #: how many missing topics were made for the request
    made_topics = 0
    #: what the client may do; everything where there is no authorizer
    access: Access

    def __init__(self, header: RequestHeader, connection: Connection) -> None:
        self.api_version = header.api_version
        self.client_id = header.client_id
        self.connection = connection
        self.access = UNRESTRICTED

    @property
    def client_host(self) -> str:
        """The client's address as Kafka shows it: ``/127.0.0.1``."""
        return "/" + self.connection.client_host

    @property
    def listener(self) -> str:
        """The name of the listener the request came by: what Metadata answers with depends on it."""
        return self.connection.listener


#: answers the requests of one API: (context, request) -> the response, or None for no reply
Handle: TypeAlias = Callable[[RequestContext, Any], Answer[Response | None]]
