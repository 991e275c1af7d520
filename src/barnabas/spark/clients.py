"""librdkafka clients for Spark's processes: their settings, and a cache of clients in a worker.

A Python worker of Spark runs many tasks, one after another. It keeps its clients, with their connections and
metadata, for the next task with the same settings.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import KafkaError as ClientError
from confluent_kafka.admin import AdminClient

from barnabas.base.errors import ConfigError
from barnabas.client.settings import ASK_AGAIN, KEEP_BROKERS
from barnabas.spark.librdkafka import BatchProducer, Failed
from barnabas.spark.option_values import invalid_option

Settings = dict[str, str | bool | int]
Client = TypeVar("Client")

#: Java's defaults where librdkafka's differ: a job reads and places records as with Spark's connector.
CONSUMER_DEFAULTS: Settings = {
    "group.id": "barnabas-spark",  # librdkafka wants one; nothing joins it or commits to it
    "isolation.level": "read_uncommitted",
    # a task reads what is there already: a fetch that waits only holds up the next task's on its connection
    "fetch.wait.max.ms": 20,
    "fetch.queue.backoff.ms": 20,
}
_CONSUMER_FIXED: Settings = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
}
PRODUCER_DEFAULTS: Settings = {
    "partitioner": "murmur2_random",
    "enable.idempotence": True,
    "delivery.timeout.ms": 120_000,
    # so that requests of a bulk write are full (`barnabas.spark.send_window`); a flush does not wait for it
    "linger.ms": 100,
    "batch.num.messages": 100_000,
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 65_536,
}
#: Additional defaults for transactions. An open transaction of a dead task blocks readers of committed
#: records until the task's next attempt or the timeout.
TRANSACTION_DEFAULTS: Settings = {
    "transaction.timeout.ms": 300_000,
    "reconnect.backoff.ms": 10,  # librdkafka also waits this long before it asks for the coordinator
    **ASK_AGAIN,
}

#: largest max.in.flight.requests.per.connection of an idempotent producer
_MAX_IN_FLIGHT = 5

#: Number of checked sets of settings that the process remembers.
_MAX_CHECKED = 16

_kept: dict[tuple[Callable[[Settings], Any], frozenset[tuple[str, object]]], Any] = {}


def consumer_settings(given: Mapping[str, str]) -> Settings:
    """Return librdkafka's settings for a consumer that commits nothing and reports the ends of partitions.

    `given` overrides `CONSUMER_DEFAULTS`, but not the settings that the data source requires.
    """
    return {**CONSUMER_DEFAULTS, **given, **_CONSUMER_FIXED}


def producer_settings(given: Mapping[str, str]) -> Settings:
    """Return librdkafka's settings for an idempotent producer with the partitioner of Java's producer.

    If `given` has settings that exclude idempotence, such as ``acks=1``, the producer is not idempotent.
    Java's producer does the same. librdkafka rejects such settings together with `enable.idempotence`.
    """
    return {**PRODUCER_DEFAULTS, "enable.idempotence": not _rules_idempotence_out(given), **given}


def transaction_settings(given: Mapping[str, str], transactional_id: str) -> Settings:
    """Return librdkafka's settings for a transactional producer.

    If `given` has no ``delivery.timeout.ms``, librdkafka uses the transaction's timeout for it.
    """
    defaults = {name: value for name, value in PRODUCER_DEFAULTS.items() if name != "delivery.timeout.ms"}
    return {**defaults, **TRANSACTION_DEFAULTS, **given, "transactional.id": transactional_id}


def connection_settings(given: Mapping[str, Any]) -> Settings:
    """Return the settings in `given` that configure a client's connections. Admin clients accept them too."""
    kinds = (
        "bootstrap.",
        "security.",
        "sasl.",
        "ssl.",
        "client.",
        "socket.",
        "broker.address.",
        "enable.ssl",
    )
    return {name: value for name, value in given.items() if name.startswith(kinds)}


def new_admin(settings: Settings) -> AdminClient:
    """Create an admin client. Raises ConfigError if librdkafka rejects a setting."""
    return _create(AdminClient, settings)


def new_consumer(settings: Settings, on_error: Callable[[ClientError], None] | None = None) -> Consumer:
    """Create a consumer, which is not cached. The consumer calls `on_error` with errors of its connections.

    Raises:
        ConfigError: librdkafka rejects a setting.
    """
    return _create(Consumer, {**settings, "error_cb": on_error} if on_error else settings)


def new_producer(settings: Settings, on_failure: Callable[[Failed], None]) -> BatchProducer:
    """Create a producer that calls `on_failure` with each failed record.

    Raises ConfigError if librdkafka rejects a setting.
    """
    return _create(lambda given: BatchProducer(given, on_failure), settings)


def check_producer_settings(settings: Settings) -> None:
    """Raise ConfigError if librdkafka rejects a setting.

    A check creates a producer, with a thread and a connection, for some milliseconds. So a process checks
    each set of settings only once.
    """
    _check_producer(frozenset(settings.items()))


@functools.lru_cache(maxsize=_MAX_CHECKED)
def _check_producer(settings: frozenset[tuple[str, str | bool | int]]) -> None:
    _create(Producer, dict(settings))


def kept(create: Callable[[Settings], Client], settings: Settings) -> Client:
    """Return this process's cached client for these arguments. At the first call, `create` makes it."""
    key = (create, frozenset(settings.items()))
    if key not in _kept:
        _kept[key] = create(settings)
    client: Client = _kept[key]
    return client


def forget(client: object) -> None:
    """Remove `client` from the cache, because it cannot be used any more."""
    for key in [key for key, value in _kept.items() if value is client]:
        del _kept[key]


def _rules_idempotence_out(given: Mapping[str, str]) -> bool:
    acks = given.get("acks", given.get("request.required.acks", "all"))
    retries = given.get("retries", given.get("message.send.max.retries", "1"))
    in_flight = given.get("max.in.flight.requests.per.connection", given.get("max.in.flight", "1"))
    too_many = in_flight.isdecimal() and int(in_flight) > _MAX_IN_FLIGHT
    return acks not in ("all", "-1") or retries == "0" or too_many


def _create(kind: Callable[[Mapping[str, Any]], Client], settings: Mapping[str, Any]) -> Client:
    try:
        return kind({**KEEP_BROKERS, **settings})
    except KafkaException as error:
        raise _explain(settings, error.args[0].str().strip()) from None


def _explain(settings: Mapping[str, Any], reason: str) -> ConfigError:
    """Make a ConfigError with `reason`, librdkafka's text, and the option if the text names a setting."""
    for name, value in settings.items():
        if f'"{name}"' in reason:
            return invalid_option(f"kafka.{name}", value, f"{reason}; see librdkafka's CONFIGURATION.md")
    return ConfigError(f"the kafka.* options are not allowed: {reason}")
