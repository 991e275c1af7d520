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
from barnabas.broker.config.layers import Entry, Layer, Source
from barnabas.broker.view import BrokerView


@dataclass(frozen=True, slots=True)
class SettingDescriptions:
    """Describes settings, with their values in the latest metadata image and the sources of these values."""

    view: BrokerView

    def of_topic(self, topic: str) -> list[Description]:
        """Return a description of each setting of an existing topic."""
        return list(describe_topic(self.view.configs.topic_layers(self.view.image, topic)))

    def of_new_topic(self, texts: Mapping[str, str]) -> list[Description]:
        """Return a description of each setting of a new topic.

        Args:
            texts: values of the topic's own settings; the other settings have the broker's values.
        """
        if not texts:
            return self.view.configs.plain_topic(self.view.image)
        own = Layer(Source.DYNAMIC_TOPIC_CONFIG, texts)
        return list(describe_topic([own, *self._broker_layers()]))

    def of_group(self, group_id: str) -> list[Description]:
        """Return a description of each setting of a group, even if the group does not exist."""
        return list(describe_group(self.view.configs.group_layers(self.view.image, group_id)))

    def of_client_metrics(self, name: str) -> list[Description]:
        """Return a description of each setting of a client-metrics resource, even if it does not exist."""
        texts = self.view.image.client_metrics.get(name, {})
        return list(describe_client_metrics([Layer(Source.DYNAMIC_CLIENT_METRICS_CONFIG, texts)]))

    def of_broker(self) -> list[Description]:
        """Return a description of each setting of this broker."""
        return list(describe_broker(self._broker_layers()))

    def of_all_brokers(self) -> list[Description]:
        """Return a description of each dynamic setting that applies to all brokers."""
        return [
            Description(BrokerConfig.find(name), text, layer.source, (Entry(name, text, layer.source),))
            for layer in self._broker_layers()
            if layer.source is Source.DYNAMIC_DEFAULT_BROKER_CONFIG
            for name, text in layer.texts.items()
        ]

    def _broker_layers(self) -> list[Layer]:
        return list(self.view.configs.broker_layers(self.view.image))
