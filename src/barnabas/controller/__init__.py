"""Who decides: topics, partitions and their leaders, settings, producer ids."""

from barnabas.controller.configs import ConfigChange, ConfigResource
from barnabas.controller.controller import Controller
from barnabas.controller.topics import NewPartitions, NewTopic

__all__ = ["ConfigChange", "ConfigResource", "Controller", "NewPartitions", "NewTopic"]
