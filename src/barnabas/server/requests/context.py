"""What a handler knows of a request beside its body."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from barnabas.protocol.framing import RequestHeader
from barnabas.types import Chunk

#: a reply's bytes, sent one after another
Chunks: TypeAlias = list[Chunk]


class Connection(Protocol):
    """The connection a request came by, as handlers may see it."""

    #: unique in the life of the broker
    connection_id: int
    #: the client's IP address
    client_host: str
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
        *,
        exclusive: bool = False,
    ) -> None:
        """Keep the place of a request that `future` will answer; `finish` makes its reply.

        With `cancel`, the future is cancelled when the connection ends before it. With `exclusive`, no other
        request of this connection is served meanwhile.
        """


class RequestContext:
    """What one request's header says, and its connection."""

    __slots__ = ("__dict__", "api_version", "client_id", "connection")

    #: set by a handler that must not be overtaken by later requests of the connection while it waits
    exclusive = False
    #: how many errors of single records the answer has
    reported_errors = 0
    #: how many missing topics were made for the request
    made_topics = 0

    def __init__(self, header: RequestHeader, connection: Connection) -> None:
        self.api_version = header.api_version
        self.client_id = header.client_id
        self.connection = connection

    @property
    def client_host(self) -> str:
        """The client's address as Kafka shows it: ``/127.0.0.1``."""
        return "/" + self.connection.client_host

    @property
    def listener(self) -> str:
        """The name of the listener the request came by: what Metadata answers with depends on it."""
        return self.connection.listener
