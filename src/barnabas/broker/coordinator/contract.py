"""The contract between the coordinator runtime and a coordinator's shards.

A shard keeps the state behind one partition of an internal topic. An operation reads that state and returns a
`Result`: the records to append, and the response. The runtime alone appends records and calls `Shard.replay`;
see `barnabas.broker.coordinator.runtime` for what it promises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from barnabas.base.environment.clock import Clock
from barnabas.base.errors import KafkaError
from barnabas.base.types import LeaderEpoch, Offset, ProducerId, ProducerIdentity
from barnabas.broker.answers import Answer
from barnabas.broker.coordinator.timers import Timers
from barnabas.kafka.records.control import EndTransaction

T = TypeVar("T")


class StoredRecord(Protocol):
    """A typed record of an internal topic: one immutable value for each kind of record.

    A record contains only what its bytes contain: decoding them gives an equal record. Otherwise the state
    would change when another broker, or a restart, loads the partition.
    """

    def encode(self) -> tuple[bytes, bytes | None]:
        """The key and the value in the log; a value of None deletes the key.

        Raises:
            ProtocolError: a field does not fit the format.
        """


@dataclass(slots=True)
class Result(Generic[T]):
    """The result of an operation.

    `response` is given once the records are committed and replayed; it may be a future that a later
    operation resolves. `then`, if there is one, makes the response instead. It is called after the replay
    with None, or with the error that kept the records from the log. Without it that error is the answer.
    """

    response: Answer[T] | None = None
    records: Sequence[StoredRecord] = ()
    #: the records belong to this producer's transaction: they count when it commits
    producer: ProducerIdentity | None = None
    #: in place of records: the producer's transaction ends
    marker: EndTransaction | None = None
    then: Callable[[KafkaError | None], Answer[T]] | None = None
    #: called when the records are replayed and the response (or the error of `then`) is on its way
    afterwards: Callable[[], None] | None = None


class Shard(Protocol):
    """The state behind one partition of the internal topic."""

    def decode(self, key: bytes, value: bytes | None) -> StoredRecord | None:
        """Decode a record of the log, when the partition is loaded; None skips a record of unknown kind.

        Raises:
            ProtocolError: the record is of a known kind and cannot be read.
        """

    def replay(self, record: Any) -> None:
        """Apply one committed record, which an operation returned or `decode` made."""

    def replay_pending(self, producer_id: ProducerId, record: Any) -> None:
        """Keep a record of an open transaction until `end_transaction`."""

    def end_transaction(self, producer_id: ProducerId, commit: bool) -> None:
        """A producer's transaction has ended: its records become valid, or are dropped."""

    def loaded(self) -> None:
        """The log is replayed: set timers, start serving."""

    def unload(self, error: KafkaError) -> None:
        """The partition was unloaded: answer waiting requests with `error`."""


S = TypeVar("S", bound=Shard)
Operation: TypeAlias = Callable[[S], Result[T]]


@dataclass(slots=True)
class ShardContext(Generic[S]):
    """The constructor argument that the runtime gives every shard."""

    partition: int
    clock: Clock
    timers: Timers
    #: the leader epoch in which this broker coordinates the partition
    epoch: Callable[[], LeaderEpoch]
    #: the size of the largest batch that is appended
    most_bytes: Callable[[], int]
    #: runs an internal operation of the shard under the lock of its key
    write: Callable[[str, Operation[S, Any]], None]
    #: the offset that the next record gets: that of an operation's first record, while the operation runs
    log_end: Callable[[], Offset]
