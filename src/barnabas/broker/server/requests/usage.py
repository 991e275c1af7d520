"""The use of the broker by each request, limited by its client's quotas (KIP-13, KIP-124, KIP-219).

A client that has used too much is answered at once with the time that it has to wait, and is muted for that
time. Requests between brokers are not metered.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Coroutine, Generator
from copy import copy
from types import CoroutineType, coroutine
from typing import Any, TypeVar

from barnabas.base.environment.clock import Clock
from barnabas.broker.quotas import ClientQuotas, QuotaKind
from barnabas.broker.server.requests.api import Api
from barnabas.broker.server.requests.context import Client, Metered
from barnabas.kafka.protocol.framing import RequestHeader
from barnabas.kafka.protocol.messages.produce import ProduceRequest
from barnabas.kafka.protocol.schema import Response
from barnabas.kafka.security.principal import ITSELF

T = TypeVar("T")

_MOST_MS = 2**31 - 1


class Usage:
    """The use by one request, and the time that its client has to wait for it.

    Args:
        quotas: what clients may use.
        clock: tells how long the event loop is used.
        client: who is not listened to while it has to wait.
        user: the name of the client's principal.
        client_id: what the client calls itself; empty for nothing.
        began: when the request began, by the clock.
    """

    __slots__ = ("_began", "_client", "_client_id", "_clock", "_delay", "_quotas", "_spent", "_user")

    def __init__(
        self, quotas: ClientQuotas, clock: Clock, client: Client, user: str, client_id: str, began: float
    ) -> None:
        self._quotas = quotas
        self._clock = clock
        self._client = client
        self._user = user
        self._client_id = client_id
        self._began: float | None = began
        self._spent = 0.0
        self._delay = 0.0

    def charge(self, kind: QuotaKind, amount: float) -> None:
        """Count what the request uses."""
        self._wait(self._quotas.charge(kind, self._user, self._client_id, amount))

    @property
    def most_fetched(self) -> float:
        """The number of bytes that the client may fetch at once; infinite without a quota."""
        return self._quotas.most_at_once(QuotaKind.FETCH, self._user, self._client_id)

    def admits_fetch(self, size: int) -> bool:
        """Count the records that the client is to get, in bytes; False if it has to wait for them."""
        delay = self._quotas.admit(QuotaKind.FETCH, self._user, self._client_id, size)
        self._wait(delay)
        return delay <= 0

    def pause(self) -> None:
        """The event loop does something else until `resume`."""
        if self._began is not None:
            self._spent += self._clock.monotonic() - self._began
            self._began = None

    def resume(self) -> None:
        """The event loop goes on with the request."""
        self._began = self._clock.monotonic()

    def settle(self, response: T) -> T:
        """The response with the time that its client has to wait; from now on it is not listened to."""
        self.pause()
        if self._quotas.has(QuotaKind.REQUEST):
            self.charge(QuotaKind.REQUEST, 100 * self._spent)
        delay = max(self._delay, getattr(response, "throttle_time_ms", 0) / 1000)
        if delay <= 0:
            return response
        self._client.mute(delay)
        if not isinstance(response, Response) or not hasattr(response, "throttle_time_ms"):
            return response
        told = copy(response)  # it may be shared
        told.throttle_time_ms = min(math.ceil(delay * 1000), _MOST_MS)
        return told

    def _wait(self, delay: float) -> None:
        self._delay = max(self._delay, delay)


class Metering:
    """Meters requests while there are quotas of clients."""

    def __init__(self, quotas: ClientQuotas, clock: Clock) -> None:
        self._quotas = quotas
        self._clock = clock

    @property
    def is_idle(self) -> bool:
        """Whether nothing is metered."""
        return self._quotas.is_idle

    def begin(
        self, api: Api[Any], header: RequestHeader, client: Client, size: int, began: float | None = None
    ) -> Usage | None:
        """The usage of a request of so many bytes; None for one that is not metered."""
        if api.order.is_of_brokers(header.api_version) or client.principal is ITSELF:
            return None
        usage = Usage(
            self._quotas,
            self._clock,
            client,
            client.principal.name,
            header.client_id or "",
            self._clock.monotonic() if began is None else began,
        )
        if api.request is ProduceRequest:
            usage.charge(QuotaKind.PRODUCE, size)
        return usage


def timed(work: Awaitable[T], usage: Metered | None) -> Awaitable[T]:
    """`work`, whose steps on the event loop are counted for `usage`."""
    if usage is None or not isinstance(work, CoroutineType):
        return work
    return _timed(work, usage)


@coroutine
def _timed(work: Coroutine[Any, Any, T], usage: Metered) -> Generator[Any, Any, T]:
    sent: Any = None
    failure: BaseException | None = None
    while True:
        usage.resume()
        try:
            waited = work.send(sent) if failure is None else work.throw(failure)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            usage.pause()
        sent = failure = None
        try:
            sent = yield waited
        except GeneratorExit:
            work.close()
            raise
        except BaseException as error:
            failure = error
