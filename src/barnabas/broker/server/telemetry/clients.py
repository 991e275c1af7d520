"""Remembers the clients that push metrics, and the latest value of each of their series.

The numbers of clients and series have limits. The broker removes clients that have been silent for too long.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

from barnabas.base.environment.clock import Clock
from barnabas.base.environment.randomness import new_uuid
from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.server.telemetry.otlp import Pushed
from barnabas.broker.server.telemetry.subscriptions import ClientSubscription, Subscriptions

#: largest number of clients that a broker remembers, as in Apache Kafka
MAX_CLIENTS = 16_384
#: largest number of series of one client, and of all clients together
MAX_OF_A_CLIENT, MAX_SERIES = 500, 50_000
#: silence after which a client is removed, in milliseconds; or three push intervals if these are longer
_FORGOTTEN_AFTER_MS = 60_000
#: number of clients that each request checks for silence
_AT_ONCE = 20

#: (metric, attributes, whether it only grows)
Key: TypeAlias = tuple[str, tuple[tuple[str, str], ...], bool]


@dataclass(slots=True)
class ClientInstance:
    """A client that pushes metrics, with the times of its requests and its latest values.

    Attributes:
        id: client instance id, which a broker has generated.
        about: attributes of the client, by the names that the setting ``match`` uses.
        wanted: metrics that the client must push.
        seen_ms: time of its last request, in milliseconds of the monotonic clock.
        asked_ms, pushed_ms: times of its last request for subscriptions and its last push, in milliseconds of
            the monotonic clock.
        is_ending: whether the client has announced its last push.
        error: error code of the broker's last response to the client.
        series: latest value of each series.
    """

    id: bytes
    about: Mapping[str, str]
    subscription: ClientSubscription
    seen_ms: float
    asked_ms: float = float("-inf")
    pushed_ms: float = float("-inf")
    is_ending: bool = False
    error: ErrorCode = ErrorCode.NONE
    series: dict[Key, float] = field(default_factory=dict)

    @property
    def subscription_id(self) -> int:
        return self.subscription.subscription_id(self.id)

    def may_ask(self, now: float) -> bool:
        """Whether the client may request its subscription at time `now` (ms). If True, record this time."""
        if now - max(self.asked_ms, self.pushed_ms) < self.subscription.interval_ms:
            return False
        self.asked_ms = now
        return True

    def may_push(self, now: float) -> bool:
        """Whether the client may push at time `now` (ms). If True, record this time.

        The first push after a request for the subscription is always allowed.
        """
        if self.asked_ms <= self.pushed_ms and now - self.pushed_ms < self.subscription.interval_ms:
            return False
        self.pushed_ms = now
        return True


class TelemetryClients:
    """All clients of a broker that push metrics. Only the broker's event loop may use this object.

    Args:
        subscriptions: client-metrics resources, which select the metrics of each client.
        clock: clock of the broker.
        random: makes client instance ids.
    """

    def __init__(self, subscriptions: Subscriptions, clock: Clock, random: Random) -> None:
        self._subscriptions = subscriptions
        self._clock = clock
        self._random = random
        #: by id, the client that has been silent for longest first
        self._clients: OrderedDict[bytes, ClientInstance] = OrderedDict()
        #: ids of the clients to check for silence next
        self._to_check: list[bytes] = []
        self._series = 0
        #: number of pushes by the name of their error code, and number of values dropped because of a limit
        self.pushes: Counter[str] = Counter()
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._clients)

    def now(self) -> float:
        """Return the time of the monotonic clock in milliseconds."""
        return self._clock.monotonic() * 1000

    def new_id(self) -> bytes:
        """Return a new client instance id, which no known client has."""
        while True:
            candidate = new_uuid(self._random).bytes
            if candidate not in self._clients:
                return candidate

    def find(self, client_id: bytes, about: Mapping[str, str]) -> ClientInstance:
        """Return the client with this client instance id, with the present subscription.

        If the client is unknown, create it. If there are too many clients, first remove the client whose last
        request is oldest. Each call also checks a few clients, and removes those that have sent no request
        for a long time.

        Args:
            client_id: the client instance id, 16 bytes.
            about: attributes of the client, by the names that the setting ``match`` uses. They are ignored if
                the client is known.
        """
        self._forget_silent()
        client = self._clients.get(client_id)
        now = self.now()
        if client is None:
            while len(self._clients) >= MAX_CLIENTS:
                self._remove(next(iter(self._clients)))
            wanted = self._subscriptions.subscription_of(about)
            client = self._clients[client_id] = ClientInstance(client_id, about, wanted, now)
        elif client.subscription.version is not self._subscriptions.version:
            # As in Apache Kafka it may ask for the new subscription at once.
            client.subscription = self._subscriptions.subscription_of(client.about)
            client.asked_ms = client.pushed_ms = float("-inf")
        client.seen_ms = now
        self._clients.move_to_end(client_id)
        return client

    def keep(self, client: ClientInstance, pushed: Pushed) -> None:
        """Store the values of a client's push.

        A value that is a difference from the last push is added to the stored value of its series. Other
        values replace the stored value.

        The series of one client, and of all clients together, have a limit. At the limit, values of new
        series are not stored; `dropped` counts these values.

        Raises:
            KafkaError: UNKNOWN_SUBSCRIPTION_ID, the client was removed meanwhile.
        """
        if self._clients.get(client.id) is not client:
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        series = client.series
        for point in pushed.points:
            key = point.metric, point.attributes, point.is_sum
            known = series.get(key)
            if known is None:
                if len(series) >= MAX_OF_A_CLIENT or self._series >= MAX_SERIES:
                    self.dropped += 1
                    continue
                self._series += 1
            series[key] = point.value + (known or 0) if point.is_delta else point.value

    def shown(self) -> Iterator[ClientInstance]:
        """Return the clients that have pushed values and have not been silent for too long, in any order."""
        now = self.now()
        return (each for each in list(self._clients.values()) if each.series and not _is_silent(each, now))

    def _forget_silent(self) -> None:
        now = self.now()
        for _ in range(min(_AT_ONCE, len(self._clients))):
            if not self._to_check:
                self._to_check = list(self._clients)
            client = self._clients.get(self._to_check.pop())
            if client is not None and _is_silent(client, now):
                self._remove(client.id)

    def _remove(self, client_id: bytes) -> None:
        self._series -= len(self._clients.pop(client_id).series)


def _is_silent(client: ClientInstance, now: float) -> bool:
    return now - client.seen_ms > max(_FORGOTTEN_AFTER_MS, 3 * client.subscription.interval_ms)
