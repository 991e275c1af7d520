"""Converts settings of Java's clients, which jobs for Spark's own connector use, to librdkafka's settings.

Some settings tune parts that this data source does not have. Such settings are ignored, and logged once.
Settings for functions that the data source does not have are rejected (`options.REFUSED_SETTINGS`).
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping

from barnabas.base.errors import ConfigError
from barnabas.client.errors import SettingError
from barnabas.client.properties import JAVA, translate
from barnabas.spark.option_values import invalid_option, positive

_logger = logging.getLogger(__name__)

#: Options of Spark's own connector that have no effect here, and the reason.
IGNORED_OPTIONS = {
    "fetchOffset.numRetries": "offsets are asked for again for 30 seconds",
    "fetchOffset.retryIntervalMs": "the pause between two questions grows from 0.1 to 0.5 seconds",
}

_NO_GROUP = "reading joins no group"
_OF_METRICS = "there are no Java metrics here"
_LATE = "kafka.delivery.timeout.ms bounds how long a record may take"

#: Client settings that reads ignore, and the reason.
IGNORED_IN_READING = {
    "auto.commit.interval.ms": "Spark's checkpoint holds the offsets",
    "auto.include.jmx.reporter": _OF_METRICS,
    "client.rack": "records are read from leaders",
    "default.api.timeout.ms": "kafka.socket.timeout.ms bounds each request",
    "exclude.internal.topics": "internal topics are read only by name",
    "group.instance.id": _NO_GROUP,
    "group.protocol": _NO_GROUP,
    "group.remote.assignor": _NO_GROUP,
    "heartbeat.interval.ms": _NO_GROUP,
    "max.poll.interval.ms": _NO_GROUP,
    "max.poll.records": "a task reads by bytes, kafka.max.partition.fetch.bytes at a time",
    "metric.reporters": _OF_METRICS,
    "metrics.num.samples": _OF_METRICS,
    "metrics.recording.level": _OF_METRICS,
    "metrics.sample.window.ms": _OF_METRICS,
    "partition.assignment.strategy": _NO_GROUP,
    "session.timeout.ms": _NO_GROUP,
}

#: Client settings that writes ignore, and the reason.
IGNORED_IN_WRITING = {
    "auto.include.jmx.reporter": _OF_METRICS,
    "client.rack": "records are written to leaders",
    "max.block.ms": _LATE,
    "metadata.max.idle.ms": "librdkafka has a time of its own for it",
    "metric.reporters": _OF_METRICS,
    "metrics.num.samples": _OF_METRICS,
    "metrics.recording.level": _OF_METRICS,
    "metrics.sample.window.ms": _OF_METRICS,
    "partitioner.adaptive.partitioning.enable": "rows without keys go to a partition by turns",
    "partitioner.availability.timeout.ms": "rows without keys go to a partition by turns",
}

#: librdkafka's names of settings of Java's clients.
RENAMED = {
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}

#: librdkafka's names of Java's partitioners, by the name of the Java class.
_PARTITIONERS = {
    "DefaultPartitioner": "murmur2_random",
    "UniformStickyPartitioner": "random",
    "RoundRobinPartitioner": "random",
}

#: Settings of TLS and SASL that only Java has.
_OF_SECURITY = JAVA - {"ssl.endpoint.identification.algorithm"}
_SECURITY = ("sasl.", "security.", "ssl.")


def from_java(given: Mapping[str, str], *, writing: bool) -> dict[str, str]:
    """Convert Java's client settings to librdkafka's names and values.

    Ignored settings are logged and dropped.

    Args:
        given: settings by name, without ``kafka.``.
        writing: whether the settings are for a producer.

    Raises:
        ConfigError: a value cannot be converted; the text has the setting and a hint.
    """
    ignored = IGNORED_IN_WRITING if writing else IGNORED_IN_READING
    settings = {}
    for name, value in given.items():
        if name in ignored:
            note(f"kafka.{name}", ignored[name])
        elif name == "buffer.memory" and writing:
            size = positive(f"kafka.{name}", value)
            settings["queue.buffering.max.kbytes"] = str(max(1, size // 1024))
        elif name == "partitioner.class" and writing:
            settings["partitioner"] = _partitioner(value)
        else:
            settings[RENAMED.get(name, name)] = value
    return _security(settings)


@functools.cache
def note(option: str, why: str) -> None:
    """Log, once in this process, that `option` is ignored, with the reason `why`.

    Spark passes the options for each micro-batch, so later calls with the same arguments do nothing.
    """
    _logger.warning("option %s is ignored: %s", option, why)


def _partitioner(value: str) -> str:
    name = value.strip().rpartition(".")[2]
    if name not in _PARTITIONERS:
        hint = "Java classes do not run here; give each row its partition in the column partition"
        raise invalid_option("kafka.partitioner.class", value, hint)
    return _PARTITIONERS[name]


def _security(settings: dict[str, str]) -> dict[str, str]:
    """Convert Java's settings of TLS and SASL, such as JAAS logins and key stores.

    Other settings do not change. Raises ConfigError if a setting cannot be converted.
    """
    if _OF_SECURITY.isdisjoint(settings):
        return settings
    if "sasl.jaas.config" in settings:
        _warn_of_plans()
    ours = {name: value for name, value in settings.items() if name.startswith(_SECURITY)}
    try:
        translated = translate(ours).settings
    except SettingError as error:
        raise ConfigError(f"option kafka.{error}") from None
    return {name: value for name, value in settings.items() if name not in ours} | translated


@functools.cache
def _warn_of_plans() -> None:
    _logger.warning(
        "option kafka.sasl.jaas.config holds a password, which may show in Spark's plans and logs: put it "
        "into a file, and name that by barnabas.config"
    )
