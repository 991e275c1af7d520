"""Uses the filters of a batch query (on partition, offset, timestamp and topic) to read fewer records.

The filters only reduce the read. Spark applies each filter again, so a filter that this module does not
understand does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from barnabas.base.types import Offset, TopicPartition

_EVERY_OFFSET = range(2**63)


@dataclass(frozen=True)
class PushedFilters:
    """The partitions, topics, offsets and times that the filters select; None means all.

    `not_before` is the earliest timestamp, in milliseconds since 1970.
    """

    partitions: frozenset[int] | None = None
    topics: frozenset[str] | None = None
    offsets: range = _EVERY_OFFSET
    #: Records of this time or later, in milliseconds since 1970. There is no upper limit, because timestamps
    #: need not rise in a log: records with earlier times can follow.
    not_before: int | None = None

    def includes(self, tp: TopicPartition) -> bool:
        return (self.partitions is None or tp.partition in self.partitions) and (
            self.topics is None or tp.topic in self.topics
        )

    def clamp(self, offset: Offset) -> Offset:
        """Return the nearest offset in the selected range; the end of the range if `offset` is after it."""
        return min(max(offset, self.offsets.start), self.offsets.stop)


def wanted_by(filters: Iterable[Filter]) -> PushedFilters:
    """Return what to read: at least all records that pass all of `filters`."""
    wanted = PushedFilters()
    for each in filters:
        column = getattr(each, "attribute", ())
        if column == ("offset",):
            wanted = replace(wanted, offsets=_both(wanted.offsets, _offsets(each)))
        elif column == ("partition",):
            wanted = replace(wanted, partitions=_common(wanted.partitions, _values(each)))
        elif column == ("topic",):
            wanted = replace(wanted, topics=_common(wanted.topics, _values(each)))
        elif column == ("timestamp",):
            moment = _lower_end(each)
            if moment is not None and moment > (wanted.not_before or 0):
                wanted = replace(wanted, not_before=moment)
    return wanted


def _common(one: frozenset[Any] | None, other: frozenset[Any] | None) -> frozenset[Any] | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _values(each: Filter) -> frozenset[Any] | None:
    if isinstance(each, (EqualTo, EqualNullSafe)):
        return frozenset([each.value])
    return frozenset(each.value) if isinstance(each, In) else None


def _offsets(each: Filter) -> range:
    values = _values(each)
    if values is not None:
        known = [value for value in values if value is not None]
        return range(min(known), max(known) + 1) if known else range(0)
    if isinstance(each, (GreaterThan, GreaterThanOrEqual)):
        return range(each.value + isinstance(each, GreaterThan), _EVERY_OFFSET.stop)
    if isinstance(each, (LessThan, LessThanOrEqual)):
        return range(each.value + isinstance(each, LessThanOrEqual))
    return _EVERY_OFFSET


def _both(one: range, other: range) -> range:
    start = max(one.start, other.start, 0)
    return range(start, max(start, min(one.stop, other.stop)))


def _lower_end(each: Filter) -> int | None:
    if not isinstance(each, (GreaterThan, GreaterThanOrEqual, EqualTo, EqualNullSafe)):
        return None
    moment = each.value
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        return None
    return int(moment.timestamp() * 1000)
