"""Coordinators: what a broker remembers for clients in internal topics (groups, their offsets)."""

from barnabas.coordinator.groups.caller import Caller
from barnabas.coordinator.groups.classic.group import ClassicGroup, GroupState
from barnabas.coordinator.groups.codec import OffsetKey
from barnabas.coordinator.groups.consumer.group import ConsumerGroup, ConsumerGroupState
from barnabas.coordinator.groups.offsets import OffsetStore
from barnabas.coordinator.groups.pending import PendingOffsets
from barnabas.coordinator.groups.service import GroupCoordinator
from barnabas.coordinator.loading import InternalLog
from barnabas.coordinator.transactions.marker_queue import Marker, MarkerWriter
from barnabas.coordinator.transactions.producer_ids import ProducerIds
from barnabas.coordinator.transactions.service import TransactionCoordinator
from barnabas.coordinator.transactions.transaction import Transaction, TransactionState

__all__ = [
    "Caller",
    "ClassicGroup",
    "ConsumerGroup",
    "ConsumerGroupState",
    "GroupCoordinator",
    "GroupState",
    "InternalLog",
    "OffsetKey",
    "Marker",
    "MarkerWriter",
    "OffsetStore",
    "PendingOffsets",
    "ProducerIds",
    "Transaction",
    "TransactionCoordinator",
    "TransactionState",
]
