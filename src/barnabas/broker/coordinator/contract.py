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
    """The result of an operation: the records to append, and the response.

    The runtime returns `response` when the records are committed and replayed. `response` can be a future
    that a later operation resolves.

    If `then` is set, its return value is the response instead. The runtime calls ``then(None)`` after the
    replay, or ``then(error)`` after a failed append. Without `then`, the caller gets that error.
    """

    response: MaybeAwaitable[T] | None = None
    records: Sequence[StoredRecord] = ()
    #: the records belong to this producer's transaction: they become valid when it commits
    producer: ProducerIdentity | None = None
    #: the marker to append instead of records; it ends the producer's transaction
    marker: EndTransaction | None = None
    then: Callable[[KafkaError | None], MaybeAwaitable[T]] | None = None
    #: called soon after the replay, when the caller has got the response or the error of `then`
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
        """Keep a record of a producer's open transaction.

        The record becomes valid only in `end_transaction`.
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
    """The partition, clock, timers and functions that the runtime gives to a new shard."""

    partition: int
    clock: Clock
    timers: Timers
    #: returns the leader epoch in which this broker coordinates the partition
    epoch: Callable[[], LeaderEpoch]
    #: returns the size of the largest batch that can be appended, in bytes
    max_bytes: Callable[[], int]
    #: runs an internal operation of the shard under the lock of its key
    write: Callable[[str, Operation[S, Any]], None]
    #: returns the offset of the next record. While an operation runs, its first record will get this offset
    log_end: Callable[[], Offset]
