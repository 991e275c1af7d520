"""What tells a task's rows from others when they come again: how many they are, and which keys they have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
from xxhash import xxh3_64_intdigest

_BITS = 64


@dataclass
class TaskContent:
    """The rows of a task, in a few bytes.

    The order of rows does not count, which a shuffle may change. Nor do values: sums of floating-point
    numbers may differ in their last digits from one attempt to the next, and to keep the written ones is
    right.
    """

    rows: int = 0
    #: the sum of the keys' hashes (XXH3), modulo 2**64; None where they were not noted
    keys: int | None = 0

    def of(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass `batches` on, and take note of them."""
        for batch in batches:
            self.rows += batch.num_rows
            if self.keys is not None and "key" in batch.schema.names:
                keys = batch.column("key").cast(pa.binary()).to_pylist()
                self.keys = (self.keys + sum(map(xxh3_64_intdigest, filter(None, keys)))) % 2**_BITS
            yield batch

    def difference(self, now: TaskContent) -> str | None:
        """What has changed from this to `now`, in words; None when nothing has."""
        if self.rows != now.rows:
            return f"was written with {self.rows} rows and now has {now.rows}"
        if self.keys is not None and self.keys != now.keys:
            return "was written with rows of other keys than it now has"
        return None

    def __str__(self) -> str:
        return f"rows={self.rows} keys={self.keys or 0:0{_BITS // 4}x}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The inverse of `str`; None for any other text."""
        found = re.fullmatch(rf"rows=(\d+)(?: keys=([0-9a-f]{{{_BITS // 4}}}))?", text)
        return found and cls(int(found[1]), int(found[2], 16) if found[2] else None)
