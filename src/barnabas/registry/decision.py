"""The result of an operation: the records to write, and the response."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from barnabas.registry.records import Record

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Decision(Generic[T_co]):
    """The result of an operation: the records to write in one transaction, and the response (`answer`).

    Without records, the operation does not change the state.
    """

    records: Sequence[Record]
    answer: T_co
