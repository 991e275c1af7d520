"""The contract between the coordinator runtime and a coordinator's shards.

A shard keeps the state for one partition of an internal topic. An operation reads that state and returns a
`Result`: the records to append, and the response. Only the runtime appends records and calls `Shard.replay`.
The docstring of `barnabas.broker.coordinator.runtime` says what the runtime guarantees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from barnabas.base.environment.clock import Clock
from barnabas.base.errors import KafkaError
from barnabas.base.types import LeaderEpoch, Offset, ProducerId, ProducerIdentity
from barnabas.broker.awaitables import MaybeAwaitable
from barnabas.broker.coordinator.timers import Timers
from barnabas.kafka.records.control import EndTransaction

T = TypeVar("T")


class StoredRecord(Protocol):
    """A typed record of an internal topic. Each kind of record has its own immutable class.

    A record contains only what its bytes contain: decoding them gives an equal record. If it contained more,
    the state would change when another broker, or a restart, loads the partition.
    """

    def encode(self) -> tuple[bytes, bytes | None]:
        """Return the key and the value for the log. A value of None deletes the key.

        Raises:
            ProtocolError: a field does not fit the format.
        """


@dataclass(slots=True)
class Result(Generic[T]):
    """The result of an operation on a coordinator's shard: records to append, and the response.

    `CoordinatorRuntime` runs the operation, and then does the rest:

    1. It appends `records` to the partition of the internal topic.
    2. When they are committed, it replays them: it calls `Shard.replay` with each record, which applies the
       record to the shard's state.
    3. It answers the caller of the operation with `response`.

    If the append fails, nothing is replayed, and the caller gets the error. With `then`, the operation can
    make the response itself in both cases.

    Attributes:
        response: the response, or a future that a later operation completes. It is not used with `then`.
        records: the records to append; empty if the operation changes nothing.
        producer: the producer in whose transaction the records are appended. They become valid when it
            commits. None for no transaction.
        marker: the marker to append instead of records; it ends the transaction of `producer`.
        then: called with None after the replay, or with the error after a failed append. It returns the
            response, or raises the error that the caller gets.
        afterwards: called after a successful append, soon after the caller was answered.
    """

    response: MaybeAwaitable[T] | None = None
    records: Sequence[StoredRecord] = ()
    producer: ProducerIdentity | None = None
    marker: EndTransaction | None = None
    then: Callable[[KafkaError | None], MaybeAwaitable[T]] | None = None
    afterwards: Callable[[], None] | None = None


class Shard(Protocol):
    """A coordinator's state for one partition of its internal topic. The runtime calls these methods."""

    def decode(self, key: bytes, value: bytes | None) -> StoredRecord | None:
        """Decode a record of the log while the partition loads.

        Return None for a record of an unknown kind, which the runtime skips.

        Raises:
            ProtocolError: the kind is known, but the record cannot be decoded.
        """

    def replay(self, record: Any) -> None:
        """Apply one committed record, from an operation or from `decode`."""

    def replay_pending(self, producer_id: ProducerId, record: Any) -> None:
        """Keep a committed record that belongs to the open transaction of a producer.

        The record does not change the state yet: `end_transaction` applies or drops it.
        """

    def end_transaction(self, producer_id: ProducerId, commit: bool) -> None:
        """End a producer's transaction: apply its pending records (`commit`), or drop them (not `commit`)."""

    def loaded(self) -> None:
        """Set timers and start to serve. The runtime calls this method after it has replayed the log."""

    def unload(self, error: KafkaError) -> None:
        """Answer waiting requests with `error`, because the runtime unloads the partition."""


S = TypeVar("S", bound=Shard)
Operation: TypeAlias = Callable[[S], Result[T]]


@dataclass(slots=True)
class ShardContext(Generic[S]):
    """The objects and functions that the coordinator runtime gives to a new shard.

    Attributes:
        partition: index of the shard's partition of the internal topic.
        clock: the time.
        timers: calls functions of the shard at a later time.
        epoch: returns the leader epoch in which this broker coordinates the partition.
        max_bytes: returns the size of the largest batch that can be appended, in bytes.
        write: called with a key, such as a group id, and an operation of the shard. Runs the operation when
            no other operation of the key runs.
        log_end: returns the offset of the next record. While an operation runs, its first record will get
            this offset.
    """

    partition: int
    clock: Clock
    timers: Timers
    epoch: Callable[[], LeaderEpoch]
    max_bytes: Callable[[], int]
    write: Callable[[str, Operation[S, Any]], None]
    log_end: Callable[[], Offset]
