"""Summarizes a task's rows in a few bytes, to detect different rows when the task is repeated."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh3_64_intdigest

#: The binary columns of a row. A missing column counts as NULL.
_BYTES = ("key", "value")
#: The 64-bit golden ratio, as in splitmix64. It is odd, so that a multiplication loses no bit of a column.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0x632BE59BD9B4E019)
_ANY_PARTITION: Hashes | np.uint64 = np.uint64(2**64 - 1)  # -1

Hashes = npt.NDArray[np.uint64]


@dataclass
class TaskContent:
    """The number of a task's rows, and the sum of their hashes.

    A row's hash depends on its topic, partition, key, value and headers. The order of the rows has no effect,
    because a shuffle changes it.
    """

    rows: int = 0
    #: the sum of the rows' hashes (XXH3), modulo 2**64; None if older notes lack it
    digest: int | None = 0

    _text: ClassVar = "rows={} content={:016x}"
    _pattern: ClassVar = re.compile(r"rows=(\d+) content=([0-9a-f]{16})")
    _part: ClassVar = "content"

    def of(self, batches: Iterator[pa.RecordBatch], topic: str | None) -> Iterator[pa.RecordBatch]:
        """Yield `batches`, and add the rows of each to this summary.

        `topic` overrides the rows' column topic, if it is not None.
        """
        for batch in batches:
            self.rows += batch.num_rows
            if self.digest is not None:
                self.digest = (self.digest + self._sum(batch, topic)) % 2**64
            yield batch

    def empty(self) -> Self:
        """Return a new summary of the same class, without rows."""
        return type(self)()

    def difference(self, now: TaskContent) -> str | None:
        """Describe the difference between these rows and the rows of `now`; None if they are equal.

        If the digest of these rows is None, because an old version of Barnabas stored none, compare only the
        numbers of rows.
        """
        if self.rows != now.rows:
            return f"was written with {self.rows} rows and now has {now.rows}"
        if self.digest not in (None, now.digest):
            return f"was written with {self.rows} rows of other {self._part} than it now has"
        return None

    def __str__(self) -> str:
        return self._text.format(self.rows, self.digest or 0)

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Parse the output of `str`; None for any other text."""
        found = cls._pattern.fullmatch(text)
        return found and cls(int(found[1]), int(found[2], 16) if found[2] else None)

    @staticmethod
    def _sum(batch: pa.RecordBatch, topic: str | None) -> int:
        return int(_row_hashes(batch, topic).sum(dtype=np.uint64))


class KeysContent(TaskContent):
    """A summary in the form of Barnabas 0.1: the number of a task's rows, and the sum of the keys' hashes.

    Versions before 0.1 stored only the number of rows.
    """

    _text = "rows={} keys={:016x}"
    _pattern = re.compile(r"rows=(\d+)(?: keys=([0-9a-f]{16}))?")
    _part = "keys"

    @staticmethod
    def _sum(batch: pa.RecordBatch, topic: str | None) -> int:
        if "key" not in batch.schema.names:
            return 0
        keys = batch.column("key").cast(pa.binary()).to_pylist()
        return sum(map(xxh3_64_intdigest, filter(None, keys)))


def _row_hashes(batch: pa.RecordBatch, topic: str | None) -> Hashes:
    """Return a hash of each row. Equal values in different columns give different hashes.

    `topic` overrides the rows' column topic, if it is not None.
    """
    names = batch.schema.names
    mixed = np.zeros(batch.num_rows, np.uint64)
    for name in _BYTES:
        mixed = _mix(mixed, _hashes(batch.column(name)) if name in names else _NULL)
    if topic is not None or "topic" not in names:
        mixed = _mix(mixed, np.uint64(xxh3_64_intdigest((topic or "").encode())))
    else:
        mixed = _mix(mixed, _hashes(batch.column("topic")))
    chosen = _ANY_PARTITION
    if "partition" in names:
        numbers = batch.column("partition").fill_null(-1).to_numpy(zero_copy_only=False)
        chosen = numbers.astype(np.int64).view(np.uint64)
    mixed = _mix(mixed, chosen)
    headers: Hashes | np.uint64 = _NULL
    if "headers" in names and batch.column("headers").null_count < batch.num_rows:
        listed = (_header_hash(each) for each in batch.column("headers").to_pylist())
        headers = np.fromiter(listed, np.uint64, batch.num_rows)
    return _mix(mixed, headers)


def _mix(mixed: Hashes, column: Hashes | np.uint64) -> Hashes:
    """Combine `mixed`, a hash of each row, with the hashes of one more column (final step of splitmix64)."""
    with np.errstate(over="ignore"):
        mixed = (mixed ^ column) * _STEP
        mixed ^= mixed >> np.uint64(29)
        return mixed * np.uint64(0xBF58476D1CE4E5B9)


def _hashes(column: pa.Array) -> Hashes:
    """Return the hash of each value in a text or binary column."""
    wide = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
    values = column.cast(pa.large_binary() if wide else pa.binary())
    listed = (values.fill_null(b"") if values.null_count else values).to_pylist()
    found = np.fromiter(map(xxh3_64_intdigest, listed), np.uint64, len(listed))
    if values.null_count:
        found[values.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return found


def _header_hash(headers: list[dict[str, object]] | None) -> int:
    if not headers:  # a record cannot say whether it has none or an empty list of them
        return int(_NULL)
    return xxh3_64_intdigest(repr([tuple(each.values()) if each else None for each in headers]).encode())
