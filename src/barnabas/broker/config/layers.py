"""A setting's value out of layers: what was set for the topic, for the broker, for all brokers, at start.

Within a layer a setting goes by several names, its own and its synonyms (``log.retention.ms``,
``log.retention.minutes``, ``log.retention.hours``). The first name set in the first layer that sets one wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from barnabas.broker.config.setting import Setting

_MILLISECONDS = {"hours": 3_600_000, "minutes": 60_000}


class Source(IntEnum):
    """The source of a value, by the numbers of DescribeConfigs (KIP-226)."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class Layer(NamedTuple):
    """The settings of one source, as text by name."""

    source: Source
    texts: Mapping[str, str]


class Entry(NamedTuple):
    """One name that sets, or would set, a value."""

    name: str
    text: str
    source: Source


def entries(names: Sequence[str], layers: Sequence[Layer]) -> Iterator[Entry]:
    """Every name of `names` that is set, the one that wins first."""
    for layer in layers:
        for name in names:
            if name in layer.texts:
                yield Entry(name, layer.texts[name], layer.source)


def read(setting: Setting, entry: Entry, declared: Mapping[str, Setting]) -> Any:
    """The value that `entry` gives to `setting`, whose name may be a synonym in coarser units.

    Raises:
        ConfigError: the text is not allowed.
    """
    spoken = declared.get(entry.name, setting)
    value = spoken.parse(entry.text)
    unit = entry.name.rpartition(".")[2]
    if unit in _MILLISECONDS and setting.name.endswith(".ms"):
        value = -1 if value < 0 else value * _MILLISECONDS[unit]
    setting.check(value)
    return value
