"""What an operation comes to: the records that would make it so, and its answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from barnabas.registry.records import Record

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Decision(Generic[T]):
    """`records` are written all or none; nothing to write means that all is as it was asked to be."""

    records: Sequence[Record]
    answer: T
