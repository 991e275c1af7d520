"""What the brokers of an image may be: in sync, elected, or on their way out."""

from __future__ import annotations

from barnabas.controller.partition_changes import Standing
from barnabas.metadata.image import BrokerState, ClusterImage
from barnabas.types import BrokerId


def standing_of(image: ClusterImage) -> Standing:
    """What the brokers may be now, as the image shows them."""
    registered = image.brokers.values()
    alive = frozenset(broker.id for broker in registered if broker.state is BrokerState.RUNNING)
    running = alive - {broker.id for broker in registered if broker.is_isolated}
    shutting_down = {broker.id for broker in registered if broker.state is BrokerState.SHUTTING_DOWN}
    known = frozenset(broker.id for broker in registered if image.is_admitted(broker.id))
    return Standing(
        in_sync=running & known,
        electable=running,
        leaving=((alive - running) | shutting_down) & known,
        unclean=frozenset(
            broker.id
            for broker in registered
            if broker.id not in known
            and (broker.previous_epoch == -1 or broker.previous_epoch != image.admitted.get(broker.id))
        ),
    )


def known_brokers(image: ClusterImage) -> frozenset[BrokerId]:
    """The brokers of the cluster: those that are registered, and those that have run in it and are away."""
    return frozenset(image.brokers) | frozenset(image.admitted)


def leaders_to_move(image: ClusterImage, broker: BrokerId) -> int:
    """How many partitions a broker leads that another one could lead now."""
    standing = standing_of(image)
    electable = standing.electable - {broker}
    return sum(
        not electable.isdisjoint((*state.isr, *state.elr))
        for topic in image.topics.values()
        for state in topic.partitions
        if state.leader == broker
    )
