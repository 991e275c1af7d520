"""The controller, which decides on topics, partitions, leaders, settings, features, users and ACLs."""

from barnabas.broker.controller.auto_creation import AutoCreation
from barnabas.broker.controller.configs import ConfigChange, ConfigResource
from barnabas.broker.controller.controller import Controller
from barnabas.broker.controller.features import FeatureUpdate
from barnabas.broker.controller.topics import NewPartitions, NewTopic

__all__ = [
    "AutoCreation",
    "ConfigChange",
    "ConfigResource",
    "Controller",
    "FeatureUpdate",
    "NewPartitions",
    "NewTopic",
]
