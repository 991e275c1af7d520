"""Descriptions of settings for responses: DescribeConfigs, and the settings of a new topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.broker.config import BrokerConfig
from barnabas.broker.config.describe import (
    Description,
    describe_broker,
    describe_client_metrics,
    describe_group,
    describe_topic,
)
from barnabas.broker.config.settings import Entry, Layer, Source
from barnabas.broker.view import BrokerView


@dataclass(frozen=True, slots=True)
class SettingDescriptions:
    """Every setting with its value and where that comes from, as the latest image has it."""

    view: BrokerView

    def of_topic(self, topic: str) -> list[Description]:
        """Every setting of a topic that exists."""
        return list(describe_topic(self.view.configs.topic_layers(self.view.image, topic)))

    def of_new_topic(self, texts: Mapping[str, str]) -> list[Description]:
        """Every setting of a topic that was given `texts`, whether it exists or not."""
        own = Layer(Source.DYNAMIC_TOPIC_CONFIG, texts)
        return list(describe_topic([own, *self._broker_layers()]))

    def of_group(self, group_id: str) -> list[Description]:
        """Every setting of a consumer group, whether it exists or not."""
        return list(describe_group(self.view.configs.group_layers(self.view.image, group_id)))

    def of_client_metrics(self, name: str) -> list[Description]:
        """Every setting of a client-metrics resource, whether it exists or not."""
        texts = self.view.image.client_metrics.get(name, {})
        return list(describe_client_metrics([Layer(Source.DYNAMIC_CLIENT_METRICS_CONFIG, texts)]))

    def of_broker(self) -> list[Description]:
        """Every setting of this broker."""
        return list(describe_broker(self._broker_layers()))

    def of_all_brokers(self) -> list[Description]:
        """The settings that all brokers got at run time, and no others."""
        return [
            Description(BrokerConfig.find(name), text, layer.source, (Entry(name, text, layer.source),))
            for layer in self._broker_layers()
            if layer.source is Source.DYNAMIC_DEFAULT_BROKER_CONFIG
            for name, text in layer.texts.items()
        ]

    def _broker_layers(self) -> list[Layer]:
        return list(self.view.configs.broker_layers(self.view.image))
