"""The settings of brokers, topics, groups and client-metrics resources.

Each setting is declared in one place.
"""

from barnabas.broker.config.broker import BrokerConfig
from barnabas.broker.config.client_metrics import ClientMetricsConfig
from barnabas.broker.config.declaration import Setting, Type, Update
from barnabas.broker.config.group import GroupConfig
from barnabas.broker.config.layers import Settings
from barnabas.broker.config.topic import TopicConfig

__all__ = [
    "BrokerConfig",
    "ClientMetricsConfig",
    "GroupConfig",
    "Setting",
    "Settings",
    "TopicConfig",
    "Type",
    "Update",
]
