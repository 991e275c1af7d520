"""Settings in the shape of an answer: DescribeConfigs, and the settings of a topic just made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.config import BrokerConfig
from barnabas.config.describe import Description, describe_broker, describe_group, describe_topic
from barnabas.config.layers import Entry, Layer, Source

if TYPE_CHECKING:
    from barnabas.server.broker import Broker


def topic_settings(broker: Broker, topic: str) -> list[Description]:
    """Every setting of a topic that exists."""
    return list(describe_topic(broker.configs.topic_layers(broker.image, topic)))


def new_topic_settings(broker: Broker, texts: Mapping[str, str]) -> list[Description]:
    """Every setting of a topic that was given `texts`, whether it exists or not."""
    own = Layer(Source.DYNAMIC_TOPIC_CONFIG, texts)
    return list(describe_topic([own, *broker.configs.broker_layers(broker.image)]))


def group_settings(broker: Broker, group_id: str) -> list[Description]:
    """Every setting of a consumer group, whether it exists or not."""
    return list(describe_group(broker.configs.group_layers(broker.image, group_id)))


def broker_settings(broker: Broker) -> list[Description]:
    """Every setting of this broker."""
    return list(describe_broker(broker.configs.broker_layers(broker.image)))


def all_brokers_settings(broker: Broker) -> list[Description]:
    """What is set for all brokers at run time, and nothing else."""
    return [
        Description(BrokerConfig.find(name), text, layer.source, (Entry(name, text, layer.source),))
        for layer in broker.configs.broker_layers(broker.image)
        if layer.source is Source.DYNAMIC_DEFAULT_BROKER_CONFIG
        for name, text in layer.texts.items()
    ]
