"""Computes the metrics that a client must push, from the client-metrics resources that match the client."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from barnabas.base.errors import ConfigError
from barnabas.base.text import logger_of
from barnabas.base.types import topic_id_to_str
from barnabas.broker.config import ClientMetricsConfig
from barnabas.broker.config.client_metrics import ALL_METRICS, parse_match
from barnabas.broker.config.layers import Layer, Source
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.view import BrokerView

log = logger_of(__name__)

#: interval at which a client without a subscription asks again, in milliseconds
_INTERVAL_MS = 300_000


@dataclass(frozen=True, slots=True)
class _Subscription:
    """The settings of one client-metrics resource (KIP-714).

    Attributes:
        texts: the settings as text, by name.
        metrics: prefixes of the names of the metrics to push.
        interval_ms: time between two pushes, in milliseconds.
        match: compiled regular expressions, by client attribute. A client must match all of them.
    """

    texts: Mapping[str, str]
    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, Any]

    def is_about(self, client: Mapping[str, str]) -> bool:
        return all(pattern.fullmatch(client.get(name, "")) for name, pattern in self.match.items())


@dataclass(frozen=True, slots=True)
class ClientSubscription:
    """The metrics that a client must push.

    Attributes:
        metrics: sorted prefixes of names, or only "*".
        interval_ms: time between two pushes, in milliseconds.
        version: version of the client-metrics resources (`Subscriptions.version`).
    """

    metrics: tuple[str, ...]
    interval_ms: int
    version: object

    def subscription_id(self, client_instance_id: bytes) -> int:
        """Return the subscription id of a client: a signed 32-bit number, which is not secret.

        It changes with the metrics and the interval, and differs between clients.
        """
        text = f"{','.join(self.metrics)} {self.interval_ms}".encode()
        number = zlib.crc32(text) ^ zlib.crc32(client_instance_id)
        return number - 2**32 if number >= 2**31 else number


class Subscriptions:
    """The client-metrics resources of the cluster, from the current metadata image."""

    def __init__(self, view: BrokerView) -> None:
        self._view = view
        self._source: Mapping[str, Mapping[str, str]] = {}
        self._known: dict[str, _Subscription] = {}

    @property
    def version(self) -> object:
        """Object whose identity changes when a client-metrics resource is created, changed or deleted."""
        return self._view.image.client_metrics

    def subscription_of(self, client: Mapping[str, str]) -> ClientSubscription:
        """Return the metrics that a client must push, and the interval.

        The metrics are those of all client-metrics resources that match the client. The interval is the
        shortest of these resources. If no resource matches, the result has no metrics and the default
        interval.

        Args:
            client: the client's attributes by name, from `attributes_of`.
        """
        self._refresh()
        metrics: set[str] = set()
        interval = _INTERVAL_MS
        for subscription in self._known.values():
            if subscription.is_about(client):
                metrics.update(subscription.metrics)
                interval = min(interval, subscription.interval_ms)
        named = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
        return ClientSubscription(named, interval, self._source)

    def _refresh(self) -> None:
        source = self._view.image.client_metrics
        if source is self._source:
            return
        self._source = source
        before = self._known
        self._known = {}
        for name, texts in sorted(source.items()):
            known = before.get(name)
            if known is None or known.texts is not texts:
                known = _read(name, texts)
            if known is not None:
                self._known[name] = known


def _read(name: str, texts: Mapping[str, str]) -> _Subscription | None:
    try:
        config = ClientMetricsConfig.from_layers([Layer(Source.DYNAMIC_CLIENT_METRICS_CONFIG, texts)], texts)
        return _Subscription(texts, config.metrics, config.interval_ms, parse_match(config.match))
    except ConfigError as error:  # another version may have written it
        log.warning("ignoring the client-metrics resource %s: %s", name, error)
        return None


def attributes_of(client_instance_id: bytes, context: RequestContext) -> dict[str, str]:
    """Return the attributes of the client that sends a request, by name.

    A client-metrics resource selects clients by these attributes: for example, its setting ``match`` is
    ``client_software_name=librdkafka`` (KIP-714). The names are client_instance_id, client_id,
    client_software_name, client_software_version, client_source_address and client_source_port. An empty or
    unknown attribute is left out.

    Args:
        client_instance_id: UUID of the client, as 16 bytes.
        context: the request's context, which has the client id and the connection.
    """
    connection = context.connection
    found = {
        "client_instance_id": topic_id_to_str(client_instance_id),
        "client_id": context.client_id,
        "client_software_name": connection.client_software_name,
        "client_software_version": connection.client_software_version,
        "client_source_address": connection.client_host,
        "client_source_port": str(connection.client_port) if connection.client_port else "",
    }
    return {name: text for name, text in found.items() if text}
