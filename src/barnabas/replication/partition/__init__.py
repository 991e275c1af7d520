"""One partition as this broker holds it."""

from barnabas.replication.partition.partition import ACKS_ALL, Partition

__all__ = ["ACKS_ALL", "Partition"]
