"""Many changes, that need not happen together, in transactions of a size that suits every store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from barnabas.broker.metadata.store import Create, Operation, Set

#: larger transactions are no faster, and delay later ones
MOST_OPERATIONS = 200
#: half of what ZooKeeper takes in one request if nothing is set (``jute.maxbuffer``)
MOST_BYTES = 512 * 1024
#: what an operation takes beside its path and data, permissions included
_OVERHEAD = 64


def batches(operations: Iterable[Operation], guard: Sequence[Operation] = ()) -> Iterator[list[Operation]]:
    """Divide `operations`, in their order, into transactions of at most `MOST_OPERATIONS` and `MOST_BYTES`.

    Args:
        operations: what may be divided anywhere. One that is larger than a batch has one of its own.
        guard: what every transaction begins with, for example a Check of the controller's epoch.
    """
    batch = list(guard)
    guard_bytes = held = sum(map(_size, guard))
    for operation in operations:
        size = _size(operation)
        if len(batch) > len(guard) and (len(batch) >= MOST_OPERATIONS or held + size > MOST_BYTES):
            yield batch
            batch, held = list(guard), guard_bytes
        batch.append(operation)
        held += size
    if len(batch) > len(guard):
        yield batch


def _size(operation: Operation) -> int:
    data = operation.data if isinstance(operation, Create | Set) else b""
    return len(operation.path) + len(data) + _OVERHEAD
