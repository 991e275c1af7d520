"""Every setting, declared once."""

from barnabas.config.broker import BrokerConfig
from barnabas.config.client_metrics import ClientMetricsConfig
from barnabas.config.group import GroupConfig
from barnabas.config.setting import Setting, Type, Update
from barnabas.config.settings import Settings
from barnabas.config.topic import TopicConfig

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
