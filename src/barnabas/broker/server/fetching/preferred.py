"""Chooses the replica from which a consumer should read (KIP-392)."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.base.types import NO_BROKER, BrokerId, Offset
from barnabas.broker.metadata.image import BrokerImage
from barnabas.broker.replication.partition import Partition

#: the only replica selector of Kafka's that is supported
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def replica_in_rack(
    brokers: Mapping[BrokerId, BrokerImage], rack: str, listener: str, partition: Partition, offset: Offset
) -> BrokerId:
    """Return the follower from which a consumer in `rack` should fetch; -1 to stay with this broker.

    The follower is in sync and has `offset`. If `rack` has several such followers, it is the one with the
    highest log end offset. The consumer stays with this broker in these cases:

    - The leader is in `rack`.
    - No such follower is in `rack`.
    - This broker does not lead the partition.

    Args:
        brokers: live brokers.
        rack: rack of the consumer.
        listener: the consumer's listener, which the chosen broker must also have.
        partition: the partition that the consumer fetches.
        offset: fetch offset of the consumer.
    """
    leader = brokers.get(partition.state.leader)
    if not partition.is_leader or leader is None or leader.rack == rack:
        return NO_BROKER
    nearest = NO_BROKER
    furthest = -1
    for follower in partition.in_sync_with(offset):
        broker = brokers.get(follower.broker_id)
        if broker is None or broker.rack != rack or broker.endpoint(listener) is None:
            continue
        if follower.end > furthest:
            nearest, furthest = follower.broker_id, follower.end
    return nearest
