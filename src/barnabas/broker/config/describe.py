"""Descriptions of settings, for DescribeConfigs and docs/reference/configuration.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from barnabas.broker.config.broker import BrokerConfig
from barnabas.broker.config.client_metrics import ClientMetricsConfig
from barnabas.broker.config.declaration import Setting
from barnabas.broker.config.group import GroupConfig
from barnabas.broker.config.layers import Entry, Layer, Settings, Source, entries, read
from barnabas.broker.config.listener_settings import ListenerSetting
from barnabas.broker.config.topic import TopicConfig


class Description(NamedTuple):
    """A setting with its present value, the source of this value, and all entries that set it.

    `entries` has the effective entry first, and then the entries that it overrides. If nothing but the
    default sets the value, `entries` is empty or has one entry, the default.
    """

    setting: Setting
    text: str | None
    source: Source
    entries: tuple[Entry, ...]


def describe_topic(layers: Sequence[Layer]) -> Iterator[Description]:
    """Describe every setting of a topic, with values from `layers`.

    The first layer that sets a value has precedence.
    """
    return _describe(TopicConfig, layers)


def describe_group(layers: Sequence[Layer]) -> Iterator[Description]:
    """Describe every setting of a consumer group or share group, with values from `layers`.

    The first layer that sets a value has precedence.
    """
    return _describe(GroupConfig, layers)


def describe_client_metrics(layers: Sequence[Layer]) -> Iterator[Description]:
    """Describe every setting of a client-metrics resource, with values from `layers`.

    The first layer that sets a value has precedence.
    """
    return _describe(ClientMetricsConfig, layers)


def describe_broker(layers: Sequence[Layer]) -> Iterator[Description]:
    """Describe every setting of a broker, then each setting for a single listener that a layer has.

    The first of the `layers` that sets a value has precedence. As in Apache Kafka, a layer sets a value only
    by the setting's own name. If no layer has this name, the value is None, even if a layer has a synonym.
    """
    for setting in BrokerConfig.declared.values():
        found = tuple(entries(setting.names, layers))
        own = found[next((i for i, entry in enumerate(found) if entry.name == setting.name), len(found)) :]
        if not own:
            yield Description(setting, None, Source.DEFAULT_CONFIG, ())
        else:
            yield Description(setting, own[0].text, own[0].source, own)
    for name in sorted({name for layer in layers for name in layer.texts if ListenerSetting.parse(name)}):
        found = tuple(entries((name,), layers))
        yield Description(BrokerConfig.find(name), found[0].text, found[0].source, found)


def _describe(settings: type[Settings], layers: Sequence[Layer]) -> Iterator[Description]:
    for setting in settings.declared.values():
        found = tuple(entries(setting.names, layers))
        if not found:
            yield Description(setting, setting.render(setting.default), Source.DEFAULT_CONFIG, ())
        else:
            text = setting.render(read(setting, found[0], settings.declared))
            yield Description(setting, text, found[0].source, found)
