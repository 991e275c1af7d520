"""Settings of Apache Kafka that Barnabas does not have. Some are ignored, others are rejected.

Settings with no effect in Barnabas are ignored, because the files that Kafka ships contain them. Settings of
a function that Barnabas does not have are rejected.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.base.errors import ConfigError

#: thread pools, which one event loop needs none of: one connection copies all partitions of a leader
_THREADS = (
    "num.network.threads",
    "num.io.threads",
    "background.threads",
    "num.replica.fetchers",
    "num.replica.alter.log.dirs.threads",
)

#: the operating system chooses
_BUFFERS = ("replica.socket.receive.buffer.bytes",)

#: the KRaft quorum, in whose place stands the metadata store
_KRAFT = ("process.roles", "controller.quorum.", "controller.listener.names", "metadata.log.")

_IGNORED = _THREADS + _BUFFERS + _KRAFT

NO_SECURITY = (
    "of Kafka's security there are listeners with TLS and SASL (PLAIN, SCRAM, OAUTHBEARER, GSSAPI), ACLs and "
    "quotas; remove it, and see docs/use/security.md for what there is"
)


class _Unsupported(NamedTuple):
    """A group of Kafka's settings, and the reason why Barnabas does not have them.

    A name that ends in a dot covers all names that begin with it.
    """

    reason: str
    names: tuple[str, ...]


_UNSUPPORTED = (
    _Unsupported(
        NO_SECURITY,
        (
            "ssl.",
            "sasl.",
            "security.",
            "listener.name.",
            "password.encoder.",
            "zookeeper.ssl.",
            "zookeeper.clientCnxnSocket",
            "principal.builder.class",
            "early.start.listeners",
        ),
    ),
    _Unsupported(
        "ids are not generated; remove it and give each broker its node.id",
        ("broker.id.generation.enable", "reserved.broker.max.id"),
    ),
    _Unsupported(
        "brokers learn of changes from ZooKeeper, not from the controller; remove it",
        ("control.plane.listener.name",),
    ),
    _Unsupported(
        "there is no KRaft to migrate to; remove it",
        ("zookeeper.metadata.migration.enable", "zookeeper.metadata.migration.min.batch.size"),
    ),
    _Unsupported(
        "it was for upgrades of Kafka before 4.0; remove it",
        ("inter.broker.protocol.version", "log.message.format.version", "log.message.downconversion.enable"),
    ),
    _Unsupported("the throttles of replication have no windows; remove it", ("replication.quota.",)),
    _Unsupported(
        "tiered storage is not there yet; remove it", ("remote.log.", "remote.list.", "remote.fetch.")
    ),
    _Unsupported("streams groups are not there yet; remove it", ("group.streams.",)),
    _Unsupported(
        "share groups have one assignor and one persister, and no threads or buffers; remove it",
        ("group.share.", "share.coordinator.", "share.fetch."),
    ),
    _Unsupported(
        "Barnabas loads no classes and has no metrics of the JVM; remove it",
        (
            "metric.reporters",
            "metrics.",
            "kafka.metrics.",
            "auto.include.jmx.reporter",
            "broker.interceptor.class",
            "create.topic.policy.class.name",
            "alter.config.policy.class.name",
            "client.quota.callback.class",
        ),
    ),
    _Unsupported(
        "it only applies to Kafka itself (threads, KRaft); remove it",
        (*_IGNORED, "controller.", "metadata.max.", "broker.heartbeat.", "broker.session.timeout.ms"),
    ),
)


def unsupported_reason(name: str) -> str | None:
    """Return why Barnabas does not have Kafka's setting `name`, and what to do instead.

    Return None if `name` is not a setting of Kafka that is rejected.
    """
    return next((group.reason for group in _UNSUPPORTED if _is_in(name, group.names)), None)


def without_kafka_only(texts: Mapping[str, str]) -> tuple[dict[str, str], frozenset[str]]:
    """Remove the settings of a server.properties that have no effect in Barnabas.

    Return the other settings, and the names of the removed ones.

    The listeners of a KRaft controller are also removed from ``listeners`` and ``advertised.listeners``.
    ``security.inter.broker.protocol`` is removed if its value is PLAINTEXT.

    Raises:
        ConfigError: the file is for a controller without a broker.
    """
    ignored = {name for name in texts if _is_in(name, _IGNORED)}
    if texts.get("security.inter.broker.protocol", "").strip().upper() == "PLAINTEXT":
        ignored.add("security.inter.broker.protocol")
    kept = {name: text for name, text in texts.items() if name not in ignored}
    if "broker" not in _items(texts.get("process.roles", "broker")):
        raise ConfigError(
            f"process.roles={texts['process.roles']} is not supported: Barnabas has no separate controllers; "
            "start it with the file of a broker"
        )
    controllers = {item.upper() for item in _items(texts.get("controller.listener.names", ""))}
    for name in ("listeners", "advertised.listeners"):
        if name in kept:
            served = [
                item for item in _items(kept[name]) if item.partition(":")[0].upper() not in controllers
            ]
            kept[name] = ",".join(served)
    return kept, frozenset(ignored)


def _is_in(name: str, names: tuple[str, ...]) -> bool:
    return any(name.startswith(each) if each.endswith(".") else name == each for each in names)


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
