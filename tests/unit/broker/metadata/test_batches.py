"""Divides many changes into transactions."""

from __future__ import annotations

from barnabas.broker.metadata.batches import MAX_BYTES, MAX_OPERATIONS, batches
from barnabas.broker.metadata.store import Check, Create, Operation, Set

GUARD = [Check("/controller_epoch", 3)]


def test_nothing_is_no_transaction_not_even_with_a_guard() -> None:
    assert list(batches([])) == []
    assert list(batches([], GUARD)) == []


def test_operations_keep_their_order_and_each_batch_begins_with_the_guard() -> None:
    operations: list[Operation] = [Create(f"/{number}") for number in range(1000)]
    made = list(batches(operations, GUARD))
    assert [operation for batch in made for operation in batch[1:]] == operations
    assert all(batch[0] == GUARD[0] for batch in made)
    assert max(map(len, made)) == MAX_OPERATIONS
    assert len(made) == 6


def test_large_data_fill_a_batch_before_its_operations_do() -> None:
    operations: list[Operation] = [Set(f"/{number}", bytes(100_000)) for number in range(12)]
    assert [len(batch) for batch in batches(operations)] == [5, 5, 2]


def test_operation_larger_than_a_batch_has_one_of_its_own() -> None:
    operations: list[Operation] = [Set("/a", b""), Set("/b", bytes(MAX_BYTES)), Set("/c", b"")]
    assert [len(batch) for batch in batches(operations, GUARD)] == [2, 2, 2]
