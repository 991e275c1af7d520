"""Throttles replication: limits the rate of throttled replicas while they are not in sync (KIP-73).

Topics name their throttled replicas in ``leader.replication.throttled.replicas`` and in
``follower.replication.throttled.replicas``. Each broker has a rate for each side,
``leader.replication.throttled.rate`` and ``follower.replication.throttled.rate``. Throttles never delay
in-sync replicas, because acknowledgements wait for these replicas. But the bytes of throttled replicas count
towards the rate even while the replicas are in sync.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from barnabas.base.environment.clock import Clock
from barnabas.base.types import BrokerId, TopicPartition
from barnabas.broker.config.declaration import LONG_MAX
from barnabas.broker.metadata.configs import ConfigResolver
from barnabas.broker.metadata.image import ImageDelta

#: a rate that limits nothing, in bytes a second
UNLIMITED = LONG_MAX
#: how much may be copied at once after a pause, as seconds of the rate
_BURST_SECONDS = 1.0


class _EveryPartition(Container[int]):
    def __contains__(self, _partition: object) -> bool:
        return True


class Throttle:
    """The throttle of one direction on one broker: bytes sent as a leader, or fetched as a follower."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rate = UNLIMITED
        #: bytes that may be copied now; below 0 after a copy that was larger
        self._allowance = 0.0
        self._counted_at = clock.monotonic()
        #: the throttled partitions of each topic that has some
        self._throttled: dict[str, Container[int]] = {}

    def set_rate(self, rate: int) -> None:
        """Set the rate to `rate` bytes a second; `UNLIMITED` for no limit.

        If the rate changes, forget the bytes that were counted before.
        """
        if rate != self._rate:
            self._rate = rate
            self._allowance = rate * _BURST_SECONDS
            self._counted_at = self._clock.monotonic()

    def set_throttled(self, topic: str, partitions: Container[int] | None) -> None:
        """Throttle exactly these partitions of a topic; no partition if `partitions` is None."""
        if partitions is None:
            self._throttled.pop(topic, None)
        else:
            self._throttled[topic] = partitions

    @property
    def is_idle(self) -> bool:
        """Whether no partition is throttled."""
        return self._rate == UNLIMITED or not self._throttled

    def allows(self, partition: TopicPartition, *, in_sync: bool) -> bool:
        """Whether more bytes of a partition may be copied now.

        `in_sync` says whether the replica that receives the bytes is in the ISR. If it is, the result is
        true.
        """
        return in_sync or self.is_idle or not self._is_throttled(partition) or self.delay() == 0.0

    def delay(self) -> float:
        """Return the seconds until more throttled bytes may be copied; 0.0 if they may now."""
        if self._rate == UNLIMITED:
            return 0.0
        self._replenish()
        return 0.0 if self._allowance > 0 else (1 - self._allowance) / max(self._rate, 1)

    def record(self, partition: TopicPartition, size: int) -> None:
        """Count `size` copied bytes of a partition, if the partition is throttled."""
        if self._rate != UNLIMITED and self._is_throttled(partition):
            self._replenish()
            self._allowance -= size

    def _replenish(self) -> None:
        now = self._clock.monotonic()
        passed, self._counted_at = now - self._counted_at, now
        self._allowance = min(self._allowance + passed * self._rate, self._rate * _BURST_SECONDS)

    def _is_throttled(self, partition: TopicPartition) -> bool:
        return partition.partition in self._throttled.get(partition.topic, ())


class ReplicationThrottles:
    """The throttles of both directions on one broker, configured by the cluster's settings."""

    def __init__(self, node_id: BrokerId, configs: ConfigResolver, clock: Clock) -> None:
        self._node_id = node_id
        self._configs = configs
        #: throttle of bytes sent to followers
        self.leader = Throttle(clock)
        #: throttle of bytes fetched from leaders
        self.follower = Throttle(clock)

    def apply(self, delta: ImageDelta) -> None:
        """Apply changed settings of rates and of throttled replicas."""
        image = delta.after
        if delta.broker_configs:
            broker = self._configs.broker_config(image)
            self.leader.set_rate(broker.leader_replication_throttled_rate)
            self.follower.set_rate(broker.follower_replication_throttled_rate)
        for topic in delta.topic_configs:
            if topic in image.topics:
                config = self._configs.topic_config(image, topic)
                leader = config.leader_replication_throttled_replicas
                follower = config.follower_replication_throttled_replicas
            else:
                leader = follower = ()
            self.leader.set_throttled(topic, throttled_partitions(leader, self._node_id))
            self.follower.set_throttled(topic, throttled_partitions(follower, self._node_id))


def throttled_partitions(replicas: Sequence[str], broker: BrokerId) -> Container[int] | None:
    """Return the partitions whose replica on a broker is throttled; None if there are none.

    Args:
        replicas: entries PARTITION:BROKER, or ``*`` for all replicas.
        broker: id of the broker.
    """
    if "*" in replicas:
        return _EveryPartition()
    pairs = (replica.split(":") for replica in replicas)
    return frozenset(int(partition) for partition, holder in pairs if int(holder) == broker) or None
