"""Converts groups with members from the classic to the consumer protocol, and back (KIP-848).

A classic group becomes a consumer group when a member of the consumer protocol joins it. The other members
still use the classic protocol. When the last member of the consumer protocol leaves, and others stay, the
group becomes a classic group again. `group.consumer.migration.policy` says which directions are allowed.
"""

from __future__ import annotations

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.text import logger_of
from barnabas.broker.config import BrokerConfig
from barnabas.broker.coordinator.groups.classic.group import ClassicGroup
from barnabas.broker.coordinator.groups.classic.member import ClassicMember
from barnabas.broker.coordinator.groups.classic.members import HeldMetadata
from barnabas.broker.coordinator.groups.codec import GroupRecord
from barnabas.broker.coordinator.groups.consumer.draft import GroupDraft
from barnabas.broker.coordinator.groups.consumer.group import ConsumerGroup
from barnabas.broker.coordinator.groups.consumer.member import ClassicSide, ConsumerMember
from barnabas.broker.coordinator.groups.modern.member import Partitions
from barnabas.broker.coordinator.groups.modern.topics import Topics
from barnabas.broker.coordinator.groups.subscription import (
    CONSUMER_PROTOCOL_TYPE,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    subscription_version,
)

logger = logger_of(__name__, is_limited=True)

_UPGRADES = ("upgrade", "bidirectional")
_DOWNGRADES = ("downgrade", "bidirectional")


def upgrade(group: ClassicGroup, topics: Topics, config: BrokerConfig) -> GroupDraft:
    """Return the draft that replaces a classic group by a consumer group with its members and assignments.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND, the group cannot be converted.
    """
    _check_upgrade(group, config)
    tombstone = GroupRecord(group.group_id, None)
    draft = GroupDraft(ConsumerGroup(group.group_id), [tombstone])
    members = [_upgraded(group, member, topics) for member in group.members]
    for member in members:
        draft.put_subscription(member)
    draft.put_epoch(group.generation, topics.metadata_hash(draft.group.topics_in_use()))
    for member in members:
        draft.put_target(member.member_id, member.assigned)
    draft.put_assignment_epoch(group.generation)
    for member in members:
        draft.put_current(member)
    logger.info("group %s: changed from the classic to the consumer protocol", group.group_id)
    return draft


def may_downgrade(staying: list[ConsumerMember], config: BrokerConfig) -> bool:
    """Whether the group becomes a classic group if only the members `staying` remain.

    All of them must use the classic protocol, `group.consumer.migration.policy` must allow it, and there must
    be at most `group.max.size` of them.
    """
    return (
        bool(staying)
        and all(member.classic is not None for member in staying)
        and config.group_consumer_migration_policy in _DOWNGRADES
        and len(staying) <= config.group_max_size
    )


def downgrade(
    group: ConsumerGroup, staying: list[ConsumerMember], topics: Topics, now_ms: int
) -> tuple[ClassicGroup, GroupRecord]:
    """Return a classic group with the members `staying` and their target assignments, and its record."""
    classic = ClassicGroup(group.group_id, now_ms, HeldMetadata())
    classic.generation = group.epoch
    for member in staying:
        assert member.classic is not None
        classic.add(
            ClassicMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.classic.session_timeout_ms,
                member.classic.protocols,
            ),
            CONSUMER_PROTOCOL_TYPE,
        )
    classic.protocol = classic.members.select_protocol()
    for old in classic.members:
        old.assignment = classic_assignment(
            group.target(old.member_id), topics, old.metadata(classic.protocol)
        )
    assignments = {old.member_id: old.assignment for old in classic.members}
    value = classic.to_record(assignments, list(classic.members))
    logger.info("group %s: changed from the consumer to the classic protocol", group.group_id)
    return classic, GroupRecord(group.group_id, value)


def classic_assignment(partitions: Partitions, topics: Topics, metadata: bytes) -> bytes:
    """Encode an assignment for a classic member, in the protocol version of the member's `metadata`."""
    return encode_assignment(topics.named(partitions), subscription_version(metadata))


def _check_upgrade(group: ClassicGroup, config: BrokerConfig) -> None:
    if config.group_consumer_migration_policy not in _UPGRADES:
        raise _stays(group, "online upgrade is disabled (group.consumer.migration.policy)")
    if not group.is_consumer_group:
        raise _stays(group, "its members do not use the consumer protocol type")
    if len(group.members) > config.group_consumer_max_size:
        raise _stays(group, "it has more members than group.consumer.max.size allows")


def _upgraded(group: ClassicGroup, old: ClassicMember, topics: Topics) -> ConsumerMember:
    protocol = group.protocol or old.protocols[0].name
    try:
        subscription = decode_subscription(old.metadata(protocol))
        assignment = decode_assignment(old.assignment)
    except ValueError as error:
        raise _stays(group, f"the subscription of member {old.member_id} cannot be read ({error})") from error
    if assignment.user_data:
        raise _stays(group, "its assignor's user data would be lost")
    return ConsumerMember(
        old.member_id,
        old.instance_id,
        subscription.rack_id,
        old.client_id,
        old.client_host,
        frozenset(subscription.topics),
        rebalance_timeout_ms=old.rebalance_timeout_ms,
        classic=ClassicSide(old.session_timeout_ms, tuple(old.protocols)),
        epoch=group.generation,
        previous_epoch=group.generation,
        assigned=topics.identified(
            {entry.topic: frozenset(entry.partitions) for entry in assignment.assigned_partitions}
        ),
    )


def _stays(group: ClassicGroup, reason: str) -> KafkaError:
    logger.info("group %s: not changed to the consumer protocol: %s", group.group_id, reason)
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {group.group_id} to consumer group: {reason}.",
    )
