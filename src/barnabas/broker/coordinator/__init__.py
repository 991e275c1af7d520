"""Coordinators of groups, transactions and share state, which store their state in internal topics."""

from barnabas.broker.coordinator.groups.caller import Caller
from barnabas.broker.coordinator.groups.classic.group import ClassicGroup
from barnabas.broker.coordinator.groups.classic.states import GroupState
from barnabas.broker.coordinator.groups.codec import OffsetKey
from barnabas.broker.coordinator.groups.consumer.group import ConsumerGroup, ConsumerGroupState
from barnabas.broker.coordinator.groups.offsets import OffsetStore
from barnabas.broker.coordinator.groups.pending import PendingOffsets
from barnabas.broker.coordinator.groups.service import GroupCoordinator
from barnabas.broker.coordinator.groups.share.group import ShareGroup, ShareGroupState
from barnabas.broker.coordinator.loading import InternalLog
from barnabas.broker.coordinator.share_state.persister import (
    CoordinatorPosition,
    SharePartitionKey,
    SharePersister,
    ShareState,
    StateBatch,
)
from barnabas.broker.coordinator.share_state.service import ShareCoordinator
from barnabas.broker.coordinator.transactions.marker_queue import Marker, MarkerWriter
from barnabas.broker.coordinator.transactions.producer_ids import ProducerIds
from barnabas.broker.coordinator.transactions.service import TransactionCoordinator
from barnabas.broker.coordinator.transactions.transaction import Transaction, TransactionState

__all__ = [
    "Caller",
    "ClassicGroup",
    "ConsumerGroup",
    "ConsumerGroupState",
    "CoordinatorPosition",
    "GroupCoordinator",
    "GroupState",
    "InternalLog",
    "OffsetKey",
    "Marker",
    "MarkerWriter",
    "OffsetStore",
    "PendingOffsets",
    "ProducerIds",
    "ShareCoordinator",
    "ShareGroup",
    "ShareGroupState",
    "SharePartitionKey",
    "SharePersister",
    "ShareState",
    "StateBatch",
    "Transaction",
    "TransactionCoordinator",
    "TransactionState",
]
