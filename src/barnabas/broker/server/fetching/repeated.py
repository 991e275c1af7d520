"""Keeps a Fetch request without a session in memory while a client repeats it, as librdkafka does.

A client that waits for records sends the same bytes again after each empty response. From the second time
on, the broker keeps the `Fetch` between the requests. A kept fetch watches its partitions, and reads again
only those that have changed. The broker drops a kept fetch after the first response that has records or
errors, because the next request then differs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from barnabas.base.errors import ProtocolError
from barnabas.broker.awaitables import MaybeAwaitable
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.fetching.fetch import Fetch
from barnabas.broker.server.fetching.sessions import FINAL_EPOCH, FetchSessions
from barnabas.broker.server.requests.api import Begun, Outcome
from barnabas.broker.server.requests.context import Client, RequestContext
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.framing import RequestHeader, parse_counted
from barnabas.kafka.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.kafka.protocol.wire import Readable
from barnabas.kafka.security.acls import Access

#: creates the kept fetch of a request
Keep: TypeAlias = Callable[[RequestContext, FetchRequest], Fetch]
#: makes the response to a request with its kept fetch
Answering: TypeAlias = Callable[[RequestContext, FetchRequest, Fetch], MaybeAwaitable[FetchResponse]]

#: smallest request to keep: smaller ones have few partitions, so keeping saves nothing
_MIN_BYTES = 512
_MAX_BYTES = 64 * 1024
#: about a millisecond to decode
_MAX_ELEMENTS = 1200
#: position of the correlation id, the only part that differs in a repeated request
_VARYING = slice(4, 8)


class _Seen:
    """Length and hash of a connection's last Fetch request, to recognise a repetition (`ConnectionCache`)."""

    __slots__ = ("key",)

    def __init__(self, key: tuple[int, bytes, int]) -> None:
        self.key = key

    def close(self) -> None:
        """Do nothing: it holds no resources."""


class _Kept:
    """A Fetch request that the client has repeated, and the fetch that is kept (`ConnectionCache`)."""

    __slots__ = ("_end", "_sessions", "_size", "_start", "config", "fetch", "header", "request")

    def __init__(
        self,
        frame: Readable,
        header: RequestHeader,
        request: FetchRequest,
        fetch: Fetch,
        config: BrokerConfig,
        sessions: FetchSessions,
    ) -> None:
        self._start = bytes(frame[: _VARYING.start])
        self._end = bytes(frame[_VARYING.stop :])
        self._size = _named(request)
        self._sessions = sessions
        self.header = header
        self.request = request
        self.fetch = fetch
        #: the settings with which the fetch was created
        self.config = config

    def is_repeated_by(self, frame: Readable) -> bool:
        """Whether `frame` equals the kept request in all bytes except the correlation id."""
        return (
            len(frame) == len(self._end) + _VARYING.stop
            and frame.endswith(self._end)
            and frame.startswith(self._start)
        )

    def close(self) -> None:
        """Stop watching the partitions of the fetch.

        These partitions no longer count towards the limit of `FetchSessions`. A second call does nothing.
        """
        self.fetch.end()
        self._sessions.release(self._size)
        self._size = 0


class RepeatedFetches:
    """Implements `Direct` for Fetch requests without a session that repeat the connection's previous one.

    Args:
        key: API key of Fetch.
        sessions: limits the number of partitions of all kept fetches.
        view: settings of the broker.
        keep: called with the context and the request; creates the fetch that this object keeps.
        answer: called with the context, the request and its kept fetch; executes the fetch, and returns the
            response or an awaitable of it.
    """

    def __init__(
        self, key: int, sessions: FetchSessions, view: BrokerView, keep: Keep, answer: Answering
    ) -> None:
        self._key = key
        self._sessions = sessions
        self._view = view
        self._keep = keep
        self._answer = answer

    def __call__(self, frame: Readable, client: Client, access: Access, began: float, /) -> Outcome:
        if not _MIN_BYTES <= len(frame) <= _MAX_BYTES or not access.is_unrestricted:
            return None
        cached = client.caches.get(self._key)
        if isinstance(cached, _Kept):
            if (
                cached.fetch.is_watching
                and cached.is_repeated_by(frame)
                and cached.config is self._view.config
            ):
                number = int.from_bytes(frame[_VARYING], signed=True)
                header = cached.header._replace(correlation_id=number)
                context = RequestContext(header, client)
                return Begun(
                    header, context, cached.request, self._answer(context, cached.request, cached.fetch)
                )
            cached.close()
        key = len(frame), bytes(frame[: _VARYING.start]), hash(bytes(frame[_VARYING.stop :]))
        if isinstance(cached, _Seen) and cached.key == key:
            del client.caches[self._key]
            return self._begin(frame, client)
        client.caches[self._key] = _Seen(key)
        return None

    def _begin(self, frame: Readable, client: Client) -> Begun | None:
        try:
            header, request, _ = parse_counted(frame, _MAX_ELEMENTS)
        except ProtocolError:
            return None
        if not isinstance(request, FetchRequest) or not _is_ordinary(request):
            return None
        if not self._sessions.reserve(_named(request)):
            return None
        context = RequestContext(header, client)
        fetch = self._keep(context, request)
        client.caches[self._key] = _Kept(frame, header, request, fetch, self._view.config, self._sessions)
        return Begun(header, context, request, self._answer(context, request, fetch))


def _is_ordinary(request: FetchRequest) -> bool:
    """Whether a consumer without a session and without a rack has sent the request."""
    return (
        request.session_epoch == FINAL_EPOCH
        and not request.session_id
        and request.replica_id < 0
        and request.replica_state.replica_id < 0
        and not request.rack_id
        and not request.forgotten_topics_data
    )


def _named(request: FetchRequest) -> int:
    return sum(len(topic.partitions) for topic in request.topics)
