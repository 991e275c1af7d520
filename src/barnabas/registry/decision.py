"""The result of an operation: the records to write, and its answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from barnabas.registry.records import Record

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Decision(Generic[T]):
    """`records` are written all or none. Without records nothing has to change."""

    records: Sequence[Record]
    answer: T
