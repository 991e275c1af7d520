"""Settings that stand in Apache Kafka's own server.properties and mean nothing here.

Kafka's shipped files set them, so a file that sets them must still load; one that asks for what Barnabas
would have to do, and does not, must not.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.errors import ConfigError

#: thread pools, which one event loop needs none of
_THREADS = frozenset({"num.network.threads", "num.io.threads", "background.threads"})

#: the KRaft quorum, in whose place stands the metadata store
_KRAFT = frozenset(
    {
        "process.roles",
        "controller.quorum.voters",
        "controller.quorum.bootstrap.servers",
        "controller.listener.names",
        "inter.broker.listener.name",
    }
)

#: the shape of internal topics that are not made
_INTERNAL_TOPICS = frozenset(
    {
        "share.coordinator.state.topic.replication.factor",
        "share.coordinator.state.topic.min.isr",
    }
)

_PROTOCOLS = "listener.security.protocol.map"
_MEANINGLESS = _THREADS | _KRAFT | _INTERNAL_TOPICS | {_PROTOCOLS}


def without_kafka_only(texts: Mapping[str, str]) -> tuple[dict[str, str], frozenset[str]]:
    """The settings that are left, and the names of those that were passed over.

    Listeners of the KRaft controller are taken out of the lists of listeners.

    Raises:
        ConfigError: a listener that is left would have to speak another protocol than PLAINTEXT.
    """
    passed = _MEANINGLESS & texts.keys()
    kept = {name: text for name, text in texts.items() if name not in passed}
    controllers = set(_items(texts.get("controller.listener.names", "")))
    for name in ("listeners", "advertised.listeners"):
        if name in kept:
            served = [item for item in _items(kept[name]) if item.partition(":")[0] not in controllers]
            kept[name] = ",".join(served)
    for item in _items(texts.get(_PROTOCOLS, "")):
        listener, _, protocol = item.partition(":")
        uses = any(f"{listener}:" in served for served in _items(kept.get("listeners", "")))
        if uses and protocol != "PLAINTEXT":
            raise ConfigError(f"{_PROTOCOLS}={item} is not allowed: only PLAINTEXT is served")
    return kept, passed


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
