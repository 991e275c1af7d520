"""Counts bytes and records in and out of a topic on one broker."""

from __future__ import annotations


class TopicTraffic:
    """Counters of one topic on one broker, since the broker's start. They only grow.

    Requests count once for each partition, as in Kafka: a produce to three partitions of a topic counts as
    three.
    """

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "messages_in",
        "produces",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.produces = 0
        self.failed_produces = 0
        self.fetches = 0
        self.failed_fetches = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0

    def add(self, other: TopicTraffic) -> None:
        """Add the counts of `other` to the counts of this object."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
