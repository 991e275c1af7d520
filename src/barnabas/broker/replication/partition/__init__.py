"""One partition on this broker, with a module for each of its roles."""

from barnabas.broker.replication.partition.leader import ACKS_ALL
from barnabas.broker.replication.partition.partition import Partition

__all__ = ["ACKS_ALL", "Partition"]
