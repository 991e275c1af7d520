"""Measures how much each request uses the broker, and applies its client's quotas (KIP-13, KIP-124, KIP-219).

If a client exceeds its quota, the broker responds at once, with a throttle time. The broker then mutes the
connection for this time. The broker does not measure requests between brokers.
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
from barnabas.broker.server.requests.context import Client, UsageMeter
from barnabas.kafka.protocol.framing import RequestHeader
from barnabas.kafka.protocol.messages.produce import ProduceRequest
from barnabas.kafka.protocol.schema import Response
from barnabas.kafka.security.principal import ITSELF

T = TypeVar("T")

_MAX_MS = 2**31 - 1


class Usage:
    """Measures the use of the broker by one request, and computes the resulting throttle time (`UsageMeter`).

    Args:
        quotas: quotas of clients.
        clock: measures the time on the event loop.
        client: connection that is muted for the throttle time.
        user: name of the client's principal.
        client_id: client id of the request; empty if there is none.
        began: time at which the request began, by the clock.
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
        """Charge `amount` to the client's quota of this kind. This can increase the throttle time.

        The amount is in bytes. For REQUEST, it is 100 for each second on the event loop.
        """
        self._wait(self._quotas.charge(kind, self._user, self._client_id, amount))

    @property
    def max_fetch_bytes(self) -> float:
        """Largest number of bytes in one response to Fetch or ShareFetch; infinite without a quota.

        It is the number of bytes that the client's quota allows in one whole window.
        """
        return self._quotas.max_at_once(QuotaKind.FETCH, self._user, self._client_id)

    def admits_fetch(self, size: int) -> bool:
        """Whether the client's quota allows `size` bytes of records now.

        If it allows them, charge them to the quota.
        """
        delay = self._quotas.admit(QuotaKind.FETCH, self._user, self._client_id, size)
        self._wait(delay)
        return delay <= 0

    def charge_fetch(self, size: int) -> None:
        """Charge `size` bytes of records to the client's quota, because the response must have them."""
        self.charge(QuotaKind.FETCH, size)

    def pause(self) -> None:
        """Stop the request's clock, because the event loop does other work until `resume`."""
        if self._began is not None:
            self._spent += self._clock.monotonic() - self._began
            self._began = None

    def resume(self) -> None:
        """Start the request's clock again, because the event loop continues with the request."""
        self._began = self._clock.monotonic()

    def throttled(self, response: T) -> T:
        """Charge the request's time, and return the response with the throttle time.

        If there is a throttle time, mute the client for this time. `response` itself does not change.
        """
        self.pause()
        if self._quotas.has(QuotaKind.REQUEST):
            self.charge(QuotaKind.REQUEST, 100 * self._spent)
        # a stored quota of 0 delays without end
        delay = min(max(self._delay, getattr(response, "throttle_time_ms", 0) / 1000), _MAX_MS / 1000)
        if delay <= 0:
            return response
        self._client.mute(delay)
        if not isinstance(response, Response) or not hasattr(response, "throttle_time_ms"):
            return response
        throttled_response = copy(response)  # it may be shared
        throttled_response.throttle_time_ms = math.ceil(delay * 1000)
        return throttled_response

    def _wait(self, delay: float) -> None:
        self._delay = max(self._delay, delay)


class Metering:
    """Creates a `Usage` for each request to be measured."""

    def __init__(self, quotas: ClientQuotas, clock: Clock) -> None:
        #: while no client has quotas, they are idle and no requests are measured
        self.quotas = quotas
        self._clock = clock

    def begin(
        self, api: Api[Any], header: RequestHeader, client: Client, size: int, began: float | None = None
    ) -> Usage | None:
        """Create the usage of a request with `size` bytes.

        Return None for a request between brokers, or of this broker itself. Charge the size of a Produce
        request to the client's quota.

        Args:
            api: the API of the request.
            header: header of the request.
            client: connection of the request.
            size: size of the request in bytes.
            began: time at which the request began, in seconds of the monotonic clock; None for now.
        """
        if api.order.is_of_brokers(header.api_version) or client.principal is ITSELF:
            return None
        usage = Usage(
            self.quotas,
            self._clock,
            client,
            client.principal.name,
            header.client_id or "",
            self._clock.monotonic() if began is None else began,
        )
        if api.request is ProduceRequest:
            usage.charge(QuotaKind.PRODUCE, size)
        return usage


def timed(work: Awaitable[T], usage: UsageMeter | None) -> Awaitable[T]:
    """Return an awaitable that runs `work`, and measures its time on the event loop for `usage`.

    Return `work` itself if there is no usage, or if it is not a coroutine.
    """
    if usage is None or not isinstance(work, CoroutineType):
        return work
    return _timed(work, usage)


@coroutine
def _timed(work: Coroutine[Any, Any, T], usage: UsageMeter) -> Generator[Any, Any, T]:
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
