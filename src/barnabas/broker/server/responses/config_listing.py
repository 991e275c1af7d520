"""Descriptions of settings, for DescribeConfigs and for the response to CreateTopics."""

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
    """Describes settings with their values and the sources of these values, from the latest image."""

    view: BrokerView

    def of_topic(self, topic: str) -> list[Description]:
        """Describe every setting of an existing topic."""
        return list(describe_topic(self.view.configs.topic_layers(self.view.image, topic)))

    def of_new_topic(self, texts: Mapping[str, str]) -> list[Description]:
        """Describe every setting of a topic with the values `texts`, whether it exists or not."""
        if not texts:
            return self.view.configs.plain_topic(self.view.image)
        own = Layer(Source.DYNAMIC_TOPIC_CONFIG, texts)
        return list(describe_topic([own, *self._broker_layers()]))

    def of_group(self, group_id: str) -> list[Description]:
        """Describe every setting of a consumer group, whether it exists or not."""
        return list(describe_group(self.view.configs.group_layers(self.view.image, group_id)))

    def of_client_metrics(self, name: str) -> list[Description]:
        """Describe every setting of a client-metrics resource, whether it exists or not."""
        texts = self.view.image.client_metrics.get(name, {})
        return list(describe_client_metrics([Layer(Source.DYNAMIC_CLIENT_METRICS_CONFIG, texts)]))

    def of_broker(self) -> list[Description]:
        """Describe every setting of this broker."""
        return list(describe_broker(self._broker_layers()))

    def of_all_brokers(self) -> list[Description]:
        """Describe the dynamic settings that apply to all brokers, and no others."""
        return [
            Description(BrokerConfig.find(name), text, layer.source, (Entry(name, text, layer.source),))
            for layer in self._broker_layers()
            if layer.source is Source.DYNAMIC_DEFAULT_BROKER_CONFIG
            for name, text in layer.texts.items()
        ]

    def _broker_layers(self) -> list[Layer]:
        return list(self.view.configs.broker_layers(self.view.image))
