"""Decides from a metadata image which brokers can be in sync, can be elected, or are shutting down."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from barnabas.base.types import BrokerId, TopicPartition
from barnabas.broker.controller.partition_changes import Eligibility
from barnabas.broker.metadata.image import Admission, BrokerImage, BrokerState, ClusterImage

_NONE: Mapping[TopicPartition, frozenset[BrokerId]] = MappingProxyType({})


def eligibility_of(image: ClusterImage) -> Eligibility:
    """Return the brokers that can be in sync, can be elected, are leaving, or may have lost records.

    `Eligibility` explains these sets.
    """
    registered = image.brokers.values()
    alive = frozenset(broker.id for broker in registered if broker.state is BrokerState.RUNNING)
    running = alive - {broker.id for broker in registered if broker.is_isolated}
    shutting_down = {broker.id for broker in registered if broker.state is BrokerState.SHUTTING_DOWN}
    known = frozenset(broker.id for broker in registered if image.is_admitted(broker.id))
    return Eligibility(
        in_sync=running & known,
        electable=running,
        leaving=((alive - running) | shutting_down) & known,
        unclean=frozenset(
            broker.id
            for broker in registered
            if broker.id not in known and _may_have_lost_records(broker, image.admitted.get(broker.id))
        ),
    )


def _may_have_lost_records(broker: BrokerImage, admission: Admission | None) -> bool:
    """Whether a broker can have stopped uncleanly after its last admission, by its next registration.

    It has not if its process is the same, or if a clean stop saved the epoch of the admission. A process can
    miss its admission: its session ends before it has read this from the store.
    """
    if admission is None:
        return True
    if broker.incarnation and broker.incarnation == admission.incarnation:
        return False
    return broker.previous_epoch != admission.epoch


def known_brokers(image: ClusterImage) -> frozenset[BrokerId]:
    """Return the brokers of the cluster: the registered ones, and absent ones that have run in it."""
    return frozenset(image.brokers) | frozenset(image.admitted)


def incomplete_replicas(
    image: ClusterImage, *, only_unadmitted: bool = False
) -> Mapping[TopicPartition, frozenset[BrokerId]]:
    """Return the live brokers whose replica lacks acknowledged records, by partition.

    Args:
        image: the metadata image.
        only_unadmitted: leave out the brokers whose registration the controller has processed (admitted). The
            controller has removed their incomplete replicas from ISR and ELR. Since then only complete
            replicas have joined the ISR.
    """
    found: dict[TopicPartition, frozenset[BrokerId]] = {}
    for broker in image.brokers.values():
        if not broker.incomplete_replicas or (only_unadmitted and image.is_admitted(broker.id)):
            continue
        for topic_id, number in broker.incomplete_replicas:
            if (name := image.topic_names.get(topic_id)) is not None:
                partition = TopicPartition(name, number)
                found[partition] = found.get(partition, frozenset()) | {broker.id}
    return found or _NONE


def leaders_to_move(image: ClusterImage, broker: BrokerId) -> int:
    """Return the number of partitions that a broker leads and another broker could lead now."""
    eligible = eligibility_of(image)
    electable = eligible.electable - {broker}
    return sum(
        not electable.isdisjoint((*state.isr, *state.elr))
        for topic in image.topics.values()
        for state in topic.partitions
        if state.leader == broker and state.is_known
    )
