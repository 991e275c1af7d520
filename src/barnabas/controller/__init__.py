"""Who decides: topics, partitions and their leaders, settings, features, producer ids."""

from barnabas.controller.auto_creation import AutoCreation
from barnabas.controller.configs import ConfigChange, ConfigResource
from barnabas.controller.controller import Controller
from barnabas.controller.features import FeatureUpdate
from barnabas.controller.topics import NewPartitions, NewTopic

__all__ = [
    "AutoCreation",
    "ConfigChange",
    "ConfigResource",
    "Controller",
    "FeatureUpdate",
    "NewPartitions",
    "NewTopic",
]
