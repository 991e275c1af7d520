"""Divides many independent changes into transactions of a size that every store accepts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from barnabas.broker.metadata.store import Create, Operation, Set

#: larger transactions are no faster, and delay later ones
MAX_OPERATIONS = 200
#: half of the largest request that ZooKeeper accepts by default (``jute.maxbuffer``)
MAX_BYTES = 512 * 1024
#: bytes of an operation in addition to its path and data, permissions included
_OVERHEAD = 64


def batches(
    operations: Iterable[Operation], preconditions: Sequence[Operation] = ()
) -> Iterator[list[Operation]]:
    """Divide `operations`, in their order, into transactions of at most `MAX_OPERATIONS` and `MAX_BYTES`.

    Args:
        operations: the changes. An operation larger than `MAX_BYTES` has a transaction of its own.
        preconditions: operations that begin each transaction, for example a Check of the controller's epoch.
    """
    batch = list(preconditions)
    fixed_bytes = held = sum(map(_size, preconditions))
    for operation in operations:
        size = _size(operation)
        if len(batch) > len(preconditions) and (len(batch) >= MAX_OPERATIONS or held + size > MAX_BYTES):
            yield batch
            batch, held = list(preconditions), fixed_bytes
        batch.append(operation)
        held += size
    if len(batch) > len(preconditions):
        yield batch


def _size(operation: Operation) -> int:
    data = operation.data if isinstance(operation, Create | Set) else b""
    return len(operation.path) + len(data) + _OVERHEAD
