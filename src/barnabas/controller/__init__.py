"""Who decides: topics, partitions and their leaders, settings, producer ids."""

from barnabas.controller.controller import Controller
from barnabas.controller.topics import NewPartitions, NewTopic

__all__ = ["Controller", "NewPartitions", "NewTopic"]
